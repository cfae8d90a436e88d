"""Admission of clients and their rights: by keys or, without keys, by rules that keep web pages out."""

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Protocol

import msgspec
from aiohttp import web

from gateway.access.client import Client
from gateway.access.sessions import Sessions
from gateway.core.errors import (
    ApiError,
    Forbidden,
    InvalidRequest,
    KeyExpired,
    KeysNotLoaded,
    KeyUnusable,
    NoKey,
    UnsupportedMediaType,
    WrongKey,
)
from gateway.core.tasks import pause
from gateway.fleet import WELL_FORMED_KEY, Callers, TenantKeys
from gateway.http import JSON
from gateway.keys import RETRY_S, IssuedKey, Keys, key_in
from gateway.settings import (
    LONGEST_KEY,
    ClientRole,
    ClientSettings,
    LimitSettings,
    is_loopback,
)

if TYPE_CHECKING:
    from gateway.keys import Token, TokenClients

# Client addresses: how to parse and count them, and the client's address behind a trusted proxy.

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PORT = re.compile(r"^(?:\[(?P<v6>[^]]+)\]|(?P<v4>[0-9.]+))(?::[0-9]+)?$")
FORWARDED_FOR = "x-forwarded-for"
IPV6_PREFIX_BYTES = 8  # one customer or one machine usually has a /64


