"""The application: the routes of clients, then those of operators, with one way of answering errors.

A file of its own, as tests and documents ask for all routes without the stores and jobs of a gateway.
"""

from functools import cache

from aiohttp import web

from gateway.admin import OPERATIONS, Operations
from gateway.admin import ROUTES as OPERATORS
from gateway.api import ALIASES, CONTEXT, KNOWN_PATHS, Context, completing, errors_as_json
from gateway.api import ROUTES as CLIENTS

ROUTES = (*CLIENTS, *OPERATORS)


@cache
def _resources() -> tuple[web.AbstractResource, ...]:
    """Return the route of each path, made once: handlers find their gateway in the application of the request."""
    router = web.UrlDispatcher()
    router.add_routes((*ROUTES, *ALIASES))
    return tuple(router.resources())


def application(context: Context, operations: Operations) -> web.Application:
    """Return the aiohttp application for calls and for operators."""
    app = web.Application(middlewares=[errors_as_json])
    app[CONTEXT] = context
    app[OPERATIONS] = operations
    app[KNOWN_PATHS] = tuple(dict.fromkeys(route.path for route in ROUTES if "{" not in route.path))
    for resource in _resources():
        app.router.register_resource(resource)
    app.on_response_prepare.append(completing(context))
    return app
