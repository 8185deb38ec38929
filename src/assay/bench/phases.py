"""Phases: what rounding prefill, decode or the transfer between them does to a small model.

Owns running the trained model of ``trainer`` in two phases, with weights and activations of either
phase, or the KV cache between them, rounded to few bits; and the caches themselves. Does not own
rounding (``transfer`` states the formula) or questions.

Two measures. *Divergence*: along the answer that the unrounded model gives, the Kullback-Leibler
divergence of the next-token distribution at every place, so errors do not build up. *Accuracy*:
the rounded arm writes its own answer, so they do.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.bench import trainer
from assay.bench.exam import arithmetic
from assay.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["ARMS", "Arm", "Model", "caches", "one_thread", "open_model", "rows"]

_GROUP = 32  # values that share a scale; the width of one head of the small model
_LONGEST = 80  # more than the longest worked solution [tok]


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """What is rounded.

    Parameters
    ----------
    name : str
        Printed name.
    prefill, decode : int or None
        Bits of weights and activations of the linear layers in either phase; None leaves them.
    cache : int or None
        Bits of the KV cache when it is handed over.
    """

    name: str
    prefill: int | None = None
    decode: int | None = None
    cache: int | None = None


ARMS = tuple(
    Arm(f"{where} in {bits} bit", **{key: bits for key in keys})
    for bits in (8, 4, 3, 2)
    for where, keys in (
        ("prefill", ("prefill",)),
        ("decode", ("decode",)),
        ("both phases", ("prefill", "decode")),
        ("transfer", ("cache",)),
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """A trained model with its tokenizer.

    Parameters
    ----------
    plain : Any
        The model, in 32-bit numbers.
    tokenizer : Any
        Its tokenizer.
    """

    plain: Any
    tokenizer: Any


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: the same machine then gives the same bits.

    A model this small gains nothing from a second one, and loses much where cores are shared.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def open_model(folder: Path) -> Model:
    """Load a checkpoint of ``trainer``.

    Raises
    ------
    InputError
        When torch or transformers is missing.
    """
    try:
        import torch
        from transformers import AutoTokenizer, LlamaForCausalLM
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed, so the model cannot be run",
            fix="install the extra 'cpu'",
        ) from None
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return Model(model, AutoTokenizer.from_pretrained(folder))


def _same_length(
    model: Model, questions: Sequence[arithmetic.Question]
) -> Iterator[tuple[list[arithmetic.Question], torch.Tensor]]:
    """Yield questions whose prompts have the same length together: nothing needs padding."""
    import torch

    groups: dict[int, list[tuple[arithmetic.Question, list[int]]]] = defaultdict(list)
    for question in questions:
        text = trainer.prompt(question, thinking=True)
        ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        groups[len(ids)].append((question, ids))
    for _, group in sorted(groups.items()):
        yield [question for question, _ in group], torch.tensor([ids for _, ids in group])


# -- rounding -------------------------------------------------------------------------------------


def _round(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Round in groups along the last axis, as ``transfer.rounded`` does."""
    import torch

    grouped = values.unflatten(-1, (-1, _GROUP))
    low = grouped.amin(-1, keepdim=True)
    step = (grouped.amax(-1, keepdim=True) - low) / (2**bits - 1)
    step = torch.where(step > 0, step, torch.ones_like(step))
    return (torch.round((grouped - low) / step) * step + low).flatten(-2)


def _coarse(plain: Any, bits: int | None) -> Any:
    """Return the model with weights and inputs of its linear layers rounded, but for the head."""
    import torch

    if bits is None:
        return plain
    model = copy.deepcopy(plain)
    with torch.no_grad():
        for name, layer in model.named_modules():
            if isinstance(layer, torch.nn.Linear) and name != "lm_head":
                layer.weight.copy_(_round(layer.weight, bits))
                layer.register_forward_pre_hook(lambda _, given, b=bits: (_round(given[0], b),))
    return model


# -- two phases -----------------------------------------------------------------------------------


def _prefill(model: Any, ids: torch.Tensor, bits: int | None) -> tuple[torch.Tensor, Any]:
    """Return the next-token logits after the prompt, and the cache as it is handed over."""
    found = model(input_ids=ids, use_cache=True)
    cache = found.past_key_values
    if bits is not None:
        for layer in cache.layers:
            layer.keys, layer.values = _round(layer.keys, bits), _round(layer.values, bits)
    return found.logits[:, -1], cache


