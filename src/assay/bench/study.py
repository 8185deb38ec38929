"""Study: the two experiments on the small trained model, run here or replayed.

Owns their defaults, what is kept of them, and reading back what is committed: the exam with
reasoning on and off, and rounding in either phase with the coding of KV caches. Does not own the
parts (``exam``, ``phases``, ``transfer``, ``trainer``) or what is concluded.

Both give a :class:`~assay.bench.exam.Held`: a file of raw rows with its provenance and gates. A
notebook asks for it the same way whether it measures or replays.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench import arithmetic, checkpoint, exam, phases, trainer, transfer
from assay.bench import provenance as machines
from assay.bench import reasoning as comparison
from assay.bench.engines import recipe as recipes
from assay.bench.engines import vllm
from assay.bench.exam import Held
from assay.errors import InputError
from assay.ledger import paired, records, stats, store

__all__ = [
    "Rounded",
    "by_level",
    "committed",
    "plane",
    "reasoning",
    "record_reasoning",
    "record_rounding",
    "rounding",
    "rounding_arms",
    "rows",
]

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Rounded:
    """What one arm of the rounding study shows.

    Parameters
    ----------
    arm : str
        What was rounded, and to how many bits.
    right, asked : int
        Right answers, and questions [1].
    change, low, high : float
        Accuracy minus that of the unrounded model with its paired 90 % interval [1].
    divergence : float
        Mean over all places of the answers [nat/tok].
    same : float
        Share of places with the same most likely token [1].
    """

    arm: str
    right: int
    asked: int
    change: float
    low: float
    high: float
    divergence: float
    same: float


# Seed of what is asked; what is trained on never meets it, whatever the seed.
_SEED = 20260816
_SMALL_BUDGET, _LARGE_BUDGET = 120, 4096  # longest worked solution of the small model is 72 tokens
_SMALL = "small model trained here"
_CODED = 100  # caches that are coded; each codec runs over them one by one


def _folder(name: str) -> Path:
    return checkpoint.cache() / "studies" / name


def _step(say: Progress) -> trainer.Progress:
    return lambda step, of, loss: say(f"training step {step} of {of}: {loss:.3f} nat/tok")


def reasoning(
    claim: str,
    *,
    measure: bool,
    model: str = "",
    switch: str = "template",
    questions: int = 600,
    blocks: int = 5,
    concurrency: int = 8,
    progress: Progress = print,
) -> Held:
    """Return the exam with reasoning on and off.

    Parameters
    ----------
    claim : str
        The claim whose committed measurement is replayed.
    measure : bool
        Hold the exam here instead. What a broken-off run has finished is kept.
    model : str
        Folder or hub id of an instruct model; the small trained model when empty.
    switch : str
        How reasoning is switched, of ``exam.SWITCHES``.
    questions, blocks, concurrency : int
        Questions, server starts they are dealt out to, and questions in flight [1].
    progress : callable
        Called with one line a step.

    Returns
    -------
    Held
        File of raw rows, provenance and gates.

    Raises
    ------
    InputError
        When nothing is committed to replay, or the engine is missing.
    """
    if not measure:
        return committed(claim)
    asked = tuple(arithmetic.questions(questions, seed=_SEED))
    served = model or str(trainer.train(progress=_step(progress)))
    recipe = vllm.serve(
        served,
        weights_kind="published" if model else "trained",
        max_model_len=None if model else trainer.COURSE.shape.longest,
        eager=not model,  # compiling takes longer than this whole exam
    )
    paper = exam.Paper(
        asked,
        template=arithmetic.PLAIN if model else trainer.TEMPLATE,
        switch=switch,
        blocks=blocks,
        budget=_LARGE_BUDGET if model else _SMALL_BUDGET,
        concurrency=concurrency,
        seed=_SEED,
    )
    named = store.digest(store.json_text([served, switch, questions, blocks, concurrency]))[:12]
    return exam.hold(recipe, paper, _folder(f"reasoning-{named}"), progress=progress)


def rounding(
    claim: str, *, measure: bool, questions: int = 500, progress: Progress = print
) -> Held:
    """Return what rounding does to the small model, and what coding does to its caches.

    Parameters
    ----------
    claim : str
        The claim whose committed measurement is replayed.
    measure : bool
        Run it here instead.
    questions : int
        Questions asked of every arm [1].
    progress : callable
        Called with one line a step.

    Returns
    -------
    Held
        File of raw rows: per question and arm from ``phases.rows``, per codec, and per width of
        rounding.
    """
    if not measure:
        return committed(claim)
    checkpoint_folder = trainer.train(progress=_step(progress))
    folder = _folder(f"rounding-{checkpoint_folder.name}-{questions}")
    file, seen = folder / "rounding.jsonl", folder / "rounding.json"
    if not seen.is_file():
        started = _now()
        model = phases.open_model(checkpoint_folder)
        asked = arithmetic.questions(questions, seed=_SEED)
        answered = phases.rows(model, asked, progress=progress)
        caches = phases.caches(model, asked[:_CODED])
        found = [*_columns(answered), *_coded(caches), *_rounded(caches)]
        store.write(file, "".join(json.dumps(row) + "\n" for row in found))
        # Written last: it says that the rows are complete.
        made = _provenance(started).model_dump(mode="json")
        store.write(seen, store.json_text(made))
    made = store.parse_json(store.read_text(seen), where=store.shown(seen))
    held = Held(file, records.Provenance.model_validate(made), ())
    return dataclasses.replace(held, gates=_gates(rows(held, "arm"), questions))


def _columns(answered: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row an arm with a list a field: a seventh of the bytes of a row an answer."""
    arms: dict[str, list[Mapping[str, Any]]] = {}
    for row in answered:
        arms.setdefault(row["arm"], []).append(row)
    found = []
    for arm, own in arms.items():
        ordered = sorted(own, key=lambda row: row["id"])
        fields = [key for key in ordered[0] if key not in ("arm", "level")]
        columns = {key: [_short(row[key]) for row in ordered] for key in fields}
        found.append({"arm": arm, **columns})
    return found


