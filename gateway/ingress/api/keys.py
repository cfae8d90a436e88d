"""/api/keys: clients' keys for the page. Only administrators see and change them."""

import msgspec
from aiohttp import web

from gateway.ingress import managed_keys
from gateway.ingress.admission import JSON
from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import NoQuery, asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.managed_keys import MERGE_PATCH
from gateway.ingress.visitors import admit_visitor


class KeysQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether revoked keys are listed too."""

    all: bool = False


class RevokeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which key is revoked, by its id or hint; None: all of the client's."""

    key: str | None = None


async def list_keys(request: web.Request) -> web.Response:
    """Return every client with its keys. Those of the file are there also where keys cannot be changed."""
    admit_visitor(request, admin=True)
    query = asked(request, KeysQuery)
    keys = request.app[CONTEXT].admission.keys
    if not keys.are_stored:
        return answer(request, {"object": "list", "data": keys.configured()})
    return answer(request, await managed_keys.listed(request, revoked=query.all))


async def get_key(request: web.Request) -> web.Response:
    """Return one client."""
    admit_visitor(request, admin=True)
    asked(request, NoQuery)
    return answer(request, await managed_keys.found(request))


async def create_key(request: web.Request) -> web.Response:
    """Make a client with a key, which is in this answer only."""
    admin = admit_visitor(request, admin=True)
    asked(request, NoQuery)
    return await managed_keys.created(request, admin)


async def change_key(request: web.Request) -> web.Response:
    """Change a client's settings by a merge patch."""
    admin = admit_visitor(request, admin=True, takes=(JSON, MERGE_PATCH))
    asked(request, NoQuery)
    return await managed_keys.changed(request, admin)


async def rotate_key(request: web.Request) -> web.Response:
    """Give a client a new key, which is in this answer only."""
    admin = admit_visitor(request, admin=True)
    asked(request, NoQuery)
    return await managed_keys.rotated(request, admin)


async def revoke_key(request: web.Request) -> web.Response:
    """End the keys of a client, or one of them."""
    admin = admit_visitor(request, admin=True)
    return await managed_keys.revoked(request, admin, key=asked(request, RevokeQuery).key)
