"""``holeshot init``: writes a configuration to start with."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.configuration import check_place, home, report, write_file
from gateway.cli.terminal import FAILED, MISUSED, as_json, fail, prose, say, write_json
from gateway.core.terminal_text import counted, program

if TYPE_CHECKING:
    from gateway.cli.import_litellm.conversion import ConvertedConfiguration
    from gateway.settings import Catalog, Market, Problem

_MOST_RACED = 10
_PATH = Path("config/gateway.yaml")
_EXAMPLE_PATH = Path("config/gateway.example.yaml")


def init(
    path: Annotated[
        Path | None,
        typer.Argument(help=f"Where to write it. [default: {_PATH}; with --example {_EXAMPLE_PATH}]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the providers for their models, and propose those that several sell.")
    ] = False,
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, help=f"With --live: number of models to propose. [default: {_MOST_RACED}]"),
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Write an example with every setting, its default and its purpose.")
    ] = False,
) -> None:
    """Write a configuration from the keys in your environment.

    Keys are written as ${NAME}, never as values. Keys of two vendors or more make races: `small` and `large` of a model
    of each, and what several of them sell. A JSON Schema is written beside the file, for editors with a YAML language
    server.


    Example: GROQ_API_KEY=... CEREBRAS_API_KEY=... holeshot init --live
    """
    from providers import load_catalog  # noqa: PLC0415 - only where it is needed

    if top is not None and not live:
        fail("--top needs --live: it limits the models that are proposed", MISUSED)
    if example:
        if live:
            fail("--example cannot be used with --live: it asks no provider", MISUSED)
        write_example(path or _EXAMPLE_PATH, force=force)
        return
    top = (top or _MOST_RACED) if live else None
    write_configuration(path or _PATH, os.environ, load_catalog(), force=force, top=top)


def write_example(path: Path, *, force: bool = False) -> None:
    """Write the example configuration. Exits if that is not possible."""
    from gateway.settings import example  # noqa: PLC0415 - pydantic only where it is needed

    _write(path, example(), force=force)
    say(f"wrote {path}\nevery setting is in it, with made-up values: copy what you need to {_PATH}")


def write_configuration(
    path: Path, environ: Mapping[str, str], catalog: "Catalog", *, force: bool = False, top: int | None = None
) -> None:
    """Write a configuration from the keys in ``environ``; with ``top``, ask the vendors and propose so many models.

    Exits if that is not possible.
    """
    from gateway.settings import (  # noqa: PLC0415 - pydantic only where it is needed
        found_sellers,
        found_vendors,
        lacking,
        near_keys,
        starter_text,
        without_address,
    )
    from providers import DatasheetTable  # noqa: PLC0415 - likewise

    check_place(path, force=force)  # before providers are asked
    sellers = [(each, lacking(each)) for each in found_sellers(environ, catalog, home())]
    found = [*found_vendors(environ, catalog), *(each for each, lack in sellers if lack is None)]
    again = program("holeshot")
    passed_over = [
        *near_keys(environ, catalog),
        *(what for _, what in without_address(environ, catalog)),
        *(f"credentials of {each.title} are here, but it {lack}" for each, lack in sellers if lack is not None),
    ]
    if not found:
        for note in passed_over:
            prose(f"note: {note}", err=True)
        fail(
            "no provider's key is in the environment, so nothing was written. Set the keys that you have, and run it"
            f" again:\n  GROQ_API_KEY=... CEREBRAS_API_KEY=... {again} init --live\nWithout keys `{again} serve` starts"
            f" simulated providers; `{again} init --example` shows how a server of your own is named"
        )
    market = None if top is None else _ask(environ, catalog, top)
    _write(path, starter_text(found, environ, market, DatasheetTable.shipped()), force=force)
    prose(f"wrote {path}\nproviders found in the environment: {', '.join(vendor.name for vendor in found)}")
    for note in passed_over:
        prose(f"note: {note}")
    if market is not None:
        say(
            f"models that several of them sell: {len(market.raced)} raced, {len(market.others)} more in comments"
            if market.raced
            else "no two of them sell the same model"
        )
        for name, why in market.silent.items():
            prose(f"note: {name}: {why}")
    _tell_who_races(path, environ, catalog)
    prose(f"next: {again} check --live, then {again} serve")


def _tell_who_races(path: Path, environ: Mapping[str, str], catalog: "Catalog") -> None:
    """Say of each model of the written file whether it can race, and why not."""
    from gateway.settings import ConfigurationError, load, who_can_race  # noqa: PLC0415 - as above

    with suppress(ConfigurationError):  # problems of other settings in the environment: `check` reports them
        for name, can in who_can_race(load(path, environ, catalog=catalog)).items():
            prose(f"{name} {can}")


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a configuration, and beside it the schema that the file's first line names."""
    from gateway.settings import EDITOR_LINE, FILE_NAME, json_schema  # noqa: PLC0415 - as above

    write_file(path, EDITOR_LINE + text, force=force)
    schema_path, schema = path.with_name(FILE_NAME), as_json(json_schema()) + "\n"
    if schema_path.exists() and not force:
        known = ""
        with suppress(OSError):  # a folder, or another user's file
            known = schema_path.read_text(encoding="utf-8", errors="replace")
        if known != schema:
            prose(
                f"note: {schema_path} already exists and was not changed;"
                " `holeshot schema` prints this version's schema"
            )
        return
    write_file(schema_path, schema, force=force)