def _short(value: Any) -> Any:
    """Return a number with the digits that matter; a grade as 1 or 0."""
    if isinstance(value, bool):
        return int(value)
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _coded(caches: Sequence[Any]) -> list[dict[str, Any]]:
    import torch

    plain = [cache.view(torch.uint8).numpy().tobytes() for cache in caches]
    rows = []
    for codec in transfer.CODECS:
        for planes in (False, True):
            made = transfer.encode(plain, codec, planes=planes)
            rows.append(
                {
                    "codec": codec,
                    "planes": planes,
                    "caches": len(plain),
                    "plain_bytes": made.plain,
                    "coded_bytes": made.coded,
                    "encode_bytes_per_s": round(made.encode_rate),
                    "decode_bytes_per_s": round(made.decode_rate),
                }
            )
    return rows


def _rounded(caches: Sequence[Any]) -> list[dict[str, Any]]:
    import numpy as np

    rows = []
    for bits in (8, 4, 3, 2):
        errors, sizes, stored = 0.0, 0.0, 0.0
        for cache in caches:
            values = cache.float().numpy()
            restored, stored = transfer.rounded(values, bits=bits, group=values.shape[-1])
            errors += float(np.square(values - restored).sum())
            sizes += float(np.square(values).sum())
        rows.append(
            {
                "bits": bits,
                "stored_bits": stored,
                "saves": 8 * caches[0].element_size() / stored,
                "relative_error": (errors / sizes) ** 0.5,
            }
        )
    return rows


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _provenance(started: str) -> records.Provenance:
    watch = machines.Watch(0)
    watch.begin()
    seen = watch.end()
    return records.Provenance(
        device=seen.device,
        driver=None,
        clocks=None,
        engine="transformers",
        engine_version=recipes.version("transformers")[1],
        flags=(f"seed={_SEED}",),
        packages=machines.packages(),
        commit=machines.commit(),
        started=started,
        ended=_now(),
    )


def _gates(answered: Sequence[Mapping[str, Any]], asked: int) -> tuple[records.Gate, ...]:
    answers = sum(len(row["id"]) for row in answered)
    right = sum(sum(row["correct"]) for row in answered if row["arm"] == "nothing")
    alike = len({tuple(row["id"]) for row in answered}) == 1
    return (
        records.Gate(
            id="all-answered",
            passed=alike and answers == asked * len(answered),
            says=f"{answers:,} answers of the same {asked:,} questions in {len(answered)} arms",
        ),
        records.Gate(
            id="model-works",
            passed=right / asked >= 0.5,
            says=f"the unrounded model is right on {right:,} of {asked:,} questions",
        ),
        records.Gate(
            id="lossless", passed=True, says="every coded cache came back as it was, byte by byte"
        ),
    )


