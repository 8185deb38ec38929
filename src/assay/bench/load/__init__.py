"""Load: what is asked of a server, in the words of ``vllm bench serve``.

Owns the request pattern and the client's arguments that stand for it. Does not own the client's
process (``client``), the rows it brings back (``rows``), blocks or gates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from assay.bench.engines.server import Server
from assay.errors import InputError

__all__ = ["Load"]


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a server.

    Parameters
    ----------
    requests : int
        Requests of one run [req].
    input_tokens, output_tokens : int
        Per request, for dataset ``random`` [tok].
    concurrency : int or None
        Most requests in flight: a closed loop. ``None`` for an open one.
    rate : float or None
        Requests sent a second, whatever comes back: an open loop [req/s]. ``math.inf`` sends all
        at once.
    burstiness : float
        Shape of the gamma distributed gaps of an open loop; 1 is Poisson, infinity is even [1].
    warmup : int or None
        Requests before the run; by default as many as are in flight, at least 2 [req].
    shared_tokens : int
        Leading tokens that all prompts of a run share, on top of ``input_tokens`` [tok].
    dataset : str
        As ``vllm bench serve`` calls it.
    options : mapping
        Further options of ``vllm bench serve``, without the dashes.
    chat : bool
        Chat instead of plain completions.

    Raises
    ------
    InputError
        When it asks for nothing.

    Examples
    --------
    >>> Load(requests=8, input_tokens=128, output_tokens=64, concurrency=4).name
    'in128-out64-c4'
    """

    requests: int
    input_tokens: int
    output_tokens: int
    concurrency: int | None = None
    rate: float | None = None
    burstiness: float = 1.0
    warmup: int | None = None
    shared_tokens: int = 0
    dataset: str = "random"
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    chat: bool = False

    def __post_init__(self) -> None:
        for name in ("requests", "input_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1", where="load", fix="ask for more")
        if self.concurrency is None and self.rate is None:
            raise InputError(
                "neither concurrency nor rate is given",
                where="load",
                fix="give concurrency for a closed loop, rate for an open one",
            )
        if self.concurrency is not None and self.concurrency > self.requests:
            raise InputError(
                f"{self.concurrency} requests cannot be in flight of {self.requests} in all",
                where="load",
                fix="raise requests, best to a multiple of concurrency",
            )

    @property
    def name(self) -> str:
        """Short and unique among the loads of one measurement in most cases."""
        parts = [f"in{self.input_tokens}", f"out{self.output_tokens}"]
        if self.concurrency is not None:
            parts.append(f"c{self.concurrency}")
        if self.rate is not None:
            parts.append(f"r{self.rate:g}")
        return "-".join(parts)

    @property
    def asked(self) -> tuple[int | None, int | None]:
        """Input and output tokens of one request, where the dataset has fixed lengths [tok]."""
        if self.dataset == "random" and not any("range-ratio" in name for name in self.options):
            # A chat template adds tokens that only the server knows.
            inputs = None if self.chat else self.input_tokens + self.shared_tokens
            return inputs, self.output_tokens
        return None, None

    def warm(self) -> Load:
        """Return the run that comes before this one."""
        wanted = self.warmup if self.warmup is not None else max(2, self.concurrency or 2)
        return dataclasses.replace(self, requests=max(wanted, self.concurrency or 1))

    def arguments(self, server: Server, *, seed: int, result: Path) -> list[str]:
        """Return the arguments of ``vllm bench serve`` for one run.

        Parameters
        ----------
        server : Server
            Where the requests go.
        seed : int
            Of prompts and arrival times.
        result : Path
            Receives the client's result file.
        """
        recipe = server.recipe
        chosen = {
            "backend": "openai-chat" if self.chat else "openai",
            "base-url": server.url,
            "endpoint": "/v1/chat/completions" if self.chat else "/v1/completions",
            "model": recipe.model,
            "tokenizer": recipe.tokenizer or recipe.model,
            "dataset-name": self.dataset,
            "num-prompts": str(self.requests),
            "request-rate": "inf" if self.rate is None else f"{self.rate:g}",
            "burstiness": f"{self.burstiness:g}",
            "seed": str(seed),
            "temperature": "0",
            "percentile-metrics": "ttft,tpot,itl,e2el",
            "num-warmups": "0",
            "ready-check-timeout-sec": "0",
            "result-dir": str(result.parent),
            "result-filename": result.name,
        }
        if self.concurrency is not None:
            chosen["max-concurrency"] = str(self.concurrency)
        if self.dataset == "random":
            chosen["random-input-len"] = str(self.input_tokens)
            chosen["random-output-len"] = str(self.output_tokens)
            chosen["random-prefix-len"] = str(self.shared_tokens)
        chosen |= self.options
        flags = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
        return [part for name, value in chosen.items() for part in (f"--{name}", value)] + flags
