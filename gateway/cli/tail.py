"""``holeshot tail``: calls of a running gateway, a line each as they end."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import msgspec
import typer

from gateway.cli.configuration import ConfigOption, KeyOption, UrlOption, gateway_url
from gateway.cli.terminal import console, fail, json_text, on_a_terminal, prose, say
from gateway.core.terminal_text import visible

if TYPE_CHECKING:
    from rich.text import Text

_SILENT_S = 45.0  # the gateway sends a comment every 15 s
_RETRY_S = 1.0


def tail(  # noqa: PLR0917 - options are named on the command line
    model: Annotated[str | None, typer.Option("--model", "-m", help="Only calls of this model.")] = None,
    client: Annotated[str | None, typer.Option("--client", "-c", help="Only calls of this client.")] = None,
    deployment: Annotated[
        str | None, typer.Option("--deployment", "-d", help="Only races in which this deployment takes part.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls that failed, or whose client left.")] = False,
    slower_than_ms: Annotated[
        float | None,
        typer.Option("--slow", min=0, metavar="MS", help="Only calls whose first token took longer, or never came."),
    ] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each call as JSON on a line of its own.")] = False,
) -> None:
    """Show calls as they end, until Ctrl-C.

    Each line says which deployments were asked, which one answered first, and which ones were cancelled.

    It waits for a gateway that restarts. Prompts and answers are never shown: the gateway does not keep them.

    Example: holeshot tail --model demo-chat --slow 500
    """
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed

    wanted = {"model": model, "client": client, "deployment": deployment}
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    url = gateway_url(url, config)
    address = f"{url}/api/live" + (f"?{query}" if query else "")

    def is_wanted(call: TailedCall) -> bool:
        ttft_ms = call.ttft_ms
        is_slow = slower_than_ms is None or ttft_ms is None or ttft_ms > slower_than_ms
        return is_slow and (call.failed or not failed)

    with suppress(KeyboardInterrupt):
        try:
            _check_model(url, key, model)
            if sys.stderr.isatty():
                prose(_waiting_for(url, wanted, failed=failed, slower_than_ms=slower_than_ms), err=True)
            for item in ended_calls(_events(address, key)):
                if isinstance(item, str):
                    say(f"holeshot: {item}", err=True)
                elif is_wanted(item):
                    _show(item, as_json=as_json)
        except GatewayError as error:
            fail(str(error))


def _waiting_for(url: str, wanted: Mapping[str, str | None], *, failed: bool, slower_than_ms: float | None) -> str:
    """Return the line shown while no call has ended: the filter and the gateway's URL."""
    kinds = [f"{name} {value}" for name, value in wanted.items() if value is not None]
    kinds += ["failed"] if failed else []
    kinds += [f"slower than {slower_than_ms:g} ms"] if slower_than_ms is not None else []
    only = f" ({', '.join(kinds)})" if kinds else ""
    return f"waiting for calls{only} at {url.rstrip('/')}; Ctrl-C stops"


def _check_model(url: str, key: str | None, model: str | None) -> None:
    """Raise GatewayError if there is no such model: nothing would ever be shown."""
    if model is None:
        return
    import msgspec  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError, get  # noqa: PLC0415 - likewise

    address = f"{url}/api/leaderboard"
    try:
        boards = msgspec.json.decode(get(address, key), type=dict[str, Any])["models"]
        known = [str(board["model"]) for board in boards]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None
    if model not in known:
        raise GatewayError(f"no model {model!r}; there are: {', '.join(known)}")


