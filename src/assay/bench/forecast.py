"""Forecast: what the twin says of the A/B over a throttled link, before anyone looks.

Owns the same servers and loads on the simulated clock, with the pace that was measured first. Does
not own the clock (``twin``) or the measurement (``throttled``).

Left out, and to be known when both are laid beside each other: what a request costs outside the
engine's steps, and the copy itself, which takes the engine's thread here.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.bench import throttled, tier
from assay.bench.load import Load
from assay.bench.twin import engine, run, steptime, workload
from assay.ledger import store

__all__ = ["forecast"]

_DRAWS = 5  # orders of the requests; their mean is the forecast
_LATER = 1e4  # by then all that was sent to the host is there [s]

Row = dict[str, str | int | float]


def forecast(checkpoint: Path, pace: throttled.Pace) -> list[Row]:
    """Return the predicted output rate and mean TTFT of each arm under each load.

    Parameters
    ----------
    checkpoint : Path
        Folder of the model.
    pace : Pace
        Of this machine.

    Returns
    -------
    list of dict
        ``arm``, ``load``, ``output_rate`` [tok/s] and ``ttft_s`` [s].
    """
    config = store.read_json(checkpoint / "config.json")
    step = steptime.Fitted(fixed=pace.per_step, per_token=pace.per_token)
    names = (tier.NONE, tier.WITHOUT, *(f"link-{ratio:g}" for ratio in throttled.RATIOS))
    rows: list[Row] = []
    for arm, (name, load) in itertools.product(names, throttled.asked().items()):
        setup = _setup(config, arm, pace)
        draws = [_one(setup, name, load, step, seed) for seed in range(_DRAWS)]
        rates, ttfts = zip(*draws, strict=True)
        means = {"output_rate": statistics.fmean(rates), "ttft_s": statistics.fmean(ttfts)}
        rows.append({"arm": arm, "load": name, **means})
    return rows


def _setup(config: Mapping[str, object], arm: str, pace: throttled.Pace) -> engine.Setup:
    ratio = throttled.link(arm)
    speed = None if ratio is None else pace.link(ratio)
    return engine.Setup(
        config,
        blocks=throttled.BLOCKS,
        block_size=throttled.BLOCK,
        budget=throttled.STEP,
        most_running=4 * throttled.IN_FLIGHT,
        longest=throttled.LONGEST,
        prefix_caching=arm != tier.NONE,
        tier=None if speed is None else engine.Tier(throttled.HOST, to_host=speed, to_device=speed),
    )


def _one(
    setup: engine.Setup, name: str, load: Load, step: steptime.StepTime, seed: int
) -> tuple[float, float]:
    """Return output rate and mean TTFT of one run of a load."""
    asks = list(_asks(name, load, seed))
    found = run.run(setup, workload.closed_loop(asks, throttled.IN_FLIGHT), step)
    ours = [n for n, when in enumerate(found.arrival) if name[:4] != "warm" or when >= _LATER]
    span = max(found.last[n] for n in ours) - min(found.arrival[n] for n in ours)
    ttfts = [found.first[n] - found.arrival[n] for n in ours]
    return sum(found.output[n] for n in ours) / span, statistics.fmean(ttfts)


def _asks(name: str, load: Load, seed: int) -> Iterator[workload.Ask]:
    """Yield the requests as the client deals them out: evenly over prefixes, in random order."""
    length, output = load.input_tokens, load.output_tokens
    groups = int(load.options.get("prefix-repetition-num-prefixes", "0"))
    if groups:
        prefix = int(load.options["prefix-repetition-prefix-len"])
        order = [number % groups for number in range(load.requests)]
        random.Random(seed).shuffle(order)
        for number, group in enumerate(order):
            yield workload.Ask(number, length, output, shared=prefix, group=group)
        return
    # In a warm load each prompt comes twice. Between the two the device has lost all, since the
    # prompts come in turn and are more than it holds.
    twice = (0.0, _LATER) if name.startswith("warm") else (0.0,)
    for lap, when in enumerate(twice):
        for number in range(load.requests):
            place = lap * load.requests + number
            yield workload.Ask(place, length, output, when, shared=length, group=number)
