"""The pool a running engine allocates is the formula's, byte for byte, and fills as it says."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.bench import checkpoint, pool, private
from assay.errors import InputError, RunError
from assay.ledger import store
from assay.physics import kv, paging

WHY_NOT = private.absent()
needs_engine = pytest.mark.skipif(bool(WHY_NOT), reason=f"{WHY_NOT}: no engine to start")
LENGTHS = [(int(row["prompt"]), int(row["output"])) for row in store.published("sharegpt_lengths")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint made for these tests, in another process."""
    base = tmp_path_factory.mktemp("models")
    code = (
        "import sys; from pathlib import Path; from assay.bench import checkpoint;"
        "print(checkpoint.make(folder=Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(base)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(folder: Path) -> pool.Pool:
    return pool.measure(folder, memory=8 * 2**20, longest=1024, length=300)


@pytest.mark.engine
@needs_engine
def test_a_checkpoint_is_made_once_and_has_the_shape_asked_for(folder: Path) -> None:
    config = store.read_json(folder / "config.json")
    assert config == checkpoint.SMALL.config()
    assert kv.report(config).all_layers_bytes_per_token == 2 * 4 * 2 * 64 * 2
    assert (folder / "model.safetensors").stat().st_size > 2 * 5_000_000
    assert checkpoint.make(folder=folder.parent) == folder
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


@pytest.mark.engine
@needs_engine
def test_the_tensors_of_a_running_engine_are_the_formula_to_the_byte(found: pool.Pool) -> None:
    assert found.tensor_bytes == found.formula_bytes
    assert found.bytes_per_token == found.formula_bytes_per_token
    assert 0 < found.tensor_bytes <= found.asked_bytes


@pytest.mark.engine
@needs_engine
def test_every_sequence_holds_its_length_rounded_up_to_whole_blocks(found: pool.Pool) -> None:
    assert len(found.steps) > 3
    assert [s.blocks for s in found.steps] == [s.expected_blocks for s in found.steps]


@pytest.mark.engine
@needs_engine
def test_a_full_pool_has_no_room_for_one_sequence_more(found: pool.Pool) -> None:
    last = found.steps[-1]
    each = -(-300 // found.block_size)
    assert found.refused_at == last.sequences
    assert found.blocks - 1 - last.blocks < each + last.sequences


@pytest.mark.engine
@needs_engine
def test_evidence_can_say_where_the_pool_was_measured(found: pool.Pool) -> None:
    assert found.device and found.version == (private.version() or ("", ""))[1]
    assert "kv_cache_memory_bytes=8388608" in found.flags
    assert found.started < found.ended
    assert found.rows() == [dataclasses.asdict(step) for step in found.steps]


@pytest.mark.engine
@needs_engine
def test_an_engine_that_takes_too_long_is_ended_with_its_children(folder: Path) -> None:
    with pytest.raises(RunError, match=r"did not finish in 0\.5 s"):
        pool.measure(folder, seconds=0.5)


@pytest.mark.engine
@needs_engine
def test_an_engine_that_cannot_start_says_why_in_a_sentence(tmp_path: Path) -> None:
    # No weights and no tokenizer: a configuration alone is not a model.
    store.write(tmp_path / "config.json", store.json_text(checkpoint.SMALL.config()))
    with pytest.raises(RunError, match="the engine did not start"):
        pool.measure(tmp_path, seconds=120)


@pytest.mark.engine
@needs_engine
def test_a_model_with_windows_is_refused_before_an_engine_is_started() -> None:
    with pytest.raises(InputError, match="do not all keep every token"):
        pool.measure("gpt-oss-20b", seconds=1)


def test_without_the_engine_a_pool_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "version", lambda: None)
    with pytest.raises(InputError, match="vLLM is not installed"):
        pool.measure(Path("nowhere"))


@pytest.mark.engine
@needs_engine
def test_the_engines_own_block_manager_gives_the_shares_of_the_pure_replay() -> None:
    code = (
        "import dataclasses, json, sys; from assay.bench import blocks;"
        "a = json.load(sys.stdin);"
        "print(json.dumps([dataclasses.asdict(blocks.replay([tuple(x) for x in a['lengths']],"
        " slots=4096, block=b)) for b in a['blocks']]))"
    )
    sizes = [8, 16, 256]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps({"lengths": LENGTHS[:200], "blocks": sizes}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = [paging.replay(LENGTHS[:200], slots=4096, rule="paged", block=b) for b in sizes]
    assert theirs == [dataclasses.asdict(each) for each in ours]
