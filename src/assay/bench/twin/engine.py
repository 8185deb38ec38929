"""Engine: vLLM's scheduler with everything real but the model.

Owns the names of vLLM through which a request is scheduled and its output handed back. The version
guard is `assay.bench.private`; the house that checks it is the same. Does not own the clock
(`run`), the duration of a step (`steptime`) or of a transfer (`offload`).

Limits. Output tokens are all alike. Steps follow each other: the asynchronous scheduler, which
plans a step while the one before runs, is not used, nor speculative decoding. Tensor parallelism is
pretended, as in the oracle. How groups of layers are padded follows the CPU build.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.bench import private
from assay.bench.twin.steptime import Work
from assay.bench.twin.workload import Ask
from assay.errors import InputError
from assay.ledger import store

__all__ = ["Engine", "Plan", "Setup", "Tier", "Token", "budgets", "work_of"]

#: A request that got a token; with its first, the tokens found cached; whether it was the last.
Token = tuple[str, tuple[int, int] | None, bool]

_TOKEN = 7  # what every step "samples"
_CONNECTOR = "OffloadingConnector"


@dataclasses.dataclass(frozen=True, slots=True)
class Tier:
    """A second home for KV blocks, in the host's memory.

    Parameters
    ----------
    memory : int
        Of the tier, on the whole deployment [B].
    to_host, to_device : float
        Speed of the link each way, on one device [B/s].
    latency : float
        What a transfer takes besides its bytes [s].
    blocks_per_chunk : int
        Blocks that are moved as one.
    """

    memory: int
    to_host: float = 25e9
    to_device: float = 25e9
    latency: float = 0.0
    blocks_per_chunk: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """What the engine is told at its start.

    Parameters
    ----------
    config : Mapping
        The model's ``config.json``.
    kv_bytes : int, optional
        KV memory of one device [B]. Give this or ``blocks``.
    blocks : int, optional
        Blocks in the pool; the engine keeps one for itself.
    tp : int
        Tensor-parallel size [GPU].
    block_size : int
        Tokens a block [tok].
    budget : int
        Most tokens a step, ``max_num_batched_tokens`` [tok].
    most_running : int
        Most sequences at once, ``max_num_seqs``.
    longest : int
        Longest sequence, ``max_model_len`` [tok].
    chunked, prefix_caching : bool
        Whether prompts may be split, and whether prefixes are kept.
    kv_dtype : str
        vLLM's name of the cache's format.
    policy : str
        ``fcfs`` or ``priority``.
    tier : Tier, optional
        KV offloading to the host.
    """

    config: Mapping[str, object]
    kv_bytes: int | None = None
    blocks: int | None = None
    tp: int = 1
    block_size: int = 16
    budget: int = 2048
    most_running: int = 256
    longest: int = 8192
    chunked: bool = True
    prefix_caching: bool = True
    kv_dtype: str = "auto"
    policy: str = "fcfs"
    tier: Tier | None = None

    def check(self) -> None:
        """Raise InputError when the parts do not go together."""
        if (self.kv_bytes is None) == (self.blocks is None):
            raise InputError("give the KV memory in bytes or in blocks, and not both")
        if not self.chunked and self.budget < self.longest:
            raise InputError(
                f"without chunks a prompt of {self.longest} tokens does not fit a budget of "
                f"{self.budget}",
                fix="raise the budget to the longest sequence",
            )
        if self.tier is not None and not self.prefix_caching:
            raise InputError("offloaded blocks are found by their prefix", fix="turn it on")

    def options(self) -> dict[str, Any]:
        """Return vLLM's arguments for it, the tier left out."""
        return {
            "async_scheduling": False,
            "block_size": self.block_size,
            "enable_chunked_prefill": self.chunked,
            "enable_prefix_caching": self.prefix_caching,
            "kv_cache_dtype": self.kv_dtype,
            "max_model_len": self.longest,
            "max_num_batched_tokens": self.budget,
            "max_num_seqs": self.most_running,
            "num_gpu_blocks_override": self.blocks,
            "scheduling_policy": self.policy,
        }


