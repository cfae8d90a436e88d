"""``holeshot leaderboard``: who is fast now, as the running gateway sees it."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from gateway.cli.terminal import console, fail, table, write_json

Models = Sequence[Mapping[str, Any]]

# The gateway's words, and ours above the column; a gateway of another version may send more or fewer.
_COLUMNS = {
    "deployment": "deployment",
    "n": "n",
    "censored": "cut",
    "ttft_p50_ms": "p50",
    "ttft_p95_ms": "p95",
    "ttft_p99_ms": "p99",
    "decode_tps": "tok/s",
    "win_share": "won",
    "error_rate": "errors",
    "state": "state",
    "in_flight": "now",
}


def leaderboard(  # noqa: PLR0917 - options are named on the command line
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    url: Annotated[str, typer.Option(envvar="HOLESHOT_URL", help="The running gateway.")] = "http://127.0.0.1:4000",
    key: Annotated[
        str | None,
        typer.Option(envvar="HOLESHOT_KEY", show_envvar=True, help="An admin client's key, where clients are set up."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As the gateway sends it.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep it on the screen, fresh, until Ctrl-C.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between refreshes.")] = 1.0,
) -> None:
    """Show who is fast now.

    Each model's deployments, ranked by what the policy predicts for the next call, losers of races included.

    Example: holeshot leaderboard --watch
    """
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed

    try:
        models = _fetch(url, key, model)
    except GatewayError as error:
        fail(str(error))
    if as_json:
        write_json({"models": models})
    elif watch:
        with suppress(KeyboardInterrupt):
            _watch(lambda: _fetch(url, key, model), _render(models), interval_s)
    else:
        console().print(_render(models))


def _watch(fetch: Callable[[], Models], first: Any, interval_s: float) -> None:
    """Show ``first``, then what ``fetch`` gives, until interrupted; a gateway that is away is waited for."""
    from rich.live import Live  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - likewise

    screen = console()
    with Live(first, console=screen, auto_refresh=False, screen=screen.is_terminal) as live:
        while True:
            time.sleep(interval_s)
            try:
                shown = _render(fetch())
            except GatewayError as error:
                shown = str(error)
            live.update(shown, refresh=True)


def _fetch(url: str, key: str | None, model: str | None) -> Models:
    """Return the gateway's models, or the one asked for.

    Raises:
        GatewayError: there is no gateway, it refuses, or it does not know the model.

    """
    import msgspec  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError, get  # noqa: PLC0415 - likewise

    address = url.rstrip("/").removesuffix("/leaderboard") + "/leaderboard"
    try:
        models = msgspec.json.decode(get(address, key), type=dict[str, list[dict[str, Any]]])["models"]
    except (msgspec.DecodeError, KeyError):
        raise GatewayError(f"{address} does not answer as a gateway does") from None
    wanted = [entry for entry in models if model is None or entry.get("model") == model]
    if model is not None and not wanted:
        known = ", ".join(str(entry.get("model")) for entry in models) or "none yet: it fills with calls"
        raise GatewayError(f"no model {model!r} on the leaderboard; there are: {known}")
    return wanted


def _render(models: Models) -> Any:
    from rich.console import Group  # noqa: PLC0415 - only where it is needed

    if not models:
        return "the leaderboard is empty: it fills with calls"
    return Group(*(_ranking(model) for model in models))


def _ranking(model: Mapping[str, Any]) -> Any:
    deployments = [row for row in model.get("deployments", []) if isinstance(row, Mapping)]
    shown = [name for name in _COLUMNS if any(name in row for row in deployments)] or ["deployment"]
    rows = [[_figure(name, row.get(name)) for name in shown] for row in deployments]
    return table(
        [_COLUMNS[name] for name in shown], rows, title=f"{model.get('model', '?')}: first token in ms, decode in tok/s"
    )


def _figure(name: str, value: object) -> object:
    """Return ``value`` rounded as far as its column deserves."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if name in ("error_rate", "win_share"):
        return f"{value:.1%}"
    if name.endswith("_ms"):
        return round(value)
    return f"{value:.1f}" if name == "decode_tps" else value
