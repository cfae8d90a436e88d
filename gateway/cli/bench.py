"""``holeshot bench``: compares deployments by the same requests, with intervals and verdicts."""

import asyncio
import random
import re
import time
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from gateway.cli.configuration import ConfigOption, KeyForUrlOption
from gateway.cli.terminal import FAILED, MISUSED, OK, fail, say, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.bench import BenchPlan, GateResult, Journal, JournalContent, OwnPrompts, Report, Way
    from gateway.bench import GateChecks as WantedGate
    from gateway.cli.bench_field import AllowedSpending, FieldOptions

BROKEN = 3  # a goal is broken, or something is worse than before
UNDECIDED = 4  # too little data to say
STOPPED = 130  # by Ctrl-C; the usual exit code
_DEFAULT_ROUNDS = 20
_DEFAULT_CALLS = 400  # for each way: enough for an interval of the p99
_MOST_CALLS = 10_000
_DEFAULT_CAP_USD = 1.0
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh])")


def bench(  # noqa: PLR0917 - options are named on the command line
    model: Annotated[
        list[str] | None,
        typer.Argument(help="A model, or provider/model and provider/model. [default: the first model]"),
    ] = None,
    deployment: Annotated[
        list[str] | None, typer.Option("--deployment", "-d", help="Only this deployment; may be repeated.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Measure through the gateway at this URL. [default: directly, without a gateway]")
    ] = None,
    key: KeyForUrlOption = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Comma list of short, long_answer, long_prompt, tool_call, json; short:fixed etc. are sent without a"
            " salt, so that prompt caches may know them. [default: the first five]"
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            "--calls",
            min=1,
            max=10_000,
            help="How often each request is sent to each deployment, in all; with --ways the calls of each way."
            " [default: 20; with --ways 400]",
        ),
    ] = None,
    ways: Annotated[
        str | None,
        typer.Option(
            metavar="single,0.1,1.0",
            help="Compare ways to run the calls of one model instead of its deployments: single is one provider at a"
            " time, a number the budget of extra requests per call.",
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="1h",
            help="Stop after this time (s, m, h); with --resume, 0s shows what is known. [default: after --rounds]",
        ),
    ] = None,
    every_s: Annotated[
        float | None, typer.Option("--every", min=0, metavar="SECONDS", help="Seconds from one call to the next.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="With --ways: your own prompts, one a line; of a .jsonl file a JSON string a line. [default: short,"
            " long_answer]"
        ),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of any answer.")] = None,
    concurrency: Annotated[
        str | None, typer.Option(help="Requests at a time; a comma list measures several levels. [default: 1]")
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option(min=0, max=100, help="Requests to each deployment that do not count. [default: 2]")
    ] = None,
    answer_tokens: Annotated[
        int | None, typer.Option(min=16, help="Most tokens of a long answer. [default: 512]")
    ] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option(min=100, help="The size of a long prompt, in tokens. [default: 4000]")
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="What a good answer is like: ttft<500ms,tps>45; also answer, clause, silence, total, gap, itl, e2e."
        ),
    ] = None,
    voice: Annotated[
        bool,
        typer.Option(
            "--voice",
            help="Somebody listens: first clauses, silences and dollars per spoken hour; with --ways races as"
            " `profile: voice` does.",
        ),
    ] = False,
    max_usd: Annotated[
        float | None, typer.Option("--max-usd", min=0, help="What it may cost at most. [default: 1.00]")
    ] = None,
    unpriced: Annotated[
        bool,
        typer.Option("--unpriced", help="Measure deployments of unknown price too; the cap does not hold for them."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before money is spent.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of the order of requests. [default: random]")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Where each result is kept at once. [default: bench-TIME.jsonl]")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the run of this journal, which was stopped or killed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a row for each figure.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report with plots as one HTML file.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the times as a picture, an SVG file.")] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="GOAL",
            help='Exit with 3 if a figure is so: "ttft_p95_ms > 800", "groq/llama: errors > 2%"; may be repeated.',
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Exit with 3 if the result is worse than an earlier run: its journal, or what --json printed."
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write what --fail-if and --against found as JUnit's XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown.")] = None,
    config: ConfigOption = None,
) -> None:
    """Compare deployments by the same requests to each.

    The deployments take turns, in a random order, asked directly, or through a running gateway with --url. The cost
    is estimated first, and never more than --max-usd. The page 'Comparing deployments
    and settings' of the documentation explains figures and method.

    With --ways it measures what racing brings you: one model's calls, in turns, alone and raced. They run in this
    process as in a gateway, for a model of their own in your ledger (bench:MODEL:WAY), so that no figure of yours
    changes. Ctrl-C stops it; --resume goes on.

    As a gate of a pipeline (--fail-if, --against) it exits with 3 if a goal is broken or a run of before was better,
    and with 4 if there is too little data to say.

    Example: holeshot bench gpt-oss-120b --rounds 30 --goal "ttft<500ms,tps>45" --html report.html

    Example: holeshot bench gpt-oss-120b --ways single,0.1,1.0 --for 1h --max-usd 2 --picture ways.svg

    Example: holeshot bench gpt-oss-120b --ways single,1.0 --voice

    Example: holeshot bench gpt-oss-120b --yes --fail-if "ttft_p95_ms > 800" --junit bench.xml
    """
    from providers import has_scipy, how_to_install  # noqa: PLC0415 - only where it is needed

    if not has_scipy():
        fail(f"bench needs scipy for its intervals and tests: {how_to_install('bench')}")
    gate = _read_gate(fail_if or [], against)
    if junit is not None and gate is None:
        fail("--junit needs something to judge: add --fail-if or --against", MISUSED)
    files = _Files(html, junit, markdown, picture)
    of_ways = _read_ways(ways, url, deployment)
    plan = {
        "MODEL": model,
        "--deployment": deployment,
        "--url": url,
        "--classes": classes,
        "--concurrency": concurrency,
        "--warm-up": warm_up,
        "--answer-tokens": answer_tokens,
        "--prompt-tokens": prompt_tokens,
        "--goal": goal,
        "--seed": seed,
        "--ways": ways,
        "--prompts": prompts,
        "--max-tokens": max_tokens,
        "--voice": voice or None,
        "--journal": journal,
    }
    if as_json and as_csv:
        fail("give --json or --csv, not both", MISUSED)
    if resume is not None and (settled := [name for name, value in plan.items() if value is not None]):
        fail(f"with --resume the plan is the journal's: leave out {', '.join(settled)}", MISUSED)
    from gateway.bench import BenchPace, JournalError  # noqa: PLC0415 - likewise
    from gateway.cli.bench_field import AllowedSpending, FieldOptions, parse_goal, read_levels  # noqa: PLC0415 - likewise
    from gateway.watching import logs  # noqa: PLC0415 - likewise

    logs.configure("error", "console")  # a log line would damage the progress
    wanted = FieldOptions(
        config=config,
        model=",".join(model) if model else None,
        deployments=tuple(deployment or ()),
        url=url,
        key=key,
        kinds=_kinds("long_answer" if voice and classes is None else classes, prompts, of_ways),
        voice=voice,
        rounds=rounds or _default_rounds(of_ways, for_),
        concurrencies=read_levels(concurrency),
        warm_up=2 if warm_up is None else warm_up,
        answer_tokens=answer_tokens or (256 if of_ways else 512),
        prompt_tokens=prompt_tokens or 4000,
        goal=parse_goal(goal),
        seed=random.randrange(2**31) if seed is None else seed,  # noqa: S311 - an order
        ways=of_ways,
        most_tokens=max_tokens,
        pace=BenchPace(every_s or 0.0, _seconds(for_)),
    )
    path = resume or journal or Path(time.strftime("bench-%Y%m%d-%H%M%S.jsonl"))
    spending = AllowedSpending(cap_usd=_DEFAULT_CAP_USD if max_usd is None else max_usd, unpriced=unpriced, yes=yes)
    wanted = msgspec.structs.replace(wanted, prompts=_own_prompts(prompts, of_ways, classes))
    try:
        past = None if resume is None else _read_past(resume, rounds)
        report = asyncio.run(_bench(wanted, past, path, spending, gate))
    except JournalError as error:
        fail(str(error))
    except KeyboardInterrupt:
        if path.exists():
            _show_so_far(path, files, as_json=as_json, as_csv=as_csv)
            say(f"holeshot: stopped; `holeshot bench --resume {path}` goes on", err=True)
        raise typer.Exit(STOPPED) from None
    _finish(report, path, gate, files, as_json=as_json, as_csv=as_csv)


