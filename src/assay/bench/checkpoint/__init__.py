"""Checkpoint: a small model with random weights and its own tokenizer, made here from a seed.

Owns making a Llama-shaped folder that any engine serves without a network: weights drawn from a
seed, a tokenizer trained on the Python standard library's own text. Kept in a cache folder outside
the project. Does not own starting an engine (``pool``) or the form llama.cpp reads (``gguf``). What
such a model says means nothing; what it costs to serve depends on its shape only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from assay.errors import InputError
from assay.ledger import store

__all__ = ["SMALL", "Shape", "cache", "make"]

_CACHE = "ASSAY_CACHE"
# Text to train a tokenizer on: present wherever Python is, and the same for one version of it.
_TEXT_FILES = 200
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a Llama-like model.

    Parameters
    ----------
    layers, hidden, intermediate : int
        Layers, width of the residual stream and of the feed-forward part.
    heads, kv_heads, head_dim : int
        Query heads, KV heads and their width.
    vocabulary : int
        Entries of the tokenizer; the trained one may have fewer.
    longest : int
        Longest context [tok].
    seed : int
        Seed of the weights.
    """

    layers: int = 4
    hidden: int = 256
    intermediate: int = 688
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    vocabulary: int = 8192
    longest: int = 32768
    seed: int = 0

    def config(self) -> dict[str, object]:
        """Return the fields of its ``config.json``."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "bos_token_id": 0,
            "dtype": "bfloat16",
            "eos_token_id": 0,
            "head_dim": self.head_dim,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.longest,
            "model_type": "llama",
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "pad_token_id": 3,
            "tie_word_embeddings": True,
            "vocab_size": self.vocabulary,
        }


SMALL = Shape()


def cache() -> Path:
    """Return the folder that made checkpoints are kept in.

    ``ASSAY_CACHE`` names it; else ``assay`` in the user's cache folder.
    """
    named = os.environ.get(_CACHE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "assay"


def make(shape: Shape = SMALL, *, folder: Path | None = None) -> Path:
    """Return a folder with a checkpoint of this shape, made on first use.

    Parameters
    ----------
    shape : Shape
        What to make; 5 million parameters and 11 MB by default.
    folder : Path, optional
        Where checkpoints are kept; :func:`cache` when not given.

    Returns
    -------
    Path
        The checkpoint's folder; its name carries a digest of the shape.

    Raises
    ------
    InputError
        When torch, transformers or tokenizers is missing.

    Notes
    -----
    Some 5 s and 0.5 GB for the default shape, most of it the tokenizer's training.
    """
    base = folder if folder is not None else cache()
    done = base / f"llama-{store.digest(store.json_text(dataclasses.asdict(shape)))[:12]}"
    if (done / "config.json").is_file():
        return done
    base.mkdir(parents=True, exist_ok=True)
    # Made beside its place and renamed, so that a killed maker leaves no half checkpoint.
    making = Path(tempfile.mkdtemp(dir=base, prefix=".making-"))
    try:
        _fill(shape, making)
        with contextlib.suppress(OSError):  # another process was first; its folder is the same
            making.rename(done)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return done


def _fill(shape: Shape, folder: Path) -> None:
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed, so no model can be made", fix="install the extra 'cpu'"
        ) from None
    _train_tokenizer(shape, folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(shape.seed)
        model = LlamaForCausalLM(LlamaConfig(**shape.config())).to(torch.bfloat16)
    model.generation_config.eos_token_id = 0
    model.save_pretrained(folder)
    # As few fields as published files have; the class fills in the rest.
    store.write(folder / "config.json", store.json_text(shape.config()))


def _train_tokenizer(shape: Shape, folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text(), trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_SPECIAL[0],
        eos_token=_SPECIAL[0],
        pad_token=_SPECIAL[3],
        model_max_length=shape.longest,
    )
    wrapped.chat_template = _CHAT
    wrapped.save_pretrained(folder)


def _text() -> Iterator[str]:
    library = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(library.glob("*.py"))[:_TEXT_FILES]:
        with contextlib.suppress(InputError):
            yield store.read_text(file)
