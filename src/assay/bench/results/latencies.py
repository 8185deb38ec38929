"""Latencies: what no honest set of times can be, whoever wrote the file.

Owns zeros that are missing values, times in another unit, gaps that are not between tokens, and
statistics out of order. Does not own requests, tokens and rates (``checks``) or what one format
gets wrong.
"""

from __future__ import annotations

import itertools

from assay.bench.results.metrics import METRICS
from assay.bench.results.table import Run

__all__ = ["check"]

#: Latencies a client adds may end after its clock stops [1].
_OVER = 1.05
#: ITL pools all gaps and TPOT averages requests, so they differ; by this much they do not [1].
_BUNDLE = 2.0
#: Tokens of a speculative step from which its gaps are not token gaps [tok].
_ACCEPTED = 1.1
#: No server answers faster [s]: a request over the loopback and one step of the smallest model, and
#: a token at several times the fastest rate a provider offers one user (about 3,000 tok/s in 2026).
_LEAST = {"ttft": 5e-4, "tpot": 1e-4, "itl": 1e-4, "e2el": 5e-4}
#: Requests of at least so many tokens have gaps [tok].
_SEVERAL = 2
#: A second token this soon after the first was not decoded after it [s]: the weights of even a
#: 0.5 GB model take longer to read at 10 TB/s.
_BUNDLED = 5e-5
#: A mean latency so many times TTFT plus the tokens' time is not made of them [1]. Long answers
#: that are also slow ones raise it, by less.
_PARTS = 2.5
#: The standard deviation of two values is 0.71 of their range, of more values less [1].
_SPREAD = 0.75


def check(run: Run) -> None:
    """Hold a run's times to each other; take away what is contradicted, and say so.

    Parameters
    ----------
    run : Run
        With its rates and totals in order.
    """
    _zeros(run)
    _instant(run)
    _bundles(run)
    _one_token(run)
    _order(run)
    _parts(run)


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
    for metric, rule in (("ttft", "ttft.zero"), ("e2el", "e2el.zero")):
        half = run.get(metric, "p50")
        if half == 0 and run.get(metric, "mean"):
            run.drop(metric)
            run.log.add(
                rule,
                f"at least half of the {metric.upper()} values are 0 s, which is missing: not used",
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
    accepted = run.facts.get("acceptance_length", 0)
    if run.get("itl", "mean") is not None and accepted >= _ACCEPTED:
        _rename(run, "itl", "chunk_gap")
        run.log.add(
            "itl.chunks",
            f"speculative decoding makes {accepted:.3g} tokens a step: gaps are between steps, "
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
        if mean is not None:
            disordered |= mean > found.get("max", mean) * slack
            disordered |= mean * slack < found.get("min", mean)
        if disordered or _misspread(values, found.get("std"), {"min", "max"} <= found.keys()):
            run.drop(metric)
            run.log.add(
                "order.percentiles",
                f"minimum, percentiles, mean, maximum and spread of {metric} are out of order; "
                "not used",
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


def _misspread(values: list[float], std: float | None, whole: bool) -> bool:
    """Say whether a standard deviation cannot be that of values of such a range."""
    if std is None or len(values) < 2:
        return False
    span = values[-1] - values[0]
    return (std == 0 and span > 0.02 * values[-1]) or (whole and std > span * _SPREAD + 1e-6)


def _parts(run: Run) -> None:
    """Hold a latency to the first token's time plus the others'."""
    ttft, tpot, whole = (run.get(metric, "mean") for metric in ("ttft", "tpot", "e2el"))
    tokens = run.facts.get("output_per_request")
    if ttft is None or tpot is None or whole is None or not tokens or tokens < _SEVERAL:
        return
    due = ttft + tpot * (tokens - 1)
    if whole <= _PARTS * due:
        return
    for metric in ("ttft", "tpot", "itl", "chunk_gap", "e2el"):
        run.drop(metric)
    run.log.add(
        "order.parts",
        f"the mean latency is {whole:.3g} s and TTFT plus the time of {tokens:,.4g} tokens "
        f"{due:.3g} s: one of them is in another unit or of other requests; none is used",
    )