def _read_past(resume: Path, rounds: int | None) -> "JournalContent":
    """Return the content of the journal ``resume``, with the new number of ``rounds``."""
    from gateway.bench import read_journal  # noqa: PLC0415 - as above

    past = read_journal(resume)
    if rounds is not None:
        if rounds <= past.plan.rounds:
            fail(f"--rounds: {resume} has {past.plan.rounds} already; with --resume it is their number in all", MISUSED)
        past.plan = msgspec.structs.replace(past.plan, rounds=rounds)
    return past


def _own_prompts(path: Path | None, ways: "tuple[Way, ...]", classes: str | None) -> "OwnPrompts | None":
    if path is None:
        return None
    if not ways or classes is not None:
        fail("--prompts goes with --ways, and instead of --classes", MISUSED)
    from gateway.cli.bench_ways import read_prompts  # noqa: PLC0415 - as above

    return read_prompts(path)


def _read_gate(fail_if: list[str], against: Path | None) -> "WantedGate | None":
    """Return the gate's conditions and the earlier run; None if the options name neither."""
    if not fail_if and against is None:
        return None
    from gateway.bench import GateChecks, GateError, read_condition, read_saved  # noqa: PLC0415 - as above

    try:
        conditions = tuple(map(read_condition, fail_if))
        return GateChecks(conditions, None if against is None else read_saved(against), str(against or ""))
    except GateError as error:
        fail(str(error), MISUSED)


