"""GGUF: the file says what the checkpoint says, and llama.cpp makes the same of it."""

from __future__ import annotations

import json
import random
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from assay.bench import checkpoint
from assay.bench.checkpoint import gguf
from assay.bench.engines import llamacpp, server
from assay.errors import InputError
from assay.ledger import store

#: Two heads to a KV head, and a head that is not the hidden size divided by the heads.
SHAPE = checkpoint.Shape(
    layers=2, hidden=48, intermediate=80, heads=4, kv_heads=2, head_dim=16, vocabulary=400
)


def installed() -> None:
    pytest.importorskip("gguf", reason="the extra 'cpu' is not installed")
    pytest.importorskip("torch", reason="the extra 'cpu' is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    installed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_TEXT_FILES", 2)  # a tokenizer of 400 entries needs no more
        return checkpoint.make(SHAPE, folder=tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def written(made: Path) -> Any:
    import gguf as reading

    return reading.GGUFReader(gguf.write(made))


def field(written: Any, name: str) -> Any:
    return written.get_field(name).contents()


def test_every_weight_is_in_the_file_bit_for_bit(made: Path, written: Any) -> None:
    import gguf as reading
    from safetensors.torch import load_file

    weights = load_file(made / "model.safetensors")
    inside = {tensor.name: tensor for tensor in written.tensors}
    assert len(inside) == len(weights) == 2 + 9 * SHAPE.layers
    for name, there in (
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("model.layers.1.mlp.down_proj", "blk.1.ffn_down"),
        ("model.layers.1.mlp.gate_proj", "blk.1.ffn_gate"),
        ("model.layers.1.mlp.up_proj", "blk.1.ffn_up"),
        ("model.layers.0.self_attn.v_proj", "blk.0.attn_v"),
        ("model.layers.0.self_attn.o_proj", "blk.0.attn_output"),
        ("model.layers.0.input_layernorm", "blk.0.attn_norm"),
        ("model.layers.0.post_attention_layernorm", "blk.0.ffn_norm"),
    ):
        found = inside[f"{there}.weight"]
        values = reading.dequantize(found.data, found.tensor_type)
        assert (values == weights[f"{name}.weight"].float().numpy()).all(), name


@pytest.mark.parametrize(("name", "heads"), [("q", SHAPE.heads), ("k", SHAPE.kv_heads)])
def test_the_halves_of_a_head_become_neighbours(
    made: Path, written: Any, name: str, heads: int
) -> None:
    import gguf as reading
    from safetensors.torch import load_file

    before = load_file(made / "model.safetensors")[f"model.layers.0.self_attn.{name}_proj.weight"]
    (found,) = (t for t in written.tensors if t.name == f"blk.0.attn_{name}.weight")
    after = reading.dequantize(found.data, found.tensor_type)
    half = SHAPE.head_dim // 2
    for head in range(heads):
        first = head * SHAPE.head_dim
        for element in range(half):
            for there, here in ((2 * element, element), (2 * element + 1, half + element)):
                row = before[first + here].float().numpy()
                assert (after[first + there] == row).all()


def test_the_hyperparameters_are_those_of_the_configuration(made: Path, written: Any) -> None:
    from transformers import LlamaConfig

    told = LlamaConfig.from_pretrained(made)
    for name, value in {
        "general.architecture": "llama",
        "llama.block_count": told.num_hidden_layers,
        "llama.embedding_length": told.hidden_size,
        "llama.feed_forward_length": told.intermediate_size,
        "llama.context_length": told.max_position_embeddings,
        "llama.attention.head_count": told.num_attention_heads,
        "llama.attention.head_count_kv": told.num_key_value_heads,
        "llama.attention.key_length": told.head_dim,
        "llama.attention.value_length": told.head_dim,
        "llama.rope.dimension_count": told.head_dim,
        "llama.rope.freq_base": told.rope_parameters["rope_theta"],
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(told.rms_norm_eps),
        "llama.vocab_size": told.vocab_size,
    }.items():
        assert field(written, name) == value, name


def test_every_token_keeps_its_number(made: Path, written: Any) -> None:
    from transformers import AutoTokenizer

    told = AutoTokenizer.from_pretrained(made)
    tokens = field(written, "tokenizer.ggml.tokens")
    assert len(tokens) == SHAPE.vocabulary
    assert {token: tokens.index(token) for token in told.get_vocab()} == told.get_vocab()
    types = field(written, "tokenizer.ggml.token_type")
    special = [number for number, kind in enumerate(types) if kind == 3]  # llama.h: CONTROL
    assert special == sorted(told.all_special_ids + told.convert_tokens_to_ids(
        ["<|im_start|>", "<|im_end|>"]
    ))  # fmt: skip
    assert field(written, "tokenizer.ggml.eos_token_id") == told.eos_token_id
    assert field(written, "tokenizer.ggml.padding_token_id") == told.pad_token_id


def test_merges_keep_their_order(made: Path, written: Any) -> None:
    told = json.loads((made / "tokenizer.json").read_text("utf-8"))["model"]["merges"]
    assert field(written, "tokenizer.ggml.merges") == [" ".join(pair) for pair in told]
    assert len(told) > 100


def test_a_file_is_written_once(made: Path) -> None:
    first = gguf.write(made)
    before = first.stat().st_mtime_ns
    assert gguf.write(made).stat().st_mtime_ns == before
    assert [file.name for file in made.parent.iterdir() if file.name.startswith(".")] == []


def test_equal_checkpoints_make_equal_files(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / made.name
    copy.mkdir()
    for file in made.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    assert store.digest(gguf.write(copy)) == store.digest(gguf.write(made))


def test_another_rope_is_refused(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other"
    copy.mkdir()
    for file in made.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    told = json.loads((copy / "config.json").read_text("utf-8"))
    told["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    (copy / "config.json").write_text(json.dumps(told))
    with pytest.raises(InputError, match="only a Llama with plain RoPE"):
        gguf.write(copy)
    assert {file.name for file in tmp_path.iterdir()} == {"other"}


# -- the real one ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loud(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in float32 whose layers are heard: with weights as drawn, every answer is the
    prompt's last token again, whatever the layers do.
    """
    installed()
    from safetensors.torch import load_file, save_file

    made = checkpoint.make(folder=tmp_path_factory.mktemp("loud"))
    weights = {name: value.float() for name, value in load_file(made / "model.safetensors").items()}
    for name, value in weights.items():
        value *= 4 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1
        value *= 3 if name.endswith(("v_proj.weight", "o_proj.weight")) or ".mlp." in name else 1
    save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
    return made


@pytest.mark.slow
def test_llamacpp_computes_what_transformers_computes(loud: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    file = gguf.write(loud)
    exact = ("--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")
    try:
        made = llamacpp.serve(str(file), tokenizer=str(loud), weights_kind="random", flags=exact)
    except InputError as error:
        pytest.skip(str(error))
    model = AutoModelForCausalLM.from_pretrained(loud, dtype=torch.float32)
    chance = random.Random(1)
    with server.start(made, tmp_path) as running:
        for length in (3, 17, 64, 200):
            tokens = [chance.randrange(4, checkpoint.SMALL.vocabulary) for _ in range(length)]
            there = answer(running.url, tokens, 16)
            for _ in range(16):
                with torch.no_grad():
                    tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
            assert there == tokens[length:]
            assert len(set(there)) > 8  # a broken model repeats itself


@pytest.mark.slow
def test_llamacpp_splits_text_as_transformers_does(made: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    told = AutoTokenizer.from_pretrained(made)
    try:
        recipe = llamacpp.serve(str(gguf.write(made)), tokenizer=str(made), context=256)
    except InputError as error:
        pytest.skip(str(error))
    texts = ("def main():\n    return [1, 22, 333]", "it's a naïve 日本語 test 🙂  \t end ", "")
    with server.start(recipe, tmp_path) as running:
        for text in texts:
            there = asked(running.url + "/tokenize", {"content": text})["tokens"]
            assert there == told(text)["input_ids"]


def answer(url: str, tokens: list[int], length: int) -> list[int]:
    """What llama-server adds to a prompt, the most probable token each time."""
    body = {"prompt": tokens, "n_predict": length, "temperature": 0, "return_tokens": True}
    found: list[int] = asked(url + "/completion", body)["tokens"]
    return found


def asked(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as said:
        content: dict[str, Any] = json.loads(said.read())
    return content
