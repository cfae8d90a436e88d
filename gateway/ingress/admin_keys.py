"""/admin/keys: clients' keys for programs. It is closed to web pages, and to cookies."""

from aiohttp import web

from gateway.errors import Forbidden, UnsupportedMediaType
from gateway.ingress import managed_keys
from gateway.ingress.admission import JSON, Client
from gateway.ingress.context import CONTEXT
from gateway.ingress.managed_keys import MERGE_PATCH, uncached

_NO = frozenset({"0", "false", ""})


async def list_keys(request: web.Request) -> web.Response:
    """Return every client with its keys; with ``?all=1`` also revoked keys."""
    _admit(request, changes_something=False)
    return uncached(await managed_keys.listed(request, revoked=request.query.get("all", "0") not in _NO))


async def get_key(request: web.Request) -> web.Response:
    """Return one client."""
    _admit(request, changes_something=False)
    return uncached(await managed_keys.found(request))


async def create_key(request: web.Request) -> web.Response:
    """Make a client with a key."""
    return await managed_keys.created(request, _admit(request))


async def change_key(request: web.Request) -> web.Response:
    """Change a client's settings."""
    return await managed_keys.changed(request, _admit(request))


async def rotate_key(request: web.Request) -> web.Response:
    """Give a client a new key."""
    return await managed_keys.rotated(request, _admit(request))


async def revoke_key(request: web.Request) -> web.Response:
    """End all keys of a client; with ``?key=`` only the one with this id or hint."""
    return await managed_keys.revoked(request, _admit(request), key=request.query.get("key"))


def _admit(request: web.Request, *, changes_something: bool = True) -> Client:
    """Return the administrator.

    Raises:
        ApiError: the client may not do this, or is a web page.

    """
    if "origin" in request.headers:
        raise Forbidden("/admin is not for web pages: requests with an Origin are refused")
    if request.body_exists and request.content_type not in {JSON, MERGE_PATCH}:
        raise UnsupportedMediaType(f"send content-type: {JSON}, not {request.content_type!r}")
    admission = request.app[CONTEXT].admission
    return (
        admission.admit_admin(request, (request.content_type,))
        if changes_something
        else admission.admit_viewer(request)
    )
