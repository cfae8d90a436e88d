"""``holeshot slo``: where the targets of the configuration stand, from the ledger or a gateway; ``slowdowns`` too."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from gateway.cli.configuration import (
    ConfigOption,
    KeyOption,
    LookUrlOption,
    gateway_url,
    read_database_url,
    read_targets,
)
from gateway.cli.terminal import MISUSED, fail, prose, say, write_json, write_table
from gateway.core.targets import BURNS_S, TargetStanding, condition, duration, share, shown, subject

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from gateway.core.reports import SlowdownsWanted
    from gateway.core.targets import Target

_SHARES = (1.0, 0.5, 0.2, 0.05)  # of bad calls
_HOURS_FROM_S = 7200
_EXAMPLES = "the page 'Alerts, monitoring and slowdowns' of the documentation has examples"


def slo(
    target: Annotated[str | None, typer.Argument(help="Only this target.")] = None,
    config: ConfigOption = None,
    url: LookUrlOption = None,
    key: KeyOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the SQL of each figure.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what opens an alert, and when; reads no ledger.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a target is missed.")] = False,
) -> None:
    """Show whether the targets of `slo:` are kept.

    It also shows what is left of their error budgets, and how fast they are spent.

    A burn of 1 spends the budget just within the target's days; 14.4 for an hour spends 2 % of a month's. The figures
    are read from the ledger; no gateway need run. Which calls count is on the page
    'Alerts, monitoring and slowdowns' of the documentation.

    Example: holeshot slo --json
    """
    if explain and as_json:
        fail("--explain has no JSON: leave out one of the two", MISUSED)
    if url is None or explain:
        found = _of_configuration(config, target, explain=explain)
    else:
        found = _of_gateway(gateway_url(url, config), key, target)
    if explain:
        return
    if as_json:
        write_json({"targets": found})
    else:
        _write(found)
    if strict and any(each.budget_left is not None and each.budget_left < 0 for each in found):
        raise typer.Exit(1)


def _of_configuration(config: "Path | None", name: str | None, *, explain: bool) -> list[TargetStanding]:
    """Return where the configuration's targets stand; ``explain``: print their rules instead."""
    from gateway.ledger import LedgerError  # noqa: PLC0415 - SQLAlchemy only here
    from gateway.settings import targets_of  # noqa: PLC0415 - likewise

    watched = read_targets(config)
    if not watched.slo:
        fail(f"there is no target: add a section `slo:` to the configuration; {_EXAMPLES}")
    _check(name, watched.slo)
    wanted = [each for each in targets_of(watched.slo) if name in {None, each.name}]
    if explain:
        for each in wanted:
            _explain(each, watched.burn_least_bad)
        return []
    try:
        return asyncio.run(_standings(watched.database_url.get_secret_value(), wanted))
    except LedgerError as error:
        fail(str(error))


def _of_gateway(url: str, key: str | None, name: str | None) -> list[TargetStanding]:
    """Return where the targets of a running gateway stand."""
    import msgspec  # noqa: PLC0415 - as above

    from gateway.cli.remote import GatewayError, told  # noqa: PLC0415 - likewise

    try:
        found = msgspec.convert(told(f"{url}/api/slo", key, "targets")["targets"], list[TargetStanding])
    except GatewayError as error:
        fail(str(error))
    except msgspec.ValidationError:
        fail(f"the gateway at {url} is of another version: its targets cannot be read")
    if not found:
        fail(f"the gateway at {url} has no target: {_EXAMPLES}")
    _check(name, [each.name for each in found])
    return [each for each in found if name in {None, each.name}]


def _check(name: str | None, known: "Collection[str]") -> None:
    from gateway.settings import nearest  # noqa: PLC0415 - as above

    if name is not None and name not in known:
        fail(f"there is no target {name!r}; {nearest(name, known)}")


async def _standings(url: str, targets: "Sequence[Target]") -> list[TargetStanding]:
    from gateway.ledger import Words, is_sqlite, parse_url, queries, standings  # noqa: PLC0415 - as above

    async def ask(sql: str) -> queries.Result:
        return await queries.run(url, sql)

    words = Words(is_postgres=not is_sqlite(parse_url(url)))
    return [shown(each) for each in await standings(ask, words, targets, datetime.now(UTC))]


def _write(targets: "Sequence[TargetStanding]") -> None:
    windows = [duration(window_s) for window_s in BURNS_S]
    columns = [
        "target",
        "calls",
        "bad",
        "good",
        "budget left",
        *(f"burn {w}" for w in windows),
    ]
    write_table(columns, [_cells(each) for each in targets])
    for each in targets:
        prose(f"{each.name} is {share(each.objective)} of {each.days} d, {each.subject}: {each.condition}")
    for each in targets:
        prose(f"{each.name}: {each.verdict}")


