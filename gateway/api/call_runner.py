"""Runs one call of any API: at its model, then at its fallbacks, until one has answered."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from gateway.api.call_context import CallContext
from gateway.api.fallbacks import FallbackChain, FallbacksBeside, cause_of, late_at_first_s
from gateway.api.plan_call import (
    PlanCall,
    PlannedCall,
    is_counted,
    remember_prefix,
)
from gateway.api.preferences import Preferences
from gateway.api.purse import Allowance, Purse, payer_of, use_of
from gateway.core.calls import Call, CallRecord
from gateway.core.errors import ApiError, ClientDisconnected, InternalError
from gateway.core.race_failures import (
    SkippedDeployment,
    all_cooling,
    all_failed,
    race_failed,
)
from gateway.fleet import Model
from gateway.http import PLAN_HEADER, headers
from gateway.limits import LINE_S, BegunHolds, LimitHeld, LimitReached
from gateway.racing import (
    BrokenAnswer,
    CallResource,
    Continuation,
    Continuer,
    Continuers,
    FallbackModels,
    NoAnswer,
    OpenCall,
    Race,
    Services,
    Sink,
    StopKind,
    delivered_of,
    has_next,
    room_for,
    within_room,
)
from gateway.steering import Plan
from providers import OF_SIZE
from providers.dialects import without_pictures

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.racing import ClientSink

# Runs the call at one model: returns the record if a deployment answered, else the reason.
Run = Callable[[PlannedCall], Awaitable[CallRecord | NoAnswer]]


class _Roomy(NamedTuple):
    """A deployment that refused a call because of the answer's length, and the number of tokens that would fit."""

    planned: PlannedCall
    call: Call
    deployment: str
    tokens: int


class AnsweredHere(Exception):
    """No model has answered, but the gateway itself: as a response, or with these ``events`` at the end of a stream."""

    def __init__(self, response: "web.Response", events: bytes) -> None:
        super().__init__()
        self.response = response
        self.events = events


