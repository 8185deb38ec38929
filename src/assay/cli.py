"""The command line, and nothing else.

Owns arguments, exit codes and the choice between a table and JSON. Every command imports what it
needs when it runs, so that light commands start at once. Bad input is one sentence on standard
error and exit code 2; a failed run is exit code 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from assay import __version__
from assay.errors import AssayError, InputError

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Re-derive published LLM-inference claims and see whether they hold.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        app(args=_paired(sys.argv[1:]), standalone_mode=True)
    except AssayError as error:
        print(f"assay: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("assay: interrupted; the ledger is as it was", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    sys.exit(0)


def _paired(words: list[str]) -> list[str]:
    """Join ``-p NAME VALUE``, as papermill has it, into the one word Typer can take."""
    joined: list[str] = []
    rest = iter(words)
    for word in rest:
        joined.append(word)
        if word in ("-p", "--parameter"):
            name = next(rest, None)
            value = None if name is None or "=" in name else next(rest, None)
            if name is None or (value is None and "=" not in name):
                raise InputError("needs a name and a value", where=word, fix="write -p tokens 4096")
            joined.append(name if value is None else f"{name}={value}")
    return joined


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"assay {__version__}")
        raise typer.Exit


def _emit(value: object) -> None:
    from assay.ledger import store

    print(store.json_text(value), end="")


# -- the book -------------------------------------------------------------------------------------


@app.command()
def doctor(json: Json = False) -> None:
    """Say what this machine is, and which claims can be measured here."""
    import dataclasses

    from assay.bench import machine
    from assay.ledger import store
    from assay.physics import units
    from assay.press import terminal

    hardware = [store.hardware(name) for name in store.hardware_ids()]
    here = machine.discover(hardware)
    can = [
        machine.capability(
            claim,
            here,
            written=store.path("notebooks", f"{claim.notebook}.ipynb").is_file(),
            evidence=store.live(claim.id),
        )
        for claim in store.claims()
    ]
    if json:
        _emit({"machine": dataclasses.asdict(here), "claims": [dataclasses.asdict(c) for c in can]})
        return
    memory = units.text(here.memory, "B", display="GiB") if here.memory else "unknown"
    print(f"{here.system}, Python {here.python}")
    print(f"{here.processor}, {here.cores} cores, {memory} memory")
    for device in here.devices:
        size = units.text(device.memory, "B", display="GiB") if device.memory else "memory unknown"
        print(f"{device.name}, {size}, driver {device.driver}: {device.reason}")
    if not here.devices:
        print("No GPU is visible: measured claims are replayed from committed evidence.")
    engines = ", ".join(f"{name} {version}" for name, version in here.engines.items())
    print(f"Engines: {engines or 'none; the book replays committed evidence'}")
    terminal.table([{"claim": c.claim, "here": c.state, "why": c.why} for c in can])


@app.command()
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Notebooks or claims; all when none is named.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME VALUE", help="Set a notebook's parameter."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Notebooks at a time; one per core by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run even what is unchanged.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure here instead of replaying evidence.")
    ] = False,
    cell_limit: Annotated[
        float | None, typer.Option("--cell-timeout", help="Seconds one cell may take.")
    ] = None,
    run_limit: Annotated[
        float | None, typer.Option("--run-timeout", help="Seconds one notebook may take.")
    ] = None,
    json: Json = False,
) -> None:
    """Execute notebooks and put their evidence into the ledger."""
    import dataclasses

    from assay.press import progress, runner

    given = dict(item.split("=", 1) for item in parameter or [])
    with progress.shown() as tell:
        outcomes = runner.run(
            names or [],
            overrides=given,
            jobs=jobs,
            force=force,
            measure=measure,
            cell_limit=cell_limit,
            run_limit=run_limit,
            on_event=tell,
        )
    if json:
        _emit([dataclasses.asdict(o) for o in outcomes])
    else:
        print(progress.summary(outcomes))
    if any(o.state == "failed" for o in outcomes):
        raise typer.Exit(1)


@app.command()
def judge(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if verdicts.csv is stale.")
    ] = False,
    cause: Annotated[
        str, typer.Option(help="Why verdicts changed, for the history.")
    ] = "evidence re-derived",
    json: Json = False,
) -> None:
    """Recompute every verdict from the ledger."""
    import datetime

    from assay.ledger import store
    from assay.press import pages, show, terminal

    judged = pages.verdicts()
    stale = store.verdicts_stale(list(judged.values()))
    changes: list[dict[str, str]] = []
    if not check:
        today = datetime.date.today().isoformat()
        changes = store.write_verdicts(list(judged.values()), date=today, cause=cause)
    if json:
        _emit([verdict.as_dict() for verdict in judged.values()])
    else:
        rows: list[dict[str, object]] = []
        for claim in store.claims():
            for finding in judged[claim.id].findings:
                assertion = claim.assertion(finding.id)
                rows.append(
                    {
                        "": show.GLYPHS[finding.status],
                        "claim": claim.id,
                        "assertion": finding.id + ("" if finding.headline else " (side)"),
                        "verdict": show.verdict_words(finding.status, finding.reason),
                        "claimed": show.claimed(assertion),
                        "found": show.found(assertion, finding),
                        "basis": finding.basis.replace("+", ", ") or None,
                    }
                )
        terminal.table(rows)
        print(pages.score(judged))
        for change in changes:
            print(
                f"changed: {change['claim']} {change['assertion']}: "
                f"{change['from'] or 'new'} → {change['to']}"
            )
    if check and stale:
        print("assay: data/verdicts.csv is stale; run assay judge", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def book(
    print_only: Annotated[
        bool, typer.Option("--print-only", help="Print pages, contents and score; build no HTML.")
    ] = False,
    ledger_only: Annotated[
        bool,
        typer.Option("--ledger-only", help="Ignore executed notebooks; print from the ledger."),
    ] = False,
    json: Json = False,
) -> None:
    """Print the pages and build the HTML."""
    from assay.ledger import store
    from assay.press import pages

    changed = pages.print_pages(only_ledger=ledger_only)
    index = None if print_only else pages.build()
    shown = [file.relative_to(store.root()).as_posix() for file in changed]
    where = index.relative_to(store.root()).as_posix() if index else None
    if json:
        _emit({"printed": shown, "index": where})
        return
    print(f"{len(shown)} pages changed" if shown else "every page was current")
    if where:
        print(f"the book is at {where}")


@app.command()
def new(
    claim_id: Annotated[str, typer.Argument(metavar="ID", help="Slug of the claim.")],
    title: Annotated[str, typer.Option(help="Our plain sentence, with the number.")] = "",
    increment: Annotated[str, typer.Option(help="1 to 6, A to C, or warnings.")] = "",
    quote: Annotated[str, typer.Option(help="The words of the source, verbatim.")] = "",
    quote_en: Annotated[str, typer.Option(help="The same in English.")] = "",
    source: Annotated[str, typer.Option(help="An id of data/sources.yml.")] = "",
    locator: Annotated[str, typer.Option(help="Where in the source.")] = "",
    notebook: Annotated[
        str, typer.Option(help="File stem in notebooks/; drafted where there is none.")
    ] = "",
    json: Json = False,
) -> None:
    """Draft a claim and, if needed, its notebook."""
    from assay.ledger import store
    from assay.press import scaffold

    given = {
        "title": title,
        "increment": increment,
        "quote": quote,
        "quote_en": quote_en,
        "source": source,
        "locator": locator,
        "notebook": notebook,
    }
    files = [store.shown(file) for file in scaffold.new(claim_id, given)]
    if json:
        _emit({"files": files})
        return
    print("\n".join(f"drafted {file}" for file in files))
    if source and source not in store.sources():
        print(f"'{source}' is not in data/sources.yml yet; add it there")
    print(f"next: fill in what `assay check {' '.join(files)}` lists, and commit the claim first")


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders, for example data/.")],
    json: Json = False,
) -> None:
    """Check records, evidence and notebooks against the rules."""
    import dataclasses

    from assay.ledger import rules

    problems = rules.check(paths)
    failed = any(p.severity == "error" for p in problems)
    if json:
        _emit({"passed": not failed, "problems": [dataclasses.asdict(p) for p in problems]})
    else:
        for problem in problems:
            advice = f"; {problem.fix}" if problem.fix else ""
            print(f"{problem.severity} {problem.rule} {problem.where}: {problem.what}{advice}")
        counts = [p.severity for p in problems]
        print(
            f"{'failed' if failed else 'passed'}: {counts.count('error')} errors, "
            f"{counts.count('warning')} warnings, {counts.count('note')} notes"
        )
    if failed:
        raise typer.Exit(2)


# -- without the book -----------------------------------------------------------------------------


@app.command()
def gpu(
    name: Annotated[str, typer.Argument(help="As nvidia-smi or NVML prints it.")],
    json: Json = False,
) -> None:
    """Resolve a device name: exact or unknown, never nearest."""
    from assay.ledger import store
    from assay.physics import accelerator

    records = [store.hardware(h) for h in store.hardware_ids()]
    known, reason = accelerator.resolve(name, records)
    if json:
        _emit({"id": known, "reason": reason})
    else:
        print(f"{known or 'unknown'}: {reason}")


@app.command()
def kv(
    config: Annotated[
        str, typer.Argument(help="config.json, its folder, -, an id of data/models, or a hub id.")
    ],
    tokens: Annotated[int | None, typer.Option(help="Tokens per sequence.")] = None,
    sequences: Annotated[int, typer.Option(help="Sequences held at once.")] = 1,
    tp: Annotated[int, typer.Option(help="Tensor-parallel size.")] = 1,
    pp: Annotated[int, typer.Option(help="Pipeline-parallel size.")] = 1,
    kv_dtype: Annotated[str | None, typer.Option(help="For example fp16, fp8, int8.")] = None,
    block_size: Annotated[
        int | None, typer.Option(help="Round lengths up to whole blocks.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help='Memory for the cache, for example "22.5 GiB".')
    ] = None,
    claims: Annotated[
        list[str] | None, typer.Option(help='A claimed size, for example "2.62 MB per block".')
    ] = None,
    json: Json = False,
) -> None:
    """Say what a model's KV cache takes: three figures, each with its name."""
    from assay.bench import hub
    from assay.physics import kv as cache
    from assay.physics import units

    room = None
    if memory is not None:
        value, unit = units.quantity(memory)
        room, base = units.to_base(value, unit)
        if base != "B":
            raise InputError(f"'{memory}' is not a size", where="--memory", fix='write "22.5 GiB"')
    answer = cache.answer(
        hub.config(config),
        tokens=tokens,
        sequences=sequences,
        tp=tp,
        pp=pp,
        kv_dtype=kv_dtype,
        block_size=block_size,
        memory_bytes=room,
        claims=claims or (),
    )
    if json:
        _emit(answer)
    else:
        from assay.press import terminal

        terminal.kv(answer)
    if answer["status"] == "refused":
        raise typer.Exit(2)


