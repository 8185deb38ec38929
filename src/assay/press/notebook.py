"""Notebook: read a source notebook and hold it to its rules, before anything runs.

Owns the checks that need no kernel: strict JSON, one ``parameters`` cell that comes first, and no
metadata that could make a failure look like a success. Does not own the parameters themselves
(``parameter``), running (``runner``), or style rules such as cell length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.ledger import notebook_rules, parameter, store

__all__ = ["Notebook", "check_format", "names", "read"]

_LOOSENING_TAGS = frozenset({"raises-exception", "skip-execution"})


@dataclass(frozen=True)
class Notebook:
    """A source notebook that has passed its checks.

    Parameters
    ----------
    name : str
        File stem.
    text : str
        Content of the file.
    cells : tuple of dict
        Cells as in the file, sources joined to one text.
    parameters : dict of str to Parameter
        In the order of the cell.
    parameters_at : int
        Index of the parameters cell.
    exclusive : bool
        Whether it needs the machine to itself (``metadata.assay.exclusive``).
    """

    name: str
    text: str
    cells: tuple[dict[str, Any], ...]
    parameters: Mapping[str, parameter.Parameter]
    parameters_at: int
    exclusive: bool

    @property
    def where(self) -> str:
        """The path that messages show."""
        return f"notebooks/{self.name}.ipynb"


def names() -> list[str]:
    """Return the names of all notebooks that exist, sorted."""
    folder = store.path("notebooks")
    return sorted(f.stem for f in folder.glob("*.ipynb") if not f.name.startswith("."))


def _file(name: str) -> Path:
    return store.path("notebooks", f"{name}.ipynb")


def read(name: str) -> Notebook:
    """Return a source notebook, checked as far as that is possible without running it.

    Parameters
    ----------
    name : str
        File stem below ``notebooks/``.

    Raises
    ------
    InputError
        When it is no strict JSON notebook of format 4.5, has no parameters cell or a malformed
        one, or carries metadata, tags or a parameter that the runner refuses.
    """
    where = f"notebooks/{name}.ipynb"
    text = store.read_text(_file(name))
    content = store.parse_json(text, where=where)
    cells = _cells(content, where)
    for spot, metadata in [(where, content.get("metadata", {}))] + [
        (f"{where}, cell {number}", cell["metadata"]) for number, cell in enumerate(cells, 1)
    ]:
        _refuse_loosening(metadata, spot)
    at = _parameters_at(cells, where)
    return Notebook(
        name=name,
        text=text,
        cells=tuple(cells),
        parameters=parameter.declared(cells[at]["source"], f"{where}, cell {at + 1}"),
        parameters_at=at,
        exclusive=_exclusive(content.get("metadata", {}), where),
    )


def check_format(notebook: Notebook) -> None:
    """Check a notebook against the published nbformat schema.

    Slower than `read`, since it imports nbformat; needed only for a notebook that will run.

    Raises
    ------
    InputError
        When the notebook is invalid.
    """
    import json

    import nbformat

    try:
        nbformat.validate(nbdict=json.loads(notebook.text))
    except nbformat.ValidationError as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(
            f"not a valid notebook: {first}", where=notebook.where, fix="save it with Jupyter"
        ) from None


# -- cells ----------------------------------------------------------------------------------------


def _cells(content: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise InputError(
            "not a notebook: no list of cells", where=where, fix="save it with Jupyter"
        )
    version = (content.get("nbformat"), content.get("nbformat_minor"))
    if version[0] != 4 or not isinstance(version[1], int) or version[1] < 5:
        raise InputError(
            f"notebook format {version[0]}.{version[1]} has no stable cell ids",
            where=where,
            fix="save it as format 4.5 (JupyterLab does)",
        )
    cells: list[dict[str, Any]] = []
    seen: dict[object, int] = {}
    for number, raw in enumerate(content["cells"], 1):
        spot = f"{where}, cell {number}"
        if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
            raise InputError("not a cell with metadata", where=spot, fix="save it with Jupyter")
        source = raw.get("source", "")
        joined = "".join(map(str, source)) if isinstance(source, list) else str(source)
        if "id" not in raw:
            raise InputError("the cell has no id", where=spot, fix="save it with Jupyter")
        if raw["id"] in seen:
            raise InputError(
                f"the cell has the id of cell {seen[raw['id']]}",
                where=spot,
                fix="give it an id of its own",
            )
        seen[raw["id"]] = number
        cells.append({**raw, "source": joined})
    return cells


def _tags(cell: Mapping[str, Any]) -> list[str]:
    tags = cell["metadata"].get("tags", [])
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def _refuse_loosening(metadata: object, where: str) -> None:
    """Refuse metadata that would let a failing notebook pass, at any depth."""
    if isinstance(metadata, list):
        for item in metadata:
            if item in _LOOSENING_TAGS if isinstance(item, str) else False:
                raise InputError(
                    f"tag '{item}' lets a failing cell pass", where=where, fix="remove the tag"
                )
            _refuse_loosening(item, where)
    elif isinstance(metadata, dict):
        for key, value in metadata.items():
            if key in notebook_rules.LOOSENING:
                raise InputError(
                    f"metadata '{key}' would change how strictly the notebook runs",
                    where=where,
                    fix="remove it; limits are options of assay run",
                )
            _refuse_loosening(value, where)


def _exclusive(metadata: Mapping[str, Any], where: str) -> bool:
    own = metadata.get("assay", {})
    if not isinstance(own, dict) or not set(own) <= {"exclusive"}:
        raise InputError(
            "metadata 'assay' takes one field, exclusive", where=where, fix="remove the others"
        )
    exclusive = own.get("exclusive", False)
    if not isinstance(exclusive, bool):
        raise InputError(
            f"metadata assay.exclusive is {exclusive!r}", where=where, fix="write true or false"
        )
    return exclusive


def _parameters_at(cells: list[dict[str, Any]], where: str) -> int:
    code = [index for index, cell in enumerate(cells) if cell.get("cell_type") == "code"]
    tagged = [index for index, cell in enumerate(cells) if "parameters" in _tags(cell)]
    for index, cell in enumerate(cells):
        if "injected-parameters" in _tags(cell):
            raise InputError(
                "the source holds a cell injected by an earlier run",
                where=f"{where}, cell {index + 1}",
                fix="remove the cell",
            )
    if not tagged:
        raise InputError(
            "no cell is tagged 'parameters', so nothing could be set",
            where=where,
            fix="tag the first code cell 'parameters'",
        )
    if len(tagged) > 1:
        raise InputError(
            f"cells {' and '.join(str(index + 1) for index in tagged)} are tagged 'parameters'",
            where=where,
            fix="keep one",
        )
    if tagged[0] != code[0] if code else True:
        raise InputError(
            "the cell tagged 'parameters' is not the first code cell",
            where=f"{where}, cell {tagged[0] + 1}",
            fix="move it to the front, so that nothing runs before it",
        )
    return tagged[0]
