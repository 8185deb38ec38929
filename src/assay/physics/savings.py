"""Savings: how much smaller a design makes a model's cache than plain multi-head attention would.

Owns two factors that multiply: what sharing or compressing heads saves in every layer that keeps
tokens, and what is saved because some layers keep fewer tokens or none. Does not own the cache
itself (``kv``) nor which design is better at anything else than memory.

The baseline is the same model with one key and one value per query head in every layer and for
every token. Where heads are compressed to a latent (MLA), a plain head has the width of the
unrotated key and of the value, which is the smaller, and so the more cautious, of the two readings.

Examples
--------
>>> llama = {"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
...          "num_attention_heads": 64, "num_key_value_heads": 8}
>>> found = of(llama, tokens=4096)
>>> found.heads, found.layers, found.share
(8.0, 1.0, 0.875)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assay.errors import DerivationError
from assay.physics import fields, kv
from assay.physics.attention import Layer, Layout

__all__ = ["Saving", "comparable", "of"]

Config = Mapping[str, object]

_BYTES = 2  # both sides are counted in 16-bit numbers


@dataclass(frozen=True, slots=True)
class Saving:
    """What a design takes off a model's own multi-head cache.

    Parameters
    ----------
    design : str
        How heads are kept (``multi-head``, ``grouped heads``, ``one KV head``, ``latent`` or
        ``mixed``), then what layers leave out (``windows``, ``states``, ``shared layers``).
    multi_head_bytes, kept_bytes : int
        One sequence, in the baseline and as designed [B].
    heads : float
        Baseline ÷ kept, within the layers that keep tokens [x].
    layers : float
        What is left of the whole factor: layers that keep fewer tokens, or none [x].
    """

    design: str
    multi_head_bytes: int
    kept_bytes: int
    heads: float
    layers: float

    @property
    def factor(self) -> float:
        """Baseline ÷ kept [x]."""
        return self.multi_head_bytes / self.kept_bytes

    @property
    def share(self) -> float:
        """Share of the baseline that is saved, 0 to 1."""
        return 1 - self.kept_bytes / self.multi_head_bytes


def of(config: Config, *, tokens: int) -> Saving:
    """Compare a model's cache with the one that plain multi-head attention would keep.

    Parameters
    ----------
    config : Mapping
        The parsed ``config.json``.
    tokens : int
        Length of the sequence [tok].

    Returns
    -------
    Saving
        In 16-bit numbers on both sides.

    Raises
    ------
    DerivationError
        When the file does not determine the cache, or the model has no query heads to compare with.

    Notes
    -----
    factor = heads · layers. Grouped heads give query heads ÷ KV heads, a latent of d numbers gives
    query heads · (key + value width) ÷ d. Neither depends on the length; windows and states do.
    """
    found = kv.report(config, tokens=tokens, kv_dtype="bf16")
    kept = found.bytes_at["capped"]
    if found.layout is None or kept is None:
        raise DerivationError(found.reason, fix="give a file that determines its cache")
    layout = found.layout
    if not layout.query_heads or not kept:
        raise DerivationError("no query heads to compare with", fix="give a model with attention")
    width = _plain_width(config, layout)
    growing = [layer for layer in layout.layers if layer.numbers()]
    plain = [_plain(layer, layout, width) for layer in growing]
    heads = sum(plain) / sum(layer.numbers() for layer in growing)
    elsewhere = layout.query_heads * width * (len(layout.layers) - len(growing))
    whole = (sum(plain) + elsewhere) * tokens * _BYTES
    return Saving(_design(layout, heads), whole, kept, heads, whole / kept / heads)


def comparable(configs: Iterable[tuple[str, Config]], *, tokens: int) -> dict[str, Saving]:
    """Return the savings of all models that have a multi-head cache to compare with.

    Parameters
    ----------
    configs : iterable of (str, Mapping)
        Names and parsed ``config.json`` files.
    tokens : int
        Length of the sequence [tok].

    Returns
    -------
    dict of str to Saving
        In the order given; models without attention or with an undetermined cache are left out.

    Examples
    --------
    >>> comparable([("mamba", {"model_type": "mamba"})], tokens=4096)
    {}
    """
    found = {}
    for name, config in configs:
        with contextlib.suppress(DerivationError):
            found[name] = of(config, tokens=tokens)
    return found


def _plain_width(config: Config, layout: Layout) -> int:
    """Return the numbers of a plain head's key and value."""
    if any(layer.latent for layer in layout.layers):
        text = fields.text_config(config)
        return fields.need(text, "qk_nope_head_dim") + fields.need(text, "v_head_dim")
    return 2 * layout.head_dim


def _plain(layer: Layer, layout: Layout, width: int) -> int:
    """Return the numbers a layer would keep of a token with one KV head per query head."""
    return layout.query_heads * (width if layer.latent else layer.key + layer.value)


def _design(layout: Layout, heads: float) -> str:
    """Name what a layout does, in words for tables."""
    growing = [layer for layer in layout.layers if layer.numbers()]
    if all(layer.latent for layer in growing):
        words = ["latent"]
    elif any(layer.latent for layer in growing):
        words = ["mixed"]
    elif heads == 1:
        words = ["multi-head"]
    elif all(layer.kv_heads == 1 for layer in growing):
        words = ["one KV head"]
    else:
        words = ["grouped heads"]
    count = layout.count()
    if count["sliding"] or count["chunked"]:
        words.append("windows")
    if count["linear"]:
        words.append("states")
    if count["shared"]:
        words.append("shared layers")
    return " + ".join(words)
