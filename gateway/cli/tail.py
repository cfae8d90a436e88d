"""``holeshot tail``: calls of a running gateway, a line each as they end."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from gateway.cli.configuration import LOCAL_URL, KeyOption, UrlOption
from gateway.cli.terminal import console, fail, json_text, on_a_terminal, prose, say

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
    url: UrlOption = LOCAL_URL,
    key: KeyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each call as JSON on a line of its own.")] = False,
) -> None:
    """Show calls as they end, until Ctrl-C.

    Each line says which deployments were asked, which one answered first, and which ones were cut.

    It waits for a gateway that restarts. Prompts and answers are never shown: the gateway does not keep them.

    Example: holeshot tail --model demo-chat --slow 500
    """
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed
    from gateway.cli.tailed import TailedCall, tailed  # noqa: PLC0415 - likewise

    wanted = {"model": model, "client": client, "deployment": deployment}
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    address = url.rstrip("/") + "/api/live" + (f"?{query}" if query else "")

    def is_wanted(call: TailedCall) -> bool:
        ttft_ms = call.ttft_ms
        is_slow = slower_than_ms is None or ttft_ms is None or ttft_ms > slower_than_ms
        return is_slow and (call.failed or not failed)

    with suppress(KeyboardInterrupt):
        try:
            _check_model(url, key, model)
            if sys.stderr.isatty():
                prose(_waiting_for(url, wanted, failed=failed, slower_than_ms=slower_than_ms), err=True)
            for told in tailed(_events(address, key)):
                if isinstance(told, str):
                    say(f"holeshot: {told}", err=True)
                elif is_wanted(told):
                    _show(told, as_json=as_json)
        except GatewayError as error:
            fail(str(error))


def _waiting_for(url: str, wanted: Mapping[str, str | None], *, failed: bool, slower_than_ms: float | None) -> str:
    """Return what is waited for, in a line."""
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

    address = url.rstrip("/") + "/api/leaderboard"
    try:
        boards = msgspec.json.decode(get(address, key), type=dict[str, Any])["models"]
        known = [str(board["model"]) for board in boards]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None
    if model not in known:
        raise GatewayError(f"no model {model!r}; there are: {', '.join(known)}")


def _events(address: str, key: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the live events; "lost", with the reason, when the connection breaks, which is then opened again.

    Raises:
        GatewayError: there is no gateway at the start, or it refuses.

    """
    import time  # noqa: PLC0415 - only where it is needed

    import msgspec  # noqa: PLC0415 - likewise

    from gateway.cli.remote import GatewayError, lines  # noqa: PLC0415 - likewise

    was_open = is_told = False
    while True:
        try:
            kind = ""
            for line in lines(address, key, _SILENT_S):
                was_open, is_told = True, False
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
        if not is_told:
            is_told = True
            yield "lost", why
        time.sleep(_RETRY_S)


def _show(call: Any, *, as_json: bool) -> None:
    if as_json:
        say(json_text(call.as_dict()))
    elif on_a_terminal():
        console().print(call.line(), soft_wrap=True)
    else:
        say(call.line().plain)
