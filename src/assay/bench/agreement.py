"""Agreement: our KV figures beside vLLM's own and beside two public calculators.

Owns the comparison, the list of known differences, and the committed table of it. Does not own our
figures (``assay.physics.kv``), vLLM's (``oracle``) or the calculators' (``physics.calculators``).
``python -m assay.bench.agreement`` renews ``data/published/kv_calculators.csv``.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence

from assay.bench import oracle
from assay.ledger import store
from assay.physics import calculators, kv

__all__ = ["DOCUMENTED", "Row", "committed", "compare", "configs", "summary", "table"]

Config = Mapping[str, object]

# Where our figure and vLLM's differ for a known reason, by model_type.
_ONE_MORE = (
    "vLLM's class adds one token to the window, 'to match the training convention' (commandr.py)"
)
DOCUMENTED = {
    "cohere2": _ONE_MORE,
    "cohere2_moe": _ONE_MORE,
    "minicpm3": "vLLM's class expands the latent to full keys and values; others keep the latent",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Four answers about one configuration, in bytes per token at 16 bits.

    ``verdict`` is ``agree``, ``bound`` (ours says that it is a bound, and it is one),
    ``documented`` (differs as :data:`DOCUMENTED` says), ``differ``, ``refused-here`` or
    ``refused-there``; ``why`` says more for all but the first. ``layers`` is the oracle's count.
    A calculator is right when it equals the oracle's figure for all layers.
    """

    model: str
    model_type: str
    layers: str
    verdict: str
    why: str
    ours: int | None
    ours_growth: int | None
    ours_bounded: int | None
    oracle: int | None
    oracle_growth: int | None
    oracle_bounded: int | None
    gpu_poor: int | None
    lmcache: int | None
    parameters: int | None
    engine: str
    version: str

    def right(self, calculator: str) -> bool | None:
        """Return whether a calculator has the oracle's figure; None when one gives none."""
        printed = {"gpu_poor": self.gpu_poor, "lmcache": self.lmcache}[calculator]
        return None if self.oracle is None or printed is None else printed == self.oracle


def compare(configs: Sequence[tuple[str, Config]]) -> list[Row]:
    """Lay our figures, the oracle's and two public calculators' side by side.

    Parameters
    ----------
    configs : sequence of (str, Mapping)
        Names and parsed ``config.json`` files.

    Returns
    -------
    list of Row
        One per configuration, in the order given, at 16 bits per number.

    Raises
    ------
    InputError
        When vLLM is not installed or of an unknown version.

    Notes
    -----
    ``agree`` needs all three figures equal: all layers, growth, and windows and states. Some 60 s
    and 2 GB for the 95 models of :func:`configs` on two cores.
    """
    rows = []
    for name, config in configs:
        ours = kv.report(config, kv_dtype="bf16")
        theirs = oracle.specs(config)
        rows.append(_row(name, config, ours, theirs))
    return rows


def _bounds(status: str, mine: tuple[int | None, ...], his: tuple[int | None, ...]) -> bool:
    """Return whether a figure that says it is a bound, is one: all layers, and their growth."""
    pairs = [(a, b) for a, b in zip(mine[:2], his[:2], strict=True) if a is not None]
    if status == "upper-bound":
        return all(b is not None and a >= b for a, b in pairs)
    if status == "lower-bound":
        return all(b is not None and a <= b for a, b in pairs)
    return False


def _row(name: str, config: Config, ours: kv.Report, theirs: oracle.Specs | oracle.Refusal) -> Row:
    mine = (
        ours.all_layers_bytes_per_token,
        ours.growth_bytes_per_token,
        ours.bounded_bytes_per_sequence,
    )
    his: tuple[int | None, int | None, int | None] = (None, None, None)
    parameters, layers = None, ""
    if isinstance(theirs, oracle.Specs):
        parameters = theirs.parameters
        layers = " + ".join(f"{n} {kind}" for kind, n in theirs.count().items())
        his = (
            theirs.all_layers_bytes_per_token,
            theirs.growth_bytes_per_token,
            theirs.bounded_bytes_per_sequence,
        )
    if isinstance(theirs, oracle.Refusal):
        verdict, why = "refused-there", theirs.reason
    elif ours.status == "refused":
        verdict, why = "refused-here", ours.reason
    elif mine == his:
        verdict, why = "agree", ""
    elif _bounds(ours.status, mine, his):
        verdict, why = "bound", ours.reason
    elif ours.model_type in DOCUMENTED:
        verdict, why = "documented", DOCUMENTED[ours.model_type]
    else:
        verdict, why = "differ", ours.reason
    return Row(
        name,
        str(config.get("model_type", "")),
        layers,
        verdict,
        why,
        *mine,
        *his,
        calculators.gpu_poor(config),
        calculators.lmcache(config),
        parameters,
        theirs.engine,
        theirs.version,
    )


def committed() -> list[Row]:
    """Return the committed comparison, ``data/published/kv_calculators.csv``, as rows."""
    numbers = {f.name for f in dataclasses.fields(Row) if f.type == "int | None"}
    return [
        Row(**{k: (int(v) if v else None) if k in numbers else v for k, v in cells.items()})  # type: ignore[arg-type]
        for cells in store.published("kv_calculators")
    ]


def summary() -> list[dict[str, object]]:
    """Return, for each way to count, how many committed configurations it has right.

    Returns
    -------
    list of dict
        ``counted by``, ``right``, ``wrong`` and ``no answer``, against the oracle's figure for all
        layers; a difference with a documented reason on the engine's side is named as such.
    """
    rows = [row for row in committed() if row.oracle is not None]
    ours = [row.verdict in ("agree", "bound") for row in rows]
    known = sum(row.verdict == "documented" for row in rows)
    found: list[dict[str, object]] = [
        {
            "counted by": f"assay kv ({known} more differ for a documented reason)",
            "right": sum(ours),
            "wrong": len(rows) - sum(ours) - known,
            "no answer": 0,
        }
    ]
    for name, title in (("lmcache", "LMCache's formula of issue 688"), ("gpu_poor", "GPU_poor")):
        right = [row.right(name) for row in rows]
        found.append(
            {
                "counted by": title,
                "right": right.count(True),
                "wrong": right.count(False),
                "no answer": right.count(None),
            }
        )
    return found


def configs() -> list[tuple[str, str, Config]]:
    """Return the models of the comparison: name, where its fields were read, configuration.

    Those of ``data/models`` come first, then one for every further architecture, from
    ``data/published/kv_configs.json``.
    """
    found: list[tuple[str, str, Config]] = []
    for name in store.model_ids():
        model = store.model(name)
        found.append((name, f"{model.source}: {model.locator}", model.config))
    extra = store.read_json(store.path("data", "published", "kv_configs.json"))
    return found + [(row["model"], row["source"], row["config"]) for row in extra]


def table(rows: Sequence[Row]) -> str:
    """Return the comparison as CSV, as it is kept in ``data/published/kv_calculators.csv``.

    Examples
    --------
    >>> table([]).split(",")[:3]
    ['model', 'model_type', 'layers']
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in dataclasses.fields(Row)])
    writer.writerows(dataclasses.astuple(row) for row in rows)
    return out.getvalue()


if __name__ == "__main__":  # renews the committed table
    answers = compare([(name, config) for name, _, config in configs()])
    store.write(store.path("data", "published", "kv_calculators.csv"), table(answers))
