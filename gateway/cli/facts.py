"""``holeshot facts``: shows what refusals have taught a running gateway, and has it forget some of that."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli.configuration import ConfigOption, KeyOption, UrlOption, gateway_url
from gateway.cli.terminal import MISUSED, fail, say, write_json, write_table
from gateway.core.terminal_text import counted

_NOT_FOUND = 404
_COLUMNS = ("id", "deployment", "refuses", "holds for", "why", "met at", "until")

ProviderOption = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this provider.")]
ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only of this model, by its provider's name: m of groq/m.")
]
ClientOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only what this client has met, alone or with others.")
]
Fact = dict[str, Any]


def facts() -> typer.Typer:
    """Return the command with its verb."""
    app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
    app.command()(forget)
    app.callback()(_facts)
    return app


def _facts(  # noqa: PLR0917 - options are named on the command line
    context: typer.Context,
    provider: ProviderOption = None,
    model: ModelOption = None,
    client: ClientOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
) -> None:
    """Show what refusals have taught the running gateway.

    Each fact is about a deployment: what it does not take, when and why that was learnt, from which client, and for
    which clients it holds.

    `holeshot facts forget` makes the gateway forget some. The page 'Providers' of the documentation
    says what is learnt.

    Without Redis each process of a gateway learns by itself, and shows only its own facts.

    Example: holeshot facts --provider groq
    """
    if context.invoked_subcommand is not None:
        _check_no_options(context)
        return
    from gateway.cli.remote import GatewayError, told  # noqa: PLC0415 - only where it is needed

    try:
        listed = told(_address(url, config), key, "data")["data"]
    except GatewayError as error:
        fail(str(error))
    found = _chosen(listed, provider, model, client)
    if as_json:
        write_json(found)
    elif found:
        _write(found)
    else:
        say("no refusal has taught anything" + (" of these" if listed else ""))


def forget(  # noqa: PLR0917 - options are named on the command line
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `holeshot facts` shows them.")] = None,
    provider: ProviderOption = None,
    model: ModelOption = None,
    client: ClientOption = None,
    url: UrlOption = None,
    key: Annotated[
        str | None,
        typer.Option(envvar="HOLESHOT_KEY", show_envvar=True, help="The key of an admin, if keys are required."),
    ] = None,
    config: ConfigOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was forgotten, as a JSON list.")] = False,
) -> None:
    """Make the gateway forget facts, for all clients: by their IDs, or all that the options describe together.

    New calls are sent as if no refusal had taught them; a refusal that comes again teaches again. All replicas follow
    over Redis. Without Redis only the process that answers forgets.

    Example: holeshot facts forget --provider groq --model llama-3.3-70b-versatile
    """
    described = (provider, model, client) != (None, None, None)
    if bool(ids) == described:
        words = "either IDs or options" if described else "IDs, as `holeshot facts` shows them, or options"
        fail(f"say what to forget: give {words} (--provider, --model, --client)", MISUSED)
    from gateway.cli.remote import KEYS_OF_ADMINS, GatewayError, told  # noqa: PLC0415 - only where it is needed

    address = _address(url, config)
    try:
        listed = told(address, key, "data", advice=KEYS_OF_ADMINS)["data"]
    except GatewayError as error:
        fail(str(error))
    wanted = _chosen(listed, provider, model, client) if described else _named(listed, ids or ())
    if not wanted:
        fail("no fact is like that: `holeshot facts` shows all")
    forgotten, problem = _forgotten(wanted, address, key)
    if as_json:
        write_json(forgotten)
    elif forgotten:
        _write(forgotten)
        say(f"{counted(len(forgotten), 'fact')} forgotten")
    if problem is not None:
        fail(problem)


def _forgotten(wanted: Sequence[Fact], address: str, key: str | None) -> tuple[list[Fact], str | None]:
    """Forget facts one by one; return the forgotten facts, and why others were not forgotten (None: all were)."""
    from gateway.cli.remote import GatewayError, delete  # noqa: PLC0415 - as above

    forgotten: list[Fact] = []
    gone = 0
    for fact in wanted:
        try:
            delete(f"{address}/{quote(fact['id'], safe='')}", key)
        except GatewayError as error:
            if error.status != _NOT_FOUND:
                return forgotten, str(error)
            gone += 1
        else:
            forgotten.append(fact)
    if not gone:
        return forgotten, None
    why = "its time has passed, or, without Redis, another process of the gateway has met it: run this again"
    return forgotten, f"{counted(gone, 'fact')} not known where it was to be forgotten: {why}"


def _check_no_options(context: typer.Context) -> None:
    """Exit if an option stands before the verb: the verb would not see the option."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--json" if name == "as_json" else f"--{name}"
            fail(f"write {option} after the verb: holeshot facts {context.invoked_subcommand} {option} …", MISUSED)


def _address(url: str | None, config: Path | None) -> str:
    return f"{gateway_url(url, config)}/admin/facts"


def _named(listed: Sequence[Fact], ids: Iterable[str]) -> list[Fact]:
    """Return the facts of these IDs; if one is unknown, exit before any fact is forgotten."""
    by_id = {fact["id"]: fact for fact in listed}
    wanted = list(dict.fromkeys(ids))
    for each in wanted:
        if each not in by_id:
            known = "`holeshot facts` shows those there are" if by_id else "none is known"
            fail(f"there is no fact {each!r}: {known} (without Redis, those of the process that answers)")
    return [by_id[each] for each in wanted]


def _chosen(listed: Sequence[Fact], provider: str | None, model: str | None, client: str | None) -> list[Fact]:
    return [
        fact
        for fact in listed
        for of, _, name in (fact["deployment"].partition("/"),)
        if provider in {None, of} and model in {None, name} and (client is None or client in fact["clients"])
    ]


def _write(found: Sequence[Fact]) -> None:
    write_table(_COLUMNS, [_cells(fact) for fact in found])


def _cells(fact: Fact) -> list[object]:
    clients = ", ".join(fact["clients"])
    holds_for = (f"all (met by {clients})" if clients else "all") if fact["for_all"] else f"{clients or 'nobody'} alone"
    return [
        fact["id"],
        fact["deployment"],
        fact["refuses"],
        holds_for,
        fact["why"] or None,
        *(_time(fact[name]) for name in ("met_at", "until")),
    ]


def _time(told: str | None) -> str | None:
    """Return an instant of the gateway, which is in UTC, to the second."""
    return None if told is None else told[:19].replace("T", " ")
