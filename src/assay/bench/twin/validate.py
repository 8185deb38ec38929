"""Validate: the twin beside a really running engine.

Owns running the same workload through an engine in a process of its own, with its scheduler's steps
written down, and laying both step logs and both clocks beside each other. Bounded in time; the
process and its children are ended whatever happens. Does not own the loop of the twin (`run`).

::

    steps, clock -> python -m assay.bench.twin.validate (one engine, one JSON line) -> Real
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.bench import private
from assay.bench.twin import hostlink, run, steptime
from assay.bench.twin.engine import Setup, Tier, work_of
from assay.bench.twin.workload import Ask, open_loop
from assay.errors import RunError
from assay.ledger import store

__all__ = [
    "CASES",
    "CLOCKS",
    "Agreement",
    "Case",
    "Real",
    "agree",
    "clock",
    "clock_rows",
    "predict",
    "real",
    "step_rows",
]

_MARK = "ASSAY-TWIN "
# As it was before the twin, in this process, imported vLLM: that has children preload another
# threading library (LD_PRELOAD), with which an engine takes twenty times as long.
_ENVIRONMENT = dict(os.environ)
_BLOCK = 32  # the CPU's attention kernel wants a multiple of it [tok]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A workload for both.

    Parameters
    ----------
    name : str
        What is special about it.
    asks : tuple of Ask
        Requests; arrivals in steps for `agree`, in seconds for `clock`.
    blocks, budget, most_running, longest : int
        Of the set-up.
    chunked, prefix_caching : bool
        Of the set-up.
    host_blocks : int
        Blocks of the host's tier; 0 for none.
    """

    name: str
    asks: tuple[Ask, ...]
    blocks: int = 400
    budget: int = 512
    most_running: int = 256
    longest: int = 1024
    chunked: bool = True
    prefix_caching: bool = True
    host_blocks: int = 0

    def setup(self, checkpoint: Path) -> Setup:
        """Return the set-up for a checkpoint."""
        config = store.read_json(checkpoint / "config.json")
        tier = None
        if self.host_blocks:
            # 16-bit keys and values of every layer; the block is the unit of a chunk.
            heads, width = int(config["num_key_value_heads"]), int(config["head_dim"])
            block = 2 * 2 * heads * width * int(config["num_hidden_layers"]) * _BLOCK
            tier = Tier(memory=self.host_blocks * block, to_host=math.inf, to_device=math.inf)
        return Setup(
            config,
            blocks=self.blocks,
            block_size=_BLOCK,
            budget=self.budget,
            most_running=self.most_running,
            longest=self.longest,
            chunked=self.chunked,
            prefix_caching=self.prefix_caching,
            tier=tier,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Real:
    """What the engine did.

    Parameters
    ----------
    steps : tuple of (int, int, float)
        Tokens, running and use of the pool, of each step that computed something.
    work : tuple of (Work, float)
        What was in each of them and how long it took [s].
    arrival, first, last : tuple of float
        Of each request [s].
    output : tuple of int
        Tokens of each request.
    preemptions : int
        Times that a request lost its blocks.
    duration : float
        Of the whole run [s].
    """

    steps: tuple[tuple[int, int, float], ...]
    work: tuple[tuple[steptime.Work, float], ...]
    arrival: tuple[float, ...]
    first: tuple[float, ...]
    last: tuple[float, ...]
    output: tuple[int, ...]
    preemptions: int
    duration: float

    @property
    def output_rate(self) -> float:
        """Output tokens over the duration [tok/s]."""
        return sum(self.output) / self.duration

    def mean_ttft(self) -> float:
        """Return the mean time to the first token [s]."""
        return math.fsum(f - a for f, a in zip(self.first, self.arrival, strict=True)) / len(
            self.arrival
        )

    def mean_tpot(self) -> float:
        """Return the mean over requests of the time per further token [s]."""
        rows = zip(self.first, self.last, self.output, strict=True)
        found = [(b - a) / (n - 1) for a, b, n in rows if n > 1]
        return math.fsum(found) / len(found)


@dataclasses.dataclass(frozen=True, slots=True)
class Agreement:
    """Both step logs beside each other.

    Parameters
    ----------
    name : str
        Of the case.
    steps : int
        Steps of the real engine.
    preemptions : int
        In the real engine.
    external : int
        Tokens that the twin found in the host's memory [tok].
    first_difference : int or None
        First step at which they differ; None when they are identical.
    """

    name: str
    steps: int
    preemptions: int
    external: int
    first_difference: int | None

    @property
    def identical(self) -> bool:
        """Whether every step is the same."""
        return self.first_difference is None


def agree(case: Case, checkpoint: Path, *, seconds: float = 300) -> Agreement:
    """Run a case through the engine and the twin and compare every step.

    Parameters
    ----------
    case : Case
        Its arrivals are numbers of steps.
    checkpoint : Path
        A small model.
    seconds : float
        Time after which the engine is ended [s].

    Raises
    ------
    RunError
        When the engine does not start, or not in time.
    """
    theirs = real(case, checkpoint, in_steps=True, seconds=seconds)
    # A step lasts one second, so that arrivals in seconds are arrivals in steps.
    ours = run.run(
        case.setup(checkpoint), open_loop(case.asks), steptime.Fitted(fixed=1.0), log=True
    )
    assert ours.log is not None
    left, right = list(theirs.steps), ours.log.key()
    pairs = zip(left, right, strict=False)
    different = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
    if different is None and len(left) != len(right):
        different = min(len(left), len(right))
    return Agreement(case.name, len(left), theirs.preemptions, sum(ours.external), different)


def clock(case: Case, checkpoint: Path, *, seconds: float = 300) -> Real:
    """Run a case through the engine; its arrivals are seconds of the engine's processor time."""
    return real(case, checkpoint, in_steps=False, seconds=seconds)


def predict(case: Case, checkpoint: Path, model: steptime.StepTime) -> run.Result:
    """Run a case through the twin; its arrivals are seconds."""
    return run.run(case.setup(checkpoint), open_loop(case.asks), model)


def real(case: Case, checkpoint: Path, *, in_steps: bool, seconds: float) -> Real:
    """Run a case through the installed engine, in a process of its own.

    Parameters
    ----------
    case : Case
        What to serve.
    checkpoint : Path
        Folder of a small model.
    in_steps : bool
        Whether arrivals count steps; seconds when not.
    seconds : float
        Time after which the engine is ended [s].
    """
    asked = {
        "checkpoint": str(checkpoint),
        "case": dataclasses.asdict(case),
        "in_steps": in_steps,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "assay.bench.twin.validate"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_ENVIRONMENT,
        start_new_session=True,
    )
    try:
        out, complaint = process.communicate(json.dumps(asked), timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RunError(f"the engine did not finish '{case.name}' in {seconds:g} s") from None
    finally:
        # Its session is its process group, so children go with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    for line in out.splitlines():
        if line.startswith(_MARK):
            return _real(json.loads(line.removeprefix(_MARK)))
    last = (complaint.strip().splitlines() or ["no message"])[-1]
    raise RunError(f"the engine did not serve '{case.name}': {last[:300]}")


def _real(found: dict[str, Any]) -> Real:
    return Real(
        steps=tuple((int(t), int(r), float(u)) for t, r, u in found["steps"]),
        work=tuple((steptime.Work(*w), float(t)) for w, t in found["work"]),
        arrival=tuple(found["arrival"]),
        first=tuple(found["first"]),
        last=tuple(found["last"]),
        output=tuple(found["output"]),
        preemptions=int(found["preemptions"]),
        duration=float(found["duration"]),
    )


# -- the child's side -------------------------------------------------------------------------


def _serve(asked: dict[str, Any]) -> dict[str, Any]:
    private.quiet()
    # One thread: threads that wait for each other spin, which a busy machine punishes tenfold.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    parts = dict(asked["case"])
    parts["asks"] = tuple(Ask(**ask) for ask in parts["asks"])
    case, checkpoint = Case(**parts), Path(asked["checkpoint"])
    setup = case.setup(checkpoint)
    from vllm import LLM
    from vllm.config import KVTransferConfig

    options: dict[str, Any] = {
        **setup.options(),
        "disable_hybrid_kv_cache_manager": False,
        "enforce_eager": True,
        "kv_cache_memory_bytes": 256 * 2**20,
        "seed": 0,
        "skip_tokenizer_init": True,
    }
    if setup.tier is not None:
        options["kv_transfer_config"] = KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "cpu_bytes_to_use": setup.tier.memory,
                "spec_name": hostlink.SPEC,
                "spec_module_path": hostlink.__name__,
            },
        )
    engine = LLM(str(checkpoint), **options).llm_engine
    return _drive(engine, case, in_steps=bool(asked["in_steps"]))


