"""``holeshot keys limits``: what a client may do, shown or changed."""

from functools import partial
from typing import Annotated

import typer

from gateway.cli.configuration import ConfigOption
from gateway.cli.keys.installation import ask, change, check_fields, demand_database, now, read_installation
from gateway.cli.keys.options import ExpiresOption, ModelsOption, RoleOption, SetOption, patch
from gateway.cli.terminal import fail, json_text, say, write_json


def limits(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    config: ConfigOption = None,
    *,
    role: RoleOption = None,
    expires: ExpiresOption = None,
    models: ModelsOption = None,
    assignments: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Change or show what a client of the database may do.

    Without options it is shown. Changes count for new calls, on all replicas within two seconds. Running calls go on,
    unless the client expires.

    Example: holeshot keys limits my-team

    Example: holeshot keys limits my-team --set rpm=600 --set usd_per_day=20 --expires 2030-01-31
    """
    from gateway.keys import changes  # noqa: PLC0415 - heavy imports belong to the verb that runs
    from gateway.keys.shown import shown_all, shown_stored  # noqa: PLC0415 - likewise

    installation = read_installation(config)
    fields = patch(role=role, expires=expires, models=models, assignments=assignments)
    if fields:
        demand_database(installation, f"change the entry of {name!r} there")
        made = change(installation, name, changes.changed(name, fields, partial(check_fields, installation)))
        found = shown_stored(name, made.rows, now())
    else:
        rows = ask(installation, lambda store: store.listed()) if installation.is_database else []
        listed = shown_all(installation.clients, rows, now())
        found = next((each for each in listed if each["name"] == name), {})
        if not found:
            fail(f"there is no client {name!r}; `holeshot keys list` lists all")
    if as_json:
        write_json(found)
        return
    for field, value in found.items():
        if field != "keys" and value is not None:
            say(f"{field}: {value if isinstance(value, str) else json_text(value)}")