@dataclasses.dataclass(slots=True)
class Plan:
    """One step as the scheduler made it.

    Parameters
    ----------
    work : Work
        What it computes.
    output, names, sampled : object, list of str, list of list of int
        The scheduler's own output, whose requests it is for, and the token each gets, if any.
    """

    work: Work
    output: Any
    names: list[str]
    sampled: list[list[int]]

    @property
    def preempted(self) -> tuple[str, ...]:
        """Requests that lost their blocks in it."""
        return tuple(self.output.preempted_req_ids or ())

    @property
    def transfers(self) -> Any:
        """What the offloading connector asks for; None without a tier."""
        return self.output.kv_connector_metadata

    @property
    def copies(self) -> int:
        """Blocks that are copied before the step, because a request must not write to them."""
        return len(getattr(self.output, "kv_cache_block_copies", None) or ())

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each request in the step [tok]."""
        return dict(self.output.num_scheduled_tokens)


class Engine:
    """The scheduler and its block manager.

    Parameters
    ----------
    setup : Setup
        What it is told.

    Raises
    ------
    InputError
        When vLLM is missing or refuses the set-up.
    """

    def __init__(self, setup: Setup) -> None:
        setup.check()
        private.quiet()
        self.setup = setup
        with private.silence(), tempfile.TemporaryDirectory(prefix="assay-twin-") as name:
            folder = Path(name)
            store.write(folder / "config.json", _json(setup.config))
            try:
                self._build(folder)
            except (KeyboardInterrupt, MemoryError, InputError):
                raise
            except Exception as error:
                raise InputError(f"vLLM refuses the set-up: {private.describe(error)}") from None
        self._live: dict[str, Any] = {}

    def _build(self, folder: Path) -> None:
        from vllm import SamplingParams
        from vllm.config import KVTransferConfig, set_current_vllm_config
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import (
            generate_scheduler_kv_cache_config,
            get_request_block_hasher,
            init_none_hash,
            resolve_kv_cache_block_sizes,
        )
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request
        from vllm.v1.structured_output import StructuredOutputManager

        setup = self.setup
        options = setup.options()
        config = private.engine_config(folder, **options)
        specs, _, self.parameters = private.layer_specs(config, setup.tp)
        # The CPU build turns these off for kernels it lacks; no kernel runs here.
        config.cache_config.enable_prefix_caching = setup.prefix_caching
        config.scheduler_config.enable_chunked_prefill = setup.chunked
        config.scheduler_config.max_num_batched_tokens = setup.budget
        memory = setup.kv_bytes if setup.kv_bytes is not None else 2**50
        pool = private.pool_config(config, specs, memory)
        pool = generate_scheduler_kv_cache_config([pool])
        self.blocks = config.cache_config.num_gpu_blocks = int(pool.num_blocks)
        self.block_bytes = sum(
            group.kv_cache_spec.page_size_bytes * len(group.layer_names)
            for group in pool.kv_cache_groups
        )
        if setup.tier is not None:
            config.kv_transfer_config = KVTransferConfig(
                kv_connector=_CONNECTOR,
                kv_role="kv_both",
                kv_connector_extra_config={
                    "cpu_bytes_to_use": setup.tier.memory // setup.tp,
                    "blocks_per_chunk": setup.tier.blocks_per_chunk,
                },
            )
        with set_current_vllm_config(config):
            size, hashed = resolve_kv_cache_block_sizes(pool, config)
            self._scheduler = Scheduler(
                vllm_config=config,
                kv_cache_config=pool,
                structured_output_manager=StructuredOutputManager(config),
                block_size=size,
                hash_block_size=hashed,
                log_stats=False,
            )
        init_none_hash(sha256)
        self._manager = self._scheduler.kv_cache_manager
        self._hasher = get_request_block_hasher(hashed, sha256) if setup.prefix_caching else None
        self._request, self._sampling = Request, SamplingParams
        # One for all steps: the scheduler reads it and keeps nothing of it.
        self._result = ModelRunnerOutput(
            req_ids=[],
            req_id_to_index={},
            sampled_token_ids=[],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    # -- requests -----------------------------------------------------------------------------

    def submit(self, ask: Ask, when: float) -> str:
        """Hand a request to the scheduler and return its name."""
        if ask.prompt + ask.output > self.setup.longest:
            raise InputError(
                f"a request of {ask.prompt} + {ask.output} tokens is longer than "
                f"{self.setup.longest}",
                fix="raise the longest sequence",
            )
        name = str(ask.number)
        request = self._request(
            request_id=name,
            prompt_token_ids=ask.tokens(),
            sampling_params=self._sampling(max_tokens=ask.output, ignore_eos=True),
            pooling_params=None,
            arrival_time=when,
            block_hasher=self._hasher,
        )
        self._live[name] = request
        self._scheduler.add_request(request)
        return name

    @property
    def busy(self) -> bool:
        """Whether a request is waiting or running."""
        return bool(self._live)

    @property
    def running(self) -> int:
        """Requests that hold a place in the batch."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Requests that are not in the batch yet."""
        return len(self._live) - len(self._scheduler.running)

    @property
    def usage(self) -> float:
        """Share of the pool in use [1]."""
        return float(self._manager.usage)

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return int(self._manager.block_pool.get_num_free_blocks())

    def held(self) -> dict[str, list[int]]:
        """Return the blocks of each live request, all groups of layers together."""
        return {
            name: [block for group in self._manager.get_block_ids(name) for block in group]
            for name in self._live
        }

    # -- steps --------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Let the scheduler make a step."""
        scheduler = self._scheduler
        output = scheduler.schedule()
        names: list[str] = []
        sampled: list[list[int]] = []
        return Plan(work_of(output, scheduler.requests, names, sampled), output, names, sampled)

    def complete(self, plan: Plan, transfers: Any = None) -> list[Token]:
        """Hand a step's output back.

        Parameters
        ----------
        plan : Plan
            The step.
        transfers : object, optional
            What the offloading tier reports, from `offload`.

        Returns
        -------
        list of (str, (int, int) or None, bool)
            Requests that got a token; with the first one, how many tokens of the prompt were found
            in the pool and in the host's memory [tok]; and whether it was the last.
        """
        result, names = self._result, plan.names
        if names != result.req_ids:  # most steps hold the same requests as the one before
            result.req_ids = names
            result.req_id_to_index = {name: place for place, name in enumerate(names)}
        result.sampled_token_ids = plan.sampled
        result.kv_connector_output = transfers
        found: list[Token] = []
        for outputs in self._scheduler.update_from_output(plan.output, result).values():
            for output in outputs.outputs:
                name, first = output.request_id, output.prefill_stats
                done = output.finish_reason is not None
                if done:
                    del self._live[name]
                hits = first and (first.num_local_cached_tokens, first.num_external_cached_tokens)
                found.append((name, hits, done))
        return found