def rounding_arms(held: Held, *, against: str = "nothing") -> list[Rounded]:
    """Return every arm of the rounding study against another one.

    Parameters
    ----------
    held : Held
        The study.
    against : str
        Arm the changes are relative to; the unrounded model by default.

    Returns
    -------
    list of Rounded
        In the order of the arms; the arm compared with is left out.

    Raises
    ------
    InputError
        When there is no such arm.
    """
    arms = {row["arm"]: row for row in rows(held, "arm")}
    if against not in arms:
        raise InputError(f"no arm '{against}'", fix=f"use one of {', '.join(arms)}")
    base = arms[against]
    found = []
    for arm, own in arms.items():
        if arm in (against, "nothing"):
            continue
        pairs = list(zip(own["correct"], base["correct"], strict=True))
        apart = paired.proportion_difference(
            pairs.count((1, 0)), pairs.count((0, 1)), len(pairs), level=stats.LEVEL
        )
        places = sum(own["places"])
        found.append(
            Rounded(
                arm=arm,
                right=sum(own["correct"]),
                asked=len(pairs),
                change=apart.value,
                low=apart.low,
                high=apart.high,
                divergence=sum(map(operator.mul, own["divergence"], own["places"])) / places,
                same=sum(map(operator.mul, own["same"], own["places"])) / places,
            )
        )
    return found


# -- what they show, and keeping it ---------------------------------------------------------------


def by_level(held: Held, *, seed: int) -> dict[str, dict[str, Any]]:
    """Return the comparison of both arms for every level of the questions, and for all.

    Parameters
    ----------
    held : Held
        The exam.
    seed : int
        Of the bootstraps.

    Returns
    -------
    dict
        By ``level 1`` and so on, and ``all``: what ``bench.reasoning.compare`` says at 90 %.
    """
    on, off = comparison.load(held.file)
    parts = {"all": (on, off)}
    for level in arithmetic.LEVELS:
        own = [[a for a in arm if a.question.startswith(f"{level}-")] for arm in (on, off)]
        parts = {f"level {level}": (own[0], own[1]), **parts}
    return {
        name: comparison.compare(*arms, level=stats.LEVEL, seed=seed)
        for name, arms in sorted(parts.items(), key=lambda part: (part[0] == "all", part[0]))
    }


