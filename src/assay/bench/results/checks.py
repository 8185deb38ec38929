"""Checks: what no honest run can be, whoever wrote the file.

Owns the contradictions between a run's own figures: requests, totals, rates, order and time. Does
not own what one format gets wrong.
"""

from __future__ import annotations

import itertools

from assay.bench.results.table import METRICS, Run

__all__ = ["check"]

#: Stated rates are rounded, and some clients time a little more than the requests [1].
_TOLERANCE = 0.02
#: Latencies a client adds may end after its clock stops [1].
_OVER = 1.05
#: ITL pools all gaps and TPOT averages requests, so they differ; by this much they do not [1].
_BUNDLE = 2.0
#: No server answers faster [s]: a request over the loopback and one step of the smallest model, and
#: a token at several times the fastest rate a provider offers one user (about 3,000 tok/s in 2026).
_LEAST = {"ttft": 5e-4, "tpot": 1e-4, "itl": 1e-4, "e2el": 5e-4}
#: Requests of at least so many tokens have gaps [tok].
_SEVERAL = 2
#: A second token this soon after the first was not decoded after it [s]: the weights of even a
#: 0.5 GB model take longer to read at 10 TB/s.
_BUNDLED = 5e-5


def check(run: Run) -> None:
    """Hold a run to itself; take away what is contradicted, and say so."""
    _requests(run)
    _tokens(run)
    if run.log.failed:
        return
    _rates(run)
    _zeros(run)
    _instant(run)
    _bundles(run)
    _one_token(run)
    _order(run)
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
    mean, peak = run.get("output_rate"), run.get("peak_output_rate")
    if peak is not None and mean is not None and peak < mean * (1 - _TOLERANCE):
        run.drop("peak_output_rate")
        run.log.add(
            "rate.peak-below-mean",
            "the peak output rate is below the mean, so it counts chunks and not tokens; not used",
        )


def _zeros(run: Run) -> None:
    """Take 0 for what it is in a latency: a value that is missing."""
    for metric in ("itl", "ttft", "tpot", "e2el", "generation_time", "latency_per_token"):
        found = run.statistics(metric)
        if not found:
            continue
        mean = found.get("mean") or found.get("p50")
        if mean is not None and mean.value == 0:
            run.drop(metric)
            if metric == "ttft":
                run.log.add("ttft.zero", "the time to the first token is 0 s: no data, not used")
            elif metric == "itl" and run.facts.get("output_per_request", 0) >= _SEVERAL:
                run.drop("ttft")
                run.drop("tpot")
                run.log.add(
                    "ttft.no-stream",
                    "requests have several tokens and no gap between them: nothing was streamed, "
                    "so TTFT, TPOT and ITL are not measured",
                )
    low, average = run.get("ttft", "min"), run.get("ttft", "mean")
    if low == 0 and average is not None:
        _without_zeros(run, average)


def _instant(run: Run) -> None:
    """Refuse times that no server reaches: seconds written under a name in milliseconds."""
    for metric, least in _LEAST.items():
        mean = run.get(metric, "mean")
        if mean is not None and 0 < mean < least:
            run.drop(metric)
            run.log.add(
                "units.mixed",
                f"the mean of {metric} is {mean * 1e3:.2g} ms, faster than any server answers "
                "(seconds taken for milliseconds?); not used",
            )


