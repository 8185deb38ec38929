"""llama-bench: its JSON, JSON lines, CSV and Markdown.

Owns the meaning of a row by its tokens: prompt only is prefill (``pp512``), generated only is
decode (``tg128``), and both is a combined rate (``pp512+tg128``) that is neither. CSV holds every
number as text, which is how llama-bench writes it. Facts about the format: llama.cpp,
``tools/llama-bench``, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assay.bench.results.fields import Fields
from assay.bench.results.rows import numbers, sound
from assay.bench.results.table import Run

__all__ = ["is_header", "is_test", "markdown", "run", "typed"]

_TEST = re.compile(r"(?:pp\s*(\d{1,9}))?\s*\+?\s*(?:tg\s*(\d{1,9}))?(?:\s*@\s*d\s*(\d{1,9}))?")
#: The older Markdown writes a combined test as ``pp 512+tg 128`` or ``pg 512,128``.
_PAIR = re.compile(r"pg\s*(\d{1,9})\s*,\s*(\d{1,9})()")
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(?:±\s*(\d{1,12}(?:\.\d{1,6})?))?")
#: Columns of either form that say how it ran -> a short word for each.
_SETTINGS = {
    "n_gpu_layers": "ngl",
    "ngl": "ngl",
    "n_batch": "batch",
    "n_ubatch": "ubatch",
    "n_threads": "threads",
    "threads": "threads",
    "type_k": "K",
    "type_v": "V",
    "flash_attn": "fa",
    "fa": "fa",
    "split_mode": "split",
    "sm": "split",
    "n_cpu_moe": "cpu moe",
    "no_kv_offload": "no kv offload",
}
_MEASURED = {"test", "t/s", "size", "params"}
_NUMBERS = re.compile(r"(n_|avg_|stddev_|model_size|build_number|samples_)")


def is_test(content: Mapping[str, Any]) -> bool:
    """Say whether an object is one test of llama-bench."""
    return {"n_prompt", "n_gen"} <= content.keys() and bool(content.keys() & {"avg_ts", "avg_ns"})


def is_header(names: list[str]) -> bool:
    """Say whether a table's columns are those of llama-bench."""
    return {"n_prompt", "n_gen", "avg_ts"} <= set(names) or {"test", "t/s"} <= set(names)


def typed(row: Mapping[str, str]) -> dict[str, Any]:
    """Turn the cells of a CSV row into numbers where llama-bench writes numbers."""
    result: dict[str, Any] = {}
    for name, cell in row.items():
        value: Any = cell
        if _NUMBERS.match(name):
            try:
                value = float(cell)
            except ValueError:
                value = cell or None
        result[name] = value
    return result


def run(content: Mapping[str, Any]) -> Run:
    """Read one test."""
    found = Run("llama-bench")
    fields = Fields(dict(content), found.log)
    prompt, made = fields.count("n_prompt") or 0, fields.count("n_gen") or 0
    _facts(found, fields, prompt, made, fields.count("n_depth") or 0)
    seconds, rate = fields.number("avg_ns"), fields.number("avg_ts")
    samples = fields.sequence("samples_ts")
    n = None if samples is None else len(samples)
    if n:
        sound(found, "samples_ts", numbers(samples, n))
    if seconds and seconds >= 1 and rate and prompt + made:
        # llama-bench averages rates, so short and long repetitions weigh alike.
        due = (prompt + made) / (seconds * 1e-9)
        if not 0.8 < rate / due < 1.25:
            found.log.add(
                "rate.not-a-speed", "the stated tokens/s are not tokens over time; not used"
            )
            rate = None
    spread = fields.number("stddev_ts")
    _rate(found, prompt, made, rate, spread, n)
    return found


def _facts(found: Run, fields: Fields, prompt: int, made: int, depth: int) -> None:
    found.know(
        engine="llama.cpp",
        engine_version=fields.text("build_commit"),
        model=fields.text("model_type", "model_filename", "model"),
        hardware=fields.text("gpu_info", "cpu_info", "backends", "backend"),
        date=fields.text("test_time"),
        test=_name(prompt, made) + (f" @ d{depth}" if depth else ""),
        settings=", ".join(
            f"{word} {fields.raw(name)}" for name, word in _SETTINGS.items() if fields.has(name)
        )
        or None,
        input_per_request=prompt,
        output_per_request=made,
    )


def _name(prompt: int, made: int) -> str:
    words = ([f"pp{prompt}"] if prompt else []) + ([f"tg{made}"] if made else [])
    return "+".join(words) or "nothing"


def _rate(
    found: Run, prompt: int, made: int, rate: float | None, spread: float | None, n: int | None
) -> None:
    if rate == 0:
        found.log.add("rate.not-a-speed", "a rate of 0 tok/s is no measurement; not used")
        rate = None
    metric = "combined_rate" if prompt and made else "decode_rate" if made else "prefill_rate"
    if prompt or made:
        found.put(metric, "rate", rate, samples=n)
        found.put(metric, "std", None if rate is None else spread, samples=n)
    if prompt and made:
        found.log.add(
            "rate.combined",
            f"{_name(prompt, made)} counts prompt and generated tokens in one rate: it is neither "
            "prefill nor decode",
        )


def markdown(row: Mapping[str, str]) -> Run:
    """Read one row of the Markdown table."""
    found = Run("llama-bench")
    text = row.get("test", "").strip()
    match = _TEST.fullmatch(text) or _PAIR.fullmatch(text)
    cell = _RATE.fullmatch(row.get("t/s", "").strip())
    prompt, made, depth = (int(g or 0) for g in match.groups()) if match else (0, 0, 0)
    if not match or not (prompt or made) or not cell:
        found.log.add("number.type", "'test' or 't/s' is not what llama-bench writes; not used")
        return found
    rest = {name: cell for name, cell in row.items() if name not in _MEASURED and cell}
    _facts(found, Fields(rest, found.log), prompt, made, depth)
    spread = float(cell[2]) if cell[2] else None
    _rate(found, prompt, made, float(cell[1]), spread, None)
    return found
