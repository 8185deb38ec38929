"""Mistakes: which known slip turns the right KV figure into a claimed one.

Owns the list of slips people make when they size a KV cache, each as a change to the same sum, and
the search for one, or two together, that reproduce a claimed number within its printed digits.
Does not own the right figure (``kv``) nor whether a claim is fair.

Examples
--------
>>> from assay.physics import kv
>>> qwen = {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584,
...         "num_attention_heads": 28, "num_key_value_heads": 4}
>>> explain("1605632 B/token", kv.report(qwen)).mistakes
('query heads counted instead of KV heads', '8 bits taken for 8 bytes')
>>> explain("57.3 kB per token", kv.report(qwen)).verdict
'match'
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from assay.errors import InputError
from assay.physics import formats, units
from assay.physics.attention import Layer, Layout
from assay.physics.kv import Report

__all__ = ["Claim", "Explanation", "explain", "read"]

_BLOCK = 16  # vLLM's default block on GPUs [tok]
_CLAIM = re.compile(r"^\s*(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?\s*([A-Za-z]*)\s*(.*)$")
_KIBI = {"kB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}
_WORDS = {"": "B", "bytes": "B", "byte": "B", "KB": "kB", "kb": "kB", "K": "kB", "M": "MB"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed size: the range its printed digits stand for, and what it is about.

    Parameters
    ----------
    low, high : Fraction
        Printed number plus and minus half its last digit, in the printed unit.
    unit : str
        The printed unit; ``KB`` is kept, because it is used for both 1000 and 1024.
    subject : str
        ``token``, ``block``, ``sequence``, ``layer`` or empty when the claim does not say.
    """

    text: str
    low: Fraction
    high: Fraction
    unit: str
    subject: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a claimed number is: ``match``, ``mistake`` or ``unexplained``."""

    claim: str
    verdict: str
    mistakes: tuple[str, ...]
    meaning: str
    reproduced_bytes: int | None
    correct_bytes: int | None
    sentence: str
    alternatives: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the fields as a dictionary."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return found | {
            "mistakes": list(self.mistakes),
            "alternatives": list(self.alternatives),
        }


@dataclass(frozen=True, slots=True)
class _Slip:
    """A change to the sum over layers; two slips combine when they change different terms."""

    name: str
    term: str
    value: str = ""
    factor: Fraction = Fraction(1)


# Likeliest first. Sources: public threads where each was made (LMCache #688, #694; vllm #22291;
# gguf-parser-go #28; InfLLM #14; hf-mem #60) and hands-on reading of public calculators.
_SLIPS = (
    _Slip("query heads counted instead of KV heads", "heads", "query"),
    _Slip("hidden size divided by heads taken for the head width", "width", "quotient"),
    _Slip("layers that keep no growing cache of their own charged as if they did", "layers", "all"),
    _Slip("MLA latent doubled, as if K and V were two vectors", "latent", "both"),
    _Slip("MLA latent doubled and its rotary part left out", "latent", "rank"),
    _Slip("decimal and binary units mixed up (GB for GiB)", "unit"),
    _Slip("8 bits taken for 8 bytes", "item", "8"),
    _Slip("only K counted, not V", "pair", factor=Fraction(1, 2)),
    _Slip("one layer taken for all", "layers", "one"),
    _Slip("weights' 8-bit format taken for the cache's", "item", "1"),
    _Slip("weights' 4-bit format taken for the cache's", "item", "1/2"),
    _Slip("32-bit numbers assumed", "item", "4"),
    _Slip("16-bit numbers assumed", "item", "2"),
    _Slip("hidden size used as the head width", "width", "hidden"),
    _Slip("one geometry used for local and global layers", "geometry", "first"),
    _Slip("windowed layers left out", "layers", "full"),
    _Slip("K and V counted twice", "pair", factor=Fraction(2)),
    _Slip("heads not divided over GPUs", "split", "none"),
    _Slip("divided over GPUs although each keeps a whole copy", "split", "over"),
    _Slip("one token taken for a block", "scope", "token"),
    _Slip("a block taken for one token", "scope", "block"),
)

_MLA_AS_HEADS = "MLA counted as ordinary keys and values of every query head"


def read(text: str) -> Claim:
    """Read a claimed size such as ``"2.62 MB per block"`` or ``"1605632"``.

    Parameters
    ----------
    text : str
        A number, a unit (bytes when absent) and what it is about.

    Returns
    -------
    Claim
        With the range its digits stand for.

    Raises
    ------
    InputError
        When there is no number or the unit is not one of bytes.

    Examples
    --------
    >>> read("2.62 MB per block").subject
    'block'
    """
    match = _CLAIM.match(text)
    if not match or len(text) > 200:
        raise InputError(
            f"'{text[:40]}' is not a size", fix='write for example "2.62 MB per block"'
        )
    digits, decimals, unit, rest = match.groups()
    if unit.lower() in ("per", "a", "each"):
        unit, rest = "", f"{unit} {rest}"
    plain = _WORDS.get(unit, unit)
    if plain not in units.ATOMS or units.base_of(plain) != "B":
        raise InputError(f"'{unit}' is not a unit of bytes", fix="use B, kB, MB, GB, KiB, MiB, GiB")
    value = Fraction(digits.replace(",", "") + (decimals or ""))
    step = Fraction(1, 10 ** (len(decimals) - 1)) if decimals else Fraction(1)
    half = Fraction(0) if plain == "B" and not decimals else step / 2
    about = rest.lower()
    subject = ""
    for word, name in (
        ("block", "block"),
        ("page", "block"),
        ("layer", "layer"),
        ("tok", "token"),
        ("seq", "sequence"),
        ("request", "sequence"),
        ("context", "sequence"),
    ):
        if word in about:
            subject = name
            break
    return Claim(text.strip(), value - half, value + half, unit if unit == "KB" else plain, subject)


def explain(claimed: str | float, report: Report) -> Explanation:
    """Name the likeliest slip behind a claimed KV size.

    Parameters
    ----------
    claimed : str or float
        The claim; a bare number is bytes per token.
    report : Report
        The right answer for the model in question.

    Returns
    -------
    Explanation
        ``match`` when a right figure prints as the claim; ``mistake`` when one slip or two do;
        otherwise ``unexplained``.

    Notes
    -----
    One slip is preferred over two, and earlier ones in the list over later ones. With two printed
    digits a coincidence is possible; the sentence says how precisely the claim was printed.
    """
    bare = isinstance(claimed, int | float)
    words = f"{claimed:.0f}" if isinstance(claimed, float) and claimed == int(claimed) else claimed
    claim = read(f"{words} B/token" if bare else str(claimed))
    if report.layout is None or report.format is None:
        return Explanation(
            claim.text, "unexplained", (), "", None, None, f"nothing to compare: {report.reason}"
        )
    sums = _Sums(report)
    scopes = _scopes(claim)
    for scope in scopes:
        for meaning, size in sums.right(scope):
            if size and _within(size, claim, swapped=False):
                sentence = f"{claim.text} is right: {meaning}, {int(size):,} B"
                return Explanation(claim.text, "match", (), meaning, int(size), int(size), sentence)
    hits = [
        found
        for slips in _combinations(sums.weights_quantised)
        for scope in scopes
        if (found := _try(slips, scope, sums, claim)) is not None
    ]
    if hits:
        others = [" and ".join(hit.mistakes) for hit in hits[1:] if len(hit.mistakes) == 1]
        return replace(hits[0], alternatives=tuple(dict.fromkeys(others)))
    first = next(iter(sums.right(scopes[0])), ("", Fraction(0)))
    sentence = f"no named mistake reproduces {claim.text}; {first[0]} is {int(first[1]):,} B"
    return Explanation(claim.text, "unexplained", (), first[0], None, int(first[1]), sentence)


def _scopes(claim: Claim) -> list[str]:
    if claim.subject:
        return [claim.subject]
    if claim.unit == "B":  # a bare number of bytes is per token, as calculators print it
        return ["token"]
    if claim.unit in ("GB", "GiB", "TB", "TiB"):
        return ["sequence"]
    return ["token", "block", "sequence"]


def _combinations(weights_quantised: bool) -> Iterator[tuple[_Slip, ...]]:
    """Yield single slips, then pairs, then the single ones that coincide with likelier pairs."""
    early = [s for s in _SLIPS if weights_quantised and s.name.startswith("weights'")]
    slips = [*early, *(s for s in _SLIPS if s not in early)]
    for slip in slips:
        if slip.value != "hidden":
            yield (slip,)
    pairs = [
        pair
        for pair in itertools.combinations(slips, 2)
        if pair[0].term != pair[1].term and "hidden" not in (pair[0].value, pair[1].value)
    ]
    rare = [pair for pair in pairs if {"scope", "unit"} & {slip.term for slip in pair}]
    yield from (pair for pair in pairs if pair not in rare)
    # KV heads x hidden x 2 B is query heads x head width x 8 B when there are 4 KV heads, and the
    # second is what people were seen to do (vllm #22291).
    yield from ((slip,) for slip in slips if slip.value == "hidden")
    yield from rare


def _try(slips: tuple[_Slip, ...], scope: str, sums: _Sums, claim: Claim) -> Explanation | None:
    size = sums.wrong(slips, scope)
    if size is None:
        return None
    swapped = any(slip.term == "unit" for slip in slips)
    right = list(sums.right(scope))
    if not right or not size or not _within(size, claim, swapped=swapped):
        return None
    if not swapped and any(size == known for _, known in right):
        return None  # the slip changes nothing for this model
    names = tuple(
        _MLA_AS_HEADS if slip.value == "query" and sums.latent else slip.name for slip in slips
    )
    meaning, correct = right[0]
    sentence = (
        f"{claim.text} is {' and '.join(names)}: that gives {int(size):,} B; "
        f"{meaning} is {int(correct):,} B"
    )
    return Explanation(claim.text, "mistake", names, meaning, int(size), int(correct), sentence)


def _within(size: Fraction, claim: Claim, *, swapped: bool) -> bool:
    decimal = "kB" if claim.unit == "KB" else claim.unit
    names = [decimal]
    if claim.unit == "KB":
        names = [] if swapped else ["kB", "KiB"]  # KB is written for both
    elif swapped:
        back = {binary: plain for plain, binary in _KIBI.items()}
        other = _KIBI.get(decimal) or back.get(decimal)
        names = [other] if other else []
    for name in names:
        factor = Fraction(int(units.parse(name).factor))
        if claim.low * factor <= size <= claim.high * factor:
            return True
    return False


class _Sums:
    """The right sums for a report, and the same sums with slips in them."""

    def __init__(self, report: Report) -> None:
        if report.layout is None or report.format is None:
            raise InputError("a refused report has no sums")
        self.layout: Layout = report.layout
        self.item = Fraction(formats.FORMATS[report.format.name], 16)
        self.tp, self.pp = report.per_gpu["tp"] or 1, report.per_gpu["pp"] or 1
        self.block = report.block_size or _BLOCK
        self.report = report
        self.groups = self.layout.groups()
        self.weights_quantised = report.format.weights_quantised
        self.latent = any(layer.latent for layer in self.layout.layers)
        self.typical = next((x for x in self.layout.layers if x.numbers()), None)

    def scale(self, scope: str) -> int | None:
        if scope == "token":
            return 1
        if scope == "block":
            return self.block
        return self.report.bytes_at["tokens"] if scope == "sequence" else None

    def right(self, scope: str) -> Iterator[tuple[str, Fraction]]:
        """Yield every figure that is right for a scope, with its definition."""
        if scope == "layer":
            for layer, _ in self.groups:
                size = layer.numbers() * self.item
                if size:
                    yield f"one {layer.kind} layer per token", size
                    yield f"one {layer.kind} layer per block of {self.block} tok", size * self.block
            return
        scale = self.scale(scope)
        if scale is None:
            return
        per = {
            "token": "per token",
            "block": f"per block of {self.block} tok",
            "sequence": f"per sequence of {scale:,} tok",
        }[scope]
        every = Fraction(self.report.all_layers_bytes_per_token or 0)
        growth = Fraction(self.report.growth_bytes_per_token or 0)
        if scope == "sequence":
            at, count = self.report.bytes_at, self.report.bytes_at["sequences"] or 1
            yield f"every layer at full length, {per}", Fraction(at["all_layers"] or 0, count)
            yield f"windows capped, {per}", Fraction(at["capped"] or 0, count)
            if count > 1:
                yield (
                    f"every layer at full length, {count} sequences",
                    Fraction(at["all_layers"] or 0),
                )
                yield f"windows capped, {count} sequences", Fraction(at["capped"] or 0)
        else:
            yield f"every layer at full length, {per}", every * scale
            yield f"growth at long context, {per}", growth * scale
        if self.tp * self.pp > 1:
            gpu = self.report.per_gpu
            yield (
                f"every layer at full length, {per} and GPU",
                Fraction(gpu["all_layers_bytes_per_token"] or 0) * scale,
            )
            yield (
                f"growth at long context, {per} and GPU",
                Fraction(gpu["growth_bytes_per_token"] or 0) * scale,
            )

    def wrong(self, slips: tuple[_Slip, ...], scope: str) -> Fraction | None:
        """Return the figure for a scope with slips in it; None when they do not apply."""
        changed = {slip.term: slip.value for slip in slips}
        if scope == "layer":
            return None
        scale = self.scale(scope)
        if changed.get("scope") == "token":
            scale = 1 if scope == "block" else None
        elif changed.get("scope") == "block":
            scale = self.block if scope == "token" else None
        if scale is None or self.typical is None:
            return None
        if "latent" in changed and not self.typical.latent:
            return None
        item = Fraction(changed["item"]) if "item" in changed else self.item
        total = Fraction(0)
        chosen = changed.get("layers", "")
        for layer, times in self.groups:
            used = layer
            if not layer.numbers():
                if chosen != "all":
                    continue
                used = self.typical
            if chosen == "full" and layer.window:
                continue
            if changed.get("geometry") == "first":
                used = self.typical
            numbers = self._numbers(used, changed)
            if numbers is None:
                return None
            if chosen == "one":
                total = numbers * item
                break
            total += numbers * item * times
        for slip in slips:
            total *= slip.factor
        if "split" in changed:
            if self.tp == 1:
                return None
            total = total / self.tp if changed["split"] == "over" else total
        elif self.tp > 1 and not {"heads", "width", "layers", "item"} & set(changed):
            return None
        return total * scale

    def _numbers(self, layer: Layer, changed: dict[str, str]) -> Fraction | None:
        heads, hidden = self.layout.query_heads, self.layout.hidden
        if layer.latent:
            if "latent" in changed:
                kept = layer.latent - (layer.rope if changed["latent"] == "rank" else 0)
                return Fraction(2 * kept)
            if changed.get("heads") == "query":  # the latent taken for ordinary heads
                return Fraction(2 * hidden) if hidden else None
            return None if "width" in changed else Fraction(layer.latent)
        width = Fraction(layer.key + layer.value)
        if changed.get("width") == "quotient":
            width = Fraction(2 * (hidden // heads)) if heads and hidden else Fraction(0)
        elif changed.get("width") == "hidden":
            width = Fraction(2 * hidden)
        count = heads if changed.get("heads") == "query" else layer.kv_heads
        return width * count or None
