"""``holeshot keys`` with its verbs."""

import typer

from gateway.cli.keys.limits import limits
from gateway.cli.keys.listing import list_
from gateway.cli.keys.new import new
from gateway.cli.keys.revoke import revoke
from gateway.cli.keys.rotate import rotate


def keys() -> typer.Typer:
    """Return the command with its verbs."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    app.command()(new)
    app.command("list")(list_)
    app.command()(limits)
    app.command()(rotate)
    app.command()(revoke)
    app.callback()(_keys)
    return app


def _keys() -> None:
    """Keys for the clients of this gateway.

    With `keys: file` (the default) clients are in the configuration file: `new` prints the entry to paste. With `keys:
    database` they are also in the ledger's database, and every verb works on a running installation: all replicas
    follow within two seconds. `--config` says which installation.
    """