def _without_zeros(run: Run, mean: float) -> None:
    """Mend a mean TTFT in which missing values count as 0 s, when their number is certain."""
    figure = run.figures["ttft", "mean", ""]
    n, top = figure.samples, run.get("ttft", "max")
    run.drop("ttft")
    if n is None or n < 2 or not top:
        run.log.add("ttft.zero", "a TTFT of 0 s is a missing value; how many is not said: not used")
        return
    total = mean * n
    # At least one value is 0, and so many others are needed to make up the sum.
    needed = -int(-(total / top) * (1 - 1e-9) // 1)
    if needed >= n - 1:
        run.put("ttft", "mean", total / (n - 1), samples=n - 1, recomputed=True)
        run.put("ttft", "max", top, samples=n - 1)
        run.log.add(
            "ttft.zero",
            f"1 of {n:,} TTFT values is 0 s, which is a missing value: the mean is over {n - 1:,}",
        )
    else:
        run.log.add("ttft.zero", "some TTFT values are 0 s, which is missing: TTFT is not used")


def _bundles(run: Run) -> None:
    itl, tpot = run.get("itl", "mean"), run.get("tpot", "mean")
    if itl is not None and tpot and itl / tpot >= _BUNDLE:
        _rename(run, "itl", "chunk_gap")
        run.log.add(
            "itl.chunks",
            f"the mean gap is {itl / tpot:.3g} times TPOT: gaps are per chunk of several tokens, "
            "and TPOT is the figure per token",
        )
    if run.log.has("itl.chunks"):
        run.drop("peak_output_rate")
    second = run.get("second_token", "p50")
    if second is None:
        second = run.get("second_token", "mean")
    if second is not None and second < _BUNDLED:
        run.drop("second_token")
        run.log.add(
            "second-token.bundled",
            f"the second token follows the first after {second * 1e3:.2g} ms: they arrive in one "
            "bundle, so gaps between chunks are not gaps between tokens",
        )
        _rename(run, "itl", "chunk_gap")


def _rename(run: Run, old: str, new: str) -> None:
    figures = run.statistics(old)
    run.drop(old)
    for statistic, f in figures.items():
        run.put(new, statistic, f.value, samples=f.samples, recomputed=f.recomputed)


def _one_token(run: Run) -> None:
    completed, outputs = run.facts.get("completed"), run.facts.get("output_tokens")
    if not completed or not outputs or outputs > completed:
        return
    for metric in ("tpot", "itl", "chunk_gap", "decode_rate", "request_decode_rate"):
        run.drop(metric)
    run.log.add(
        "tpot.one-token",
        "every request returned one token: TPOT and ITL are undefined, and the output rate is the "
        "request rate",
    )


def _order(run: Run) -> None:
    duration = run.facts.get("duration")
    for metric in METRICS:
        found = {s: f.value for s, f in run.statistics(metric).items()}
        ranks = sorted(
            (0.0 if s == "min" else 100.0 if s == "max" else float(s[1:]), v)
            for s, v in found.items()
            if s in ("min", "max") or (s[0] == "p" and s[1:2].isdigit())
        )
        values = [v for _, v in ranks]
        slack = 1 + 1e-6
        disordered = any(b * slack < a for a, b in itertools.pairwise(values))
        mean = found.get("mean")
        if mean is not None and "max" in found:
            disordered |= mean > found["max"] * slack or mean * slack < found.get("min", 0.0)
        if disordered:
            run.drop(metric)
            run.log.add(
                "order.percentiles",
                f"minimum, percentiles, mean and maximum of {metric} are out of order; not used",
            )
        elif duration and METRICS[metric].unit == "s" and mean is not None:
            _within(run, metric, mean, duration)
    ttft, whole = run.get("ttft", "mean"), run.get("e2el", "mean")
    if ttft is not None and whole is not None:
        if ttft > whole * (1 + 1e-6):
            run.drop("ttft")
            run.drop("e2el")
            run.log.add(
                "order.ttft", "the mean TTFT is longer than the mean latency; neither is used"
            )
        elif ttft >= whole * (1 - 1e-9) and run.facts.get("output_per_request", 2) > 1:
            for metric in ("ttft", "tpot", "itl"):
                run.drop(metric)
            run.log.add(
                "ttft.no-stream",
                "the first token comes with the last: nothing was streamed, so TTFT, TPOT and ITL "
                "are not measured",
            )


def _within(run: Run, metric: str, mean: float, duration: float) -> None:
    if mean <= duration * _OVER:
        return
    run.drop(metric)
    factor = " (milliseconds taken for seconds?)" if mean > 100 * duration else ""
    run.log.add(
        "order.duration",
        f"the mean of {metric} is longer than the whole run{factor}; not used",
    )
