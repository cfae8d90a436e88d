"""/admin/keys for programs and /api/keys for the page: clients' keys in the database, changed while the gateway runs.

A client is described by the same fields as in the file. A key is shown only in the answer that creates it.
"""

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_PATCH

from gateway.access import DIGEST, READING, Client
from gateway.admin.queries import NoQuery, is_asked, parse_query
from gateway.admin.visitors import admit_visitor
from gateway.api import CONTEXT, Context, read_body
from gateway.core.errors import ClientNotFound, Forbidden, InvalidRequest, UnsupportedMediaType
from gateway.http import JSON, NO_TEXT, TOO_DEEP
from gateway.keys import Decide, KeyChange, NewKey, changes, check_name, client_settings, new_key, shown_stored
from gateway.settings import nearest
from providers import encoded

MERGE_PATCH = "application/merge-patch+json"
CLIENTS_A_TURN = 50  # in a list; about a millisecond


class Clients(msgspec.Struct, frozen=True):
    """Every client with its keys. Each of ``data`` is a ``ShownClient`` with its settings."""

    data: list[Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/Client"})]]
    object: Literal["list"] = "list"


class Rotation(msgspec.Struct, frozen=True):
    """How a key is replaced."""

    grace_s: Annotated[
        float, msgspec.Meta(description="Seconds for which the older keys stay valid; 0 by default.")
    ] = 0


class RevokedKey(msgspec.Struct, frozen=True):
    """A key that was ended."""

    id: str
    hint: str


class Revoked(msgspec.Struct, frozen=True):
    """The keys that were ended."""

    name: str
    revoked: list[RevokedKey]


Admit = Callable[[web.Request], Client]


class KeysQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether revoked keys are listed too."""

    all: str | None = None


class RevokeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which key is revoked, by its id or hint; None: all of the client's."""

    key: str | None = None


class KeyHandlers:
    """The handlers of one path; ``admit`` returns who may do what a request asks for.

    ``is_page``: they are the page's. Clients of the file are listed also where keys are not in the database; for
    programs this is an error that says what to set. Unknown parameters are refused; those of programs are ignored, but
    where one that is misspelt would revoke all keys.
    """

    def __init__(self, admit: Admit, *, is_page: bool = False) -> None:
        self._admit = admit
        self._is_page = is_page

    async def list_keys(self, request: web.Request) -> web.Response:
        """Return every client with its keys, of the file and of the database; with ``?all=1`` also revoked keys."""
        self._admit(request)
        self._check_query(request, KeysQuery)
        context = request.app[CONTEXT]
        keys = context.admission.keys
        if self._is_page and not keys.are_stored:
            clients = keys.configured()
        else:
            clients = await keys.listed(revoked=is_asked(request, "all"))
        return uncached(Clients(await context.body_work.pieces(clients, CLIENTS_A_TURN)))

    async def get_key(self, request: web.Request) -> web.Response:
        """Return one client.

        Raises:
            ClientNotFound: there is none of this name.

        """
        self._admit(request)
        self._check_query(request, NoQuery)
        name = request.match_info["name"]
        context = request.app[CONTEXT]
        clients = await context.body_work.made(await context.admission.keys.listed(), CLIENTS_A_TURN)
        client = next((each for each in clients if each["name"] == name), None)
        if client is None:
            near = difflib.get_close_matches(name, [each["name"] for each in clients], n=1)
            hint = f"did you mean {near[0]!r}?" if near else "/admin/keys lists all"
            raise ClientNotFound(f"no client {name!r}; {hint}")
        return uncached(client)

    async def create_key(self, request: web.Request) -> web.Response:
        """Make a client, whose name and settings are the body, with a key, which is in this answer only."""
        admin = self._admit(request)
        self._check_query(request, NoQuery)
        context = _context(request)
        fields = await _object(request, admin)
        name = check_name(fields.pop("name", None))
        settings = _checked(context, fields)
        key, now = new_key(), context.admission.keys.utc_now()
        decide = changes.created(name, settings, key, key_id=context.services.new_id(), who=_who(admin), at=now)
        change = await _change(context, admin, name, decide)
        return uncached(_described(context, change, key), status=201)

    async def change_key(self, request: web.Request) -> web.Response:
        """Change a client's settings by a merge patch: null means the default."""
        admin = self._admit(request)
        self._check_query(request, NoQuery)
        context = _context(request)
        name = request.match_info["name"]
        decide = changes.changed(name, await _object(request, admin), partial(_checked, context))
        return uncached(_described(context, await _change(context, admin, name, decide)))

    async def rotate_key(self, request: web.Request) -> web.Response:
        """Give a client a new key, which is in this answer only.

        ``grace_s`` in the body: for how long the old ones stay valid; by default they do not.

        Raises:
            InvalidRequest: another field.

        """
        admin = self._admit(request)
        self._check_query(request, NoQuery)
        context = _context(request)
        fields = await _object(request, admin)
        grace_s = fields.pop("grace_s", 0)
        if isinstance(grace_s, bool) or not isinstance(grace_s, int | float):
            raise InvalidRequest("grace_s must be a number of seconds", param="grace_s")
        _demand_no_more(fields, *Rotation.__struct_fields__)
        name, key, now = request.match_info["name"], new_key(), context.admission.keys.utc_now()
        decide = changes.rotated(name, key, grace_s=grace_s, key_id=context.services.new_id(), who=_who(admin), at=now)
        return uncached(_described(context, await _change(context, admin, name, decide), key))

    async def revoke_key(self, request: web.Request) -> web.Response:
        """End all keys of a client at once, with their calls; with ``?key=`` only the one with this id or hint."""
        admin = self._admit(request)
        key = parse_query(request, RevokeQuery).key
        context = _context(request)
        name = request.match_info["name"]
        decide = changes.revoked(name, at=context.admission.keys.utc_now(), key=key)
        change = await _change(context, admin, name, decide)
        return uncached(Revoked(name, [RevokedKey(row.id, row.hint) for row in change.rows]))

    def _check_query(self, request: web.Request, kind: type[msgspec.Struct]) -> None:
        if self._is_page:
            parse_query(request, kind)


def admit_program(request: web.Request) -> Client:
    """Return the administrator, or for reading a viewer. Web pages and cookies are refused.

    Raises:
        ApiError: the client may not do this, or is a web page.

    """
    if "origin" in request.headers:
        raise Forbidden("/admin is not for web pages: requests with an Origin are refused")
    if request.body_exists and request.content_type not in {JSON, MERGE_PATCH}:
        raise UnsupportedMediaType(f"send content-type: {JSON}, not {request.content_type!r}")
    admission = request.app[CONTEXT].admission
    if request.method in READING:
        return admission.admit_viewer(request)
    return admission.admit_admin(request, (request.content_type,))


def admit_administrator(request: web.Request) -> Client:
    """Return the administrator who uses the page; others do not see keys there.

    Raises:
        ApiError: as of ``admit_visitor``.

    """
    takes = (JSON, MERGE_PATCH) if request.method == METH_PATCH else (JSON,)
    return admit_visitor(request, admin=True, takes=takes)


FOR_PROGRAMS = KeyHandlers(admit_program)
FOR_PAGE = KeyHandlers(admit_administrator, is_page=True)


def _context(request: web.Request) -> Context:
    """Return the context of a change; a request that revokes or rotates its own key still gets the answer."""
    request.pop(DIGEST, None)
    return request.app[CONTEXT]


def _who(admin: Client) -> str:
    return admin.name or "local"


async def _change(context: Context, admin: Client, name: str, decide: Decide) -> KeyChange:
    return await context.admission.keys.change(name, decide, who=_who(admin))


def _checked(context: Context, fields: Mapping[str, Any]) -> Any:
    known = context.settings
    return client_settings(fields, models=known.models, providers=known.providers, teams=known.teams)


def _described(context: Context, change: KeyChange, key: NewKey | None = None) -> dict[str, Any]:
    """Return the client after a change; ``key`` is its new one."""
    left = [row for row in change.rows if row.revoked_at is None]
    shown = shown_stored(change.name, left, context.admission.keys.utc_now())
    return shown if key is None else {**shown, "key": key.text}


async def _object(request: web.Request, admin: Client) -> dict[str, Any]:
    """Return the body, a JSON object; without a body, an empty one.

    Raises:
        InvalidRequest: it is something else.

    """
    received = await read_body(request, _context(request), admin.name)
    received.release()  # the body is decoded at once
    body = received.take()
    try:
        fields = msgspec.json.decode(body) if body.strip() else {}
    except msgspec.DecodeError:
        raise InvalidRequest("the body is not valid JSON") from None
    except UnicodeDecodeError:
        raise InvalidRequest(NO_TEXT) from None
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None
    if not isinstance(fields, dict):
        raise InvalidRequest("the body must be a JSON object")
    return fields


def _demand_no_more(fields: Mapping[str, Any], *known: str) -> None:
    if fields:
        name = min(fields)
        raise InvalidRequest(f"{name}: unknown key; {nearest(name, known)}", param=name)


def uncached(value: Any, status: int = 200) -> web.Response:
    """Return a value as JSON that must not be cached."""
    body = encoded(value)
    headers = {"cache-control": "no-store", "cross-origin-resource-policy": "same-origin"}  # one of them has a key
    return web.Response(body=body, status=status, content_type=JSON, headers=headers)
