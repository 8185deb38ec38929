"""Checks: what no honest run can be, whoever wrote the file.

Owns the contradictions between a run's own figures: requests, totals, rates and load. Does not own
those between its times (``latencies``) or what one format gets wrong.
"""

from __future__ import annotations

import math

from assay.bench.results import latencies
from assay.bench.results.table import Run

__all__ = ["check"]

#: Stated rates are rounded, and some clients time a little more than the requests [1].
_TOLERANCE = 0.02
#: Of requests in flight, beyond what was allowed: clocks, and a limit that lags a little [1].
_OVER = 1.25
#: And when the latency is put together from TTFT and TPOT, which vary with the length [1].
_ROUGH = 1.5
#: Arrivals at random vary by this many standard deviations and no more [1]; fewer say nothing.
_SIGMAS, _ARRIVALS = 4.0, 10
#: A run so much longer than its arrivals and its last requests was not kept up with [1].
_LATE = 1.25
#: Milliseconds in a second, and how near to it a unit is mistaken [1].
_MS, _NEAR = 1e3, 0.02


def check(run: Run) -> None:
    """Hold a run to itself; take away what is contradicted, and say so."""
    _requests(run)
    _tokens(run)
    if run.log.failed:
        return
    _rates(run)
    latencies.check(run)
    _load(run)
    if not run.figures:
        run.log.add("data.none", "no figure is left that is a measurement")


def _requests(run: Run) -> None:
    asked, completed, failed = (run.facts.get(n) for n in ("asked", "completed", "failed"))
    if completed is None:
        return
    if failed is None and asked is not None and completed < asked:
        failed = asked - completed
        run.know(failed=failed)
    everything = max(asked or 0, completed + (failed or 0))
    if asked is not None and completed > asked:
        run.log.add(
            "requests.more-than-asked", f"{completed:,} requests completed of {asked:,} asked"
        )
    elif completed == 0:
        run.log.add(
            "requests.none", f"0 of {everything:,} requests completed: there is no data, not 0 ms"
        )
    elif 2 * completed < everything:
        run.log.add(
            "requests.few",
            f"{completed:,} of {everything:,} requests completed: the load asked for was not "
            "delivered",
        )
    elif completed < everything:
        run.know(failed=everything - completed)
        run.log.add(
            "requests.failed",
            f"{everything - completed:,} of {everything:,} requests failed or were not sent; "
            f"latencies are those of the {completed:,} that completed",
        )


def _tokens(run: Run) -> None:
    facts = run.facts
    completed, inputs, outputs = (
        facts.get(n) for n in ("completed", "input_tokens", "output_tokens")
    )
    if completed and outputs == 0:
        run.log.add(
            "tokens.none",
            f"{completed:,} requests completed with 0 output tokens: the client ignores the fields "
            "the text is in (reasoning?), or the server returned nothing",
        )
    cached = facts.get("cached_tokens")
    if cached is not None and inputs is not None and cached > inputs:
        run.log.add(
            "tokens.cached-exceeds-prompt",
            f"{cached:,.0f} tokens came from the cache of {inputs:,.0f} that were sent",
        )
    if completed:
        for name, total in (("input_per_request", inputs), ("output_per_request", outputs)):
            if total is not None and name not in facts:
                run.facts[name] = total / completed


def _rates(run: Run) -> None:
    facts = run.facts
    duration = facts.get("duration")
    if duration is None:
        return
    if duration <= 0:
        del run.facts["duration"]
        for metric in ("output_rate", "total_rate", "input_rate", "request_rate"):
            run.drop(metric)
        run.log.add("rate.inconsistent", "the run lasts 0 s: no rate is used")
        return
    inputs, outputs = facts.get("input_tokens"), facts.get("output_tokens")
    duration = _seconds(run, duration)
    both = None if inputs is None or outputs is None else inputs + outputs
    totals = {
        "output_rate": outputs,
        "input_rate": inputs,
        "total_rate": both,
        "request_rate": facts.get("completed"),
    }
    for metric, total in totals.items():
        stated = run.get(metric)
        if total is None:
            continue
        due = total / duration
        if stated is None:
            if metric != "input_rate":
                run.put(metric, "rate", due, recomputed=True)
        elif abs(stated - due) > max(_TOLERANCE * due, 0.0051):
            run.log.add(
                "rate.inconsistent",
                f"the stated {metric.replace('_', ' ')} is {stated / due:.3g} times its total over "
                "the duration; the latter is used"
                if due
                else f"a {metric.replace('_', ' ')} is stated and its total is 0",
            )
            run.put(metric, "rate", due, recomputed=True)
    good, all_of_them = run.get("goodput"), run.get("request_rate")
    if good is not None and all_of_them is not None and good > all_of_them * (1 + _TOLERANCE):
        run.drop("goodput")
        run.log.add(
            "rate.inconsistent", "the goodput is above the rate of all requests; it is not used"
        )
    mean, peak = run.get("output_rate"), run.get("peak_output_rate")
    if peak is not None and mean is not None and peak < mean * (1 - _TOLERANCE):
        run.drop("peak_output_rate")
        run.log.add(
            "rate.peak-below-mean",
            "the peak output rate is below the mean, so it counts chunks and not tokens; not used",
        )


def _seconds(run: Run, duration: float) -> float:
    """Return the duration in seconds; all rates beside it say when it is in milliseconds."""
    totals = {"output_rate": "output_tokens", "request_rate": "completed"}
    found = [
        rate * duration / total
        for metric, name in totals.items()
        if (rate := run.get(metric)) and (total := run.facts.get(name))
    ]
    if not found or any(abs(times / _MS - 1) > _NEAR for times in found):
        return duration
    run.log.add("units.mixed", "the duration is in ms where s are due: converted")
    run.facts["duration"] = duration / _MS
    return duration / _MS


def _load(run: Run) -> None:
    """Hold the requests in flight, by Little's law, and their arrivals to what was asked for."""
    facts = run.facts
    n, duration = facts.get("completed"), facts.get("duration")
    # GuideLLM counts what ends within a window, and that may have started before it.
    if not n or not duration or run.format.startswith("GuideLLM"):
        return
    whole, over = run.get("e2el", "mean"), _OVER
    if whole is None:
        ttft, tpot = run.get("ttft", "mean"), run.get("tpot", "mean")
        tokens = facts.get("output_per_request")
        if ttft is not None and tpot is not None and tokens:
            whole, over = ttft + tpot * (tokens - 1), _ROUGH
    limit = min(facts.get("concurrency") or n, n)
    if whole is not None and n * whole / duration > limit * over:
        run.log.add(
            "load.impossible",
            f"{n:,} requests of {whole:.4g} s in {duration:.4g} s are "
            f"{n * whole / duration:,.3g} in flight where at most {limit:,} can have been: the "
            "latencies, the duration or the limit is wrong",
        )
        return
    asked = facts.get("asked_rate")
    if not isinstance(asked, int | float) or asked <= 0 or n < _ARRIVALS:
        return
    if n / duration > asked * (1 + _SIGMAS / math.sqrt(n)):
        run.log.add(
            "load.above-asked",
            f"{n / duration:.4g} requests/s completed where {asked:.4g} were sent: the rate asked "
            "for was not the one of this run",
        )
    elif duration > _LATE * (n / asked + 2 * (whole or 0.0)):
        run.log.add(
            "load.not-kept",
            f"{asked:.4g} requests/s were sent and {n / duration:.4g} completed: the server did "
            "not keep up, so latencies hold a queue that grows with the length of the run",
        )