class CallRunner:
    """One call, over all models that it tries. The caller must hold a lease of ``context.fleet`` until the end."""

    _last_errors: Sequence[tuple[str, ApiError]] = ()  # the failed models of the last race, with errors

    def __init__(
        self,
        context: CallContext,
        model: str,
        preferences: Preferences,
        plan: PlanCall,
        *,
        may_fall_back: bool = True,
        begun: BegunHolds | None = None,
        cancelled_as: Callable[[], type[ApiError]] = lambda: ClientDisconnected,
        answer_here: "Callable[[ApiError], tuple[web.Response, bytes] | None]" = lambda _: None,
        services: Services | None = None,
        body: CallResource | None = None,
    ) -> None:
        """``begin`` must be called first.

        ``begun``: what limits have counted for the call. ``cancelled_as``: returns the error of a cancellation.
        ``answer_here``: may answer when no model is left. ``services``: in place of the gateway's. ``body``: the body
        of the request.
        """
        fleet = context.fleet
        self._context = context
        self._fleet = fleet
        self._answer_here = answer_here
        self._begun = begun
        self.models = FallbackChain(fleet, model, preferences.models[1:], plan, may_fall_back=may_fall_back)
        self.first_call: Call  # for the first usable model
        self.open_call: OpenCall
        self.response_headers = self.models.response_headers  # besides those of the answer
        self._limit_headers: dict[str, str] = {}  # with the remaining amounts of limits
        self.failed: list[tuple[str, ApiError]] = []  # the models that could not answer, with errors
        self._unanswered: list[tuple[str, NoAnswer]] = []  # the failed models of a race, in order
        self._raced: dict[str, PlannedCall] = {}  # the plans of a race of several models
        self._has_won = False  # whether one of several models in the last race had won, and the others have given way
        self._roomy: _Roomy | None = None  # of the deployments that refused the answer's length, the one with most room
        self._is_asked_for_less = False
        self._sees_nothing: set[str] = set()  # deployments that have refused what they cannot read, such as pictures
        self.purse: Purse  # pays for the call's launches
        self._services = services or context.services
        self._body = body
        self._cancelled_as = cancelled_as

    async def begin(self) -> None:
        """Build the call for the requested model, or for the first usable fallback.

        Raises:
            ApiError: no model can be used.

        """
        planned = await self.models.begin()
        self.first_call = planned.call
        self.open_call = OpenCall(
            self._services,
            planned.call,
            fleet=self._fleet,
            body=self._body,
            cancelled_as=self._cancelled_as,
        )
        self.purse = Purse(self._context, self.open_call, self.response_headers)

    @property
    def call(self) -> Call:
        """The call for the current model (``models.planned``), in the form in which the model was asked last."""
        return self.open_call.call

    async def run(self, run: Run) -> CallRecord:
        """Try the models in turn until one answers; return the record.

        Raises:
            AnsweredHere: no model answered, and ``answer_here`` has. The call is recorded.
            ApiError: no model answered. The call is recorded, and the error has its id.

        """
        try:
            planned = self.models.planned
            if is_counted(planned.call, planned.model):
                await self._hold()
            while isinstance(ending := await run(self.models.planned), NoAnswer):
                self._note_failures()
                if not await has_next(self):
                    self._refuse(all_failed(self.failed, self.purse.kept_out))
        except (ApiError, AnsweredHere):
            raise
        except asyncio.CancelledError:  # between two models or parts of an answer; otherwise it is recorded already
            if self.open_call.launched or self._unanswered:
                why = self.open_call.cancelled_as()
                self.open_call.finish(None, status_code=why.status, error_kind=why.code)
            raise
        except Exception:  # our own defect, perhaps between two models
            self.open_call.finish(None, status_code=InternalError.status, error_kind=InternalError.code)
            raise
        else:
            planned = self.models.planned
            if planned.prefix is not None:
                remember_prefix(self._context, planned, ending)
            return ending
        finally:
            self._context.limits.drop(self.first_call.caller.id)

    async def gather(self, sink: Sink, planned: PlannedCall) -> CallRecord | NoAnswer:
        """Race for an answer that is committed at its end, or passes unread. For ``run``."""
        race = self._race(planned, sink, sink)
        ending = await race.run()
        assert not isinstance(ending, BrokenAnswer)  # the client sees nothing of a gathered answer before its end
        self._unanswered, self._has_won = race.unanswered, race.is_settled
        return ending

    def _race(
        self, planned: PlannedCall, sink: Sink, beside: Sink, on_use: Callable[[PlannedCall], None] = lambda _: None
    ) -> Race:
        """Return the race of a model; answers of fallbacks beside the model go to ``beside``.

        ``on_use``: called with the fallback whose answer is about to begin.
        """
        allowance = Allowance(self.purse, planned)
        allowance.begin()
        late_s = self.models.late_s(self._context, planned) if self.models.hedges else None
        following = None if late_s is None else self._following(planned, late_s, beside, on_use)
        return Race(
            self.open_call,
            planned.model,
            planned.plan,
            sink,
            may_launch=allowance.pay,
            on_seat_refused=allowance.note_refused_seat,
            call=planned.call,
            reading=planned.reading,
            following=following,
        )

    def _following(
        self, planned: PlannedCall, late_s: float, sink: Sink, on_use: Callable[[PlannedCall], None]
    ) -> FallbackModels:
        """Return the fallbacks that are asked beside the model of ``planned``; explain when the next one is asked."""
        late_s = late_at_first_s(self._context, planned, late_s)
        explanation = planned.plan.explanation
        if explanation is not None and (following := self.models.after(planned.model.name)) is not None:
            explanation = msgspec.structs.replace(explanation, late_s=late_s, fallback=following[0])
            self.response_headers[PLAN_HEADER] = headers.written(explanation)

        def use(won: PlannedCall) -> None:
            self.use(won)
            self.purse.tell_again()  # the late model's reason counts
            on_use(won)

        beside = FallbacksBeside(self._context, self.purse, self.models, planned, late_s=late_s, sink=sink, use=use)
        self._raced = beside.plans
        return beside

    async def stream(self, sink: "ClientSink", planned: PlannedCall) -> CallRecord | NoAnswer:
        """Race a model's deployments for a streamed answer; with takeover, others may continue it. For ``run``."""
        open_call = self.open_call
        sink.delivered = delivered_of(planned.call, planned.model, open_call)

        def keep(used: PlannedCall) -> None:
            sink.delivered = delivered_of(used.call, used.model, open_call)

        if sink.delivered is not None:
            from gateway.racing import Rescue  # noqa: PLC0415 - memory: off by default

            rescue = Rescue(open_call, sink, self._continuers(planned))
            race = self._race(planned, rescue, sink, keep)
            ending = await rescue.run(race)
        else:
            race = self._race(planned, sink, sink, keep)
            ending = await race.run()
        self._unanswered, self._has_won = race.unanswered, race.is_settled
        while isinstance(ending, BrokenAnswer):
            continuers = self._continuers(self.models.planned)  # of the model whose answer has begun
            ending = await Continuation(open_call, sink, continuers, ending).finish()
        return ending

    def _continuers(self, planned: PlannedCall) -> Continuers:
        """Return the models that may continue an answer of the model of ``planned``: itself, then its fallbacks."""
        purse, fallbacks = self.purse, self.models

        def others(stopped: StopKind) -> Iterator[Continuer]:
            for other in fallbacks.to_continue(beside=stopped is not StopKind.BROKE):
                yield purse.continuer(other, beside=planned, on_refused=partial(fallbacks.keep, other.model.name))

        return Continuers(purse.continuer(planned), others)

    def use(self, planned: PlannedCall) -> None:
        """Make the model of ``planned`` the one that answers."""
        self.models.use(planned)
        self.open_call.continue_as(planned.call)
        self.response_headers.update(self._limit_headers)

    async def _hold(self) -> None:
        """Hold the expected use of limits; without money, move on to a fallback, or wait for running calls.

        Raises:
            LimitReached, LargerThanLimit: too little is left.

        """
        line_s, hold = 0.0, self._context.limits.hold
        while True:
            planned = self.models.planned
            by, model = planned.call.caller, planned.model
            free = {"spends": not model.is_free, "is_free": model.costs_nothing}
            try:
                self._limit_headers = await hold(
                    by.id, by.levels, payer_of(planned), use_of(planned), begun=self._begun, line_s=line_s, **free
                )
            except LimitReached as error:
                following = await self.models.following([(planned.model.name, error)])
                if following is not None:
                    self.use(following)
                elif line_s or not isinstance(error, LimitHeld):
                    raise
                else:  # no fallback has money at once, so the call waits for running calls to end
                    line_s = LINE_S
            else:
                if line_s:
                    self.open_call.unasked_since = self._services.clock()  # the wait is not the gateway's own time
                self.response_headers.update(self._limit_headers)
                return

    def _note_failures(self) -> None:
        """Note the errors of the last race's models."""
        planned = self.models.planned
        plans = {planned.model.name: planned, **self._raced}
        self._last_errors = [(name, self._total_failure(plans[name], failures)) for name, failures in self._unanswered]
        self.failed += self._last_errors
        for name, failures in self._unanswered:
            self._find_room(plans[name], failures)
            self.models.in_vain |= {deployment for deployment, _ in failures.failures}
            self._sees_nothing |= {deployment for deployment, error in failures.failures if error.lack is not None}
        if self._has_won:
            self.models.allow_all_but({name for name, _ in self.failed})

    # For the rungs of the ladder.

    @property
    def own(self) -> str | None:
        """The requested model; None: it cannot be used."""
        return self.models.own

    def turn_s(self, model: str, wait_s: float) -> float:
        """Return after how many seconds it is this call's turn to ask ``model``, which is free in ``wait_s``."""
        return self._context.steering.turn_s(model, wait_s)

    async def use_next(self) -> bool:
        """Go on with the next model that limits and money allow; return whether there is one."""
        while (following := await self.models.following(self._last_errors)) is not None:
            if await self.purse.reserve(following):
                self.use(following)
                return True
        return False

    async def use_own(self) -> bool:
        """Plan the requested model once more; return whether limits and money allow it."""
        planned = await self.models.again()
        if planned is None or not await self.purse.reserve(planned):
            return False
        self.failed.clear()
        self.open_call.continue_as(planned.call)
        self.response_headers.update(self._limit_headers)
        return True

    def _find_room(self, planned: PlannedCall, ending: NoAnswer) -> None:
        """Of the deployments that refused the answer's length, note the one with most room beside the prompt."""
        call_now = self.open_call.call  # in the API in which the model was asked last
        call = call_now if call_now.decision.model == planned.model.name else planned.call
        if call.traits.kind is None:
            return
        for name, error in ending.failures:
            room = room_for(call, planned.model.deployments[name], error) if error.scope in OF_SIZE else 0
            if room > (0 if self._roomy is None else self._roomy.tokens):
                self._roomy = _Roomy(planned, call, name, room)

    async def use_roomiest(self) -> bool:
        """Go on, once, with the deployment that leaves most room for an answer; return whether there is one."""
        roomy = self._roomy
        if roomy is None or self._is_asked_for_less:
            return False
        self._is_asked_for_less = True
        planned = roomy.planned
        call = within_room(roomy.call, planned.model.deployments[roomy.deployment], roomy.tokens)
        if call is None:
            return False
        planned = msgspec.structs.replace(planned, call=call, plan=planned.plan.in_another_form(roomy.deployment))
        if not await self.purse.reserve(planned):
            return False
        self.failed[:] = [each for each in self.failed if each[0] != planned.model.name]
        self.use(planned)
        return True

    async def use_unseeing(self) -> bool:
        """Go on with the next model that has a deployment which sees no pictures, and was not asked without them.

        Returns whether there is one. The new plan leaves out the pictures that can be (``translations.py``).
        """
        if not self._sees_nothing and all(cause_of(error) is None for _, error in self._last_errors):
            return False  # the request is wrong for all
        request = self.first_call.request
        left = without_pictures(request.dialect.requests.prompt, request.fields)
        if left is None:
            return False
        picture, asked = left.losses[0].field, self.models.in_vain - self._sees_nothing

        def is_new(planned: PlannedCall) -> bool:
            rendered = planned.call.rendered
            return any(name not in asked and picture in each.dropped for name, each in rendered.items())

        while (planned := await self.models.unseen()) is not None:
            if is_new(planned) and await self.purse.reserve(planned):
                self.failed[:] = [each for each in self.failed if each[0] != planned.model.name]
                self.use(planned)
                return True
        return False

    def _refuse(self, error: ApiError) -> NoReturn:
        """Record the call, which no model answered.

        Raises:
            AnsweredHere: ``answer_here`` has an answer.
            ApiError: ``error``, as it has none.

        """
        self.failed, self._last_errors = [], ()  # the error's frames refer to this object
        error.headers.update({"x-holeshot-call-id": self.call.caller.id, **self.response_headers})
        if (answer := self._answer_here(error)) is not None:
            response, events = answer
            response.headers.update(error.headers)
            self.open_call.finish(None, status_code=response.status, error_kind=None)
            raise AnsweredHere(response, events)
        self.open_call.finish(None, status_code=error.status_code, error_kind=error.kind)
        raise error

    def _total_failure(self, planned: PlannedCall, ending: NoAnswer) -> ApiError:
        """Return one error for all failures at the model of ``planned``."""
        learnt_as = None if planned.model.tenant is None else planned.model.learnt_as
        deployments = {*ending.full, *ending.asked}
        out = self._context.steering.not_asked(planned.names, deployments, learnt_as, client=self.call.caller.client)
        return total_failure(planned.model, planned.plan, ending, out)


def total_failure(model: Model, plan: Plan, ending: NoAnswer, out: Sequence[SkippedDeployment]) -> ApiError:
    """Return one error for all failures at ``model``; ``out``: deployments that were not tried."""
    if not (plan.launches or plan.rest):
        return all_cooling(model.name, out, plan.retry_after_s or 1.0, plan.free_in_s)
    brought = () if model.tenant is None else model.learnt_as or ()
    return race_failed(model.name, ending.failures, full=ending.full, out=out, adhoc=model.adhoc, brought=brought)
