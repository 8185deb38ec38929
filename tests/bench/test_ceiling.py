"""Ceiling: an upper bound for this machine, or a reason why there is none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from assay.bench import ceiling, machine, synthetic
from assay.bench.engines.recipe import Recipe
from assay.bench.load import Load
from assay.ledger import store

#: Llama 3 8B (config.json of meta-llama/Meta-Llama-3-8B): 8,030,261,248 parameters.
LLAMA_3_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
ASKED = Load(requests=64, input_tokens=128, output_tokens=128, concurrency=64)


@pytest.fixture
def made(tmp_path: Path) -> Recipe:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    return dataclasses.replace(synthetic.serve(), weights=str(tmp_path))


def seen(monkeypatch: pytest.MonkeyPatch, *names: str | None) -> None:
    devices = tuple(machine.Device(n or "Odd GPU", n, "", 80e9, "580") for n in names)
    real = machine.discover(())
    monkeypatch.setattr(machine, "discover", lambda _: dataclasses.replace(real, devices=devices))


def test_without_a_configuration_there_is_no_ceiling() -> None:
    found = ceiling.ceiling(synthetic.serve(), ASKED, hardware=())
    assert found == ceiling.Ceiling(None, "the model's configuration is not at hand")


def test_a_processor_has_a_ceiling_from_its_cores(made: Recipe) -> None:
    found = ceiling.ceiling(made, ASKED, hardware=())
    assert found.rate is not None
    assert found.rate > 0
    assert "8,030 M parameters" in found.why


def test_one_a100_stays_below_its_arithmetic(made: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, "a100-sxm-80gb")
    hardware = [store.hardware("a100-sxm-80gb")]
    found = ceiling.ceiling(dataclasses.replace(made, devices=1), ASKED, hardware=hardware)
    assert found.rate is not None
    # 624e12 INT8 operations a second are the most it states; 2 * 7.5e9 a token are the least.
    assert found.rate < 624e12 / (2 * 7.5e9)


def test_two_devices_allow_more_than_one(made: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, "a100-sxm-80gb", "a100-sxm-80gb")
    hardware = [store.hardware("a100-sxm-80gb")]
    one, two = (
        ceiling.ceiling(dataclasses.replace(made, devices=n), ASKED, hardware=hardware).rate
        for n in (1, 2)
    )
    assert one is not None
    assert two == pytest.approx(2 * one)


def test_a_cache_raises_the_ceiling(made: Recipe) -> None:
    cold = ceiling.ceiling(made, ASKED, hardware=()).rate
    warm = ceiling.ceiling(made, ASKED, hardware=(), cached=0.9).rate
    assert cold is not None and warm is not None
    assert warm > cold


def test_an_unknown_device_is_named(made: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, None)
    found = ceiling.ceiling(dataclasses.replace(made, devices=1), ASKED, hardware=())
    assert found.rate is None
    assert "Odd GPU is no known device" in found.why


def test_a_device_that_is_not_there_is_told(made: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch)
    found = ceiling.ceiling(dataclasses.replace(made, devices=2), ASKED, hardware=())
    assert found.why == "2 GPUs are used and 0 seen here"


def test_a_model_of_an_unknown_family_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nobody-knows"}')
    made = dataclasses.replace(synthetic.serve(), weights=str(tmp_path))
    found = ceiling.ceiling(made, ASKED, hardware=())
    assert found.rate is None
    assert "nobody-knows" in found.why
