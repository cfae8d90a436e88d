"""``holeshot leaderboard``: the fastest deployments, now from the running gateway, or earlier from the ledger."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from gateway.cli.configuration import ConfigOption, KeyOption, UrlOption, gateway_url, read_database_url
from gateway.cli.terminal import MISUSED, console, fail, fitting_widths, table, write_json
from gateway.core.terminal_text import visible

# The leaderboard on a terminal: a table for each model, with as many columns as fit the screen.

Models = Sequence[Mapping[str, Any]]
Cells = Mapping[str, Sequence[object]]  # by column, one cell for each deployment

# The gateway's names, and the headings; a gateway of another version may send more or fewer.
_COLUMNS = {
    "place": "#",
    "deployment": "deployment",
    "n": "n",
    "n_censored": "cancelled",
    "ttft_p50_ms": "p50",
    "ttft_p50_interval": "95 %",
    "ttft_p95_ms": "p95",
    "ttft_p99_ms": "p99",
    "sentence_p50_ms": "sentence",
    "sentence_p95_ms": "sentence p95",
    "decode_mean_tps": "tok/s",
    "e2e_mean_tps": "e2e",
    "win_share": "won",
    "error_rate": "errors",
    "flaw_rate": "flaws",
    "flaw_rate_interval": "flaws 95 %",
    "n_rate_limited": "429s",
    "state": "state",
    "in_flight": "now",
}
_ALWAYS = ("place", "deployment", "ttft_p50_ms", "ttft_p95_ms", "error_rate", "n_rate_limited")  # even if unknown
# The order in which columns are dropped on a narrow screen. Those of _ALWAYS stay, and so does the state.
_LEAST_IMPORTANT = (
    "flaw_rate_interval",
    "ttft_p50_interval",
    "ttft_p99_ms",
    "sentence_p95_ms",
    "e2e_mean_tps",
    "in_flight",
    "flaw_rate",
    "win_share",
    "sentence_p50_ms",
    "decode_mean_tps",
    "n_censored",
    "n",
)
_SHORTEST_NAME = 8  # minimum width of a deployment's name if the other columns are too wide as well

_BIASED, _BUFFERED = "?", "*"  # after a figure that needs an explanation
_OPEN = "–?"  # noqa: RUF001 - the end of an interval, as other tables have it
_LEGEND = {
    _BIASED: "may be too high: attempts were cancelled before their first token, and too few of them were audited",
    _BUFFERED: "not the decode speed: the answers come all at once, from a buffer; compare e2e (also in --json)",
    _OPEN: "an interval without a known upper end: too few first tokens arrived beside the cancelled attempts",
}

_STATES = {
    "failing": "it has only failed so far: calls still ask it, and one more failure takes it out",
    "cooling": "it was rate-limited",
    "open": "it failed, hung or was late too often, and gets no calls for a while",
    "half-open": "it failed, hung or was late too often, and is tried again, one call at a time",
    "out": "it refuses the key or does not know the model",
}


def ranking(models: Models, width: int) -> Any:
    """Return a ``rich`` renderable of ``models``, in the gateway's format, for a screen of ``width`` characters."""
    from rich.console import Group  # noqa: PLC0415 - only where it is needed

    if not models:
        return "the leaderboard is empty: it fills with calls"
    silent = [model for model in models if not _is_measured(model)]
    if len(silent) == len(models):
        del silent[0]
    parts = [part for model in models if model not in silent for part in _parts(model, width)]
    if silent:
        parts.append(f"nothing measured yet: {', '.join(visible(str(each.get('model', '?'))) for each in silent)}")
    return Group(*parts)


def _is_measured(model: Mapping[str, Any]) -> bool:
    """Whether there is anything to show: a figure of a deployment, or a state other than ok."""
    rows = [row for row in model.get("deployments", []) if isinstance(row, Mapping)]
    is_known = any(row.get(name) for row in rows for name in ("n", "n_censored", "n_rate_limited"))
    is_known |= any(row.get(name) is not None for row in rows for name in ("ttft_p50_ms", "error_rate", "probed_s_ago"))
    return is_known or any(row.get("state") not in (None, "ok") for row in rows)