def _default_rounds(ways: "tuple[Way, ...]", for_: str | None) -> int:
    if not ways:
        return _DEFAULT_ROUNDS
    return _DEFAULT_CALLS if for_ is None else _MOST_CALLS


def _read_ways(text: str | None, url: str | None, deployments: list[str] | None) -> "tuple[Way, ...]":
    """Return the ways to compare; none: deployments are compared."""
    if text is None:
        return ()
    from gateway.bench import WayError, read_ways  # noqa: PLC0415 - as above

    if url is not None:
        fail("--ways runs in this process, so that no calls of others share its budget: leave out --url", MISUSED)
    if deployments:
        fail(
            "--ways is of all deployments of a model; name others as its model: provider/model,provider/model", MISUSED
        )
    try:
        return read_ways(text)
    except WayError as error:
        fail(str(error), MISUSED)


def _kinds(classes: str | None, prompts: Path | None, ways: "tuple[Way, ...]") -> tuple[str, ...]:
    """Return the classes of prompts that are asked."""
    from gateway.bench import PromptKind  # noqa: PLC0415 - as above
    from gateway.cli.bench_field import read_classes  # noqa: PLC0415 - likewise

    if prompts is not None:
        return (PromptKind.OWN,)
    if ways and classes is None:
        return (PromptKind.SHORT, PromptKind.LONG_ANSWER)
    return read_classes(classes)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        fail(f"--for {text!r} is not a time; write 90s, 10m or 1h", MISUSED)
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _show_so_far(path: Path, files: "_Files", *, as_json: bool, as_csv: bool) -> None:
    """Print and write what a bench of ways has measured until it was stopped; it may run for an evening."""
    from gateway.bench import read_journal, report  # noqa: PLC0415 - likewise
    from gateway.cli.bench_field import spent_at_most_usd  # noqa: PLC0415 - likewise

    past = read_journal(path)
    if not past.plan.raced:
        return
    found = report(past.plan, past.samples, sittings=past.sittings, at_most_usd=spent_at_most_usd(past))
    if found.requests:
        _show(found, path, None, as_json=as_json, as_csv=as_csv)
        _write(found, None, files)


async def _bench(
    wanted: "FieldOptions",
    past: "JournalContent | None",
    path: Path,
    spending: "AllowedSpending",
    gate: "WantedGate | None",
) -> "Report":
    """Run the rest of a bench; return its report."""
    from gateway.bench import Bench, BenchError, BenchPurse, JournalContent, report  # noqa: PLC0415 - likewise
    from gateway.cli.bench_field import (  # noqa: PLC0415 - likewise
        MOMENTS,
        BenchField,
        confirm,
        open_field,
        shown_progress,
        spent_at_most_usd,
        unpriced_of,
    )

    if past is not None and (_is_whole(past) or wanted.pace.for_s == 0):
        _check(gate, past.plan)
        return report(past.plan, past.samples, sittings=past.sittings, at_most_usd=spent_at_most_usd(past))
    async with AsyncExitStack() as stack:
        field: BenchField
        before = None if past is None else past.plan
        if wanted.ways or (before is not None and before.raced):
            from gateway.cli.bench_ways import open_ways  # noqa: PLC0415 - a whole gateway

            ways = await stack.enter_async_context(open_ways(wanted, before))
            field, prompts = ways, ways.prompts
        else:
            field, prompts = await stack.enter_async_context(open_field(wanted, before)), ()
        plan = field.plan(wanted) if past is None else past.plan
        _check(gate, plan)
        costs = field.costs(plan)
        confirm(plan, field, costs, spending, JournalContent(plan) if past is None else past)
        journal, past = stack.enter_context(_journal(path, plan, is_new=past is None))
        if plan.rounds > past.plan.rounds:
            journal.rounds(plan.rounds)
            past.plan = plan
        cap_usd = None if spending.unpriced and unpriced_of(field) else spending.cap_usd
        purse = BenchPurse(cap_usd, costs)
        with shown_progress(plan, past.samples) as watcher:
            run = Bench(
                plan,
                field.ask,
                journal,
                past,
                purse,
                watcher=watcher,
                moments=MOMENTS,
                pace=wanted.pace,
                prompts=prompts,
            )
            try:
                samples = await run.run()
            except BenchError as error:
                fail(str(error))
        if run.stopped_at_cap:
            say(
                f"holeshot: the next round could cost more than is left of ${spending.cap_usd:.2f};"
                f" `holeshot bench --resume {path} --max-usd ...` goes on",
                err=True,
            )
        return report(plan, samples, sittings=past.sittings + 1, at_most_usd=purse.committed_usd)


