"""The command ``holeshot``: its commands, in the order in which a new user needs them."""

import errno
import platform
import sys
from typing import Annotated

import typer

from gateway import __version__
from gateway.cli.alerts import alerts
from gateway.cli.bench import bench
from gateway.cli.check import check
from gateway.cli.costs import costs
from gateway.cli.explain import explain
from gateway.cli.init import importing, init, schema
from gateway.cli.keys import keys
from gateway.cli.leaderboard import leaderboard
from gateway.cli.models import models, providers
from gateway.cli.race import race
from gateway.cli.replay import replay
from gateway.cli.serve import migrate, prune, serve
from gateway.cli.slo import slo, slowdowns
from gateway.cli.sql import sql
from gateway.cli.tail import tail
from gateway.cli.terminal import check_arguments, discard_standard_output, open_standard_streams, say

# ``holeshot version``.


def version() -> None:
    """Print the version, and the Python it runs on."""
    say(f"holeshot {__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})")


_HELP = """An LLM gateway that races providers.

The first token wins, the losers are cut, and every attempt is a row in SQL.

\b
First steps:
  holeshot init --live    a configuration from the keys in your environment
  holeshot check --live   does every provider answer, and accept its key?
  holeshot serve          point any OpenAI SDK at http://127.0.0.1:4000/v1
  holeshot race "Hello!"  watch one race, without a server
  holeshot leaderboard    which deployments are fast now
  holeshot tail           calls as they end
  holeshot explain MODEL  what would run for the next call, and why
  holeshot sql "select model, verdict, saved_ms_per_call from race_value"

Each command has an example: holeshot COMMAND --help
"""


def application() -> typer.Typer:
    """Return the command line, one command per file."""
    app = typer.Typer(
        name="holeshot",
        help=_HELP,
        no_args_is_help=True,
        callback=_options,
        rich_markup_mode=None,  # plain help: importing `rich` would take longer than everything else
        pretty_exceptions_enable=False,  # it would print local variables, which include keys
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(serve)
    app.command()(init)
    app.command()(check)
    app.command()(schema)
    app.command()(providers)
    app.command()(models)
    app.add_typer(importing(), name="import")
    app.add_typer(keys(), name="keys")
    app.command()(migrate)
    app.command()(prune)
    app.command()(slo)
    app.command()(sql)
    app.command()(costs)
    app.command()(replay)
    app.add_typer(alerts(), name="alerts")
    app.command()(race)
    app.command()(bench)
    app.command()(leaderboard)
    app.command()(tail)
    app.command()(explain)
    app.command()(slowdowns)
    app.command()(version)
    return app


def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda asked: _print_version() if asked else None,
            help="Print the version, and the Python it runs on.",
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
        application()()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard_standard_output()
        sys.exit(f"holeshot: {error.strerror}: what was to be written is not complete")
