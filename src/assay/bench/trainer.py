"""Trainer: a small model with a reasoning switch, trained here on generated arithmetic.

Owns the course (shape, data, steps, seed), the character tokenizer with its chat template, and the
training loop. Kept in the cache folder of ``checkpoint``, never in git. Does not own the questions
(``arithmetic``), serving (``engines``) or asking (``exam``).

The switch is the one Qwen3's template uses: with ``enable_thinking`` the prompt ends in an opened
``<think>``, without it in an empty ``<think></think>``. The model is trained on both forms of the
same sums, half and half: with the tag opened it writes one small sum a step and then the result,
with the tag closed the result at once. What such a model shows is how the mechanism works (more
tokens, more often right where steps are needed) and that the experiment can be run; how large the
effect is in a language model it cannot show.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.bench import checkpoint
from assay.bench.exam import arithmetic
from assay.errors import InputError
from assay.ledger import store

if TYPE_CHECKING:
    import torch

__all__ = ["COURSE", "TEMPLATE", "VOCABULARY", "Course", "prompt", "train"]

# How this model is asked: it has no words.
TEMPLATE = "{expression}"
_OPEN, _CLOSE = "<think>", "</think>"
_END, _START = "<|endoftext|>", "<|im_start|>"
# The first four as in ``checkpoint``, whose config names their places.
VOCABULARY = (_END, _START, "<|im_end|>", "<|pad|>", _OPEN, _CLOSE, *"0123456789+-=;")
_PAD = 3
_CHAT = (
    "<|im_start|>{{ messages[-1]['content'] }}="
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>"
    "{% else %}<think>{% endif %}"
)
_IGNORED = -100  # a target that torch's cross entropy leaves out

Progress = Callable[[int, int, float], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """What is trained, and for how long.

    Parameters
    ----------
    shape : Shape
        Of the model.
    steps, rows, length : int
        Optimiser steps, rows of a step [1], and their length [tok].
    rate : float
        Largest learning rate of AdamW [1]; linear warm-up over a twentieth of the steps, then a
        cosine down to a twentieth.
    seed : int
        Of weights and data.
    threads : int
        Of torch; with one, the same machine gives the same bits.
    """

    shape: checkpoint.Shape = dataclasses.field(
        default_factory=lambda: checkpoint.Shape(
            layers=4,
            hidden=128,
            intermediate=352,
            heads=4,
            kv_heads=2,
            head_dim=32,
            vocabulary=32,
            longest=256,
        )
    )
    steps: int = 2000
    rows: int = 32
    length: int = 96
    rate: float = 3e-3
    seed: int = 20260816
    threads: int = 1


COURSE = Course()


def prompt(question: arithmetic.Question, *, thinking: bool) -> str:
    """Return the text that the chat template makes of a question.

    Examples
    --------
    >>> prompt(arithmetic.Question("1-0000", 1, (3, 4)), thinking=False)
    '<|im_start|>3+4=<think></think>'
    """
    asked = arithmetic.ask(question, TEMPLATE)
    return f"{_START}{asked}={_OPEN}{'' if thinking else _CLOSE}"


def train(
    course: Course = COURSE, *, folder: Path | None = None, progress: Progress | None = None
) -> Path:
    """Return a folder with the trained checkpoint, trained on first use.

    Parameters
    ----------
    course : Course
        What to train.
    folder : Path, optional
        Where checkpoints are kept; :func:`checkpoint.cache` when not given.
    progress : callable, optional
        Called with the step, the number of steps and the loss [nat/tok].

    Returns
    -------
    Path
        The checkpoint's folder; its name carries a digest of the course.

    Raises
    ------
    InputError
        When torch, transformers or tokenizers is missing.
    """
    base = folder if folder is not None else checkpoint.cache()
    done = base / f"arithmetic-{store.digest(store.json_text(dataclasses.asdict(course)))[:12]}"
    if (done / "config.json").is_file():
        return done
    base.mkdir(parents=True, exist_ok=True)
    # Made beside its place and renamed, so that a killed trainer leaves no half checkpoint.
    making = Path(tempfile.mkdtemp(dir=base, prefix=".training-"))
    try:
        _fill(course, making, progress)
        with contextlib.suppress(OSError):  # another process was first
            making.rename(done)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return done


def _fill(course: Course, folder: Path, progress: Progress | None) -> None:
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed, so no model can be trained",
            fix="install the extra 'cpu'",
        ) from None
    _write_tokenizer(course, folder)
    before = torch.get_num_threads()
    torch.set_num_threads(course.threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(course.seed)
            config = {**course.shape.config(), "bos_token_id": 1, "dtype": "float32"}
            model = LlamaForCausalLM(LlamaConfig(**config))
            _fit(model, course, progress)
    finally:
        torch.set_num_threads(before)
    model.to(torch.bfloat16)
    model.generation_config.eos_token_id = 0
    model.save_pretrained(folder)
    store.write(
        folder / "config.json", store.json_text({**course.shape.config(), "bos_token_id": 1})
    )


def _write_tokenizer(course: Course, folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    # No merges: every character is a token, and the decoder joins them without blanks.
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(VOCABULARY)}, []))
    tokenizer.decoder = decoders.Fuse()
    # The tags are plain tokens: special ones would vanish from the served text.
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in (_OPEN, _CLOSE)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_START,
        eos_token=_END,
        pad_token=VOCABULARY[_PAD],
        model_max_length=course.shape.longest,
    )
    wrapped.chat_template = _CHAT
    wrapped.save_pretrained(folder)


# -- data -----------------------------------------------------------------------------------------


def _ids(text: str) -> list[int]:
    """Return token ids of a text made of this vocabulary's characters and tags."""
    place = {token: i for i, token in enumerate(VOCABULARY)}
    found, at = [], 0
    while at < len(text):
        tag = next((t for t in VOCABULARY[:6] if text.startswith(t, at)), text[at])
        found.append(place[tag])
        at += len(tag)
    return found


