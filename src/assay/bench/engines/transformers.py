"""transformers: ``transformers serve`` with continuous batching.

Owns its command line. It publishes no counters, so token totals rest on what each answer reports,
and it refuses request fields it does not know (checked on 2026-11-30 against 5.19.0).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from assay.bench.engines import recipe

__all__ = ["serve"]

_UNKNOWN_FIELDS = ("ignore_eos", "logprobs", "repetition_penalty", "stream_options")


def serve(
    model: str,
    *,
    weights_kind: str = "published",
    continuous_batching: bool = True,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> recipe.Recipe:
    """Return how to serve a model with the installed transformers.

    Parameters
    ----------
    model : str
        Folder or hub id.
    weights_kind : str
        ``random`` or ``published``.
    continuous_batching : bool
        Whether requests are batched together.
    flags : sequence of str
        Further arguments of ``transformers serve``.
    environment : mapping or None
        Further variables.

    Raises
    ------
    InputError
        When transformers, or accelerate which it needs, is not installed.
    """
    recipe.version("accelerate")
    _, number = recipe.version("transformers")
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", model]
    command += ["--host", "127.0.0.1", "--port", recipe.PORT]
    if continuous_batching:
        command += ["--continuous-batching"]
    added = {"HF_HUB_OFFLINE": "1"} if os.path.isdir(model) else {}
    return recipe.Recipe(
        engine="transformers",
        version=number,
        model=model,
        tokenizer=model,
        weights=model,
        weights_kind=weights_kind,
        command=(*command, *flags),
        environment={**added, **(environment or {})},
        metrics="",
        unsupported=_UNKNOWN_FIELDS,
        devices=recipe.gpus(1),
    )
