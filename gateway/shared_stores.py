"""What a gateway shares with others through Redis: its leases, its board, its live view, and who made which response.

redis-py takes 14 MB that most gateways do not need, so it is imported only if Redis is configured.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.limits.leases import Leases, OwnShare
from gateway.live.live import Live
from gateway.runtime import Runtime
from gateway.settings.model import Settings
from gateway.steering.spending import Spending
from gateway.steering.strikes import Strikes

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from gateway.live.sharing import Sharing
    from gateway.steering.redis_board import RedisBoard


def leases(settings: Settings, runtime: Runtime) -> Leases:
    """Return how far this process may use limits: by leases from Redis, or without it by its own share."""
    if settings.redis_url is None:
        return OwnShare(settings.workers, clock=runtime.clock, unix_clock=runtime.unix_clock)
    from gateway.limits.lease_script import USUAL  # noqa: PLC0415 - only with Redis
    from gateway.limits.shared_leases import SharedLeases  # noqa: PLC0415 - 14 MB
    from gateway.steering.redis_commands import connect  # noqa: PLC0415 - 14 MB

    redis = connect(settings.redis_url.get_secret_value(), USUAL.timeout_s)
    return SharedLeases(
        redis,
        clock=runtime.clock,
        unix_clock=runtime.unix_clock,
        new_id=runtime.new_id,
        processes=settings.workers,
    )


def response_store(settings: Settings) -> "Redis | None":
    """Return where the makers of stored responses are known to all; None without Redis."""
    if settings.redis_url is None:
        return None
    from gateway.steering.redis_commands import connect  # noqa: PLC0415 - 14 MB

    return connect(settings.redis_url.get_secret_value())


def redis_board(
    settings: Settings, unix_clock: Callable[[], float], spending: Spending, strikes: Strikes
) -> "RedisBoard | None":
    """Return the leaderboard that replicas share; None without Redis."""
    if settings.redis_url is None:
        return None
    from gateway.steering.redis_board import RedisBoard  # noqa: PLC0415 - 14 MB
    from gateway.steering.redis_commands import connect  # noqa: PLC0415 - 14 MB

    url = settings.redis_url.get_secret_value()
    return RedisBoard(connect(url), unix_clock=unix_clock, spending=spending, strikes=strikes)


def live_sharing(settings: Settings, live: Live, runtime: Runtime) -> "Sharing | None":
    """Return what shares ``live`` with other workers and replicas; None without Redis."""
    if settings.redis_url is None:
        return None
    from gateway.live.sharing import TIMEOUT_S, Sharing  # noqa: PLC0415 - 14 MB
    from gateway.steering.redis_commands import connect  # noqa: PLC0415 - 14 MB

    redis = connect(settings.redis_url.get_secret_value(), TIMEOUT_S)
    return Sharing(redis, live, clock=runtime.clock, unix_clock=runtime.unix_clock)
