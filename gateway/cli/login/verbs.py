"""``holeshot login``: sign in at a gateway's identity provider. ``holeshot token``: print a fresh token."""

import json
import sys
import time
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from math import ceil
from typing import Annotated, Any

import typer

from gateway.cli.login import flow, kept, programs
from gateway.cli.terminal import MISUSED, fail, say
from providers import how_to_install

_NEEDED = ("filelock", "keyring", "oauthlib", "tomlkit")  # modules of the extra ``login``


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="The gateway, as https://llm.example.com.")],
    write: Annotated[
        str | None,
        typer.Option(help=f"Also set up this program: {', '.join(programs.PROGRAMS)}.", metavar="PROGRAM"),
    ] = None,
    undo: Annotated[
        str | None, typer.Option(help="Take back what --write has set in this program's files.", metavar="PROGRAM")
    ] = None,
    out: Annotated[bool, typer.Option("--out", help="Forget the sign-in instead.")] = False,
    browser: Annotated[bool, typer.Option(help="Open the page to sign in at.")] = True,
) -> None:
    """Sign in at a gateway with the account of your company.

    It shows a code and the page to type it at, and waits. What renews the sign-in is kept in the system's keyring, or,
    where there is none, in a file that only you can read. `holeshot token` then prints a fresh token for programs;
    with --write Claude Code, Codex or opencode ask it by themselves.

    Example: holeshot login https://llm.example.com --write claude-code
    """
    url = url.rstrip("/").removesuffix("/v1")
    for asked in (write, undo):
        if asked is not None and asked not in programs.PROGRAMS:
            fail(f"{asked!r} is not one of {', '.join(programs.PROGRAMS)}", MISUSED)
    if not all(map(find_spec, _NEEDED)):
        fail(f"`login` needs packages that are not here: {how_to_install('login')}")
    try:
        if undo is not None:
            _undo(undo)
        elif out:
            say(f"signed out of {url}" if kept.forget(url) else f"nobody was signed in at {url}")
        else:
            _sign_in(url, browser=browser)
            if write is not None:
                _write(write, url)
    except flow.LoginError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("stopped: nobody has signed in")


def token(
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="The gateway; none: the only one.")] = None,
) -> None:
    """Print a fresh token for programs, and nothing else.

    It is for a gateway that you have signed in at.

    Example: curl -H "authorization: Bearer $(holeshot token)" https://llm.example.com/v1/models
    """
    try:
        print(kept.fresh_token(None if url is None else url.rstrip("/").removesuffix("/v1")))  # noqa: T201 - a program reads it
    except flow.LoginError as error:
        fail(str(error))


def _sign_in(url: str, *, browser: bool) -> None:
    provider = flow.provider_of(url)
    device = flow.begin(provider)
    say(f"Open {device.address} and type {device.user_code}", err=True)
    if device.whole_address is not None:
        say(f"or open {device.whole_address}", err=True)
    if browser and sys.stdin.isatty():
        with suppress(webbrowser.Error):
            webbrowser.open(device.whole_address or device.address)
    say("waiting ...", err=True)
    tokens = flow.wait(provider, device)
    with kept.locked():
        in_keyring = kept.keep(url, provider, tokens, time.time())
    say(f"signed in at {url}", err=True)
    if tokens.refresh_token is None:
        say("the provider sent nothing that renews the token: sign in again when it ends", err=True)
    elif not in_keyring:
        say(f"no keyring answers here, so {kept.folder() / 'logins.json'} has what renews it (mode 600)", err=True)


def _write(program: str, url: str) -> None:
    models = _models(url, kept.fresh_token(url))
    fresh_s = max(1, ceil(kept.read().logins[url].early_s))  # no program keeps a token beyond the token's end
    changes = programs.write(program, url, kept.program(), models, fresh_s=fresh_s)
    with kept.locked():
        all_of_it = kept.read()
        former = all_of_it.changes.get(program, [])
        # An undo restores the values before the first of several runs.
        first = {(each.path, each.place): each.before for each in reversed(former)}
        made = {each.path for each in former if each.is_new_file}
        fresh = [
            kept.WrittenSetting(
                c.path, c.place, first.get((c.path, c.place), c.before), c.after, c.is_new_file or c.path in made
            )
            for c in changes
        ]
        replaced = {(each.path, each.place) for each in fresh}
        all_of_it.changes[program] = [*(c for c in former if (c.path, c.place) not in replaced), *fresh]
        kept.write(all_of_it)
    _show(changes)
    say(f"to take it back: holeshot login {url} --undo {program}", err=True)


def _undo(program: str) -> None:
    with kept.locked():
        all_of_it = kept.read()
        undone = programs.undo(all_of_it.changes.pop(program, []))
        kept.write(all_of_it)
    _show([kept.WrittenSetting(each.path, each.place, each.after, each.before) for each in undone])


def _show(changes: list[kept.WrittenSetting]) -> None:
    for change in changes:
        if change.place:
            say(f"{change.path}: {'.'.join(change.place)}: {_shown(change.before)} -> {_shown(change.after)}", err=True)
        else:
            say(f"{change.path}: {'written' if change.after is not None else 'removed'}", err=True)
    if not changes:
        say("nothing to change", err=True)


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)[:200]


def _models(url: str, bearer: str) -> programs.Models:
    """Return the models that this person may ask for; none if the gateway does not say."""
    try:
        status, text = flow.ask(f"{url}/v1/models", bearer)
        if status == 200:  # noqa: PLR2004 - HTTP's OK
            return {each["id"]: each for each in json.loads(text)["data"]}
        say(f"signed in, but the gateway refuses the token ({status}): {text[:300]}", err=True)
    except (flow.LoginError, ValueError, LookupError, TypeError):
        say("the gateway does not list its models now", err=True)
    return {}
