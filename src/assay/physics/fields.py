"""Fields: reading a Hugging Face ``config.json`` without trusting it.

Owns the look-up of one field under its several names, the checks on its type and size, and the
choice of the language model's part in a nested file. A value that cannot be used is a
:class:`assay.errors.DerivationError` that names the field. Does not own what the fields mean.

Examples
--------
>>> whole({"n_layer": 32}, ("num_hidden_layers", "n_layer"))
32
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.errors import DerivationError

__all__ = [
    "HEADS",
    "HIDDEN",
    "LAYERS",
    "LONGEST",
    "choice",
    "family",
    "flag",
    "items",
    "need",
    "text_config",
    "whole",
]

Config = Mapping[str, object]

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "model_dim", "dim")
# The names vLLM reads for the longest context (ModelArchConfigConvertorBase, vLLM 0.32).
LONGEST = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
)
# Where multimodal files keep the language model. Vision and audio parts are never read.
_NESTED = (
    "thinker_config",
    "text_config",
    "llm_config",
    "language_config",
    "language_model_config",
    "language_model",
    "lm_config",
    "text_cfg",
    "llm",
    "text_model",
)
_MOST = 10**9  # above any size a model can have: a larger number is a broken file
_SUFFIXES = ("_text_model", "_text")


def whole(
    config: Config, names: str | Sequence[str], *, least: int = 1, most: int = _MOST
) -> int | None:
    """Return the first of the named fields that is set, as a whole number.

    Parameters
    ----------
    config : Mapping
        The configuration.
    names : str or sequence of str
        The field and its older names, best first.
    least, most : int
        Bounds, inclusive.

    Returns
    -------
    int or None
        None when every name is absent or null.

    Raises
    ------
    DerivationError
        When the value is not a whole number within the bounds.
    """
    for name in (names,) if isinstance(names, str) else names:
        value = config.get(name)
        if value is None:
            continue
        return checked(value, name, least=least, most=most)
    return None


def checked(value: object, where: str, *, least: int = 1, most: int = _MOST) -> int:
    """Return ``value`` as a whole number within bounds, or refuse it by name.

    Examples
    --------
    >>> checked(8, "num_key_value_heads")
    8
    """
    if isinstance(value, bool) or not isinstance(value, int):
        shown = _brief(value)
        raise DerivationError(f"{where} is {shown}, not a whole number")
    if not least <= value <= most:
        shown = _brief(value)
        raise DerivationError(f"{where} is {shown}, outside {least} to {most}")
    return value


def need(config: Config, names: str | Sequence[str], *, least: int = 1, most: int = _MOST) -> int:
    """Return a field that must be there.

    Raises
    ------
    DerivationError
        When it is absent, null or unusable; the message names it.

    Examples
    --------
    >>> need({"n_head": 16}, HEADS)
    16
    """
    value = whole(config, names, least=least, most=most)
    if value is None:
        name = names if isinstance(names, str) else names[0]
        raise DerivationError(f"{name} is missing", fix="add it to the file")
    return value


def flag(config: Config, name: str, *, silent: bool = False) -> bool:
    """Return a true/false field; ``silent`` is the answer when it is absent or null.

    Examples
    --------
    >>> flag({"multi_query": True}, "multi_query")
    True
    """
    value = config.get(name)
    if value is None:
        return silent
    if not isinstance(value, bool):
        raise DerivationError(f"{name} is {_brief(value)}, not true or false")
    return value


def items(config: Config, name: str) -> list[object] | None:
    """Return a list field, or None when absent or null.

    Examples
    --------
    >>> items({"layer_types": ["full_attention"]}, "layer_types")
    ['full_attention']
    """
    value = config.get(name)
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise DerivationError(f"{name} is {_brief(value)}, not a list")
    return list(value)


def choice(config: Config, name: str) -> str:
    """Return a text field in lower case, empty when absent or null.

    Examples
    --------
    >>> choice({"model_type": "Qwen3"}, "model_type")
    'qwen3'
    """
    value = config.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DerivationError(f"{name} is {_brief(value)}, not text")
    return value.strip().lower()


def text_config(config: Config) -> Config:
    """Return the part of a file that describes the language model.

    Parameters
    ----------
    config : Mapping
        The whole file.

    Returns
    -------
    Mapping
        The nested part when it counts layers, else the file itself.

    Examples
    --------
    >>> text_config({"text_config": {"num_hidden_layers": 4}, "vision_config": {}})
    {'num_hidden_layers': 4}
    """
    return _nested(config, 4) or config


def _nested(config: Config, depth: int) -> Config | None:
    for name in _NESTED if depth else ():
        part = config.get(name)
        if not isinstance(part, Mapping):
            continue
        deeper = _nested(part, depth - 1)
        if deeper is not None:
            return deeper
        if any(part.get(key) is not None for key in (*LAYERS, "layers_block_type")):
            return part
    return None


def family(config: Config, text: Config) -> str:
    """Return the model family: ``model_type`` in lower case without a ``_text`` suffix.

    A file without ``model_type`` is read by the class it names in ``architectures``.

    Examples
    --------
    >>> family({"model_type": "gemma3"}, {"model_type": "gemma3_text"})
    'gemma3'
    >>> family({"architectures": ["LlamaForCausalLM"]}, {})
    'llama'
    """
    name = choice(text, "model_type") or choice(config, "model_type")
    if not name:
        classes = items(config, "architectures") or []
        first = classes[0] if classes and isinstance(classes[0], str) else ""
        name = first.partition("For")[0].partition("LMHead")[0].removesuffix("Model").lower()
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _brief(value: object) -> str:
    # An absurd integer would take seconds to print, and a nested object would fill the screen.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**18:
        return "an absurdly large number"
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."
