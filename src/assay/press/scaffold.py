"""Scaffold: the first draft of a claim, and of its notebook where there is none.

Owns the empty form that ``assay new`` writes. What it cannot know it marks with
:data:`~assay.ledger.rulebook.OPEN_PLACE`, which ``assay check`` refuses, so that a draft never
passes for a claim. Does not own the schema (``records``) or the rules (``rules``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.errors import InputError
from assay.ledger import records, store
from assay.ledger.rulebook import OPEN_PLACE

__all__ = ["FIELDS", "claim", "new", "notebook"]

#: What may be given beforehand, with what to write there.
FIELDS: Mapping[str, str] = {
    "title": "our plain sentence, with the number",
    "increment": "1 to 6, A to C, or warnings",
    "quote": "the words of the source, verbatim",
    "quote_en": "the same in English",
    "source": "an id of data/sources.yml",
    "locator": "where in the source",
    "notebook": "file stem in notebooks/",
}
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_STEM = re.compile(r"[a-z][a-z0-9_]*")
_SCOPE = {
    "gpu": "an id of data/hardware, any, unstated or n/a",
    "gpu_count": "a number, any, unstated or n/a",
    "model": "an id of data/models, any, unstated or n/a",
    "precision": "for example w16a16, any, unstated or n/a",
    "engine": "for example vllm, any, unstated or n/a",
    "version": "quoted, any, unstated or n/a",
    "workload": "lengths and load, any, unstated or n/a",
    "counting": "output, total, requests, unstated or n/a",
}


def claim(given: Mapping[str, str]) -> str:
    """Return a claim's YAML: what is given, and open places for the rest.

    Parameters
    ----------
    given : mapping of str to str
        Some of :data:`FIELDS`.

    Examples
    --------
    >>> claim({"title": "Ten times as fast"}).splitlines()[0]
    'title: "Ten times as fast"'
    """
    lines = [f"{name}: {_text(given.get(name), what)}" for name, what in FIELDS.items()]
    lines += [
        "parameters: {}",
        "assertions:",
        f"  - id: {_text(None, 'a slug, for example output-rate')}",
        f"    says: {_text(None, 'one sentence with the number')}",
        f"    metric: {_text(None, 'a name from src/assay/ledger/metric.py')}",
        f"    relation: {_text(None, 'equals, about, at_least, at_most, between, ratio, order')}",
        f"    value: {_text(None, 'the number as printed')}",
        f"    unit: {_text(None, 'the unit as printed')}",
        "    band:",
        f"      low: {_text(None, 'the least that still agrees, or null')}",
        f"      high: {_text(None, 'the most that still agrees, or null')}",
        f"      why: {_text(None, 'why this much still counts as agreement')}",
        "    scope:",
        *(f"      {key}: {_text(None, what)}" for key, what in _SCOPE.items()),
        "    decided_by:",
        f"      verify: [{_text(None, ', '.join(sorted(records.MAY_VERIFY)))}]",
        f"      dispute: [{_text(None, ', '.join(sorted(records.MAY_DISPUTE)))}]",
        f"    falsifier: {_text(None, 'the observation that would refute it')}",
        "    headline: true",
    ]
    return "\n".join(lines) + "\n"


def _text(value: str | None, what: str) -> str:
    # A JSON string is a YAML string in double quotes.
    return json.dumps(value if value else f"{OPEN_PLACE}: {what}", ensure_ascii=False)


def notebook(name: str, claim_id: str) -> str:
    """Return a notebook's JSON: the sections in order, the three code cells every one has.

    Parameters
    ----------
    name : str
        File stem; cell ids begin with it.
    claim_id : str
        The claim it settles unless the runner says another.
    """
    cells = [
        _prose(
            f"# {OPEN_PLACE}: the question?\n\n> {OPEN_PLACE}: the answer in one sentence.\n\n"
            "```{glue:md} verdict\n:format: myst\n```\n\n## Claim\n\n"
            "```{glue:md} quotation\n:format: myst\n```\n\n```{glue:md} scope\n:format: myst\n```"
        ),
        _code(
            f'claim_id: str = "{claim_id}"  # data/claims/<id>.yml',
            ["parameters", "remove-cell"],
        ),
        _code(
            "from myst_nb import glue\n\nfrom assay.ledger import judge, published, store\n"
            "from assay.press import show\n\nclaim = store.claim(claim_id)",
            ["hide-input"],
        ),
        _prose(f"## Method\n\n{OPEN_PLACE}: the formula, its assumptions, and a takeaway."),
        _prose(f"## Evidence\n\n### {OPEN_PLACE}: what do the documents say?"),
        _code(
            'show.table([{"assertion": claim.assertion(s.assertion).says, "read": s.finding,\n'
            '             "where": s.locator} for s in published.statements(claim.id)]\n'
            '           or [{"assertion": "nothing was read yet", "read": "", "where": ""}])',
            [],
        ),
        _prose(f"## Verdict\n\n{OPEN_PLACE}: which evidence decides what."),
        _code(
            "published.record_statements(claim, parameters={})\n"
            "verdict = judge.judge(claim, store.live(claim.id))\n"
            'glue("verdict", show.card(claim, verdict), display=False)\n'
            'glue("quotation", show.quotation(claim), display=False)\n'
            'glue("scope", show.scope(claim), display=False)\n'
            "show.assertions(claim, verdict)",
            ["record", "hide-input"],
        ),
        _prose(
            f"## What would change this\n\n- {OPEN_PLACE}: an observation.\n\n## References\n\n"
            f"- {OPEN_PLACE}: author, year, title, address."
        ),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"{name.replace('_', '-')}-{number}"[:64]
    content = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _prose(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str, tags: Sequence[str]) -> dict[str, object]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": list(tags)} if tags else {},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }


def new(claim_id: str, given: Mapping[str, str]) -> list[Path]:
    """Write the draft of a claim, and of its notebook when that is named and not there.

    Parameters
    ----------
    claim_id : str
        Slug; the file's name.
    given : mapping of str to str
        Some of :data:`FIELDS`; empty text is not given.

    Returns
    -------
    list of Path
        What was written. Nothing is ever overwritten.

    Raises
    ------
    InputError
        When the claim exists, or an id or a notebook's name is none.
    """
    if not _SLUG.fullmatch(claim_id):
        raise InputError(
            f"'{claim_id}' is no id",
            where="ID",
            fix="use lower case, digits and hyphens, for example turbo-gain",
        )
    file = store.path("data", "claims", f"{claim_id}.yml")
    if claim_id in store.claim_ids() or file.exists():
        raise InputError("the claim exists", where=store.shown(file), fix="choose another id")
    name = given.get("notebook", "")
    if name and not _STEM.fullmatch(name):
        raise InputError(
            f"'{name}' is no notebook's name",
            where="--notebook",
            fix="give the file stem: lower case, digits and underscores, for example turbo_gain",
        )
    written = [file]
    store.write(file, claim(given))
    if name and not (page := store.path("notebooks", f"{name}.ipynb")).exists():
        store.write(page, notebook(name, claim_id))
        written.append(page)
    return written
