"""Sums: adding up layers, over tokens, GPUs and pipeline stages.

Owns the plain sums behind every KV figure. Does not own what a layer keeps (``attention``), number
formats (``formats``) or how an answer is put together (``kv``).

Examples
--------
>>> stages(80, 3)
[27, 27, 26]
"""

from __future__ import annotations

from collections.abc import Iterable

from assay.errors import DerivationError
from assay.physics.attention import Layer, Layout
from assay.physics.formats import Format

__all__ = ["NUMBERS", "at", "figures", "grouped", "per_gpu", "rounded", "stage_layers", "stages"]

NUMBERS = ("all_layers_bytes_per_token", "growth_bytes_per_token", "bounded_bytes_per_sequence")


def stages(layers: int, pp: int) -> list[int]:
    """Return how many layers each pipeline stage holds.

    Notes
    -----
    As vLLM 0.32 does (distributed/utils.py, get_pp_indices): what is left over goes to the stages
    before the last, because the last also holds the output head.

    Examples
    --------
    >>> stages(61, 4)
    [15, 15, 16, 15]
    """
    parts = [layers // pp] * pp
    for back in range(2, layers % pp + 2):
        parts[-back] += 1
    return parts


def figures(layers: Iterable[Layer], form: Format, tp: int) -> tuple[int, int, int]:
    """Return the three figures of :data:`NUMBERS` for some layers on one of ``tp`` GPUs [B]."""
    every = growth = bounded = 0
    for layer, times in grouped(layers):
        size = form.size(layer.numbers(tp))
        every += size * times
        if layer.window:
            bounded += size * layer.window * times
        else:
            growth += size * times
        if layer.state is not None:
            bounded += layer.state.size(tp) * times
    return every, growth, bounded


def grouped(layers: Iterable[Layer]) -> list[tuple[Layer, int]]:
    """Return the different layers and how often each occurs."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return list(counts.items())


def rounded(tokens: int, block: int | None) -> int:
    """Return a length rounded up to whole blocks [tok]."""
    return -(-tokens // block) * block if block else tokens


def at(
    layers: Iterable[Layer], form: Format, tp: int, tokens: int, block: int | None
) -> tuple[int, int]:
    """Return the bytes of one sequence: every layer at full length, and with windows capped."""
    full = capped = 0
    for layer, times in grouped(layers):
        size = form.size(layer.numbers(tp)) * times
        held = min(tokens, layer.window) if layer.window else tokens
        full += size * rounded(tokens, block)
        capped += size * rounded(held, block)
        if layer.state is not None:
            full += layer.state.size(tp) * times
            capped += layer.state.size(tp) * times
    return full, capped


def stage_layers(layout: Layout, pp: int) -> list[tuple[Layer, ...]]:
    """Return the layers of each pipeline stage; refuse more stages than layers."""
    if pp > len(layout.layers):
        raise DerivationError(
            f"{len(layout.layers)} layers cannot fill {pp} pipeline stages",
        )
    cut, found = 0, []
    for size in stages(len(layout.layers), pp):
        found.append(layout.layers[cut : cut + size])
        cut += size
    return found


def per_gpu(layout: Layout, form: Format, tp: int, pp: int) -> dict[str, int | None]:
    """Return the three figures on the fullest GPU; refuse heads that do not divide."""
    if layout.query_heads and layout.query_heads % tp:
        raise DerivationError(
            f"num_attention_heads is {layout.query_heads}, which tensor parallelism of {tp} "
            "does not divide",
            fix="choose a size that divides it",
        )
    per_stage = [figures(part, form, tp) for part in stage_layers(layout, pp)]
    return {name: max(figures[i] for figures in per_stage) for i, name in enumerate(NUMBERS)}
