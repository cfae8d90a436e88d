"""Whether the ledger has seen enough, and what is missing."""

from collections.abc import Sequence

from msgspec import Struct

from gateway.replay.margins import audits
from gateway.replay.rows import Call

LEAST_AUDITS = 30  # of a model, for its median
AUDITS_FOR_TAIL = 500  # of each deployment, for p95 and beyond: then p95 is within 10 %
LEADING = 0.05  # share of the calls, below which a deployment is no matter
UNSEEN = 0.01  # of the calls, in which one of its attempts was cut unseen: fewer cannot move p95 much
MOSTLY = 0.8  # of all overtaken attempts: if so many were watched, p95 is about as sure as so many calls make it
LEAST_CALLS = 100
_DAY_S = 86_400.0


class Need(Struct, frozen=True):
    """The audits of one deployment."""

    deployment: str
    audits: int  # losers that were watched to their first token
    more: int  # that are needed for p95; 0: enough
    days: float | None  # until then, at the present rate; None: never
    audit_share: float | None  # that would take a week; None: no share would


def needs(calls: Sequence[Call], window_s: float) -> list[Need]:
    """Return the audits of each deployment that is launched with a share of the calls that matters.

    ``calls`` must have every audited call of the ``window_s`` seconds, or the present rate is too low.
    """
    counted = audits(calls, [call.weight for call in calls])
    whole = sum(call.weight for call in calls)
    # Calls are drawn for audits, not deployments: the share of one deployment differs from this by chance alone.
    is_mostly_seen = sum(each.watched for each in counted.values()) >= MOSTLY * sum(
        each.overtaken for each in counted.values()
    )
    found = []
    for deployment, each in sorted(counted.items()):
        if each.attempts < LEADING * whole:
            continue
        unseen = max(0.0, each.overtaken - each.watched)
        more = 0 if is_mostly_seen or unseen <= UNSEEN * whole else max(0, AUDITS_FOR_TAIL - each.count)
        days = share = None
        if more and each.watched:
            days = more / (each.watched * _DAY_S / window_s)
        if more and each.overtaken:
            weekly = each.overtaken * 7 * _DAY_S / window_s
            share = more / weekly if more <= weekly else None
        found.append(Need(deployment, each.count, more, days, share))
    return found
