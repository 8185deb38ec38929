"""Rulebook: the permanent rule ids of the submission checker.

Owns each rule's id, its one severity and its sentence, and the shape of a problem. Does not own
finding problems (``rules``). An id is never given to another rule; a dropped rule leaves a gap.

===== ==========================================================================
A     any file: it can be read, and it tells nobody's secrets
C     claims
D     tables of published measurements
E     evidence
F, N  notebooks; the ids are those of the house style
H     hardware
M     models
S     sources
V     verdicts
W     withdrawals
===== ==========================================================================
"""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["OPEN_PLACE", "RULES", "Problem", "Severity", "problem"]

Severity = Literal["error", "warning", "note"]

#: What a draft carries where somebody still has to write.
OPEN_PLACE = "FILL IN"


def _records(letter: str, noun: str) -> dict[str, tuple[Severity, str]]:
    """Return the four rules that every kind of record shares."""
    return {
        f"{letter}001": ("error", f"a {noun} has no unknown field"),
        f"{letter}002": ("error", f"every field of a {noun} is written out"),
        f"{letter}003": ("error", f"every value of a {noun} is of its field's type"),
        f"{letter}004": ("error", f"every value of a {noun} keeps the field's contract"),
    }


RULES: dict[str, tuple[Severity, str]] = {
    "A001": ("error", "a file can be read as UTF-8 text"),
    "A002": ("error", "a file is valid YAML, strict JSON or CSV, and means what it shows"),
    "A003": ("error", "a key is written once"),
    "A004": ("error", "no file carries a secret"),
    "A005": ("error", "no file carries the path of somebody's home folder"),
    "A006": ("error", "a file lies where its kind belongs, under the suffix of its kind"),
    **_records("C", "claim"),
    "C005": ("error", "a unit is on the closed list and measures the metric"),
    "C006": ("error", "a band contains its own value and can be missed"),
    "C007": ("error", "an assertion id occurs once in a claim"),
    "C008": ("error", "a claim id occurs once, whatever its suffix and case"),
    "C009": ("error", "a claim's source exists"),
    "C010": ("note", "a claim's notebook is written"),
    "C011": ("error", "a claim has no place left to fill in"),
    "D-10": ("error", "a table has lower_snake headers, no doubled column and empty missing cells"),
    "D-11": ("warning", "a table's lines end in LF, and its last line ends"),
    **_records("E", "piece of evidence"),
    "E005": ("error", "evidence is in base units and measures the assertion's metric"),
    "E006": ("error", "evidence is about a claim that exists"),
    "E007": ("error", "evidence is about an assertion of its claim"),
    "E008": ("error", "evidence is as the notebook wrote it: its name carries its hash"),
    "E009": ("warning", "evidence was made by the notebook as it is now"),
    "E010": ("error", "an input of evidence exists"),
    "E011": ("error", "an input of evidence is unchanged"),
    "E012": ("warning", "a file among the evidence is evidence or its raw samples"),
    "F-02": ("error", "a figure cell has a caption, a name fig-… and an alternative text"),
    "F-03": ("error", "sizes, titles and colours of figures belong to the package"),
    **_records("H", "device"),
    "H005": ("error", "a unit is on the closed list and measures the quantity"),
    "H006": ("error", "a device id occurs once"),
    "H007": ("error", "a driver's name belongs to one device"),
    "H008": ("error", "a fact's source exists"),
    **_records("M", "model"),
    "M006": ("error", "a model id occurs once"),
    "M008": ("error", "a model's source exists"),
    "N-01": ("error", "a notebook opens with its one title and has the six sections in order"),
    "N-02": ("error", "a visible code cell follows prose"),
    "N-03": ("error", "cells are short: 25 lines, median 10, 120 code lines and 30 cells in all"),
    "N-04": ("error", "there are at least three words of prose per line of code"),
    "N-05": ("error", "no definitions, try, global, magics or scattered imports"),
    "N-06": ("error", "a name is bound once"),
    "N-07": ("error", "no literal numbers among the evidence but 0, 1, 2, powers of ten and seeds"),
    "N-08": ("error", "a source notebook has no outputs or counts, stable ids, kernel python3"),
    "N-09": ("error", "a notebook names no path: paths come from the store"),
    "N-10": ("note", "a code cell has few comments; narrative is prose"),
    "N-11": ("error", "no headings from code"),
    "N-12": ("warning", "modules are imported, not names"),
    "N-13": ("error", "the first code cell, and no other, declares literal, commented parameters"),
    "N-14": ("error", "a claim gives only parameters its notebook declares, of the declared type"),
    "N-15": ("error", "the last code cell, and no other, is tagged record"),
    "N-16": ("note", "prose carries no verdict word"),
    "N-17": ("note", "a computed number in prose is a glue role"),
    "N-18": ("error", "tags are those of the house"),
    "N-19": ("error", "a notebook does not loosen how strictly it is run"),
    "N-20": ("error", "a notebook's outputs stay below 5 MB"),
    "N-21": ("error", "a notebook has no place left to fill in"),
    **_records("S", "source"),
    "S005": ("error", "a source id is lower case, digits, hyphens and points"),
    "S006": ("warning", "a source is used"),
    "V001": ("error", "verdicts.csv is what the ledger implies"),
    "V002": ("error", "history.csv has its six columns"),
    **_records("W", "withdrawal"),
    "W005": ("error", "a withdrawal names evidence beside it"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule.

    Parameters
    ----------
    rule : str
        Permanent id.
    severity : {"error", "warning", "note"}
        The rule's; errors fail a check.
    where : str
        File, line or cell, field.
    what : str
        What is wrong.
    fix : str
        What to do.
    """

    rule: str
    severity: Severity
    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        advice = f"; {self.fix}" if self.fix else ""
        return f"{self.severity} {self.rule} {self.where}: {self.what}{advice}"


def problem(rule: str, where: str, what: str, fix: str) -> Problem:
    """Return a problem with its rule's severity.

    Examples
    --------
    >>> print(problem("N-15", "notebooks/a.ipynb", "no cell is tagged record", "tag the last one"))
    error N-15 notebooks/a.ipynb: no cell is tagged record; tag the last one
    """
    return Problem(rule, RULES[rule][0], where, what, fix)
