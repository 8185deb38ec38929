"""Pool: the KV memory that a really running engine allocated, read and filled.

Owns starting an installed vLLM on a checkpoint in a process of its own, reading the tensors it
allocated, filling them with sequences until no further one fits, and laying what it finds beside
the formula. Bounded in time; the process and its children are ended whatever happens. Does not own
the formula (``assay.physics.kv``), inner names (``manager``) or making a checkpoint.

::

    measure -> python -m assay.bench.pool (one engine, one JSON line) -> Pool
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.bench import hub, manager, private
from assay.errors import InputError, RunError
from assay.physics import kv

__all__ = ["Pool", "Step", "measure"]

_MARK = "ASSAY-POOL "


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """The pool after one more sequence was given room.

    Parameters
    ----------
    sequences : int
        Live sequences.
    tokens : int
        Tokens whose keys and values are in the pool.
    blocks : int
        Blocks held, by the engine's own count.
    expected_blocks : int
        Blocks that the lengths ask for.
    """

    sequences: int
    tokens: int
    blocks: int
    expected_blocks: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """What a running engine allocated, beside the formula [B].

    Parameters
    ----------
    device : str
        ``cpu``, or the GPU's name.
    engine, version : str
        The build.
    blocks, block_size : int
        Blocks of the pool and tokens each holds.
    asked_bytes : int
        The memory it was told to use.
    tensor_bytes : int
        Bytes of the tensors that hold the pool, added up from their storage.
    formula_bytes : int
        blocks × block size × our bytes per token.
    bytes_per_token, formula_bytes_per_token : int
        From the tensors, and from the configuration.
    steps : tuple of Step
        Filling the pool, one sequence at a time.
    refused_at : int
        Sequences after which a further one found no room.
    started, ended : str
        UTC.
    packages : dict
        Versions that matter.
    flags : tuple of str
        Engine options.
    """

    device: str
    engine: str
    version: str
    blocks: int
    block_size: int
    asked_bytes: int
    tensor_bytes: int
    formula_bytes: int
    bytes_per_token: int
    formula_bytes_per_token: int
    steps: tuple[Step, ...]
    refused_at: int
    started: str
    ended: str
    packages: dict[str, str]
    flags: tuple[str, ...]

    def rows(self) -> list[dict[str, int]]:
        """Return the steps as a table."""
        return [dataclasses.asdict(step) for step in self.steps]


def measure(
    checkpoint: Path | str,
    *,
    memory: int = 64 * 2**20,
    longest: int = 2048,
    length: int = 500,
    block_size: int | None = None,
    kv_dtype: str = "auto",
    seconds: float = 300,
) -> Pool:
    """Start the installed vLLM on a checkpoint, read its KV pool and fill it.

    Parameters
    ----------
    checkpoint : Path or str
        Folder of a model, or the id of one that is in the hub's cache already.
    memory : int
        KV memory the engine may use on each device [B].
    longest : int
        Longest sequence it serves [tok].
    length : int
        Length of the sequences the pool is filled with [tok].
    block_size : int, optional
        Tokens a block; the engine's own choice when not given.
    kv_dtype : str
        vLLM's name of the cache's format.
    seconds : float
        Time after which the engine is ended [s].

    Returns
    -------
    Pool
        What it allocated, and each step of filling it.

    Raises
    ------
    InputError
        When vLLM is not installed or of an unknown version, or the model has windows or states:
        their groups of layers share blocks, so blocks times bytes per token is not their pool.
    RunError
        When the engine does not start, or not in time.

    Notes
    -----
    The device is what torch finds: a GPU where there is one, else the CPU. Some 15 s and 1 GB for
    a model of 5 million parameters on two cores.
    """
    why = private.absent()
    if why:
        raise InputError(why, fix="install the extra 'cpu', or 'gpu' on an NVIDIA machine")
    formula = kv.report(
        hub.config(str(checkpoint)), kv_dtype=None if kv_dtype == "auto" else kv_dtype
    )
    each = formula.all_layers_bytes_per_token
    if each is None or formula.bounded_bytes_per_sequence:
        raise InputError(
            formula.reason or "its layers do not all keep every token",
            where=str(checkpoint),
            fix="choose a model with full attention in every layer",
        )
    asked: dict[str, Any] = {
        "checkpoint": str(checkpoint),
        "memory": memory,
        "longest": longest,
        "length": length,
        "block_size": block_size,
        "kv_dtype": kv_dtype,
    }
    started = _now()
    found = _in_a_process(asked, seconds)
    slots = found["blocks"] * found["block_size"]
    engine, version = private.version() or ("", "")
    return Pool(
        device=found["device"],
        engine=engine,
        version=version,
        blocks=found["blocks"],
        block_size=found["block_size"],
        asked_bytes=memory,
        tensor_bytes=found["tensor_bytes"],
        formula_bytes=slots * each,
        bytes_per_token=found["tensor_bytes"] // slots,
        formula_bytes_per_token=each,
        steps=tuple(Step(**row) for row in found["steps"]),
        refused_at=found["refused_at"],
        started=started,
        ended=_now(),
        packages=found["packages"],
        flags=tuple(f"{name}={value}" for name, value in sorted(found["options"].items())),
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _in_a_process(asked: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    # A process of its own: an engine keeps its memory, its threads and its settings until it ends.
    process = subprocess.Popen(
        [sys.executable, "-m", "assay.bench.pool", json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RunError(f"the engine did not finish in {seconds:g} s") from None
    finally:
        # Its session is its process group, so children go with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    for line in out.splitlines():
        if line.startswith(_MARK):
            return dict(json.loads(line.removeprefix(_MARK)))
    last = (complaint.strip().splitlines() or ["no message"])[-1]
    raise RunError(f"the engine did not start: {last[:300]}")


def _serve(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run one engine and answer about its pool; the child's side of :func:`measure`."""
    return manager.serve_and_fill(
        str(asked["checkpoint"]),
        memory=int(asked["memory"]),
        longest=int(asked["longest"]),
        length=int(asked["length"]),
        block_size=asked["block_size"],
        kv_dtype=str(asked["kv_dtype"]),
    )


if __name__ == "__main__":
    print(_MARK + json.dumps(_serve(json.loads(sys.argv[1]))), flush=True)