def _write(first: torch.Tensor, cache: Any, model: Any) -> torch.Tensor:
    """Return the greedy answer, from the logits after the prompt on."""
    import torch

    token = first.argmax(-1, keepdim=True)
    written = [token]
    for _ in range(_LONGEST - 1):
        if bool((torch.cat(written, 1) == 0).any(1).all()):
            break
        logits = model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1]
        token = logits.argmax(-1, keepdim=True)
        written.append(token)
    return torch.cat(written, 1)


def _along(first: torch.Tensor, cache: Any, model: Any, answer: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities of the next token at every place of a given answer."""
    import torch

    rest = model(input_ids=answer[:, :-1], past_key_values=cache, use_cache=True).logits
    return torch.log_softmax(torch.cat([first[:, None], rest], 1), -1)


def rows(
    model: Model,
    questions: Sequence[arithmetic.Question],
    *,
    arms: Sequence[Arm] = ARMS,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Return one row per question and arm, the unrounded model's first.

    Parameters
    ----------
    model : Model
        The trained model.
    questions : sequence of Question
        All are asked with the scratchpad.
    arms : sequence of Arm
        What to round.
    progress : callable, optional
        Called with one line an arm.

    Returns
    -------
    list of dict
        ``arm``, ``id``, ``level``, ``correct``; of a rounded arm also ``divergence`` [nat/tok],
        ``same`` (share of places with the same most likely token [1]), ``places`` [tok].
    """
    import torch

    found: list[dict[str, Any]] = []
    with torch.inference_mode():
        groups = []
        for asked, ids in _same_length(model, questions):
            first, cache = _prefill(model.plain, ids, None)
            answer = _write(first, cache, model.plain)
            # A cache grows as it is read on: every use starts from a prefill of its own.
            base = _along(*_prefill(model.plain, ids, None), model.plain, answer)
            groups.append((asked, ids, answer, base))
            found += _graded(model, "nothing", asked, answer)
        for arm in arms:
            before, after = _coarse(model.plain, arm.prefill), _coarse(model.plain, arm.decode)
            for asked, ids, answer, base in groups:
                own = _write(*_prefill(before, ids, arm.cache), after)
                there = _along(*_prefill(before, ids, arm.cache), after, answer)
                counts = (answer == 0).long().argmax(1) + 1
                counts[~(answer == 0).any(1)] = answer.shape[1]
                inside = torch.arange(answer.shape[1])[None] < counts[:, None]
                apart = (base.exp() * (base - there)).sum(-1)
                agree = base.argmax(-1) == there.argmax(-1)
                for row, n, d, s in zip(
                    _graded(model, arm.name, asked, own),
                    counts.tolist(),
                    (apart * inside).sum(1).tolist(),
                    (agree & inside).sum(1).tolist(),
                    strict=True,
                ):
                    found.append({**row, "divergence": d / n, "same": s / n, "places": n})
            if progress is not None:
                mine = [row for row in found if row["arm"] == arm.name]
                progress(f"{arm.name}: {sum(r['correct'] for r in mine)} of {len(mine)} right")
    return found


def _graded(
    model: Model, arm: str, asked: Sequence[arithmetic.Question], answer: torch.Tensor
) -> list[dict[str, Any]]:
    found = []
    for question, ids in zip(asked, answer.tolist(), strict=True):
        kept = ids[: ids.index(0)] if 0 in ids else ids
        text = model.tokenizer.decode(kept)
        # Without an end of the scratchpad there is no answer, only steps.
        said = arithmetic.read(text.partition("</think>")[2])
        right = arithmetic.grade(question, said)
        found.append({"arm": arm, "id": question.id, "level": question.level, "correct": right})
    return found


def caches(model: Model, questions: Sequence[arithmetic.Question]) -> list[torch.Tensor]:
    """Return the KV cache of every question with its written answer.

    Parameters
    ----------
    model : Model
        The trained model.
    questions : sequence of Question
        All are asked with the scratchpad.

    Returns
    -------
    list of Tensor
        One a question, in 16-bit brain floats: layer, key or value, token, KV head, width.
    """
    import torch

    found = []
    with torch.inference_mode():
        for _, ids in _same_length(model, questions):
            first, cache = _prefill(model.plain, ids, None)
            answer = _write(first, cache, model.plain)
            whole = _prefill(model.plain, torch.cat([ids, answer], 1), None)[1]
            ends = (answer == 0).long().argmax(1) + ids.shape[1]
            parts = [(layer.keys, layer.values) for layer in whole.layers]
            for row, end in enumerate(ends.tolist()):
                stacked = torch.stack([torch.stack([k[row], v[row]]) for k, v in parts])
                found.append(stacked[..., :end, :].transpose(2, 3).contiguous().bfloat16())
    return found
