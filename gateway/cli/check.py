"""``holeshot check``: whether the configuration is usable, and a summary of it."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import typer

from gateway.cli.configuration import ConfigOption, report
from gateway.cli.terminal import FAILED, OK, UNKNOWN, prose, say, warn, without_unknown, write_json, write_table
from providers import is_of_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gateway.app import RedisFound
    from gateway.cli.live import Liveness, UnlistedModel
    from gateway.cli.summary import DeploymentLine, FallbackLine, PolicyLine, ProviderLine
    from gateway.settings import CanRace, Catalog, Problem, Settings

_PRICES: "Mapping[str, Callable[[DeploymentLine], float | None]]" = {
    "$/M in": lambda line: line.input_usd,
    "$/M out": lambda line: line.output_usd,
    "$/M cached": lambda line: line.cached_input_usd,
    "$/M cache write": lambda line: line.cache_write_usd,
    "$/M reasoning": lambda line: line.reasoning_usd,
}
_ABILITIES = ("context", "longest answer", "tools", "JSON schema", "vision", "audio", "PDF", "reasoning")


def check(
    config: ConfigOption = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Also ask the databases (the schema, too), Redis (what its replicas have learnt of deployments, too),"
            " ClickHouse, and each provider for its models, and for one token of each model that"
            " it does not list; servers of your own also for how their streams end, and which orders of roles they"
            " take.",
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also print the providers, how each model is raced and each deployment is called, all that it bills,"
            " what it can do, and what clients require. --json has all that, too.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Validate the configuration; start nothing.

    If it is not usable, print every problem and exit with code 1. Else print who answers each model, whether it can
    race, the price of a million tokens and the longest prompt; and notes on what is unknown, or may not be intended.

    Example: holeshot check --live
    """
    from gateway.settings import ConfigurationError, load, locate  # noqa: PLC0415 - pydantic only where it is needed

    path = locate(config, os.environ)
    try:
        settings = load(path, os.environ)
        _check_databases(settings)
        _check_certificate(settings)
        _check_proxies(settings)
    except ConfigurationError as error:
        if as_json:
            write_json(
                {"ok": False, "config": _name(path), "problems": [_problem(problem) for problem in error.problems]}
            )
        else:
            report(error)
        raise typer.Exit(FAILED) from None
    raise typer.Exit(_summarise(settings, path, live=live, verbose=verbose, as_json=as_json))


def _check_databases(settings: "Settings") -> None:
    """Read the databases' URLs, as `serve` does.

    Raises:
        ConfigurationError: one of the URLs is not a database URL.

    """
    from gateway.ledger import LedgerError, parse_url  # noqa: PLC0415 - only where it is needed
    from gateway.settings import ConfigurationError, Problem  # noqa: PLC0415 - as above

    try:
        parse_url(settings.database_url.get_secret_value())
        if settings.reports_database_url is not None:
            parse_url(settings.reports_database_url.get_secret_value(), "reports_database_url")
    except LedgerError as error:
        raise ConfigurationError([Problem(str(error))]) from None


def _check_certificate(settings: "Settings") -> None:
    """Read certificate and key, as `serve` does.

    Raises:
        ConfigurationError: certificate and key cannot be used.

    """
    if settings.tls is None:
        return
    from gateway.server import TlsError, open_context  # noqa: PLC0415 - only where it is needed
    from gateway.settings import ConfigurationError, Problem  # noqa: PLC0415 - as above

    try:
        open_context(settings.tls)
    except TlsError as error:
        raise ConfigurationError([Problem(str(error))]) from None


def _check_proxies(settings: "Settings") -> None:
    """Read the proxies from the environment, as `serve` does for each provider.

    Raises:
        ConfigurationError: a proxy cannot be used.

    """
    from gateway.settings import ConfigurationError, Problem, reachable  # noqa: PLC0415 - as above
    from providers import load_catalog  # noqa: PLC0415 - likewise
    from providers.http import proxy_of  # noqa: PLC0415 - likewise

    for provider in reachable(settings, {}, load_catalog()):
        if provider.base_url is None or provider.kind == "litellm":  # litellm itself reads the proxies
            continue
        parts = urlsplit(provider.base_url)
        try:
            proxy_of(parts.scheme, parts.hostname or "", parts.port)
        except ValueError as error:
            raise ConfigurationError([Problem(str(error))]) from None