def _drive(engine: Any, case: Case, *, in_steps: bool) -> dict[str, Any]:
    scheduler = engine.engine_core.engine_core.scheduler
    steps: list[tuple[int, int, float]] = []
    work: list[tuple[steptime.Work, float]] = []
    preempted = 0
    schedule = scheduler.schedule

    def noted(*args: Any, **options: Any) -> Any:
        nonlocal preempted
        output = schedule(*args, **options)
        preempted += len(output.preempted_req_ids or ())
        if output.total_num_scheduled_tokens:
            usage = round(scheduler.kv_cache_manager.usage, 9)
            steps.append((output.total_num_scheduled_tokens, len(scheduler.running), usage))
            work.append((work_of(output, scheduler.requests, [], []), math.nan))
        return output

    scheduler.schedule = noted
    if not in_steps:
        # The second time counts. A number of tokens that the engine has not met costs it 2 ms, in
        # which it makes kernels for it; a server that has run for a while has met them all.
        _serve_all(engine, case, steps, work, in_steps=False)
        engine.reset_prefix_cache()
        steps.clear()
        work.clear()
        preempted = 0
    rows, duration = _serve_all(engine, case, steps, work, in_steps=in_steps)
    return {
        "steps": steps,
        "work": [(dataclasses.astuple(w), t) for w, t in work],
        "arrival": [ask.arrival for ask in case.asks],
        "first": [row[0] for row in rows],
        "last": [row[-1] for row in rows],
        "output": [len(row) for row in rows],
        "preemptions": preempted,
        "duration": duration,
    }