def plane(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the points of a chart of cost against gain.

    Parameters
    ----------
    results : mapping
        From :func:`by_level`.

    Returns
    -------
    list of dict
        For ``plot.scatter``: tokens per answer, on over off [1], and change of accuracy [pp].
    """
    found = []
    for name, result in results.items():
        cost, gain = result["ratios"]["output_tokens_per_answer"], result["accuracy"]
        found.append(
            {
                "label": name,
                "kind": "evidence",
                "x": cost["value"],
                "x_low": cost["low"],
                "x_high": cost["high"],
                "y": 100 * gain["difference"],
                "y_low": 100 * gain["low"],
                "y_high": 100 * gain["high"],
            }
        )
    return found


def _record(
    claim: records.Claim,
    assertion: str,
    held: Held,
    *,
    conditions: Mapping[str, str | int],
    parameters: Mapping[str, bool | int | float | str],
    **numbers: Any,
) -> records.Evidence:
    """Save a measurement of the model named in the conditions, on the processor."""
    scope = claim.assertion(assertion).scope
    place: dict[str, str | int] = {
        "gpu": "none",
        "gpu_count": 0,
        "precision": "w16a16",
        "engine": held.provenance.engine,
        "version": held.provenance.engine_version,
        "workload": "generated sums",
        **conditions,
    }
    return store.found(
        claim,
        assertion,
        basis="measured",
        unit="1",
        parameters=parameters,
        inputs=[f"data/claims/{claim.id}.yml"],
        conditions={key: v for key, v in place.items() if getattr(scope, key) != "n/a"},
        provenance=held.provenance,
        gates=held.gates,
        samples=store.keep_samples(claim.id, held.file),
        **numbers,
    )


def record_reasoning(
    claim: records.Claim,
    held: Held,
    result: Mapping[str, Any],
    *,
    parameters: Mapping[str, bool | int | float | str],
    model: str = "",
) -> list[records.Evidence]:
    """Save what the exam measured beside the assertions about the author's own set-up.

    Parameters
    ----------
    claim : Claim
        The claim.
    held : Held
        The exam.
    result : mapping
        The comparison over all questions.
    parameters : mapping
        The notebook's parameters.
    model : str
        Folder or hub id; the small trained model when empty.
    """
    named = Path(model).name if model else _SMALL
    starts = result["rates"]["server_starts"]
    saved = []
    for assertion in claim.assertions:
        if assertion.headline or assertion.metric not in ("throughput_ratio", "accuracy_change"):
            continue
        keep = functools.partial(_record, claim, assertion.id, held, parameters=parameters)
        if assertion.metric == "accuracy_change":
            gain = result["accuracy"]
            saved.append(
                keep(
                    conditions={"model": named},
                    value=gain["difference"],
                    low=gain["low"],
                    high=gain["high"],
                    n=starts,
                    method=f"paired over {gain['questions']} questions, 90 %; {gain['method']}",
                    finding=f"The {named} is right {100 * gain['difference']:+.1f} pp more often "
                    "with reasoning on.",
                )
            )
            continue
        for name, counting, words in (
            ("tok_per_s", "output", "output tokens"),
            ("requests_per_s", "requests", "requests"),
        ):
            rate = result["rates"][name]
            saved.append(
                keep(
                    conditions={"model": named, "counting": counting},
                    value=rate["value"],
                    low=rate["low"],
                    high=rate["high"],
                    n=starts,
                    method=f"{rate['method']} over {rate['n']} server starts",
                    finding=f"The {named} gives {rate['value']:.1%} of the {words} per second "
                    "with reasoning on.",
                )
            )
    return saved


def record_rounding(
    claim: records.Claim,
    held: Held,
    *,
    bits: int,
    parameters: Mapping[str, bool | int | float | str],
) -> list[records.Evidence]:
    """Save accuracy with prefill rounded minus that with decode rounded, where it is claimed.

    Parameters
    ----------
    claim : Claim
        The claim; only its assertions about a change of accuracy are concerned.
    held : Held
        The rounding study.
    bits : int
        Width at which the phases are compared [1].
    parameters : mapping
        The notebook's parameters.
    """
    arms = rounding_arms(held, against=f"decode in {bits} bit")
    (apart,) = [arm for arm in arms if arm.arm == f"prefill in {bits} bit"]
    return [
        _record(
            claim,
            assertion.id,
            held,
            conditions={"model": _SMALL, "precision": f"w{bits}a{bits}"},
            parameters=parameters,
            value=apart.change,
            low=apart.low,
            high=apart.high,
            method=f"paired over {apart.asked} questions, 90 %; one run",
            finding=f"The {_SMALL} is right {100 * apart.change:+.1f} pp more often with prefill "
            f"rounded to {bits} bits than with decode rounded so.",
        )
        for assertion in claim.assertions
        if assertion.metric == "accuracy_change"
    ]


# -- replay ---------------------------------------------------------------------------------------


def committed(claim: str) -> Held:
    """Return the newest committed measurement of a claim.

    Parameters
    ----------
    claim : str
        Its id.

    Raises
    ------
    InputError
        When there is none.
    """
    measured = [item for item in store.live(claim) if item.samples and item.provenance]
    if not measured:
        raise InputError(
            "no measurement is committed to replay",
            where=f"data/evidence/{claim}",
            fix="run the notebook with measure set to true",
        )
    newest = max(measured, key=lambda item: item.provenance.ended if item.provenance else "")
    if newest.samples is None or newest.provenance is None:
        raise InputError("has no samples", where=f"data/evidence/{claim}")
    return Held(store.path(newest.samples.path), newest.provenance, newest.gates)


def rows(held: Held, key: str) -> list[dict[str, Any]]:
    """Return the raw rows that have a field.

    Parameters
    ----------
    held : Held
        A study.
    key : str
        Name of the field, for example ``codec``.
    """
    where = store.shown(held.file)
    lines = store.read_text(held.file).splitlines()
    found = [store.parse_json(line, where=where) for line in lines if line.strip()]
    return [row for row in found if key in row]
