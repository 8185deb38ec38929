"""Time `assay kv`: many configurations in one process, and one in a process of its own.

Owns the configurations: those the repository keeps, over and over. Prints medians of several
rounds and their ratios to the bars (1,000 configurations in 2 s, one process in 0.3 s), and to a
bare start of the interpreter on the same machine. Run it as ``python benchmarks/kv.py [ROUNDS]``.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from assay.bench import agreement
from assay.physics import kv

_MANY = 1000  # configurations in one process
_MODEL = "llama-2-70b"  # data/models
_MANY_BAR, _ONE_BAR = 2.0, 0.3  # [s]


def median(task: Callable[[], object], rounds: int) -> float:
    """Return the median time of a task [s]."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        task()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def process(*arguments: str) -> None:
    """Run an interpreter to its end, and discard what it prints."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def _worked() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Time both ways and print medians and ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    kept = [config for _, _, config in agreement.configs()]
    configs = list(itertools.islice(itertools.cycle(kept), _MANY))

    many = median(lambda: [kv.report(config, tokens=32_768) for config in configs], rounds)
    bare = median(lambda: process("-c", "pass"), rounds)
    before = _worked()
    one = median(lambda: process("-m", "assay", "kv", _MODEL, "--json"), rounds)
    work = (_worked() - before) / rounds

    print(f"medians of {rounds} rounds on this machine, {len(kept)} different configurations")
    print(f"{_MANY:,} configurations, one process: {many:.3f} s, {many / _MANY_BAR:.2f} of the bar")
    print(f"one `assay kv` process: {one:.3f} s, {one / _ONE_BAR:.2f} of the bar")
    print(f"... of which at work on a processor: {work:.3f} s (a busy machine makes it wait)")
    print(f"... over a bare interpreter ({bare:.3f} s): {one / bare:.1f}×")
    print(f"... over one configuration in a running process: {one / (many / _MANY):,.0f}×")


if __name__ == "__main__":
    main()
