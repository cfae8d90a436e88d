"""``holeshot models``: the configured models, or models that providers sell, and which of these are the same."""

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from gateway.cli.configuration import ConfigOption, home, read_settings
from gateway.cli.terminal import FAILED, MISUSED, UNKNOWN, fail, prose, say, without_unknown, write_json, write_table
from gateway.core.terminal_text import counted

if TYPE_CHECKING:
    from gateway.cli.live import Liveness
    from gateway.settings import Catalog, MarketOffer, Reachable, SameModel, Settings

_PER_MTOK = 1e6


def models(  # noqa: PLR0917 - typer's options are parameters
    live: Annotated[
        bool, typer.Option("--live", help="Ask the providers for their own lists, and show which models are the same.")
    ] = False,
    match: Annotated[
        str | None, typer.Option("--match", metavar="TEXT", help="Only models with this text in their name.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="With --live: also models of a single provider, and models that are not for chat."),
    ] = False,
    prices: Annotated[
        bool,
        typer.Option(
            "--prices", help="Bring a newer table of prices from prices.url into prices.file; show what differs."
        ),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="With --prices: also where prices fall to 0 or below a tenth, or models of the file are missing.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; with --live, all models.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show the configured models, or those that providers sell.

    Configured models are shown with their deployments, prices and contexts. With --live every provider is asked for
    its list, and models that several sell are shown side by side. With --prices a newer table of prices is downloaded;
    a gateway never does that by itself.


    Example: holeshot models --live --match llama
    """
    if everything and not live:
        fail("--all needs --live: it shows more of what providers sell", MISUSED)
    if prices and live:
        fail("--prices and --live are two questions: ask one of them", MISUSED)
    if yes and not prices:
        fail("--yes needs --prices: it confirms prices that fall, or are lost", MISUSED)
    settings, _ = read_settings(config)
    if prices:
        from gateway.cli.prices import bring  # noqa: PLC0415 - only where it is needed

        bring(settings, match, yes=yes, as_json=as_json)
        return
    if live:
        _show_sold(settings, match, everything=everything, as_json=as_json)
        return
    if not settings.providers:
        from gateway.server import demo_before_it_runs  # noqa: PLC0415 - only for users without a key

        settings = demo_before_it_runs(settings)
        prose(
            "no provider is configured: these are the simulated ones that `holeshot serve` starts;"
            " `holeshot init --live` writes a configuration from your keys",
            err=True,
        )
    _show_configured(settings, match, as_json=as_json)


def _show_configured(settings: "Settings", match: str | None, *, as_json: bool) -> None:
    from gateway.cli.summary import deployment_lines  # noqa: PLC0415 - pydantic only where it is needed
    from providers import DatasheetTable, load_catalog  # noqa: PLC0415 - likewise

    lines = deployment_lines(settings, load_catalog(), DatasheetTable.shipped(settings.prices.file))
    quantizations = {
        (name, item.name): item.quantization for name, model in settings.models.items() for item in model.deployments
    }
    shown = [
        {
            "model": line.model,
            "deployment": line.deployment,
            "mode": line.mode,
            "quantization": quantizations[line.model, line.deployment],
            "context_tokens": line.capabilities.context_tokens,
            "max_output_tokens": line.capabilities.max_output_tokens,
            "input_usd_per_mtok": line.input_usd,
            "output_usd_per_mtok": line.output_usd,
        }
        for line in lines
        if match is None or _has(match, (line.model, line.deployment))
    ]
    if as_json:
        write_json({"models": shown})
    elif shown:
        columns = ["deployment", "quantization", "context", "longest answer", "$/M in", "$/M out"]
        for (model, mode), rows in groupby(shown, lambda row: (row["model"], row["mode"])):
            write_table(*without_unknown(columns, [_configured_cells(row) for row in rows]), title=f"{model} ({mode})")
    elif match is not None and lines:
        fail(f"no configured model has {match!r} in its name")
    else:
        prose("no model is configured: `holeshot init --live` proposes some, `holeshot models --live` shows all")


def _configured_cells(row: dict[str, Any]) -> list[object]:
    return [
        row["deployment"],
        row["quantization"],
        _count(row["context_tokens"]),
        _count(row["max_output_tokens"]),
        _usd(row["input_usd_per_mtok"]),
        _usd(row["output_usd_per_mtok"]),
    ]


def _show_sold(settings: "Settings", match: str | None, *, everything: bool, as_json: bool) -> None:
    from gateway.cli.live import ask_with_progress  # noqa: PLC0415 - an HTTP client, only for --live
    from gateway.settings import TRAINED_ONLY, reachable, same_models  # noqa: PLC0415 - likewise
    from providers import load_catalog  # noqa: PLC0415 - likewise

    catalog = load_catalog()
    usable = reachable(settings, os.environ, catalog)
    if not usable:
        fail("no provider to ask: set a key such as GROQ_API_KEY, or configure a provider")
    answers = ask_with_progress({each.name: each.settings for each in usable}, catalog)
    trained = frozenset(each.name for each in usable if each.vendor is not None and each.vendor.name in TRAINED_ONLY)
    sold = same_models({name: answer.listed for name, answer in answers.items()}, trained)
    matching = [same for same in sold if match is None or _has(match, _names(same))]
    if as_json:
        write_json({"providers": _answers(answers), "models": [_sold_object(same) for same in matching]})
    else:
        _write_sold(matching, answers, match, everything=everything)
    if not any(answer.listed for answer in answers.values()):
        fail("no provider listed its models", FAILED)


def _write_sold(
    matching: Sequence["SameModel"], answers: "dict[str, Liveness]", match: str | None, *, everything: bool
) -> None:
    shown = [same for same in matching if everything or (same.is_shared and same.kind == "chat")]
    for same in shown:
        title = f"{same.model}{'' if same.kind == 'chat' else f' ({same.kind})'}"
        columns = ["deployment", "quantization", "context", "$/M in", "$/M out", "can"]
        write_table(*without_unknown(columns, [_offer_cells(offer) for offer in same.offers]), title=title)
        if same.note is not None:
            prose(f"note: {same.note}\n")
    if not shown and any(answer.listed for answer in answers.values()):
        say(f"no two providers sell the same model{f' with {match!r} in its name' if match else ''}")
    for name, answer in answers.items():
        if not answer.listed or not answer.works:
            prose(f"note: {name}: {answer.message or answer.state}")
    if hidden := len(matching) - len(shown):
        say(f"{hidden} more of one provider only, or not for chat: --all shows them")


def _offer_cells(offer: "MarketOffer") -> list[object]:
    listed = offer.listed
    words = [word for word in listed.input_modalities or () if word != "text"]
    able = {"tools": listed.tools, "JSON schema": listed.json_schema, "reasoning": listed.reasoning}
    words += [word for word, is_able in able.items() if is_able]
    quantization = " ".join(filter(None, (offer.quantization, offer.name.serving and f"({offer.name.serving})")))
    return [
        offer.deployment,
        quantization or None,
        _count(listed.context_tokens),
        _usd(_per_mtok(listed.input_usd)),
        _usd(_per_mtok(listed.output_usd)),
        ", ".join(words) or None,
    ]


def _sold_object(same: "SameModel") -> dict[str, Any]:
    return {
        "model": same.model,
        "kind": same.kind,
        "providers": same.providers,
        "note": same.note,
        "offers": [
            {
                "deployment": offer.deployment,
                "quantization": offer.quantization,
                "serving": offer.name.serving,
                "context_tokens": offer.listed.context_tokens,
                "max_output_tokens": offer.listed.max_output_tokens,
                "input_usd_per_mtok": _per_mtok(offer.listed.input_usd),
                "output_usd_per_mtok": _per_mtok(offer.listed.output_usd),
                "input_modalities": offer.listed.input_modalities,
                "tools": offer.listed.tools,
                "json_schema": offer.listed.json_schema,
                "reasoning": offer.listed.reasoning,
            }
            for offer in same.offers
        ],
    }


def _answers(answers: "dict[str, Liveness]") -> dict[str, Any]:
    return {
        name: {"state": answer.state, "message": answer.message, "models": len(answer.listed)}
        for name, answer in answers.items()
    }


def _names(same: "SameModel") -> Iterable[str]:
    return [same.model, *(offer.deployment for offer in same.offers)]


def _has(match: str, names: Iterable[str]) -> bool:
    return any(match.lower() in name.lower() for name in names)


def _per_mtok(usd_per_token: float | None) -> float | None:
    return None if usd_per_token is None else round(usd_per_token * _PER_MTOK, 6)


def _usd(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


# ``holeshot providers``: which providers can be used, and whether they answer.


class ProviderRow(msgspec.Struct, frozen=True):
    """One provider. Never contains a key."""

    provider: str
    title: str
    kind: str
    configured: bool  # False: known only from a key in the environment
    host: str | None  # the host of the provider's base URL; None: only litellm knows the host
    apis: tuple[str, ...]
    keys: int
    credentials: bool | None  # None: no credentials needed, or unknown
    works: bool | None  # None: not asked
    state: str | None  # None: not asked
    message: str | None
    latency_ms: float | None
    models: int | None
    headroom: float | None  # the unused share of the provider's scarcest rate limit
    deployments: int


def providers(
    config: ConfigOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not call the providers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the providers, and whether they answer.

    Each that is configured, or whose key is in the environment, is asked for its list of models, which costs no
    tokens: is it reachable, how fast, and how much of its rate limits is left? The exit code is 1 if a configured
    provider does not answer.


    Example: holeshot providers --offline
    """
    settings, _ = read_settings(config)
    rows = _rows(settings, offline=offline)
    broken = [row for row in rows if row.configured and row.works is False]
    if as_json:
        write_json({"ok": not broken, "providers": rows})
    elif rows:
        _write(rows)
    else:
        prose(
            "no provider: set a key such as GROQ_API_KEY, or write a configuration (holeshot init); until then "
            "`holeshot serve` starts simulated ones"
        )
    if broken:
        raise typer.Exit(FAILED)


def _rows(settings: "Settings", *, offline: bool) -> list[ProviderRow]:
    from gateway.settings import reachable  # noqa: PLC0415 - pydantic only where it is needed
    from providers import load_catalog  # noqa: PLC0415 - likewise

    catalog = load_catalog()
    usable = reachable(settings, os.environ, catalog)
    answers = {} if offline or not usable else _ask(usable, catalog)
    deployed = [item.deployment.partition("/")[0] for model in settings.models.values() for item in model.deployments]
    return [_row(each, answers.get(each.name), deployed.count(each.name)) for each in usable]


def _ask(usable: "list[Reachable]", catalog: "Catalog") -> "dict[str, Liveness]":
    from gateway.cli.live import ask_with_progress  # noqa: PLC0415 - an HTTP client, only if providers are called

    return ask_with_progress({each.name: each.settings for each in usable}, catalog)


def _row(provider: "Reachable", answer: "Liveness | None", deployments: int) -> ProviderRow:
    from gateway.settings import has_credentials  # noqa: PLC0415 - as above

    return ProviderRow(
        provider=provider.name,
        title=provider.title,
        kind=provider.kind,
        configured=provider.configured,
        host=None if provider.base_url is None else _host(provider.base_url),
        apis=tuple(provider.apis),
        keys=len(provider.settings.keys),
        credentials=has_credentials(provider, os.environ, home()),
        works=None if answer is None else answer.works,
        state=None if answer is None else answer.state,
        message=None if answer is None else answer.message,
        latency_ms=None if answer is None else answer.latency_ms,
        models=len(answer.listed) if answer is not None and (answer.listed or answer.state == "reachable") else None,
        headroom=None if answer is None else answer.headroom,
        deployments=deployments,
    )


def _host(base_url: str) -> str:
    """Return a URL's host and port; the part before an @ may be a password."""
    return urlsplit(base_url).netloc.rpartition("@")[2]


def _write(rows: list[ProviderRow]) -> None:
    asked = any(row.state is not None for row in rows)
    columns = ["provider", "host", "keys", "deployed", *(["answer", "limits left"] if asked else [])]
    write_table(columns, [[*_cells(row), *(_live_cells(row) if asked else ())] for row in rows])
    speaking: dict[str, list[str]] = {}
    for row in rows:
        speaking.setdefault(", ".join(row.apis), []).append(row.provider)
    for apis, names in speaking.items():
        if apis:
            prose(f"{', '.join(names)}: {apis}")
    for row in rows:
        if row.message is not None:
            prose(f"note: {row.provider}: {row.message}")
    if idle := [row.provider for row in rows if not row.configured]:
        prose(f"note: not in the configuration, but the environment has a key: {', '.join(idle)}")


def _cells(row: ProviderRow) -> list[object]:
    named = row.title if row.title.lower() == row.provider else f"{row.title} ({row.provider})"
    return [named, row.host or row.kind, _keys(row), row.deployments]


def _keys(row: ProviderRow) -> object:
    if row.keys:
        return row.keys
    return {True: "found", False: "none", None: "not needed"}[row.credentials]


def _live_cells(row: ProviderRow) -> list[object]:
    answer = row.state or ("not asked: no list" if row.kind == "litellm" else "not asked")
    if row.state == "reachable" and row.models is not None and row.latency_ms is not None:
        answer = f"{counted(row.models, 'model')} in {row.latency_ms:.0f} ms"
    return [answer, None if row.headroom is None else f"{row.headroom:.0%}"]
