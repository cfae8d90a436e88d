"""``holeshot check``: whether the configuration is usable, and what it amounts to."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.configuration import ConfigOption, report
from gateway.cli.terminal import FAILED, OK, UNKNOWN, write_json, write_table

if TYPE_CHECKING:
    from gateway.cli.live import Liveness
    from gateway.cli.summary import DeploymentLine, ProviderLine
    from gateway.settings import Problem, Settings
    from gateway.settings.presets import Catalog


def check(
    config: ConfigOption = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also ask each provider for its models; costs no tokens.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one object.")] = False,
) -> None:
    """Validate the configuration, starting nothing.

    Ends with exit code 1 and every problem when it is not usable, else with what is configured, and what is unknown.

    Example: holeshot check --live
    """
    from gateway.settings import ConfigurationError, load, locate  # noqa: PLC0415 - pydantic only where it is needed

    path = locate(config, os.environ)
    try:
        settings = load(path, os.environ)
    except ConfigurationError as error:
        if as_json:
            write_json(
                {"ok": False, "config": _name(path), "problems": [_problem(problem) for problem in error.problems]}
            )
        else:
            report(error)
        raise typer.Exit(FAILED) from None
    raise typer.Exit(_summarise(settings, path, live=live, as_json=as_json))


def _summarise(settings: "Settings", path: Path | None, *, live: bool, as_json: bool) -> int:
    """Print what is configured, and return the exit code: a provider that does not answer is a failure, too."""
    from gateway.cli.summary import deployment_lines, provider_lines, warnings  # noqa: PLC0415 - only here
    from providers.catalog import load_catalog  # noqa: PLC0415 - likewise
    from providers.prices import PriceTable  # noqa: PLC0415 - likewise

    catalog = load_catalog()
    providers = provider_lines(settings, catalog)
    deployments = deployment_lines(settings, catalog, PriceTable.installed())
    liveness = _ask(settings, catalog) if live else {}
    notes = [*warnings(settings, deployments), *_silent(liveness), *_absent(settings, liveness)]
    works = all(answer.works for answer in liveness.values())
    if as_json:
        write_json(
            {
                "ok": works,
                "config": _name(path),
                "problems": [],
                "warnings": notes,
                "providers": providers,
                "deployments": deployments,
                "live": {name: _answer(answer) for name, answer in liveness.items()} if live else None,
            }
        )
        return OK if works else FAILED
    typer.echo(f"{_name(path) or 'no file: environment and defaults'}: ok")
    _write_tables(providers, deployments, liveness)
    for note in notes:
        typer.echo(f"note: {note}")
    return OK if works else FAILED


def _ask(settings: "Settings", catalog: "Catalog") -> "dict[str, Liveness]":
    from gateway.cli.live import ask, open_listing  # noqa: PLC0415 - an HTTP client, only for --live

    return asyncio.run(ask(lambda: open_listing(settings, catalog)))


def _silent(liveness: "dict[str, Liveness]") -> list[str]:
    return [f"{name}: {answer.message}" for name, answer in liveness.items() if not answer.works]


def _absent(settings: "Settings", liveness: "dict[str, Liveness]") -> list[str]:
    """Return a note for each deployment whose provider answered and does not list its model."""
    notes = []
    for name, model in settings.models.items():
        for item in model.deployments:
            provider, _, wanted = item.deployment.partition("/")
            offered = liveness[provider].models if provider in liveness else ()
            if offered and wanted not in offered:
                notes.append(f"{provider} does not list {wanted!r} (model {name!r})")
    return notes


def _write_tables(
    providers: "list[ProviderLine]", deployments: "list[DeploymentLine]", liveness: "dict[str, Liveness]"
) -> None:
    if providers:
        columns = ["provider", "kind", "base url", "key", *(["live", "latency_ms"] if liveness else [])]
        rows = [[line.provider, line.kind, line.base_url, line.key, *_live_cells(line, liveness)] for line in providers]
        write_table(columns, rows)
    if deployments:
        columns = ["model", "mode", "objective", "budget", "deployment", "$/M in", "$/M out", "bills after hang-up"]
        write_table(
            columns,
            [
                [
                    line.model,
                    line.mode,
                    line.objective,
                    f"{line.budget:g}",
                    line.deployment,
                    UNKNOWN if line.input_usd is None else f"{line.input_usd:g}",
                    UNKNOWN if line.output_usd is None else f"{line.output_usd:g}",
                    "unknown" if line.bills_after_disconnect is None else line.bills_after_disconnect,
                ]
                for line in deployments
            ],
        )


def _live_cells(line: "ProviderLine", liveness: "dict[str, Liveness]") -> list[object]:
    if not liveness:
        return []
    answer = liveness.get(line.provider)
    return [answer.state, answer.latency_ms] if answer else ["not asked", None]


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
