"""Show: verdict cards, tables and numbers as MyST Markdown.

Owns the words and glyphs a reader sees: what is claimed, what was found, how far apart they are.
The same functions serve notebooks and printed pages, so a card looks the same wherever it stands.
Does not own deciding (``judge``) or drawing (``plot``).
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.ledger import store
from assay.physics import units

if TYPE_CHECKING:
    from assay.ledger import judge, records

__all__ = [
    "GLYPHS",
    "Markdown",
    "assertions",
    "card",
    "claimed",
    "command",
    "effect",
    "evidence",
    "found",
    "gpu_evidence",
    "instead",
    "needs",
    "quotation",
    "scope",
    "table",
    "verdict_words",
]

GLYPHS = {"verified": "✔", "disputed": "✘", "open": "○"}

_REASONS = {
    "": "",
    "not-run": "not run",
    "out-of-scope": "out of scope",
    "inconclusive": "inconclusive",
    "undecidable-as-stated": "undecidable as stated",
}

_BASES = {
    "derived": "derived (closed form, or the engine's own code asked)",
    "recomputed": "recomputed (arithmetic on the source's own numbers)",
    "bound": "bound (a physical limit of the stated hardware)",
    "documented": "documented (the source or its repository read)",
    "published": "published (independent third-party measurements)",
    "simulated": "simulated (a prediction, never a verdict)",
    "measured": "measured (run here, gates passed)",
}


class Markdown:
    """A piece of MyST Markdown that notebooks render.

    Parameters
    ----------
    text : str
        The Markdown.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_markdown_(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


def verdict_words(status: str, reason: str = "") -> str:
    """Return the word of a verdict, with the reason when it is open.

    Examples
    --------
    >>> verdict_words("open", "not-run")
    'open (not run)'
    """
    return f"{status} ({_REASONS[reason]})" if reason else status


def claimed(assertion: records.Assertion) -> str:
    """Return the claimed value with its unit, as printed.

    Parameters
    ----------
    assertion : Assertion
        Any relation.

    Returns
    -------
    str
        For example ``10.74 GB``, ``2 to 4×``, ``at most 4%``.
    """
    value, unit = assertion.value, assertion.unit
    if isinstance(value, bool):
        return "it holds" if value else "it does not hold"
    if isinstance(value, tuple):
        if isinstance(value[0], str):
            return " > ".join(str(v) for v in value)
        return f"{_printed(float(value[0]))} to {_with_unit(float(value[1]), unit)}"
    words = {"at_least": "at least ", "at_most": "at most ", "about": "about "}
    return words.get(assertion.relation, "") + _with_unit(float(value), unit)


def found(assertion: records.Assertion, finding: judge.Finding) -> str:
    """Return what was found, in the assertion's unit.

    Parameters
    ----------
    assertion : Assertion
        For its relation and unit.
    finding : Finding
        For the interval.

    Returns
    -------
    str
        ``—`` when nothing was found yet.
    """
    low, high = finding.low, finding.high
    if low is None and high is None:
        return "—"
    if isinstance(assertion.value, bool):
        if low == high:
            return "it holds" if low == 1 else "it does not hold"
        return "undecided"
    unit = assertion.unit
    # A limit's interval starts at zero, because nothing below it is excluded.
    limit = low == 0 and high is not None and high > 0 and unit not in ("%", "pp")
    if low is None or limit:
        return f"at most {_with_unit(float(high or 0.0), unit)}"
    if high is None:
        return f"at least {_with_unit(low, unit)}"
    if low == high:
        return _with_unit(low, unit)
    return f"{_end(low)} to {_end(high)}{_symbol(unit)}"


def _printed(value: float, *, digits: int = 4) -> str:
    sign = "−" if value < 0 else ""
    return sign + units.number(abs(value), digits=digits)


def _end(value: float) -> str:
    """Write the end of an interval: three digits, unless they would make it a whole number."""
    short = _printed(value, digits=3)
    return short if "." in short or abs(value) >= 100 else _printed(value)


def _with_unit(value: float, unit: str) -> str:
    return f"{_printed(value)}{_symbol(unit)}"


def _symbol(unit: str) -> str:
    return {"1": "", "x": "×", "us": " µs"}.get(unit, f" {unit}")


def effect(assertion: records.Assertion, finding: judge.Finding) -> str:
    """Say how far a disputed value is off: *overstated 2.4×*, *understated*, *misquoted*.

    Parameters
    ----------
    assertion : Assertion
        The claim's side.
    finding : Finding
        The evidence's side.

    Returns
    -------
    str
        Empty unless the finding is disputed.
    """
    if finding.status != "disputed":
        return ""
    if isinstance(assertion.value, bool):
        return "misquoted" if "documented" in finding.basis else "does not hold"
    bounded = finding.low is not None and finding.high is not None
    if finding.unit in ("%", "pp") and bounded and finding.low <= 0 <= finding.high:  # type: ignore[operator]
        return "no effect of one sign"
    low, high = assertion.claimed
    if finding.high is not None and finding.high < low:
        ratio = low / finding.high if finding.high > 0 else float("inf")
        least = "at least " if "bound" in finding.basis else ""
        return f"overstated {least}{_times(ratio)}" if ratio < 1e6 else "overstated"
    if finding.low is not None and finding.low > high:
        ratio = finding.low / high if high > 0 else float("inf")
        return f"understated {_times(ratio)}" if ratio < 1e6 else "understated"
    return "does not hold"


def _times(ratio: float) -> str:
    """Write a ratio with enough digits that it never reads as one."""
    return f"{units.number(ratio, digits=2 if ratio >= 1.2 else 4)}×"


def _basis_words(basis: str) -> str:
    return "; ".join(_BASES[b] for b in basis.split("+")) if basis else "nothing yet"


def _title(claim: records.Claim, verdict: judge.Verdict) -> str:
    """Say the verdict and the two numbers of the first headline assertion that decides."""
    word = verdict_words(verdict.status, verdict.reason)
    heads = [f for f in verdict.findings if f.headline]
    lead = next((f for f in heads if f.status == verdict.status), heads[0])
    assertion = claim.assertion(lead.id)
    sentence = f"{GLYPHS[verdict.status]} {word[0].upper()}{word[1:]}"
    if isinstance(assertion.value, bool | tuple):
        return sentence
    claim_text = claimed(assertion)
    found_text = found(assertion, lead)
    if found_text == "—":
        return f"{sentence}: {claim_text} claimed, nothing found yet"
    how = effect(assertion, lead)
    return f"{sentence}: {found_text} found, {claim_text} claimed{f' ({how})' if how else ''}"


def card(claim: records.Claim, verdict: judge.Verdict) -> Markdown:
    """Return the verdict card: glyph, word, the numbers, basis and evidence.

    Parameters
    ----------
    claim : Claim
        What is claimed.
    verdict : Verdict
        As the judge computed it.

    Returns
    -------
    Markdown
        A MyST admonition of class ``verdict verdict-<word>``.
    """
    heads = [f for f in verdict.findings if f.headline]
    source = store.sources()[claim.source]
    rows = [
        ("claimed", _join(f"{claim.assertion(f.id).says}" for f in heads)),
        ("found", _join(_found_line(claim, f) for f in heads)),
        ("basis", _basis_words(verdict.basis)),
        ("source", f"{_escape(source.citation)}; {_access(source.access)}"),
        ("GPU evidence", gpu_evidence(store.live(claim.id))),
    ]
    lines = [
        f"::::{{admonition}} {_title(claim, verdict)}",
        f":class: verdict verdict-{verdict.status}",
        "",
    ]
    survivors = [
        f"{claim.assertion(f.id).id}: {'; '.join(f.readings)}" for f in heads if f.readings
    ]
    if survivors:
        rows.append(("readings not excluded", _join(survivors)))
    remedy = instead(claim, verdict)
    if remedy:
        rows.append(("what holds instead", remedy))
    aside = _aside(claim, verdict)
    if aside:
        rows.append(("beside it", aside))
    for term, text in rows:
        lines += [term, f": {text}", ""]
    return Markdown("\n".join([*lines, "::::"]))


def _join(lines: Iterable[str]) -> str:
    """Return one paragraph, or a list inside a definition."""
    given = [_escape(line) for line in lines]
    return given[0] if len(given) == 1 else "\n  ".join(f"- {line}" for line in given)


def _found_line(claim: records.Claim, finding: judge.Finding) -> str:
    assertion = claim.assertion(finding.id)
    how = effect(assertion, finding)
    word = verdict_words(finding.status, finding.reason)
    tail = f"{word}, {how}" if how else word
    return f"{GLYPHS[finding.status]} {found(assertion, finding)} ({tail})"


def _glyphed(finding: judge.Finding) -> str:
    return f"{GLYPHS[finding.status]} {verdict_words(finding.status, finding.reason)}"


def _access(access: str) -> str:
    return {
        "read": "read for this book",
        "partly-read": "read in part",
        "secondary": "known through a copy",
        "not-read": "not read here, known through the brief",
    }[access]


def instead(claim: records.Claim, verdict: judge.Verdict) -> str:
    """Say what holds where the claim does not: the findings behind disputed headline assertions."""
    says = [
        s for f in verdict.findings if f.headline and f.status == "disputed" for s in f.says[:2]
    ]
    return _join(dict.fromkeys(says)) if says else ""


def _aside(claim: records.Claim, verdict: judge.Verdict) -> str:
    """Say what was found about disputed side points."""
    says = [
        s for f in verdict.findings if not f.headline and f.status == "disputed" for s in f.says[:1]
    ]
    return _join(dict.fromkeys(says)) if says else ""


def assertions(claim: records.Claim, verdict: judge.Verdict) -> Markdown:
    """Return the table of all assertions of a claim with their verdicts."""
    rows = []
    for finding in verdict.findings:
        assertion = claim.assertion(finding.id)
        how = effect(assertion, finding)
        rows.append(
            {
                "verdict": _glyphed(finding),
                "assertion": assertion.says + ("" if finding.headline else " *(side point)*"),
                "claimed": claimed(assertion),
                "found": found(assertion, finding) + (f", {how}" if how else ""),
                "basis": finding.basis.replace("+", ", ") or "—",
            }
        )
    return table(rows)


def quotation(claim: records.Claim) -> Markdown:
    """Return the quote in the source's language, its translation, and where it stands."""
    source = store.sources()[claim.source]
    link = f"[{_escape(source.title)}]({source.url})" if source.url else _escape(source.title)
    dated = f", {source.date_published}" if source.date_published else ""
    # Raw HTML, because a quote may hold lines that Markdown would turn into lists and tables.
    quote = "<br>".join(html.escape(line) for line in claim.quote.splitlines())
    english = html.escape(" ".join(claim.quote_en.split()))
    return Markdown(
        f'<blockquote class="quotation"><p lang="zh-Hans">{quote}</p>\n'
        f"<p>“{english}”</p></blockquote>\n\n"
        f"Said by {_escape(source.producer)}: {link}{dated}. "
        f"Stands in: {_escape(claim.locator)}."
    )


def scope(claim: records.Claim) -> Markdown:
    """Return the conditions each assertion is made for; what the source leaves out is named."""
    from assay.ledger import records

    rows = []
    for assertion in claim.assertions:
        stated, silent = [], []
        for key in records.SCOPE_KEYS:
            value = getattr(assertion.scope, key)
            name = key.replace("_", " ")
            if isinstance(value, records.Unstated):
                silent.append(f"{name} ({' or '.join(value.unstated)})")
            elif value == "unstated":
                silent.append(name)
            elif value == "any":
                stated.append(f"any {name}")
            elif value != "n/a":
                stated.append(f"{name} {value}")
        rows.append(
            {
                "assertion": assertion.says,
                "stated": ", ".join(stated) or "—",
                "unstated": ", ".join(silent) or "—",
                "refuted by": assertion.falsifier,
            }
        )
    return Markdown(
        ":::{dropdown} Under which conditions, and what would refute it\n\n"
        f"{table(rows).text}\n:::"
    )


def evidence(claim: records.Claim, items: Mapping[str, records.Evidence]) -> Markdown:
    """Return the list of evidence files with what each says.

    Parameters
    ----------
    claim : Claim
        For its id.
    items : mapping of str to Evidence
        By file name, as the store returns it.
    """
    rows = [
        {
            "basis": item.basis,
            "finding": item.finding,
            "interval": _span(item),
            "file": f"`data/evidence/{claim.id}/{name}`",
        }
        for name, item in sorted(items.items())
    ]
    return table(rows) if rows else Markdown("*No evidence is recorded yet.*")


def _span(item: records.Evidence) -> str:
    low, high, unit = item.estimate.low, item.estimate.high, item.estimate.unit
    if low == high and low is not None:
        return units.text(low, unit)
    left = "-∞" if low is None else units.number(low)
    right = "∞" if high is None else units.number(high)
    return f"{left} to {right}{'' if unit == '1' else ' ' + unit}"


def gpu_evidence(items: Iterable[records.Evidence]) -> str:
    """Say in plain words whether a claim has been measured on a GPU."""
    devices = sorted(
        {
            item.provenance.device
            for item in items
            if item.basis == "measured" and item.provenance and item.provenance.driver
        }
    )
    return f"measured on {', '.join(devices)}" if devices else "none yet"


def command(claim: records.Claim) -> str:
    """Return the shell command that re-derives a claim.

    Examples
    --------
    ``assay run kv-cache-formula --force``
    """
    return f"assay run {claim.id} --force"


def needs(least: Mapping[str, Any]) -> str:
    """Say in words the least that would make a rate possible.

    Parameters
    ----------
    least : mapping
        The ``needs`` of ``physics.possible``.
    """
    words = {"output": "generated tokens", "total": "all tokens", "requests": "requests"}
    parts = []
    for counting, devices in least["devices_by_counting"].items():
        number = "no number of cards" if devices is None else f"{devices} card{'s' * (devices > 1)}"
        parts.append(f"{number} if it counts {words[counting]}")
    return ", ".join(parts)


def table(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """Return a Markdown table; the keys of the first row are the headings.

    Parameters
    ----------
    rows : sequence of mapping
        Numbers are written with thousands separators, text as it is, ``None`` as a dash.
    """
    if not rows:
        return Markdown("*Nothing to show.*")
    heads = list(rows[0])
    numeric = [all(_is_number(row[h]) for row in rows) for h in heads]
    lines = [
        "| " + " | ".join(heads) + " |",
        "|" + "|".join("---:" if right else "---" for right in numeric) + "|",
    ]
    lines += ["| " + " | ".join(_cell(row[h]) for h in heads) + " |" for row in rows]
    return Markdown("\n".join(lines))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if isinstance(value, Markdown):
        return value.text
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return units.number(float(value))
    return _escape(str(value)).replace("\n", " ").replace("|", "\\|")


def _escape(text: str) -> str:
    """Keep angle brackets, dollars and tildes of quoted text from becoming markup."""
    for sign in "<$":
        text = text.replace(sign, f"\\{sign}")
    return text