def _proxy_notes() -> "Iterator[str]":
    """Yield a note on ALL_PROXY, if it alone names a proxy, and for each entry of NO_PROXY that is not understood."""
    from providers.http import not_understood  # noqa: PLC0415 - only where it is needed

    proxies = getproxies_environment()
    if proxies.get("all") and not proxies.get("https"):
        yield "ALL_PROXY is not used: set HTTPS_PROXY, and HTTP_PROXY, if providers are reached through it"
    for entry in not_understood():
        yield (
            f"NO_PROXY: {entry!r} is not understood, so calls to it go through the proxy, with their keys and prompts:"
            " write a name, .domain, *.domain, an address or a network such as 10.0.0.0/8; :port may follow all but a"
            " network"
        )


def _summarise(settings: "Settings", path: Path | None, *, live: bool, verbose: bool, as_json: bool) -> int:
    """Print the summary and return the exit code: a provider or model that does not answer is a failure."""
    from gateway.cli import summary  # noqa: PLC0415 - pydantic only where it is needed
    from gateway.settings import key_sources, keys_in_clear, near_keys, who_can_race  # noqa: PLC0415 - likewise
    from providers import DatasheetTable, load_catalog  # noqa: PLC0415 - likewise

    catalog = load_catalog()
    providers = summary.provider_lines(settings, catalog)
    table = DatasheetTable.shipped(settings.prices.file)
    source = table.source()
    deployments = summary.deployment_lines(settings, catalog, table)
    fallbacks, policies = summary.fallback_lines(settings), summary.policy_lines(settings)
    races = who_can_race(settings)
    liveness, unlisted, endings = _ask(settings, catalog) if live else ({}, [], [])
    redis, unusable = _ask_redis(settings) if live else (None, [])
    unusable += [*_ask_ledger(settings), *_ask_replica(settings), *_ask_clickhouse(settings)] if live else []
    notes = [
        *summary.warnings(settings, deployments, catalog),
        *filter(None, [source.is_old(datetime.now(UTC).date())] if deployments and source is not None else []),
        *summary.withheld(settings, os.environ, catalog),
        *keys_in_clear(path),
        *(near_keys(os.environ, catalog) if path is None else ()),
        *_proxy_notes(),
        *endings,
        *(redis.doubts if redis is not None else ()),
        *_learnt_notes(deployments, redis),
    ]
    is_refused = any(each.refuses_key for each in liveness.values())
    sources = key_sources(path, os.environ, settings, catalog) if is_refused else {}
    warnings = [*_liveness_notes(liveness, sources), *(each.note for each in unlisted), *unusable]
    works = (
        all(answer.works for answer in liveness.values())
        and all(each.answers is not False for each in unlisted)
        and not unusable
    )
    if as_json:
        write_json(
            {
                "ok": works,
                "config": _name(path),
                "problems": [],
                "warnings": [*notes, *warnings],
                "providers": providers,
                "deployments": deployments,
                "fallbacks": fallbacks,
                "races": races,
                "policies": policies,
                "prices": source,
                "redis": None if redis is None else {"topology": redis.topology},
                "live": {name: _answer(answer) for name, answer in liveness.items()} if live else None,
            }
        )
        return OK if works else FAILED
    state = "ok" if works else "usable, but not every provider, model and store answers: see the warnings"
    if redis is not None:
        prose(f"shared through {redis.topology}")
    if verbose or liveness or not deployments or any(line.key == "not set" for line in providers):
        _write_providers(providers, liveness)
    if verbose:
        _write_deployments(deployments, fallbacks)
        _write_policies(policies)
    else:
        _write_who_answers(deployments, races)
    for line in _races_in_words(races):
        prose(line)
    if deployments and source is not None:
        prose(f"prices and abilities that are not in the file: {source.name} {source.version}, of {source.released}")
    for note in notes:
        prose(f"note: {note}")
    for warning in warnings:
        warn(warning)
    say(f"{_name(path) or 'no file: environment and defaults'}: {state}")
    return OK if works else FAILED


