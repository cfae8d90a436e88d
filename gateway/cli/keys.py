"""``holeshot keys``: makes keys for the gateway's clients."""

import hashlib
import re
import secrets
from typing import Annotated

import typer

from gateway.cli.terminal import MISUSED, fail, say, write_json

PREFIX = "hs-"
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def keys() -> typer.Typer:
    """Return the command with its subcommands."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    app.command("new")(new)
    app.callback()(_keys)
    return app


def _keys() -> None:
    """Keys for the clients of this gateway."""


def new(
    name: Annotated[str, typer.Argument(help="Name of the client; the ledger shows it.")],
    admin: Annotated[bool, typer.Option("--admin", help="May read /metrics and /leaderboard.")] = False,
    adhoc: Annotated[bool, typer.Option("--adhoc", help="May name provider/model and comma lists directly.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a key and print it once; the configuration gets its SHA-256 only.

    Example: holeshot keys new my-team
    """
    if not _NAME.fullmatch(name):
        fail(f"{name!r} is not a valid client name: use letters, digits, dots, dashes and underscores", MISUSED)
    key = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    digest = hashlib.sha256(key.encode()).hexdigest()
    if as_json:
        write_json({"name": name, "key": key, "key_sha256": digest, "admin": admin, "adhoc": adhoc})
        return
    say(f"The key of {name}, shown only once:\n\n  {key}\n\nPaste into the configuration:\n")
    say(_entry(name, digest, admin=admin, adhoc=adhoc))


def _entry(name: str, digest: str, *, admin: bool, adhoc: bool) -> str:
    lines = ["clients:", f'  "{name}":', f'    key_sha256: "{digest}"']
    lines += ["    admin: true"] if admin else []
    lines += ["    adhoc: true"] if adhoc else []
    return "\n".join(lines)
