"""SGLang: its server on NVIDIA or AMD GPUs.

Owns its command line and counters. Flags and names are as commonly used with 0.5; they were neither
run nor read against an installation, since it has no CPU wheel. Verify them before trusting a run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from assay.bench.engines import counters, recipe

__all__ = ["COUNTS", "serve"]

COUNTS = counters.Names(
    prompt="sglang:prompt_tokens_total",
    output="sglang:generation_tokens_total",
    queried="sglang:prompt_tokens_total",
    hit="sglang:cached_tokens_total",
)


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
    """Return how to serve a model with the installed SGLang.

    Parameters are those of :func:`assay.bench.engines.vllm.serve`.

    Raises
    ------
    InputError
        When SGLang is not installed.
    """
    _, number = recipe.version("sglang")
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", model]
    command += ["--host", "127.0.0.1", "--port", recipe.PORT, "--enable-metrics"]
    command += ["--tp-size", str(tensor_parallel)]
    if tokenizer:
        command += ["--tokenizer-path", tokenizer]
    if not prefix_cache:
        command += ["--disable-radix-cache"]
    return recipe.Recipe(
        engine="SGLang",
        version=number,
        model=model,
        tokenizer=tokenizer or model,
        weights=model,
        weights_kind=weights_kind,
        command=(*command, *flags),
        environment=dict(environment or {}),
        ready="/health_generate",
        counts=COUNTS,
        prefix_cache="on" if prefix_cache else "off",
        compiles=r"Capture cuda graph|JIT compil|torch\.compile",
        devices=tensor_parallel,
    )
