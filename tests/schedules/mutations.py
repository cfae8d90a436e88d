"""Deliberate defects of the engine, which the checks must find: each breaks one promise, in one place."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

from gateway.api.client_sinks import StreamingSink
from gateway.app.recorders import Recorders
from gateway.core.attempts import AttemptRecord, Outcome, Role
from gateway.core.calls import CallRecord, Level
from gateway.fleet import Fleet
from gateway.limits import BegunHolds, Limits
from gateway.live.hub import Hub
from gateway.live.live import OwnCalls
from gateway.overload import Intake
from gateway.racing import (
    AnswerStream,
    Attempt,
    AttemptClocks,
    AttemptTasks,
    Block,
    Measurement,
    OpenCall,
    Outbox,
    Race,
    Rescue,
    Winner,
)
from gateway.racing.attempt import Bid
from gateway.racing.attempts import Attempts
from gateway.racing.backup import Backup
from gateway.racing.continuation import ContinuingSink
from gateway.racing.entry import Entry
from gateway.racing.hold import Hold
from gateway.racing.launches import LaunchSchedule
from gateway.racing.reader import DRAIN_S
from gateway.racing.seam import Seam
from gateway.racing.seats import Line, Seat
from gateway.racing.validation import UNJUDGED, Validity
from gateway.server.connection import Connection
from gateway.settings import RaceSettings
from gateway.steering.budget import Budget
from gateway.steering.learning import Learning
from providers import Exchange, UpstreamError

Mutation = Callable[[pytest.MonkeyPatch], None]


def a_losers_bytes_are_let_through(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Entry, "_overtaken", lambda self, winner, now, **_: [])
    patch.setattr(Entry, "bid", lambda self, attempt, now: self._win(attempt, now) or Bid.WON)


def a_loser_is_not_cancelled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempt, "cut", lambda self, outcome, error=None: self._settle(outcome, error))


def a_provider_is_not_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempt, "_drop", lambda self: None)


def an_attempt_outlives_the_gateway(patch: pytest.MonkeyPatch) -> None:
    async def close(self: AttemptTasks[Any]) -> None:
        """Await nobody."""

    patch.setattr(AttemptTasks, "close", close)


def a_row_is_written_twice(patch: pytest.MonkeyPatch) -> None:
    original = Recorders.call_finished

    def twice(self: Recorders, record: CallRecord) -> None:
        original(self, record)
        self._ledger.call_finished(record)

    patch.setattr(Recorders, "call_finished", twice)


def a_call_is_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    original = OpenCall.finish

    def again(self: OpenCall, *args: Any, **options: Any) -> CallRecord:
        self.record = None
        return original(self, *args, **options)

    patch.setattr(OpenCall, "finish", again)


def a_late_row_is_lost(patch: pytest.MonkeyPatch) -> None:
    original = OpenCall.ended

    def ended(self: OpenCall, attempt: AttemptRecord, at: float, **options: Any) -> None:
        if self.record is None:
            original(self, attempt, at, **options)

    patch.setattr(OpenCall, "ended", ended)


def an_attempt_ends_twice(patch: pytest.MonkeyPatch) -> None:
    original = OpenCall.ended

    def ended(self: OpenCall, attempt: AttemptRecord, at: float, **options: Any) -> None:
        original(self, attempt, at, **options)
        self.services.recorder.attempt_ended("raced", self.call.traits.prompt_class, attempt, 0.0)

    patch.setattr(OpenCall, "ended", ended)


def a_hold_is_never_released(patch: pytest.MonkeyPatch) -> None:
    original = Hold.begin

    def begin(self: Hold[Any], attempt: Any, others: Iterable[Any], now: float) -> bool:
        held = original(self, attempt, others, now)
        self.until += 1e6
        return held

    patch.setattr(Hold, "begin", begin)


def a_token_is_held_without_being_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaceSettings, "holds", lambda self, *, streamed: True)


def a_request_counts_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BegunHolds, "end", lambda self, **_: None)


def a_request_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    async def begin(self: Limits, levels: Sequence[Level], *_: object, before: BegunHolds | None = None) -> BegunHolds:
        return before or BegunHolds(levels, [])

    patch.setattr(Limits, "begin", begin)


def a_seat_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Seat, "give_back", lambda self: None)


def a_seat_is_given_back_too_soon(patch: pytest.MonkeyPatch) -> None:
    original = Seat.__init__

    def taken(self: Seat, line: Line) -> None:
        original(self, line)
        self.give_back()

    patch.setattr(Seat, "__init__", taken)


def a_body_is_drained_for_as_long_as_it_is_open(patch: pytest.MonkeyPatch) -> None:
    async def drain(exchange: Exchange) -> None:
        while await exchange.read():
            pass

    patch.setattr("gateway.racing.attempt.drain", drain)


def a_drain_is_ended_by_an_abort_alone(patch: pytest.MonkeyPatch) -> None:
    async def drain(exchange: Exchange) -> None:
        timer = asyncio.get_running_loop().call_later(DRAIN_S, exchange.abort)
        try:
            while await exchange.read():
                pass
        finally:
            timer.cancel()

    patch.setattr("gateway.racing.attempt.drain", drain)


def nobody_asks_for_a_permit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LaunchSchedule, "_allowed", lambda self, launch, due_s, spoke_at: True)


def an_extra_attempt_costs_nothing(patch: pytest.MonkeyPatch) -> None:
    def draw(self: Budget, role: Role, ratio: float, **_: Any) -> bool:
        return ratio > 0 or role.value in {"primary", "failover", "probe"}

    patch.setattr(Budget, "draw", draw)


def whoever_failed_is_asked_again(patch: pytest.MonkeyPatch) -> None:
    original = LaunchSchedule.next

    def following(self: LaunchSchedule, *, last_resort: bool = False) -> str | None:
        return original(self, last_resort=last_resort) or "ada/other"

    patch.setattr(LaunchSchedule, "next", following)


def the_beginning_of_an_answer_is_lost(patch: pytest.MonkeyPatch) -> None:
    original = AnswerStream.keep

    def keep(self: AnswerStream, block: Any, *, has_token: bool) -> None:
        original(self, block, has_token=has_token)
        self._kept = self._kept[-1:]

    patch.setattr(AnswerStream, "keep", keep)


def events_are_sent_twice(patch: pytest.MonkeyPatch) -> None:
    original = AnswerStream.forward
    patch.setattr(AnswerStream, "forward", lambda self, data: original(self, data) and False)


def an_answer_that_breaks_off_ends_well(patch: pytest.MonkeyPatch) -> None:
    async def fail(self: StreamingSink, error: object) -> None:
        await self._finish(b"data: [DONE]\n\n")

    patch.setattr(StreamingSink, "fail", fail)


def a_client_that_leaves_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempts, "cut_all", lambda self, reason: None)


def a_reload_closes_what_is_in_use(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fleet, "hold", lambda self: None)
    patch.setattr(Fleet, "let_go", lambda self, _task=None: None)
    patch.setattr(Fleet, "__enter__", lambda self: self)
    patch.setattr(Fleet, "__exit__", lambda self, *_: None)


def a_timer_is_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AttemptClocks, "stop", lambda self: None)


def a_race_is_kept_by_its_attempts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempts, "forget", lambda self: None)


def the_first_token_is_timed_from_the_call(patch: pytest.MonkeyPatch) -> None:
    original = Attempt.__init__

    def since_received(self: Attempt, race: Any, *args: Any) -> None:
        original(self, race, *args)
        self.measurement = Measurement(race.call.caller.received_at)

    patch.setattr(Attempt, "__init__", since_received)


def the_first_token_counts_as_decoded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Measurement, "_first_tokens", lambda self, n: 0)


def a_first_token_is_counted_twice(patch: pytest.MonkeyPatch) -> None:
    original = Learning.first_token

    def twice(self: Learning, *args: Any) -> None:
        original(self, *args)
        original(self, *args)

    patch.setattr(Learning, "first_token", twice)


def a_loser_is_called_a_failure(patch: pytest.MonkeyPatch) -> None:
    original = Attempt.end

    def end(self: Attempt, outcome: Outcome, error: UpstreamError | None = None) -> None:
        original(self, Outcome.WON if outcome is Outcome.LOST else outcome, error)

    patch.setattr(Attempt, "end", end)


def more_calls_are_taken_on_than_may_be(patch: pytest.MonkeyPatch) -> None:
    def call_up(self: Intake) -> None:
        while self._queue:
            waiting = self._queue.pop()
            assert waiting is not None
            self.in_flight += 1
            self._seats[waiting.owner] = self._seats.get(waiting.owner, 0) + 1
            waiting.turn.set_result(None)

    patch.setattr(Intake, "_serve_queue", call_up)


def a_refusal_leaves_its_request_behind(patch: pytest.MonkeyPatch) -> None:
    def is_refused(self: Connection) -> bool:
        message: Any = self._messages[0][0]
        client = self._fast_refusal.client_of(message, None)
        if client is None or self.transport is None:
            return False
        self.transport.write(self._fast_refusal.refusal(message, client, None))
        return True

    patch.setattr(Connection, "_is_refused", is_refused)


def an_invalid_answer_is_let_through(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Validity, "check", lambda self: None)


def an_answer_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gateway.racing.validation.judge", lambda call, outcome, measurement, text: UNJUDGED)


def no_rival_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backup, "choose", lambda self, losers: None)


def a_rival_is_not_called(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Entry, "_call_backup", lambda self, release: False)


def a_rival_runs_on_when_it_is_not_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Entry, "dismiss_backup", lambda self: None)


def recorders_are_told_at_once(patch: pytest.MonkeyPatch) -> None:
    original = Outbox.add

    def add(self: Outbox, tell: Callable[..., None], *args: Any) -> None:
        original(self, tell, *args)
        self.drain()

    patch.setattr(Outbox, "add", add)


def what_waits_is_told_before_the_first_bytes(patch: pytest.MonkeyPatch) -> None:
    original = Entry.begin

    def begin(self: Entry, *args: Any, **options: Any) -> Any:
        self.open_call.services.outbox.drain()
        return original(self, *args, **options)

    patch.setattr(Entry, "begin", begin)


def what_waits_is_lost_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "drain", lambda self: None)


def a_slow_one_is_cut_before_another_goes_on(patch: pytest.MonkeyPatch) -> None:
    original = ContinuingSink.begin

    async def begin(self: ContinuingSink, winner: Winner) -> None:
        await original(self, winner)
        if self._on_text is not None:
            self._on_text()
        await self._running.close()

    patch.setattr(ContinuingSink, "begin", begin)


def a_word_at_the_seam_is_sent_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Seam, "_rest", lambda self: self._came)


def what_is_to_be_held_back_is_sent(patch: pytest.MonkeyPatch) -> None:
    async def write(self: Rescue, block: Block) -> None:
        await self._sink.write(block)

    patch.setattr(Rescue, "write", write)


def what_was_held_back_is_lost(patch: pytest.MonkeyPatch) -> None:
    original = Rescue.settle

    def settle(self: Rescue) -> None:
        original(self)
        self._held.clear()

    patch.setattr(Rescue, "settle", settle)


def the_late_model_does_not_give_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Entry, "give_way", lambda self, *, runs_on: None)


def the_late_models_attempts_run_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Entry, "give_way", lambda self, *, runs_on: self.leave())


def a_fallback_that_wins_is_not_used(patch: pytest.MonkeyPatch) -> None:
    original = Race.settle

    def settle(self: Race, entry: Entry) -> None:
        first, self.entries = self.entries, [entry, *(each for each in self.entries if each is not entry)]
        original(self, entry)
        self.entries = first

    patch.setattr(Race, "settle", settle)


def the_winning_model_gives_way_as_well(patch: pytest.MonkeyPatch) -> None:
    original = Race.settle

    def settle(self: Race, entry: Entry) -> None:
        original(self, entry)
        if self.entries[1:]:
            entry.leave()

    patch.setattr(Race, "settle", settle)


def a_first_token_is_not_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnCalls, "first_token", lambda *_: None)


def the_end_of_an_attempt_is_not_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnCalls, "attempt_ended", lambda *_: None)


def the_end_of_a_call_is_not_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnCalls, "call_finished", lambda *_: None)


def what_was_told_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hub, "clear", lambda _: None)


# Somebody must be looking for these to be noticed.
UNTOLD: Collection[Mutation] = (
    a_first_token_is_not_shown,
    the_end_of_an_attempt_is_not_shown,
    the_end_of_a_call_is_not_shown,
)
MUTATIONS: Collection[Mutation] = (
    a_losers_bytes_are_let_through,
    a_loser_is_not_cancelled,
    a_provider_is_not_dropped,
    an_attempt_outlives_the_gateway,
    a_row_is_written_twice,
    a_call_is_recorded_twice,
    a_late_row_is_lost,
    an_attempt_ends_twice,
    a_hold_is_never_released,
    a_token_is_held_without_being_asked_for,
    a_request_counts_for_good,
    a_request_is_not_counted,
    a_seat_is_not_given_back,
    a_seat_is_given_back_too_soon,
    a_body_is_drained_for_as_long_as_it_is_open,
    a_drain_is_ended_by_an_abort_alone,
    nobody_asks_for_a_permit,
    an_extra_attempt_costs_nothing,
    whoever_failed_is_asked_again,
    the_beginning_of_an_answer_is_lost,
    events_are_sent_twice,
    an_answer_that_breaks_off_ends_well,
    a_client_that_leaves_is_not_noticed,
    a_reload_closes_what_is_in_use,
    a_timer_is_left,
    a_race_is_kept_by_its_attempts,
    the_first_token_is_timed_from_the_call,
    the_first_token_counts_as_decoded,
    a_first_token_is_counted_twice,
    a_loser_is_called_a_failure,
    more_calls_are_taken_on_than_may_be,
    a_refusal_leaves_its_request_behind,
    an_invalid_answer_is_let_through,
    an_answer_is_not_checked,
    no_rival_is_kept,
    a_rival_is_not_called,
    a_rival_runs_on_when_it_is_not_needed,
    recorders_are_told_at_once,
    what_waits_is_told_before_the_first_bytes,
    what_waits_is_lost_at_the_end,
    a_slow_one_is_cut_before_another_goes_on,
    a_word_at_the_seam_is_sent_twice,
    what_is_to_be_held_back_is_sent,
    what_was_held_back_is_lost,
    the_late_model_does_not_give_way,
    the_late_models_attempts_run_on,
    a_fallback_that_wins_is_not_used,
    the_winning_model_gives_way_as_well,
)