def _size(words: str | None, option: str) -> float | None:
    """Read a size with its unit [B]."""
    if words is None:
        return None
    from assay.physics import units

    value, base = units.to_base(*units.quantity(words))
    if base != "B" or value < 0:
        raise InputError(f"'{words}' is not a size", where=option, fix='write for example "2 GiB"')
    return value


@app.command()
def possible(
    rate: Annotated[
        str, typer.Argument(help='"3500 tok/s", "8 req/s", "20 ms TPOT", "2000 GB/s", "46 % MFU".')
    ],
    gpu: Annotated[str, typer.Option(help="An id of data/hardware, or a driver's name.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="An id of data/models, a config.json, a hub id, parameters (70.55e9, 70B, or "
            "671e9:37e9 with the active ones), or bytes read per step (4.68 GB)."
        ),
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="Devices of the deployment.")] = None,
    inputs: Annotated[float | None, typer.Option("--input", help="Input tokens.")] = None,
    outputs: Annotated[float | None, typer.Option("--output", help="Output tokens.")] = None,
    concurrency: Annotated[float | None, typer.Option(help="Requests in flight.")] = None,
    precision: Annotated[str, typer.Option(help="bf16, w8a8, w4a16, ..., or any.")] = "any",
    counting: Annotated[str, typer.Option(help="output, total, requests, or any.")] = "any",
    tokens_per_step: Annotated[
        float, typer.Option(help="Tokens gained per decode step, with speculation.")
    ] = 1.0,
    cached: Annotated[float, typer.Option(help="Share of input served by a prefix cache.")] = 0.0,
    kv_bits: Annotated[float | None, typer.Option(help="Bits of one cached number.")] = None,
    overhead: Annotated[
        str | None, typer.Option(help='Memory the engine keeps per device, for example "2 GiB".')
    ] = None,
    working_set: Annotated[
        str | None, typer.Option(help='What a copy benchmark moved, for example "16 MiB".')
    ] = None,
    json: Json = False,
) -> None:
    """Hold a published rate against what the hardware allows, reading by reading."""
    from assay.bench import hub
    from assay.ledger import facts, store
    from assay.physics import accelerator, conditions
    from assay.physics import possible as limits
    from assay.physics import rate as rates

    ids = store.hardware_ids()
    if gpu in ids:  # one file; a driver's name needs all of them
        card = facts.device(store.hardware(gpu))
    else:
        cards = {name: facts.device(store.hardware(name)) for name in ids}
        known, reason = accelerator.resolve(gpu, cards.values())
        if known is None:
            raise InputError(reason, where="--gpu", fix="name one of data/hardware")
        card = cards[known]
    asked = rates.parse_rate(rate)
    stated = conditions.Conditions(
        gpus=gpus,
        inputs=inputs,
        outputs=outputs,
        concurrency=concurrency,
        precision=precision,
        counting=counting,
        tokens_per_step=tokens_per_step,
        cached=cached,
        kv_bits=kv_bits,
        overhead=_size(overhead, "--overhead") or 0.0,
    )
    answer = limits.possible(
        asked,
        None if model is None else facts.limits_of(model, hub.config),
        card,
        stated,
        working_set=_size(working_set, "--working-set"),
    )
    if json:
        _emit(answer)
    else:
        from assay.press import terminal

        terminal.possible(answer, unit=asked.unit)


