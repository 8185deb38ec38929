"""Manager: vLLM's block manager, on its own and inside a running engine.

Owns the names of vLLM through which blocks are handed out, counted and read: ``KVCacheManager``
without a model, and the pool of an engine in this process. Does not own the version guard
(``private``), replaying lengths (``blocks``) or processes (``pool``). Checked against the versions
in :data:`assay.bench.private.TESTED`.
"""

from __future__ import annotations

from typing import Any

from assay.bench import private

__all__ = ["Manager", "serve_and_fill"]


class Manager:
    """vLLM's own block manager over a pool of full-attention layers, without the pool's memory.

    Parameters
    ----------
    blocks : int
        Blocks in the pool; the manager keeps one of them as the null block.
    block_size : int
        Tokens a block.
    longest : int
        Longest sequence [tok].
    """

    def __init__(self, blocks: int, block_size: int, longest: int) -> None:
        private.quiet()
        with private.silence():
            import torch
            from vllm.v1.core.kv_cache_manager import KVCacheManager
            from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
            from vllm.v1.kv_cache_interface import (
                FullAttentionSpec,
                KVCacheConfig,
                KVCacheGroupSpec,
            )

        register_all_kvcache_specs(None)
        # One head of one number: only counts of blocks matter here, not their bytes.
        spec = FullAttentionSpec(
            block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.bfloat16
        )
        self._manager = KVCacheManager(
            KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            max_model_len=longest,
            scheduler_block_size=block_size,
            hash_block_size=block_size,
            enable_caching=False,
        )
        self._live: dict[str, Any] = {}
        self._blocks: dict[str, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return int(self._manager.block_pool.get_num_free_blocks())

    @property
    def held(self) -> int:
        """Blocks that the live sequences hold."""
        return sum(self._blocks.values())

    def start(self, name: str, prompt: int) -> bool:
        """Give a new sequence room for its prompt; return whether there was room."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        request = Request(
            request_id=name,
            prompt_token_ids=[0] * prompt,
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
        )
        return self._allocate(name, request, prompt)

    def extend(self, name: str, tokens: int = 1) -> bool:
        """Give a live sequence room for further tokens; return whether there was room."""
        return self._allocate(name, self._live[name], tokens)

    def stop(self, name: str) -> None:
        """Take back what a sequence holds."""
        self._manager.free(self._live.pop(name))
        del self._blocks[name]

    def _allocate(self, name: str, request: Any, tokens: int) -> bool:
        new = self._manager.allocate_slots(request, tokens)
        if new is None:
            return False
        request.num_computed_tokens += tokens
        self._live[name] = request
        self._blocks[name] = self._blocks.get(name, 0) + len(new.blocks[0])
        return True


def serve_and_fill(
    model: str, *, memory: int, longest: int, length: int, block_size: int | None, kv_dtype: str
) -> dict[str, Any]:
    """Start an engine in this process, read its KV pool and fill it. Call it in a fresh process.

    Parameters
    ----------
    model : str
        Folder or id of a model.
    memory : int
        KV memory [B].
    longest, length : int
        Longest sequence served, and length of the prompts the pool is filled with [tok].
    block_size : int or None
        Tokens a block; the engine's choice when None.
    kv_dtype : str
        vLLM's name of the cache's format.

    Returns
    -------
    dict
        ``device``, ``blocks``, ``block_size``, ``tensor_bytes``, ``steps``, ``refused_at``,
        ``options`` and ``packages``.
    """
    private.quiet()
    import torch
    import transformers
    from vllm import LLM

    options: dict[str, Any] = {
        # Without it the scheduler counts tokens before their keys are in the pool.
        "async_scheduling": False,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "kv_cache_dtype": kv_dtype,
        "kv_cache_memory_bytes": memory,
        "max_model_len": longest,
        # One prompt is read in one step, so a step adds one whole sequence.
        "max_num_batched_tokens": 2 * longest,
        "max_num_seqs": 1024,
        "seed": 0,
    }
    if block_size is not None:
        options["block_size"] = block_size
    engine = LLM(model, skip_tokenizer_init=True, **options).llm_engine
    core = engine.engine_core.engine_core
    pool = core.scheduler.kv_cache_config
    block = int(pool.kv_cache_groups[0].kv_cache_spec.block_size)
    steps, refused_at = _fill(engine, core.scheduler, block, length, longest)
    gpu = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "blocks": int(pool.num_blocks),
        "block_size": block,
        "tensor_bytes": _tensor_bytes(engine),
        "steps": steps,
        "refused_at": refused_at,
        "options": options,
        "packages": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def _tensor_bytes(engine: Any) -> int:
    """Return the bytes behind the layers' cache tensors, each piece of storage once."""
    import torch

    found: dict[int, int] = {}
    layers = engine.vllm_config.compilation_config.static_forward_context
    for layer in layers.values():
        kept = getattr(layer, "kv_cache", None)
        for tensor in kept if isinstance(kept, list | tuple) else [kept]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def _fill(
    engine: Any, scheduler: Any, block: int, length: int, longest: int
) -> tuple[list[dict[str, int]], int]:
    from vllm import SamplingParams

    blocks = scheduler.kv_cache_manager.block_pool
    usable = blocks.get_num_free_blocks()
    params = SamplingParams(max_tokens=longest - length, ignore_eos=True, detokenize=False)
    steps: list[dict[str, int]] = []
    for number in range(1, 1025):
        # Lengths differ, so that last blocks are filled to different degrees.
        prompt = [(number * 31 + i * 7) % 997 + 4 for i in range(length - number % block)]
        engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        engine.step()
        if scheduler.waiting or len(scheduler.running) < number:
            break  # it found no room, or another one lost its own
        kept = [request.num_computed_tokens for request in scheduler.running]
        steps.append(
            {
                "sequences": number,
                "tokens": sum(kept),
                "blocks": usable - blocks.get_num_free_blocks(),
                "expected_blocks": sum(-(-tokens // block) for tokens in kept),
            }
        )
    return steps, len(steps)
