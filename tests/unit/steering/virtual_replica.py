"""One replica in virtual time, for tests of steering: what attempts do to it is said by methods."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from random import Random

from gateway.core.attempts import AnswerKind, AttemptRecord, AttemptStart, Flaw, Outcome, Role, TokensSource
from gateway.core.calls import CallKind, CallRecord, Mode, Objective
from gateway.core.prompt_classes import PromptClass, answer_class
from gateway.settings import RaceSettings
from gateway.steering import Lateness, Launch, MemoryBoard, Plan, Prefix, Steering, Terms
from providers import ErrorKind, Price

SHORT = answer_class(0)

MODEL = "llama"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualReplica:
    """One replica. ``now_s`` is both its clocks, and moves only when a test moves it."""

    def __init__(
        self,
        deployments: Sequence[str] = ("a", "b", "c"),
        *,
        seed: int = 1,
        board: MemoryBoard | None = None,
        lateness: Lateness | None = None,
    ) -> None:
        self.now_s = 0.0
        self.deployments = tuple(deployments)
        self.random = Random(seed)
        self.board = board if board is not None else MemoryBoard()
        self.steering = Steering(
            self.board,
            clock=lambda: self.now_s,
            unix_clock=lambda: 1_800_000_000.0 + self.now_s,
            random=self.random,
            lateness=lateness,
        )
        self._attempts = 0

    def plan(
        self,
        *,
        objective: Objective = Objective.FIRST_TOKEN,
        mode: Mode = Mode.AUTO,
        budget: float = 1.0,
        prompt_tokens: int = 100,
        max_tokens: int | None = None,
        prices: Mapping[str, Price] | None = None,
        limits: Mapping[str, int] | None = None,
        weights: Mapping[str, float] | None = None,
        canaries: Mapping[str, float] | None = None,
        excluded: Mapping[str, str] | None = None,
        prefix: Prefix | None = None,
        kind: CallKind | None = None,
        answer_kind: AnswerKind = AnswerKind.PLAIN,
        bills_losers: frozenset[str] = frozenset(),
        holds: bool = True,
        spoken: bool = False,
        explain: bool = False,
        prompt_class: PromptClass = SHORT,
        client: str | None = None,
        **race: float | str,
    ) -> Plan:
        """Plan a call, for a short chat if no class is given."""
        return self.steering.plan(
            MODEL,
            self.deployments,
            RaceSettings.model_validate({"mode": mode, "budget": budget, **race}),
            Terms(
                objective,
                prompt_tokens,
                max_tokens,
                prices,
                limits,
                weights,
                canaries,
                excluded,
                prefix,
                kind,
                answer_kind=answer_kind,
                bills_losers=bills_losers,
                holds=holds,
                spoken=spoken,
            ),
            prompt_class,
            explain=explain,
            client=client,
        )

    def charge_extra(self, role: Role, budget: float, *, model: str = MODEL, mode: Mode = Mode.AUTO) -> bool:
        """Ask whether an attempt in this role may start."""
        race = RaceSettings(mode=mode, budget=budget)
        return self.steering.draw_extra(model, Launch("a", 0.0, role), race, cost_usd=None) is None

    def launch(
        self, deployment: str, role: Role = Role.PRIMARY, weight: float = 1.0, client: str | None = None
    ) -> AttemptStart:
        """Start an attempt."""
        self._attempts += 1
        start = AttemptStart(
            str(self._attempts), 1, EPOCH, role, deployment, deployment, 0.0, weight=weight, sent_by=client
        )
        self.steering.attempt_started(MODEL, start)
        return start

    def win(
        self,
        deployment: str,
        ttft_s: float = 0.3,
        role: Role = Role.PRIMARY,
        *,
        speed_tps: float | None = 50.0,
        stall_s: float = 0.0,
        judged_as: AnswerKind | None = None,
        flaw: Flaw | None = None,
        is_restricted: bool = False,
        prompt_class: PromptClass = SHORT,
        weight: float = 1.0,
        client: str | None = None,
    ) -> AttemptRecord:
        """Run an attempt that delivers after ``ttft_s`` and streams for two seconds."""
        start = self.launch(deployment, role, weight, client)
        self.steering.first_token(MODEL, prompt_class, start, ttft_s)
        return self._end(
            start,
            Outcome.WON,
            prompt_class,
            ttft_ms=ttft_s * 1000,
            last_token_ms=ttft_s * 1000 + 2000,
            decode_tps=speed_tps,
            itl_max_ms=1000 * stall_s,
            tokens_source=TokensSource.REPORTED,
            judged_as=judged_as,
            flaw=flaw,
            is_restricted=is_restricted,
            client=client,
        )

    def lose(
        self, deployment: str, age_s: float, role: Role = Role.PRIMARY, prompt_class: PromptClass = SHORT
    ) -> AttemptRecord:
        """Run an attempt that is cut at ``age_s``, before its first token."""
        return self._end(self.launch(deployment, role), Outcome.LOST, prompt_class, censored_at_ms=age_s * 1000)

    def overtake(self, deployment: str, age_s: float) -> AttemptRecord:
        """Run a primary that is cut at ``age_s``, as another model has its first token."""
        start = self.launch(deployment)
        self.steering.runs_on(MODEL, self.plan(mode=Mode.SINGLE), [start.id])
        return self._end(start, Outcome.LOST, censored_at_ms=age_s * 1000)

    def leave(
        self, deployment: str, age_s: float, client: str | None = None, prompt_class: PromptClass = SHORT
    ) -> AttemptRecord:
        """Run an attempt whose client leaves at ``age_s``, before its first token."""
        start, age_ms = self.launch(deployment), age_s * 1000
        return self._end(start, Outcome.CLIENT_GONE, prompt_class, censored_at_ms=age_ms, client=client)

    def fail(
        self,
        deployment: str,
        kind: ErrorKind = ErrorKind.SERVER_ERROR,
        *,
        retry_after_s: float | None = None,
        ttft_ms: float | None = None,
        role: Role = Role.PRIMARY,
        status_code: int | None = None,
        message: str | None = None,
        prompt_class: PromptClass = SHORT,
        client: str | None = None,
        is_certain: bool = False,
    ) -> AttemptRecord:
        """Run an attempt that fails."""
        outcome = Outcome.TIMEOUT if kind is ErrorKind.TTFT_TIMEOUT else Outcome.FAILED
        start = self.launch(deployment, role)
        facts = {
            "error_kind": kind,
            "retry_after_s": retry_after_s,
            "ttft_ms": ttft_ms,
            "status_code": status_code,
            "error_message": message,
            "client": client,
            "is_certain": is_certain,
        }
        return self._end(start, outcome, prompt_class, **facts)

    def finish(
        self, *attempts: AttemptRecord, completion_tokens: int | None = 100, kind: CallKind | None = None
    ) -> None:
        """End a call that consisted of ``attempts``."""
        winner = next((attempt.id for attempt in attempts if attempt.outcome is Outcome.WON), None)
        self.steering.call_finished(
            CallRecord(
                id="call",
                started_at=EPOCH,
                client=None,
                model=MODEL,
                endpoint="chat.completions",
                streamed=True,
                mode=Mode.AUTO,
                objective=Objective.FIRST_TOKEN,
                prompt_class=0,
                tags={},
                replica="here",
                region=None,
                launched=len(attempts),
                winner_attempt_id=winner,
                status_code=200 if winner else 502,
                error_kind=None,
                ttft_ms=300.0,
                total_ms=2300.0,
                overhead_ms=1.0,
                completion_tokens=completion_tokens,
                attempts=attempts,
                kind=kind,
            )
        )

    def warm_up(self, wins: int = 30, **ttft_s: float) -> None:
        """Give each named deployment a history, and let standings see it."""
        for deployment, seconds in ttft_s.items():
            for _ in range(wins):
                self.win(deployment, seconds)
        self.now_s += 1.0

    def state(self, deployment: str) -> str | None:
        """The deployment's state as published."""
        rows = self.steering.leaderboard(MODEL).deployments
        return next(row.state for row in rows if row.deployment == deployment)

    def _end(
        self, start: AttemptStart, outcome: Outcome, prompt_class: PromptClass = SHORT, **facts: object
    ) -> AttemptRecord:
        record = AttemptRecord(
            id=start.id,
            call_id="call",
            number=1,
            started_at=EPOCH,
            role=start.role,
            provider=start.provider,
            deployment=start.deployment,
            launch_offset_ms=0.0,
            outcome=outcome,
            **facts,  # type: ignore[arg-type]  # the tests' own words, as the record names them
        )
        self.steering.attempt_ended(MODEL, prompt_class, record)
        return record
