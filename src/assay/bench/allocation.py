"""Allocation: what an engine says and does about KV memory, as evidence.

Owns turning the oracle's answer and the pools of started engines into evidence with provenance.
Does not own asking (``oracle``), starting (``pool``) or the closed form (``physics.kv``).
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.bench import checkpoint, machine, oracle, pool, private, provenance
from assay.ledger import records, store

__all__ = ["asked", "measured", "pools"]

Parameters = Mapping[str, bool | int | float | str]


def asked(
    claim: records.Claim,
    assertion: str,
    config: Mapping[str, object],
    *,
    parameters: Parameters,
    inputs: Sequence[str],
    conditions: Mapping[str, str | int],
) -> str:
    """Ask vLLM's own KV specs for a model's bytes per token and keep the answer as evidence.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        An assertion about KV bytes per token, every layer at full length, at 16 bit.
    config : mapping
        The model's configuration.
    parameters : mapping
        The notebook's parameters.
    inputs : sequence of str
        Files the answer depends on.
    conditions : mapping
        Scope values it holds for.

    Returns
    -------
    str
        One sentence: the answer, or why there is none here and what is shown instead.

    Notes
    -----
    Nothing runs on a device, so the provenance names build and version and no machine, and asking
    again gives the same file.
    """
    why = private.absent()
    if why:
        return f"The engine is not asked here ({why}); its committed answer is shown."
    answer = oracle.specs(config)
    if isinstance(answer, oracle.Refusal):
        return f"{answer.engine} {answer.version} does not load this configuration: {answer.reason}"
    each = answer.all_layers_bytes_per_token
    words = (
        f"{answer.engine} {answer.version}'s own KV specs give {each:,} B per token in "
        f"{len(answer.layers)} layers."
    )
    store.found(
        claim,
        assertion,
        basis="derived",
        value=each,
        unit="B/tok",
        method="the engine's KV cache specs, asked without weights",
        finding=words,
        parameters=parameters,
        inputs=inputs,
        conditions=conditions,
        provenance=records.Provenance(
            device="none, specifications only",
            driver=None,
            clocks=None,
            engine=answer.engine,
            engine_version=answer.version,
            flags=(),
            packages={answer.engine: answer.version},
            commit="n/a",
            started="n/a",
            ended="n/a",
        ),
    )
    return words


def pools(
    starts: int,
    *,
    model: str = "",
    memory: int = 16 * 2**20,
    tell: Callable[[str], object] = print,
) -> list[pool.Pool]:
    """Start an engine several times and read the pool it allocates each time.

    Parameters
    ----------
    starts : int
        Fresh processes, one after the other.
    model : str
        Folder or hub id; a small model with random weights is made when empty.
    memory : int
        KV memory the engine may use on each device [B].
    tell : callable
        Receives a line of progress before each start.

    Returns
    -------
    list of Pool
        One per start.
    """
    shape = model or checkpoint.make()
    found = []
    for number in range(1, starts + 1):
        tell(f"start {number} of {starts}")
        found.append(pool.measure(shape, memory=memory))
    return found


def measured(
    claim: records.Claim,
    assertion: str,
    found: Sequence[pool.Pool],
    *,
    parameters: Parameters,
    conditions: Mapping[str, str | int],
) -> records.Evidence:
    """Keep what started engines allocated as measured evidence.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        An assertion about bytes allocated ÷ bytes of the closed form.
    found : sequence of Pool
        One per start.
    parameters : mapping
        The notebook's parameters.
    conditions : mapping
        Scope values it holds for.

    Returns
    -------
    Evidence
        The interval is the range over all starts; raw steps of filling lie beside it.
    """
    ratios = [p.tensor_bytes / p.formula_bytes for p in found]
    first, here = found[0], machine.discover(())
    gates = (
        records.Gate(
            id="pool-filled",
            passed=all(p.steps and p.steps[-1].blocks <= p.blocks for p in found),
            says="every pool was filled until a further sequence found no room",
        ),
        records.Gate(
            id="blocks-as-lengths-ask",
            passed=all(s.blocks == s.expected_blocks for p in found for s in p.steps),
            says="at every step the engine held the blocks that the lengths ask for",
        ),
        records.Gate(
            id="same-build",
            passed=len({(p.engine, p.version, p.device) for p in found}) == 1,
            says="every start was of one build on one device",
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"start": n, **row} for n, p in enumerate(found, 1) for row in p.rows()]
        samples = Path(folder) / f"{assertion}.samples.csv"
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        store.write(samples, table.getvalue())
        kept = store.keep_samples(claim.id, samples)
    return store.found(
        claim,
        assertion,
        basis="measured",
        value=sum(ratios) / len(ratios),
        low=min(ratios),
        high=max(ratios),
        unit="1",
        n=len(found),
        method="range over engine starts, each a fresh process",
        finding=(
            f"{len(found)} starts of {first.engine} {first.version} ({first.device}) each "
            f"allocated {first.tensor_bytes:,} B in {first.blocks} blocks of {first.block_size} "
            f"tokens; the formula gives {first.formula_bytes:,} B."
        ),
        parameters=parameters,
        inputs=[],
        conditions=conditions,
        gates=gates,
        provenance=records.Provenance(
            device=here.processor if first.device == "cpu" else first.device,
            driver=None if first.device == "cpu" else here.devices[0].driver,
            clocks=None,
            engine=first.engine,
            engine_version=first.version,
            flags=tuple(_placed(flag) for flag in first.flags),
            packages=first.packages,
            commit=provenance.commit(),
            started=first.started,
            ended=found[-1].ended,
        ),
        samples=kept,
    )


def _placed(flag: str) -> str:
    """Return an option without the folder its value lies in, which says nothing elsewhere."""
    name, _, value = flag.partition("=")
    return f"{name}={Path(value).name}" if value.startswith("/") else flag