def _serve_all(
    engine: Any,
    case: Case,
    steps: list[tuple[int, int, float]],
    work: list[tuple[steptime.Work, float]],
    *,
    in_steps: bool,
) -> tuple[list[list[float]], float]:
    """Serve every request; return when each of its tokens came, and when the last did [s]."""
    from vllm import SamplingParams

    waiting = list(case.asks)
    times: dict[str, list[float]] = {}
    # Processor time: with one thread it is the time a machine with nothing else to do would take.
    began, stepped, skipped = time.process_time(), 0.0, 0.0

    def clock_now() -> float:
        return stepped + skipped if in_steps else time.process_time() - began + skipped

    while waiting or engine.has_unfinished_requests():
        if waiting and not engine.has_unfinished_requests():
            skipped += max(0.0, waiting[0].arrival - clock_now())
        now = clock_now()
        while waiting and waiting[0].arrival <= now:
            ask = waiting.pop(0)
            params = SamplingParams(
                max_tokens=ask.output, ignore_eos=True, temperature=0, detokenize=False
            )
            engine.add_request(str(ask.number), {"prompt_token_ids": ask.tokens()}, params)
        count = len(steps)
        outputs = engine.step()
        after = clock_now()
        if len(steps) > count:
            stepped += 1
            # Taking in what has arrived is part of the step that follows.
            work[-1] = (work[-1][0], after - now)
        for output in outputs:
            # A request's name is followed by a suffix that the engine adds.
            many = len(output.outputs[0].token_ids)
            known = times.setdefault(output.request_id, [])
            known.extend([after] * (many - len(known)))
    rows = [times[str(ask.number)] for ask in case.asks]
    return rows, max(row[-1] for row in rows)


# -- the cases --------------------------------------------------------------------------------


def _mixed(count: int, *, every: float = 0.0, seed: int = 0, **extra: Any) -> tuple[Ask, ...]:
    """Return requests of many lengths, a number of steps apart on average."""
    import random

    from assay.bench.twin import workload

    draw = random.Random(seed)
    lengths = ((draw.randrange(20, 400), draw.randrange(10, 150)) for _ in itertools.count())
    # Whole steps, so that both clocks stand at the same numbers.
    times = map(math.ceil, workload.poisson(1 / every, seed=seed)) if every else None
    return tuple(workload.asks(count, lengths, times, seed=seed, **extra))


def _even(count: int, prompt: int, output: int, **extra: Any) -> tuple[Ask, ...]:
    from assay.bench.twin import workload

    return tuple(workload.asks(count, workload.fixed(prompt, output), **extra))


def _cases() -> Sequence[Case]:
    return (
        Case("burst with preemption", _mixed(120, seed=3), blocks=200),
        Case("burst, wide budget", _mixed(80, seed=4), blocks=200, budget=2048),
        Case("burst, narrow budget", _mixed(60, seed=5), budget=128, most_running=64),
        Case("few at once", _mixed(60, seed=6), most_running=4),
        Case("slow arrivals", _mixed(40, every=40, seed=7)),
        Case("fast arrivals", _mixed(80, every=2, seed=8), blocks=160),
        Case("without chunks", _mixed(60, every=3, seed=9), chunked=False, budget=1024),
        Case("without prefix caching", _mixed(60, every=3, seed=10), prefix_caching=False),
        Case("one shared prefix", _mixed(60, every=3, seed=11, shared=320), blocks=200),
        Case("eight prefixes, evicted", _mixed(80, every=4, seed=12, shared=256, groups=8), 100),
        Case("one token each", _even(60, 300, 1), blocks=120),
        Case("long outputs", _even(24, 32, 400), blocks=80),
        Case(
            "host tier, evicted prefixes",
            _mixed(80, every=4, seed=13, shared=256, groups=8),
            100,
            host_blocks=2000,
        ),
        Case(
            "host tier too small",
            _mixed(60, every=4, seed=14, shared=256, groups=8),
            100,
            host_blocks=60,
        ),
    )


