"""Documents: the YAML that people write, with the line of every field.

Owns the strict reading of YAML 1.1: what YAML would silently convert is refused. Does not own the
records such documents become.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InputError
from assay.ledger.store.files import read_text, refuse_merge_markers, shown

if TYPE_CHECKING:
    import yaml


def read_yaml(file: Path) -> tuple[Any, dict[str, int]]:
    """Return a parsed YAML file and the line of every field path.

    Duplicate keys, anchors and tags are refused, and so is what YAML 1.1 reads as something else
    than is written: ``off`` and ``yes``, base-60 and octal numbers, a value left empty. Dates stay
    text.

    Raises
    ------
    InputError
        When it is not such YAML, with the line.
    """
    content, lines, errors = examine_yaml(file)
    if errors:
        raise errors[0]
    return content, lines


def examine_yaml(file: Path) -> tuple[Any, dict[str, int], list[InputError]]:
    """Return a YAML file as `read_yaml` does, with all its errors instead of raising the first.

    Raises
    ------
    InputError
        When the file cannot be read at all.
    """
    text = read_text(file)
    content, lines, errors = _parse_yaml(text, shown(file))
    return copy.deepcopy(content), lines, errors


# Parsing dominates a command's time, and one command reads the same record many times.
@functools.lru_cache(maxsize=512)
def _parse_yaml(text: str, where: str) -> tuple[Any, dict[str, int], list[InputError]]:
    import yaml

    loader = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
    builder = _Builder(where)
    content = None
    try:
        refuse_merge_markers(text, where)
        node = yaml.compose(text, Loader=loader)
        if node is None:
            raise InputError("is empty", where=where, fix="write the record")
        content = builder.build(node, "")
    except InputError as error:
        builder.errors.append(error)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        line = f", line {mark.line + 1}" if mark else ""
        builder.errors.append(
            InputError(f"not YAML: {problem}", where=f"{where}{line}", fix="mend the file")
        )
    except RecursionError:
        builder.errors.append(
            InputError("not YAML: nested too deeply", where=where, fix="mend the file")
        )
    return content, builder.lines, builder.errors


_YAML = "tag:yaml.org,2002:"
_SCALARS = frozenset(_YAML + kind for kind in ("str", "int", "float", "bool", "null", "timestamp"))


class _Builder:
    """Turns YAML nodes into plain values; notes each field's line and all that is wrong."""

    def __init__(self, where: str) -> None:
        import yaml

        self.where = where
        self.lines: dict[str, int] = {}
        self.errors: list[InputError] = []
        self._constructor = yaml.SafeLoader("")
        self._seen: set[int] = set()

    def build(self, node: yaml.Node, at: str) -> Any:
        """Return a node's value; its parts, their lines and errors are noted on the way."""
        import yaml

        self.lines[at] = node.start_mark.line + 1
        if id(node) in self._seen:
            return self._refuse(node, at, "anchors are not allowed", "write the value again")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
            return [self.build(child, f"{at}[{i}]") for i, child in enumerate(node.value)]
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS:
            tag = node.tag.removeprefix(_YAML)
            return self._refuse(node, at, f"tag '{tag}' is not allowed", "write plain values")
        return self._scalar(node, at)

    def _mapping(self, node: yaml.MappingNode, at: str) -> dict[str, Any]:
        import yaml

        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key_node.tag == f"{_YAML}merge":
                self._refuse(key_node, at, "merge keys are not allowed", "write the fields again")
            elif not isinstance(key_node, yaml.ScalarNode):
                key = "?"
                self._refuse(key_node, at, "a key is a list or a mapping", "write one word")
            elif key_node.tag != f"{_YAML}str":
                self._refuse(key_node, at, f"key '{key}' is not read as text", "quote it")
            if key in result:
                self._refuse(key_node, at, f"duplicate key '{key}'", "keep one of the two")
            result[key] = self.build(value_node, f"{at}.{key}" if at else key)
        return result

    def _scalar(self, node: yaml.ScalarNode, at: str) -> Any:
        if node.tag == f"{_YAML}timestamp":
            return node.value
        try:
            value = self._constructor.construct_object(node, deep=True)
        except ValueError as error:  # !!int abc, or thousands of digits
            return self._refuse(node, at, f"'{node.value[:20]}': {error}", "write it plainly")
        advice = "" if node.style else _trap(node.value, value)
        if advice:
            read_as = str(value).lower() if isinstance(value, bool) else value
            what = f"'{node.value}' is read as {read_as}" if node.value else "has no value"
            return self._refuse(node, at, what, advice)
        return value

    def _refuse(self, node: yaml.Node, at: str, what: str, fix: str) -> None:
        line, field = node.start_mark.line + 1, f", {at}" if at else ""
        self.errors.append(InputError(what, where=f"{self.where}, line {line}{field}", fix=fix))


def _trap(text: str, value: object) -> str:
    """Return what to write instead of a plain scalar that YAML 1.1 reads as something else."""
    if isinstance(value, bool) and text.lower() not in ("true", "false"):
        return f"write {str(value).lower()}, or quote it if the word is meant"
    if value is None and not text:
        return "write null, or the value"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    digits = text.lstrip("+-")
    if number and (":" in text or (digits[:1] == "0" and digits.isdigit() and digits != "0")):
        return "quote it, or write the number in decimals"
    return ""
