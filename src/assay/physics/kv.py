"""KV: from an attention layout to bytes, and from memory to tokens.

Owns three figures that are never confused: (1) every layer at full length, (2) growth per token at
long context, where windows and states have stopped growing, and the constant part that goes with
it, and (3), not here, what an engine allocates. Also owns how GPUs share them and how many tokens
fit. Pure arithmetic in bytes; does not read files, name mistakes or choose units for people.

Examples
--------
>>> llama = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
...          "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16"}
>>> report(llama).all_layers_bytes_per_token
131072
>>> report(llama, tp=32).per_gpu["all_layers_bytes_per_token"]
16384
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.errors import DerivationError, InputError
from assay.physics import attention, formats, sums
from assay.physics.attention import Layout
from assay.physics.formats import Format

__all__ = ["Capacity", "Report", "answer", "capacity", "least_capacity", "report"]

Config = Mapping[str, object]

_MOST_TOKENS = 10**12
_BLOCK = 16  # vLLM's default block on GPUs [tok]
_RESERVED = 1  # vLLM keeps block 0 as the null block (v1/core/block_pool.py, 0.32)


@dataclass(frozen=True, slots=True)
class Report:
    """The answer for one configuration; ``as_dict`` is its JSON form.

    The three figures are for the whole model, one copy, over all GPUs [B]. ``layout`` and
    ``format`` are what they were computed from and are not part of the JSON.
    """

    status: str
    reason: str
    model_type: str
    layers: dict[str, int]
    kv_dtype: str | None
    kv_dtype_source: str | None
    all_layers_bytes_per_token: int | None
    growth_bytes_per_token: int | None
    bounded_bytes_per_sequence: int | None
    per_gpu: dict[str, int | None]
    bytes_at: dict[str, int | None]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    layout: Layout | None = field(default=None, repr=False, compare=False)
    format: Format | None = field(default=None, repr=False, compare=False)
    block_size: int | None = field(default=None, repr=False, compare=False)

    def as_dict(self) -> dict[str, object]:
        """Return exactly the keys of the JSON answer."""
        return {
            "status": self.status,
            "reason": self.reason,
            "model_type": self.model_type,
            "layers": dict(self.layers),
            "kv_dtype": self.kv_dtype,
            "kv_dtype_source": self.kv_dtype_source,
            "all_layers_bytes_per_token": self.all_layers_bytes_per_token,
            "growth_bytes_per_token": self.growth_bytes_per_token,
            "bounded_bytes_per_sequence": self.bounded_bytes_per_sequence,
            "per_gpu": dict(self.per_gpu),
            "bytes_at": dict(self.bytes_at),
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def report(
    config: Config,
    *,
    tokens: int | None = None,
    sequences: int = 1,
    tp: int = 1,
    pp: int = 1,
    kv_dtype: str | None = None,
    block_size: int | None = None,
) -> Report:
    """Compute what a model's KV cache takes.

    Parameters
    ----------
    config : Mapping
        The parsed ``config.json``.
    tokens : int, optional
        Length of each sequence [tok]; the longest context of the file when not given.
    sequences : int
        Sequences of that length held at once.
    tp, pp : int
        Tensor-parallel and pipeline-parallel size [GPU].
    kv_dtype : str, optional
        Number format of the cache; the file's word when not given.
    block_size : int, optional
        Round lengths up to whole blocks of this size [tok].

    Returns
    -------
    Report
        ``status`` is ``refused``, with null figures, when the file does not determine them.

    Raises
    ------
    InputError
        When an option, not the file, cannot be used.

    Notes
    -----
    Per layer and token: 2 x KV heads x head width x bytes per number; MLA: (latent + rotary key)
    x bytes, once. Bounded: window x bytes per token for windows, plus states. On one GPU: KV heads
    divided by ``tp``, at least one each; MLA is not divided; the fullest pipeline stage counts.
    """
    _options(tokens=tokens, sequences=sequences, tp=tp, pp=pp, block_size=block_size)
    if kv_dtype is not None:
        formats.chosen({}, kv_dtype)  # a bad option is the person's error, whatever the file says
    try:
        layout = attention.layout(config)
        number_format = formats.chosen(config, kv_dtype)
        per_gpu = sums.per_gpu(layout, number_format, tp, pp)
    except DerivationError as error:
        return _refused(config, error, tokens, sequences, tp, pp)
    whole = dict(zip(sums.NUMBERS, sums.figures(layout.layers, number_format, 1), strict=True))
    length = tokens if tokens is not None else layout.longest
    notes = list(layout.assumptions)
    if number_format.note:
        notes.append(number_format.note)
    if tokens is None and length is not None:
        notes.append(f"length not given: the longest context of the file, {length:,} tok")
    at: dict[str, int | None] = {
        "tokens": length,
        "sequences": sequences,
        "all_layers": None,
        "capped": None,
    }
    if length is not None:
        full, capped = sums.at(layout.layers, number_format, 1, length, block_size)
        at |= {"all_layers": full * sequences, "capped": capped * sequences}
    return Report(
        layout.status,
        layout.reason,
        layout.model_type,
        layout.count(),
        number_format.name,
        number_format.source,
        whole[sums.NUMBERS[0]],
        whole[sums.NUMBERS[1]],
        whole[sums.NUMBERS[2]],
        {"tp": tp, "pp": pp, **per_gpu},
        at,
        tuple(notes),
        (*layout.warnings, *_warnings(layout, number_format, tp, pp, block_size)),
        layout,
        number_format,
        block_size,
    )


def answer(
    config: Config,
    *,
    tokens: int | None = None,
    sequences: int = 1,
    tp: int = 1,
    pp: int = 1,
    kv_dtype: str | None = None,
    block_size: int | None = None,
    memory_bytes: float | None = None,
    claims: Sequence[str] = (),
) -> dict[str, object]:
    """Return the whole answer of ``assay kv`` as a dictionary.

    ``memory`` and ``claims`` are added to the keys of :meth:`Report.as_dict` only when asked for.

    Examples
    --------
    >>> answer({})["status"]
    'refused'
    """
    from assay.physics import mistakes  # it reads reports, so it imports this module first

    found = report(
        config,
        tokens=tokens,
        sequences=sequences,
        tp=tp,
        pp=pp,
        kv_dtype=kv_dtype,
        block_size=block_size,
    )
    result = found.as_dict()
    if memory_bytes is not None:
        result["memory"] = capacity(found, memory_bytes).as_dict()
    if claims:
        result["claims"] = [mistakes.explain(claim, found).as_dict() for claim in claims]
    return result


def _warnings(layout: Layout, form: Format, tp: int, pp: int, block: int | None) -> list[str]:
    found = []
    copied = {x.kv_heads for x in layout.layers if x.kv_heads and x.kv_heads < tp}
    every = sums.figures(layout.layers, form, tp)[0]
    if copied:
        found.append(
            f"tp {tp} is more than {max(copied)} KV heads: heads are copied, and all GPUs together "
            f"hold {every * tp:,} B/token at full length"
        )
    if tp > 1 and any(layer.latent for layer in layout.layers):
        found.append(
            f"the MLA latent is not split over GPUs: all {tp} together hold {every * tp:,} B/token"
        )
    if pp > 1 and len(layout.layers) % pp:
        sizes = sums.stages(len(layout.layers), pp)
        found.append(f"pipeline stages hold {sizes} layers; per GPU is the fullest of them")
    if pp > 1 and any(layer.kind == "shared" for layer in layout.layers):
        found.append("layers that share a cache may fall into different pipeline stages")
    if block and any(layer.window for layer in layout.layers):
        found.append("a moving window can touch one block more than its length, per layer")
    return found


def _options(**options: int | None) -> None:
    for name, value in options.items():
        if value is None:
            continue
        least = 0 if name == "tokens" else 1
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{name} is not a whole number", where=f"--{name.replace('_', '-')}")
        if not least <= value <= _MOST_TOKENS:
            raise InputError(
                f"{name} is {value if abs(value) < 10**18 else 'far'} outside "
                f"{least} to {_MOST_TOKENS:,}",
                where=f"--{name.replace('_', '-')}",
            )


def _refused(
    config: Config, error: DerivationError, tokens: int | None, sequences: int, tp: int, pp: int
) -> Report:
    name = ""
    if isinstance(config, Mapping):
        word = config.get("model_type")
        name = word if isinstance(word, str) else ""
    nothing: dict[str, int | None] = dict.fromkeys(sums.NUMBERS)
    at: dict[str, int | None] = {
        "tokens": tokens,
        "sequences": sequences,
        "all_layers": None,
        "capped": None,
    }
    return Report(
        "refused",
        f"cannot derive: {error}",
        name,
        {},
        None,
        None,
        None,
        None,
        None,
        {"tp": tp, "pp": pp, **nothing},
        at,
    )


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a budget of KV memory on each GPU holds.

    ``tokens_all_layers`` counts every layer at full length, as an engine without per-layer
    windows does; the sequence counts are for sequences of ``tokens_per_sequence`` tokens.
    ``None`` means that it is not limited by tokens, or that no length is known.
    """

    memory_bytes: int
    fits: bool
    reason: str
    block_size: int
    blocks: int
    reserved_blocks: int
    tokens_all_layers: int | None
    tokens_per_sequence: int | None
    sequences_all_layers: int | None
    sequences_capped: int | None

    def as_dict(self) -> dict[str, object]:
        """Return the fields as a dictionary."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def capacity(found: Report, memory_bytes: float | Sequence[float]) -> Capacity:
    """Return how many tokens and full-length sequences fit.

    Parameters
    ----------
    found : Report
        The model, its split over GPUs, length and block size.
    memory_bytes : float or sequence of float
        Memory left for the cache on each GPU [B]; when ranks differ, the least counts.

    Returns
    -------
    Capacity
        ``fits`` is false, and nothing negative is given, when memory is too small.

    Raises
    ------
    InputError
        When the memory is not a finite number.

    Notes
    -----
    One block holds ``block_size`` tokens of every layer of a GPU's stage. The first block is
    reserved (vLLM's null block) and holds no tokens. States of one sequence are set aside first.

    Examples
    --------
    >>> llama = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    ...          "num_attention_heads": 32, "num_key_value_heads": 8}
    >>> capacity(report(llama, tokens=8192), 16 * 2**30).sequences_all_layers
    15
    """
    memory = _least(memory_bytes)
    block = found.block_size or _BLOCK
    length = found.bytes_at["tokens"]
    if found.layout is None or found.format is None:
        return _nothing(memory, block, length, found.reason)
    if memory <= 0:
        return _nothing(memory, block, length, "no memory is left for the cache: it does not fit")
    tp, pp = found.per_gpu["tp"] or 1, found.per_gpu["pp"] or 1
    tokens: list[int] = []
    blocks: list[int] = []
    full: list[int] = []
    capped: list[int] = []
    for part in sums.stage_layers(found.layout, pp):
        every = sums.figures(part, found.format, tp)[0]
        kept = sum(x.state.size(tp) for x in part if x.state is not None)
        if every:
            count = max(0, memory - kept) // (every * block)
            blocks.append(count)
            tokens.append(max(0, count - _RESERVED) * block)
        if length is not None:
            at_full, at_capped = sums.at(part, found.format, tp, length, block)
            usable = max(0, memory - _RESERVED * every * block)
            if at_full:
                full.append(usable // at_full)
            if at_capped:
                capped.append(usable // at_capped)
    fitting = min(tokens) if tokens else None
    fits = fitting != 0 and (not capped or min(capped) > 0)
    short = "" if fits else "less than one full-length sequence fits"
    return Capacity(
        memory,
        fits,
        short,
        block,
        min(blocks) if blocks else 0,
        _RESERVED if blocks else 0,
        fitting,
        length,
        min(full) if full else None,
        min(capped) if capped else None,
    )


def _least(memory: float | Sequence[float]) -> int:
    values = [memory] if isinstance(memory, int | float) else list(memory)
    if not values or any(
        isinstance(v, bool) or not isinstance(v, int | float) or not abs(v) < 1e30 for v in values
    ):
        raise InputError("memory is not a finite number of bytes", where="--memory")
    return int(min(values))


def _nothing(memory: int, block: int, length: int | None, reason: str) -> Capacity:
    return Capacity(memory, False, reason, block, 0, 0, 0, length, 0, 0)


def least_capacity(tokens_per_rank: Sequence[int], length: int) -> tuple[int, float]:
    """Return the tokens a group of ranks holds and how many full-length sequences that is.

    Parameters
    ----------
    tokens_per_rank : sequence of int
        What each rank logs [tok].
    length : int
        Longest sequence served [tok].

    Returns
    -------
    tuple of (int, float)
        The least of the ranks, because a token needs room on all of them, and its multiple of
        ``length``.

    Examples
    --------
    >>> tokens, times = least_capacity([107_824, 107_456, 107_312, 107_344, 107_392], 32_768)
    >>> tokens, round(times, 2)
    (107312, 3.27)
    """
    if not tokens_per_rank or min(tokens_per_rank) < 0 or length < 1:
        raise InputError("token counts must not be negative, and the length at least 1")
    least = min(tokens_per_rank)
    return least, least / length
