"""Inputs: everything a run's result depends on, as one key.

Owns the key that decides whether a notebook needs to run again. Does not own running.

A run may read its notebook, its parameters, its claim, the facts under ``data/``, the code that
reckons, the versions of the packages, and measurements made earlier. What it derives itself is an
output and does not enter.
"""

from __future__ import annotations

import glob
import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import assay
from assay.ledger import store

__all__ = ["fixed", "key", "shared", "versions"]

# Parts of the package a notebook can reach; the command line and the pages are not among them.
_CODE = (
    "errors.py",
    "physics/**/*.py",
    "ledger/**/*.py",
    "bench/**/*.py",
    "press/show.py",
    "press/plot.py",
)

# Under data/, but written by runs or about other claims.
_NOT_FACTS = frozenset({"claims", "evidence", "verdicts.csv", "history.csv"})


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages Assay asks for, where installed.

    Development tools are left out: they change no result.
    """
    try:
        wanted = importlib.metadata.requires("assay") or []
    except importlib.metadata.PackageNotFoundError:  # used from a source tree
        wanted = ["numpy", "pandas", "matplotlib", "seaborn", "pydantic", "papermill", "vllm"]
    names = {
        match.group().lower()
        for item in wanted
        if "extra == 'dev'" not in item.replace('"', "'") and (match := re.match(r"[\w.-]+", item))
    }
    found = {"python": platform.python_version()}
    for name in sorted(names):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def shared() -> dict[str, object]:
    """Return what all runs depend on alike: facts, code, versions, devices; by name, as digests."""
    package = Path(assay.__file__).parent
    code = {
        file.relative_to(package).as_posix(): store.digest(file)
        for pattern in _CODE
        for file in package.glob(pattern)
    }
    data = store.path("data")
    facts = {
        file.relative_to(data).as_posix(): store.digest(file)
        for file in data.rglob("*")
        if file.is_file()
        and not file.name.startswith(".")
        and file.relative_to(data).parts[0] not in _NOT_FACTS
    }
    # A notebook may measure where there is a device and replay where there is none.
    devices = [*sorted(glob.glob("/dev/nvidia[0-9]*")), os.environ.get("CUDA_VISIBLE_DEVICES", "")]
    return {
        "code": code,
        "facts": facts,
        "versions": versions(),
        "devices": devices,
        "machine": platform.machine(),
    }


def fixed(
    claim_id: str,
    notebook_text: str,
    parameters: Mapping[str, object],
    common: Mapping[str, object],
) -> str:
    """Return the SHA-256 of the inputs of one run that the run itself cannot change.

    Parameters
    ----------
    claim_id : str
        The claim; its file enters.
    notebook_text : str
        Source of the notebook.
    parameters : mapping
        Effective values.
    common : mapping
        From `shared`.
    """
    return store.digest(
        store.json_text(
            {
                "claim": store.digest(store.path("data", "claims", f"{claim_id}.yml")),
                "notebook": store.digest(notebook_text),
                "parameters": parameters,
                "common": common,
            }
        )
    )


def key(claim_id: str, unchanging: str) -> str:
    """Return the SHA-256 of all inputs of one run.

    Parameters
    ----------
    claim_id : str
        The claim; its measurements and withdrawals enter, which a run may add to.
    unchanging : str
        From `fixed`.
    """
    folder = store.path("data", "evidence", claim_id)
    kept = [*folder.glob("*.measured.*.json"), *folder.glob("*.withdrawn.yml")]
    measured = {file.name: store.digest(file) for file in kept}
    return store.digest(store.json_text({"fixed": unchanging, "measured": measured}))
