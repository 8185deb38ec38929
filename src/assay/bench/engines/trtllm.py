"""TensorRT-LLM: ``trtllm-serve`` on NVIDIA GPUs.

Owns its command line. Flags are as commonly used with 1.x; they were neither run nor read against
an installation. Verify them before trusting a run. Its ``/metrics`` is a list of iterations and no
Prometheus text, so token totals rest on what each answer reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.bench.engines import recipe

__all__ = ["serve"]


def serve(
    model: str,
    *,
    tokenizer: str = "",
    weights_kind: str = "published",
    tensor_parallel: int = 1,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> recipe.Recipe:
    """Return how to serve a model with the installed TensorRT-LLM.

    Parameters are those of :func:`assay.bench.engines.vllm.serve`.

    Raises
    ------
    InputError
        When TensorRT-LLM is not installed.
    """
    _, number = recipe.version("tensorrt-llm", "tensorrt_llm")
    command = [recipe.program("trtllm-serve"), "serve", model]
    command += ["--host", "127.0.0.1", "--port", recipe.PORT, "--tp_size", str(tensor_parallel)]
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
        compiles=r"Building engine|autotun|Capturing CUDA graph",
        devices=tensor_parallel,
    )
