"""Parameter: what a notebook's parameters cell declares, and the values a run gives it.

Owns reading the cell (with ``ast``; nothing of it is executed), the types, and the typing of what a
claim or a command line gives. Does not own the rest of the notebook (``notebook``).

papermill's own reading of the cell is not used: it checks no types, takes ``false`` on the command
line for text that is true, and does not know a parameter whose default contains an equals sign.
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass

from assay.errors import InputError, RecordError

__all__ = ["Parameter", "Value", "declared", "effective"]

Value = bool | int | float | str | None

_KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}

# Parameters are printed in the book, in four places; a secret must not be one.
_SECRET = re.compile(r"(^|_)(token|secret|password|passwd|credentials?|(api|access)_?key)$", re.I)


@dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell.

    Parameters
    ----------
    name : str
        Variable name.
    kind : str
        ``bool``, ``int``, ``float`` or ``str``.
    optional : bool
        Whether ``None`` is allowed too.
    default : bool, int, float, str or None
        The literal in the cell.
    help : str
        The comment at the end of the line.
    """

    name: str
    kind: str
    optional: bool
    default: Value
    help: str

    @property
    def annotation(self) -> str:
        """The type as it is written in the notebook."""
        return f"{self.kind} | None" if self.optional else self.kind

    def problem(self, value: object) -> str:
        """Return why a value does not fit, or the empty string.

        Examples
        --------
        >>> Parameter("heads", "int", False, 32, "").problem(True)
        "parameter 'heads' is declared int, and True is bool"
        >>> Parameter("rate", "float", False, 1.0, "").problem(3)
        ''
        """
        if value is None and self.optional:
            return ""
        if type(value) is int and self.kind == "float":
            return ""
        if type(value) is not _KINDS[self.kind]:
            given = "empty" if value is None else type(value).__name__
            return (
                f"parameter '{self.name}' is declared {self.annotation}, and {value!r} is {given}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            return f"parameter '{self.name}' must be finite, not {value}"
        return ""

    def parse(self, text: str) -> Value:
        """Return the value a command line's text means for this parameter.

        Raises
        ------
        InputError
            When the text is not a value of the declared type.

        Examples
        --------
        >>> Parameter("warm", "bool", False, True, "").parse("false")
        False
        >>> Parameter("tag", "str", False, "", "").parse("007")
        '007'
        """
        if self.optional and text == "None":
            return None
        if self.kind == "str":
            return text
        if self.kind == "bool" and text.lower() in {"true", "false"}:
            return text.lower() == "true"
        if self.kind == "int" and re.fullmatch(r"[+-]?(0|[1-9][0-9]*)", text):
            return int(text)
        if self.kind == "float" and re.fullmatch(
            r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text
        ):
            value = float(text)
            if math.isfinite(value):
                return value
        wanted = {
            "bool": "write true or false",
            "int": "write a whole number in digits, such as 100000",
            "float": "write a finite number, such as 0.5 or 1e5",
        }[self.kind]
        raise InputError(
            f"'{text}' is not {self.annotation}", where=f"parameter '{self.name}'", fix=wanted
        )


def declared(source: str, where: str) -> dict[str, Parameter]:
    r"""Return the parameters that a cell declares, in its order.

    Parameters
    ----------
    source : str
        The cell's text.
    where : str
        How messages name the cell.

    Raises
    ------
    InputError
        When a line is not ``name: type = literal``, or ``claim_id`` is missing.

    Examples
    --------
    >>> found = declared('claim_id: str = "a"\nheads: int = 32  # query heads', "cell 2")
    >>> found["heads"].default, found["heads"].help
    (32, 'query heads')
    """
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise InputError(
            f"not Python: {error.msg}", where=f"{where}, line {error.lineno}", fix="mend the cell"
        ) from None
    comments = _comments(source)
    found: dict[str, Parameter] = {}
    for node in body:
        spot = f"{where}, line {node.lineno}"
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            raise InputError(
                "not a parameter", where=spot, fix="write name: type = literal  # unit and meaning"
            )
        name = node.target.id
        if name in found:
            raise InputError(f"parameter '{name}' is declared twice", where=spot, fix="keep one")
        if _SECRET.search(name):
            raise InputError(
                f"parameter '{name}' looks like a secret, and parameters are printed in the book",
                where=spot,
                fix="read it from the environment",
            )
        kind, optional = _annotation(node.annotation, name, spot)
        try:
            default = ast.literal_eval(node.value) if node.value else ...
        except ValueError:
            default = ...
        if default is ...:
            raise InputError(
                f"parameter '{name}' has no literal default", where=spot, fix="write a plain value"
            )
        help_text = comments.get(node.end_lineno or node.lineno, "")
        parameter = Parameter(name, kind, optional, default, help_text)
        problem = parameter.problem(default)
        if problem:
            raise InputError(problem, where=spot, fix="make type and default agree")
        found[name] = Parameter(name, kind, optional, _as_declared(parameter, default), help_text)
    if "claim_id" not in found or found["claim_id"].annotation != "str":
        raise InputError(
            "parameter 'claim_id' is not declared",
            where=where,
            fix='add claim_id: str = "<a claim>"',
        )
    return found


def _annotation(node: ast.expr, name: str, where: str) -> tuple[str, bool]:
    optional = False
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and isinstance(node.right, ast.Constant)
        and node.right.value is None
    ):
        node, optional = node.left, True
    if isinstance(node, ast.Name) and node.id in _KINDS:
        return node.id, optional
    raise InputError(
        f"parameter '{name}' has type {ast.unparse(node)}",
        where=where,
        fix=f"use {', '.join(_KINDS)}, or one of them | None",
    )


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def effective(
    known: Mapping[str, Parameter],
    where: str,
    claim_id: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str] | None = None,
) -> dict[str, Value]:
    """Return the values of all parameters of one run.

    Parameters
    ----------
    known : mapping of str to Parameter
        From `declared`.
    where : str
        How messages name the notebook.
    claim_id : str
        Becomes the value of ``claim_id``.
    given : mapping
        The claim's ``parameters``.
    overrides : mapping of str to str, optional
        Text from the command line, typed by the declaration; wins over the claim.

    Returns
    -------
    dict
        Every declared parameter, in the notebook's order.

    Raises
    ------
    RecordError
        When the claim gives a parameter that is not declared or does not fit its type.
    InputError
        The same for the command line.
    """
    values: dict[str, Value] = {name: item.default for name, item in known.items()}
    record = f"data/claims/{claim_id}.yml"
    for name, value in given.items():
        spot = f"{record}, parameters.{name}"
        if name == "claim_id":
            raise RecordError("claim_id is set by the runner", where=spot, fix="remove it")
        if name not in known:
            raise RecordError(
                f"{where} declares no parameter '{name}'",
                where=spot,
                fix=f"use one of {_listed(known)}",
            )
        problem = known[name].problem(value)
        if problem:
            raise RecordError(problem, where=spot, fix=f"see the cell in {where}")
        values[name] = _as_declared(known[name], value)
    for name, text in (overrides or {}).items():
        if name == "claim_id":
            raise InputError(
                "claim_id is set by the runner", where="-p claim_id", fix="name the claim instead"
            )
        if name not in known:
            raise InputError(
                f"{where} declares no parameter '{name}'",
                where=f"-p {name}",
                fix=f"use one of {_listed(known)}",
            )
        values[name] = known[name].parse(text)
    values["claim_id"] = claim_id
    return values


def _listed(known: Mapping[str, Parameter]) -> str:
    return ", ".join(name for name in known if name != "claim_id") or "none: it has no others"


def _as_declared(parameter: Parameter, value: object) -> Value:
    if parameter.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    assert value is None or isinstance(value, bool | int | float | str)
    return value
