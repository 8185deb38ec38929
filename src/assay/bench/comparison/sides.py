"""Sides: the runs of a file, or of a folder of repeats, each counted once.

Owns which files of a folder are read, what is left out and why, the same run in several forms, and
the grouping of a suite by workload. Does not own reading a file (``results``) or comparing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.bench.results import reader
from assay.bench.results.table import Run
from assay.errors import InputError
from assay.ledger import store

__all__ = ["Side", "identity", "load", "workloads"]

_SUFFIXES = {".json", ".jsonl", ".csv", ".md", ".txt", ".yaml", ".yml", ".sql"}
_PACKED = {".gz", ".bz2", ".xz", ".zst"}
#: Folders below the one named that are looked into: AIPerf writes one folder a run.
_DEEP = 2
#: Files of one side; a folder with more is not one of repeats.
_FILES = 1000
#: Two forms of one report round differently [1].
_ROUNDED = 0.01
#: Forms of a report, the one that tells most first.
_FORMS = ("AIPerf per-request", "AIPerf")
_ORDER = (".jsonl", ".json", ".yaml", ".yml", ".sql", ".csv", ".md")
#: Facts that two forms of one report do not differ in.
_TOLD = ("completed", "test", "concurrency", "asked_rate")


@dataclass(slots=True)
class Side:
    """The runs of one side and what is to be said about them.

    Parameters
    ----------
    shown : str
        Its name as given.
    runs : list of Run
        Usable, each counted once.
    digests : set of str
        Of the files read.
    remarks : list of str
        What was left out, and why.
    """

    shown: str
    runs: list[Run] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)


def load(path: Path) -> Side:
    """Read one side.

    Parameters
    ----------
    path : Path
        A file with one or more runs, or a folder of such files.

    Raises
    ------
    InputError
        When it holds no usable run.
    """
    side = Side(str(path))
    folder = os.path.isdir(path)  # an unreadable place is no folder, and no traceback
    files = _files(path) if folder else [path]
    if not files:
        raise InputError("holds no result file", where=side.shown, fix="name a folder of repeats")
    sentences: list[str] = []
    found: list[tuple[Path, Run]] = []
    for file in files:
        reading = reader.read(file)
        if reading.error is not None and folder:
            side.remarks.append(f"left out: {reading.error}")
            continue
        unusable = reader.sentences([reading])
        sentences += unusable
        side.remarks += [f"left out: {words}" for words in unusable]
        if reading.error is None:
            mark = store.digest(file)
            if mark in side.digests:
                side.remarks.append(f"{file} repeats another file byte for byte: counted once")
                continue
            side.digests.add(mark)
        found += [(file, run) for run in reading.runs if run.usable]
    side.runs = _once(found, side.remarks)
    if not side.runs:
        what = sentences[0] if sentences else f"{side.shown}: holds no run that can be used"
        raise InputError(what)
    return side


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be results, without following links to folders."""
    found: list[Path] = []

    def stop(error: OSError) -> None:
        raise InputError(
            f"cannot be read ({error.strerror})", where=str(error.filename), fix="check it"
        ) from None

    for place, folders, names in os.walk(folder, onerror=stop):
        deep = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(folders) if deep < _DEEP else []
        found += [Path(place, name) for name in sorted(names) if _may_be(Path(name))]
        if len(found) > _FILES:
            raise InputError(
                f"holds more than {_FILES:,} files", where=str(folder), fix="name a smaller folder"
            )
    return found


def _may_be(name: Path) -> bool:
    suffixes = name.suffixes
    if suffixes and suffixes[-1] in _PACKED:
        suffixes = suffixes[:-1]
    return bool(suffixes) and suffixes[-1] in _SUFFIXES and not name.name.startswith(".")


# -- each run once --------------------------------------------------------------------------------


def identity(run: Run) -> tuple[object, ...]:
    """Return what two runs share only when they are one: all facts and figures.

    Parameters
    ----------
    run : Run
        Any run.
    """
    figures = sorted((key, figure.value) for key, figure in run.figures.items())
    return (run.format, tuple(sorted((k, str(v)) for k, v in run.facts.items())), tuple(figures))


def _once(found: Sequence[tuple[Path, Run]], remarks: list[str]) -> list[Run]:
    """Return every run once: copies, warm-ups and other forms of the same run go."""
    kept: list[tuple[Path, Run]] = []
    seen: dict[tuple[object, ...], Path] = {}
    several = len({file for file, _ in found}) > 1
    for file, run in sorted(found, key=_telling) if several else found:
        if run.warm_up:
            remarks.append(f"left out: {file}: a warm-up")
            continue
        mark = identity(run)
        other = seen.setdefault(mark, file)
        if mark in seen and other is not file:
            remarks.append(f"{file} holds a run of {other} again: counted once")
            continue
        twin = next((f for f, r in kept if _same(f, r, file, run)), None) if several else None
        if twin is not None:
            remarks.append(f"{file} is another form of {twin}: counted once")
            continue
        kept.append((file, run))
    return [run for _, run in kept]


def _telling(item: tuple[Path, Run]) -> tuple[int, int]:
    """Order the forms of a report, the one that tells most first."""
    file, run = item
    form = _form(file)
    return (
        _FORMS.index(run.format) if run.format in _FORMS else 0,
        _ORDER.index(form) if form in _ORDER else len(_ORDER),
    )


def _form(file: Path) -> str:
    suffixes = [s for s in file.suffixes if s not in _PACKED]
    return suffixes[-1] if suffixes else ""


def _same(one: Path, first: Run, two: Path, second: Run) -> bool:
    """Say whether two files of different form hold the same run, as AIPerf and GuideLLM write."""
    if (first.format, _form(one)) == (second.format, _form(two)):
        return False
    if first.format.split()[0] != second.format.split()[0]:
        return False
    told = [name for name in _TOLD if name in first.facts and name in second.facts]
    if any(first.facts[name] != second.facts[name] for name in told):
        return False
    shared = [key for key in first.figures if key in second.figures and key[1] in ("mean", "rate")]
    return bool(shared) and all(
        abs(first.figures[key].value - second.figures[key].value)
        <= _ROUNDED * max(first.figures[key].value, second.figures[key].value)
        for key in shared
    )


# -- suites ---------------------------------------------------------------------------------------


def workloads(
    before: Sequence[Run], after: Sequence[Run]
) -> tuple[dict[str, list[Run]], dict[str, list[Run]]]:
    """Group the runs of either side by what they ran; repeats share a group.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs.

    Returns
    -------
    tuple of dict
        The groups of either side, by a name that both use.
    """
    sides = (_grouped(before, None), _grouped(after, None))
    # Runs of one workload under several settings are a suite of settings, and no repeats.
    several = {
        name
        for side in sides
        for name, runs in side.items()
        if len({run.facts.get("settings") for run in runs}) > 1
    }
    if not several:
        return sides
    return _grouped(before, several), _grouped(after, several)


def _grouped(runs: Sequence[Run], several: set[str] | None) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        name = ", ".join(_words(run)) or "all"
        if several and name in several:
            name = f"{name}, {run.facts.get('settings') or 'settings not stated'}"
        found.setdefault(name, []).append(run)
    return found


def _words(run: Run) -> Iterator[str]:
    if run.facts.get("test"):
        yield str(run.facts["test"])
    for name, word in (("concurrency", "concurrency"), ("asked_rate", "rate")):
        if run.facts.get(name) is not None:
            yield f"{word} {run.facts[name]}"
