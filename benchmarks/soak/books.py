"""The ledger's rows beside the calls that were made: each must have one, and no row may be of no call."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.soak.clients import Made
from benchmarks.soak.configuration import NOWHERE
from benchmarks.soak.endings import Ending
from gateway.ledger import tables
from providers import ErrorKind

_MOST = 100  # calls whose attempts are told


class Row(msgspec.Struct, frozen=True):
    """A row of ``calls``, as far as it is looked at."""

    request_id: str
    status: int


class Books(msgspec.Struct, frozen=True):
    """What was found. ``unbegun``: their clients left before the gateway had read them, and no provider was asked.

    Others are request ids: ``missing`` have no row, ``doubled`` several; ``strange`` are of no call; ``misjudged``
    were answered in whole, and their rows say something else.
    """

    rows: int
    unbegun: int
    missing: Sequence[str]
    doubled: Sequence[str]
    strange: Sequence[str]
    misjudged: Sequence[str]

    @property
    def balance(self) -> bool:
        """Whether every call has its one row."""
        return not (self.missing or self.doubled or self.strange or self.misjudged)


async def read(engine: AsyncEngine) -> tuple[list[Row], int]:
    """Return the rows of all calls, and how many attempts met a closed port."""
    calls, attempts = tables.calls, tables.attempts
    refused = select(func.count()).where(
        attempts.c.provider == NOWHERE, attempts.c.error_kind == ErrorKind.CONNECT_ERROR.value
    )
    async with engine.connect() as connection:
        found = await connection.execute(select(calls.c.request_id, calls.c.status_code))
        rows = [Row(request_id or "", status) for request_id, status in found]
        return rows, int((await connection.execute(refused)).scalar_one())


async def attempts_of(engine: AsyncEngine, request_ids: Collection[str]) -> dict[str, list[str]]:
    """Return how the attempts of some calls went, in the order of their launch, by request id."""
    calls, attempts = tables.calls, tables.attempts
    columns = (attempts.c[name] for name in ("deployment", "role", "outcome", "error_kind", "launch_offset_ms"))
    query = select(calls.c.request_id, *columns).join(attempts, attempts.c.call_id == calls.c.id)
    told: dict[str, list[str]] = {}
    async with engine.connect() as connection:
        asked = query.where(calls.c.request_id.in_(list(request_ids)[:_MOST])).order_by(attempts.c.number)
        for request_id, deployment, role, outcome, error_kind, at_ms in await connection.execute(asked):
            why = f" ({error_kind})" if error_kind else ""
            told.setdefault(request_id, []).append(f"{deployment} {role} at {at_ms:.0f} ms: {outcome}{why}")
    return told


def compared(rows: Iterable[Row], made: Iterable[Made], seen: Collection[int]) -> Books:
    """Return how rows and calls compare; ``seen`` are the numbers of calls that reached a provider."""
    statuses: dict[str, int] = {}
    times: Counter[str] = Counter()
    for row in rows:
        times[row.request_id] += 1
        statuses[row.request_id] = row.status
    by_id = {one.job.request_id: one for one in made}
    without = [one for name, one in by_id.items() if name not in times]
    unbegun = [one for one in without if one.ending is Ending.LEFT and one.job.number not in seen]
    return Books(
        rows=times.total(),
        unbegun=len(unbegun),
        missing=sorted({one.job.request_id for one in without} - {one.job.request_id for one in unbegun}),
        doubled=sorted(name for name, number in times.items() if number > 1),
        strange=sorted(times.keys() - by_id.keys()),
        misjudged=sorted(
            name
            for name, one in by_id.items()
            if one.ending is Ending.ANSWERED and one.job.leave_s is None and statuses.get(name, 200) != 200
        ),
    )
