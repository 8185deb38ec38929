"""Hardware records reduced to numbers, and device names resolved."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.ledger import store
from assay.physics import accelerator

HARDWARE = Path(__file__).parents[2] / "data" / "hardware"
FILES = sorted(HARDWARE.glob("*.yml"))


def card(hardware_id: str) -> accelerator.Accelerator:
    content, _ = store.read_yaml(HARDWARE / f"{hardware_id}.yml")
    return accelerator.from_record({**content, "id": hardware_id})


CARDS = [card(file.stem) for file in FILES]


# The names are what NVML prints; each was read in a public thread: nsys-ai 577, modal-client 2797,
# llm-analysis gpu_configs, pytorch-lightning 21743, vllm 12092, whichllm 102, pollard-weights 55,
# NeMo Automodel 3598, turbofit 5, mli/transformers-benchmarks 4.
NAMES = {
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H100 NVL": "h100-nvl-94gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA L40S": "l40s",
    "NVIDIA L40": "l40",
    "NVIDIA L4": "l4",
    "NVIDIA A10": "a10",
    "Tesla T4": "t4",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA GeForce RTX 5090 Laptop GPU": "rtx-5090-laptop",
    "NVIDIA GeForce RTX 5070 Ti": "rtx-5070-ti",
    "NVIDIA GeForce RTX 5070": "rtx-5070",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-blackwell",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx-pro-6000-blackwell-max-q",
    "NVIDIA GB10": "gb10",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA A800 80GB PCIe": "a800-pcie-80gb",
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_a_driver_name_resolves_to_its_own_record(name, expected):
    assert accelerator.resolve(name, CARDS)[0] == expected


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("NVIDIA A100 80GB PCIe MIG 7g.80gb", "MIG"),
        ("NVIDIA A100 80GB PCIe MIG 1g.20gb", "MIG"),
        ("NVIDIA GeForce RTX 5070 Laptop GPU", "laptop"),
        ("NVIDIA RTX 2000 Ada Generation Laptop GPU", "laptop"),
        ("NVIDIA RTX A3000 Laptop GPU", "laptop"),
        ("NVIDIA GeForce GTX 1650 with Max-Q Design", "Max-Q"),
        ("Graphics Device", "driver"),
        ("NVIDIA H100", "nearest"),
        ("H200", "nearest"),
        ("nvidia l4", "nearest"),
        ("", "no name"),
    ],
)
def test_a_name_without_a_record_is_unknown_and_says_why(name, why):
    found, reason = accelerator.resolve(name, CARDS)
    assert found is None
    assert why in reason


def test_a_line_of_nvidia_smi_resolves_with_its_total():
    assert accelerator.resolve("NVIDIA H100 80GB HBM3, 81559 MiB", CARDS)[0] == "h100-sxm-80gb"


def test_a_missing_total_of_a_unified_part_is_not_zero():
    found, reason = accelerator.resolve("NVIDIA GB10, [N/A]", CARDS)
    assert found == "gb10"
    assert "shared with the host" in reason


def test_a_total_that_contradicts_the_name_is_unknown():
    # A public table lists an A10 with 28 GB; the driver shows 23,028 MiB.
    found, reason = accelerator.resolve("NVIDIA A10, 28672 MiB", CARDS)
    assert found is None
    assert "contradicts" in reason


@pytest.mark.parametrize(
    ("hardware_id", "shown_mib"),
    [
        ("h100-sxm-80gb", 81559),
        ("a100-sxm-80gb", 81920),
        ("a100-sxm-40gb", 40960),
        ("a10", 23028),
        ("l40s", 46068),
        ("l4", 23034),
        ("t4", 15360),
        ("h200-sxm-141gb", 143771),
        ("b200-sxm-180gb", 183359),
    ],
)
def test_what_the_driver_shows_is_at_most_the_memory_physics_takes(hardware_id, shown_mib):
    shown = accelerator.memory_total(f"{shown_mib} MiB")
    assert shown is not None
    assert 0.9 * card(hardware_id).memory < shown <= card(hardware_id).memory


@pytest.mark.parametrize("words", ["[N/A]", "", "  ", "[Unknown Error]"])
def test_an_unknown_total_is_none(words):
    assert accelerator.memory_total(words) is None


@pytest.mark.parametrize(
    ("hardware_id", "bandwidth_gb_s", "bf16_tflops"),
    [
        ("h200-sxm-141gb", 4800, 989.5),
        ("h100-sxm-80gb", 3350, 989.5),
        ("h100-nvl-94gb", 3938, 835.5),
        ("a100-sxm-80gb", 2039, 312),
        ("a100-sxm-40gb", 1555, 312),
        ("a100-pcie-80gb", 1935, 312),
        ("a800-pcie-80gb", 1935, 312),
        ("l4", 300, 121),
        ("l40s", 864, 362.05),
        ("rtx-5090", 1792, 209.5),
        ("rtx-4090", 1008, 165.15),
        ("rtx-pro-6000-blackwell", 1792, 503.8),
        ("rtx-pro-6000-blackwell-max-q", 1792, 438.9),
        ("mi300x", 5325, 1307.4),
        ("tpu-v6e", 1638, 918),
    ],
)
def test_peaks_are_dense_and_bandwidth_is_the_largest_stated(
    hardware_id, bandwidth_gb_s, bf16_tflops
):
    found = card(hardware_id)
    assert found.bandwidth == pytest.approx(bandwidth_gb_s * 1e9)
    assert found.math("bf16") == pytest.approx(bf16_tflops * 1e12)


def test_a_part_without_bf16_has_none():
    assert card("t4").math("bf16") is None
    assert card("t4").math("bf16", "fp16") == 65e12


def test_a_sparse_fact_is_never_a_peak():
    fact = {"dtype": None, "density": None}
    record = {
        "id": "x",
        "title": "X",
        "kind": "gpu",
        "memory_kind": "dedicated",
        "names": [],
        "facts": [
            fact | {"quantity": "memory", "value": 1, "unit": "GB"},
            fact | {"quantity": "memory_bandwidth", "value": 1, "unit": "GB/s"},
            {
                "quantity": "peak",
                "dtype": "bf16",
                "density": "sparse",
                "value": 2,
                "unit": "TFLOP/s",
            },
        ],
    }
    assert accelerator.from_record(record).math("bf16") is None


def test_a_record_without_bandwidth_is_refused():
    record = {"id": "x", "facts": [{"quantity": "memory", "value": 1, "unit": "GB"}]}
    with pytest.raises(InputError, match="memory_bandwidth"):
        accelerator.from_record(record)


def test_no_name_belongs_to_two_records():
    names = [name for found in CARDS for name in found.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("found", CARDS, ids=lambda c: c.id)
def test_narrower_formats_are_never_slower(found):
    wide = found.math("bf16", "fp16")
    byte = found.math("fp8", "int8")
    nibble = found.math("fp4", "int4")
    assert wide is not None
    assert byte is None or byte >= wide
    assert nibble is None or byte is None or nibble >= byte
