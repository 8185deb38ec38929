"""No configuration, however broken, crashes the KV room or gets a guessed number."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.physics import kv, mistakes

Configs = dict[str, dict[str, Any]]
FIELDS = [
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "sliding_window",
    "sliding_window_pattern",
    "layer_types",
    "layers_block_type",
    "hybrid_override_pattern",
    "full_attention_interval",
    "block_configs",
    "num_kv_shared_layers",
    "text_config",
    "linear_attn_config",
    "quantization_config",
    "attention_types",
    "use_sliding_window",
    "torch_dtype",
    "mamba_expand",
    "mamba_d_state",
    "cla_share_factor",
    "cross_attention_layers",
    "architectures",
    "attn_config",
    "attention_chunk_size",
]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 130)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["gemma3", "llama", "zamba2", "mamba", "full_attention", "LLLG", "M*E", 10**40]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


def checked(config: Any, tp: int = 1, pp: int = 1) -> None:
    """Hold an answer to what is true of every answer."""
    found = kv.report(config, tokens=1000, sequences=2, tp=tp, pp=pp)
    figures = [
        found.all_layers_bytes_per_token,
        found.growth_bytes_per_token,
        found.bounded_bytes_per_sequence,
    ]
    if found.status == "refused":
        assert figures == [None] * 3
        assert len(found.reason) > len("cannot derive: ")
        return
    assert found.status in ("ok", "lower-bound", "upper-bound")
    assert bool(found.reason) == (found.status != "ok")
    every, growth, bounded = (n for n in figures if n is not None)
    assert 0 <= growth <= every
    assert bounded >= 0
    capped, full = found.bytes_at["capped"], found.bytes_at["all_layers"]
    assert capped is not None
    assert full is not None
    assert capped <= full
    assert sum(found.layers.values()) >= 1
    held = kv.capacity(found, 2**30)
    assert (held.tokens_all_layers or 0) >= 0
    assert mistakes.explain(every or 1, found).sentence


@given(config=st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=12) | JUNK)
def test_random_objects_are_answered_or_refused(config: Any) -> None:
    checked(config)


@given(data=st.data())
def test_mutated_models_are_answered_or_refused(configs: Configs, data: st.DataObject) -> None:
    config = copy.deepcopy(configs[data.draw(st.sampled_from(sorted(configs)))])
    for _ in range(data.draw(st.integers(1, 3))):
        inner = config.get("text_config")
        part = inner if isinstance(inner, dict) and data.draw(st.booleans()) else config
        field = data.draw(
            st.sampled_from(sorted(part) + FIELDS) if part else st.sampled_from(FIELDS)
        )
        if data.draw(st.booleans()):
            part.pop(field, None)
        else:
            part[field] = data.draw(JUNK)
    checked(config, data.draw(st.sampled_from([1, 2, 3, 8, 64])), data.draw(st.integers(1, 5)))


@given(data=st.data())
def test_a_model_without_layers_or_heads_never_gets_a_number(
    configs: Configs, data: st.DataObject
) -> None:
    # Written out for each spelling: what decides the answer is taken out, so there is none.
    names = [n for n in sorted(configs) if n != "gemma3-4b nested"]
    config = copy.deepcopy(configs[data.draw(st.sampled_from(names))])
    parts = [config, *(p for p in config.values() if isinstance(p, dict))]
    spellings = {
        "heads": (
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
            "decoder_attention_heads",
            "num_query_heads",
            "mamba_num_heads",
        ),
        "layers": (
            "num_hidden_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "num_transformer_layers",
            "decoder_layers",
            "num_decoder_layers",
            "layer_types",
            "layers_block_type",
            "hybrid_override_pattern",
        ),
    }
    chosen = data.draw(st.sampled_from(sorted(spellings)))
    lost = [part.pop(field) for part in parts for field in spellings[chosen] if field in part]
    found = kv.report(config)
    attends = any(found.layers.get(kind) for kind in ("full", "sliding", "chunked", "mla"))
    assert not (lost and attends), found.layers
