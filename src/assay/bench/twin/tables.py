"""Tables: what the twin predicts and what the scheduler says when asked, kept as CSV.

Owns the tables in ``data/twin`` that the notebooks show: they are printed by
``python -m assay.bench.twin.tables [NAME...]`` where vLLM is installed, and read everywhere. Does
not own the loop (`run`) or verdicts: predictions decide nothing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from assay.bench import checkpoint, private
from assay.bench.twin import engine, reference, run, steptime, validate, workload
from assay.errors import InputError
from assay.ledger import store

__all__ = ["NAMES", "SET_UPS", "SHARES", "make", "read", "text"]

#: Model, card and how many cards share each layer.
SET_UPS = (
    ("llama-3.1-8b", "a100-sxm-80gb", 1),
    ("llama-3.1-8b", "h100-sxm-80gb", 1),
    ("llama-3.1-70b", "a100-sxm-80gb", 4),
    ("llama-3.1-70b", "h100-sxm-80gb", 4),
)
#: Shares of peak arithmetic and of bandwidth that the predictions take.
SHARES = (steptime.SHARE_OF_PEAK, steptime.SHARE_OF_BANDWIDTH)
_LONGEST = 2**17  # both models' native context [tok]
_BUDGETS = tuple(2**k for k in range(9, 15))
_PROMPTS = (*(2**k for k in range(10, 17)), _LONGEST - 16)
_DECODERS = 16
_ROOM = 20 * 10**9  # KV memory of one card; a prompt of the native context fits [B]

# The offloading map: sessions that come back to their own prefix, in a closed loop.
_SESSIONS, _LENGTH, _OUTPUT, _IN_FLIGHT, _REQUESTS = 64, 4096, 128, 16, 400
_PRESSURES = (0.5, 1.0, 2.0, 4.0)
_REUSE = (0.0, 0.5, 0.9)
#: A link of PCIe 4.0 x16 carries some 25 GB/s of 32 printed; a tenth of it is the slow case [B/s].
_LINKS = (25e9, 2.5e9)
_HOST = 100 * 10**9  # [B]

Row = dict[str, str | int | float]


def read(name: str) -> list[dict[str, str]]:
    """Return a kept table's rows as text.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    """
    if name not in NAMES:
        raise InputError(f"there is no table '{name}'", fix=f"one of {', '.join(sorted(NAMES))}")
    return store.read_csv(store.path("data", "twin", f"{name}.csv"))


def text(rows: Sequence[Row]) -> str:
    """Return rows as CSV; times and shares with six significant digits."""
    heads = list(rows[0])
    lines = [",".join(heads)]
    lines += [",".join(_cell(row[head]) for head in heads) for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: str | int | float) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    written = str(value)
    return f'"{written}"' if "," in written else written


def make(name: str) -> list[Row]:
    """Make a table anew; needs vLLM."""
    return list(_MAKERS[name]())


def _parts(model: str, card: str, tp: int) -> tuple[Any, steptime.Roofline]:
    record = store.model(model)
    return record, steptime.Roofline.of(record, store.hardware(card), tp=tp)


def _budgets() -> Iterable[Row]:
    _, version = private.version() or ("", "")
    for row in engine.budgets():
        yield {"engine": "vLLM", "version": version, **row}


def _prefill() -> Iterable[Row]:
    """Serve one prompt alone."""
    for (model, card, tp), budget in itertools.product(SET_UPS, _BUDGETS):
        record, step = _parts(model, card, tp)
        setup = engine.Setup(
            record.config, kv_bytes=_ROOM, tp=tp, budget=budget, most_running=16, longest=_LONGEST
        )
        for prompt in _PROMPTS:
            found = run.run(setup, workload.open_loop([workload.Ask(0, prompt, 1)]), step)
            yield {
                "model": model,
                "gpu": card,
                "gpu_count": tp,
                "prompt_tok": prompt,
                "budget_tok": budget,
                "steps": found.steps,
                "computed_tok": found.tokens,
                "ttft_s": found.ttft()[0],
            }


