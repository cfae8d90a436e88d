"""``holeshot leaderboard``: who is fast now, as the running gateway sees it."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gateway.cli.terminal import fail, table, write_json

# The gateway's words, and ours above the column; a gateway of another version may send more or fewer.
_COLUMNS = {
    "deployment": "deployment",
    "n": "n",
    "events": "first tokens",
    "censored": "cut",
    "ttft_p50_ms": "ttft p50",
    "ttft_p95_ms": "p95",
    "ttft_p99_ms": "p99 ms",
    "decode_tps": "tok/s",
    "win_share": "won",
    "error_rate": "errors",
    "score": "score",
    "state": "state",
    "in_flight": "in flight",
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
    if as_json:
        write_json({"models": _fetch(url, key, model)})
        return
    from rich.console import Console  # noqa: PLC0415 - only where it is needed
    from rich.live import Live  # noqa: PLC0415 - likewise

    console = Console()
    if not watch:
        console.print(_render(_fetch(url, key, model)))
        return
    try:
        with Live(
            _render(_fetch(url, key, model)), console=console, auto_refresh=False, screen=console.is_terminal
        ) as live:
            while True:
                time.sleep(interval_s)
                live.update(_render(_fetch(url, key, model)), refresh=True)
    except KeyboardInterrupt:
        return


def _fetch(url: str, key: str | None, model: str | None) -> list[Mapping[str, Any]]:
    """Return the gateway's models, or end with one line that says why not."""
    import msgspec  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError, get  # noqa: PLC0415 - likewise

    address = url.rstrip("/").removesuffix("/leaderboard") + "/leaderboard"
    try:
        models = msgspec.json.decode(get(address, key), type=dict[str, list[dict[str, Any]]])["models"]
    except GatewayError as error:
        fail(str(error))
    except (msgspec.DecodeError, KeyError):
        fail(f"{address} does not answer as a gateway does")
    if model is None:
        return list(models)
    wanted = [entry for entry in models if entry.get("model") == model]
    if not wanted:
        known = ", ".join(str(entry.get("model")) for entry in models) or "none yet: it fills with calls"
        fail(f"no model {model!r} on the leaderboard; there are: {known}")
    return list(wanted)


def _render(models: list[Mapping[str, Any]]) -> Any:
    from rich.console import Group  # noqa: PLC0415 - only where it is needed

    if not models:
        return "the leaderboard is empty: it fills with calls"
    return Group(*(_ranking(model) for model in models))


def _ranking(model: Mapping[str, Any]) -> Any:
    deployments = [row for row in model.get("deployments", []) if isinstance(row, Mapping)]
    shown = [name for name in _COLUMNS if any(name in row for row in deployments)] or ["deployment"]
    rows = [[_figure(name, row.get(name)) for name in shown] for row in deployments]
    return table([_COLUMNS[name] for name in shown], rows, title=str(model.get("model", "?")))


def _figure(name: str, value: object) -> object:
    """Return ``value`` rounded as far as its column deserves."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if name in ("error_rate", "win_share"):
        return f"{value:.1%}"
    if name.endswith("_ms"):
        return round(value)
    return round(value, 1) if name == "decode_tps" else value
