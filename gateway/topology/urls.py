"""Parses ``redis_url``: its kind, and the hosts. Separate from the client, as settings are read without redis-py."""

import re
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

TopologyKind = Literal["plain", "cluster", "sentinel"]
Node = tuple[str, int]  # host and port

SCHEMES = "redis://, rediss://, unix://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://"

_KINDS: dict[str, TopologyKind] = {
    "redis": "plain",
    "rediss": "plain",
    "unix": "plain",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
}
_PORTS = {"plain": 6379, "cluster": 6379, "sentinel": 26379}
_HOST = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?")
_OF_SENTINELS = {"sentinel_username": "username", "sentinel_password": "password"}


class RedisUrlError(ValueError):
    """``redis_url`` is invalid; the message says how to write it, and quotes nothing of the URL."""


class UnusableTopologyError(Exception):
    """Redis answers, but cannot be used in this topology; the message says what to do."""


class RedisUrl(msgspec.Struct, frozen=True):
    """A URL's parts. Its ``repr`` has no password.

    ``plain``: the URL of one node, with the options for all. ``hosts``: the nodes, or Sentinels, to query first; none
    for a Unix socket. ``service``: the Sentinels' name of the master. ``login``: user and password for the Sentinels.
    """

    kind: TopologyKind
    plain: str
    hosts: tuple[Node, ...]
    service: str = ""
    login: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"RedisUrl({self.kind})"


def read_url(url: str) -> RedisUrl:
    """Read ``redis_url``.

    Raises:
        RedisUrlError: it is invalid.

    """
    # Python 3.14 refuses brackets after a comma, so the hosts are cut out before.
    scheme, _, rest = url.partition("://")
    netloc = re.split(r"[/?#]", rest, maxsplit=1)[0]
    try:
        parts = urlsplit(f"{scheme}://{rest.removeprefix(netloc)}")
    except ValueError:  # brackets that do not close, before any scheme
        raise RedisUrlError(f"must begin with {SCHEMES}") from None
    kind = _KINDS.get(parts.scheme)
    if kind is None or "://" not in url:
        raise RedisUrlError(f"must begin with {SCHEMES}")
    if parts.scheme == "unix":
        return RedisUrl(kind, url, ())
    login, at, names = netloc.rpartition("@")
    hosts = _hosts(names, _PORTS[kind])
    if kind == "plain" and len(hosts) > 1:
        raise RedisUrlError(
            "names several hosts: write redis+cluster:// for a Cluster, redis+sentinel:// for Sentinels"
        )
    if kind == "plain":
        if not re.fullmatch(r"/?\d*", parts.path):  # redis-py would take database 0
            raise RedisUrlError("has a database that is no number: write it like redis://host:6379/0")
        return RedisUrl(kind, url, hosts)
    service, path, options = "", parts.path, parse_qsl(parts.query)
    if kind == "sentinel":
        service, _, number = parts.path.strip("/").partition("/")
        path = f"/{number}"
        if not service or not (number.isdigit() or not number):
            raise RedisUrlError("needs the name of the service: redis+sentinel://host1,host2,host3/service")
    of_sentinels = tuple((_OF_SENTINELS[name], value) for name, value in options if name in _OF_SENTINELS)
    query = urlencode([(name, value) for name, value in options if name not in _OF_SENTINELS], quote_via=quote)
    (host, port) = hosts[0]
    first = f"{login}{at}{f'[{host}]' if ':' in host else host}:{port}"
    plain = urlunsplit((parts.scheme.partition("+")[0], first, path, query, ""))
    return RedisUrl(kind, plain, hosts, service, of_sentinels)


def _hosts(names: str, port: int) -> tuple[Node, ...]:
    hosts = []
    for name in names.split(",") if names else ["localhost"]:
        found = _HOST.fullmatch(name.strip())
        if found is None or int(found[2] or port) > 65535:  # noqa: PLR2004 - the highest port
            raise RedisUrlError("has a host that is none: write host or host:port, several with commas between them")
        hosts.append((found[1].strip("[]"), int(found[2] or port)))
    return tuple(hosts)
