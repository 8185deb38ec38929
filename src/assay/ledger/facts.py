"""Facts: records reduced to the numbers physics takes.

Owns the border between a stored record and the plain arguments of ``assay.physics``. Does not own
either side. Where a record states a quantity twice, physics takes the figure most generous to a
claim (see ``physics.accelerator``).
"""

from __future__ import annotations

from assay.ledger import records
from assay.physics import accelerator, conditions, kv

__all__ = ["device", "limits"]


def device(record: records.Hardware) -> accelerator.Accelerator:
    """Return the numbers physics needs of one device.

    Parameters
    ----------
    record : Hardware
        A device's record.

    Returns
    -------
    Accelerator
        Memory [B], bandwidth [B/s] and dense peaks [FLOP/s].
    """
    return accelerator.from_record(record.model_dump())


def limits(record: records.Model) -> conditions.ModelFacts:
    """Return the numbers of a model that limit its speed.

    Parameters
    ----------
    record : Model
        A model's record.

    Returns
    -------
    ModelFacts
        Parameters, growth of the KV cache per token at 16 bit [B/tok] and the size of embedding
        and head. A figure the configuration does not determine is left out, which is generous.
    """
    found = kv.report(record.config)
    vocabulary = record.config.get("vocab_size")
    width = record.config.get("hidden_size")
    table = vocabulary * width if isinstance(vocabulary, int) and isinstance(width, int) else 0
    tied = record.config.get("tie_word_embeddings") is not False
    return conditions.ModelFacts(
        parameters=record.parameters,
        active=record.active_parameters,
        kv_per_token=found.growth_bytes_per_token,
        embedding=0 if tied else table,
        head=table,
    )
