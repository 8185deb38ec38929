"""Nano scheduler: nano-vLLM's own scheduler and block manager, asked from a checkout.

Owns loading those two classes from a checkout of a known commit, feeding them requests of given
lengths without a model, and counting what they hand out. Does not own the committed answers and
what they say about a claim (``nano``).

nano-vLLM imports CUDA kernels as soon as its package is imported; its scheduler needs none of them.
So the files are loaded one by one, and only files whose content is known. The package xxhash, with
which its block manager hashes, has to be installed; nothing else here needs it.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.ledger import store

__all__ = ["COMMIT", "SLOTS", "Asked", "ask", "defaults"]

COMMIT = "bb823b3"
# Content of the files that are loaded, at that commit.
_FILES = {
    "config.py": "bca5fddf1709",
    "sampling_params.py": "1e5146d1a06f",
    "engine/sequence.py": "d5bb5c522d22",
    "engine/block_manager.py": "d0240374f589",
    "engine/scheduler.py": "e7302942c967",
}
SLOTS = 15_700  # Kwon et al., SOSP 2023, table 1: KV pool of an A100 40GB serving OPT-13B
_PACKAGE = "nanovllm"


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What the scheduler did with requests, on average over decode steps with requests waiting.

    Parameters
    ----------
    block : int
        Tokens a block.
    requests : int
        Requests served to their end [1].
    steps : int
        Decode steps that count [1].
    preempted : int
        Times a sequence was sent back to the waiting queue [1].
    sequences, live_length : float
        Live sequences [1], and tokens of one [tok].
    waste : float
        Share of the slots handed out that hold no token, 0 to 1.
    """

    block: int
    requests: int
    steps: int
    preempted: int
    sequences: float
    live_length: float
    waste: float


def ask(
    checkout: Path,
    lengths: Sequence[tuple[int, int]],
    *,
    block: int | None = None,
    slots: int = SLOTS,
) -> Asked:
    """Let nano-vLLM's scheduler serve requests from a pool that is always in demand.

    Parameters
    ----------
    checkout : Path
        nano-vLLM at :data:`COMMIT`.
    lengths : sequence of (int, int)
        Prompt and output tokens of each request, in the order of arrival [tok].
    block : int or None
        Tokens a block; its own default when None.
    slots : int
        Tokens the pool can hold.

    Returns
    -------
    Asked
        Averages over its decode steps.

    Raises
    ------
    InputError
        When the checkout is another, xxhash is missing, or nothing ever waits.

    Notes
    -----
    In a decode step a sequence of n tokens has written n keys, so a block table of k blocks leaves
    k * block - n slots empty. Prompts share no block: each repeats a number of its own.
    """
    with _loaded(checkout) as (scheduler_class, sequence_class, params, defaults):
        size = int(defaults["kvcache_block_size"]) if block is None else block
        config = types.SimpleNamespace(
            **{**defaults, "kvcache_block_size": size, "num_kvcache_blocks": slots // size}
        )
        sequence_class.block_size = size
        scheduler = scheduler_class(config)
        for number, (prompt, output) in enumerate(lengths):
            given = params(max_tokens=output, ignore_eos=True)
            scheduler.add(sequence_class([number + 1] * prompt, given))
        return _serve(scheduler, size, len(lengths))


def _serve(scheduler: Any, block: int, requests: int) -> Asked:
    steps = tokens = slots = sequences = preempted = 0
    while not scheduler.is_finished():
        before = {id(one) for one in scheduler.running}
        scheduled, prefill = scheduler.schedule()
        if not prefill:
            preempted += sum(id(one) in before for one in scheduler.waiting)
            if scheduler.waiting:
                live = list(scheduler.running)
                steps += 1
                sequences += len(live)
                tokens += sum(len(one) for one in live)
                slots += sum(len(one.block_table) for one in live) * block
        scheduler.postprocess(scheduled, [0] * len(scheduled), prefill)
    if not steps:
        raise InputError("all requests fit at once, so nothing ever waits", fix="give more")
    return Asked(
        block,
        requests,
        steps,
        preempted,
        sequences / steps,
        tokens / sequences,
        1 - tokens / slots,
    )


@contextlib.contextmanager
def _loaded(checkout: Path) -> Iterator[tuple[Any, Any, Any, dict[str, Any]]]:
    """Load scheduler, sequence and sampling parameters without the rest of the package."""
    folder = checkout / _PACKAGE
    for name, known in _FILES.items():
        file = folder / name
        if not file.is_file() or store.digest(file)[:12] != known:
            raise InputError(
                f"is not nano-vLLM at {COMMIT}",
                where=str(file),
                fix=f"check out github.com/GeeeekExplorer/nano-vllm at {COMMIT}",
            )
    if importlib.util.find_spec("xxhash") is None:
        raise InputError("xxhash is not installed", fix="pip install xxhash")
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _ours(name)}
    try:
        for name in (_PACKAGE, f"{_PACKAGE}.engine"):
            module = types.ModuleType(name)
            module.__path__ = [str(folder / name.partition(".")[2])]
            sys.modules[name] = module
        # Its configuration reads a model's; the scheduler takes from it only numbers.
        stub = types.ModuleType(f"{_PACKAGE}.config")
        stub.Config = object  # type: ignore[attr-defined]
        sys.modules[stub.__name__] = stub
        scheduler = importlib.import_module(f"{_PACKAGE}.engine.scheduler")
        sequence = importlib.import_module(f"{_PACKAGE}.engine.sequence")
        sampling = importlib.import_module(f"{_PACKAGE}.sampling_params")
        yield (
            scheduler.Scheduler,
            sequence.Sequence,
            sampling.SamplingParams,
            defaults(store.read_text(folder / "config.py")),
        )
    finally:
        for name in [name for name in sys.modules if _ours(name)]:
            del sys.modules[name]
        sys.modules.update(kept)


def _ours(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def defaults(source: str) -> dict[str, Any]:
    r"""Return the plain defaults of the first class of a file.

    Parameters
    ----------
    source : str
        Its text.

    Examples
    --------
    >>> defaults("class Config:\n    block: int = 256\n    model: str\n")
    {'block': 256}
    """
    found = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    kept = {}
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            with contextlib.suppress(ValueError):
                kept[node.target.id] = ast.literal_eval(node.value)
    return kept
