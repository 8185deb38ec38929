"""Comparison: what two results, or two folders of repeats, do and do not show.

Owns the order of the questions: is it one and the same run, may the sides be compared, was the
feature under test used, what changed, and is the gain more than a warm cache. Does not own reading
(``results``), the statistics (``ledger.stats``) or pairs of single figures (``pairs``). The answers
are in the modules beside it: ``sides``, ``conditions``, ``causes``, ``changes`` and ``verdict``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.bench.comparison import causes, sides
from assay.bench.comparison import conditions as asked
from assay.bench.comparison.changes import BAND, NOISE, Change, changes, one_sided
from assay.bench.comparison.verdict import Verdict, decide
from assay.bench.results.table import Run

__all__ = ["BAND", "NOISE", "Change", "Comparison", "Verdict", "compare", "compare_runs"]

_ITSELF = "both sides are the same {}: one run cannot differ from itself"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two sides show.

    Parameters
    ----------
    verdict : str
        One of `Verdict`.
    reasons : tuple of str
        Sentences, the decisive one first.
    changes : tuple of Change
        Empty when the sides are not comparable.
    conditions : tuple of dict
        The comparability table: ``condition``, ``before``, ``after``, ``status``.
    runs : tuple of int
        Usable runs of either side.
    name : str
        Which part of a suite, or which pair.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    conditions: tuple[dict[str, Any], ...] = ()
    runs: tuple[int, int] = (0, 0)
    name: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {
            "name": self.name or None,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "runs": {"before": self.runs[0], "after": self.runs[1]},
            "conditions": list(self.conditions),
            "deltas": [change.as_dict() for change in self.changes],
        }


def compare(before: Path, after: Path, *, changed: Collection[str] = ()) -> list[Comparison]:
    """Compare two result files, or two folders of repeats.

    Parameters
    ----------
    before, after : Path
        A file with one or more runs, or a folder of such files.
    changed : collection of str
        Conditions that are the change under test, for example ``model``.

    Returns
    -------
    list of Comparison
        One for each workload that both sides have.

    Raises
    ------
    InputError
        When a side has no usable run.
    """
    one, two = sides.load(before), sides.load(after)
    remarks = [*one.remarks, *two.remarks]
    if one.digests == two.digests:
        runs = (len(one.runs), len(two.runs))
        return [Comparison("insufficient", (_ITSELF.format("file"), *remarks), runs=runs)]
    first, second = sides.workloads(one.runs, two.runs)
    if len(first) == 1 and len(second) == 1:
        (a,), (b,) = first.values(), second.values()
        return [compare_runs(a, b, changed=changed, remarks=remarks)]
    shared = [key for key in first if key in second]
    for word, own in (("before", first), ("after", second)):
        alone = [key for key in own if key not in shared]
        if alone and shared:
            remarks.append(f"only {word} has {'; '.join(alone[:8])}: not compared")
    if not shared:
        reason = (
            "the sides have no workload in common (test, concurrency, arrival rate): "
            f"{'; '.join(list(first)[:8])} before, {'; '.join(list(second)[:8])} after"
        )
        return [Comparison("not-comparable", (reason, *remarks))]
    return [
        compare_runs(first[k], second[k], changed=changed, remarks=remarks, name=k) for k in shared
    ]


def compare_runs(
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    changed: Collection[str] = (),
    remarks: Sequence[str] = (),
    name: str = "",
) -> Comparison:
    """Compare the repeats of one workload.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs; each is one server start.
    changed : collection of str
        Conditions that are the change under test.
    remarks : sequence of str
        What else is to be said.
    name : str
        Which workload it is.
    """
    runs = (len(before), len(after))
    table = asked.conditions(before, after)
    if {sides.identity(run) for run in before} & {sides.identity(run) for run in after}:
        reasons = (_ITSELF.format("run"), *remarks)
        return Comparison("insufficient", reasons, (), table, runs, name)
    found = tuple(changes(before, after))
    blocking = asked.blocking(table, before, after, changed) + causes.redefined(found, before)
    if blocking:
        reasons = (*blocking, *causes.suspect(found, before, after), *remarks)
        return Comparison("not-comparable", reasons, (), table, runs, name)
    remarks = [
        *one_sided(before, after),
        *asked.remarks(table, found, (*before, *after)),
        *remarks,
    ]
    unused = causes.unexercised(before, after, changed)
    if unused:
        return Comparison("not-exercised", (*unused, *remarks), found, table, runs, name)
    verdict, said = decide(found, runs)
    if verdict in ("better", "worse") and causes.seed_reused(before, after, changed):
        gain = "gain" if verdict == "better" else "loss"
        verdict = "insufficient"
        said.insert(
            0,
            "both sides send the same prompts (same seed) and nothing says that the prefix cache "
            f"was off or cold: the {gain} may be the cache's",
        )
    return Comparison(verdict, (*said, *remarks), found, table, runs, name)
