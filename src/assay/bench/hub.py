"""Hub: where a model's configuration comes from.

Owns turning a name a person gives (a file, a folder, ``-``, an id of ``data/models`` or a hub id)
into a parsed ``config.json``. Does not own what the configuration means.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.ledger import store

__all__ = ["config"]


def config(name: str) -> dict[str, Any]:
    """Return a model's configuration.

    Parameters
    ----------
    name : str
        Path of a ``config.json`` or of a folder with one, ``-`` for standard input, an id of
        ``data/models``, or a hub id such as ``meta-llama/Llama-3.1-8B``.

    Returns
    -------
    dict
        The configuration; a neighbouring ``hf_quant_config.json`` is merged under its own name,
        because some checkpoints say the KV format only there.

    Raises
    ------
    InputError
        When nothing of that name can be read, or it is not a JSON object.
    """
    if name == "-":
        return _mapping(store.parse_json(sys.stdin.read(), where="standard input"), name)
    file = Path(name)
    if file.is_dir():
        file = file / "config.json"
    if file.exists() or file.suffix == ".json":
        return _with_quantisation(_mapping(store.read_json(file), name), file.parent)
    if "/" not in name:
        record = store.model(name)
        return dict(record.config)
    return _from_hub(name)


def _mapping(content: Any, name: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise InputError("is not a JSON object", where=name, fix="give a model's config.json")
    return content


def _with_quantisation(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    extra = folder / "hf_quant_config.json"
    if extra.is_file() and "hf_quant_config" not in content:
        return {**content, "hf_quant_config": store.read_json(extra)}
    return content


def _from_hub(name: str) -> dict[str, Any]:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise InputError(
            f"'{name}' is no file and no id of data/models, and huggingface_hub is not installed",
            fix="give the path of a config.json",
        )
    from huggingface_hub import hf_hub_download

    try:
        found = Path(hf_hub_download(name, "config.json"))
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        raise InputError(
            f"'{name}' is no file and no id of data/models, and the hub did not give it "
            f"({type(error).__name__}{': ' + reason if reason else ''})",
            fix="give the path of a config.json",
        ) from None
    return _with_quantisation(_mapping(store.read_json(found), name), found.parent)
