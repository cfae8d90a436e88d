"""``holeshot keys new``: makes a client with a key."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.configuration import ConfigOption
from gateway.cli.keys.installation import change, check_fields, now, read_installation, who
from gateway.cli.keys.options import ExpiresOption, ModelsOption, RoleOption, SetOption, patch
from gateway.cli.terminal import MISUSED, fail, json_text, say, write_json

if TYPE_CHECKING:
    from gateway.keys.key import NewKey
    from gateway.settings.installation import Installation
    from gateway.settings.model import ClientSettings

SHOWN_ONCE = "shown only once"


def new(
    name: Annotated[str, typer.Argument(help="Name of the client; the ledger shows it.")],
    config: ConfigOption = None,
    *,
    role: RoleOption = None,
    expires: ExpiresOption = None,
    models: ModelsOption = None,
    adhoc: Annotated[bool, typer.Option("--adhoc", help="May name provider/model and comma lists directly.")] = False,
    assignments: SetOption = None,
    admin: Annotated[bool, typer.Option("--admin", help="The older word for --role admin.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a client with a key, and print the key once.

    Only its SHA-256 is stored.

    With `keys: file` it prints the entry for the configuration. With `keys: database` the key is in force at once, on
    all replicas within two seconds.

    Example: holeshot keys new my-team

    Example: holeshot keys new search --role client --models gpt-oss-120b --expires 90d --set rpm=60 --set usd_per_day=5
    """
    from gateway.errors import InvalidRequest  # noqa: PLC0415 - heavy imports belong to the verb that runs
    from gateway.keys.key import check_name, new_key  # noqa: PLC0415 - likewise

    if admin and role not in (None, "admin"):
        fail("--admin and --role contradict: give only --role", MISUSED)
    given = patch(role="admin" if admin else role, expires=expires, models=models, assignments=assignments)
    fields = {field: value for field, value in given.items() if value is not None} | ({"adhoc": True} if adhoc else {})
    installation = read_installation(config)
    try:
        check_name(name)
        settings = check_fields(installation, fields)
    except InvalidRequest as error:
        fail(error.message, MISUSED)
    key = new_key()
    if installation.is_database:
        _store(installation, name, settings, key, as_json=as_json)
    else:
        _print_entry(name, settings, key, as_json=as_json)


def _store(
    installation: "Installation", name: str, settings: "ClientSettings", key: "NewKey", *, as_json: bool
) -> None:
    from gateway.ids import new_id  # noqa: PLC0415 - as above
    from gateway.keys import changes  # noqa: PLC0415 - likewise
    from gateway.keys.shown import shown_stored  # noqa: PLC0415 - likewise

    at = now()
    decide = changes.created(name, settings, key, key_id=new_id(), who=who(), at=at)
    made = change(installation, name, decide)
    if as_json:
        write_json({**shown_stored(name, made.rows, at), "key": key.text})
        return
    say(f"The key of {name}, {SHOWN_ONCE}:\n\n  {key.text}\n\nIt is in the database, and in force within two seconds.")


def _print_entry(name: str, settings: "ClientSettings", key: "NewKey", *, as_json: bool) -> None:
    from gateway.keys.fields import as_fields  # noqa: PLC0415 - as above

    fields = as_fields(settings)
    if as_json:
        facts = {"admin": fields["role"] == "admin", "adhoc": settings.adhoc}
        write_json({"name": name, "key": key.text, "key_sha256": key.sha256, **facts, **fields})
        return
    say(f"The key of {name}, {SHOWN_ONCE}:\n\n  {key.text}\n\nPaste into the configuration:\n")
    say(_entry(name, key, fields))


def _entry(name: str, key: "NewKey", fields: dict[str, Any]) -> str:
    lines = ["clients:", f'  "{name}":', f'    key_sha256: "{key.sha256}"']
    usual = {"role": "client", "expires": None}
    lines += [
        f"    {field}: {json_text(value)}"
        for field, value in fields.items()
        if field not in usual or value != usual[field]
    ]
    return "\n".join(lines)
