"""The book of probes in Postgres or SQLite: what they cost is reserved before they are sent, one process at a time."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.ledger.own_connection import OwnConnection
from gateway.ledger.tables import attempts, outages, probes
from gateway.probe_records import Decide, Facts, NotProbed, Probe, ProbeEnd, ProbeOutcome, ProbesUnreachable

TIMEOUT_S = 5.0  # of everything that is asked; each takes some milliseconds
LAST = 16  # probes of a deployment that are looked at for failures in a row
OUTAGE = timedelta(days=1)  # an older one without an end is of a process that was killed
# One process at a time decides, so that each sees what all others have reserved.
_LOCK = text("select pg_advisory_xact_lock(hashtext('holeshot.probes'))")


class SqlProbeBook:
    """The table ``probes``; it connects when first used."""

    def __init__(self, url: str) -> None:
        """Use the ledger's database at ``url``, with a connection of its own: the ledger may be busy shipping.

        Raises:
            DatabaseUrlError: ``url`` is invalid.

        """
        self._database = OwnConnection(url, ProbesUnreachable)
        self._instant = self._database.instant

    async def reserve(self, probe: Probe, decide: Decide, *, since: datetime) -> NotProbed | None:
        """Write ``probe`` down unless ``decide`` says why not. No other process decides meanwhile."""
        async with self._database.open(TIMEOUT_S, writes=True, lock=_LOCK) as connection:
            reason = decide(await self._facts(connection, probe, since))
            if reason is None:
                row = insert(probes).values(
                    id=probe.id,
                    started_at=self._instant(probe.started_at),
                    model=probe.model,
                    deployment=probe.deployment,
                    replica=probe.replica,
                    reserved_usd=probe.reserved_usd,
                )
                await connection.execute(row)
                await connection.commit()
            return reason

    async def settle(self, probe_id: str, end: ProbeEnd) -> None:
        """Write down how a probe ended, and what it cost."""
        async with self._database.open(TIMEOUT_S) as connection:
            values = {
                "ended_at": self._instant(end.ended_at),
                "outcome": str(end.outcome),
                "error_kind": end.error_kind,
                "ttft_ms": end.ttft_ms,
                "cost_usd": end.cost_usd,
            }
            await connection.execute(update(probes).where(probes.c.id == probe_id).values(values))
            await connection.commit()

    async def aclose(self) -> None:
        """Dispose of the engine; a server that hangs does not delay this for long."""
        await self._database.aclose(TIMEOUT_S)

    async def _facts(self, connection: AsyncConnection, probe: Probe, since: datetime) -> Facts:
        day = probe.started_at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        booked = probes.c
        usd = func.coalesce(func.sum(func.coalesce(booked.cost_usd, booked.reserved_usd)), 0.0)
        today = await connection.execute(select(usd, func.count()).where(booked.started_at >= self._instant(day)))
        spent_usd, number = today.one()
        last = (
            await connection.execute(
                select(booked.started_at, booked.outcome)
                .where(booked.deployment == probe.deployment)
                .order_by(booked.started_at.desc())
                .limit(LAST)
            )
        ).all()
        called = await connection.scalar(
            select(func.max(attempts.c.started_at)).where(
                attempts.c.deployment == probe.deployment, attempts.c.started_at >= self._instant(since)
            )
        )
        broken = await connection.scalar(
            select(func.count()).where(
                outages.c.deployment == probe.deployment,
                outages.c.ended_at.is_(None),
                outages.c.began_at >= self._instant(probe.started_at - OUTAGE),
            )
        )
        return Facts(
            spent_usd=float(spent_usd),
            probes=int(number),
            probed_at=_read(last[0].started_at) if last else None,
            failures=_failures([row.outcome for row in last]),
            called_at=_read(called),
            is_broken=bool(broken),
        )


def _failures(outcomes: list[str | None]) -> int:
    """Return how many of the last probes failed, in a row. One without an end, or cancelled, says nothing."""
    told = [outcome for outcome in outcomes if outcome in {ProbeOutcome.ANSWERED, ProbeOutcome.FAILED}]
    return next((at for at, outcome in enumerate(told) if outcome == ProbeOutcome.ANSWERED), len(told))


def _read(value: Any) -> datetime | None:
    """Return an instant as the database gave it; SQLite has no time zones."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