def _documents(seed: int) -> Iterator[tuple[list[int], int]]:
    """Yield token ids of solved questions without end, with the length of the question in each."""
    drawn = random.Random(seed)
    while True:
        batch = arithmetic.questions(600, seed=drawn.getrandbits(63), part="course", repeat=True)
        for question in batch:
            thinking = drawn.random() < 0.5
            asked = _ids(prompt(question, thinking=thinking))
            steps = arithmetic.scratchpad(question) + _CLOSE if thinking else ""
            yield asked + _ids(f"{steps}{question.result}{_END}"), len(asked)


def _rows(course: Course) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield inputs and targets of one step each: whole documents side by side, padded at the end.

    What is asked is no target: its digits are drawn at random, and nothing can predict them.
    """
    import torch

    documents = _documents(course.seed)
    waiting = next(documents)
    while True:
        inputs = torch.full((course.rows, course.length), _PAD)
        targets = torch.full((course.rows, course.length), _IGNORED)
        for row in range(course.rows):
            at = 0
            while at + len(waiting[0]) <= course.length:
                ids, asked = waiting
                found = torch.tensor(ids)
                inputs[row, at : at + len(ids)] = found
                targets[row, at + asked - 1 : at + len(ids) - 1] = found[asked:]
                at += len(ids)
                waiting = next(documents)
        yield inputs, targets


def _fit(model: Any, course: Course, progress: Progress | None) -> None:
    import torch

    weights = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=course.rate, betas=(0.9, 0.95))
    model.train()
    for step, (inputs, targets) in zip(range(course.steps), _rows(course), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = course.rate * _share(step, course.steps)
        logits = model(input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=_IGNORED
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress is not None and (step % 50 == 49 or step + 1 == course.steps):
            progress(step + 1, course.steps, float(loss.detach()))
    model.eval()


def _share(step: int, steps: int) -> float:
    """Return the learning rate's share of its largest: up in a line, down in a cosine."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