def _explain(target: "Target", least_bad: int) -> None:
    """Print which rules open an alert, and when they open one if calls are bad from now on."""
    from gateway.alerts import RULES, opens_after_s  # noqa: PLC0415 - only here

    may_be_bad = 1.0 - target.objective
    rows = []
    for rule in RULES:
        needed = rule.factor * may_be_bad
        rows.append(
            [
                duration(rule.long_s),
                duration(rule.short_s),
                f"{rule.factor:g} x",
                f"{100 * needed:.3g}%" if needed <= 1.0 else "more than all",
                "page" if rule.severity == "page" else "ticket",
                *(_after(opens_after_s(rule, share, target.objective)) for share in _SHARES),
            ]
        )
    columns = ["over", "and over", "burn", "bad calls", "opens", *(f"{100 * share:g}% bad" for share in _SHARES)]
    write_table(columns, rows, title=f"{target.name}: {condition(target)}, {subject(target)}")
    prose(
        f"{target.name}: {100 * may_be_bad:.3g} % of the calls of {target.days} days may be bad. A rule opens an alert "
        f"when the budget burns at least so fast in both windows, with {least_bad} bad calls (alerts.burn_least_bad) "
        "in the longer one. The last columns: how long after calls begin to be bad; few calls take longer."
    )


def _after(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return f"{seconds / 60:.1f} min" if seconds < _HOURS_FROM_S else f"{seconds / 3600:.1f} h"


def _cells(target: TargetStanding) -> list[object]:
    burns = {burn.window_s: burn.burn_rate for burn in target.burns}
    return [
        target.name,
        target.calls,
        target.bad,
        None if target.good_share is None else f"{100 * target.good_share:.2f}%",
        None if target.budget_left is None else f"{100 * target.budget_left:.0f}%",
        *(None if (rate := burns.get(window_s)) is None else f"{rate:.1f}" for window_s in BURNS_S),
    ]


# ``holeshot slowdowns``: when deployments were slower than usual, or failed more often.

_WINDOWS = ("1h", "24h", "7d", "30d")
_METRICS = {"ttft": "first token", "tps": "speed", "itl": "gaps", "errors": "errors"}


def slowdowns(
    config: ConfigOption = None,
    url: LookUrlOption = None,
    key: KeyOption = None,
    *,
    since: Annotated[str, typer.Option(metavar="30d", help="How far back: 1h, 24h, 7d or 30d.")] = "30d",
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    deployment: Annotated[str | None, typer.Option(help="Only this deployment.")] = None,
    now: Annotated[bool, typer.Option("--now", help="Only those that go on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, with the SQL that shows each.")] = False,
) -> None:
    """Show when deployments were slower or failed more than usual.

    A running gateway compares each deployment every five minutes with its own earlier weeks and with the model's other
    deployments. How, and how soon it notices, is on the page 'Alerts, monitoring and slowdowns' of the documentation.

    Example: holeshot slowdowns --now
    """
    if since not in _WINDOWS:
        fail(f"--since {since!r} is none of {', '.join(_WINDOWS)}", MISUSED)
    from gateway.cli.remote import GatewayError, told  # noqa: PLC0415 - only where it is needed
    from gateway.core.reports import SlowdownsWanted, Window  # noqa: PLC0415 - likewise
    from gateway.ledger import LedgerError  # noqa: PLC0415 - SQLAlchemy only where it is needed

    try:
        if url is not None:
            named = {"window": since, "model": model, "deployment": deployment}
            query = urlencode({name: value for name, value in named.items() if value is not None})
            rows = told(f"{gateway_url(url, config)}/api/slowdowns?{query}", key, "data")["data"]
        else:
            wanted = SlowdownsWanted(window=Window(since), model=model, deployment=deployment)
            rows = asyncio.run(_read(read_database_url(config, for_reports=True), wanted))
    except (GatewayError, LedgerError) as error:
        fail(str(error))
    rows = [row for row in rows if row["ended_at"] is None or not now]
    if as_json:
        write_json(rows)
    elif rows:
        write_table(
            ("deployment", "model", "what", "times", "95 %", "from", "noticed", "to"), [_line(row) for row in rows]
        )
    else:
        say("no deployment was slower than usual" if not now else "no deployment is slower than usual")


async def _read(url: str, wanted: "SlowdownsWanted") -> list[dict[str, Any]]:
    from gateway.ledger import ResultRows, Words, is_sqlite, parse_url, queries, rows, slowdowns_sql  # noqa: PLC0415 - likewise

    words = Words(is_postgres=not is_sqlite(parse_url(url)))
    result = await queries.run(url, slowdowns_sql(words, wanted, datetime.now(UTC)))
    return rows(ResultRows(result.columns, result.rows))


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    def when(name: str) -> str:
        at = row[name]  # a gateway sends times as text
        at = datetime.fromisoformat(at) if isinstance(at, str) else at
        return f"{at:%Y-%m-%d %H:%M}" if at is not None else "it goes on"

    return (
        row["deployment"],
        row["model"],
        _METRICS.get(row["metric"], row["metric"]),
        f"{row['ratio']:.2f}",
        f"{row['low']:.2f} to {row['high']:.2f}",
        when("began_at"),
        when("noticed_at"),
        when("ended_at"),
    )
