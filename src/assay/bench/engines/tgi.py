"""TGI: Text Generation Inference.

Owns its command line and counters. Flags and names are as commonly used with 3.x; they were neither
run nor read against an installation, since it is no Python package. Verify them before trusting a
run.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from assay.bench.engines import counters, recipe

__all__ = ["COUNTS", "serve"]

COUNTS = counters.Names(
    prompt="tgi_request_input_length_sum", output="tgi_request_generated_tokens_sum"
)


def serve(
    model: str,
    *,
    tokenizer: str = "",
    weights_kind: str = "published",
    shards: int = 1,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> recipe.Recipe:
    """Return how to serve a model with the installed ``text-generation-launcher``.

    Parameters
    ----------
    model : str
        Folder or hub id.
    tokenizer : str
        Folder or hub id for the client, where it differs.
    weights_kind : str
        ``random`` or ``published``.
    shards : int
        Devices the model is split over [1].
    flags : sequence of str
        Further arguments.
    environment : mapping or None
        Further variables.

    Raises
    ------
    InputError
        When the launcher is not on the search path.
    """
    launcher = recipe.program("text-generation-launcher")
    said = subprocess.run(
        [launcher, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    command = [launcher, "--model-id", model, "--hostname", "127.0.0.1", "--port", recipe.PORT]
    command += ["--num-shard", str(shards)]
    return recipe.Recipe(
        engine="TGI",
        version=said.stdout.rpartition(" ")[2].strip() or "unknown",
        model=model,
        tokenizer=tokenizer or model,
        weights=model,
        weights_kind=weights_kind,
        command=(*command, *flags),
        environment=dict(environment or {}),
        counts=COUNTS,
        unsupported=("ignore_eos", "repetition_penalty"),
        compiles=r"Cuda Graphs|warmup|torch\.compile",
        devices=shards,
    )
