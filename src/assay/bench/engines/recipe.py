"""Recipe: everything that is needed to start one engine the same way again.

Owns the record and the check that a program or package is there. Does not own starting
(``server``).
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import shutil
from collections.abc import Mapping

from assay.bench.engines import counters
from assay.errors import InputError

__all__ = ["PORT", "Recipe", "gpus", "program", "version"]

# Stands in a command for the port that is chosen at the start.
PORT = "{port}"


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """One engine with its model and flags.

    Parameters
    ----------
    engine, version : str
        Name and version, as provenance states them.
    model : str
        Name under which the server answers.
    command : tuple of str
        Program and arguments, with :data:`PORT` where the port goes. Empty for a server that
        somebody else runs.
    tokenizer : str
        Folder or hub id of the tokenizer with which the client makes and counts prompts; empty
        when the model's own.
    weights : str
        Folder or hub id of the weights; empty when unknown.
    weights_kind : str
        ``random`` or ``published``: random weights are fine for speed and memory, never for
        accuracy.
    environment : mapping
        Variables added to the caller's.
    url : str
        Where a server that somebody else runs answers.
    ready : str
        Path that answers 200 once requests are served.
    metrics : str
        Path of the Prometheus text; empty without one.
    counts : Names
        What that text calls the totals.
    prefix_cache : {"on", "off", "unknown"}
        Whether prompts may share work, by flag.
    unsupported : tuple of str
        Request fields the server refuses, which the client leaves out; ``keep-alive`` where a
        connection carries one request only, which the client then asks for; ``usage-chunk`` where
        usage comes in the answer's last chunk and not in one of its own.
    compiles : str
        Regular expression of log lines that tell of a compilation.
    devices : int
        Accelerators the deployment uses; 0 on a processor [1].
    """

    engine: str
    version: str
    model: str
    command: tuple[str, ...] = ()
    tokenizer: str = ""
    weights: str = ""
    weights_kind: str = "published"
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    url: str = ""
    ready: str = "/health"
    metrics: str = "/metrics"
    counts: counters.Names = dataclasses.field(default_factory=counters.Names)
    prefix_cache: str = "unknown"
    unsupported: tuple[str, ...] = ()
    compiles: str = r"torch\.compile|JIT compil|Compiling"
    devices: int = 1

    @property
    def flags(self) -> tuple[str, ...]:
        """The command's arguments and the added environment, as provenance lists them."""
        added = [f"{name}={value}" for name, value in sorted(self.environment.items())]
        return (*self.command[1:], *added)


def version(*distributions: str) -> tuple[str, str]:
    """Return the first installed distribution and its version.

    Raises
    ------
    InputError
        When none is installed.
    """
    for name in distributions:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise InputError(
        f"{' or '.join(distributions)} is not installed",
        fix="install it where this Python finds it",
    )


def gpus(wanted: int) -> int:
    """Return the number of GPUs an engine will use: as wanted, or 0 on a machine without any."""
    from assay.bench import machine  # half of a small server's start, and only asked here

    return wanted if machine.discover(()).devices else 0


def program(name: str) -> str:
    """Return the path of a program.

    Raises
    ------
    InputError
        When it is not on the search path.
    """
    found = shutil.which(name)
    if found is None:
        raise InputError(
            f"no program '{name}' on the search path", fix="install it, or extend PATH"
        )
    return found
