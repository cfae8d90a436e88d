"""One call, run as the gateway runs it, in simulated time.

Who is launched when, who replaces whom, and holds are the gateway's own ``LaunchSchedule`` and ``Hold``. The
rest mirrors ``gateway/racing/race.py``, and the parts of ``attempt.py`` that watch audited losers.
"""

from collections.abc import Callable

from msgspec import Struct

from benchmarks.steering.attempt import EPOCH, TIMEOUTS, Attempt
from benchmarks.steering.fleet import Fleet
from benchmarks.steering.policy import MODEL, Policy
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request
from benchmarks.steering.worlds import TIMEOUT_S
from gateway.core.attempts import EXPLORING, AttemptStart, Outcome, Role
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.core.prompt_classes import encoded_class
from gateway.racing.hold import Hold
from gateway.racing.launches import LaunchSchedule
from gateway.racing.measurement import AUDIT_S, AUDIT_TOKENS, AUDIT_TOKENS_S
from gateway.settings import RaceSettings, Settings
from gateway.steering import Launch, Plan
from providers import ErrorKind, OfCall

PATIENCE_S = Settings.model_fields["queue_timeout_s"].default
READING_TOK_S = RaceSettings().reading_tok_s


class Result(Struct):
    """What became of one call. Seconds count from its arrival; None: it failed."""

    index: int
    at_s: float
    once: int  # tokens one attempt pays, prompt and answer
    ttft_s: float | None = None
    total_s: float | None = None
    waited_s: float | None = None  # by a reader: for the first token, and later for text that is not there yet
    tokens: int = 0  # paid, by all attempts
    usd: float = 0.0
    launched: int = 0  # attempts of any role
    extra: int = 0  # attempts that started while another one ran, whatever their role
    extra_at_s: float | None = None  # when the first of these started
    deployment: str | None = None  # whose answer it was
    primary: str | None = None  # who was asked first
    stall_s: float = 0.0  # of silence within it
    is_flawed: bool = False
    overtaken: bool = False  # by another model's race


def reading_wait_s(ttft_s: float, total_s: float, *, answer_tokens: int, stall_s: float) -> float:
    """Return how long a reader of r tok/s waits: TTFT + max(longest stall, n/v - n/r), in seconds.

    As the client sees it: n/v is the time from the first token that it gets to the last.
    """
    return ttft_s + max(stall_s, total_s - ttft_s - answer_tokens / READING_TOK_S)