def _ask(settings: "Settings", catalog: "Catalog") -> "tuple[dict[str, Liveness], list[UnlistedModel], list[str]]":
    from gateway.cli import live  # noqa: PLC0415 - an HTTP client, only for --live

    async def asked() -> "tuple[dict[str, Liveness], list[UnlistedModel], list[str]]":
        liveness = await live.ask(lambda: live.open_listing(settings, catalog))
        unlisted = await live.ask_for_unlisted(settings, catalog, liveness)
        endings = await live.ask_for_endings(settings, catalog, liveness)
        return liveness, unlisted, [*endings, *await live.ask_for_orders(settings, catalog, liveness)]

    return asyncio.run(asked())


def _ask_ledger(settings: "Settings") -> list[str]:
    """Return why the ledger's database cannot be used, as a list; a SQLite file is made and migrated by `serve`."""
    from gateway.ledger import (  # noqa: PLC0415 - SQLAlchemy only where it is needed
        LedgerError,
        SchemaOutdatedError,
        check_schema,
        create_engine,
        is_sqlite,
        parse_url,
    )

    url = settings.database_url.get_secret_value()
    parsed = parse_url(url)
    if is_sqlite(parsed) and not (parsed.database and Path(parsed.database).exists()):
        return []

    async def asked() -> None:
        engine = create_engine(url)
        try:
            await check_schema(engine)
        finally:
            await engine.dispose()

    try:
        asyncio.run(asked())
    except LedgerError as error:
        if not (is_sqlite(parsed) and isinstance(error, SchemaOutdatedError)):
            return [f"database_url: {error}"]
    return []


def _ask_replica(settings: "Settings") -> list[str]:
    """Return the problem of the replica that reports read, as a list; empty if there is none."""
    if settings.reports_database_url is None:
        return []
    from gateway.ledger import LedgerError, queries  # noqa: PLC0415 - SQLAlchemy only where it is needed

    try:
        asyncio.run(queries.run(settings.reports_database_url.get_secret_value(), "select id from calls limit 1"))
    except LedgerError as error:
        return [f"reports_database_url: {error}"]
    return []


def _ask_clickhouse(settings: "Settings") -> list[str]:
    """Return why ClickHouse, the ledger's second store, cannot be used, as a list; empty if it can, or is not set."""
    if settings.ledger.clickhouse is None:
        return []
    from gateway.ledger import ClickHouse, LedgerError  # noqa: PLC0415 - only where it is needed

    async def asked(url: str) -> None:
        server = ClickHouse(url)
        try:
            await server.run("select 1")
        finally:
            await server.aclose()

    try:
        asyncio.run(asked(settings.ledger.clickhouse.url.get_secret_value()))
    except LedgerError as error:
        return [f"ledger.clickhouse: {error}"]
    return []


def _ask_redis(settings: "Settings") -> "tuple[RedisFound | None, list[str]]":
    """Return the topology of Redis, and a list with the reason if it cannot be used."""
    from gateway.app import ask_redis  # noqa: PLC0415 - imports the whole gateway, only for --live
    from gateway.topology import UnusableTopologyError  # noqa: PLC0415 - likewise

    try:
        found = asyncio.run(ask_redis(settings, everything=True))
    except UnusableTopologyError as error:
        return None, [str(error)]
    if found is None or found.away is None:
        return found, []
    return None, [f"redis_url: Redis does not answer ({found.away})"]


def _learnt_notes(deployments: "list[DeploymentLine]", redis: "RedisFound | None") -> list[str]:
    """Return a note for each deployment with facts that refusals have taught the running gateways."""
    known = redis.learnt if redis is not None else {}
    return [
        f"{name} refuses {', '.join(known[name])}: the running gateways have learnt it, and ask in another form"
        for name in dict.fromkeys(line.deployment for line in deployments)
        if name in known
    ]


def _liveness_notes(liveness: "dict[str, Liveness]", sources: "Mapping[str, list[str]]") -> "Iterator[str]":
    """Yield a note for each provider that does not work; if it refuses a key, the note says where the key is from."""
    for name, answer in liveness.items():
        if answer.refuses_key and name in sources:
            yield f"{name}: {answer.message}; the refused key comes from {sources[name][answer.key]}"
        elif not answer.works:
            yield f"{name}: {answer.message}"


