"""``holeshot explain``: the plan of a model's next call, with its reasons and numbers."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import typer

from gateway.cli.configuration import ConfigOption, KeyOption, UrlOption, gateway_url
from gateway.cli.terminal import UNKNOWN, dollars, fail, prose, write_json, write_table
from gateway.core.attempts import Narrowed
from gateway.core.modes import Mode

# The gateway's names, and the headings; a gateway of another version may send more or fewer names.
_LAUNCHES = {"delay_s": "after s", "deployment": "deployment", "role": "role", "extra": "beside"}
_DEPLOYMENTS = {
    "deployment": "deployment",
    "score_s": "score s",
    "draw": "chosen",
    "state": "state",
    "events": "seen",
    "ttft_mean_s": "mean s",
    "ttft_p50_s": "p50 s",
    "ttft_p95_s": "p95 s",
    "error_rate": "errors",
    "decode_tps": "tok/s",
    "decode_s": "decode s",
    "stall_s": "stall s",
    "after_s": "later s",
    "cost_usd": "cost $",
    "bills_after_disconnect": "bills losers",
    "tier": "tier",
    "scarcity_s": "scarcity s",
    "headroom": "headroom",
    "crowding": "crowding",
    "in_flight": "now",
    "max_in_flight": "at most",
    "weight": "weight",
    "canary": "canary",
    "held_bytes": "cached bytes",
    "passed_over": "passed over",
}
_FLOORS = {"ttft_ms": "the first token within {} ms", "min_tok_s": "{} tok/s"}
_SHARES = frozenset({"draw", "error_rate", "headroom", "canary"})


def explain(  # noqa: PLR0917 - options are named on the command line
    model: Annotated[str, typer.Argument(help="The model of the request.")],
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Size of the prompt, in tokens.")] = 700,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Maximum number of tokens in the answer.")] = None,
    stream: Annotated[bool, typer.Option(help="Whether the answer is streamed.")] = True,
    tools: Annotated[bool, typer.Option("--tools", help="Assume that the request has tools.")] = False,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Assume that the request has a JSON schema.")
    ] = False,
    vision: Annotated[bool, typer.Option("--vision", help="Assume that the request has a picture.")] = False,
    effort: Annotated[
        Literal["low", "high"] | None, typer.Option(help="Assume that the request asks the model to think this much.")
    ] = None,
    objective: Annotated[
        Literal["auto", "first_token", "reading", "completion", "cost"] | None,
        typer.Option(help="What to optimize. [default: the model's]"),
    ] = None,
    profile: Annotated[
        Literal["chat", "voice", "agent", "batch"] | None,
        typer.Option(help="Assume a call under this profile. [default: the model's]"),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="Assume this mode. [default: the model's]")] = None,
    hold: Annotated[
        bool | None,
        typer.Option(
            "--hold/--no-hold",
            help="Assume that a first token may wait for a faster answer, or wins at once. [default: the model's]",
        ),
    ] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the gateway's JSON.")] = False,
) -> None:
    """Explain the plan of the next call.

    It shows which deployments would run, with what delay and why, the numbers behind this, and which deployments
    cannot answer. It asks the running gateway; no provider is called.

    Example: holeshot explain llama-70b --profile voice --tools
    """
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed

    query = {
        "model": model,
        "prompt_tokens": prompt_tokens,
        "max_tokens": max_tokens,
        "stream": str(stream).lower(),
        **{name: "true" for name, on in (("tools", tools), ("json_schema", json_schema), ("vision", vision)) if on},
        "effort": effort,
        "objective": objective,
        "profile": profile,
        "mode": mode,
        "hold": None if hold is None else str(hold).lower(),
    }
    try:
        explained = _fetch(
            gateway_url(url, config), key, {name: value for name, value in query.items() if value is not None}
        )
    except GatewayError as error:
        fail(str(error))
    if as_json:
        write_json(explained)
    else:
        _write(explained)


def _fetch(url: str, key: str | None, query: Mapping[str, object]) -> Mapping[str, Any]:
    """Return the gateway's explanation for one model.

    Raises:
        GatewayError: there is no gateway, it refuses, or it does not know the model.

    """
    import msgspec  # noqa: PLC0415 - only where it is needed

    from gateway.cli.remote import GatewayError, get  # noqa: PLC0415 - likewise

    address = f"{url}/leaderboard"
    body = get(f"{address}?{urlencode({'explain': 1, **query})}", key)
    try:
        [explained] = msgspec.json.decode(body, type=dict[str, list[dict[str, Any]]])["models"]
        return explained | {"explanation": msgspec.convert(explained["explanation"], dict[str, Any])}
    except (msgspec.DecodeError, KeyError, ValueError):
        raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None


def _write(explained: Mapping[str, Any]) -> None:
    plan = explained["explanation"]
    prose(_head(explained, plan))
    value = "" if plan.get("value_usd_per_s") is None else f"; a second is worth ${_text(plan, 'value_usd_per_s')}"
    prose(f"extra attempts: {_text(plan, 'budget')} a call on average, {_text(plan, 'budget_tokens')} saved up{value}")
    if plan.get("extra_usd_per_call") is not None:
        saved = f"{_text(plan, 'budget_usd')} saved up"
        prose(f"dollars for extra attempts: {_text(plan, 'extra_usd_per_call')} a call, {saved}")
    if plan.get("cost_alone_usd") is not None:
        prose(
            f"expected cost: ${_text(plan, 'cost_alone_usd')} with the primary alone, at most"
            f" ${_text(plan, 'cost_expected_usd')} with extra attempts, by the chance that they start"
        )
    for name, floor in _FLOORS.items():
        if plan.get(name) is not None:
            prose(f"floor: {floor.format(_text(plan, name))}")
    for note in _notes(plan):
        prose(note)
    if plan.get("launches"):
        _write_launches(plan["launches"])
    elif plan.get("retry_after_s") is not None:
        prose(f"no deployment runs: retry in {_text(plan, 'retry_after_s')} s")
    else:
        prose("no deployment runs: none can answer")
    for line in _afterwards(plan):
        prose(line)
    _write_rows("Deployments, best first", _DEPLOYMENTS, plan.get("deployments", ()))
    for name, why in plan.get("excluded", {}).items():
        prose(f"not asked: {name} {why}")


def _write_launches(launches: Any) -> None:
    """Write which deployments run, and below the table why: a sentence does not fit a column."""
    _write_rows("Who runs", _LAUNCHES, launches)
    for launch in launches:
        if launch.get("why"):
            prose(f"{launch.get('deployment')}: {launch['why']}")
    prose("")


def _notes(plan: Mapping[str, Any]) -> Iterator[str]:
    if (narrowed := plan.get("narrowed")) is not None:
        reason = Narrowed(narrowed).in_words()
        yield f"narrowed ({narrowed}): {_text(plan, 'width_asked')} attempts were asked for at the start, but {reason}"
    for note in plan.get("notes", ()):
        yield f"note: {note}"


def _afterwards(plan: Mapping[str, Any]) -> Iterator[str]:
    if plan.get("fallback") is not None and plan.get("late_s") is not None:
        sooner = ", or sooner to meet ttft_ms" if plan.get("ttft_ms") is not None else ""
        yield f"late after {plan['late_s']:.1f} s{sooner}: then model {plan['fallback']} beside\n"
    if plan.get("rest"):
        yield f"if all of them fail: {', '.join(plan['rest'])}\n"


def _head(explained: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    profile, effort = explained.get("profile"), plan.get("effort")
    first = "first clause" if plan.get("spoken") else "first token"
    return (
        f"{explained.get('model')}: objective {_text(plan, 'objective')}, mode {_text(plan, 'mode')}"
        f"{f', profile {profile}' if profile else ''};"
        f" {f'a {first} may wait for a faster answer' if plan.get('hold') else f'the {first} wins at once'};"
        f" a prompt of {_text(plan, 'prompt_tokens')} tokens{f', effort {effort}' if effort else ''},"
        f" an answer of about {_text(plan, 'answer_tokens')}"
        f"{', read at ' + _text(plan, 'reading_tok_s') + ' tok/s' if plan.get('reading_tok_s') is not None else ''}"
    )


def _text(plan: Mapping[str, Any], name: str) -> str:
    value = plan.get(name)
    if "_usd" in name and isinstance(value, int | float) and not isinstance(value, bool):
        return dollars(value)
    return UNKNOWN if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def _write_rows(title: str, columns: Mapping[str, str], rows: Any) -> None:
    """Write a table of the columns that have values."""
    shown = [name for name in columns if any(row.get(name) not in {None, _USUAL.get(name)} for row in rows)]
    cells = [[_figure(name, row.get(name)) for name in shown] for row in rows]
    write_table([columns[name] for name in shown], cells, title=title)


def _figure(name: str, value: object) -> object:
    if name in _SHARES and isinstance(value, int | float):
        return f"{value:.0%}" if value >= _WHOLE_PERCENT or not value else f"{value:.1%}"
    if isinstance(value, float):
        return dollars(value) if name.endswith("_usd") else f"{value:.1f}" if name in _ROUGH else f"{value:.3f}"
    return value


# Values that say nothing if all deployments have them: no queue, no limit near, no call, no silence.
_USUAL = {"stall_s": 0, "scarcity_s": 0, "headroom": 1, "crowding": 1, "in_flight": 0, "weight": 1}
_WHOLE_PERCENT = 0.1
_ROUGH = frozenset({"events", "decode_tps", "crowding"})
