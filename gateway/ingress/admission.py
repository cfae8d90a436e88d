"""Who may call, and what they may do: client keys, or, without keys, rules that keep web pages out."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from aiohttp import web

from gateway.errors import ApiError, Forbidden, NoKey, NothingEnabled, UnsupportedMediaType, WrongKey
from gateway.fleet.deployment import Deployment
from gateway.fleet.model import Model
from gateway.settings.checks import is_loopback
from gateway.settings.deployment import DataPolicy
from gateway.settings.limits import LimitSettings
from gateway.settings.model import ClientSettings
from gateway.settings.profiles import Profile

WIDEST = 8
JSON = "application/json"


class Client(msgspec.Struct, frozen=True):
    """An admitted client and its permissions. Without ``clients:`` every local program is this one, without a name."""

    name: str | None = None
    admin: bool = True
    adhoc: bool = True
    max_width: int = WIDEST
    profile: Profile | None = None  # how its calls are raced, unless a request overrides it
    override: bool = True  # whether its requests may override the race settings
    models: frozenset[str] | None = None
    only: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    require: DataPolicy = DataPolicy()
    demanding: bool = False  # whether ``require`` demands anything
    limits: Mapping[str, float] = {}  # by name: rpm, tpm, …

    def check_model(self, model: str) -> None:
        """Check that this client may use a model.

        Raises:
            Forbidden: it may not.

        """
        names = [name.strip() for name in model.split(",")]  # a comma list is a request for all of its models
        if self.models is not None and not self.models.issuperset(names):
            raise Forbidden(f"this key may not use the model {model!r}; it may use: {', '.join(sorted(self.models))}")

    def deployments(self, model: Model) -> list[Deployment]:
        """Return the deployments of ``model`` that may see this client's prompts.

        Raises:
            NothingEnabled, Forbidden: there are none.

        """
        if not model.deployments:
            raise NothingEnabled(f"every deployment of {model.name!r} is disabled (enabled: false)")
        open_ = [item for item in model.deployments.values() if self._may_see(item.provider)]
        if not open_:
            raise Forbidden(f"this key may not use any provider of {model.name!r}")
        return open_

    def _may_see(self, provider: str) -> bool:
        return provider not in self.ignore and (self.only is None or provider in self.only)


LOCAL = Client()


class Connection(Protocol):
    """The client's connection. It counts as a stranger's, with tighter limits, until a request on it is admitted."""

    def admitted(self) -> None:
        """Mark the connection as one with an admitted request."""


class Admission:
    """Admits requests by their key; if no clients are configured, only from programs on this machine."""

    def __init__(self, clients: Mapping[str, ClientSettings], anonymous: LimitSettings) -> None:
        """``anonymous`` are the limits of local programs, if there are no ``clients``."""
        self._local = Client(limits=anonymous.by_name)
        self._clients = [(item.key_sha256, _client(name, item)) for name, item in clients.items()]

    def admit(self, request: web.Request, takes: Sequence[str] = (JSON,)) -> Client:
        """Return the client that sends the request. ``takes`` are the media types that the API accepts.

        Raises:
            NoKey, WrongKey: no key, or an unknown one.
            Forbidden: no clients are configured, and the request may come from a web page.
            UnsupportedMediaType: the content type is not in ``takes``. Forms and plain text need no CORS preflight:
                for an API that accepts forms, only the checks of origin and host keep web pages out.

        """
        if request.method == "POST" and request.content_type not in takes:
            raise UnsupportedMediaType(f"send content-type: {' or '.join(takes)}, not {request.content_type!r}")
        client = self._identify(request)
        connection: Connection = request.protocol  # type: ignore[assignment] # ours: gateway.connections makes them
        connection.admitted()
        return client

    def name_of(self, request: web.Request) -> str | None:
        """Return the client's configured name; None if it has none, or is not admitted."""
        try:
            return self._identify(request).name
        except ApiError:
            return None

    def admit_admin(self, request: web.Request) -> Client:
        """Return the client that sends the request, if it is an admin.

        Raises:
            NoKey, WrongKey: no key, or an unknown one.
            Forbidden: not an admin.

        """
        client = self.admit(request)
        if not client.admin:
            raise Forbidden("this needs an admin key: set 'admin: true' for a client in the configuration")
        return client

    def _identify(self, request: web.Request) -> Client:
        if not self._clients:
            self._demand_local_program(request)
            return self._local
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            key = request.headers.get("x-api-key", "")  # as Anthropic's clients send it
        if not key.strip():
            raise NoKey("send your gateway key as 'authorization: Bearer hs-…' (api_key in the SDKs)")
        return self._find(key.strip())

    def _find(self, key: str) -> Client:
        digest = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()  # the header's bytes as received
        found: Client | None = None
        for known, client in self._clients:  # compare with all, so that the time does not depend on which key matches
            if hmac.compare_digest(known, digest):
                found = client
        if found is None:
            raise WrongKey("unknown gateway key; ask the operator for one ('holeshot keys new' makes them)")
        return found

    @staticmethod
    def _demand_local_program(request: web.Request) -> None:
        if "origin" in request.headers:
            raise Forbidden("requests from web pages are refused while no 'clients:' are configured")
        if not is_loopback(_without_port(request.host).lower()):
            raise Forbidden(f"the host {request.host!r} is refused while no 'clients:' are configured: use 127.0.0.1")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.rpartition("]")[0].lstrip("[")
    return host.partition(":")[0] if host.count(":") == 1 else host


def _client(name: str, settings: ClientSettings) -> Client:
    def as_set(values: Iterable[str] | None) -> frozenset[str] | None:
        return None if values is None else frozenset(values)

    return Client(
        name=name,
        admin=settings.admin,
        adhoc=settings.adhoc,
        max_width=settings.max_width,
        profile=settings.profile,
        override=settings.override,
        models=as_set(settings.models),
        only=as_set(settings.only),
        ignore=frozenset(settings.ignore),
        require=settings.require,
        demanding=settings.require != DataPolicy(),
        limits=settings.by_name,
    )
