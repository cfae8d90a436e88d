"""``holeshot keys``: makes, lists, changes, rotates and revokes clients' keys."""

import asyncio
import getpass
import os
import re
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gateway.cli.configuration import ConfigOption, report
from gateway.cli.terminal import FAILED, MISUSED, fail, json_text, prose, say, without_unknown, write_json, write_table
from gateway.core.terminal_text import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.keys import Decide, KeyChange, KeyStore, NewKey
    from gateway.settings import ClientSettings, LoadedNames

# The installation on which a command works: where its keys are, and the clients in its configuration. Settings that the
# command does not need are not read: an administrator's machine may have no provider's key.

T = TypeVar("T")


def read_installation(config: Path | None) -> "LoadedNames":
    """Return the installation, or print every problem and exit."""
    from gateway.settings import ConfigurationError, load_installation, locate  # noqa: PLC0415 - pydantic only where it is needed

    try:
        return load_installation(locate(config, os.environ), os.environ)
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None


def demand_database(installation: "LoadedNames", instead: str) -> None:
    """Exit unless keys are in the database; ``instead`` says what to do in the file."""
    if not installation.is_database:
        fail(
            f"keys are in the configuration file (keys: file): {instead}, or set `keys: database` and restart the"
            " gateway"
        )


def ask(installation: "LoadedNames", question: "Callable[[KeyStore], Awaitable[T]]") -> T:
    """Return the result of ``question`` on the database's keys, or print the error and exit."""
    from gateway.core.errors import ApiError, InvalidRequest  # noqa: PLC0415 - SQLAlchemy only where it is needed
    from gateway.ledger import LedgerError, SqlKeyStore, check_schema, create_engine, demand_ledger  # noqa: PLC0415 - likewise

    async def answer() -> T:
        url = installation.database_url.get_secret_value()
        demand_ledger(url)
        engine = create_engine(url)
        try:
            await check_schema(engine)
        finally:
            await engine.dispose()
        store = SqlKeyStore(url)
        try:
            return await question(store)
        finally:
            await store.aclose()

    try:
        return asyncio.run(answer())
    except InvalidRequest as error:
        fail(error.message, MISUSED)
    except ApiError as error:
        fail(error.message)
    except LedgerError as error:
        fail(str(error))


def change(installation: "LoadedNames", name: str, decide: "Decide") -> "KeyChange":
    """Make a change and return it; fail for a client of the file."""
    from gateway.keys import check_not_configured  # noqa: PLC0415 - as above

    async def carry_out(store: "KeyStore") -> "KeyChange":
        check_not_configured(name, installation.clients)
        return await store.change(name, decide, who=who(), at=now())

    return ask(installation, carry_out)


def check_fields(installation: "LoadedNames", fields: dict[str, Any]) -> Any:
    """Return the settings that ``fields`` describe; raise InvalidRequest if these are no settings."""
    from gateway.keys import client_settings  # noqa: PLC0415 - as above

    models, providers, teams = installation.models, installation.providers, installation.teams
    return client_settings(fields, models=models, providers=providers, teams=teams)


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def who() -> str:
    """Return user and host of this command, for the table of changes."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


# ``holeshot keys list``: the clients and their keys.

_COLUMNS = ("client", "source", "role", "key", "state", "until", "last used", "made", "by")
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
    from gateway.keys import shown_all  # noqa: PLC0415 - heavy imports belong to the verb that runs

    installation = read_installation(config)
    rows = ask(installation, lambda store: store.listed(revoked=everything)) if installation.is_database else []
    clients = shown_all(installation.clients, rows, now())
    if as_json:
        write_json({"keys": "database" if installation.is_database else "file", "clients": clients})
        return
    if not clients:
        say("no client has a key yet; make one: holeshot keys new NAME", err=True)
        return
    write_table(*without_unknown(_COLUMNS, [line for client in clients for line in _lines(client)], always=5))
    for client in clients:
        if settings := {field: value for field, value in client.items() if field not in _OWN}:
            prose(f"{client['name']}: {', '.join(f'{field} {_in_words(value)}' for field, value in settings.items())}")


def _in_words(value: Any) -> str:
    """Return a setting's value as text: a list of names with blanks, anything else as JSON."""
    is_names = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return " ".join(value) if is_names else value if isinstance(value, str) else json_text(value)


