"""Rates: reading a published figure such as ``3,500 tok/s`` or ``150 ms TTFT``.

Owns which words mean which metric and per what. Does not own units (``units``) or what a rate may
have counted (``readings``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay.errors import InputError
from assay.physics import units

__all__ = ["TIMES", "Rate", "parse_rate"]

TIMES = ("tpot", "ttft")


@dataclass(frozen=True)
class Rate:
    """A published figure, in base units.

    Parameters
    ----------
    value : float
        In ``unit``.
    unit : str
        ``tok/s``, ``req/s``, ``s``, ``B/s`` or ``1``.
    metric : str
        ``throughput``, ``tpot``, ``ttft``, ``bandwidth`` or ``mfu``.
    per_gpu : bool
        Whether the rate is that of one device of the deployment.
    """

    value: float
    unit: str
    metric: str
    per_gpu: bool


_WORDS = (
    (r"\btokens?\b", "tok"),
    (r"\brequests?\b", "req"),
    (r"\s+per\s+", "/"),
    (r"/\s*(?:seconds?|sec)\b", "/s"),
    (r"\b(?:tps|t/s|toks/s)\b", "tok/s"),
    (r"\b(?:qps|rps)\b", "req/s"),
    (r"/\s*(?:gpus?|cards?|devices?|chips?)\b", "/GPU"),
    (r"/\s*(?:users?|streams?|sequences?)\b", "/user"),
    (r"/\s*(?:nodes?|hosts?|servers?)\b", "/node"),
)
_METRICS = {"tpot": "tpot", "itl": "tpot", "ttft": "ttft", "mfu": "mfu"}


def parse_rate(words: str) -> Rate:
    """Read a published rate.

    Parameters
    ----------
    words : str
        For example ``"3,500 tok/s"``, ``"1000 tokens/s per GPU"``, ``"8.6 req/s"``,
        ``"20 ms/tok"``, ``"150 ms TTFT"``, ``"3868 GB/s"``, ``"46 % MFU"``.

    Returns
    -------
    Rate
        In base units.

    Raises
    ------
    InputError
        When the number, the unit or, for a bare time, the metric is missing.

    Examples
    --------
    >>> parse_rate("3,500 tokens/s")
    Rate(value=3500.0, unit='tok/s', metric='throughput', per_gpu=False)
    >>> parse_rate("50 tok/s/user")
    Rate(value=0.02, unit='s', metric='tpot', per_gpu=False)
    """
    text = f" {words.strip()} "
    named = re.search(r"\b(TTFT|TPOT|ITL|MFU)\b", text, flags=re.IGNORECASE)
    if named:
        text = text.replace(named.group(0), " ")
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text, flags=re.IGNORECASE)
    suffix = re.search(r"/(user|node|GPU)\s*$", text)
    if suffix:
        text = text[: suffix.start()]
    number, unit = units.quantity(re.sub(r"\s*/\s*", "/", text).strip())
    value, base = units.to_base(number, unit)
    if not value > 0:
        raise InputError(f"'{words}' is not above 0", fix="state the rate as published")
    metric = _METRICS[named.group(0).lower()] if named else ""
    per = suffix.group(1) if suffix else ""
    if base == "tok/s" and per == "user":
        return Rate(1 / value, "s", "tpot", False)
    if base == "s/tok" and metric in ("", "tpot"):
        return Rate(value, "s", "tpot", False)
    if base == "s" and metric in TIMES:
        return Rate(value, "s", metric, False)
    if base == "1" and metric == "mfu":
        return Rate(value, "1", "mfu", False)
    if base == "B/s" and not metric:
        return Rate(value, "B/s", "bandwidth", per == "GPU")
    if base in ("tok/s", "req/s") and not metric and per != "user":
        return Rate(value, base, "throughput", per == "GPU")
    if base == "s" and not metric:
        raise InputError(f"'{words}' is a time of what?", fix='write "150 ms TTFT" or "20 ms TPOT"')
    raise InputError(
        f"'{words}' is not a rate that can be held against hardware",
        fix="use tok/s, req/s, ms/tok, ms TTFT, GB/s or % MFU",
    )