def _interference() -> Iterable[Row]:
    """Let a long prompt arrive while others decode."""
    prompt = 2**15
    for (model, card, tp), budget in itertools.product(SET_UPS, _BUDGETS):
        record, step = _parts(model, card, tp)
        setup = engine.Setup(
            record.config, kv_bytes=_ROOM, tp=tp, budget=budget, most_running=32, longest=_LONGEST
        )
        # The decoders have their first token long before, and run until after.
        asks = [workload.Ask(n, 512, 2000) for n in range(_DECODERS)]
        asks.append(workload.Ask(_DECODERS, prompt, 2, arrival=5.0))
        watched = _Chunks(setup)
        found = run.run(setup, workload.open_loop(asks), step, engine=watched)
        yield {
            "model": model,
            "gpu": card,
            "gpu_count": tp,
            "prompt_tok": prompt,
            "decoders": _DECODERS,
            "budget_tok": budget,
            "largest_step_tok": watched.step,
            "largest_chunk_tok": watched.chunk,
            "ttft_s": found.ttft()[-1],
            "longest_gap_s": max(list(found.longest_gap)[:_DECODERS]),
        }


class _Chunks(engine.Engine):
    """An engine that notes the largest step and the largest piece of the long prompt."""

    step = chunk = 0

    def plan(self) -> engine.Plan:
        plan = super().plan()
        mine = plan.tokens.get(str(_DECODERS), 0)
        if mine > 1:
            self.step = max(self.step, plan.work.tokens)
            self.chunk = max(self.chunk, mine)
        return plan


def _sharing() -> Iterable[Row]:
    """Send two prompts that part inside a block, with the cache on and off."""
    record = store.model("llama-3.1-8b")
    block, length = 16, 64
    for caching, parts_at in itertools.product((True, False), (16, 24, 32, 40, 64)):
        setup = engine.Setup(
            record.config, blocks=1024, block_size=block, prefix_caching=caching, longest=1024
        )
        real = engine.Engine(setup)
        held, copies = [], 0
        for number in range(2):
            # At 64 both prompts are the same.
            real.submit(workload.Ask(number, length, 8, shared=parts_at), 0.0)
            plan = real.plan()
            copies += plan.copies
            real.complete(plan)
            held.append(real.held()[str(number)])
        yield {
            "prefix_caching": "on" if caching else "off",
            "block_tok": block,
            "prompt_tok": length,
            "same_tok": parts_at,
            "full_blocks_same": parts_at // block,
            "blocks_shared": len(set(held[0]) & set(held[1])),
            "blocks_copied": copies,
        }


def _offload() -> Iterable[Row]:
    model, card = "llama-3.1-8b", "h100-sxm-80gb"
    record, step = _parts(model, card, 1)
    whole = _SESSIONS * _LENGTH * step.kv_per_token
    for pressure, reuse in itertools.product(_PRESSURES, _REUSE):
        shared = int(_LENGTH * reuse) // 16 * 16
        results = {}
        for link in (None, *_LINKS):
            tier = None if link is None else engine.Tier(_HOST, to_host=link, to_device=link)
            setup = engine.Setup(record.config, kv_bytes=int(whole / pressure), tier=tier)
            stream = workload.asks(
                _REQUESTS,
                workload.fixed(_LENGTH - shared, _OUTPUT),
                shared=shared,
                groups=_SESSIONS,
                seed=1,
            )
            results[link] = run.run(setup, workload.closed_loop(stream, _IN_FLIGHT), step)
        none = results[None]
        for link in _LINKS:
            found = results[link]
            prompts = sum(found.prompt)
            yield {
                "model": model,
                "gpu": card,
                "pressure": pressure,
                "reuse": reuse,
                "link_b_per_s": link,
                "pool_hits_without": sum(none.cached) / prompts,
                "pool_hits": sum(found.cached) / prompts,
                "host_hits": sum(found.external) / prompts,
                "output_rate_without": none.output_rate,
                "output_rate": found.output_rate,
                "ttft_without_s": none.mean_ttft(),
                "ttft_s": found.mean_ttft(),
            }


def _published() -> Iterable[Row]:
    """Serve what third parties served and lay their figures beside ours."""
    yield from reference.rows()


def _steps() -> Iterable[Row]:
    """Lay both step logs beside each other."""
    yield from validate.step_rows(checkpoint.make())


def _clock() -> Iterable[Row]:
    """Lay both clocks beside each other; the only table that depends on the machine."""
    yield from validate.clock_rows(checkpoint.make())


_MAKERS: dict[str, Callable[[], Iterable[Row]]] = {
    "budgets": _budgets,
    "clock": _clock,
    "interference": _interference,
    "offload": _offload,
    "prefill": _prefill,
    "published": _published,
    "sharing": _sharing,
    "steps": _steps,
}
NAMES = tuple(_MAKERS)


def main(names: Sequence[str]) -> None:
    """Make tables and write them to ``data/twin``."""
    for name in names or list(_MAKERS):
        rows = make(name)
        store.write(store.path("data", "twin", f"{name}.csv"), text(rows))
        print(f"{name}: {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
