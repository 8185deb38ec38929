"""Tasks: where an exam's questions come from, and who says whether an answer is right.

Owns choosing between generated sums and a task of EleutherAI's evaluation harness, and asking and
grading the latter with its own prompt, filters and metric. Does not own the sums (``arithmetic``)
or asking a server (``exam``).

The harness (``lm_eval``, the extra ``tasks``) is optional; its tasks read their data from a hub, or
from files when a task's YAML names some. Questions are asked without worked examples, which would
make the arm that is not to reason reason; and no stop strings are sent, which would cut the other
arm's reasoning.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from assay.bench.exam import arithmetic
from assay.errors import InputError

__all__ = ["GENERATED", "HARNESS", "Question", "Taken", "questions"]

GENERATED, HARNESS = "arithmetic", "lm-eval:"
# Of several ways to find the answer in a text, the one that does not insist on a format; the
# others ask for the wording of the worked examples, which are not shown.
_FILTER = "flexible-extract"
_METRICS = ("exact_match", "acc", "math_verify")
_INVALID = "[invalid]"  # what the harness calls an answer that no filter found
# A task filters the requests it holds, and an exam marks several answers at once.
_TURN = threading.Lock()


class Question(Protocol):
    """What an exam needs of a question."""

    @property
    def id(self) -> str:
        """Name, the same in every arm."""

    @property
    def reference(self) -> str:
        """The right answer as a text."""

    def asked(self, template: str) -> str:
        """Return the text in which a model is asked."""

    def marked(self, text: str) -> tuple[str | None, bool]:
        """Return what an answer's text says, None when nothing, and whether it is right."""


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """A question taken from a task of the harness.

    Parameters
    ----------
    id : str
        Task and number, for example ``gsm8k-0017``.
    task : str
        Name of the task, or its YAML file.
    number : int
        Place among the task's documents.
    text, reference : str
        What is asked and the right answer, as the task writes them.
    """

    id: str
    task: str
    number: int
    text: str
    reference: str

    def asked(self, template: str) -> str:
        """Return the text in which a model is asked; the task's own, whatever the template."""
        return self.text

    def marked(self, text: str) -> tuple[str | None, bool]:
        """Return what the task's filter finds in a text, and whether its metric calls it right."""
        task, documents = _opened(self.task)
        document = documents[self.number]
        request = task.construct_requests(
            document, ctx="", metadata=(self.task, self.number, 1), doc_id=self.number
        )
        request.resps = [text]
        with _TURN:
            task._instances = [request]
            task.apply_filters()
        names = list(request.filtered_resps)
        found = request.filtered_resps[_FILTER if _FILTER in names else names[0]]
        right = _right(task.process_results(document, [found]), self.task)
        answer = found if isinstance(found, str) else f"{found}"
        return (None if answer.strip() in ("", _INVALID) else answer), right


def questions(task: str, count: int, *, seed: int) -> list[Question]:
    """Draw questions of a task.

    Parameters
    ----------
    task : str
        ``arithmetic``, or ``lm-eval:`` and the name or the YAML file of a task that generates text.
    count : int
        How many [1].
    seed : int
        The same seed gives the same questions.

    Returns
    -------
    list of Question
        In the order drawn.

    Raises
    ------
    InputError
        When there is no such task, it has fewer questions, grades no generated text, or the
        harness or the task's data cannot be reached.

    Examples
    --------
    >>> [question.reference for question in questions("arithmetic", 2, seed=7)]
    ['6', '34']
    """
    if task == GENERATED:
        return list(arithmetic.questions(count, seed=seed))
    name = task.removeprefix(HARNESS)
    if name == task or not name:
        raise InputError(
            f"no task '{task}'",
            fix=f"use {GENERATED}, or {HARNESS}NAME for a task of the evaluation harness",
        )
    opened, documents = _opened(name)
    if count > len(documents):
        raise InputError(
            f"asks for {count:,} questions of {len(documents):,}",
            where=f"task '{name}'",
            fix="ask for fewer",
        )
    stem = Path(name).stem if _is_file(name) else name
    found: list[Question] = []
    for number in random.Random(seed).sample(range(len(documents)), count):
        document = documents[number]
        right = opened.doc_to_target(document)
        right = right[0] if isinstance(right, list) and right else right
        text = f"{opened.config.description or ''}{opened.doc_to_text(document)}"
        found.append(Taken(f"{stem}-{number:04d}", name, number, text, f"{right}"))
    found[0].marked(found[0].reference)  # a metric that does not say right or wrong shows here
    return found


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


@functools.cache
def _opened(name: str) -> tuple[Any, Sequence[Mapping[str, Any]]]:
    """Return a task with its documents."""
    where = f"task '{name}'"
    try:
        from lm_eval.tasks import TaskManager
    except ImportError:
        raise InputError(
            "the evaluation harness is not installed", where=where, fix="install the extra 'tasks'"
        ) from None
    if _is_file(name) and not Path(name).is_file():
        raise InputError("no such file", where=where, fix="check the name")
    # The data library tells of every retry; what came of them is told once, below.
    logging.disable(logging.WARNING)
    try:
        return _loaded(name, TaskManager, where)
    finally:
        logging.disable(logging.NOTSET)


def _loaded(name: str, manage: Any, where: str) -> tuple[Any, Sequence[Mapping[str, Any]]]:
    # Reading the index of the harness's own tasks takes seconds, and a file needs none of them.
    manager = manage(include_defaults=not _is_file(name))
    if not _is_file(name) and name not in manager.all_subtasks:
        several = name in manager.all_tasks
        raise InputError(
            "is a group of tasks" if several else "the evaluation harness has no such task",
            where=where,
            fix="name one task",
        )
    try:
        (task,) = manager.load(name)["tasks"].values()
        documents = list(task.eval_docs)
    except Exception as error:  # the harness and its data library raise whatever they like
        said = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise InputError(
            f"its data cannot be reached ({said})",
            where=where,
            fix="connect to the hub, or name a YAML file whose data are files",
        ) from None
    if task.OUTPUT_TYPE != "generate_until" or not documents:
        raise InputError(
            f"grades no generated text ({task.OUTPUT_TYPE}, {len(documents)} documents)",
            where=where,
            fix="choose a task whose output_type is generate_until",
        )
    return task, documents


def _right(metrics: Mapping[str, Any], task: str) -> bool:
    """Return the grade among a task's metrics of one answer."""
    names = [name for name in _METRICS if name in metrics] or list(metrics)
    value = metrics[names[0]] if names else None
    if value not in (0, 1):
        raise InputError(
            f"gives {names[0] if names else 'no metric'} = {value!r:.40} for an answer, which is "
            "neither right nor wrong",
            where=f"task '{task}'",
            fix="choose a task that grades by exact match",
        )
    return bool(value)
