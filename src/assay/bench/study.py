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
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench import checkpoint, exam, hub, phases, trainer, transfer
from assay.bench import provenance as machines
from assay.bench.engines import recipe as recipes
from assay.bench.engines import vllm
from assay.bench.exam import Held, arithmetic, tasks
from assay.errors import InputError
from assay.ledger import records, store

__all__ = ["BUDGET", "SMALL", "committed", "reasoning", "rounding", "rows"]

Progress = Callable[[str], None]


# Seed of what is asked; what is trained on never meets it, whatever the seed.
_SEED = 20260816
_SMALL_BUDGET, BUDGET = 120, 4096  # no sum with its solution is longer than 72 tokens
_PROMPT = 4096  # room for a question beside its answer [tok]
SMALL = "small model trained here"
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
    task: str = tasks.GENERATED,
    budget: int = BUDGET,
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
    task : str
        What is asked, as ``tasks.questions`` names it; the small model knows sums only.
    budget : int
        Most tokens of an answer, where a model is named [tok]. A model that thinks at length needs
        more: what is cut cannot be graded.
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
        When nothing is committed to replay, the engine is missing, or the task cannot be asked.
    """
    if not measure:
        return committed(claim)
    if task != tasks.GENERATED and not model:
        raise InputError(
            f"the small model trained here cannot be asked '{task}'",
            fix="name an instruct model, or use the task 'arithmetic'",
        )
    asked = tuple(tasks.questions(task, questions, seed=_SEED))
    served = model or str(trainer.train(progress=_step(progress)))
    recipe = vllm.serve(
        served,
        weights_kind="published" if model else "trained",
        max_model_len=_longest(model, budget) if model else trainer.COURSE.shape.longest,
        kv_cache_gib=4 if model else 1,
        eager=not model,  # compiling takes longer than this whole exam
        spin=False,  # few cores serve and ask at once
    )
    paper = exam.Paper(
        asked,
        template=arithmetic.PLAIN if model else trainer.TEMPLATE,
        switch=switch,
        blocks=blocks,
        budget=budget if model else _SMALL_BUDGET,
        concurrency=concurrency,
        seed=_SEED,
    )
    facts = [served, switch, questions, blocks, concurrency]
    facts += [] if task == tasks.GENERATED else [task]
    facts += [budget] if model and budget != BUDGET else []
    named = store.digest(store.json_text(facts))[:12]
    return exam.hold(recipe, paper, _folder(f"reasoning-{named}"), progress=progress)


def _longest(model: str, budget: int) -> int:
    """Return how long a sequence must be: a whole context would need more memory than it uses."""
    config = hub.config(model)
    own = config.get("max_position_embeddings") or config.get("text_config", {}).get(
        "max_position_embeddings"
    )
    wanted = budget + _PROMPT
    return min(wanted, own) if isinstance(own, int) else wanted


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
        with phases.one_thread():
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
