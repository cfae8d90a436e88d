"""The one table of the APIs of calls, the source of handlers, OpenAPI's operations and the pages of the docs."""

from gateway.api.endpoint import Endpoint
from gateway.api.endpoints import ENDPOINTS
from gateway.api.relayed_apis import RELAYED

COUNTERS: tuple[Endpoint, ...] = tuple(
    counter for endpoint in ENDPOINTS.values() if (counter := endpoint.counter) is not None
)
APIS: tuple[Endpoint, ...] = (*ENDPOINTS.values(), *RELAYED, *COUNTERS)
