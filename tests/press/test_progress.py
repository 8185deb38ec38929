"""Progress is plain lines in a log and live bars on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from assay.press import progress
from assay.press.runner import Event, Outcome

FAILED = Outcome("a-claim", "a_notebook", "failed", 2.5, "notebooks/a.ipynb, cell 3: [boom] no")
EVENTS = [
    Event("start", "a-claim", "a_notebook", 0, 4),
    Event("cell", "a-claim", "a_notebook", 3, 4),
    Event("end", "a-claim", "a_notebook", outcome=FAILED),
    Event("end", "b", "n", outcome=Outcome("b", "n", "unchanged", 1.0, "")),
]


def written(*, terminal: bool) -> str:
    out = io.StringIO()
    with progress.shown(Console(file=out, force_terminal=terminal, width=60)) as show:
        for event in EVENTS:
            show(event)
    return out.getvalue()


def test_a_log_gets_one_line_a_step_and_the_message_unwrapped() -> None:
    assert written(terminal=False).splitlines() == [
        "running    a_notebook  a-claim",
        "failed     a_notebook  a-claim  2.5 s",
        "           notebooks/a.ipynb, cell 3: [boom] no",
    ]


def test_a_terminal_is_left_with_the_same_words() -> None:
    shown = written(terminal=True)
    assert "failed" in shown
    assert "[boom] no" in shown
    assert "unchanged" not in shown  # many of them would bury what was done


def test_the_summary_counts_every_state_once() -> None:
    outcomes = [event.outcome for event in EVENTS if event.outcome]
    assert progress.summary(outcomes) == "1 unchanged, 1 failed"
