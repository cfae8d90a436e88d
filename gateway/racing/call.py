"""A running call: the owner of its ids, launches and records, for all the models and APIs it tries.

A call may try several models in turn. The ledger has one row for the call and one for each attempt at any of these
models. ``finish`` writes the call's row, once; an audited loser may end later, and is written then.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from gateway.core.attempts import REPEATING, AttemptRecord, AttemptStart, Narrowed, Role
from gateway.core.calls import AS_ASKED, Call, CallRecord, CallStart
from gateway.core.errors import ApiError, ClientDisconnected
from gateway.core.prompt_classes import whole_class
from gateway.fleet import Deployment, Fleet, Model
from gateway.racing.caches import with_caches
from gateway.racing.costs import settle
from gateway.racing.measurement import HeardPart
from gateway.racing.records import NO_TIMES, Breadth, CallTimes, call_record, call_start, taken_over
from gateway.racing.seats import Wait
from gateway.racing.services import Services
from gateway.racing.validation import STILL_READ, requested
from providers import OfCall, UpstreamError
from providers.dialects import Dialect, named_in

RESCUED = "rescued"  # ``takeover`` of an answer that nearly stopped and was finished by another deployment
FINISHED = "finished"  # ``takeover`` of an answer that broke off and was finished by another deployment


class NoAnswer(msgspec.Struct, frozen=True):
    """Why no deployment of one model has answered."""

    failures: Sequence[tuple[str, UpstreamError]] = ()  # deployment and error, in order
    full: Sequence[str] = ()  # deployments that had no free seat in time
    asked: Collection[str] = ()  # all deployments that had an attempt


class BrokenAnswer(msgspec.Struct, frozen=True):
    """An answer that broke off after its first bytes were sent, and may be finished. The call is not recorded yet."""

    attempt: AttemptRecord
    error: UpstreamError
    times: CallTimes
    again_tokens: int = 0  # estimated tokens of the delivered text that the continuation repeats
    heard: HeardPart | None = None  # by a listener, with `win_on: sentence`


class AnswerRescue(Protocol):
    """The rescue of an answer that stands still or nearly stopped, by another deployment."""

    def stands_still(self, attempt: Any) -> bool:
        """Ask another deployment beside ``attempt``, which is silent in its answer; return whether one was asked."""

    async def rival_goes_on(self, broken: BrokenAnswer) -> bool:
        """Let a kept rival finish ``broken``; return whether there is such a rival."""

    def settle(self) -> None:
        """Stop the continuation that runs beside the attempt that is about to end the call."""


class CallResource(Protocol):
    """A resource of a call that its attempts may still use after its end."""

    def hold(self) -> None:
        """Keep the resource until ``let_go``."""

    def let_go(self, _task: object = None) -> None:
        """End a ``hold``."""


class OpenCall:
    """One call from its arrival to its record. ``record`` is None until the call is finished."""

    def __init__(
        self,
        services: Services,
        call: Call,
        *,
        fleet: Fleet | None = None,
        body: CallResource | None = None,
        cancelled_as: Callable[[], type[ApiError]] = lambda: ClientDisconnected,
    ) -> None:
        """``body`` is the body of the request.

        ``cancelled_as`` returns the error of a cancellation: the client has gone, or the gateway is stopping.
        """
        self.services = services
        self.call = call
        self.fleet = fleet  # the fleet at the start of the call, despite reloads
        self._kept = (fleet, body)  # kept until no attempt of the call needs them
        self.cancelled_as = cancelled_as
        self.launched = 0  # attempts, at all models
        self.running = 0  # attempts that may answer, or are answering
        self.extras = 0  # attempts that started while another one ran, in any role
        self.width_asked: int | None = None  # attempts to start with, as the current model's plan says; None: no race
        self.narrowed: Narrowed | None = None  # why there were fewer attempts, or no later extra one
        self.cached: Mapping[str, int] | None = None  # deployment → tokens that should be in its prompt cache
        self.waited_s = 0.0  # for a seat
        self.own_s = 0.0  # the gateway's part of the time so far, in which no deployment was asked
        self.unasked_since = call.caller.received_at
        self.record: CallRecord | None = None
        self.broken: list[BrokenAnswer] = []  # parts of the answer, each continued by another deployment
        self.takeover: str | None = None  # FINISHED, RESCUED, or why an answer that broke off was not continued
        self.left_out: set[str] = set()  # deployments that were asked without reasoning that no key could read
        self.sent = OfCall() if fleet is None else OfCall(most=fleet.max_requests)
        self.may_run_on = False  # a provider may have started the call in the background: no other is asked
        self.filtered = 0  # deployments whose filter has refused the request, at all models
        self.rescue: AnswerRescue | None = None  # None: slow streams are not rescued
        self._winner: AttemptRecord | None = None
        self._began: tuple[Call, CallStart] | None = None  # the call that was announced; None: nothing was launched
        self.attempts: list[AttemptRecord] = []  # those that have ended
        self._deployments: Mapping[str, Deployment] = {}

    @property
    def takeovers(self) -> int:
        """The number of times that another deployment continued the answer."""
        return len(self.broken)

    def continue_as(self, call: Call) -> None:
        """Continue as ``call``: the same call, built for another model."""
        self.call = call

    def sent_without(self, call: Call, deployment: Deployment, paths: Sequence[str], *, raised: bool = False) -> Call:
        """Return ``call`` with a note of the fields (``paths``) that ``deployment`` was not sent, as it refuses them.

        ``paths`` are in the deployment's API; the client is told those of its own API. ``raised``: a limit of the
        answer was raised, and not lowered as usual, as after "integer below minimum value".
        """
        name, before = deployment.name, call.rendered.get(deployment.name, AS_ASKED)
        dialect = deployment.spoken_in(call)
        clients_paths = [named_in(call.request.dialect, dialect, call.request.fields, path) for path in paths]
        limits = [
            each
            for each in clients_paths
            if not raised and each in call.request.dialect.requests.parameters.answer_limits
        ]
        lost = (*before.dropped, *(each for each in clients_paths if each not in limits))
        noted = call.rendered_as(name, dropped=tuple(dict.fromkeys(lost)), lowered=tuple(limits) or before.lowered)
        if self.call is call:
            self.call = noted
        return noted

    def use_model(self, model: Model) -> None:
        """Set the model whose deployments are used from now on."""
        deployments = self._deployments
        self._deployments = {**deployments, **model.deployments} if deployments else model.deployments

    def launch(
        self,
        call: Call,
        deployment: Deployment,
        role: Role,
        *,
        now: float,
        audited: bool = False,
        weight: float = 1.0,
        refused: AttemptStart | None = None,
    ) -> AttemptStart:
        """Return the start record of the next attempt. Earlier events are reported to recorders first.

        ``call``: as built for the attempt's model. ``refused``: the attempt whose request and seat the new one gets.
        """
        services, caller, own = self.services, self.call.caller, call.traits
        if services.outbox.waiting:
            services.outbox.drain()
        self.launched += 1
        rendered = call.rendered.get(deployment.name) if call.rendered else None
        is_extra = self.running > 0 and (refused is None or role is Role.BARE)
        if is_extra:
            self.extras += 1
        start = AttemptStart(  # not by name: with more than fifteen names CPython would make a dict of them first
            services.new_id(),
            self.launched,
            services.utc_now(),
            role,
            provider=deployment.provider,
            deployment=deployment.name,
            launch_offset_ms=((now - caller.received_at) * 1_000_000 + 0.5) // 1 / 1000,  # as ``since_received_ms``
            audited=audited,
            model=call.decision.model if rendered is None else rendered.model or call.decision.model,
            in_flight=services.tasks.running_at.get(deployment.name, 0),
            asked_tokens=own.size_tokens or own.prompt_tokens,
            continues=self.broken[-1].attempt.id if self.broken else None,
            is_extra=is_extra,
            learnt_as=deployment.learnt_as,
            weight=weight,
            sent_by=caller.client,
        )
        if refused is None:
            return start
        counts_as = Role.FAILOVER if role is Role.BARE else None
        if role in REPEATING:
            counts_as = refused.counts_as or refused.role
            if counts_as is Role.PRIMARY and refused.counts_as is None and refused.number > 1:
                counts_as = Role.FAILOVER  # no fair sample: the attempt did not start with its call
        return msgspec.structs.replace(start, replaces=refused.id, counts_as=counts_as)

    def begin(self, starts: Sequence[AttemptStart]) -> None:
        """Announce the call with its first launches, before any request is sent."""
        if starts[0].number == 1:
            start = call_start(self.call, tuple(starts))
            self._began = self.call, start
            self.services.recorder.call_started(start)

    def first_token(
        self, call: Call, start: AttemptStart, launched_at: float, at: float, *, whole: bool = False
    ) -> None:
        """Tell the recorder of an attempt's first token; ``call``: as built for the attempt's model. For the outbox."""
        if call.request.runs_on:
            return  # how soon a background response is queued says nothing of the answer's speed
        services = self.services
        ttft_s, ago_s = at - launched_at, services.clock() - at
        prompt_class = whole_class(call.traits.prompt_class) if whole else call.traits.prompt_class
        services.recorder.first_token(start.model or call.decision.model, prompt_class, start, ttft_s, ago_s)

    def ended(self, attempt: AttemptRecord, at: float, *, whole: bool = False) -> None:
        """Add the record of an attempt that ended at ``at``, and tell the recorder. For the outbox.

        ``whole``: the provider does not stream the answer. If a whole answer is cut, its age tells nothing of first
        tokens, so only the recorder learns the age, in a class of whole answers.
        """
        services, call, record = self.services, self.call, self.record
        prompt_class, as_measured = call.traits.prompt_class, attempt
        if whole:
            prompt_class, attempt = whole_class(prompt_class), msgspec.structs.replace(attempt, censored_at_ms=None)
        if record is None:
            self.attempts.append(attempt)
        ago_s = services.clock() - at
        try:
            services.recorder.attempt_ended(as_measured.model or call.decision.model, prompt_class, as_measured, ago_s)
        finally:
            if record is not None:
                parameters = requested(call.request.fields, call.request.dialect, writes=call.traits.kind is not None)
                bill = settle(
                    [attempt],
                    self._winner,
                    self._deployments,
                    call.traits.prompt_tokens,
                    parameters,
                    is_text=call.traits.inline_bytes is not None,
                    seen=services.tiers,
                )
                winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
                bill = with_caches(bill, winner, self.cached)
                services.recorder.attempt_audited(record.model, bill.attempts[0], bill.duplicate.usd)

    def finish(
        self,
        winner: AttemptRecord | None,
        *,
        status_code: int,
        error_kind: str | None,
        times: CallTimes = NO_TIMES,
        priced_as: Callable[[Mapping[str, Deployment], Sequence[AttemptRecord]], Mapping[str, Deployment]]
        | None = None,
    ) -> CallRecord:
        """Record the call, once. Returns the record, also when called again.

        ``priced_as`` returns deployments with other prices, at which the attempts are billed.
        """
        if self.record is not None:
            return self.record
        if self.rescue is not None:
            self.rescue.settle()
        if self.services.outbox.waiting:  # the attempts' records are reported before the call's
            self.services.outbox.drain()
        if self.broken:
            times = self.broken[0].times
        call, self._winner = self.call, winner
        attempts = sorted(self.attempts, key=_number) if len(self.attempts) > 1 else self.attempts
        deployments = self._deployments if priced_as is None else priced_as(self._deployments, attempts)
        began = self._began
        self.record = call_record(
            call,
            began[1] if began is not None and began[0] is call else call_start(call, ()),
            attempts,
            winner,
            deployments,
            Breadth(self.launched, self.extras, self.width_asked, self.narrowed),  # not by name, as above
            status_code=status_code,
            error_kind=error_kind,
            total_ms=self.since_received_ms(self.services.clock()),
            times=times,
            tiers=self.services.tiers,
            cached=self.cached,
        )
        if self.broken or self.takeover is not None:
            if self.takeover in {FINISHED, RESCUED} and error_kind is not None:
                self.takeover = "left"
            parts = [(each.attempt, each.again_tokens) for each in self.broken]
            self.record = taken_over(self.record, parts, self.takeover)
        self.services.recorder.call_finished(self.record)
        return self.record

    def wait(
        self, *, seated: Callable[[str], None], timed_out: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> Wait:
        """Return a wait for a seat. All waits of a call share one time limit."""
        seats, clock = self.services.seats, self.services.clock
        patience_s = seats.queue_timeout_s - self.waited_s
        return Wait(
            seats, self.call.decision.model, patience_s, seated=seated, timed_out=timed_out, clock=clock, loop=loop
        )

    def waited(self, wait: Wait) -> None:
        """End ``wait``, and add the time waited to the call's."""
        wait.forget()
        self.waited_s += wait.waited_s

    def held_by(self, task: asyncio.Task[Any]) -> None:
        """Keep the call's upstreams open, and the body counted, until ``task`` ends, even if the call ends before."""
        for each in self._kept:
            if each is not None:
                each.hold()
                task.add_done_callback(each.let_go)

    def since_received_ms(self, instant: float) -> float:
        """Return ``instant`` of the clock in milliseconds since the call was received."""
        passed_s = instant - self.call.caller.received_at
        return (passed_s * 1_000_000 + 0.5) // 1 / 1000  # as ``milliseconds``, inlined


def _number(attempt: AttemptRecord) -> int:
    return attempt.number


# Releases a prompt after its last use: the answer may stream for minutes.


def forget_prompt(fields: Mapping[str, msgspec.Raw], dialect: Dialect | None = None) -> int:
    """Remove the fields of a request that are not needed at the call's end; copy the others out of the body.

    In place: tasks that wait for the answer hold the same mapping, and each raw value holds the whole body. Returns
    the number of bytes that are kept.
    """
    if not isinstance(fields, dict):
        return 0
    with_all = None if dialect is None else dialect.requests.tools.with_all
    all_fields = fields if with_all is None else with_all(fields)
    still_read = {name: raw.copy() for name, raw in all_fields.items() if name in STILL_READ}
    fields.clear()
    fields.update(still_read)
    return sum(len(memoryview(raw)) for raw in still_read.values())
