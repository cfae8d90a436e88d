"""The command ``holeshot``: its commands, in the order in which a new user needs them."""

import errno
import platform
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gateway import __version__
from gateway.cli.terminal import check_arguments, discard_standard_output, heading, open_standard_streams, say

# ``holeshot version``.


def version() -> None:
    """Print the version, its ledger's schema, and its Python."""
    from gateway.ledger import head_revision  # noqa: PLC0415 - only where it is needed

    runs_on = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    say(f"holeshot {__version__} (ledger schema {head_revision()}, {runs_on})")


_HELP = """An LLM gateway that races providers.

The first token wins, the losers are cancelled, and every attempt is a row in SQL.

\b
First steps:
  holeshot init --live    a configuration from the keys in your environment
  holeshot check --live   does every provider answer, and accept its key?
  holeshot serve          point any OpenAI SDK at http://127.0.0.1:4000/v1
  holeshot race "Hello!"  watch one race, without a server
  holeshot leaderboard    which deployments are fast now
  holeshot tail           calls as they end
  holeshot explain MODEL  what would run for the next call, and why
  holeshot sql "select model, verdict, saved_per_call_ms from race_value"

Each command has an example: holeshot COMMAND --help

The documentation: https://github.com/holeshot/holeshot/tree/main/docs
"""


# What each group of commands is for, as --help lists them.
GROUPS = {
    "Begin": ("init", "check", "serve", "import", "schema"),
    "Look at a running gateway": ("leaderboard", "tail", "explain", "facts", "alerts"),
    "Ask the ledger": ("sql", "slo", "slowdowns", "costs", "replay"),
    "Try providers": ("race", "bench", "providers", "models"),
    "Sign in": ("login", "token"),
    "Operate": ("keys", "migrate", "prune", "version"),
}

_VERSION = "--version"  # needs no command

# Each command's module and function; a function with () makes a group.
COMMANDS = {
    "serve": "serve:serve",
    "init": "init:init",
    "check": "check:check",
    "schema": "init:schema",
    "providers": "models:providers",
    "models": "models:models",
    "import": "init:importing()",
    "keys": "keys:keys()",
    "login": "login.verbs:login",
    "token": "login.verbs:token",
    "migrate": "serve:migrate",
    "prune": "serve:prune",
    "slo": "slo:slo",
    "sql": "sql:sql",
    "costs": "costs:costs",
    "replay": "replay:replay",
    "alerts": "alerts:alerts()",
    "race": "race:race",
    "bench": "bench:bench",
    "leaderboard": "leaderboard:leaderboard",
    "tail": "tail:tail",
    "explain": "explain:explain",
    "facts": "facts:facts()",
    "slowdowns": "slo:slowdowns",
    "version": "main:version",
}


class _Grouped(TyperGroup):
    """Lists the commands in ``GROUPS``, with headings that are bold on a terminal, unless ``NO_COLOR`` is set."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        known = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            rows = [(name, command.get_short_help_str(limit)) for name in names if (command := known.get(name))]
            if rows:
                with formatter.section(heading(title)):
                    formatter.write_dl(rows, col_max=max(map(len, COMMANDS)))


def application(asked: str | None = None) -> typer.Typer:
    """Return the command line; ``asked``: only this command, as making all takes 0.1 s and 5 MB."""
    app = typer.Typer(
        name="holeshot",
        cls=_Grouped,
        help=_HELP,
        no_args_is_help=True,
        callback=_options,
        rich_markup_mode=None,  # plain help: importing `rich` would take longer than everything else
        pretty_exceptions_enable=False,  # such a trace would print local variables, which include keys
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, where in COMMANDS.items():
        if name == asked or asked not in {*COMMANDS, _VERSION}:
            module, _, function = where.partition(":")
            command = getattr(import_module(f"gateway.cli.{module}"), function.removesuffix("()"))
            if function.endswith("()"):
                app.add_typer(command(), name=name)
            else:
                app.command(name)(command)
    return app


def _options(
    _: Annotated[
        bool,
        typer.Option(
            _VERSION,
            is_eager=True,
            callback=lambda asked: _print_version() if asked else None,
            help="Print the version, its ledger's schema, and its Python.",
        ),
    ] = False,
) -> None:
    """Handle the options before a command; those for completion are typer's."""


def _print_version() -> None:
    version()
    raise typer.Exit


def main() -> None:
    """Run the command line."""
    open_standard_streams()
    try:
        check_arguments(sys.argv[1:])
    except typer.Exit as error:
        sys.exit(error.exit_code)
    try:
        application(next(iter(sys.argv[1:]), None))()
    except MemoryError:
        discard_standard_output()
        sys.exit("holeshot: there is no memory for so much: ask for less at a time, or allow this process more")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard_standard_output()
        sys.exit(f"holeshot: {error.strerror}: what was to be written is not complete")
