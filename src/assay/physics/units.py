"""Units: the closed list, conversion to base units, and numbers as text.

Owns every unit the project may write and the only border at which one becomes another. A *printed*
unit is what a source wrote (``GB``, ``ms``, ``TFLOP/s``); a *base* unit is what evidence carries
(``B``, ``s``, ``FLOP/s``). Decimal and binary prefixes are different words: 1 GB is 10**9 B and
1 GiB is 2**30 B. Does not own quantities, metrics or files.

Examples
--------
>>> to_base(10.74, "GB")
(10740000000.0, 'B')
>>> to_base(1, "GiB")
(1073741824.0, 'B')
>>> text(10737418240, "B", display="GiB")
'10.00 GiB'
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from fractions import Fraction

from assay.errors import InputError

__all__ = [
    "ATOMS",
    "Unit",
    "base_of",
    "from_base",
    "number",
    "parse",
    "quantity",
    "sizes",
    "text",
    "to_base",
]

# atom -> (base atom, factor). SI prefixes per the SI brochure (9th ed., table 7); binary prefixes
# per IEC 80000-13. ``FLOP`` also counts the integer operations that vendors print as TOPS.
ATOMS: dict[str, tuple[str, float]] = {
    "1": ("1", 1.0),
    "x": ("1", 1.0),  # a ratio
    "%": ("1", 1e-2),
    "pp": ("1", 1e-2),  # percentage points: a difference of two shares
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "B": ("B", 1.0),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "TB": ("B", 1e12),
    "KiB": ("B", 2.0**10),
    "MiB": ("B", 2.0**20),
    "GiB": ("B", 2.0**30),
    "TiB": ("B", 2.0**40),
    "tok": ("tok", 1.0),
    "req": ("req", 1.0),
    "FLOP": ("FLOP", 1.0),
    "GFLOP": ("FLOP", 1e9),
    "TFLOP": ("FLOP", 1e12),
    "PFLOP": ("FLOP", 1e15),
    "W": ("W", 1.0),
    "J": ("J", 1.0),
    "USD": ("USD", 1.0),
    "GPU": ("GPU", 1.0),
    "MHz": ("1/s", 1e6),
}

# What people write instead, each answered with the word to use. Two words: the writer must choose.
_MISSPELT: dict[str, tuple[str, ...]] = {
    "tps": ("tok/s",),
    "t/s": ("tok/s",),
    "qps": ("req/s",),
    "rps": ("req/s",),
    "token": ("tok",),
    "tokens": ("tok",),
    "toks": ("tok",),
    "request": ("req",),
    "requests": ("req",),
    "sec": ("s",),
    "second": ("s",),
    "seconds": ("s",),
    "µs": ("us",),  # U+00B5, the micro sign
    "μs": ("us",),  # U+03BC, the Greek letter
    "KB": ("kB", "KiB"),
    "kb": ("kB", "KiB"),
    "Mb": ("MB", "MiB"),
    "mb": ("MB", "MiB"),
    "Gb": ("GB", "GiB"),
    "gb": ("GB", "GiB"),
    "G": ("GB", "GiB"),
    "Tb": ("TB", "TiB"),
    "tb": ("TB", "TiB"),
    "GBps": ("GB/s",),
    "TBps": ("TB/s",),
    "GFLOPS": ("GFLOP/s",),
    "TFLOPS": ("TFLOP/s",),
    "TFLOPs": ("TFLOP/s",),
    "PFLOPS": ("PFLOP/s",),
    "TOPS": ("TFLOP/s",),
    "FLOPS": ("FLOP/s",),
    "GPUs": ("GPU",),
    "gpu": ("GPU",),
    "percent": ("%",),
    "times": ("x",),
    "X": ("x",),
    "×": ("x",),
}


class Unit:
    """A parsed unit: its text, its base unit and the factor between them.

    Parameters
    ----------
    printed : str
        The unit as written.
    base : str
        The base unit, ``1`` for pure numbers.
    exact : Fraction
        Multiply a printed number by this to get base units [base/printed].
    """

    __slots__ = ("base", "exact", "factor", "printed")

    def __init__(self, printed: str, base: str, exact: Fraction) -> None:
        self.printed, self.base, self.exact, self.factor = printed, base, exact, float(exact)

    def __repr__(self) -> str:
        return f"Unit({self.printed!r} = {self.factor:g} {self.base})"


@functools.lru_cache(maxsize=256)
def parse(unit: str) -> Unit:
    """Parse a printed unit: an atom, or atoms divided by ``/``.

    Parameters
    ----------
    unit : str
        For example ``"GB"``, ``"tok/s"``, ``"TFLOP/s"``, ``"tok/s/GPU"``.

    Returns
    -------
    Unit
        Base unit and factor.

    Raises
    ------
    InputError
        When an atom is not on the closed list; the usual misspellings are answered by name.

    Examples
    --------
    >>> parse("GB/s").base
    'B/s'
    """
    atoms = unit.split("/")
    if unit in _MISSPELT or any(atom not in ATOMS for atom in atoms):
        raise InputError(f"unknown unit '{unit}'", fix=_advice(unit))
    exact = Fraction(1)
    above: list[str] = []
    below: list[str] = []
    for position, atom in enumerate(atoms):
        base, factor = ATOMS[atom]
        top, _, bottom = base.partition("/")
        scale = _exact(factor)
        if position == 0:
            exact *= scale
            above.append(top)
            below.append(bottom)
        else:
            exact /= scale
            below.append(top)
            above.append(bottom)
    for atom in list(below):
        if atom in above:
            above.remove(atom)
            below.remove(atom)
    # One order for all writers: tok/GPU/s and tok/s/GPU are the same unit.
    rest = "".join(f"/{atom}" for atom in sorted(filter(_counts, below), key=list(ATOMS).index))
    return Unit(unit, ("*".join(filter(_counts, above)) or "1") + rest, exact)


def _counts(atom: str) -> bool:
    return atom not in ("", "1")


def _exact(value: float) -> Fraction:
    """Return the decimal number a float prints as, without the noise of its binary digits."""
    return Fraction(repr(float(value)))


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InputError("the number is too large to convert", fix="write a smaller one") from None


def _advice(unit: str) -> str:
    if unit in _MISSPELT:
        return f"write {' or '.join(_MISSPELT[unit])}"
    choices = [(atom,) if atom in ATOMS else _MISSPELT.get(atom, ()) for atom in unit.split("/")]
    if all(choices):
        return f"write {' or '.join('/'.join(words) for words in itertools.product(*choices))}"
    return f"use one of {', '.join(ATOMS)}, or quotients such as tok/s"


def base_of(unit: str) -> str:
    """Return the base unit of a printed unit.

    Examples
    --------
    >>> base_of("ms")
    's'
    """
    return parse(unit).base


def to_base(value: float, unit: str) -> tuple[float, str]:
    """Convert a printed number to base units.

    Parameters
    ----------
    value : float
        The number as printed [unit].
    unit : str
        Its printed unit.

    Returns
    -------
    tuple of (float, str)
        The number in base units and the base unit.

    Examples
    --------
    >>> to_base(200, "ms")
    (0.2, 's')
    """
    parsed = parse(unit)
    if not math.isfinite(value):
        return float(value), parsed.base
    # Exact, then rounded once: 5.4 % is 0.054, not 0.054000000000000006.
    return _rounded(_exact(value) * parsed.exact), parsed.base


def from_base(value: float, unit: str) -> float:
    """Convert a number in base units to a printed unit.

    Examples
    --------
    >>> from_base(0.2, "ms")
    200.0
    """
    parsed = parse(unit)
    return _rounded(_exact(value) / parsed.exact) if math.isfinite(value) else float(value)


def number(value: float, *, digits: int = 4) -> str:
    """Write a number with thousands separators and at most ``digits`` significant digits.

    Integers below 10**15 are written in full: a byte count is never rounded. Zeros at the end of
    a fraction are not written.

    Examples
    --------
    >>> number(10737418240)
    '10,737,418,240'
    >>> number(2211.3)
    '2,211'
    >>> number(0.0123456)
    '0.01235'
    >>> number(7.5)
    '7.5'
    """
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if math.isnan(value):
        return "unknown"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    if abs(rounded) < 1e-4:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}".rstrip("0").rstrip(".")


def text(value: float, unit: str, *, display: str = "", digits: int = 4) -> str:
    """Write a number with its unit beside it.

    Parameters
    ----------
    value : float
        The number [unit].
    unit : str
        Its unit, base or printed.
    display : str
        Printed unit to show instead; must have the same base.
    digits : int
        Significant digits.

    Raises
    ------
    InputError
        When ``display`` measures something else.

    Examples
    --------
    >>> text(0.2, "s", display="ms")
    '200 ms'
    """
    shown = display or unit
    if base_of(shown) != base_of(unit):
        raise InputError(f"cannot show {unit} as {shown}", fix="choose a unit of the same kind")
    printed = from_base(to_base(value, unit)[0], shown) if shown != unit else value
    if shown in ("GB", "GiB", "MiB", "MB") and 1 <= abs(printed) < 1000:
        return f"{printed:.2f} {shown}"
    if shown == "1":
        return number(printed, digits=digits)
    space = "" if shown in ("%", "x") else " "
    symbol = "×" if shown == "x" else shown
    return f"{number(printed, digits=digits)}{space}{symbol}"


# Grouped digits come in threes, so "12,5" is not read as 12; the rest must begin a unit.
def sizes(value: float) -> str:
    """Write a size three ways: in full, in decimal and in binary units.

    Parameters
    ----------
    value : float
        Size [B].

    Examples
    --------
    >>> sizes(10737418240)
    '10,737,418,240 B = 10.74 GB = 10.00 GiB'
    """
    if abs(value) < 1024:
        return f"{value:,.0f} B"
    decimal, binary = next(
        pair
        for pair, limit in ((("kB", "KiB"), 1e6), (("MB", "MiB"), 1e9), (("GB", "GiB"), math.inf))
        if abs(value) < limit
    )
    shown = [text(value, "B", display=unit) for unit in (decimal, binary)]
    return " = ".join([f"{value:,.0f} B", *shown])


_QUANTITY = re.compile(
    r"\s*([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?|[+-]?\.\d+(?:[eE][+-]?\d+)?)"
    r"\s*((?![\d.,_]).*?)\s*"
)


def quantity(words: str) -> tuple[float, str]:
    """Read ``"22.5 GiB"`` or ``"3,500 tok/s"``.

    Parameters
    ----------
    words : str
        A number followed by a printed unit.

    Returns
    -------
    tuple of (float, str)
        The number and its printed unit, unconverted.

    Raises
    ------
    InputError
        When either part is missing or unknown.

    Examples
    --------
    >>> quantity("3,500 tok/s")
    (3500.0, 'tok/s')
    """
    match = _QUANTITY.fullmatch(words)
    if not match:
        raise InputError(
            f"'{words}' does not begin with a number and a unit",
            fix='write for example "22.5 GiB" or "3,500 tok/s", with a point for decimals',
        )
    value = float(match.group(1).replace(",", ""))
    unit = re.sub(r"\s*/\s*", "/", match.group(2))
    if not math.isfinite(value):
        raise InputError(f"'{words}' is too large a number", fix="write a smaller one")
    if not unit:
        raise InputError(f"'{words}' has no unit", fix='write for example "22.5 GiB"')
    parse(unit)
    return value, unit