def _parts(model: Mapping[str, Any], width: int) -> Iterator[Any]:
    """Yield a model's title, its table, and the legend."""
    from rich.text import Text  # noqa: PLC0415 - only where it is needed

    listed = [row for row in model.get("deployments", []) if isinstance(row, Mapping)]
    rows = [{**row, "place": place} for place, row in enumerate(listed, start=1)]  # in the gateway's order
    cells = {name: [_figure(name, row) for row in rows] for name in _COLUMNS}
    known = [name for name in _COLUMNS if name in _ALWAYS or any(value is not None for value in cells[name])]
    shown, widths = _fitting(known, cells, width)
    yield Text(_title(model), style="bold")
    yield table(
        [_COLUMNS[name] for name in shown], list(zip(*(cells[name] for name in shown), strict=True)), widths=widths
    )
    marks = {
        str(value)[-2 if name in _INTERVALS else -1 :]
        for name in shown
        for value in cells[name]
        if value is not None and name != "deployment"
    }
    left_out = [_COLUMNS[name] for name in known if name not in shown]
    notes = [f"a wider terminal also shows: {', '.join(left_out)}"] if left_out else []
    notes += [f"{mark} {meaning}" for mark, meaning in _LEGEND.items() if mark in marks]
    notes += [f"{row.get('deployment')}: {reason}" for row in rows if (reason := _state_reason(row))]
    notes += [f"{row.get('deployment')}: {probe}" for row in rows if (probe := _last_probe(row))]
    notes += [f"{row.get('deployment')}: for {met}" for row in rows for met in row.get("held") or ()]
    notes += [
        f"{row.get('deployment')}: refuses {', '.join(map(str, row['refuses']))}" for row in rows if row.get("refuses")
    ]
    for note in notes:
        yield Text(visible(note))
    if notes:
        yield ""


def _state_reason(row: Mapping[str, Any]) -> str | None:
    """Return why a deployment's state is not ok: the gateway's reason, else the meaning of the state."""
    state = str(row.get("state") or "")
    reason = row.get("reason") or _STATES.get(state.partition(" ")[0])
    return f"{state}, {reason}" if state and reason else None


def _last_probe(row: Mapping[str, Any]) -> str | None:
    """Return how long ago a probe was a deployment's last request; None if it was a call."""
    probed_s_ago = row.get("probed_s_ago")
    if not isinstance(probed_s_ago, int | float):
        return None
    minutes, seconds = divmod(round(probed_s_ago), 60)
    return f"last asked by a probe, {f'{minutes} min' if minutes else f'{seconds} s'} ago"


def _title(model: Mapping[str, Any]) -> str:
    title = f"{model.get('model', '?')}: first token in ms, speed in tok/s"
    window_s = model.get("window_s")
    if isinstance(window_s, int | float):
        title += f", over {window_s / 60:g} min"
    return visible(title)


def _fitting(known: Sequence[str], cells: Cells, width: int) -> tuple[list[str], list[int] | None]:
    """Return the columns that fit into ``width`` characters, and their widths."""
    shown = list(known)
    droppable = [name for name in _LEAST_IMPORTANT if name in known]
    while (widths := _widths(shown, cells, width)) is None and droppable:
        shown.remove(droppable.pop(0))
    return shown, widths or _widths(shown, cells, width, narrowest=_SHORTEST_NAME)


def _widths(shown: Sequence[str], cells: Cells, width: int, **options: int) -> list[int] | None:
    heads = [_COLUMNS[name] for name in shown]
    return fitting_widths(heads, list(zip(*(cells[name] for name in shown), strict=True)), width, **options)


def _figure(name: str, row: Mapping[str, Any]) -> object:
    """Return the value of a column for a deployment, rounded suitably and marked if it needs an explanation."""
    if name in _INTERVALS:
        return _interval(name, row)
    value = row.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if name in {"error_rate", "flaw_rate", "win_share"}:
        return f"{value:.1%}"
    if name.endswith("_ms"):
        is_biased = row.get("is_sentence_biased" if name.startswith("sentence") else "is_biased")
        return f"{value:.0f}{_BIASED}" if is_biased else round(value)
    if name == "decode_mean_tps":
        return f"{value:.1f}{_BUFFERED if row.get('is_buffered') else ''}"
    return f"{value:.1f}" if name == "e2e_mean_tps" else value


def _interval(name: str, row: Mapping[str, Any]) -> str | None:
    low_name, high_name, of = _INTERVALS[name]
    low, high = row.get(low_name), row.get(high_name)
    if low is None:
        return None
    return f"{low:{of}}{_OPEN}" if high is None else f"{low:{of}}–{high:{of}}"  # noqa: RUF001 - likewise


