"""The claims, sources and models people wrote: complete, consistent, and decidable."""

from __future__ import annotations

import decimal
import re
from collections import Counter

import pytest

from assay.ledger import records, store

# The ids the project promises; more may be added, none may go.
PROMISED = [
    "kv-cache-formula",
    "paged-attention-waste",
    "deploybase-a100-table",
    "spheron-h100-table",
    "vllm-vs-sglang",
    "jarvislabs-cpu-offload",
    "reasoning-mode-overhead",
    "mix-quant-kvserve",
    "pd-production-default",
    "chunked-prefill-ttft",
    "prefix-cache-copy-on-write",
    "vllm-quality-gates",
    "wasi-nn-standard",
    "wasm-cold-start",
    "llama-cpp-stars",
    "nano-vllm-size",
    "nexus-gains",
]

WORDS = {"any", "unstated", "n/a"}
# A 70B Llama of unnamed generation: not a model of its own, so it has no file.
FAMILIES = {"llama-shaped, random weights", "llama-70b"}
PRECISIONS = {"bf16", "fp16", "w16a16", "w8a8", "w4a16", "w4a8"}
COUNTINGS = {"output", "total", "requests", "lines of code without blanks and comments"}

CLAIMS = {claim.id: claim for claim in store.claims()}
ASSERTIONS = [(c.id, a.id) for c in CLAIMS.values() for a in c.assertions]
ROUNDED = [
    (c.id, a.id)
    for c in CLAIMS.values()
    for a in c.assertions
    if a.band.why.startswith("rounding as printed")
]
PLAIN_DENSE = [
    name
    for name in store.model_ids()
    if store.model(name).config["model_type"] in {"llama", "mistral", "qwen2", "qwen3"}
]


def _assertion(claim_id: str, assertion_id: str) -> records.Assertion:
    return CLAIMS[claim_id].assertion(assertion_id)


def _values(scope: records.Scope, key: str) -> set[str]:
    value = getattr(scope, key)
    return set(value.unstated) if isinstance(value, records.Unstated) else {str(value)}


def _numbers(text: str) -> Counter[str]:
    """Count the numbers of a text, thousands separators removed."""
    return Counter(re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))


@pytest.mark.parametrize("claim_id", PROMISED)
def test_promised_claim_exists(claim_id: str) -> None:
    assert claim_id in CLAIMS


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_quote_is_chinese_and_its_translation_is_not(claim_id: str) -> None:
    chinese = re.compile(r"[\u4e00-\u9fff]")
    assert chinese.search(CLAIMS[claim_id].quote)
    assert not chinese.search(CLAIMS[claim_id].quote_en)


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_translation_keeps_every_number_of_the_quote(claim_id: str) -> None:
    lost = _numbers(CLAIMS[claim_id].quote) - _numbers(CLAIMS[claim_id].quote_en)
    assert not lost


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_claim_names_a_known_source(claim_id: str) -> None:
    assert CLAIMS[claim_id].source in store.sources()


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_claim_runs_on_known_models_and_devices(claim_id: str) -> None:
    parameters = CLAIMS[claim_id].parameters
    assert parameters.get("model", "llama-2-70b") in store.model_ids()
    assert parameters.get("gpu", "a100-sxm-80gb") in store.hardware_ids()


@pytest.mark.parametrize(("claim_id", "assertion_id"), ASSERTIONS)
def test_scope_uses_the_shared_vocabulary(claim_id: str, assertion_id: str) -> None:
    scope = _assertion(claim_id, assertion_id).scope
    assert _values(scope, "gpu") <= WORDS | set(store.hardware_ids())
    assert _values(scope, "model") <= WORDS | FAMILIES | set(store.model_ids())
    assert _values(scope, "precision") <= WORDS | PRECISIONS
    assert _values(scope, "counting") <= WORDS | COUNTINGS


@pytest.mark.parametrize(("claim_id", "assertion_id"), ASSERTIONS)
def test_assertion_can_be_refuted_and_says_how(claim_id: str, assertion_id: str) -> None:
    assertion = _assertion(claim_id, assertion_id)
    assert assertion.decided_by.dispute
    for sentence in (assertion.says, assertion.falsifier):
        assert sentence.endswith(".")
        assert len(sentence.split()) >= 4


@pytest.mark.parametrize(("claim_id", "assertion_id"), ASSERTIONS)
def test_headline_can_be_verified_as_well_as_disputed(claim_id: str, assertion_id: str) -> None:
    assertion = _assertion(claim_id, assertion_id)
    assert assertion.decided_by.verify or not assertion.headline