# -- result files ---------------------------------------------------------------------------------


@app.command()
def read(
    files: Annotated[list[Path], typer.Argument(help="Result files of any benchmark.")],
    json: Json = False,
) -> None:
    """Read benchmark result files into one table, and say what is wrong in them."""
    from assay.bench.results import reader

    readings = [reader.read(file) for file in files]
    answer = reader.answer(readings)
    if json:
        _emit(answer)
    else:
        from assay.press import terminal

        terminal.results(answer)
    for sentence in reader.sentences(readings):
        print(f"assay: {sentence}", file=sys.stderr)
    if not answer["usable"]:
        raise typer.Exit(2)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="A result file, a folder of repeats, or pairs.")],
    after: Annotated[
        Path | None, typer.Argument(help="The other side; none for a YAML file of pairs.")
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(help="A condition that is the change under test, for example model."),
    ] = None,
    json: Json = False,
) -> None:
    """Say what two results do and do not show."""
    from assay.bench import comparison
    from assay.bench.comparison import pairs

    if after is not None:
        found = comparison.compare(before, after, changed=changed or ())
    elif pairs.is_pairs(before):
        found = pairs.compare(before)
    else:
        raise InputError("one side is missing", where="AFTER", fix="name a second file or folder")
    if json:
        _emit([c.as_dict() for c in found] if len(found) != 1 else found[0].as_dict())
    else:
        from assay.press import terminal

        terminal.comparisons(found)


@app.command()
def reasoning(
    on: Annotated[Path, typer.Argument(help="Records with reasoning on, or of both arms.")],
    off: Annotated[Path | None, typer.Argument(help="Records with reasoning off.")] = None,
    price: Annotated[
        float | None, typer.Option(min=0, help="USD per million output tokens.")
    ] = None,
    prompt_price: Annotated[float, typer.Option(min=0, help="USD per million input tokens.")] = 0.0,
    level: Annotated[float, typer.Option(help="Nominal coverage of the intervals.")] = 0.95,
    margin: Annotated[
        float, typer.Option(help="A difference in accuracy within this share is none.")
    ] = 0.02,
    json: Json = False,
) -> None:
    """Say what reasoning costs and buys, from one record per question and arm."""
    from assay.bench import reasoning as bench
    from assay.bench.reasoning import contrast

    if prompt_price and price is None:
        raise InputError("needs --price as well", where="--prompt-price", fix="give both prices")
    prices = None if price is None else contrast.Prices(output=price, prompt=prompt_price)
    arms = bench.load(on, off)
    answer = bench.compare(*arms, level=level, margin=margin, prices=prices)
    if json:
        _emit(answer)
    else:
        from assay.press import terminal

        terminal.reasoning(answer)