def _ask(environ: Mapping[str, str], catalog: "Catalog", top: int) -> "Market":
    """Return the models that vendors with a key in ``environ`` sell."""
    from gateway.cli.live import ask_with_progress  # noqa: PLC0415 - an HTTP client, only for --live
    from gateway.settings import TRAINED_ONLY, found, found_vendors, proposed_market, same_models  # noqa: PLC0415 - likewise

    usable = found(found_vendors(environ, catalog), environ)
    if not usable:
        fail("no provider to ask: set a key such as GROQ_API_KEY, or leave out --live")
    answers = ask_with_progress({each.name: each.settings for each in usable}, catalog)
    if not any(answer.listed for answer in answers.values()):
        failures = "; ".join(f"{name}: {answer.message or answer.state}" for name, answer in answers.items())
        fail(
            f"no provider listed its models ({failures or 'none of them has a list'});"
            " leave out --live to write a file without them"
        )
    silent = {
        name: f"did not list its models: {answer.message or answer.state}"
        for name, answer in answers.items()
        if not answer.listed
    }
    return proposed_market(
        same_models({name: answer.listed for name, answer in answers.items()}, TRAINED_ONLY),
        top,
        silent,
        {name: frozenset(answer.models) for name, answer in answers.items() if answer.listed},
    )


# ``holeshot schema``: the JSON Schema of the configuration file.


def schema() -> None:
    """Print the JSON Schema of the configuration file.

    Editors complete and check the file with it while you type.

    `holeshot init` writes it beside the configuration, which names it in its first line:
    # yaml-language-server: $schema=gateway.schema.json

    Example: holeshot schema > config/gateway.schema.json
    """
    from gateway.settings import json_schema  # noqa: PLC0415 - pydantic only where it is needed

    write_json(json_schema())


# ``holeshot import``: converts another gateway's configuration.

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
    accounts: Annotated[
        list[Path] | None,
        typer.Option(
            "--accounts",
            help="What its API answers to /key/list?return_full_object=true, /team/list, /user/list or /customer/list;"
            " may be repeated.",
        ),
    ] = None,
) -> None:
    """Write a configuration from that of a LiteLLM proxy.

    Keys, teams and users are in LiteLLM's database: save what its API says of them, and name the files. Settings
    without a counterpart are listed, on standard error and at the end of the file. A secret in clear text is never
    copied: it becomes a ${NAME}. The page 'Migrating' of the documentation has more.


    Example: holeshot import litellm config.yaml --accounts keys.json --accounts teams.json
    """
    from gateway.cli.import_litellm.conversion import convert  # noqa: PLC0415 - likewise
    from gateway.settings import ConfigurationError  # noqa: PLC0415 - pydantic only where it is needed
    from providers import DatasheetTable, load_catalog  # noqa: PLC0415 - likewise

    try:
        converted = convert(source, os.environ, load_catalog(), DatasheetTable.shipped(), accounts or ())
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None
    _write_import(converted.text, output, force=force, to_standard_output=not as_json)
    problems = [] if output == _STANDARD_OUTPUT else _problems(output)
    if as_json:
        _print_json_result(converted, output, problems)
    else:
        _print_result(converted, output, problems)


def _write_import(text: str, output: Path, *, force: bool, to_standard_output: bool) -> None:
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


def _print_result(converted: "ConvertedConfiguration", output: Path, problems: "list[Problem]") -> None:
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
    prose(f"next: {program('holeshot')} check --live, then {program('holeshot')} serve")


def _print_json_result(converted: "ConvertedConfiguration", output: Path, problems: "list[Problem]") -> None:
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