def budgets() -> list[dict[str, str | int]]:
    """Ask vLLM which step budget it takes when it is told none, for classes of card.

    Returns
    -------
    list of dict
        ``card`` (what the class stands for), ``entry`` and ``budget`` [tok].

    Notes
    -----
    vLLM looks at the name and the memory of the card it runs on, so it is shown one. A card's name
    and memory decide, nothing else.
    """
    private.quiet()
    with private.silence():
        from vllm.engine import arg_utils
        from vllm.usage.usage_lib import UsageContext

    entries = {"LLM class": UsageContext.LLM_CLASS, "API server": UsageContext.OPENAI_API_SERVER}
    real, rows = arg_utils.current_platform, list[dict[str, str | int]]()
    try:
        for card, (name, memory) in _CARDS.items():
            if name:
                arg_utils.current_platform = _Shown(name, memory)
            found, _ = arg_utils.EngineArgs.get_batch_defaults(1)
            rows += [{"card": card, "entry": e, "budget": found[u]} for e, u in entries.items()]
            arg_utils.current_platform = real
    finally:
        arg_utils.current_platform = real
    return rows


#: Class of card -> the name and memory [B] it is shown as; an empty name is the CPU itself.
_CARDS = {
    "180 GiB, such as B200": ("NVIDIA B200", 180 * 2**30),
    "80 GiB, such as H100": ("NVIDIA H100 80GB HBM3", 80 * 2**30),
    "A100 of 80 GiB": ("NVIDIA A100-SXM4-80GB", 80 * 2**30),
    "48 GiB or less, such as L40S": ("NVIDIA L40S", 48 * 2**30),
    "no card, the CPU build": ("", 0),
}


class _Shown:
    """A platform with one card, for code that asks for its name and memory."""

    def __init__(self, name: str, memory: int) -> None:
        self._name, self._memory = name, memory

    def get_device_name(self, *_: object) -> str:
        return self._name

    def get_device_total_memory(self, *_: object) -> int:
        return self._memory

    def is_tpu(self) -> bool:
        return False

    def is_cpu(self) -> bool:
        return False


def work_of(
    output: Any, requests: Mapping[str, Any], names: list[str], sampled: list[list[int]]
) -> Work:
    """Return what a scheduler's output computes, and fill in who is in it and gets a token.

    Call it right after ``schedule``, which has already counted the step's tokens as computed.
    """
    scheduled = output.num_scheduled_tokens
    context, decoded, pairs = 0, 0, 0.0
    for name, count in scheduled.items():
        request = requests[name]
        computed = request.num_computed_tokens
        context += computed
        if count == 1:  # a decoding sequence has one pair a token of context
            decoded += computed
        else:
            pairs += count * (computed - 0.5 * (count - 1))
        names.append(name)
        sampled.append([_TOKEN] if computed >= request.num_tokens else [])
    return Work(output.total_num_scheduled_tokens, len(names), context, pairs + decoded, decoded)


def _json(config: Mapping[str, object]) -> str:
    # Laid out by hand: the ledger's JSON writes 1.0 as 1, which some fields refuse.
    return json.dumps(dict(config))