def _write_providers(providers: "list[ProviderLine]", liveness: "dict[str, Liveness]") -> None:
    if providers:
        columns = ["provider", "kind", "base url", "key", *(["live", "after ms"] if liveness else [])]
        rows = [[line.provider, line.kind, line.base_url, line.key, *_live_cells(line, liveness)] for line in providers]
        write_table(columns, rows)


def _write_who_answers(deployments: "list[DeploymentLine]", races: "Mapping[str, CanRace]") -> None:
    """Print each model's deployments: can the model race, what does a deployment cost, how long may a prompt be."""
    rows = [
        [
            line.model,
            "yes" if races[line.model].races else "no",
            line.deployment,
            *(UNKNOWN if usd is None else f"{usd:g}" for usd in (line.input_usd, line.output_usd)),
            UNKNOWN if line.capabilities.context_tokens is None else f"{line.capabilities.context_tokens:,}",
            ", ".join(_facts(line)) or None,
        ]
        for line in deployments
    ]
    for before, row in zip(rows[-2::-1], rows[:0:-1], strict=True):  # only a model's first row names the model
        if before[0] == row[0]:
            row[0] = row[1] = ""
    columns = ["model", "races", "deployment", "$/M in", "$/M out", "context", "settings"]
    if rows:
        write_table(*without_unknown(columns, rows, always=3))


def _races_in_words(races: "Mapping[str, CanRace]") -> "Iterator[str]":
    """Yield whether models can race and why not: one line for all models with the same answer."""
    alike: dict[CanRace, list[str]] = {}
    for name, can in races.items():
        alike.setdefault(can, []).append(name)
    for can, names in alike.items():
        yield f"{', '.join(names)}{' each' if len(names) > 1 else ''} {can}"


def _write_deployments(deployments: "list[DeploymentLine]", fallbacks: "list[FallbackLine]") -> None:
    if deployments:
        _write_models(deployments, fallbacks)
        prices = [name for name, usd in _PRICES.items() if any(map(usd, deployments))]
        if prices or any(
            line.bills_after_disconnect is not None for line in deployments
        ):  # otherwise the whole table would be "unknown"
            columns = ["model", "deployment", *prices, "bills losers"]
            write_table(columns, [_price_cells(line, prices) for line in deployments])
        _write_tiers(deployments)
        _write_calling(deployments)
        _write_abilities(deployments)


def _write_tiers(deployments: "list[DeploymentLine]") -> None:
    """Print the prices of other tiers and longer prompts, and of units besides text, each deployment once."""
    each = {line.deployment: line for line in deployments}.values()
    tiers = [
        (
            line.deployment,
            card.tier,
            f"over {card.above_tokens:,} tokens" if card.above_tokens else "any",
            *(
                UNKNOWN if usd is None else f"{usd:g}"
                for usd in (card.input_usd, card.output_usd, card.cached_input_usd)
            ),
        )
        for line in each
        for card in line.tiers
        if card.tier not in _NOT_CALLED
    ]
    if tiers:
        write_table(["deployment", "tier", "prompt", "$/M in", "$/M out", "$/M cached"], [list(row) for row in tiers])
    units = [
        [line.deployment, unit, f"{usd:g}", "million tokens" if is_of_tokens(unit) else "each"]
        for line in each
        for unit, usd in line.units.items()
    ]
    if units:
        write_table(["deployment", "also billed", "$", "for"], units)


_NOT_CALLED = frozenset({"batch"})  # tiers of batches: the gateway sends no batches


def _write_models(deployments: "list[DeploymentLine]", fallbacks: "list[FallbackLine]") -> None:
    """Print how each model is raced, and its fallbacks."""
    from gateway.settings import Cause  # noqa: PLC0415 - as above

    others: dict[str, list[str]] = {}
    for line in fallbacks:
        causes = "" if len(line.causes) == len(Cause) else f" ({', '.join(line.causes)})"
        others.setdefault(line.model, []).append(f"{line.fallback}{causes}")
    raced = dict.fromkeys((line.model, line.mode, line.objective, f"{line.budget:g}") for line in deployments)
    rows = [[*cells, *([", ".join(others.get(cells[0], ["none"]))] if others else [])] for cells in raced]
    write_table(["model", "mode", "objective", "budget", *(["falls back to"] if others else [])], rows)


