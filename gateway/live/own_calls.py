"""The calls of this process: what recorders hear of them, turned into events of the hub."""

from collections.abc import Callable, Iterator
from datetime import datetime

from gateway.attempt_records import AttemptRecord, AttemptStart
from gateway.calls import Call, CallRecord
from gateway.live.events import Began, Done, Ended, First, Launched
from gateway.live.hub import Hub
from gateway.racing.attempt import Attempt
from gateway.racing.milliseconds import milliseconds
from gateway.racing.open_call import OpenCall
from gateway.racing.tasks import AttemptTasks


class OwnCalls:
    """Hears of calls while somebody looks, beginning with those that run already. ``clock``: monotonic seconds.

    Nothing here waits, and nothing is sent: a call pays for making its events, and no more.
    """

    def __init__(
        self, hub: Hub, tasks: AttemptTasks[Attempt, OpenCall], *, clock: Callable[[], float], replica: str, worker: str
    ) -> None:
        self._hub = hub
        self._tasks = tasks
        self._clock = clock
        self._replica = replica
        self._worker = worker
        self._launched_at: dict[str, float] = {}  # running attempts, in seconds of the clock
        for attempt in tasks.attempts:
            if attempt.ending is None:
                race, token_at = attempt.race, attempt.token_at()
                ttft_s = None if token_at is None else token_at - attempt.measurement.started
                self._find(race.open_call, race.call, attempt.start, ttft_s)
        for open_call, start in tasks.relayed.values():
            self._find(open_call, open_call.call, start)
        self.sample()

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Show a launch, and before the first one its call."""
        known = self._hub.call(call.id) or self._hub.began(self._began(call))
        self._launched_at[start.id] = _launched_at(call, start)
        self._hub.launched(_launched(known.began, start))

    def first_token(self, start: AttemptStart, ttft_s: float) -> None:
        """Show a first token."""
        lane = self._hub.lane(start.id)
        if lane is not None:
            self._hub.first(First(call=lane.launched.call, attempt=start.id, ttft_ms=milliseconds(ttft_s)))

    def attempt_ended(self, attempt: AttemptRecord, ago_s: float) -> None:
        """Show an attempt's end, which was ``ago_s`` seconds ago."""
        at = self._launched_at.pop(attempt.id, None)
        self._hub.ended(_ended(attempt, None if at is None else self._clock() - ago_s - at))

    def call_finished(self, record: CallRecord) -> None:
        """Show a call's end. One that is not known yet never had an attempt since somebody looks."""
        if self._hub.call(record.id) is None:
            began = self._hub.began(self._began_of(record)).began
            for attempt in record.attempts:
                self._past(began, attempt)
        self._hub.done(
            Done(
                id=record.id,
                status=record.status_code,
                winner=record.winner_attempt_id,
                ttft_ms=record.ttft_ms,
                total_ms=record.total_ms,
                completion_tokens=record.completion_tokens,
                cost_usd=record.cost_usd,
                error=record.error_kind,
            )
        )

    def sample(self) -> None:
        """Show how many tokens the running attempts have."""
        self._hub.counted(self._tokens())

    def _tokens(self) -> Iterator[tuple[str, int]]:
        for attempt in self._tasks.attempts:
            if attempt.measurement.meaningful and attempt.ending is None:
                yield attempt.start.id, attempt.measurement.tokens_so_far

    def _find(self, open_call: OpenCall, call: Call, start: AttemptStart, ttft_s: float | None = None) -> None:
        """Add a call that runs when somebody begins to look, with an attempt that does."""
        if open_call.record is not None:
            return  # an audited loser; its call is over
        known = self._hub.call(call.id)
        if known is None:
            known = self._hub.began(self._began(call))
            for ended in open_call.attempts:
                self._past(known.began, ended)
        self._launched_at[start.id] = _launched_at(call, start)
        self._hub.launched(_launched(known.began, start))
        if ttft_s is not None:
            self.first_token(start, ttft_s)

    def _past(self, began: Began, attempt: AttemptRecord) -> None:
        """Show an attempt that has ended before its call was known."""
        self._hub.launched(_launched(began, attempt))
        if attempt.token_ms is not None:
            self._hub.first(First(call=attempt.call_id, attempt=attempt.id, ttft_ms=attempt.token_ms))
        self._hub.ended(_ended(attempt, None))

    def _began(self, call: Call) -> Began:
        return Began(
            id=call.id,
            at_ms=_unix_ms(call.started_at),
            client=call.client,
            model=call.asked_model or call.model,
            endpoint=call.endpoint,
            streamed=call.streamed,
            mode=str(call.mode),
            objective=str(call.objective),
            replica=self._replica,
            worker=self._worker,
        )

    def _began_of(self, record: CallRecord) -> Began:
        return Began(
            id=record.id,
            at_ms=_unix_ms(record.started_at),
            client=record.client,
            model=record.model,
            endpoint=record.endpoint,
            streamed=record.streamed,
            mode=str(record.mode),
            objective=str(record.objective),
            replica=self._replica,
            worker=self._worker,
        )


def _launched_at(call: Call, start: AttemptStart) -> float:
    """Return when an attempt was launched, in seconds of the clock; a recorder may hear of it a little later."""
    return call.received_at + start.launch_offset_ms / 1000


def _launched(began: Began, start: AttemptStart | AttemptRecord) -> Launched:
    return Launched(
        call=began.id,
        attempt=start.id,
        number=start.number,
        deployment=start.deployment,
        provider=start.provider,
        role=str(start.role),
        at_ms=began.at_ms + int(start.launch_offset_ms),  # a date costs ten times as much
        offset_ms=start.launch_offset_ms,
    )


def _ended(attempt: AttemptRecord, age_s: float | None) -> Ended:
    return Ended(
        call=attempt.call_id,
        attempt=attempt.id,
        outcome=str(attempt.outcome),
        ms=None if age_s is None else milliseconds(age_s),
        tokens=attempt.completion_tokens,
        error=None if attempt.error_kind is None else str(attempt.error_kind),
    )


def _unix_ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)
