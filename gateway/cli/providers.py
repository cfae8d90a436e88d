"""``holeshot providers``: which providers can be used, and whether they answer."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from gateway.cli.configuration import ConfigOption, read_settings
from gateway.cli.terminal import FAILED, prose, write_json, write_table
from gateway.terminal_text import counted

if TYPE_CHECKING:
    from gateway.cli.live import Liveness
    from gateway.settings import Settings
    from gateway.settings.presets import Catalog
    from gateway.settings.reachable import Reachable


class ProviderRow(msgspec.Struct, frozen=True):
    """One provider. Never contains a key."""

    provider: str
    title: str
    kind: str
    configured: bool  # False: known only from a key in the environment
    host: str | None  # of its base URL; None: only litellm knows it
    apis: tuple[str, ...]
    keys: int
    credentials: bool | None  # None: none needed, or unknown
    works: bool | None  # None: not asked
    state: str | None  # likewise
    message: str | None
    latency_ms: float | None
    models: int | None
    headroom: float | None  # the unused share of its scarcest rate limit
    deployments: int


def providers(
    config: ConfigOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not call the providers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the providers, and whether they answer.

    These are the providers that are configured, or whose key is in the environment. Each is asked for its list of
    models, which costs no tokens: is it reachable, how fast, and how much of its rate limits is left, if its headers
    say so. The exit code is 1 if a configured provider does not answer.

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
    from gateway.settings.reachable import reachable  # noqa: PLC0415 - pydantic only where it is needed
    from providers.catalog import load_catalog  # noqa: PLC0415 - likewise

    catalog = load_catalog()
    usable = reachable(settings, os.environ, catalog)
    answers = {} if offline or not usable else _ask(usable, catalog)
    deployed = [item.deployment.partition("/")[0] for model in settings.models.values() for item in model.deployments]
    return [_row(each, answers.get(each.name), deployed.count(each.name)) for each in usable]


def _ask(usable: "list[Reachable]", catalog: "Catalog") -> "dict[str, Liveness]":
    from gateway.cli.live import ask_with_progress  # noqa: PLC0415 - an HTTP client, only if providers are called

    return ask_with_progress({each.name: each.settings for each in usable}, catalog)


def _row(provider: "Reachable", answer: "Liveness | None", deployments: int) -> ProviderRow:
    from gateway.settings.reachable import has_credentials  # noqa: PLC0415 - as above

    return ProviderRow(
        provider=provider.name,
        title=provider.title,
        kind=provider.kind,
        configured=provider.configured,
        host=None if provider.base_url is None else _host(provider.base_url),
        apis=tuple(provider.apis),
        keys=len(provider.settings.keys),
        credentials=has_credentials(provider, os.environ, Path.home()),
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
    columns = ["provider", "host", "speaks", "keys", "deployed", *(["answer", "limits left"] if asked else [])]
    write_table(columns, [[*_cells(row), *(_live_cells(row) if asked else ())] for row in rows])
    for row in rows:
        if row.message is not None:
            prose(f"note: {row.provider}: {row.message}")
    if idle := [row.provider for row in rows if not row.configured]:
        prose(f"note: not in the configuration, but the environment has a key: {', '.join(idle)}")


def _cells(row: ProviderRow) -> list[object]:
    named = row.title if row.title.lower() == row.provider else f"{row.title} ({row.provider})"
    return [named, row.host or row.kind, " ".join(row.apis), _keys(row), row.deployments]


def _keys(row: ProviderRow) -> object:
    if row.keys:
        return row.keys
    return {True: "found", False: "none", None: "not needed"}[row.credentials]


def _live_cells(row: ProviderRow) -> list[object]:
    answer = row.state or ("not asked: no list" if row.kind == "litellm" else "not asked")
    if row.state == "reachable" and row.models is not None and row.latency_ms is not None:
        answer = f"{counted(row.models, 'model')} in {row.latency_ms:.0f} ms"
    return [answer, None if row.headroom is None else f"{row.headroom:.0%}"]
