"""Facts: records reduced to the numbers physics takes.

Owns the border between a stored record and the plain arguments of ``assay.physics``. Does not own
either side. Where a record states a quantity twice, physics takes the figure most generous to a
claim (see ``physics.accelerator``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from assay.errors import InputError
from assay.ledger import store
from assay.physics import accelerator, conditions, kv, parameters, units

if TYPE_CHECKING:
    from assay.ledger import records

__all__ = ["device", "limits", "limits_of"]

# "70B" is how people write 70e9 parameters; a size in bytes is written with GB or GiB.
_NUMBER = r"\d+(?:\.\d+)?(?:[eE]\+?\d+)?"
_COUNT = re.compile(rf"({_NUMBER})\s*([KMBT]?)", re.IGNORECASE)
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_LEAST = 1e6  # below this a number is billions whose letter was forgotten


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

    Notes
    -----
    The active parameters of a record leave out an input table that is looked up, so it is not
    taken off again.
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
        embedding=0 if tied or record.active_parameters else table,
        head=table,
    )


def limits_of(
    model: str, read_config: Callable[[str], Mapping[str, object]]
) -> conditions.ModelFacts:
    """Return the limits of a model named on the command line.

    Parameters
    ----------
    model : str
        An id of ``data/models``; parameters such as ``70.55e9`` or ``70B`` (B: 10^9 parameters);
        ``TOTAL:ACTIVE`` for a mixture of experts, such as ``671e9:37e9``; the bytes read per step,
        such as ``4.68 GB``; or anything ``read_config`` knows.
    read_config : callable
        Returns the configuration of a file or hub id.

    Returns
    -------
    ModelFacts
        What limits its speed. From a bare number, KV cache and tables are unknown, which is
        generous.

    Raises
    ------
    InputError
        When the words do not say how large the model is.
    DerivationError
        When a configuration does not determine its parameters.

    Examples
    --------
    >>> limits_of("671e9:37B", dict).active
    37000000000.0
    >>> limits_of("4.68 GB", dict).weights_read
    4680000000.0
    """
    words = model.strip()
    if words in store.model_ids():
        return limits(store.model(words))
    if re.fullmatch(rf"{_NUMBER}\s*[KMGT]i?B", words) and not _COUNT.fullmatch(words):
        size, _ = units.to_base(*units.quantity(words))
        return conditions.ModelFacts(parameters=None, weights_read=size)
    if words[:1].isdigit() and re.fullmatch(r"[\d.eEkKmMbBtT+:xXaA\s-]+", words):
        total, colon, active = words.partition(":")
        return conditions.ModelFacts(
            parameters=_parameters(total, words),
            active=_parameters(active, words) if colon else None,
        )
    config = read_config(words)
    counted = parameters.count(config)
    return conditions.ModelFacts(
        parameters=counted.total,
        active=None if counted.active == counted.total else counted.active,
        kv_per_token=kv.report(config).growth_bytes_per_token,
        embedding=counted.embedding,
        head=counted.head,
    )


def _parameters(text: str, words: str) -> float:
    found = _COUNT.fullmatch(text.strip())
    if found is None:
        raise InputError(
            f"'{words}' does not say how many parameters there are: experts share attention, so "
            "8x7B is not 56B, and a name is not a count",
            where="--model",
            fix="write TOTAL:ACTIVE, for example 46.7e9:12.9e9",
        )
    value = float(found[1]) * _SCALE[found[2].upper()]
    if not _LEAST <= value < 1e18:
        raise InputError(
            f"'{words}' is not a size a model can have",
            where="--model",
            fix="write the parameters in full, for example 70e9 or 70B",
        )
    return value
