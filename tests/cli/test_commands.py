"""Commands answer in tables and JSON, refuse in one sentence, and start light."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.ledger import store

_HEAVY = ("matplotlib", "pandas", "torch", "vllm", "numpy", "papermill", "IPython")


def assay(
    *words: str, root: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a person would."""
    env = dict(os.environ)
    if root is not None:
        env["ASSAY_ROOT"] = str(root)
    return subprocess.run(
        [sys.executable, "-m", "assay", *words],
        capture_output=True,
        text=True,
        input=stdin,
        env=env,
        timeout=120,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Expect one clear sentence, exit code 2 and no traceback."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("assay: ")
    assert len(done.stderr.strip().splitlines()) == 1
    for part in parts:
        assert part in done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the data that a test may spoil."""
    shutil.copytree(store.path("data"), tmp_path / "data")
    shutil.copytree(store.path("notebooks"), tmp_path / "notebooks")
    return tmp_path


def test_the_version_is_printed() -> None:
    assert assay("--version").stdout.startswith("assay ")


@pytest.mark.parametrize(
    "words",
    [
        ("kv", "--help"),
        ("possible", "--help"),
        ("run", "--help"),
        ("kv", "llama-2-70b", "--json"),
        ("gpu", "NVIDIA L4", "--json"),
    ],
)
def test_light_commands_import_nothing_heavy(words: tuple[str, ...]) -> None:
    script = (
        "import sys, runpy\n"
        f"sys.argv = ['assay', *{list(words)!r}]\n"
        "try:\n    runpy.run_module('assay', run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        f"found = [m for m in {_HEAVY!r} if m in sys.modules]\n"
        "print('HEAVY', found, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert "HEAVY []" in done.stderr


def test_judge_prints_the_documented_json() -> None:
    verdicts = json.loads(assay("judge", "--check", "--json").stdout)
    assert all(set(v) == {"claim", "status", "assertions"} for v in verdicts)
    fields = {"id", "status", "basis", "reason", "claimed", "low", "high", "unit"}
    assert all(set(a) == fields for v in verdicts for a in v["assertions"])


def test_the_kv_claim_is_verified_on_its_formula_and_its_size() -> None:
    verdicts = {v["claim"]: v for v in json.loads(assay("judge", "--check", "--json").stdout)}
    found = {a["id"]: a for a in verdicts["kv-cache-formula"]["assertions"]}
    assert verdicts["kv-cache-formula"]["status"] == "verified"
    for name in ("formula", "llama-2-70b-32k"):
        assert (found[name]["status"], found[name]["basis"]) == ("verified", "derived")
    # 2 * 80 layers * 8 KV heads * 128 * 2 B * 32,768 tokens, in GB of 10**9 B
    assert found["llama-2-70b-32k"]["low"] == 10.73741824


def test_the_a100_table_is_disputed_by_bound_and_by_published() -> None:
    verdicts = {v["claim"]: v for v in json.loads(assay("judge", "--check", "--json").stdout)}
    table = verdicts["deploybase-a100-table"]
    assert table["status"] == "disputed"
    bases = {
        b for a in table["assertions"] if a["status"] == "disputed" for b in a["basis"].split("+")
    }
    assert {"bound", "published"} <= bases


def test_the_committed_verdicts_are_current() -> None:
    assert assay("judge", "--check").returncode == 0


def test_check_fails_when_verdicts_are_stale(project: Path) -> None:
    (project / "data" / "verdicts.csv").write_text("stale\n")
    done = assay("judge", "--check", root=project)
    assert done.returncode == 1
    assert "stale" in done.stderr
    assert (project / "data" / "verdicts.csv").read_text() == "stale\n"


def test_judging_twice_changes_nothing(project: Path) -> None:
    assay("judge", root=project)
    before = {f: f.read_bytes() for f in (project / "data").glob("*.csv")}
    assay("judge", root=project)
    assert {f: f.read_bytes() for f in (project / "data").glob("*.csv")} == before


def test_history_only_grows(project: Path) -> None:
    before = (project / "data" / "history.csv").read_text()
    for file in (project / "data" / "evidence" / "kv-cache-formula").glob("formula.*"):
        file.unlink()
    done = assay("judge", "--cause", "a test", root=project)
    assert done.returncode == 0
    after = (project / "data" / "history.csv").read_text()
    assert after.startswith(before)
    assert "kv-cache-formula,formula,verified,open (not-run),a test" in after


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("title:", "titlex:", ("kv-cache-formula.yml", "titlex")),
        ("unit: GB", "unit: ms", ("ms", "kv_bytes")),
        ("low: 10.735", "low: 10.9", ("band",)),
        ("headline: true", "headline: off", ("headline",)),
        ("value: 10.74", "value: 1e5", ("value",)),
        ("precision: fp16", "precision: 1.10", ("precision", "1.1")),
        ("precision: fp16", "precision: off", ("precision", "read as false")),
        ("  - id: formula", "  - id: llama-2-70b-32k", ("duplicate", "llama-2-70b-32k")),
    ],
)
def test_a_spoilt_claim_is_refused_in_one_sentence(
    project: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    file = project / "data" / "claims" / "kv-cache-formula.yml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    verdicts = (project / "data" / "verdicts.csv").read_bytes()
    refused(assay("judge", root=project), *parts)
    assert (project / "data" / "verdicts.csv").read_bytes() == verdicts


def test_evidence_for_an_unknown_assertion_is_refused(project: Path) -> None:
    file = project / "data" / "claims" / "kv-cache-formula.yml"
    file.write_text(file.read_text().replace("- id: formula", "- id: formel"))
    refused(assay("judge", root=project), "unknown assertion 'formula'")


def test_an_unknown_claim_or_notebook_is_refused() -> None:
    refused(assay("run", "no-such-thing"), "no-such-thing")


def test_an_undeclared_parameter_is_refused_before_anything_runs() -> None:
    refused(assay("run", "kv-cache-formula", "-p", "tokns", "4096"), "tokns")


def test_a_mistyped_parameter_is_refused_before_anything_runs() -> None:
    refused(assay("run", "kv-cache-formula", "-p", "tokens", "many"), "tokens", "many")


def test_a_parameter_without_a_value_is_refused() -> None:
    refused(assay("run", "kv-cache-formula", "-p", "tokens"), "-p")


def test_doctor_says_what_can_be_measured_here() -> None:
    done = assay("doctor", "--json")
    answer = json.loads(done.stdout)
    states = {c["state"] for c in answer["claims"]}
    assert states <= {"measurable", "derivable", "replayed", "not-written"}
    assert {c["claim"] for c in answer["claims"]} == set(store.claim_ids())
    assert answer["machine"]["cores"] >= 1


def test_a_device_name_is_exact_or_unknown() -> None:
    assert json.loads(assay("gpu", "NVIDIA H200", "--json").stdout)["id"] == "h200-sxm-141gb"
    unknown = json.loads(assay("gpu", "NVIDIA H201", "--json").stdout)
    assert unknown["id"] is None
    assert unknown["reason"]


def test_kv_reads_a_config_from_standard_input() -> None:
    config = json.dumps(store.model("llama-2-70b").config)
    answer = json.loads(assay("kv", "-", "--json", "--tokens", "32768", stdin=config).stdout)
    # Llama 2 70B: 2 * 80 * 8 * 128 * 2 B per token (configuration of the model)
    assert answer["all_layers_bytes_per_token"] == 327680
    assert answer["bytes_at"]["all_layers"] == 10737418240


def test_kv_prints_gb_and_gib_for_people() -> None:
    words = assay("kv", "llama-2-70b", "--tokens", "32768").stdout
    assert "10.74 GB" in words
    assert "10.00 GiB" in words


def test_kv_answers_json_with_exactly_the_documented_keys() -> None:
    answer = json.loads(assay("kv", "llama-2-70b", "--json").stdout)
    assert set(answer) == {
        "status",
        "reason",
        "model_type",
        "layers",
        "kv_dtype",
        "kv_dtype_source",
        "all_layers_bytes_per_token",
        "growth_bytes_per_token",
        "bounded_bytes_per_sequence",
        "per_gpu",
        "bytes_at",
        "assumptions",
        "warnings",
    }


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "standard input"),
        ("[]", "not a JSON object"),
        ('{\n<<<<<<< HEAD\n"a": 1}', "line 2"),
        ('{"a": NaN}', "NaN"),
    ],
)
def test_kv_refuses_what_is_not_a_config(text: str, part: str) -> None:
    refused(assay("kv", "-", stdin=text), part)


def test_kv_refuses_an_unknown_model() -> None:
    refused(assay("kv", "llama-2-70c"), "llama-2-70c", "llama-2-70b")


def test_kv_refuses_a_file_that_is_not_there() -> None:
    refused(assay("kv", "nowhere.json"), "no such file")


def test_kv_refuses_memory_without_a_unit() -> None:
    refused(assay("kv", "llama-2-70b", "--memory", "22.5"), "unit")


def test_kv_names_the_mistake_behind_a_claimed_size() -> None:
    answer = json.loads(
        assay("kv", "llama-2-70b", "--json", "--claims", "2.62 MB per token").stdout
    )
    # 64 query heads instead of 8 KV heads: 8 * 327,680 B = 2.62 MB
    assert answer["claims"][0]["verdict"] == "mistake"
    assert "query heads" in answer["claims"][0]["sentence"]


def test_check_passes_on_the_committed_data() -> None:
    done = assay("check", str(store.path("data")), "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["passed"]


def test_check_names_every_problem_and_exits_with_2(project: Path) -> None:
    claim = project / "data" / "claims" / "kv-cache-formula.yml"
    claim.write_text(claim.read_text().replace("title:", "titlex:", 1))
    done = assay("check", str(project / "data"), root=project)
    assert done.returncode == 2
    assert "kv-cache-formula.yml" in done.stdout
    assert "titlex" in done.stdout
    assert "Traceback" not in done.stderr


def test_new_drafts_a_claim_and_says_what_is_next(project: Path) -> None:
    done = assay("new", "turbo-gain", "--title", "Ten times", "--source", "nobody", root=project)
    assert done.returncode == 0, done.stderr
    assert "drafted data/claims/turbo-gain.yml" in done.stdout
    assert "'nobody' is not in data/sources.yml yet" in done.stdout
    left = assay("check", str(project / "data" / "claims" / "turbo-gain.yml"), root=project)
    assert left.returncode == 2
    assert "C011" in left.stdout


def test_new_refuses_a_claim_that_exists(project: Path) -> None:
    refused(assay("new", "kv-cache-formula", root=project), "the claim exists", "another id")
