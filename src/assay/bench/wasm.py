"""Wasm: how long a WebAssembly module takes from its text to its first answer, on this machine.

Owns a module of one function, and the time of each step in a fresh process: compiling it, making
the first instance, making a further one. Does not own engines of language models (``starts``).

It needs the package wasmtime, which nothing else here needs; it is no dependency of the project.
``python -m assay.bench.wasm`` measures in its own process and prints one JSON object.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from assay.errors import InputError, RunError

__all__ = ["QUANTITIES", "absent", "seconds", "version"]

# What is timed [s], in the order in which it happens.
QUANTITIES = {
    "process": "process started, module compiled, first call answered",
    "compile": "module compiled",
    "first_instance": "first instance made and called",
    "instance": "a further instance made and called, median",
}
_MODULE = '(module (func (export "next") (param i32) (result i32) local.get 0 i32.const 1 i32.add))'
_AGAIN = 1000  # further instances
_LIMIT = 60.0  # for one process [s]


def version() -> str:
    """Return the version of wasmtime, empty where it is not installed."""
    if importlib.util.find_spec("wasmtime") is None:
        return ""
    return importlib.metadata.version("wasmtime")


def absent() -> str:
    """Return why nothing can be timed here, in a sentence; empty when it can."""
    return "" if version() else "wasmtime is not installed"


def seconds() -> dict[str, float]:
    """Return the seconds of every step of one fresh process.

    Returns
    -------
    dict of str to float
        By name of :data:`QUANTITIES` [s].

    Raises
    ------
    InputError
        When wasmtime is not installed.
    RunError
        When the process fails.
    """
    if absent():
        raise InputError(absent(), fix="pip install wasmtime==50.0.1")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "assay.bench.wasm"],
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the process failed: {last[:200]}", where="assay.bench.wasm")
    found = json.loads(done.stdout)
    # What the process does after its first answer is not part of its start.
    whole = time.monotonic() - began - found.pop("after")
    return {"process": whole, **found}


def _steps() -> dict[str, float]:
    wasmtime: Any = importlib.import_module("wasmtime")
    clock = time.perf_counter
    engine = wasmtime.Engine()
    began = clock()
    module = wasmtime.Module(engine, _MODULE)
    compiled = clock()
    _call(wasmtime, engine, module)
    called = clock()
    again = []
    for _ in range(_AGAIN):
        start = clock()
        _call(wasmtime, engine, module)
        again.append(clock() - start)
    return {
        "compile": compiled - began,
        "first_instance": called - compiled,
        "instance": statistics.median(again),
        "after": clock() - called,
    }


def _call(wasmtime: Any, engine: Any, module: Any) -> None:
    store = wasmtime.Store(engine)
    instance = wasmtime.Instance(store, module, [])
    if instance.exports(store)["next"](store, 1) != 2:
        raise RunError("the module's answer is wrong", where="assay.bench.wasm")


if __name__ == "__main__":
    print(json.dumps(_steps()))