def read_address(text: str) -> Address | None:
    """Return the address in ``text``, as written by accept() or a proxy; None if it is not an address.

    An IPv4-mapped IPv6 address becomes an IPv4 address. A port and a scope are removed.
    """
    with_port = _PORT.match(text)
    plain = (with_port["v6"] or with_port["v4"]) if with_port else text
    try:
        address = ip_address(plain.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def counted_as(address: Address) -> bytes:
    """Return the bytes that identify a client in limits: an IPv4 address, or the /64 network of an IPv6 address."""
    return address.packed if isinstance(address, IPv4Address) else address.packed[:IPV6_PREFIX_BYTES]


@lru_cache(maxsize=1024)
def grouped(peer: str) -> str | None:
    """Return an address as written by a socket or a proxy in the form for counting: ``192.0.2.1``, ``2001:db8::/64``.

    None if ``peer`` is not an address.
    """
    address = read_address(peer)
    if address is None:
        return None
    if isinstance(address, IPv4Address):
        return str(address)
    bits = 8 * IPV6_PREFIX_BYTES
    return str(IPv6Network((int(address) >> 128 - bits << 128 - bits, bits)))


def counted_address(peer: str | None, forwarded_for: Sequence[str], trusted: Sequence[Network]) -> Hashable:
    """Return the key of a client's address in limits; ``forwarded_for`` counts if ``peer`` is trusted."""
    if peer is None or not (trusted or ":" in peer):  # most often: an IPv4 address, unchanged
        return peer
    named = Trust(trusted).named(peer, forwarded_for)
    address = None if named is None else read_address(named)
    return named if address is None else counted_as(address)


class Trust:
    """The proxies whose ``x-forwarded-for`` is trusted."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = networks

    def trusts(self, address: Address) -> bool:
        """Whether ``address`` belongs to a trusted proxy."""
        return any(address in network for network in self.networks)

    def named(self, peer: str | None, forwarded_for: Sequence[str]) -> str | None:
        """Return the address to log: the client's, if ``peer`` is a trusted proxy and names it; else ``peer``."""
        if not self.networks or peer is None:
            return peer
        address = read_address(peer)
        client = self.client(forwarded_for) if address is not None and self.trusts(address) else None
        return peer if client is None else str(client)

    def client(self, forwarded_for: Sequence[str]) -> Address | None:
        """Return the client behind the proxies: the last address in ``x-forwarded-for`` that is not a trusted proxy's.

        The client itself wrote earlier entries of the header, so they prove nothing. None: no valid address.
        """
        for text in reversed(",".join(forwarded_for).split(",")):
            address = read_address(text.strip())
            if address is None or not self.trusts(address):
                return address
        return None


# Answers to wrong keys from an address that guesses are delayed. A good key is never delayed. Keys made by the gateway
# have 256 random bits, so no guess finds them; the delay slows guesses of weaker keys, chosen by operators. The delay
# does not help against attackers with many addresses, or who do not wait for the answer.

FREE = 5  # wrong keys answered at once, for typing errors and restarted programs
FORGOTTEN_S = 12.0  # after so long a wrong key no longer counts, so FREE wrong keys a minute are never delayed
FIRST_S = 0.25  # doubled for each further wrong key
LONGEST_S = 5.0  # less than any client's timeout
_MOST = FREE + 6.0  # counted at most, so that an address is forgotten two minutes after the last wrong key
ADDRESSES = 4096  # in memory, about 200 bytes each; a guesser with more addresses has FREE tries from each anyway
WAITING = 256  # delayed answers at the same time
WAITING_PER_ADDRESS = 16  # so that one address cannot use up all


class _Guesser(msgspec.Struct):
    """An address: its wrong keys that still count, and its delayed answers."""

    wrong: float = 0.0
    at_s: float = 0.0
    waiting: int = 0

    def wrong_at(self, now_s: float) -> float:
        return max(0.0, self.wrong - (now_s - self.at_s) / FORGOTTEN_S)


class WrongKeyCounter:
    """Counts wrong keys by address (IPv6: by /64), and delays the answers after the first few.

    ``waiting``: answers delayed now; ``delayed``: answers delayed so far; ``at_once``: answers sent at once, as too
    many were waiting. Memory and waiting answers are bounded. Each process counts for itself.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.delayed = 0
        self.at_once = 0
        self._guessers: OrderedDict[bytes, _Guesser] = OrderedDict()  # the latest last
        self._released = asyncio.Event()

    def guessing(self, now_s: float) -> int:
        """Return the number of addresses whose next wrong key would be delayed; ``now_s``: by the loop's clock."""
        return sum(guesser.wrong_at(now_s) > FREE - 1 for guesser in self._guessers.values())

    async def hold(self, peer: str | None) -> bool:
        """Count a wrong key from ``peer``, and wait for the delay of the answer.

        Return False if too many answers are waiting already. Then the answer is sent at once, and the connection
        closed: a guesser needs a new connection each time and occupies nothing here, while a client with an old key
        still reads the reason.
        """
        guesser = self._guesser(peer)
        now_s = asyncio.get_running_loop().time()
        guesser.wrong, guesser.at_s = min(_MOST, guesser.wrong_at(now_s) + 1.0), now_s
        if guesser.wrong <= FREE or self._released.is_set():
            return True
        if self.waiting >= WAITING or guesser.waiting >= WAITING_PER_ADDRESS:
            self.at_once += 1
            return False
        self.waiting += 1
        guesser.waiting += 1
        self.delayed += 1
        try:
            await pause(delay_s(guesser.wrong), self._released)
        finally:  # even if the client has hung up
            self.waiting -= 1
            guesser.waiting -= 1
        return True

    def release(self) -> None:
        """Send all answers at once from now on, including waiting ones, as the gateway is stopping."""
        self._released.set()

    def _guesser(self, peer: str | None) -> _Guesser:
        address = None if peer is None else read_address(peer)
        key = b"" if address is None else counted_as(address)  # clients without an address are counted together
        guesser = self._guessers.get(key)
        if guesser is None:
            guesser = self._guessers[key] = _Guesser()
            if len(self._guessers) > ADDRESSES:
                self._guessers.popitem(last=False)
        else:
            self._guessers.move_to_end(key)
        return guesser


def delay_s(wrong: float) -> float:
    """Return the delay of the answer to a wrong key, in seconds; ``wrong``: the address's wrong keys that count."""
    return 0.0 if wrong <= FREE else min(LONGEST_S, max(FIRST_S, FIRST_S * 2.0 ** (wrong - FREE - 1.0)))


# The digest of a request's key, by which the key's requests are found when the key ends.
DIGEST: web.RequestKey[bytes] = web.RequestKey("holeshot.digest", bytes)
# Referenced while the request runs, so that the request is found when the token is denied.
TOKEN: "web.RequestKey[Token]" = web.RequestKey("holeshot.token")
READING = frozenset({"GET", "HEAD"})
_DOTS = 2  # of a signed token; few other keys have dots


# The sender of a request without a key: a person who has signed in.
VISITOR: web.RequestKey[Client] = web.RequestKey("holeshot.visitor", Client)


class ClientConnection(Protocol):
    """The client's connection; limits for strangers apply until a request on it is admitted."""

    def admitted(self) -> None:
        """Note that a request on the connection was admitted."""


class KeyHead(Protocol):
    """The parts of a request that identify the sender."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by name, in any case."""

    @property
    def host(self) -> str:
        """The requested host."""

    @property
    def raw_path(self) -> str:
        """The path with its query, as sent."""


# The provider keys that a request brings. No message repeats a part of the header, as it may be a key.

TENANT_KEYS = "x-holeshot-provider-keys"
_MOST_TENANT_KEYS = 64


def tenant_keys(lines: Sequence[str], providers: Collection[str] | None) -> Mapping[str, str]:
    """Return the keys in the lines of the header, by provider: ``name=key, name=key``, or a JSON object of strings.

    ``providers``: those for which a request may bring a key; None: the header is not turned on.

    Raises:
        InvalidRequest: the header is not turned on, has neither form, names another provider, or has an empty key.

    """
    if providers is None:
        raise _invalid(
            "this gateway takes no keys of providers: leave the header out, or have the operator set"
            " 'tenant_keys: { header: true }'"
        )
    pairs = [pair for line in lines for pair in _pairs(line)]
    if not 0 < len(pairs) <= _MOST_TENANT_KEYS:
        raise _invalid(f"it must have 1 to {_MOST_TENANT_KEYS} keys")
    keys: dict[str, str] = {}
    for provider, key in pairs:
        if provider not in providers:
            names = ", ".join(sorted(providers)) or "none"
            raise _invalid(f"it names a provider that is not configured here; known: {names}")
        if WELL_FORMED_KEY.fullmatch(key) is None:
            raise _invalid(
                f"the key for {provider!r} is empty, longer than {LONGEST_KEY} characters, or has a blank or another"
                " character of no key"
            )
        if provider in keys:
            raise _invalid(f"it names {provider!r} twice: send one key for each provider")
        keys[provider] = key
    return keys


def _pairs(line: str) -> list[tuple[str, str]]:
    if line.lstrip().startswith("{"):
        try:
            msgspec.json.decode(line.encode(errors="surrogateescape"), type=dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _invalid("it is not a JSON object of strings") from None
        return json.loads(line, object_pairs_hook=list)  # type: ignore[no-any-return] # also names that are there twice
    pairs = [part.partition("=") for part in line.split(",")]
    if any(not (provider.strip() and equals) for provider, equals, _ in pairs):
        raise _invalid("it must read 'provider=key, provider=key', or be a JSON object of strings")
    return [(provider.strip(), key.strip()) for provider, _, key in pairs]


def _invalid(problem: str) -> InvalidRequest:
    return InvalidRequest(f"{TENANT_KEYS}: {problem}", param=TENANT_KEYS)


_NO_KEY = "send your gateway key as 'authorization: Bearer hs-…' (api_key in the SDKs)"
_SIGNED = "AWS4-HMAC-SHA256"
_NO_SIGNATURES = (
    "signatures of AWS are not checked here: send your gateway key as 'authorization: Bearer hs-…'"
    " (AWS_BEARER_TOKEN_BEDROCK in the SDKs and in Claude Code), or as x-api-key beside the signature"
)


class KeyAdmission:
    """Admits requests by key; if keys are not required, only from programs on this machine."""

    def __init__(
        self,
        keys: Keys[Client],
        anonymous: LimitSettings,
        tokens: "TokenClients[Client] | None" = None,
        providers: Collection[str] | None = None,
    ) -> None:
        """``anonymous``: the limits of local programs, if no keys are required. ``tokens``: None without issuers.

        ``providers``: those for which requests may bring a key; None: none.
        """
        self.keys = keys
        self.providers = providers
        self.tokens = tokens
        self._table = keys.table
        self.sessions = Sessions(keys.table, keys.unix_clock)
        self._callers: tuple[object, Callers] = (None, ())
        self.local = Client(limits=anonymous.by_name)  # for programs on this machine, if no keys are required

    @property
    def teams(self) -> dict[str, str]:
        """The teams of all clients with keys, by the client's name."""
        return {each.name: each.team for each in self._table.holders if each.name and each.team}

    @property
    def callers(self) -> Callers:
        """The clients with a profile: profile, and the models that the client may use; cached until a key changes."""
        rows = self._table.known
        if self._callers[0] is not rows:
            callers = {(each.profile, each.models) for each in self._table.holders if each.profile is not None}
            self._callers = rows, frozenset(callers)
        return self._callers[1]

    @property
    def zones(self) -> dict[str, str]:
        """The zones of clients that have one, by the client's name."""
        return {each.name: each.zone for each in self._table.holders if each.name and each.zone}

    def reloaded(
        self,
        clients: Mapping[str, ClientSettings],
        anonymous: LimitSettings,
        tokens: "TokenClients[Client] | None" = None,
        providers: Collection[str] | None = None,
    ) -> "KeyAdmission":
        """Apply the clients of a reloaded file; return the admission with the new limits of local programs."""
        self._table.use_file(clients)
        return KeyAdmission(self.keys, anonymous, tokens, providers)

    def admit(self, request: web.Request, takes: Sequence[str] = (JSON,)) -> Client:
        """Return the client that sends the request; ``takes``: the media types that the API accepts.

        Raises:
            NoKey, WrongKey, KeyExpired: the key is missing, unknown or expired.
            Forbidden: without required keys: the request may come from a web page; or a viewer does more than read.
            KeysNotLoaded, KeyUnusable: the key cannot be judged now.
            UnsupportedMediaType: the content type is not in ``takes``. Forms and plain text need no CORS preflight:
                for an API that accepts forms, only the checks of origin and host keep web pages out.

        """
        if request.method == "POST" and request.content_type not in takes:
            raise UnsupportedMediaType(f"send content-type: {' or '.join(takes)}, not {request.content_type!r}")
        return self.let_in(request, *self._identify(request))

    def let_in(self, request: web.Request, client: Client, digest: bytes | None) -> Client:
        """Admit a request of ``client``, until the key with this digest ends.

        Raises:
            Forbidden: a viewer does more than read.
            InvalidRequest: the provider keys in the request are invalid, or not allowed.

        """
        if TENANT_KEYS in request.headers:
            allowed = None if self.providers is None else [each for each in self.providers if client.may_see(each)]
            brought = tenant_keys(request.headers.getall(TENANT_KEYS), allowed)
            keys_stored = client.tenant.keys if client.tenant is not None else {}
            client = msgspec.structs.replace(client, tenant=TenantKeys({**keys_stored, **brought}, client.name))
        if digest is not None:
            request[DIGEST] = digest
            if self.tokens is not None and (token := self.tokens.of(digest)) is not None:
                request[TOKEN] = token
        if client.role is ClientRole.VIEWER and request.method not in READING:
            raise Forbidden("this key may only read, as its role is viewer: calls and changes need another one")
        connection: ClientConnection = request.protocol  # type: ignore[assignment] # ours: gateway.server makes them
        connection.admitted()
        return client

    def name_of(self, request: web.Request) -> str | None:
        """Return the client's configured name, even if the key has expired; None: no name, or unknown."""
        visitor: Client | None = request.get(VISITOR)
        if visitor is not None:
            return visitor.name
        row = self._table.known.get(request.get(DIGEST, b""))  # of a request that was admitted, and then refused
        if row is not None and row.client is not None:
            return row.client.name
        try:
            return self._identify(request)[0].name
        except KeyExpired as error:
            return error.client
        except ApiError:
            return None

    def recognised(self, request: KeyHead) -> Client | None:
        """Return the client that sends the request; None if the request would not be admitted."""
        try:
            return self._identify(request)[0]
        except ApiError:
            return None

    def admit_viewer(self, request: web.Request) -> Client:
        """Return the client that sends the request, if the client is an admin, an operator or a viewer.

        Raises:
            ApiError: the client may not look, or as for ``admit``.

        """
        client = self.admit(request)
        if client.role is ClientRole.CLIENT:
            raise Forbidden("this needs the key of an admin, an operator or a viewer: set 'role: viewer' for a client")
        return client

    def admit_admin(self, request: web.Request, takes: Sequence[str] = (JSON,)) -> Client:
        """Return the client that sends the request, if the client is an admin.

        Raises:
            ApiError: the client is not an admin, or as for ``admit``.

        """
        client = self.admit(request, takes)
        if client.role is not ClientRole.ADMIN:
            raise Forbidden("this needs the key of an admin: set 'role: admin' for a client")
        return client

    def _identify(self, request: KeyHead) -> tuple[Client, bytes | None]:
        """Return the client and the digest of the key; None if no keys are required."""
        if not self._table.is_required:
            self._demand_local_program(request)
            return self.local, None
        key = sent_key(request)
        if not key:
            is_signed = request.headers.get("authorization", "").startswith(_SIGNED)
            raise NoKey(_NO_SIGNATURES if is_signed else _NO_KEY)
        try:
            return self._held(key)
        except (WrongKey, KeysNotLoaded) as error:
            others = other_keys(request, key)
            if not others:
                raise
            refusal: ApiError = error
        for other in others:
            try:
                return self._held(other)
            except (WrongKey, KeysNotLoaded) as error:
                if isinstance(error, KeysNotLoaded):
                    refusal = error  # perhaps this key is good, so the client may retry
        raise refusal

    def _held(self, key: str) -> tuple[Client, bytes]:
        """Return the client with this key, or named by this token, and the digest."""
        digest = digest_of(key)
        if self.tokens is not None and key.count(".") == _DOTS and digest not in self._table.known:
            return self.tokens.holder(key, digest), digest
        return self.holder(digest), digest

    def holder(self, digest: bytes) -> Client:
        """Return the client whose key has this digest.

        Raises:
            WrongKey, KeyExpired, KeysNotLoaded, KeyUnusable: as for ``admit``.

        """
        row = self._known(digest)
        if row.client is None:
            raise KeyUnusable(
                "this version of the gateway cannot use the settings of this key; retry, or ask the operator",
                headers={"retry-after": str(RETRY_S)},
            )
        if row.id is not None:
            self.keys.used(row.id)
        return row.client

    def _known(self, digest: bytes) -> IssuedKey[Client]:
        """Return the key with this digest, if it is valid now.

        The duration of a dict's comparison shows how far two digests agree. This does not help to guess a key: a client
        can make a key whose digest begins like a given one only by trying, and each try is another key.
        """
        row = self._table.known.get(digest)
        if row is None and not self._table.is_loaded:
            raise KeysNotLoaded(
                "the keys could not be read from the database yet; retry soon", headers={"retry-after": str(RETRY_S)}
            )
        if row is None:
            raise WrongKey("unknown or revoked gateway key; ask the operator for one ('holeshot keys new')")
        if row.ends_at is not None and row.has_ended(self.keys.unix_clock()):
            ended = datetime.fromtimestamp(row.ends_at, UTC)
            raise KeyExpired(
                f"this gateway key expired at {ended:%Y-%m-%d %H:%M} UTC; ask the operator for another one",
                client=None if row.client is None else row.client.name,
            )
        return row

    @staticmethod
    def _demand_local_program(request: KeyHead) -> None:
        # A page's GET without CORS has no origin. Browsers send ``sec-fetch-site``, which a page cannot change.
        site = request.headers.get("sec-fetch-site", "none")
        if "origin" in request.headers or site not in {"none", "same-origin"}:
            raise Forbidden("requests from web pages are refused while no 'clients:' are configured")
        demand_local_host(request)


def demand_local_host(request: KeyHead) -> None:
    """Check that the request's host is this machine, as another name for it may be an attack (DNS rebinding).

    Raises:
        Forbidden: the request has another host.

    """
    if not is_loopback(_without_port(request.host).lower()):
        raise Forbidden(f"the host {request.host!r} is refused while no 'clients:' are configured: use 127.0.0.1")


def sent_key(request: KeyHead) -> str:
    """Return the key in a request, in the headers of OpenAI's, Anthropic's or Google's clients; "" without one."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        key = request.headers.get("x-api-key") or request.headers.get("x-goog-api-key") or key_in(request.raw_path)
    return key.strip()


def other_keys(request: KeyHead, key: str) -> list[str]:
    """Return the other keys of a request with ``key`` in ``authorization``, where a proxy may have put it.

    Google's API Gateway and other identity proxies write their own token into ``authorization``
    (docs.cloud.google.com/api-gateway/docs/passing-data, github.com/FusionAuth/fusionauth-issues/issues/2242, read on
    2026-11-27). If the gateway knows the first key, even an expired one, no other key is tried.
    """
    headers = request.headers
    keys = (headers.get("x-api-key", ""), headers.get("x-goog-api-key", ""), key_in(request.raw_path))
    return [other for other in dict.fromkeys(each.strip() for each in keys) if other and other != key]


def digest_of(key: str) -> bytes:
    """Return the digest that identifies a key, from the header's bytes as received."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.rpartition("]")[0].lstrip("[")
    return host.partition(":")[0] if host.count(":") == 1 else host
