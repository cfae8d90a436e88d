"""``holeshot replay``: what another setting would have done."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.configuration import ConfigOption, DatabaseOption, read_database_url
from gateway.cli.terminal import MISUSED, fail, prose, say, without_unknown, write_json, write_table
from gateway.core.terminal_text import counted

if TYPE_CHECKING:
    from gateway.cli.replaying import OnProgress, ReplayedModel, ReplayRequest
    from gateway.replay import AuditNeed, Figure, SettingOutcome

_WINDOW = re.compile(r"(\d+)([mhd])")
_UNIT_S = {"m": 60, "h": 3600, "d": 86_400}
_INTERRUPTED = 130


def replay(  # noqa: PLR0917 - options are named on the command line
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only this model.")] = None,
    window: Annotated[str, typer.Option(metavar="7d", help="How far back (m, h, d).")] = "7d",
    without: Annotated[
        list[str] | None, typer.Option(metavar="PROVIDER", help="As if this provider had not been there; repeatable.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="0.1,0.2", help="Budgets: extra attempts per call, with commas.")
    ] = None,
    config: ConfigOption = None,
    database_url: DatabaseOption = None,
    most: Annotated[int, typer.Option("--calls", min=100, help="The most calls read of a model.")] = 50_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print only the recommended setting, as YAML.")] = False,
) -> None:
    """Show what another setting would have done.

    It replays the ledger's calls: with one attempt, races of two and three, several budgets, without a provider. It
    shows speed with intervals, attempts and cost, and which setting to take. The method is on the page
    'Comparing deployments and settings' of the documentation.


    Example: holeshot replay --model llama-3.3-70b --window 7d --budget 0.1,0.2

    Example: holeshot replay --model llama-3.3-70b --without groq --json
    """
    if as_json and as_yaml:
        fail("one of --json and --yaml", MISUSED)
    window_s = _window_s(window)
    budgets = _budgets(budget)
    url = database_url or read_database_url(config, for_reports=True)
    from gateway.cli.replaying import ReplayError, ReplayRequest, replay_ledger  # noqa: PLC0415 - SQLAlchemy only where it is needed
    from gateway.ledger import LedgerError  # noqa: PLC0415 - likewise

    request = ReplayRequest(url, window, window_s, model, tuple(without or ()), budgets, most)
    try:
        with _progress() as on_progress:
            _, answers = replay_ledger(request, on_progress)
    except (LedgerError, ReplayError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted; nothing was changed", _INTERRUPTED)
    _show(answers, request, as_json=as_json, as_yaml=as_yaml)


def _window_s(window: str) -> float:
    match = _WINDOW.fullmatch(window)
    if match is None or not int(match[1]):
        fail(f"--window {window!r} is not a duration; write 90m, 24h or 7d", MISUSED)
    seconds = int(match[1]) * _UNIT_S[match[2]]
    if seconds > 3660 * 86_400:
        fail(f"--window {window} is more than ten years", MISUSED)
    return float(seconds)


def _budgets(budget: str | None) -> tuple[float, ...]:
    from gateway.replay import BUDGETS, MOST_BUDGET  # noqa: PLC0415 - only where it is needed

    found = []
    for each in [] if budget is None else budget.split(","):
        try:
            found.append(float(each))
        except ValueError:
            fail(f"--budget {each.strip()!r} is not a number; write 0.1 or 0.1,0.2", MISUSED)
        if not 0 < found[-1] <= MOST_BUDGET:
            fail(f"--budget {each.strip()} is impossible: it must be above 0 and at most {MOST_BUDGET:g}", MISUSED)
    return tuple(found) or BUDGETS


@contextmanager
def _progress() -> Iterator["OnProgress"]:
    """Show the progress on standard error, if it is a terminal."""
    from rich.console import Console  # noqa: PLC0415 - slow imports only where they are used
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - likewise

    screen = Console(stderr=True, markup=False, emoji=False)
    columns = (TextColumn("{task.fields[model]}: {task.description}", markup=False), BarColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("reading", total=None, model="ledger")

        def on_progress(model: str, words: str, share: float | None) -> None:
            total = None if share is None else 1.0
            progress.update(task, model=model, description=words, total=total, completed=share or 0.0)

        yield on_progress


def _show(answers: "Sequence[ReplayedModel]", request: "ReplayRequest", *, as_json: bool, as_yaml: bool) -> None:
    from gateway.replay import advice, published, race_yaml  # noqa: PLC0415 - as above

    without = request.without
    is_begun = False  # the section `models:` of the YAML, which a file has once
    if as_json:
        data = [published(each.model, each.calls, each.replayed, without) for each in answers]
        write_json({"window": request.window, "models": data})
        return
    for number, each in enumerate(answers):
        advised = advice(each.replayed)
        written = race_yaml(each.model, advised.race, begins=not (as_yaml and is_begun)) if advised.race else None
        if as_yaml:
            say(
                "\n".join(
                    f"# {line}" for line in [advised.why, *[f"As if {name} had not been there." for name in without]]
                )
            )
        else:
            if number:
                say("")
            _table(each, request)
            prose(advised.why if advised.setting is None else f"Recommended: {advised.setting}. {advised.why}")
            _write_needs(each.replayed.needs)
        if written is not None:
            say(written)
            is_begun = True
    if not as_yaml:
        prose(
            "\nMilliseconds; intervals of 95 % in brackets. The assumptions are on the page 'Comparing deployments and"
            " settings' of the documentation.",
            err=True,
        )


def _table(found: "ReplayedModel", request: "ReplayRequest") -> None:
    each = found.replayed
    words = "".join(f", without {provider}" for provider in request.without)
    sample = "" if each.calls == found.calls else f", a sample of {each.calls:,}"
    say(f"{found.model}: {counted(found.calls, 'call')} of the last {request.window}{sample}{words}")
    if each.seen_ms:
        was = ", ".join(f"{name} {ms:,.0f}" for name, ms in each.seen_ms.items())
        say(f"As it was: TTFT {was} ms, {each.seen_attempts:.2f} attempts per call")
    if each.outcomes:
        write_table(*without_unknown(_HEADS, [_line(one) for one in each.outcomes]))


def _write_needs(needs: "Sequence[AuditNeed]") -> None:
    """Print which deployments have too few audited losers, and when they will have enough."""
    from gateway.replay import time_left  # noqa: PLC0415 - as above

    rows = [[each.deployment, each.audits, each.more, time_left(each)] for each in needs if each.more]
    if rows:
        write_table(["deployment", "audited losers", "more needed", "when"], rows)


_HEADS = ("setting", "attempts", "TTFT p50", "p95", "p99", "off p95", "total p50", "total p95", "USD of 1000")


def _line(outcome: "SettingOutcome") -> Sequence[object]:
    cost = None
    if outcome.cost_low_usd is not None and outcome.cost_high_usd is not None:
        cost = f"{1000 * outcome.cost_low_usd:.3g}–{1000 * outcome.cost_high_usd:.3g}"  # noqa: RUF001 - a range
    return (
        outcome.setting,
        f"{outcome.attempts:.2f}",
        _figure(outcome.ttft["p50"]),
        _figure(outcome.ttft["p95"]),
        _figure(outcome.ttft["p99"]),
        _figure(outcome.saved_p95_ms) if outcome.setting != "single" else None,
        _figure(outcome.total["p50"]),
        _figure(outcome.total["p95"]),
        cost,
    )


def _figure(figure: "Figure") -> str | None:
    if figure.value is None:
        return None
    high = "?" if figure.high is None else f"{figure.high:,.0f}"
    return f"{figure.value:,.0f} [{figure.low or 0:,.0f}–{high}]"  # noqa: RUF001 - a range