@pytest.mark.parametrize(("claim_id", "assertion_id"), ASSERTIONS)
def test_statements_about_documents_are_not_decided_by_measuring_alone(
    claim_id: str, assertion_id: str
) -> None:
    assertion = _assertion(claim_id, assertion_id)
    if "documented" in assertion.decided_by.verify:
        assert assertion.metric in {"statement", "count", "context_tokens", "chunk_tokens"}


@pytest.mark.parametrize(("claim_id", "assertion_id"), ROUNDED)
def test_rounding_band_is_half_a_unit_of_the_last_printed_digit(
    claim_id: str, assertion_id: str
) -> None:
    assertion = _assertion(claim_id, assertion_id)
    low, high = (decimal.Decimal(f"{value:.12g}") for value in assertion.claimed)
    half = {
        v: decimal.Decimal(5).scaleb(int(v.normalize().as_tuple().exponent) - 1)
        for v in (low, high)
    }
    assert assertion.band.low == pytest.approx(float(low - half[low]))
    assert assertion.band.high == pytest.approx(float(high + half[high]))


def test_every_source_is_used() -> None:
    text = "\n".join(
        file.read_text(encoding="utf-8")
        for folder in (
            "data/claims",
            "data/models",
            "data/hardware",
            "data/published",
            "notebooks",
            "book",
        )
        for file in store.path(folder).rglob("*")
        if file.suffix in {".yml", ".json", ".csv", ".ipynb", ".md"}
    )
    unused = [
        s
        for s in store.sources()
        if not re.search(rf"(?<![\w.-]){re.escape(s)}(?![\w-]|\.\w)", text)
    ]
    assert unused == []


def test_sources_read_beside_a_claim_exist() -> None:
    named = set()
    for claim_id in CLAIMS:
        text = store.path("data", "claims", f"{claim_id}.yml").read_text(encoding="utf-8")
        comment = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
        for listing in re.findall(r"Read beside it: (.*?)\.(?:\s|$)", comment):
            named |= set(re.findall(r"[a-z0-9][\w.-]+", re.sub(r"\(.*?\)", "", listing)))
    assert named
    assert named <= set(store.sources())


def test_source_that_was_not_read_has_no_date_of_access() -> None:
    for source_id, source in store.sources().items():
        assert (source.date_accessed is None) == (source.access == "not-read"), source_id


@pytest.mark.parametrize("model_id", store.model_ids())
def test_model_names_a_known_source(model_id: str) -> None:
    assert store.model(model_id).source in store.sources()


@pytest.mark.parametrize("model_id", PLAIN_DENSE)
def test_parameters_of_a_dense_model_follow_from_its_configuration(model_id: str) -> None:
    model = store.model(model_id)
    kind = model.config["model_type"]
    field = {k: v for k, v in model.config.items() if isinstance(v, int)}
    width, heads = field["hidden_size"], field["num_attention_heads"]
    head = field.get("head_dim", width // heads)
    queries, keys = heads * head, field["num_key_value_heads"] * head
    attention = 2 * width * queries + 2 * width * keys
    extra = {"qwen2": queries + 2 * keys, "qwen3": 2 * head}.get(str(kind), 0)  # biases; norms
    layer = attention + extra + 3 * width * field["intermediate_size"] + 2 * width
    tables = 1 if model.config["tie_word_embeddings"] else 2
    counted = field["num_hidden_layers"] * layer + tables * field["vocab_size"] * width + width
    assert model.parameters == counted
    assert model.active_parameters is None


# Stated by the vendors: DeepSeek-V3 repository (671B total, 37B active), Qwen3 report (30.5B, 3.3B;
# 235B, 22B), OpenAI's gpt-oss card (116.8B, 5.1B; 20.9B, 3.6B), Mixtral paper (46.7B, 12.9B).
@pytest.mark.parametrize(
    ("model_id", "total", "active"),
    [
        ("deepseek-v3", 671.0e9, 37.0e9),
        ("qwen3-30b-a3b", 30.5e9, 3.3e9),
        ("qwen3-235b-a22b", 235.0e9, 22.0e9),
        ("gpt-oss-120b", 116.8e9, 5.1e9),
        ("gpt-oss-20b", 20.9e9, 3.6e9),
        ("mixtral-8x7b", 46.7e9, 12.9e9),
    ],
)
def test_parameters_of_a_sparse_model_agree_with_its_maker(
    model_id: str, total: float, active: float
) -> None:
    model = store.model(model_id)
    assert model.active_parameters is not None
    assert model.parameters == pytest.approx(total, rel=2e-3)
    # Makers differ on whether the input embedding counts as active; here it does not.
    assert 0.88 * active < model.active_parameters < 1.02 * active
