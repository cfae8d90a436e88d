"""The body of /health/ready: the state of the gateway's stores."""

from typing import TYPE_CHECKING, Any

from gateway.keys.keys import Keys
from gateway.ledger.writer import Ledger

if TYPE_CHECKING:
    from gateway.steering.redis_board import RedisBoard


def readiness(ledger: Ledger, redis_board: "RedisBoard | None", keys: Keys[Any], *, models: int) -> dict[str, Any]:
    """Return the state of each store; the database is watched for a while from now on."""
    ledger.watch()
    return {
        "database": {
            "connected": ledger.connected,
            "answered_s_ago": _tenths(ledger.answered_s_ago),
            "pending": ledger.pending,
            "oldest_pending_s": _tenths(ledger.oldest_pending_s),
        },
        "spool": {"problem": ledger.spool_problem, "lost": ledger.lost},
        "redis": None if redis_board is None else {"connected": redis_board.connected},
        "keys": keys.readiness(),
        "models": models,
    }


def _tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