def _events(address: str, key: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the live events, and reconnect when the connection breaks, after yielding "lost" with the reason.

    Raises:
        GatewayError: the first connection fails, or is refused.

    """
    import time  # noqa: PLC0415 - only where it is needed

    import msgspec  # noqa: PLC0415 - likewise

    from gateway.cli.remote import GatewayError, lines  # noqa: PLC0415 - likewise

    was_open = is_reported = False
    while True:
        try:
            kind = ""
            for line in lines(address, key, _SILENT_S):
                was_open, is_reported = True, False
                field, _, value = line.partition(b": ")
                if field == b"event":
                    kind = value.decode()
                elif field == b"data":
                    yield kind, msgspec.json.decode(value)
            why = "the gateway has closed the stream"
        except GatewayError as error:
            if not was_open:
                raise
            why = str(error)
        except msgspec.DecodeError:
            raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None
        if not is_reported:
            is_reported = True
            yield "lost", why
        time.sleep(_RETRY_S)


def _show(call: Any, *, as_json: bool) -> None:
    if as_json:
        say(json_text(call.as_dict()))
    elif on_a_terminal():
        console().print(call.line(), soft_wrap=True)
    else:
        say(call.line().plain)


# Calls assembled from the events of the live stream, and their lines.

_MOST_RUNNING = 10_000  # calls kept until they end; the oldest is dropped first
_COLOURS = {"won": "green", "failed": "red", "timeout": "red", "stalled": "red"}
_WORDS = {"lost": "cancelled", "superseded": "later", "client_gone": "left", "interrupted": "interrupted"}
_FAILED = 400


class TailedCall(msgspec.Struct):
    """One call, from the events so far. Times are milliseconds since the call was received, or an attempt launched."""

    began: dict[str, Any]
    attempts: dict[str, dict[str, Any]] = {}  # by id, in the order of their launch
    done: dict[str, Any] = {}

    @property
    def ttft_ms(self) -> float | None:
        """Milliseconds until the first token."""
        return self.done.get("ttft_ms")

    @property
    def failed(self) -> bool:
        """Whether the call ended with an error, or its client left."""
        return self.done.get("error") is not None or (self.done.get("status") or 0) >= _FAILED

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        attempts = [{name: value for name, value in each.items() if name != "call"} for each in self.attempts.values()]
        return {**self.began, **self.done, "attempts": attempts}

    def line(self) -> "Text":
        """Return one line: when, status, model, client, times, tokens, cost, and each attempt."""
        from rich.text import Text  # noqa: PLC0415 - only where it is drawn

        began, done = self.began, self.done
        at = datetime.fromtimestamp(began["at_ms"] / 1000, UTC).astimezone().strftime("%H:%M:%S")
        status = done.get("status")
        line = Text(f"{at} ")
        line.append("  ? " if status is None else f"{status:>3} ", "red" if self.failed else "green")
        line.append(visible(began["model"]), "bold")
        if began.get("client"):
            line.append(f" {visible(began['client'])}", "dim")
        line.append(f"  {_ms(done.get('ttft_ms'))} first, {_ms(done.get('total_ms'))} in all")
        if (tokens := done.get("completion_tokens")) is not None:
            line.append(f", {tokens:,} tok")
        if (usd := done.get("cost_usd")) is not None:
            line.append(f", ${usd:.6f}".rstrip("0").rstrip("."))
        if done.get("error"):
            line.append(f"  {visible(done['error'])}", "red")
        if done.get("narrowed"):
            line.append(f"  narrowed: {visible(done['narrowed'])}", "yellow")
        for number, attempt in enumerate(self.attempts.values()):
            line.append("  | " if number == 0 else ", ", "dim")
            line.append_text(_attempt(attempt))
        return line


def ended_calls(events: Iterable[tuple[str, Any]]) -> Iterator[TailedCall | str]:
    """Yield each call when it ends, and a message when events were lost."""
    calls: dict[str, TailedCall] = {}
    for kind, data in events:
        match kind:
            case "hello":
                calls = {each["id"]: _running(each) for each in data["running"]}
            case "call" | "running":
                calls[data["id"]] = _running(data)
                if len(calls) > _MOST_RUNNING:
                    del calls[next(iter(calls))]
            case "launch" if data["call"] in calls:
                calls[data["call"]].attempts[data["attempt"]] = data
            case "first" | "end" if data["call"] in calls:
                calls[data["call"]].attempts.setdefault(data["attempt"], {}).update(data)
            case "done" if data["id"] in calls:
                call = calls.pop(data["id"])
                call.done = data
                yield call
            case "gap":
                calls = {id_: call for id_, call in calls.items() if id_ in data["running"]}
                yield f"{data['dropped']} events were dropped: calls end faster than they are read"
            case "lost":
                calls.clear()
                yield f"{data}; trying again"
            case _:
                pass


def _running(data: dict[str, Any]) -> TailedCall:
    attempts = {each["attempt"]: dict(each) for each in data.get("attempts", ())}
    return TailedCall({name: value for name, value in data.items() if name != "attempts"}, attempts)


def _attempt(attempt: dict[str, Any]) -> "Text":
    """Return an attempt's deployment, outcome, and time: to its first token, or without a token to its end."""
    from rich.text import Text  # noqa: PLC0415 - as above

    outcome = attempt.get("outcome")
    words = _WORDS.get(outcome, outcome) if outcome is not None else "running"
    line = Text(visible(attempt.get("deployment", "?")))
    line.append(f" {words}", _COLOURS.get(outcome or "", "dim"))
    at_ms = attempt.get("ttft_ms") if attempt.get("ttft_ms") is not None else attempt.get("ms")
    if at_ms is not None:
        line.append(f" {_ms(at_ms)}", "dim")
    if attempt.get("error"):
        line.append(f" ({visible(attempt['error'])})", "red")
    return line


def _ms(value: float | None) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - printed for unknown figures
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.2f} s"  # noqa: PLR2004 - a second
