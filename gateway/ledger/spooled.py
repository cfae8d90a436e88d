"""What the rows that wait on disk have cost: at a start while the database is away, limits go on from it."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.core.attempts import Outcome
from gateway.core.calls import Spent, SpentByPayer
from gateway.core.rules import BEATEN
from gateway.ledger.folders import segment_numbers, segment_path

# Of entries only this is decoded: a spool may have millions.


class _Attempt(msgspec.Struct, gc=False):
    started_at: datetime
    outcome: Outcome
    client: str | None = None
    model: str | None = None
    cost_usd: float | None = None
    learnt_as: str | None = None


class _Call(msgspec.Struct, gc=False):
    started_at: datetime
    model: str
    client: str | None = None
    tags: dict[str, str] = {}
    cost_usd: float | None = None
    duplicate_cost_usd: float | None = None
    attempts: tuple[_Attempt, ...] = ()


class _Finished(msgspec.Struct, tag="finished", gc=False):
    call: _Call


class _Audited(msgspec.Struct, tag="audited", gc=False):
    attempts: tuple[_Attempt, ...]


_COUNTED = tuple(b'{"type":"%s"' % kind for kind in (b"finished", b"audited"))
_decode = msgspec.json.Decoder(_Finished | _Audited).decode


class Spooled:
    """Sums of entries of the UTC day, and the UTC month, of ``now``."""

    def __init__(self, now: datetime) -> None:
        self._day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self._month = self._day.replace(day=1)
        self._spent: dict[tuple[str | None, str], list[float]] = {}
        self._of_payers: dict[tuple[str | None, str | None, str | None], list[float]] = {}

    @property
    def spent(self) -> list[Spent]:
        """What clients and models have spent, as the ledger would tell it."""
        return [Spent(client, model, *usd) for (client, model), usd in self._spent.items()]

    @property
    def of_payers(self) -> list[SpentByPayer]:
        """The same of teams and end users."""
        return [SpentByPayer(*who, *usd) for who, usd in self._of_payers.items()]

    def read(self, lines: Iterable[bytes]) -> None:
        """Add the lines of a segment. What cannot be read is not counted: shipping sets it aside."""
        for line in lines:
            if line.startswith(_COUNTED):
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    self._add(_decode(line))

    def _add(self, entry: _Finished | _Audited) -> None:
        if isinstance(entry, _Audited):
            for each in entry.attempts:
                if each.model is not None and each.learnt_as is None:
                    self._count(each.client, each.model, each.started_at, each.cost_usd or 0.0, 0.0)
                    self._count_attempt(each, each.model, each.started_at)
            return
        call, tags = entry.call, entry.call.tags
        usd = call.cost_usd or 0.0
        self._count(call.client, call.model, call.started_at, usd, call.duplicate_cost_usd or 0.0)
        for each in call.attempts:
            if each.learnt_as is None:
                self._count_attempt(each, each.model or call.model, call.started_at)
        payer = (call.client, tags.get("team"), tags.get("end_user"))
        if payer[1:] != (None, None) and call.started_at >= self._month:
            sums = self._of_payers.setdefault(payer, [0.0, 0.0])
            sums[0] += usd if call.started_at >= self._day else 0.0
            sums[1] += usd

    def _count(self, client: str | None, model: str, at: datetime, usd: float, extra_usd: float) -> None:
        if at >= self._month:
            sums = self._spent.setdefault((client, model), [0.0] * 5)
            sums[1] += usd
            if at >= self._day:
                sums[0] += usd
                sums[2] += extra_usd

    def _count_attempt(self, attempt: _Attempt, model: str, at: datetime) -> None:
        """Count an attempt among its model's, which are of no client."""
        if at >= self._day and attempt.cost_usd:
            sums = self._spent.setdefault((None, model), [0.0] * 5)
            sums[3] += attempt.cost_usd
            sums[4] += attempt.cost_usd if attempt.outcome in BEATEN else 0.0


def spooled(spool_dir: Path, own: Path, now: datetime) -> Spooled:
    """Return the sums of all folders of ``spool_dir`` but ``own``; blocks, so call it in a thread.

    What is in the database already is among them: the sums are for a start that cannot ask it.
    """
    found = Spooled(now)
    with suppress(OSError):
        for folder in sorted(spool_dir.iterdir()):
            if folder == own or folder.name.startswith(".") or not folder.is_dir():
                continue
            for number in segment_numbers(folder):
                with suppress(OSError), segment_path(folder, number).open("rb") as lines:
                    found.read(lines)
    return found
