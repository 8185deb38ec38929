"""Progress: show the runs as they go, as live bars on a terminal and as lines elsewhere.

Owns how events of ``runner`` look while notebooks execute. Does not own what they mean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from assay.press.runner import Event, Outcome

__all__ = ["shown", "summary"]

# Words, not glyphs: the glyphs of this project are its verdicts.
_WORDS = {
    "done": ("done", "green"),
    "unchanged": ("unchanged", "dim"),
    "failed": ("failed", "bold red"),
    "not-written": ("not written yet", "dim"),
}


@contextlib.contextmanager
def shown(console: Console | None = None) -> Iterator[Callable[[Event], None]]:
    """Show runs while the block lasts; yields the callback for ``runner.run(on_event=...)``.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write; standard error by default, so that results can be piped.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda event: _line(console, event)
        return
    bars = Progress(
        TextColumn("{task.fields[notebook]}", style="cyan"),
        TextColumn("{task.fields[claim]}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[step]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def show(event: Event) -> None:
        if event.kind == "start":
            tasks[event.claim] = bars.add_task(
                "",
                total=event.cells,
                notebook=event.notebook,
                claim=event.claim,
                step="starting",
            )
        elif event.kind == "cell":
            bars.update(
                tasks[event.claim],
                completed=event.cell - 1,
                step=f"cell {event.cell}/{event.cells}",
            )
        else:
            if event.claim in tasks:
                bars.remove_task(tasks.pop(event.claim))
            if event.outcome is not None and event.outcome.state in ("done", "failed"):
                console.print(_ended(event.outcome))

    with bars:
        yield show


def _line(console: Console, event: Event) -> None:
    if event.kind == "start":
        console.print(Text(f"running    {event.notebook}  {event.claim}"), soft_wrap=True)
    elif event.outcome is not None and event.outcome.state in ("done", "failed"):
        console.print(_ended(event.outcome), soft_wrap=True)


def _ended(outcome: Outcome) -> Text:
    word, style = _WORDS[outcome.state]
    text = Text(f"{word:<10} ", style=style)
    text.append(f"{outcome.notebook}  {outcome.claim}  {outcome.seconds:.1f} s", style="default")
    if outcome.message:
        text.append(f"\n           {outcome.message}", style="default")
    return text


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return one line that counts the runs by what became of them.

    Examples
    --------
    >>> from assay.press.runner import Outcome
    >>> summary([Outcome("a", "n", "done", 1.0, ""), Outcome("b", "m", "not-written", 0.0, "")])
    '1 done, 1 not written yet'
    >>> summary([])
    'nothing to run'
    """
    counts = [
        (sum(outcome.state == state for outcome in outcomes), word)
        for state, (word, _) in _WORDS.items()
    ]
    return ", ".join(f"{count} {word}" for count, word in counts if count) or "nothing to run"
