"""TensorRT-LLM: ``trtllm-serve`` on NVIDIA GPUs.

Owns its command line and the file of options that turns reuse of the KV cache off. Read in
NVIDIA/TensorRT-LLM on 2026-11-30 at the commits named, which lie between 1.0 and 1.2, and not run:

=============================================  ==================================================
``tensorrt_llm/commands/serve.py``             00209af: every flag below; no flag sets block
                                               reuse, a YAML file of options does
``tensorrt_llm/llmapi/llm_args.py``            ``KvCacheConfig.enable_block_reuse`` is true
``tensorrt_llm/serve/openai_server.py``        e7f7345: the port is bound early, ``/health``
                                               answers once the model is loaded; ``/metrics`` is
                                               a list of iterations, ``/prometheus/metrics`` is
                                               there with ``return_perf_metrics`` only
``tensorrt_llm/serve/openai_protocol.py``      0076e93: a request with an unknown field is
                                               refused; all that the client sends are known
``tensorrt_llm/metrics/collector.py``          89fd9b7: it counts requests and times, no tokens
=============================================  ==================================================

So token totals rest on what each answer reports. Newer sources count cached prompt tokens as
``trtllm_prompt_cached_tokens_total`` (``examples/serve/prometheus_metrics.py``, 47d640e); no total
of prompt or output tokens was found beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.bench import checkpoint
from assay.bench.engines import recipe
from assay.ledger import store

__all__ = ["serve"]


def serve(
    model: str,
    *,
    tokenizer: str = "",
    weights_kind: str = "published",
    prefix_cache: bool = False,
    tensor_parallel: int = 1,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> recipe.Recipe:
    """Return how to serve a model with the installed TensorRT-LLM.

    Parameters
    ----------
    model : str
        Folder or hub id.
    tokenizer : str
        Folder or hub id, where it differs.
    weights_kind : str
        ``random`` or ``published``.
    prefix_cache : bool
        Whether prompts may share work. Off, so that a repeated prompt is not mistaken for speed;
        the file that says so is kept in :func:`assay.bench.checkpoint.cache`.
    tensor_parallel : int
        Devices one replica is split over [1].
    flags : sequence of str
        Further arguments of ``trtllm-serve``. It takes one file of options: where yours replaces
        this one, it must set ``enable_block_reuse`` itself.
    environment : mapping or None
        Further variables.

    Raises
    ------
    InputError
        When TensorRT-LLM is not installed.
    """
    _, number = recipe.version("tensorrt-llm", "tensorrt_llm")
    command = [recipe.program("trtllm-serve"), "serve", model]
    command += ["--host", "127.0.0.1", "--port", recipe.PORT, "--tp_size", str(tensor_parallel)]
    command += ["--extra_llm_api_options", str(_options(prefix_cache))]
    if tokenizer:
        command += ["--tokenizer", tokenizer]
    return recipe.Recipe(
        engine="TensorRT-LLM",
        version=number,
        model=model,
        tokenizer=tokenizer or model,
        weights=model,
        weights_kind=weights_kind,
        command=(*command, *flags),
        environment=dict(environment or {}),
        metrics="",
        prefix_cache="on" if prefix_cache else "off",
        compiles=r"Building engine|autotun|Capturing CUDA graph",
        devices=tensor_parallel,
    )


def _options(prefix_cache: bool) -> Path:
    """Return the file that sets reuse of KV blocks, written on first use."""
    said = "true" if prefix_cache else "false"
    file = checkpoint.cache() / f"trtllm-block-reuse-{said}.yaml"
    if not file.is_file():
        store.write(file, f"kv_cache_config:\n  enable_block_reuse: {said}\n")
    return file
