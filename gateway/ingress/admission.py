"""Who may call, and what they may do: client keys, or, without keys, rules that keep web pages out."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from aiohttp import web

from gateway.errors import ApiError, Forbidden, NoKey, NothingEnabled, UnsupportedMediaType, WrongKey
from gateway.fleet.deployment import Deployment
from gateway.fleet.model import Model
from gateway.ingress.sessions import Sessions
from gateway.key_errors import KeyExpired, KeysNotLoaded, KeyUnusable
from gateway.keys.keys import RETRY_S, Keys
from gateway.keys.table import Known
from gateway.settings.checks import is_loopback
from gateway.settings.deployment import DataPolicy
from gateway.settings.limits import LimitSettings
from gateway.settings.model import ClientSettings
from gateway.settings.profiles import Profile
from gateway.settings.role import Role

WIDEST = 8
JSON = "application/json"
# Of the digest of the key that sends a request: when the key ends, its requests are found by it.
DIGEST: web.RequestKey[bytes] = web.RequestKey("holeshot.digest", bytes)
READING = frozenset({"GET", "HEAD"})


class Client(msgspec.Struct, frozen=True):
    """An admitted client and its permissions. Without keys every local program is this one, without a name."""

    name: str | None = None
    role: Role = Role.ADMIN
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
    priority: int = 0  # under overload, higher is served first

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
# Who sends a request without a key of its own: somebody who has signed in.
VISITOR: web.RequestKey[Client] = web.RequestKey("holeshot.visitor", Client)


class Connection(Protocol):
    """The client's connection. It counts as a stranger's, with tighter limits, until a request on it is admitted."""

    def admitted(self) -> None:
        """Mark the connection as one with an admitted request."""


class Head(Protocol):
    """What a request says of its sender."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, in any case."""

    @property
    def host(self) -> str:
        """The host that was asked for."""


