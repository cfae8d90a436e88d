"""``holeshot keys list``: the clients and their keys."""

from typing import Annotated, Any

import typer

from gateway.cli.configuration import ConfigOption
from gateway.cli.keys.installation import ask, now, read_installation
from gateway.cli.terminal import json_text, say, write_json, write_table

_COLUMNS = ("client", "source", "role", "key", "state", "until", "last used", "made", "by", "settings")
_OWN = frozenset({"name", "source", "role", "expires", "keys", "shadowed"})


def list_(
    config: ConfigOption = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also keys that were revoked.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the clients of the file and of the database.

    A key is shown by its last four characters. Last uses are written once a minute. Of two clients with the same name
    the one in the file counts, and the other is `shadowed`.

    Example: holeshot keys list
    """
    from gateway.keys.shown import shown_all  # noqa: PLC0415 - heavy imports belong to the verb that runs

    installation = read_installation(config)
    rows = ask(installation, lambda store: store.listed(revoked=everything)) if installation.is_database else []
    clients = shown_all(installation.clients, rows, now())
    if as_json:
        write_json({"keys": "database" if installation.is_database else "file", "clients": clients})
        return
    if not clients:
        say("no client has a key yet; make one: holeshot keys new NAME", err=True)
        return
    write_table(_COLUMNS, [line for client in clients for line in _lines(client)])


def _lines(client: dict[str, Any]) -> list[list[object]]:
    settings = {field: value for field, value in client.items() if field not in _OWN}
    source = f"{client['source']}, shadowed" if client.get("shadowed") else client["source"]
    return [
        [
            client["name"],
            source,
            client["role"],
            f"…{key['hint']}" if "hint" in key else None,
            key["state"],
            min((end for end in (client["expires"], key.get("retires_at")) if end), default=None),
            key.get("last_used_at"),
            key.get("created_at"),
            key.get("created_by"),
            json_text(settings) if settings else "",
        ]
        for key in client["keys"]
    ]
