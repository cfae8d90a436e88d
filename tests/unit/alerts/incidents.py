"""What goes wrong in the month, when, and which alerts should say so; and whether they did."""

from collections.abc import Mapping
from random import Random

import msgspec

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Something that goes wrong from ``start_s`` to ``end_s``; ``expected`` are the alerts' keys, none: it is small."""

    name: str
    start_s: float
    end_s: float
    expected: tuple[str, ...] = ()
    bad: Mapping[str, float] = {}  # the share of bad calls by target
    broken: tuple[str, ...] = ()  # deployments
    flaps_s: tuple[float, float] | None = None  # broken and whole for so long, in turns
    spends: Mapping[str, float] = {}  # by client, US dollars an hour, more than usual
    database: str | None = None  # "slow" or "away"
    spool: int | None = None  # the replica whose disk is full
    slower: str | None = None  # the deployment that the detector finds slower
    receiver_dead: bool = False
    restarts: tuple[float, ...] = ()  # seconds after the start at which all replicas restart

    def lasts(self, now_s: float) -> bool:
        """Whether it goes on at ``now_s``."""
        return self.start_s <= now_s < self.end_s

    def breaks(self, deployment: str, now_s: float) -> bool:
        """Whether it has broken ``deployment`` at ``now_s``."""
        if deployment not in self.broken or not self.lasts(now_s):
            return False
        if self.flaps_s is None:
            return True
        broken_s, whole_s = self.flaps_s
        return (now_s - self.start_s) % (broken_s + whole_s) < broken_s


def incidents(random: Random) -> list[Incident]:
    """Return those of the month, each a day or two after the one before, at a random minute of the day's first half."""

    def at(day: float) -> float:
        return day * DAY_S + random.randrange(0, 600) * MINUTE_S

    def made(name: str, day: float, lasts_s: float, *expected: str, **what: object) -> Incident:
        start_s = at(day)
        return msgspec.convert(
            {"name": name, "start_s": start_s, "end_s": start_s + lasts_s, "expected": expected, **what}, Incident
        )

    both = ["a/chat", "b/chat"]
    return [
        made("20 % of calls bad, 40 min", 1, 40 * MINUTE_S, "burn_fast:chat", bad={"chat": 0.2}),
        made("30 % of calls bad, 2 min", 2, 2 * MINUTE_S, bad={"chat": 0.3}),
        made("4 % of calls bad, 6 h", 3, 6 * HOUR_S, "burn_fast:chat", bad={"chat": 0.04}),
        made("7 % of calls bad, 8 h", 4, 8 * HOUR_S, "burn_fast:chat", bad={"chat": 0.07}),
        made("0.9 % of calls bad, 3 days", 5, 3 * DAY_S, "burn_slow:chat", bad={"chat": 0.009}),
        made("all calls bad, 5 min", 9, 5 * MINUTE_S, "burn_fast:chat", bad={"chat": 1.0}),
        made("a quiet model: 3 % bad, 20 min", 10, 20 * MINUTE_S, bad={"voice": 0.03}),
        made("one deployment out, 45 min", 10, 45 * MINUTE_S, "deployment_out:a/chat", broken=["a/chat"]),
        made(
            "the same, all replicas restarted twice", 11, 45 * MINUTE_S, "deployment_out:a/chat", broken=["a/chat"],
            restarts=[15 * MINUTE_S, 30 * MINUTE_S],
        ),
        made(
            "all deployments of a model out, 10 min", 12, 10 * MINUTE_S, "model_out:chat", "burn_fast:chat",
            broken=both, bad={"chat": 1.0},
        ),
        made("a breaker that flaps, 2 min of 4, 3 h", 13, 3 * HOUR_S, broken=["a/chat"], flaps_s=[120.0, 120.0]),
        made(
            "a breaker that flaps, 8 min of 10, 3 h", 14, 3 * HOUR_S, "deployment_out:a/chat", broken=["a/chat"],
            flaps_s=[480.0, 120.0],
        ),
        made(
            "a model that flaps, 3 min of 6, 2 h", 15, 2 * HOUR_S, "model_out:chat", broken=both,
            flaps_s=[180.0, 180.0],
        ),
        made("a client spends $60 an hour, 4 h", 16, 4 * HOUR_S, "spending:app/usd_per_day", spends={"app": 60.0}),
        made("others spend $200 an hour, 4 h", 18, 4 * HOUR_S, "spending:all/usd_per_day", spends={"team": 200.0}),
        made(
            "a slow database, 20 min", 20, 20 * MINUTE_S, "ledger_behind:replica-0", "ledger_behind:replica-1",
            database="slow",
        ),
        made("a slow database, 3 min", 21, 3 * MINUTE_S, database="slow"),
        made(
            "no database, 20 min", 22, 20 * MINUTE_S, "ledger_behind:replica-0", "ledger_behind:replica-1",
            database="away",
        ),
        made(
            "no database, and a model out, 30 min", 23, 30 * MINUTE_S, "ledger_behind:replica-0",
            "ledger_behind:replica-1", "model_out:chat", database="away", broken=both,
        ),
        made("a full disk on one replica, 15 min", 24, 15 * MINUTE_S, "spool:replica-1", spool=1),
        made("a provider got slower, 6 h", 25, 6 * HOUR_S, "slower:b/chat/chat", slower="b/chat"),
        made(
            "a model out, 10 min, and no receiver", 27, 10 * MINUTE_S, "model_out:chat", broken=both,
            receiver_dead=True,
        ),
    ]  # fmt: skip
