"""The stores of a gateway: leases, board, live view and stored responses shared through Redis, and clients' keys.

redis-py takes 14 MB that most gateways do not need, and is imported only if Redis is configured.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from gateway import __version__
from gateway.access import Client, client_of, person_of, role_of
from gateway.app.engine import Runtime
from gateway.app.shared_facts import shared
from gateway.core.addresses import Address
from gateway.keys import Keys
from gateway.ledger import Database, SqlKeyStore, parse_url
from gateway.limits import Leases, OwnShare
from gateway.live import Live
from gateway.settings import Settings
from gateway.steering import Spending, Strikes
from gateway.topology import read_url
from providers import ListedFact

if TYPE_CHECKING:
    from gateway.keys import TokenClients
    from gateway.live import Sharing
    from gateway.steering import RedisBoard
    from gateway.topology import Nodes


class StoreAddresses:
    """The addresses of a gateway's stores, with users and passwords that reloads renew; None: no such store.

    ``read_again`` is called if a store refuses a login: it reads the configuration again.
    """

    def __init__(self, settings: Settings) -> None:
        self.read_again: Callable[[], Awaitable[object]] | None = None
        database, self._others = _urls(settings)
        self.database = Address(database, self._read_again)
        addresses = {name: Address(url, self._read_again) for name, url in self._others.items()}
        self.reports, self.redis = addresses.get("reports_database_url"), addresses.get("redis_url")
        self.clickhouse = addresses.get("ledger.clickhouse.url")
        self._made = {"database_url": self.database, **addresses}

    def renew(self, settings: Settings) -> list[str]:
        """Use the logins of ``settings`` for new connections; return the names of the settings with new logins.

        Raises:
            DatabaseUrlError, RedisUrlError: a URL is invalid; no new login is used then

        """
        database, others = _urls(settings)
        urls = {"database_url": database, **others}
        renewed = [name for name, address in self._made.items() if urls.get(name, address.url) != address.url]
        for name in renewed:
            if name == "redis_url":
                read_url(urls[name])
            elif name != "ledger.clickhouse.url":
                parse_url(urls[name], name)
        for name in renewed:
            self._made[name].url = urls[name]
        return renewed

    async def _read_again(self) -> None:
        if self.read_again is not None:
            await self.read_again()


def _urls(settings: Settings) -> tuple[str, dict[str, str]]:
    """Return the URL of the database, and those of the optional stores, by their settings."""
    clickhouse = settings.ledger.clickhouse
    others = {
        "reports_database_url": settings.reports_database_url,
        "redis_url": settings.redis_url,
        "ledger.clickhouse.url": None if clickhouse is None else clickhouse.url,
    }
    urls = {name: url.get_secret_value() for name, url in others.items() if url is not None}
    return settings.database_url.get_secret_value(), urls


CHECK_S = 5.0  # at the start: the longest wait for a Redis that hangs


async def check_redis(settings: Settings) -> None:
    """Check that limits and standings can be shared over Redis, if there is one and it answers.

    Raises:
        UnusableTopologyError: the topology of the servers does not allow sharing

    """
    await ask_redis(settings)


class RedisFound(msgspec.Struct, frozen=True):
    """The Redis at ``redis_url``. ``topology`` describes its servers in words; ``away`` is the error if it is away."""

    topology: str
    away: str | None = None
    doubts: tuple[str, ...] = ()  # its settings that can lose limits or standings
    learnt: Mapping[str, tuple[str, ...]] = {}  # deployment → facts taught by refusals, in words


async def ask_redis(settings: Settings, *, everything: bool = False) -> RedisFound | None:
    """Ask Redis for its topology, and with ``everything`` for its settings and facts; None if none is configured.

    Raises:
        UnusableTopologyError: limits and standings cannot be shared over this Redis

    """
    if settings.redis_url is None:
        return None
    from redis.exceptions import RedisError  # noqa: PLC0415 - 14 MB

    from gateway.topology import connect, why  # noqa: PLC0415 - likewise

    nodes = connect(settings.redis_url.get_secret_value(), CHECK_S, settings.redis_prefix)
    try:
        async with asyncio.timeout(CHECK_S):
            await nodes.check()
            if not everything:
                return RedisFound(nodes.name)
            facts: dict[str, tuple[str, ...]] = {}
            for provider, learnt in (await shared(nodes, time.time)).items():
                for listed in learnt.listed():
                    name = f"{provider}/{listed.model}"
                    facts[name] = (*facts.get(name, ()), in_words(listed))
            return RedisFound(nodes.name, doubts=tuple(await nodes.doubts()), learnt=facts)
    except (RedisError, OSError, TimeoutError) as error:  # away: calls go on without it
        return RedisFound(nodes.name, away=why(error))
    finally:
        await nodes.aclose()


def in_words(known: ListedFact) -> str:
    """Return the refusal by a deployment, and if known, the clients that have met it, the time and the reason."""
    met, refusal = known.met, known.fact.words
    if not met.at:
        return refusal
    clients = [each for each in met.clients if each is not None]
    since = f"{datetime.fromtimestamp(met.at, UTC):%Y-%m-%d %H:%M} UTC"
    whose = f"met by {' and '.join(clients)}, {since}" if clients else f"met {since}"
    why = f": {met.why}" if met.why else ""
    return f"{refusal} ({whose}{why}{'' if met.is_for_all else '; for that client alone'})"


def leases(settings: Settings, runtime: Runtime, address: Address | None) -> Leases:
    """Return this process's share of the limits: leases from Redis, or without Redis a fixed share."""
    if address is None:
        return OwnShare(settings.workers, clock=runtime.clock, unix_clock=runtime.unix_clock)
    from gateway.limits import USUAL, SharedLeases  # noqa: PLC0415 - only with Redis
    from gateway.topology import connect  # noqa: PLC0415 - 14 MB

    times = runtime.lease_times or USUAL
    redis = connect(address, times.timeout_s, settings.redis_prefix)
    return SharedLeases(
        redis,
        clock=runtime.clock,
        unix_clock=runtime.unix_clock,
        new_id=runtime.new_id,
        processes=settings.workers,
        times=times,
    )


