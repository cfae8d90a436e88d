"""/admin/keys: lists, makes, changes, rotates and revokes clients' keys in the database, while the gateway runs.

A client is described by the same fields as in the file. A key is in the answer that makes it, and never again.
"""

import difflib
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from gateway.errors import Forbidden, InvalidRequest, UnsupportedMediaType
from gateway.ingress.admission import DIGEST, JSON, Client
from gateway.ingress.bodies.reading import read_body
from gateway.ingress.context import CONTEXT, Context
from gateway.key_errors import ClientNotFound
from gateway.keys import changes
from gateway.keys.fields import client_settings
from gateway.keys.key import NewKey, check_name, new_key
from gateway.keys.shown import shown_stored
from gateway.keys.store import Change, Decide
from gateway.settings.explain import nearest

_TAKES = frozenset({JSON, "application/merge-patch+json"})
_NO = frozenset({"0", "false", ""})


async def list_keys(request: web.Request) -> web.Response:
    """Return every client with its keys, of the file and of the database; with ``?all=1`` also revoked keys."""
    context, _ = _admitted(request, changes_something=False)
    revoked = request.query.get("all", "0") not in _NO
    return _json({"object": "list", "data": await context.admission.keys.listed(revoked=revoked)})


async def get_key(request: web.Request) -> web.Response:
    """Return one client.

    Raises:
        ClientNotFound: there is none of this name.

    """
    context, _ = _admitted(request, changes_something=False)
    name = request.match_info["name"]
    listed = await context.admission.keys.listed()
    found = next((each for each in listed if each["name"] == name), None)
    if found is None:
        near = difflib.get_close_matches(name, [each["name"] for each in listed], n=1)
        raise ClientNotFound(f"no client {name!r}; {f'did you mean {near[0]!r}?' if near else '/admin/keys lists all'}")
    return _json(found)


async def create_key(request: web.Request) -> web.Response:
    """Make a client, whose name and settings are the body, with a key."""
    context, admin = _admitted(request)
    fields = await _object(request)
    name = check_name(fields.pop("name", None))
    settings = _checked(context, fields)
    key, now = new_key(), context.admission.keys.utc_now()
    decide = changes.created(name, settings, key, key_id=context.services.new_id(), who=_who(admin), at=now)
    change = await _change(context, admin, name, decide)
    return _json(_described(context, change, key), status=201)


async def change_key(request: web.Request) -> web.Response:
    """Change a client's settings by a merge patch: null means the default."""
    context, admin = _admitted(request)
    name = request.match_info["name"]
    decide = changes.changed(name, await _object(request), partial(_checked, context))
    return _json(_described(context, await _change(context, admin, name, decide)))


async def rotate_key(request: web.Request) -> web.Response:
    """Give a client a new key. ``grace_s`` in the body: for how long the old ones stay valid; by default they do not.

    Raises:
        InvalidRequest: another field.

    """
    context, admin = _admitted(request)
    fields = await _object(request)
    grace_s = fields.pop("grace_s", 0)
    if isinstance(grace_s, bool) or not isinstance(grace_s, int | float):
        raise InvalidRequest("grace_s must be a number of seconds", param="grace_s")
    _demand_no_more(fields, "grace_s")
    name, key, now = request.match_info["name"], new_key(), context.admission.keys.utc_now()
    decide = changes.rotated(name, key, grace_s=grace_s, key_id=context.services.new_id(), who=_who(admin), at=now)
    return _json(_described(context, await _change(context, admin, name, decide), key))


async def revoke_key(request: web.Request) -> web.Response:
    """End all keys of a client at once, and what runs with them; with ``?key=`` only the one with this id or hint."""
    context, admin = _admitted(request)
    name = request.match_info["name"]
    decide = changes.revoked(name, at=context.admission.keys.utc_now(), key=request.query.get("key"))
    change = await _change(context, admin, name, decide)
    return _json({"name": name, "revoked": [{"id": row.id, "hint": row.hint} for row in change.rows]})


def _admitted(request: web.Request, *, changes_something: bool = True) -> tuple[Context, Client]:
    """Return the context and the administrator.

    Raises:
        ApiError: the client may not do this, or is a web page.

    """
    context = request.app[CONTEXT]
    if "origin" in request.headers:
        raise Forbidden("/admin is not for web pages: requests with an Origin are refused")
    if request.body_exists and request.content_type not in _TAKES:
        raise UnsupportedMediaType(f"send content-type: {JSON}, not {request.content_type!r}")
    admission, any_type = context.admission, (request.content_type,)
    client = admission.admit_admin(request, any_type) if changes_something else admission.admit_viewer(request)
    request.pop(DIGEST, None)  # who revokes or rotates the key of this very request shall get the answer
    return context, client


def _who(admin: Client) -> str:
    return admin.name or "local"


async def _change(context: Context, admin: Client, name: str, decide: Decide) -> Change:
    return await context.admission.keys.change(name, decide, who=_who(admin))


def _checked(context: Context, fields: Mapping[str, Any]) -> Any:
    return client_settings(fields, models=context.settings.models, providers=context.settings.providers)


def _described(context: Context, change: Change, key: NewKey | None = None) -> dict[str, Any]:
    """Return the client after a change; ``key`` is its new one."""
    left = [row for row in change.rows if row.revoked_at is None]
    shown = shown_stored(change.name, left, context.admission.keys.utc_now())
    return shown if key is None else {**shown, "key": key.text}


async def _object(request: web.Request) -> dict[str, Any]:
    """Return the body, a JSON object; without a body, an empty one.

    Raises:
        InvalidRequest: it is something else.

    """
    body = await read_body(request)
    try:
        fields = msgspec.json.decode(body) if body.strip() else {}
    except msgspec.DecodeError:
        raise InvalidRequest("the body is not valid JSON") from None
    if not isinstance(fields, dict):
        raise InvalidRequest("the body must be a JSON object")
    return fields


def _demand_no_more(fields: Mapping[str, Any], *known: str) -> None:
    if fields:
        name = min(fields)
        raise InvalidRequest(f"{name}: unknown key; {nearest(name, known)}", param=name)


def _json(value: Any, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    headers = {"cache-control": "no-store"}  # one of them has a key
    return web.Response(body=body, status=status, content_type=JSON, headers=headers)
