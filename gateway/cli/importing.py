"""``holeshot import``: converts another gateway's configuration."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.configuration import report, write_file
from gateway.cli.terminal import FAILED, prose, say, write_json
from gateway.terminal_text import counted

if TYPE_CHECKING:
    from gateway.settings import Problem
    from gateway.settings.litellm_config.conversion import Converted

_STANDARD_OUTPUT = Path("-")


def importing() -> typer.Typer:
    """Return the command with a subcommand for each supported gateway."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    app.command("litellm")(litellm)
    app.callback()(_import)
    return app


def _import() -> None:
    """A configuration from that of another gateway."""


def litellm(
    source: Annotated[Path, typer.Argument(help="The configuration of a LiteLLM proxy.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; - is standard output.")] = Path(
        "config/gateway.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result and the notes as one JSON object.")] = False,
) -> None:
    """Write a configuration from that of a LiteLLM proxy.

    Models, router groups, fallbacks, Redis and the master key are converted; keys become references to variables.
    Settings without a counterpart are listed with their place, on standard error and at the end of the file. A secret
    in clear text is never copied: it becomes a ${NAME}.

    Example: holeshot import litellm config.yaml -o config/gateway.yaml
    """
    from gateway.settings import ConfigurationError  # noqa: PLC0415 - pydantic only where it is needed
    from gateway.settings.litellm_config.conversion import convert  # noqa: PLC0415 - likewise
    from providers.catalog import load_catalog  # noqa: PLC0415 - likewise
    from providers.datasheets import DatasheetTable  # noqa: PLC0415 - likewise

    try:
        converted = convert(source, os.environ, load_catalog(), DatasheetTable.shipped())
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None
    _write(converted.text, output, force=force, to_standard_output=not as_json)
    problems = [] if output == _STANDARD_OUTPUT else _problems(output)
    if as_json:
        _tell_machines(converted, output, problems)
    else:
        _tell_people(converted, output, problems)


def _write(text: str, output: Path, *, force: bool, to_standard_output: bool) -> None:
    if output == _STANDARD_OUTPUT:
        if to_standard_output:
            typer.echo(text, nl=False)
        return
    write_file(output, text, force=force)


def _problems(output: Path) -> "list[Problem]":
    """Return what prevents the written file from being used in this environment."""
    from gateway.settings import ConfigurationError, load  # noqa: PLC0415 - as above

    try:
        load(output, os.environ)
    except ConfigurationError as error:
        return error.problems
    return []


def _tell_people(converted: "Converted", output: Path, problems: "list[Problem]") -> None:
    if converted.notes:
        say("to be done by hand, or converted differently:", err=True)
    for note in converted.notes:
        prose(f"  {note}", err=True)
    if output == _STANDARD_OUTPUT:
        return
    say(
        f"wrote {output}: {counted(len(converted.models), 'model')} at {counted(len(converted.providers), 'provider')},"
        f" {counted(len(converted.notes), 'remark')}"
    )
    if problems:
        say("to correct before `holeshot serve`:", err=True)
        for problem in problems:
            prose(f"  {problem}", err=True)
    say("next: holeshot check --live, then holeshot serve")


def _tell_machines(converted: "Converted", output: Path, problems: "list[Problem]") -> None:
    write_json(
        {
            "config": None if output == _STANDARD_OUTPUT else str(output),
            "text": converted.text if output == _STANDARD_OUTPUT else None,
            "providers": converted.providers,
            "models": converted.models,
            "variables": converted.variables,
            "notes": [_plain(note) for note in converted.notes],
            "problems": [_plain(problem) for problem in problems],
        }
    )


def _plain(problem: "Problem") -> dict[str, object]:
    return {"message": problem.message, "file": problem.file, "line": problem.line}
