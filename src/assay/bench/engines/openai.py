"""openai: any server that speaks the OpenAI API and that somebody else runs.

Owns nothing but its address: it cannot be started afresh, so no verdict rests on it (gate
``cold-starts``), but it can be measured and looked at.
"""

from __future__ import annotations

import urllib.parse

from assay.bench.engines import counters, recipe
from assay.errors import InputError

__all__ = ["at"]


def at(
    url: str,
    *,
    model: str,
    tokenizer: str,
    engine: str = "unknown",
    version: str = "unknown",
    counts: counters.Names | None = None,
    devices: int = 1,
) -> recipe.Recipe:
    """Return how to reach a server that runs already.

    Parameters
    ----------
    url : str
        Address without ``/v1``.
    model : str
        Name under which it answers.
    tokenizer : str
        Folder or hub id of its tokenizer.
    engine, version : str
        What it is, as far as its operator says.
    counts : Names or None
        What its Prometheus text calls the totals.
    devices : int
        Accelerators it uses [1].

    Raises
    ------
    InputError
        When the address is none.

    Examples
    --------
    >>> at("http://127.0.0.1:8000/v1", model="m", tokenizer="m").url
    'http://127.0.0.1:8000'
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"'{url}' is no address of a server", fix="write http://host:port")
    return recipe.Recipe(
        engine=engine,
        version=version,
        model=model,
        tokenizer=tokenizer,
        url=url.rstrip("/").removesuffix("/v1"),
        ready="/v1/models",
        metrics="/metrics" if counts else "",
        counts=counts or counters.Names(),
        devices=devices,
    )
