"""The errors Assay raises on purpose; owns their shape, and nothing else.

::

    AssayError            what happened, where, what to do; base of all four
    ├── InputError        a file, option or value a person gave cannot be used
    ├── RecordError       a ledger record breaks its contract
    ├── DerivationError   the facts given do not determine the number asked for
    └── RunError          a notebook or an engine did not finish

The command line prints one of these as a single sentence and exits with ``exit_code``. Anything
else that escapes is a bug, not a message. This module imports nothing of the project.
"""

from __future__ import annotations

__all__ = ["AssayError", "DerivationError", "InputError", "RecordError", "RunError"]


class AssayError(Exception):
    """A failure said in three parts.

    Parameters
    ----------
    what : str
        What is wrong, with the offending value.
    where : str
        File and field, option, or notebook cell. Empty when ``what`` already says it.
    fix : str
        What the reader can do about it. Empty when nothing can be done.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(what, where, fix)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"; {self.fix}" if self.fix else ""
        return f"{place}{self.what}{advice}"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders when notebooks run in parallel.
        return (_rebuild, (type(self), self.what, self.where, self.fix))


class InputError(AssayError):
    """A file, option or value a person gave cannot be used."""


class RecordError(AssayError):
    """A ledger record breaks its contract."""


class DerivationError(AssayError):
    """The facts given do not determine the number asked for."""


class RunError(AssayError):
    """A notebook or an engine did not finish."""

    exit_code = 1


def _rebuild(kind: type[AssayError], what: str, where: str, fix: str) -> AssayError:
    return kind(what, where=where, fix=fix)