class Race:
    """Runs one plan; ``done`` is called once, with the result, when the call and its last audit are over."""

    def __init__(
        self,
        request: Request,
        plan: Plan,
        policy: Policy,
        fleet: Fleet,
        timeline: Timeline,
        *,
        objective: Objective,
        done: Callable[[Result], None],
        deadline_s: float | None = None,
        won: Callable[[], None] = lambda: None,
        again: Callable[[], Plan] | None = None,
    ) -> None:
        """``won`` is called when an attempt has won; ``again`` plans once more, after a wait for who is limited."""
        self._request = request
        self._plan = plan
        self._policy = policy
        self._fleet = fleet
        self._timeline = timeline
        self._objective = objective
        self._done = done
        self._won = won
        self._received_at_s = timeline.now_s
        self._again = again
        self._waited_s = 0.0
        self._schedule = self._scheduled(plan)
        self._attempts: list[Attempt] = []
        self._running: list[Attempt] = []
        self._audited: list[Attempt] = []
        deadline_at = None if deadline_s is None else timeline.now_s + deadline_s
        self._hold: Hold[Attempt] = Hold(plan.decode_s, deadline_at=deadline_at)
        self._winner: Attempt | None = None
        self._claimed_at_s: float | None = None
        self._record: CallRecord | None = None
        self._result = Result(request.index, request.at_s, request.prompt_tokens + request.answer_tokens)

    def start(self) -> None:
        """Launch what starts now, schedule the rest."""
        if not self._plan.launches:
            self._limited(self._plan.free_in_s)
            return
        self._result.primary = self._plan.launches[0].deployment
        for launch in tuple(self._schedule.open(self._timeline.now_s)):
            self._launch(launch)
        self._wait_for_the_next()

    def _wait_for_the_next(self) -> None:
        """Go on when the next launch is due."""
        if (due_at := self._schedule.due_at) is not None:
            self._timeline.at(due_at, self._launch_due)

    def _launch_due(self) -> None:
        for launch in self._schedule.due(self._timeline.now_s, None):
            if launch is None:
                self._replace()
            else:
                self._launch(launch)
        self._wait_for_the_next()

    def _scheduled(self, plan: Plan) -> LaunchSchedule:
        return LaunchSchedule(
            plan,
            now=self._timeline.now_s,
            may_launch=self._policy.permit,
            lines={},  # nobody here has max_in_flight
            on_seat_refused=lambda _: None,
            sent=OfCall(),
        )

    def _limited(self, free_in_s: float | None) -> None:
        """Wait for the first that is free again, if it says so and that is soon; then plan once more. Else fail."""
        if self._again is None or free_in_s is None or self._waited_s + free_in_s > PATIENCE_S:
            self._close(429)
            return
        wait_s = min(PATIENCE_S - self._waited_s, self._policy.turn_s(free_in_s))
        self._waited_s += wait_s
        self._timeline.after(wait_s, self._start_again)

    def _start_again(self) -> None:
        assert self._again is not None
        self._plan = self._again()
        self._schedule = self._scheduled(self._plan)
        self.start()

    # Attempts

    def _launch(self, launch: Launch) -> None:
        now_s = self._timeline.now_s
        start = AttemptStart(
            id=f"{self._request.index}.{len(self._attempts)}",
            number=len(self._attempts) + 1,
            started_at=EPOCH,
            role=launch.role,
            provider=launch.deployment,
            deployment=launch.deployment,
            launch_offset_ms=(now_s - self._received_at_s) * 1000,
            asked_tokens=self._request.prompt_tokens,
            audited=launch.audited,
            weight=launch.weight,
        )
        earlier = sum(each.start.deployment == launch.deployment for each in self._attempts)
        self._policy.attempt_started(start)
        answer = self._fleet.ask(launch.deployment, self._request, earlier, now_s)
        attempt = Attempt(self._request, start, answer, now_s)
        self._result.launched += 1
        if self._running:
            self._result.extra += 1
            if self._result.extra_at_s is None:
                self._result.extra_at_s = now_s - self._received_at_s
        self._attempts.append(attempt)
        self._running.append(attempt)
        if answer.ttft_s is None:
            attempt.timers.append(self._timeline.after(answer.end_s, lambda: self._failed(attempt)))
        else:
            attempt.timers.append(self._timeline.after(answer.ttft_s, lambda: self._first_token(attempt)))
            attempt.timers.append(self._timeline.after(answer.end_s, lambda: self._ended(attempt)))

    def _first_token(self, attempt: Attempt) -> None:
        now_s = attempt.token_at_s = self._timeline.now_s
        self._policy.first_token(self._request, attempt.start, now_s - attempt.launched_at_s)
        if attempt.watched:
            self._watch_speed(attempt)
            return
        leader = self._hold.leader
        others = [other for other in self._running if other is not attempt]
        if leader is None and self._hold.begin(attempt, others, now_s):
            self._schedule.close()
            self._timeline.at(self._hold.until, lambda: self._hold_over(attempt))
        elif leader is not None and not self._hold.overtakes(attempt):
            self._running.remove(attempt)
            self._let_go(attempt)
        else:
            self._win(attempt)

    def _hold_over(self, attempt: Attempt) -> None:
        if self._hold.leader is attempt:
            self._win(attempt)

    def _ended(self, attempt: Attempt) -> None:
        """Take the end of the whole answer."""
        if attempt.watched:
            self._end(attempt, Outcome.SUPERSEDED)
            return
        if self._winner is None:  # held, and done before the hold was
            self._win(attempt)
        assert self._claimed_at_s is not None
        assert attempt.token_at_s is not None
        held_s = self._claimed_at_s - attempt.token_at_s
        self._result.ttft_s = (self._claimed_at_s or self._timeline.now_s) - self._received_at_s
        self._result.total_s = self._timeline.now_s - self._received_at_s
        self._result.waited_s = reading_wait_s(
            self._result.ttft_s,
            self._result.total_s,
            answer_tokens=self._request.answer_tokens,
            stall_s=max(0.0, attempt.answer.stall_s - held_s),
        )
        self._result.deployment = attempt.start.deployment
        self._result.stall_s = attempt.answer.stall_s
        self._result.is_flawed = attempt.answer.is_flawed
        self._end(attempt, Outcome.WON)
        self._close(200)

    def _failed(self, attempt: Attempt) -> None:
        kind = attempt.answer.error
        self._end(attempt, Outcome.TIMEOUT if kind in TIMEOUTS else Outcome.FAILED)
        if attempt.watched:
            return
        self._running.remove(attempt)
        if (held := self._hold.failed(attempt, self._running)) is not None:
            self._win(held)
        if self._winner is not None or self._hold.leader is not None:
            return
        if attempt.start.role in EXPLORING and self._schedule.is_in_turn and self._running:
            return
        if not self._replace() and not self._running:
            if kind is ErrorKind.RATE_LIMITED and all(each.answer.error is kind for each in self._attempts):
                stated = [each.answer.retry_after_s for each in self._attempts if each.answer.retry_after_s]
                self._limited(min(stated, default=None))
            else:
                self._close(429 if kind is ErrorKind.RATE_LIMITED else 502)

    def _replace(self) -> bool:
        """Launch the next candidate in place of an attempt that failed."""
        name = self._schedule.next()
        late = self._timeline.now_s - self._received_at_s >= TIMEOUT_S
        if name is None or (
            late and len(self._attempts) > 1
        ):  # who hung through the whole clock alone is replaced once
            return False
        self._launch(Launch(deployment=name, delay_s=0.0, role=Role.FAILOVER))
        return True

    # Winning and losing

    @property
    def is_decided(self) -> bool:
        """Whether an attempt has won, or all have failed."""
        return self._winner is not None or self._record is not None

    @property
    def attempts(self) -> list[str]:
        """The ids of the attempts so far."""
        return [each.start.id for each in self._attempts]

    def give_way(self, *, runs_on: bool) -> None:
        """End without an answer: another model's race has won. ``runs_on``: the primary does, to its first token."""
        self._hold.end()
        self._schedule.close()
        for loser in tuple(self._running):
            if loser is self._attempts[0] and runs_on and loser.token_at_s is None:
                loser.watched = True
                self._audited.append(loser)
            else:
                self._end(loser, Outcome.LOST)
        self._running = []
        self._result.overtaken = True
        self._close(200)

    def _win(self, attempt: Attempt) -> None:
        self._winner = attempt
        self._won()
        self._claimed_at_s = self._timeline.now_s
        self._hold.end()
        self._schedule.close()
        for other in self._running:
            if other is not attempt:
                self._let_go(other)
        self._running = [attempt]

    def _let_go(self, loser: Attempt) -> None:
        if not loser.start.audited or (loser.token_at_s is not None and not self._plan.explores):
            self._end(loser, Outcome.LOST)
            return
        loser.watched = True
        self._audited.append(loser)
        if loser is self._attempts[0] and loser.token_at_s is None and not self._plan.explores:
            assert self._plan.primary is not None
            loser.overtaken_at_s = self._timeline.now_s - loser.launched_at_s
            loser.predicted_s = self._plan.primary.expected_s(loser.overtaken_at_s)
        if loser.token_at_s is None:
            left_s = max(0.0, loser.launched_at_s + AUDIT_S - self._timeline.now_s)
            loser.timers.append(self._timeline.after(left_s, lambda: self._stop_watching_silence(loser)))
        else:
            self._watch_speed(loser)

    def _stop_watching_silence(self, loser: Attempt) -> None:
        if loser.token_at_s is None:
            self._end(loser, Outcome.LOST)

    def _watch_speed(self, loser: Attempt) -> None:
        """Count tokens up to 32, from its first on; those it has sent while held count."""
        assert loser.token_at_s is not None
        if not self._plan.explores:
            self._end(loser, Outcome.SUPERSEDED)
            return
        tok_s = loser.answer.tok_s
        until_s = AUDIT_TOKENS_S if tok_s is None else min(AUDIT_TOKENS_S, (AUDIT_TOKENS - 1) / tok_s)
        loser.timers.append(self._timeline.at(loser.token_at_s + until_s, lambda: self._end(loser, Outcome.SUPERSEDED)))

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Fix the attempt's record and tell of it, once."""
        if attempt.record is not None:
            return
        for timer in attempt.timers:
            timer.cancel()
        self._fleet.leave(attempt.start.deployment)
        if outcome is Outcome.LOST and attempt.token_at_s is not None:
            outcome = Outcome.SUPERSEDED
        tokens = attempt.tokens(self._timeline.now_s, outcome)
        attempt.record = attempt.finished(self._timeline.now_s, outcome, tokens)
        if attempt.answer.error is None or attempt.answer.error in TIMEOUTS or outcome is Outcome.LOST:
            price = self._fleet.world.providers[self._fleet.number[attempt.start.deployment]].usd_per_mtok
            self._result.tokens += self._request.prompt_tokens + tokens
            self._result.usd += (self._request.prompt_tokens + 3 * tokens) * price / 1e6
        self._policy.attempt_ended(self._request, attempt.record)
        if attempt in self._audited:
            self._audited.remove(attempt)
            self._finish()

    def _close(self, status_code: int) -> None:
        winner = self._winner.record if self._winner is not None else None
        self._record = CallRecord(
            id=str(self._request.index),
            started_at=EPOCH,
            client=None,
            model=MODEL,
            endpoint="chat.completions",
            streamed=True,
            mode=Mode.AUTO,
            objective=self._objective,
            prompt_class=encoded_class(self._request.prompt_class),
            tags={},
            replica=str(self._request.replica),
            region=None,
            launched=len(self._attempts),
            winner_attempt_id=winner.id if winner is not None else None,
            status_code=status_code,
            error_kind=None if status_code == 200 else "failed",
            ttft_ms=None if self._result.ttft_s is None else self._result.ttft_s * 1000,
            total_ms=(self._timeline.now_s - self._received_at_s) * 1000,
            overhead_ms=None,
            completion_tokens=winner.completion_tokens if winner is not None else None,
            attempts=tuple(each.record for each in self._attempts if each.record is not None),
            kind=self._request.kind,
        )
        self._policy.call_finished(self._record)
        self._finish()

    def _finish(self) -> None:
        if self._record is not None and not self._audited:
            self._done(self._result)
