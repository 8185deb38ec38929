"""TGI: Text Generation Inference.

Owns its command line and counters. Read in huggingface/text-generation-inference at db931fc
(2026-01-08, after 3.3.7; the project is in maintenance) on 2026-11-30, and not run, since it is no
Python package:

=============================  ==================================================================
``launcher/src/main.rs``       every flag below; the variable ``PREFIX_CACHING``, which is true
                               unless the model or its attention rules it out. The launcher also
                               takes port 9000 for metrics, so two at once need a
                               ``--prometheus-port`` each
``router/src/server.rs``       ``/health``, and ``/metrics`` on the same port as the API; the two
                               histograms whose sums are counted here. A streamed answer's
                               last token comes together with the usage
``router/src/lib.rs``          requests: ``ignore_eos`` is no field and is passed over in
                               silence, so answers may end early, which gate ``load-delivered``
                               then tells
=============================  ==================================================================

There is no counter of prefix-cache hits.
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
    prefix_cache: bool = False,
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
    prefix_cache : bool
        Whether prompts may share work. Off, so that a repeated prompt is not mistaken for speed.
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
        environment={"PREFIX_CACHING": "1" if prefix_cache else "0", **(environment or {})},
        counts=COUNTS,
        prefix_cache="on" if prefix_cache else "off",
        unsupported=("usage-chunk",),
        compiles=r"Cuda Graphs are enabled|Warming up|TunableOp",
        devices=shards,
    )
