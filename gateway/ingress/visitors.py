"""Who may look: the clients that the page and its API are for."""

from aiohttp import web

from gateway.ingress.admission import Client
from gateway.ingress.context import CONTEXT


def admit_visitor(request: web.Request, *, admin: bool = False) -> Client:
    """Return the client that sends the request, if it may see what operators see; with ``admin`` only an admin.

    Raises:
        ApiError: it may not, or as for ``Admission.admit``.

    """
    admission = request.app[CONTEXT].admission
    return admission.admit_admin(request) if admin else admission.admit_viewer(request)