class Admission:
    """Admits requests by their key; if keys are not required, only from programs on this machine."""

    def __init__(self, keys: Keys[Client], anonymous: LimitSettings) -> None:
        """``anonymous`` are the limits of local programs, if no keys are required."""
        self.keys = keys
        self._table = keys.table
        self.sessions = Sessions(keys.table, keys.unix_clock)
        self.local = Client(limits=anonymous.by_name)  # every program on this machine, if no keys are required

    def reloaded(self, clients: Mapping[str, ClientSettings], anonymous: LimitSettings) -> "Admission":
        """Put other clients of the file in force, and return the admission with these limits of local programs."""
        self._table.use_file(clients)
        return Admission(self.keys, anonymous)

    def admit(self, request: web.Request, takes: Sequence[str] = (JSON,)) -> Client:
        """Return the client that sends the request. ``takes`` are the media types that the API accepts.

        Raises:
            NoKey, WrongKey, KeyExpired: no key, or one that is unknown or has expired.
            Forbidden: no keys are required, and the request may come from a web page; or a viewer does more than read.
            KeysNotLoaded, KeyUnusable: the key cannot be judged now.
            UnsupportedMediaType: the content type is not in ``takes``. Forms and plain text need no CORS preflight:
                for an API that accepts forms, only the checks of origin and host keep web pages out.

        """
        if request.method == "POST" and request.content_type not in takes:
            raise UnsupportedMediaType(f"send content-type: {' or '.join(takes)}, not {request.content_type!r}")
        return self.let_in(request, *self._identify(request))

    def let_in(self, request: web.Request, client: Client, digest: bytes | None) -> Client:
        """Admit a request as that of ``client``, until the key with this digest ends.

        Raises:
            Forbidden: a viewer does more than read.

        """
        if digest is not None:
            request[DIGEST] = digest
        if client.role is Role.VIEWER and request.method not in READING:
            raise Forbidden("this key may only read, as its role is viewer: calls and changes need another one")
        connection: Connection = request.protocol  # type: ignore[assignment] # ours: gateway.connections makes them
        connection.admitted()
        return client

    def name_of(self, request: web.Request) -> str | None:
        """Return the client's configured name, also if its key has expired; None if it has none, or is not known."""
        visitor: Client | None = request.get(VISITOR)
        if visitor is not None:
            return visitor.name
        try:
            return self._identify(request)[0].name
        except KeyExpired as error:
            return error.client
        except ApiError:
            return None

    def recognised(self, request: Head) -> Client | None:
        """Return the client that sends the request; None if it is not admitted."""
        try:
            return self._identify(request)[0]
        except ApiError:
            return None

    def admit_viewer(self, request: web.Request) -> Client:
        """Return the client that sends the request, if it may see what operators see: an admin or a viewer.

        Raises:
            ApiError: it may not, or as for ``admit``.

        """
        client = self.admit(request)
        if client.role is Role.CLIENT:
            raise Forbidden("this needs the key of an admin or a viewer: set 'role: viewer' for a client")
        return client

    def admit_admin(self, request: web.Request, takes: Sequence[str] = (JSON,)) -> Client:
        """Return the client that sends the request, if it is an admin.

        Raises:
            ApiError: it is not, or as for ``admit``.

        """
        client = self.admit(request, takes)
        if client.role is not Role.ADMIN:
            raise Forbidden("this needs the key of an admin: set 'role: admin' for a client")
        return client

    def _identify(self, request: Head) -> tuple[Client, bytes | None]:
        """Return the client and the digest of its key; None where no keys are required."""
        if not self._table.is_required:
            self._demand_local_program(request)
            return self.local, None
        key = sent_key(request)
        if not key:
            raise NoKey("send your gateway key as 'authorization: Bearer hs-…' (api_key in the SDKs)")
        digest = digest_of(key)
        return self.holder(digest), digest

    def holder(self, digest: bytes) -> Client:
        """Return the client whose key has this digest.

        Raises:
            WrongKey, KeyExpired, KeysNotLoaded, KeyUnusable: as for ``admit``.

        """
        known = self._known(digest)
        if known.client is None:
            raise KeyUnusable(
                "this version of the gateway cannot use the settings of this key; retry, or ask the operator",
                headers={"retry-after": str(RETRY_S)},
            )
        if known.id is not None:
            self.keys.used(known.id)
        return known.client

    def _known(self, digest: bytes) -> Known[Client]:
        """Return the key with this digest, if it is good now.

        A dict compares digests, and how far they agree shows in its time. That does not help to guess a key: nobody
        can make one whose digest begins like a given one, other than by trying, and each try is another key.
        """
        known = self._table.known.get(digest)
        if known is None and not self._table.is_loaded:
            raise KeysNotLoaded(
                "the keys could not be read from the database yet; retry soon", headers={"retry-after": str(RETRY_S)}
            )
        if known is None:
            raise WrongKey("unknown or revoked gateway key; ask the operator for one ('holeshot keys new')")
        if known.ends_at is not None and self.keys.unix_clock() >= known.ends_at:
            ended = datetime.fromtimestamp(known.ends_at, UTC)
            raise KeyExpired(
                f"this gateway key expired at {ended:%Y-%m-%d %H:%M} UTC; ask the operator for another one",
                client=None if known.client is None else known.client.name,
            )
        return known

    @staticmethod
    def _demand_local_program(request: Head) -> None:
        # A page's GET without CORS has no origin; what browsers say of the page cannot be changed by it.
        site = request.headers.get("sec-fetch-site", "none")
        if "origin" in request.headers or site not in {"none", "same-origin"}:
            raise Forbidden("requests from web pages are refused while no 'clients:' are configured")
        demand_local_host(request)


def demand_local_host(request: Head) -> None:
    """Check that the request names this machine: a foreign name that leads here may be a trick of a web page.

    Raises:
        Forbidden: it names another host.

    """
    if not is_loopback(_without_port(request.host).lower()):
        raise Forbidden(f"the host {request.host!r} is refused while no 'clients:' are configured: use 127.0.0.1")


def sent_key(request: Head) -> str:
    """Return the key that a request sends, "" if there is none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        key = request.headers.get("x-api-key", "")  # as Anthropic's clients send it
    return key.strip()


def digest_of(key: str) -> bytes:
    """Return the digest by which a key is known: of the header's bytes as received."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.rpartition("]")[0].lstrip("[")
    return host.partition(":")[0] if host.count(":") == 1 else host


def client_of(name: str, settings: ClientSettings) -> Client:
    """Return the client that the settings describe."""

    def as_set(values: Iterable[str] | None) -> frozenset[str] | None:
        return None if values is None else frozenset(values)

    return Client(
        name=name,
        role=settings.role,
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
        priority=settings.priority,
    )