def response_store(settings: Settings, address: Address | None) -> "Nodes | None":
    """Return the Redis that records which deployment made each stored response; None without Redis."""
    if address is None:
        return None
    from gateway.topology import connect  # noqa: PLC0415 - 14 MB

    return connect(address, prefix=settings.redis_prefix)


def redis_board(
    settings: Settings, address: Address | None, unix_clock: Callable[[], float], spending: Spending, strikes: Strikes
) -> "RedisBoard | None":
    """Return the leaderboard shared by replicas; None without Redis."""
    if address is None:
        return None
    from gateway.steering import RedisBoard  # noqa: PLC0415 - 14 MB
    from gateway.topology import connect  # noqa: PLC0415 - likewise

    return RedisBoard(
        connect(address, prefix=settings.redis_prefix), unix_clock=unix_clock, spending=spending, strikes=strikes
    )


def live_sharing(settings: Settings, address: Address | None, live: Live, runtime: Runtime) -> "Sharing | None":
    """Return the sharing of ``live`` with other workers and replicas; None without Redis."""
    if address is None:
        return None
    from gateway.live import TIMEOUT_S, Sharing  # noqa: PLC0415 - 14 MB
    from gateway.topology import connect  # noqa: PLC0415 - 14 MB

    redis = connect(address, TIMEOUT_S, settings.redis_prefix)
    return Sharing(redis, live, clock=runtime.clock, unix_clock=runtime.unix_clock)


# Composes the keys of a gateway's clients: the file's, and with ``keys: database`` the database's.


def client_keys(settings: Settings, runtime: Runtime, database: Database) -> Keys[Client]:
    """Return the keys. Nothing is read from the database before they are started.

    Raises:
        DatabaseUrlError: the database URL is invalid.

    """
    store = SqlKeyStore(database) if settings.keys == "database" else None
    return Keys(
        client_of,
        settings.clients,
        store,
        clock=runtime.clock,
        unix_clock=runtime.unix_clock,
        utc_now=runtime.utc_now,
    )


def client_tokens(
    settings: Settings, runtime: Runtime, keys: Keys[Client], running: "TokenClients[Client] | None" = None
) -> "TokenClients[Client] | None":
    """Return the lookup of clients by token, configured by ``settings``; None while no issuer has been configured.

    ``running`` is the lookup of the former configuration, with the issuers' keys and the tokens of running calls.
    """
    if running is None:
        if not settings.issuers:
            return None
        from gateway.keys import TokenClients, Web  # noqa: PLC0415 - 9 MB, and few gateways have an issuer

        running = TokenClients(
            keys.table,
            role_of,
            Web(f"holeshot/{__version__}", runtime.tls),
            person_of=person_of,
            clock=runtime.clock,
            unix_clock=runtime.unix_clock,
        )
    running.configure(settings.issuers)
    return running
