"""``holeshot leaderboard``: the fastest deployments, now from the running gateway, or earlier from the ledger."""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from gateway.cli.configuration import LOCAL_URL, ConfigOption, KeyOption, UrlOption, read_database_url
from gateway.cli.ranking import Models, ranking
from gateway.cli.terminal import MISUSED, console, fail, write_json
from gateway.terminal_text import visible

_SINCE = re.compile(r"(\d+)([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def leaderboard(  # noqa: PLR0917 - options are named on the command line
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    url: UrlOption = LOCAL_URL,
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

    It shows each model's deployments over the last ten minutes, with losers of races, ranked by the prediction for
    the next call. With --since: over another time, ranked by their time to first token.

    Example: holeshot leaderboard --watch
    """
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed

    if since is None:

        def read() -> Models:
            return _fetch(url, key, model)
    else:
        window_s, database_url = _seconds(since), read_database_url(config)

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

    address = url.rstrip("/").removesuffix("/leaderboard") + "/leaderboard"
    try:
        models = msgspec.json.decode(get(address, key), type=dict[str, list[dict[str, Any]]])["models"]
    except (msgspec.DecodeError, KeyError):
        raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None
    return _wanted(models, model)


def _look_back(database_url: str, window_s: int, model: str | None) -> Models:
    """Return what the gateway would have published for the last ``window_s`` seconds, in whole half-minutes.

    Raises:
        GatewayError: the ledger cannot be queried, or has no such model.

    """
    import msgspec  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - likewise
    from gateway.ledger.board import counts_since  # noqa: PLC0415 - likewise
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - likewise
    from gateway.steering.board import slot_of  # noqa: PLC0415 - likewise
    from gateway.steering.constants import SLOT_S  # noqa: PLC0415 - likewise
    from gateway.steering.leaderboard import of_counts  # noqa: PLC0415 - likewise

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
    return int(match[1]) * _UNIT_S[match[2]]