_INTERVALS = {  # the ends of each, and their format
    "ttft_p50_interval": ("ttft_p50_low_ms", "ttft_p50_high_ms", ".0f"),
    "flaw_rate_interval": ("flaw_low_rate", "flaw_high_rate", ".0%"),
}


_SINCE = re.compile(r"(\d+)([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 3660 * 86_400


def leaderboard(  # noqa: PLR0917 - options are named on the command line
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the gateway's JSON.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="1h", help="Read the ledger instead, this far back (s, m, h, d).")
    ] = None,
    config: ConfigOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep it on the screen and refresh it, until Ctrl-C.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between refreshes.")] = 1.0,
) -> None:
    """Show which deployments are fast now.

    It shows each model's deployments over the last ten minutes, including losers of races, ranked by the
    prediction for the next call. With --since: over another time, ranked by the time to first token.

    Example: holeshot leaderboard --watch
    """
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed

    if since is None:
        address = gateway_url(url, config)

        def read() -> Models:
            return _fetch(address, key, model)
    else:
        window_s, database_url = _seconds(since), read_database_url(config, for_reports=True)

        def read() -> Models:
            return _look_back(database_url, window_s, model)

    try:
        models = read()
    except GatewayError as error:
        fail(str(error))
    if as_json:
        write_json({"models": models})
    elif watch:
        with suppress(KeyboardInterrupt):
            _watch(read, models, interval_s)
    else:
        screen = console()
        screen.print(ranking(models, screen.width))


def _watch(fetch: Callable[[], Models], first: Models, interval_s: float) -> None:
    """Show ``first``, then the results of ``fetch``, until interrupted; waits for a gateway that is away."""
    from rich.live import Live  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - likewise

    screen = console()
    with Live(ranking(first, screen.width), console=screen, auto_refresh=False, screen=screen.is_terminal) as live:
        while True:
            time.sleep(interval_s)
            try:
                shown = ranking(fetch(), screen.width)
            except GatewayError as error:
                shown = visible(str(error), lines=True)
            live.update(shown, refresh=True)


def _fetch(url: str, key: str | None, model: str | None) -> Models:
    """Return the gateway's models, or the requested one.

    Raises:
        GatewayError: there is no gateway, it refuses, or it does not know the model.

    """
    import msgspec  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError, get  # noqa: PLC0415 - likewise

    address = f"{url}/leaderboard"
    try:
        models = msgspec.json.decode(get(address, key), type=dict[str, list[dict[str, Any]]])["models"]
    except (msgspec.DecodeError, KeyError):
        raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None
    return _wanted(models, model)


def _look_back(database_url: str, window_s: int, model: str | None) -> Models:
    """Return the boards that the gateway would have published for the last ``window_s`` seconds, in whole half-minutes.

    Raises:
        GatewayError: the ledger cannot be queried, or has no such model.

    """
    import msgspec  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - likewise
    from gateway.ledger import LedgerError, counts_since  # noqa: PLC0415 - likewise
    from gateway.steering import SLOT_S, of_counts, slot_of  # noqa: PLC0415 - likewise

    first_slot = slot_of(time.time()) + 1 - max(1, window_s // SLOT_S)
    try:
        models = asyncio.run(counts_since(database_url, datetime.fromtimestamp(first_slot * SLOT_S, UTC)))
    except LedgerError as error:
        raise GatewayError(str(error)) from error
    boards = [of_counts(name, slots, window_s) for name, slots in sorted(models.items())]
    return _wanted(msgspec.to_builtins(boards), model)


def _wanted(models: Models, model: str | None) -> Models:
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed

    wanted = [entry for entry in models if model is None or entry.get("model") == model]
    if model is not None and not wanted:
        known = ", ".join(str(entry.get("model")) for entry in models) or "none yet: it fills with calls"
        raise GatewayError(f"no model {model!r} on the leaderboard; there are: {known}")
    return wanted


def _seconds(since: str) -> int:
    match = _SINCE.fullmatch(since)
    if match is None:
        fail(f"--since {since!r} is not a duration; write 90s, 10m, 1h or 2d", MISUSED)
    seconds = int(match[1]) * _UNIT_S[match[2]]
    if seconds > _LONGEST_S:
        fail(f"--since {since} is more than ten years", MISUSED)
    return seconds
