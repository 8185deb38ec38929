"""SGLang: its server on NVIDIA or AMD GPUs.

Owns its command line and counters. Read in the wheel of SGLang 0.5.23 on 2026-11-30, and not run,
since it has no build for a processor that installs here:

===========================================  ====================================================
``sglang/srt/arg_groups/fields/``            every flag below; metrics are off unless asked for,
                                             the radix cache is on unless told otherwise
``sglang/srt/entrypoints/http_server.py``    ``/health_generate`` answers 503 while starting, then
                                             generates one token; it is not counted
``sglang/srt/observability/``                ``metrics_collector.py``: a request is counted when it
                                             ends; ``prompt_tokens_total`` includes cached tokens
``sglang/srt/entrypoints/openai/``           ``protocol.py``: ``ignore_eos`` and
                                             ``repetition_penalty`` are known
===========================================  ====================================================

A counter with labels appears with its first event, so that hits and retractions that never
happened are absent and mean none.
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
    hit="sglang:cached_tokens_total?",
    preempted="sglang:num_retracted_requests_total?",
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

    Parameters
    ----------
    model : str
        Folder or hub id.
    tokenizer : str
        Folder or hub id, where it differs.
    weights_kind : str
        ``random`` or ``published``.
    prefix_cache : bool
        Whether prompts may share work. Off, so that a repeated prompt is not mistaken for speed.
    tensor_parallel : int
        Devices one replica is split over [1].
    flags : sequence of str
        Further arguments of ``sglang.launch_server``.
    environment : mapping or None
        Further variables.

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
        compiles=r"[Cc]aptur\w+ .*(CUDA|cuda) graph|JIT compil|torch\.compile",
        devices=tensor_parallel,
    )
