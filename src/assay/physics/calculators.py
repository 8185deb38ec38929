"""Calculators: what two public KV calculators print, re-expressed to be compared.

Owns the sums behind two widely linked calculators, read off their published sources. Does not own
the right figure (``kv``) nor the search for other slips (``mistakes``).

=========  ========================================  ==============================================
name       bytes per token                           read in
=========  ========================================  ==============================================
gpu_poor   2 × layers × hidden × 2                   RahulSChand/gpu_poor at 05d18ab8, src/App.js,
                                                     GGML choice; the vLLM choice prints twice that
lmcache    2 × layers × KV heads × (hidden/heads)×2  LMCache/LMCache issue #688, as first published
=========  ========================================  ==============================================

Both take the fields of the language model in the file; neither reads windows, latents or states.

Examples
--------
>>> qwen3 = {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560,
...          "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
>>> lmcache(qwen3), gpu_poor(qwen3)  # the engine keeps 147456
(92160, 368640)
"""

from __future__ import annotations

from collections.abc import Mapping

from assay.errors import DerivationError
from assay.physics import fields

__all__ = ["gpu_poor", "lmcache"]

Config = Mapping[str, object]

_BYTES = 2  # both assume 16-bit numbers


def gpu_poor(config: Config) -> int | None:
    """Return what gpu_poor prints per token [B], or None where it has no answer.

    Parameters
    ----------
    config : Mapping
        The parsed ``config.json``.

    Returns
    -------
    int or None
        Bytes per token; None when a field it needs is absent.
    """
    try:
        text = fields.text_config(config)
        layers = fields.need(text, fields.LAYERS)
        hidden = fields.need(text, fields.HIDDEN)
    except DerivationError:
        return None
    return 2 * layers * hidden * _BYTES


def lmcache(config: Config) -> int | None:
    """Return what the LMCache calculator printed per token when first published [B].

    Parameters
    ----------
    config : Mapping
        The parsed ``config.json``.

    Returns
    -------
    int or None
        Bytes per token, possibly with a fraction cut off; None when a field it needs is absent.
    """
    try:
        text = fields.text_config(config)
        layers = fields.need(text, fields.LAYERS)
        hidden = fields.need(text, fields.HIDDEN)
        heads = fields.need(text, fields.HEADS)
        kept = fields.need(text, "num_key_value_heads")
    except DerivationError:
        return None
    return 2 * layers * kept * hidden * _BYTES // heads