@contextmanager
def _journal(path: Path, plan: "BenchPlan", *, is_new: bool) -> "Iterator[tuple[Journal, JournalContent]]":
    from gateway.bench import JournalContent, continued_journal, new_journal  # noqa: PLC0415 - as above

    if is_new:
        with new_journal(path, plan) as journal:
            yield journal, JournalContent(plan)
    else:
        with continued_journal(path) as both:
            yield both


def _is_whole(past: "JournalContent") -> bool:
    """Whether every request of the plan was sent."""
    from gateway.bench import measured  # noqa: PLC0415 - as above

    return len(measured(past.samples)) >= past.plan.requests


def _check(gate: "WantedGate | None", plan: "BenchPlan") -> None:
    """Fail before anything is sent if the gate cannot judge this bench."""
    if gate is None:
        return
    from gateway.bench import GateError, check_plan  # noqa: PLC0415 - as above

    try:
        check_plan(gate, plan)
    except GateError as error:
        fail(str(error), MISUSED)


class _Files(NamedTuple):
    """The paths of the reports; None: the report is not written."""

    html: Path | None
    junit: Path | None
    markdown: Path | None
    picture: Path | None


def _finish(
    report: "Report", journal: Path, wanted: "WantedGate | None", files: _Files, *, as_json: bool, as_csv: bool
) -> None:
    """Print and write the report, and exit with the gate's code."""
    gate: GateResult | None = None
    if report.requests and wanted is not None:
        from gateway.bench import judge  # noqa: PLC0415 - as above

        gate = judge(wanted, report)
    _show(report, journal, gate, as_json=as_json, as_csv=as_csv)
    _write(report, gate, files)
    if not report.requests and gate is None:
        raise typer.Exit(FAILED)
    if gate is not None:
        raise typer.Exit({"broken": BROKEN, "undecided": UNDECIDED}.get(gate.outcome, OK))


def _show(report: "Report", journal: Path, gate: "GateResult | None", *, as_json: bool, as_csv: bool) -> None:
    if as_json:
        from gateway.bench import with_gate  # noqa: PLC0415 - as above

        write_json(report if gate is None else with_gate(report, gate))
        return
    if as_csv:
        from gateway.bench import as_csv as csv_of  # noqa: PLC0415 - as above

        typer.echo(csv_of(report), nl=False)
    else:
        _print(report, journal)
    if gate is not None:
        from gateway.cli.bench_field import write_gate  # noqa: PLC0415 - as above

        write_gate(gate, err=as_csv)


def _print(report: "Report", journal: Path) -> None:
    if report.plan.raced:
        from gateway.cli.bench_ways import write_ways  # noqa: PLC0415 - as above

        write_ways(report, journal)
    else:
        from gateway.cli.bench_field import write_report  # noqa: PLC0415 - as above

        write_report(report, journal)


def _write(report: "Report", gate: "GateResult | None", files: _Files) -> None:
    """Write the requested files."""
    if files.html is not None:
        from gateway.bench import page  # noqa: PLC0415 - as above

        _save(files.html, page(report, gate))
        say(f"the report with plots: {files.html}", err=True)
    if files.junit is not None and gate is not None:
        from gateway.bench import junit  # noqa: PLC0415 - as above

        _save(files.junit, junit(report, gate))
    if files.picture is not None:
        from gateway.bench import picture  # noqa: PLC0415 - as above

        _save(files.picture, picture(report))
    if files.markdown is not None:
        from gateway.bench import gate_markdown  # noqa: PLC0415 - as above

        texts = [] if report.plan.raced and gate is None else [gate_markdown(report, gate)]
        if report.plan.raced:
            from gateway.bench import ways_markdown  # noqa: PLC0415 - as above

            texts.insert(0, ways_markdown(report, None if files.picture is None else files.picture.name))
        _save(files.markdown, "\n".join(texts))


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}")