def _write_calling(deployments: "list[DeploymentLine]") -> None:
    """Print how each deployment is called, with its models if they differ."""
    known = dict.fromkeys((line.deployment, _apis(line), ", ".join(_facts(line))) for line in deployments)
    by_model = len({name for name, *_ in known}) < len(known)
    has_facts = any(facts for *_, facts in known)
    rows = (
        [[line.model, line.deployment, _apis(line), ", ".join(_facts(line))] for line in deployments]
        if by_model
        else [list(cells) if has_facts else cells[:2] for cells in known]
    )
    write_table([*(["model"] if by_model else []), "deployment", "APIs", *(["settings"] if has_facts else [])], rows)


def _apis(line: "DeploymentLine") -> str:
    return ", ".join(line.apis) if line.apis_known else "chat; others are tried when asked"


def _facts(line: "DeploymentLine") -> list[str]:
    """Return facts about a deployment besides prices and capabilities, in words."""
    words = [
        ("disabled", not line.enabled),
        (f"weight {line.weight:g}", line.weight != 1),
        (f"canary {line.canary or 0:.4g}", line.canary is not None),
        ("drop_params", line.drop_params),
        ("zdr" if line.zdr else "no zdr", line.zdr is not None),
        (f"region {line.region}", line.region is not None),
        (line.quantization or "", line.quantization is not None),
    ]
    return [word for word, applies in words if applies]


def _write_policies(policies: "list[PolicyLine]") -> None:
    if policies:
        columns = ["client", "zdr only", "regions", "quantizations"]
        write_table(columns, [_policy_cells(line) for line in policies])


def _policy_cells(line: "PolicyLine") -> list[object]:
    named = (line.regions, line.quantizations)
    return [line.client, line.zdr is True, *("any" if names is None else ", ".join(names) for names in named)]


def _price_cells(line: "DeploymentLine", prices: "list[str]") -> list[object]:
    known = (_PRICES[name](line) for name in prices)
    bills = "unknown" if line.bills_after_disconnect is None else line.bills_after_disconnect
    return [line.model, line.deployment, *(UNKNOWN if usd is None else f"{usd:g}" for usd in known), bills]


def _write_abilities(deployments: "list[DeploymentLine]") -> None:
    """Print what each deployment can do, if anything is known."""
    rows = _ability_rows(deployments)
    known = [number for number in range(len(_ABILITIES) + 1) if any(row[number] not in (None, UNKNOWN) for row in rows)]
    columns = ["deployment", *_ABILITIES]
    if len(known) > 1:
        write_table([columns[number] for number in known], [[row[number] for number in known] for row in rows])


def _ability_rows(deployments: "list[DeploymentLine]") -> list[list[object]]:
    """Return a row for each deployment and set of capabilities; models with the same set share a row."""
    rows: list[list[object]] = []
    for name, can in dict.fromkeys((line.deployment, line.capabilities) for line in deployments):
        flags = (can.tools, can.json_schema, can.vision, can.audio, can.documents, can.reasoning)
        limits = (can.context_tokens, can.max_output_tokens)
        rows.append([name, *(UNKNOWN if limit is None else f"{limit:,}" for limit in limits), *flags])
    return rows


def _live_cells(line: "ProviderLine", liveness: "dict[str, Liveness]") -> list[object]:
    if not liveness:
        return []
    answer = liveness.get(line.provider)
    if answer is None:
        return ["not asked", None]
    return [answer.state, None if answer.latency_ms is None else round(answer.latency_ms)]


def _name(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def _problem(problem: "Problem") -> dict[str, Any]:
    return {"message": problem.message, "file": problem.file, "line": problem.line}


def _answer(answer: "Liveness") -> dict[str, Any]:
    return {
        "state": answer.state,
        "latency_ms": answer.latency_ms,
        "message": answer.message,
        "models": len(answer.models),
    }
