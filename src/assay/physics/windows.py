"""Windows: which layers of an attention-only model look back only so far.

Owns the switch, the pattern, the class defaults and the cases where a window is longer than the
context, for models that do not list ``layer_types``. Does not own lists (``kinds``) or bytes.

Examples
--------
>>> plan({"sliding_window": 4096}, "mistral", 2).kinds
('sliding', 'sliding')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.errors import DerivationError
from assay.physics import families, fields

__all__ = ["Plan", "names", "plan"]

Config = Mapping[str, object]

_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """One kind per layer, and what had to be taken for granted.

    ``bound`` is a reason why attention layers counted in full may hold less than that.
    """

    kinds: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    bound: str = ""


def plan(text: Config, family: str, layers: int) -> Plan:
    """Return the plan of a model of attention layers only.

    Parameters
    ----------
    text : Mapping
        The language model's configuration.
    family : str
        The model family.
    layers : int
        Number of layers.

    Returns
    -------
    Plan
        All full, all sliding, or a mixture by pattern.
    """
    full = Plan(("full",) * layers)
    if text.get("attention_chunk_size") is not None:
        return _chunked(text, layers)
    window = fields.whole(text, names(family), least=-1)
    if window is None or window <= 0:  # engines read 0 and -1 as "off"
        return full
    switch = fields.flag(text, "use_sliding_window", silent=family not in families.OFF_UNLESS_SAID)
    if not switch:
        note = "use_sliding_window is off, so sliding_window has no effect"
        return Plan(full.kinds, assumptions=(note,))
    longest = fields.whole(text, fields.LONGEST)
    if longest is not None and window >= longest:
        note = f"sliding_window {window} reaches the longest context {longest}: no effect"
        return Plan(full.kinds, assumptions=(note,))
    patterned = _patterned(text, family, layers)
    if patterned is not None:
        return patterned
    if family in families.WINDOW_FROM_LAYER:
        first = fields.need(text, "max_window_layers", least=0)
        return Plan(tuple("sliding" if i >= first else "full" for i in range(layers)))
    if family in families.WINDOW_EVERYWHERE:
        return Plan(("sliding",) * layers)
    if family == "smollm3" and text.get("no_rope_layers") is not None:
        marks = _marks(text, layers)
        return Plan(tuple("full" if mark else "sliding" for mark in marks))
    reason = (
        f"sliding_window is {window}, but the file does not say which layers it bounds: "
        "every layer is counted at full length"
    )
    return Plan(full.kinds, bound=reason)


def names(family: str) -> tuple[str, ...]:
    """Return the names under which a family writes its window.

    Examples
    --------
    >>> names("recurrent_gemma")[0]
    'attention_window_size'
    """
    if family == "recurrent_gemma":
        return ("attention_window_size", "sliding_window")
    if family == "gpt_neo":
        return ("window_size",)
    if family == "modernbert-decoder":
        return ("sliding_window", "local_attention")
    return ("sliding_window", "sliding_window_size", "window_size")


def _marks(text: Config, layers: int) -> list[int]:
    """Return no_rope_layers: 1 where a layer rotates positions, 0 where it does not."""
    values = fields.items(text, "no_rope_layers") or []
    if len(values) != layers:
        raise DerivationError(
            f"no_rope_layers has {len(values)} entries for {layers} layers",
        )
    return [fields.checked(value, "no_rope_layers", least=0, most=1) for value in values]


def _patterned(text: Config, family: str, layers: int) -> Plan | None:
    default = families.PATTERNS.get(family)
    for name in ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"):
        value = text.get(name)
        if value is None:
            continue
        if isinstance(value, str):  # EXAONE 4: L is local, G is global, the last layer is global
            if not value or set(value) - {"L", "G"} or len(value) > _MOST_LAYERS:
                raise DerivationError(f"{name} is not a pattern of L and G")
            kinds = ["sliding" if value[i % len(value)] == "L" else "full" for i in range(layers)]
            kinds[-1] = "full"
            return Plan(tuple(kinds))
        every = fields.checked(value, name)
        default = (default[0] if default else "last", every)
        return Plan(_every(layers, *default))
    if family == "mimo_v2_flash":
        kinds = ["full" if i == 0 or (i + 1) % 6 == 0 else "sliding" for i in range(layers)]
        return Plan(tuple(kinds), assumptions=("layer 1 and every 6th are global: class default",))
    if default is None:
        return None
    kinds_of = list(_every(layers, *default))
    if family.startswith("gemma4"):
        kinds_of[-1] = "full"
    where = "from the first" if default[0] == "first" else "counted from one"
    note = f"every {default[1]}th layer, {where}, is global: the default of {family}"
    return Plan(tuple(kinds_of), assumptions=(note,))


def _every(layers: int, start: str, every: int) -> tuple[str, ...]:
    shift = 0 if start == "first" else 1
    return tuple("sliding" if (i + shift) % every else "full" for i in range(layers))


def _chunked(text: Config, layers: int) -> Plan:
    if fields.items(text, "no_rope_layers"):
        marks = _marks(text, layers)
        return Plan(tuple("chunked" if mark else "full" for mark in marks))
    every = fields.whole(text, "no_rope_layer_interval")
    if every is not None:
        return Plan(tuple("chunked" if (i + 1) % every else "full" for i in range(layers)))
    reason = (
        "attention_chunk_size bounds some layers, but neither layer_types nor no_rope_layers "
        "says which: every layer is counted at full length"
    )
    return Plan(("full",) * layers, bound=reason)
