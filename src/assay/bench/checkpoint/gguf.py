"""GGUF: a made checkpoint as the one file that llama.cpp reads.

Owns writing it: the same weights, the same tokenizer, the hyperparameters under llama.cpp's names.
Does not own making the checkpoint (``checkpoint``) or serving it (``engines/llamacpp``).

llama.cpp's own converter knows a tokenizer by the hash of what it makes of a text, so it refuses
one that was trained here. What such a tokenizer is, is known here: byte-level BPE that splits text
as GPT-2 does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.ledger import store

__all__ = ["write"]

_SPLIT = "gpt-2"  # llama.cpp's name for the pattern of ``tokenizers``' ByteLevel


def write(folder: Path) -> Path:
    """Return the GGUF file of a checkpoint that :func:`assay.bench.checkpoint.make` made.

    Parameters
    ----------
    folder : Path
        The checkpoint's folder.

    Returns
    -------
    Path
        Beside the folder, written on first use. Matrices in bfloat16 stay so, bit for bit; all
        else becomes float32, in which llama.cpp wants norms.

    Raises
    ------
    InputError
        When a package is missing, or the folder holds another kind of model or tokenizer.

    Notes
    -----
    RoPE turns pairs of elements. transformers pairs an element with the one half a head further,
    llama.cpp with its neighbour, so rows of the query and key projections are reordered within
    each head (``conversion/llama.py`` of llama.cpp, build 11434).
    """
    done = folder.with_name(folder.name + ".gguf")
    if done.is_file():
        return done
    try:
        import gguf
        from safetensors.torch import load_file
        from transformers import LlamaConfig
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed, so no GGUF file can be written",
            fix="install the extra 'cpu'",
        ) from None
    config = LlamaConfig.from_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    # Written beside its place and renamed, so that a killed writer leaves no half file.
    hidden = folder.with_name(f".writing-{os.getpid()}-{done.name}")
    writer = gguf.GGUFWriter(hidden, "llama")
    try:
        _describe(writer, config, folder)
        _add_tokenizer(writer, folder, config.vocab_size)
        _add_weights(writer, weights, config, folder)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(hidden, done)
    finally:
        hidden.unlink(missing_ok=True)
    return done


def _describe(writer: Any, config: Any, folder: Path) -> None:
    rope = config.rope_parameters
    if rope["rope_type"] != "default" or config.attention_bias or config.mlp_bias:
        raise InputError(
            "only a Llama with plain RoPE and without biases can be written",
            where=store.shown(folder / "config.json"),
        )
    writer.add_name(folder.name)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: Any, folder: Path, rows: int) -> None:
    import gguf

    content = store.read_json(folder / "tokenizer.json")
    settings = store.read_json(folder / "tokenizer_config.json")
    model = content["model"]
    if model["type"] != "BPE" or content["pre_tokenizer"]["type"] != "ByteLevel":
        raise InputError(
            "only a byte-level BPE tokenizer can be written",
            where=store.shown(folder / "tokenizer.json"),
        )
    kinds = gguf.TokenType
    # The trained vocabulary may be smaller than the embedding; llama.cpp wants a token a row.
    tokens = [f"[PAD{row}]" for row in range(rows)]
    types = [kinds.UNUSED] * rows
    for token, number in model["vocab"].items():
        tokens[number], types[number] = token, kinds.NORMAL
    for added in content["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = kinds.CONTROL if added["special"] else kinds.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_SPLIT)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(
        [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    )
    numbers = {token: number for number, token in enumerate(tokens)}
    writer.add_bos_token_id(numbers[settings["bos_token"]])
    writer.add_eos_token_id(numbers[settings["eos_token"]])
    writer.add_pad_token_id(numbers[settings["pad_token"]])
    writer.add_add_bos_token(False)  # nor does the checkpoint's own tokenizer
    writer.add_add_eos_token(False)
    template = folder / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(store.read_text(template))


def _add_weights(writer: Any, weights: Mapping[str, Any], config: Any, folder: Path) -> None:
    import gguf
    import torch

    narrow = weights["model.embed_tokens.weight"].dtype == torch.bfloat16
    kinds = gguf.LlamaFileType
    writer.add_file_type(kinds.MOSTLY_BF16 if narrow else kinds.ALL_F32)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in sorted(weights.items()):
        known = names.get_name(name, try_suffixes=(".weight",))
        if known is None:
            raise InputError(f"'{name}' is no part of a Llama", where=store.shown(folder))
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = _paired(tensor, config.head_dim)
        if tensor.dim() > 1 and tensor.dtype == torch.bfloat16:
            # numpy has no bfloat16; the writer takes its bytes.
            data = tensor.contiguous().view(torch.uint8).numpy()
            writer.add_tensor(known, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(known, tensor.float().numpy())


def _paired(weight: Any, head_dim: int) -> Any:
    """Return a projection with the halves of each head interleaved."""
    rows, columns = weight.shape
    halves = weight.reshape(rows // head_dim, 2, head_dim // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns)