def _lines(client: dict[str, Any]) -> list[list[object]]:
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
        ]
        for key in client["keys"] or ({"state": "tokens"},)  # a client that signs in with tokens only
    ]


# The options that describe a client, and how their texts become settings.

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?")  # an instant without its time zone
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")

RoleOption = Annotated[
    str | None,
    typer.Option(
        metavar="client|viewer|operator|admin",
        help="client: makes calls. viewer: reads /metrics, /leaderboard and the list of keys."
        " operator: both. admin: all of that, and changes keys.",
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Refuse its keys from then on: 2030-01-31, 2030-01-31T18:00:00Z, 30d, or never."),
]
ModelsOption = Annotated[
    str | None, typer.Option(metavar="A,B", help="Only these models; `all` removes the restriction.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any setting that a client has in the file, as YAML: rpm=60, usd_per_day=5, only=[groq], require.zdr=true."
        " An empty value sets the default. Can be repeated.",
    ),
]


def patch(
    *,
    role: str | None = None,
    expires: str | None = None,
    models: str | None = None,
    assignments: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the options as a merge patch; exit if an option cannot be understood, or ``expires`` is in the past."""
    fields: dict[str, Any] = {}
    for assignment in assignments or ():
        _assign(fields, assignment)
    if role is not None:
        fields["role"] = role
    if expires is not None:
        fields["expires"] = None if expires == "never" else _instant(expires)
    if models is not None:
        fields["models"] = None if models == "all" else [name for name in models.split(",") if name]
    _check_end(fields.get("expires"), now())
    return fields


def seconds(duration: str, option: str) -> float:
    """Return a duration like 90, 30m, 12h or 7d in seconds; exit if ``duration`` has another form."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        fail(f"{option}: {duration!r} is no duration: write it like 90s, 30m, 12h, 7d or 2w", MISUSED)
    return float(found[1]) * _UNITS[found[2] or "s"]


def _instant(text: str) -> str:
    found = _DURATION.fullmatch(text)
    if found is None or not found[2]:
        if _LOCAL.fullmatch(text):
            fail(f"--expires: {text!r} has no time zone: write {text}Z for UTC, or an offset like +02:00", MISUSED)
        return text  # a date or an instant; the settings check it
    try:
        return (datetime.now(UTC) + timedelta(seconds=seconds(text, "--expires"))).isoformat(timespec="seconds")
    except OverflowError:
        fail(f"--expires: {text!r} is too far away: write `never`", MISUSED)


def _check_end(end: object, at: datetime) -> None:
    """Exit if ``end`` is not after ``at``. An ``end`` that is no instant is left to the settings' own check."""
    from gateway.settings import as_instant  # noqa: PLC0415 - pydantic only where it is needed

    try:
        instant = as_instant(end)
    except ValueError:
        return
    if isinstance(instant, datetime) and instant <= at:
        words = "such a key would be refused at once. `holeshot keys revoke NAME` ends keys"
        fail(f"expires: {end} is in the past, now is {at:%Y-%m-%dT%H:%M:%SZ}: {words}", MISUSED)


def _assign(fields: dict[str, Any], assignment: str) -> None:
    """Put ``a.b=value`` into ``fields``."""
    import yaml  # noqa: PLC0415 - heavy imports belong to the verb that runs

    from gateway.settings import odd_numbers, read_value, written  # noqa: PLC0415 - likewise

    path, equals, text = assignment.partition("=")
    if not equals or not path:
        fail(f"--set {assignment}: write it like --set rpm=60", MISUSED)
    try:
        yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        fail(f"--set {path}: the value is not YAML; quote it", MISUSED)
    except ValueError:  # the value has the form of a date
        fail(f"--set {path}: there is no day {text}", MISUSED)
    for number, base in odd_numbers(text):
        fail(f"--set {path}: {number} is a number in base {base} to YAML: write it in decimal, or in quotes", MISUSED)
    *sections, field = path.split(".")
    place = ("clients", "NAME", *sections, field)
    value, unclear = read_value(text, place)
    for message in unclear:
        fail(f"--set {path}: {message.removeprefix(written(place)).lstrip()}", MISUSED)
    inner = fields
    for section in sections:
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict):
            fail(f"--set {path}: {section} is set to a value already", MISUSED)
    inner[field] = value


# ``holeshot keys limits``: shows or changes the rights and limits of a client.


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
    from gateway.keys import changes, shown_all, shown_stored  # noqa: PLC0415 - heavy imports belong to the verb that runs

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


# ``holeshot keys new``: makes a client with a key.

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
    from gateway.core.errors import InvalidRequest  # noqa: PLC0415 - heavy imports belong to the verb that runs
    from gateway.keys import check_name, new_key  # noqa: PLC0415 - likewise

    if admin and role not in (None, "admin"):
        fail("--admin and --role contradict: give only --role", MISUSED)
    given = patch(role="admin" if admin else role, expires=expires, models=models, assignments=assignments)
    fields = given | ({"adhoc": True} if adhoc else {})
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


def _store(installation: "LoadedNames", name: str, settings: "ClientSettings", key: "NewKey", *, as_json: bool) -> None:
    from gateway.core.ids import new_id  # noqa: PLC0415 - as above
    from gateway.keys import changes, shown_stored  # noqa: PLC0415 - likewise

    at = now()
    decide = changes.created(name, settings, key, key_id=new_id(), who=who(), at=at)
    made = change(installation, name, decide)
    if as_json:
        write_json({**shown_stored(name, made.rows, at), "key": key.text})
        return
    say(f"The key of {name}, {SHOWN_ONCE}:\n\n  {key.text}\n\nIt is in the database, and in force within two seconds.")


def _print_entry(name: str, settings: "ClientSettings", key: "NewKey", *, as_json: bool) -> None:
    from gateway.keys import as_fields  # noqa: PLC0415 - as above

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


# ``holeshot keys revoke``: ends a client's keys.


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

    Calls that run with them are cancelled. All replicas follow within two seconds. The rows stay, for the record; the
    name may be used again.

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


# ``holeshot keys rotate``: gives a client a new key.


def rotate(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    config: ConfigOption = None,
    *,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old keys stay valid: 90s, 30m, 12h, 7d.")
    ] = "0",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Give a client of the database a new key, and print it once. Its settings stay.

    Without --grace the old keys end at once, and calls that run with them are cancelled. In the file, list the new key
    beside the old one under key_sha256, and remove the old one later.

    Example: holeshot keys rotate my-team --grace 24h
    """
    from gateway.core.errors import InvalidRequest  # noqa: PLC0415 - heavy imports belong to the verb that runs
    from gateway.core.ids import new_id  # noqa: PLC0415 - likewise
    from gateway.keys import changes, new_key, shown_stored  # noqa: PLC0415 - likewise

    grace_s = seconds(grace, "--grace")
    installation = read_installation(config)
    demand_database(installation, f"add the SHA-256 of a new key to key_sha256 of {name!r} there")
    key, at = new_key(), now()
    try:
        decide = changes.rotated(name, key, grace_s=grace_s, key_id=new_id(), who=who(), at=at)
    except InvalidRequest as error:
        fail(error.message, MISUSED)
    made = change(installation, name, decide)
    if as_json:
        left = [row for row in made.rows if row.revoked_at is None]
        write_json({**shown_stored(name, left, at), "key": key.text})
        return
    old = f"The old keys are valid for {grace} more." if grace_s else "The old keys have ended."
    say(f"The new key of {name}, {SHOWN_ONCE}:\n\n  {key.text}\n\n{old} All replicas follow within two seconds.")


# ``holeshot keys`` with its verbs.


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
