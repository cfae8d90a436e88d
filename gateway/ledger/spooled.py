"""The usage in rows that wait on disk: if the database cannot be reached at a start, limits go on from this usage."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.core.attempts import Outcome
from gateway.core.calls import LimitUse, Spent
from gateway.core.rules import BEATEN
from gateway.ledger.folders import segment_numbers, segment_path

# The decoded part of entries: a spool may have millions, so the rest is skipped.


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
    answered_model: str | None = None
    tags: dict[str, str] = {}
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    duplicate_cost_usd: float | None = None
    attempts: tuple[_Attempt, ...] = ()


class _Finished(msgspec.Struct, tag="finished", gc=False):
    call: _Call


class _Audited(msgspec.Struct, tag="audited", gc=False):
    attempts: tuple[_Attempt, ...]


_COUNTED = tuple(b'{"type":"%s"' % kind for kind in (b"finished", b"audited"))
_decode = msgspec.json.Decoder(_Finished | _Audited).decode


class SpoolSums:
    """Sums of entries: dollars of the UTC day of ``now``, and the usage since each of ``since_s``."""

    def __init__(self, now: datetime, since_s: Sequence[float] = ()) -> None:
        self._day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self._since_s = since_s
        self._spent: dict[tuple[str | None, str], list[float]] = {}
        # By client, team, end user and model: of the first three, or of the last only.
        self._used: dict[tuple[str | None, str | None, str | None, str | None], list[list[float]]] = {}

    @property
    def spent(self) -> list[Spent]:
        """Dollars by client and model of the day, as the ledger sums them."""
        return [Spent(client, model, *usd) for (client, model), usd in self._spent.items()]

    @property
    def used(self) -> list[LimitUse]:
        """The usage of clients, models, teams and end users, as the ledger sums it."""
        return [
            LimitUse(since_s, usd, tokens, *who)
            for who, sums in self._used.items()
            for since_s, (usd, tokens) in zip(self._since_s, sums, strict=True)
        ]

    def read(self, lines: Iterable[bytes]) -> None:
        """Add the lines of a segment. Unreadable lines are skipped; shipping sets them aside."""
        for line in lines:
            if line.startswith(_COUNTED):
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    self._add(_decode(line))

    def _add(self, entry: _Finished | _Audited) -> None:
        if isinstance(entry, _Audited):
            for each in entry.attempts:
                if each.model is not None and each.learnt_as is None:
                    usd = each.cost_usd or 0.0
                    self._count(each.client, each.model, each.started_at, usd, 0.0)
                    self._use((each.client, None, None, None), each.started_at, usd)
                    self._count_attempt(each, each.model, each.started_at)
            return
        call, tags = entry.call, entry.call.tags
        usd, tokens = call.cost_usd or 0.0, float((call.prompt_tokens or 0) + (call.completion_tokens or 0))
        self._count(call.client, call.model, call.started_at, usd, call.duplicate_cost_usd or 0.0)
        self._use((call.client, None, None, None), call.started_at, usd, tokens)
        self._use((None, None, None, call.answered_model or call.model), call.started_at, 0.0, tokens)
        for each in call.attempts:
            if each.learnt_as is None:
                self._count_attempt(each, each.model or call.model, call.started_at)
        team, end_user = tags.get("team"), tags.get("end_user")
        if (team, end_user) != (None, None):
            self._use((call.client, team, end_user, None), call.started_at, usd, tokens)

    def _use(
        self,
        who: tuple[str | None, str | None, str | None, str | None],
        at: datetime,
        usd: float,
        tokens: float = 0.0,
    ) -> None:
        sums = self._used.setdefault(who, [[0.0, 0.0] for _ in self._since_s])
        at_s = at.timestamp()
        for since_s, each in zip(self._since_s, sums, strict=True):
            if at_s >= since_s:
                each[0] += usd
                each[1] += tokens

    def _count(self, client: str | None, model: str, at: datetime, usd: float, extra_usd: float) -> None:
        if at >= self._day:
            sums = self._spent.setdefault((client, model), [0.0] * 3)
            sums[0] += usd
            sums[1] += extra_usd

    def _count_attempt(self, attempt: _Attempt, model: str, at: datetime) -> None:
        """Count an attempt for its model; the client is None."""
        usd = attempt.cost_usd or 0.0
        self._use((None, None, None, model), at, usd)
        if at >= self._day and usd and attempt.outcome in BEATEN:
            self._spent.setdefault((None, model), [0.0] * 3)[2] += usd


def spooled(spool_dir: Path, own: Path, now: datetime, since_s: Sequence[float]) -> SpoolSums:
    """Return the sums of all folders of ``spool_dir`` but ``own``; blocks, so call it in a thread.

    Rows that are in the database already count, too: the sums are for a start that cannot ask the database.
    """
    sums = SpoolSums(now, since_s)
    with suppress(OSError):
        for folder in sorted(spool_dir.iterdir()):
            if folder == own or folder.name.startswith(".") or not folder.is_dir():
                continue
            for number in segment_numbers(folder):
                with suppress(OSError), segment_path(folder, number).open("rb") as lines:
                    sums.read(lines)
    return sums
