"""Families: what a model's class assumes when its ``config.json`` is silent, by ``model_type``.

Owns facts only: each table says which class attribute or engine rule it was read from. Unless a
line says otherwise the source is the configuration classes of transformers 5.19.0
(``src/transformers/models/*/configuration_*.py``). A published file often leaves out what equals
its class default, so these are needed; a family that is not listed gets no default and is refused.
Does not own how the facts are used.
"""

from __future__ import annotations

__all__ = [
    "ALL_SILENT",
    "ATTENTION_FREE",
    "ENCODERS",
    "ENCODER_DECODERS",
    "HEAD_DIM",
    "MHA_WHEN_SILENT",
    "OFF_UNLESS_SAID",
    "PATTERNS",
    "WINDOW_EVERYWHERE",
    "WINDOW_FROM_LAYER",
]


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


# ``head_dim`` is a number in the class, so hidden/heads is wrong when the file is silent.
HEAD_DIM: dict[str, int] = {
    "afmoe": 128,
    "cohere2_moe": 128,
    "cwm": 128,
    "ernie4_5": 128,
    "gemma": 256,
    "gemma2": 256,
    "gemma3": 256,
    "gemma3n": 256,
    "gemma4": 256,
    "gemma4_unified": 256,
    "glm": 128,
    "glm4": 128,
    "gpt_oss": 64,
    "helium": 128,
    "hy_v3": 128,
    "llama4": 128,
    "mellum": 128,
    "mimo_v2_flash": 192,
    "minimax_m2": 128,
    "ministral3": 128,
    "nemotron_h": 128,
    "paddleocr_vl": 128,
    "qwen3": 128,
    "qwen3_5": 256,
    "qwen3_5_moe": 256,
    "qwen3_next": 256,
    "qwen3_vl": 128,
    "seed_oss": 128,
    "solar_open": 128,
    "step3p5": 128,
    "vaultgemma": 256,
}

# Query heads, KV heads and head width, for files that leave out all three because they equal the
# class defaults (gemma-3-4b does). One that is there alone proves nothing about the others.
ALL_SILENT: dict[str, tuple[int, int, int]] = {"gemma3": (8, 4, 256)}

# The class default of ``num_key_value_heads`` is None, or there is no such attribute: every query
# head has its own KV head. The second group is published with its own code (read from vLLM 0.32
# or from the file the model ships with).
MHA_WHEN_SILENT = _words(
    """
    afmoe apertus arcee aria blt codegen cohere cohere2 cohere2_moe ctrl biogpt bloom
    deepseek deepseek_v2 diffllama doge flex_olmo gpt2 gpt_neo gpt_neox gpt_neox_japanese gptj
    granite granitemoe granitemoe_swa granitemoehybrid granitemoeshared hunyuan_v1_dense
    hunyuan_v1_moe hyperclovax jais2 llama longcat_flash moshi mpt nanochat nemotron olmo olmo2
    olmo3 olmo_hybrid olmoe openai-gpt opt persimmon phi phi3 recurrent_gemma xglm zamba2
    aquila baichuan chatglm internlm jais minicpm openai_gpt phi-msft qwen stablelm_epoch xverse
    refinedweb refinedwebmodel falcon gpt_bigcode imagegpt fuyu
    """
)

# Which layers attend to everything when the file lists neither layer_types nor a pattern.
# ("last", n): layer i is full when (i + 1) % n == 0. ("first", n): when i % n == 0.
PATTERNS: dict[str, tuple[str, int]] = {
    "afmoe": ("last", 4),
    "cohere2": ("last", 4),
    "cwm": ("first", 4),
    "exaone4": ("last", 4),
    "exaone_moe": ("last", 4),
    "gemma2": ("last", 2),
    "gemma3": ("last", 6),
    "gemma3n": ("last", 5),
    "gemma4": ("last", 6),
    "gemma4_unified": ("last", 6),
    "gpt_oss": ("last", 2),
    "granite_swa": ("first", 4),
    "granitemoe_swa": ("first", 4),
    "modernbert-decoder": ("first", 3),
    "olmo3": ("last", 4),
    "vaultgemma": ("last", 2),
}

# A bare ``sliding_window`` applies to every layer.
WINDOW_EVERYWHERE = _words(
    "mistral mixtral ministral ministral3 starcoder2 phi3 phi4_multimodal phi4mm phimoe qwen3_moe "
    "qwen3_vl_moe qwen3_omni_moe"
)

# It applies to the layers from ``max_window_layers`` on.
WINDOW_FROM_LAYER = _words("qwen2 qwen3 qwen2_vl qwen2_5_vl qwen2_5_omni qwen3_vl dots1 mimo")

# ``use_sliding_window`` is false unless the file says otherwise.
OFF_UNLESS_SAID = _words(
    "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_omni qwen3 qwen3_moe qwen3_vl qwen3_vl_moe "
    "qwen3_next mimo smollm3"
)

# No attention and a recurrent state whose size differs between implementations.
ATTENTION_FREE = ("rwkv", "xlstm", "retnet")

# Encoders read a whole input at once: nothing grows with generated tokens.
ENCODERS = _words(
    """
    albert altclip bert bert-generation-encoder big_bird bros camembert canine clip convbert
    data2vec-text data2vec-audio data2vec-vision deberta deberta-v2 deit distilbert dinov2 dpr
    electra ernie esm eurobert flaubert fnet funnel gte hubert ibert layoutlm layoutlmv2 layoutlmv3
    lilt longformer luke lxmert megatron-bert mobilebert modernbert mpnet mra nomic_bert nezha
    nystromformer rembert roberta roberta-prelayernorm roc_bert roformer siglip siglip2 splinter
    squeezebert tapas vit wav2vec2 wav2vec2-bert wavlm xlm-roberta xlm-roberta-xl xmod yoso
    jina_embeddings_v3 neobert
    """
)

# Encoder and decoder: the decoder also keeps keys and values of the encoder's output.
ENCODER_DECODERS = _words(
    """
    bart bigbird_pegasus blenderbot blenderbot-small florence2 fsmt led longt5 m2m_100 marian mbart
    moonshine mt5 mvp nllb-moe pegasus pegasus_x plbart pop2piano prophetnet seamless_m4t
    seamless_m4t_v2 speech_to_text switch_transformers t5 t5gemma t5gemma2 udop umt5 whisper
    """
)
