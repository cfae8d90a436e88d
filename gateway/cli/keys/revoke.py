"""``holeshot keys revoke``: ends a client's keys."""

from typing import Annotated

import typer

from gateway.cli.configuration import ConfigOption
from gateway.cli.keys.installation import change, demand_database, now, read_installation
from gateway.cli.terminal import say, write_json
from gateway.terminal_text import counted


def revoke(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    config: ConfigOption = None,
    *,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only this one: its id, or its last four characters.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """End the keys of a client of the database at once.

    Calls that run with them are cut. All replicas follow within two seconds. The rows stay, for the record; the name
    may be used again.

    Example: holeshot keys revoke my-team
    """
    from gateway.keys import changes  # noqa: PLC0415 - heavy imports belong to the verb that runs

    installation = read_installation(config)
    demand_database(
        installation, f"remove {name!r} from `clients:` there; a running gateway sees it within two seconds"
    )
    made = change(installation, name, changes.revoked(name, at=now(), key=key))
    if as_json:
        write_json({"name": name, "revoked": [{"id": row.id, "hint": row.hint} for row in made.rows]})
        return
    hints = ", ".join(f"…{row.hint}" for row in made.rows)
    say(f"{counted(len(made.rows), 'key')} of {name} revoked: {hints}. All replicas follow within two seconds.")