#: Rates, lengths, budgets, preemption, prefix sharing and offloading.
CASES: tuple[Case, ...] = tuple(_cases())


def _clocks() -> Sequence[Case]:
    """Return loads whose arrivals are in seconds."""
    from assay.bench.twin import workload

    def load(name: str, count: int, prompt: int, output: int, rate: float, **extra: Any) -> Case:
        lengths = workload.lognormal(prompt, output, sigma=0.4, most=700, seed=count)
        times = workload.poisson(rate, seed=count) if rate else None
        return Case(name, tuple(workload.asks(count, lengths, times)), 1000, **extra)

    # Both regimes and lengths of every kind, so that no cost goes with another throughout.
    later = (3 + when for when in workload.poisson(8, seed=1))
    mixed = workload.lognormal(120, 40, sigma=0.8, most=700, seed=1)
    both = workload.asks(80, mixed, itertools.chain(itertools.repeat(0.0, 60), later))
    return (
        Case("a burst, then 8 a second", tuple(both), 1000),
        load("burst of mixed lengths", 60, 200, 40, 0),
        load("burst of short prompts", 60, 40, 60, 0),
        load("burst of long prompts", 30, 500, 20, 0),
        load("burst, long answers", 24, 60, 150, 0),
        load("burst, few at once", 24, 200, 40, 0, most_running=4),
        load("burst, narrow budget", 40, 300, 40, 0, budget=128, most_running=64),
        load("burst, wide budget", 40, 300, 40, 0, budget=2048),
        load("1 a second", 16, 200, 40, 1),
        load("4 a second", 40, 200, 40, 4),
        load("8 a second", 60, 200, 40, 8),
        load("8 a second, short", 60, 40, 40, 8),
        load("4 a second, long", 40, 500, 20, 4),
        load("4 a second, without chunks", 40, 300, 40, 4, chunked=False, budget=1024),
    )


#: The first is what step times are fitted to, the others are predicted.
CLOCKS: tuple[Case, ...] = tuple(_clocks())


def clock_rows(
    checkpoint: Path, *, seconds: float = 300, passes: int = 3
) -> list[dict[str, str | int | float]]:
    """Fit step times on one load, predict the others, and lay both beside what was measured.

    Parameters
    ----------
    checkpoint : Path
        A small model.
    seconds : float
        Time after which an engine is ended [s].
    passes : int
        Times that all loads are measured, one after the other, each in a process of its own [1].
        A shared machine is a tenth slower at one time than at another; a fit to one moment would
        carry that into every prediction.

    Returns
    -------
    list of dict
        One row a load, ``role`` being ``fitted`` or ``predicted``: throughput [tok/s], mean TTFT
        and mean TPOT [s], predicted, and the median measured. The fit is to all passes.
    """
    measured: dict[str, list[Real]] = {case.name: [] for case in CLOCKS}
    for _ in range(passes):
        for case in CLOCKS:
            measured[case.name].append(clock(case, checkpoint, seconds=seconds))
    fitted = CLOCKS[0].name
    model = steptime.Fitted.to([step for one in measured[fitted] for step in one.work])
    rows: list[dict[str, str | int | float]] = []
    for case in CLOCKS:
        found, seen = predict(case, checkpoint, model), measured[case.name]
        rows.append(
            {
                "load": case.name,
                "role": "fitted" if case.name == fitted else "predicted",
                "requests": len(case.asks),
                "rate_measured": statistics.median(one.output_rate for one in seen),
                "rate_predicted": found.output_rate,
                "ttft_measured_s": statistics.median(one.mean_ttft() for one in seen),
                "ttft_predicted_s": found.mean_ttft(),
                "tpot_measured_s": statistics.median(one.mean_tpot() for one in seen),
                "tpot_predicted_s": found.mean_tpot(),
            }
        )
    return rows


def step_rows(checkpoint: Path, *, seconds: float = 900) -> list[dict[str, str | int | float]]:
    """Compare the step logs of all cases, one row a case."""
    found = (agree(case, checkpoint, seconds=seconds) for case in CASES)
    return [
        {
            "workload": one.name,
            "steps": one.steps,
            "preemptions": one.preemptions,
            "host_hits_tok": one.external,
            "identical": "yes" if one.identical else f"no, from step {one.first_difference}",
        }
        for one in found
    ]


if __name__ == "__main__":
    print(_MARK + json.dumps(_serve(json.load(sys.stdin))), flush=True)
