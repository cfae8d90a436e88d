"""Runs one call, the same for every API: at its model, then at its fallbacks, until one has answered."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gateway.api.call_context import CallContext
from gateway.api.headers import PLAN_HEADER, written
from gateway.api.plan_call import PlanCall, PlannedCall, is_counted, limits_dollars, prepared_race
from gateway.api.preferences import Preferences, is_passed_on
from gateway.core.calls import Call, CallRecord
from gateway.core.errors import ApiError, ClientDisconnected, InternalError, NoDeploymentFits, NothingEnabled
from gateway.core.race_failures import NotAsked, RaceFailed, RejectedByProvider, all_cooling, race_failed
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Model
from gateway.limits import Begun, LimitReached, Payer, Use
from gateway.racing import (
    MOST_ANSWERS,
    Broken,
    Kept,
    OpenCall,
    Services,
    Sink,
    Takeover,
    Unanswered,
    answers_asked,
    delivered_of,
    most_answer_tokens,
)
from gateway.settings import Cause
from gateway.steering import Plan

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.racing import ClientSink

# Classifies why a model could not answer, which decides the fallback models that are tried.

_CONTEXT = re.compile(
    r"context.{0,5}(length|window|size|limit)|maximum.{0,20}context|(prompt|input|request).{0,30}too (long|large)"
    r"|too many (input )?tokens|exceeds? .{0,40}token",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"content.{0,3}(filter|policy|management)|responsible.?ai|safety (system|filter|setting|reason)"
    r"|moderation|flagged|blocked (by|for|due)",
    re.IGNORECASE,
)
_TOO_LARGE = 413


def cause_of(error: ApiError) -> Cause | None:
    """Return why a fallback may be tried after ``error``; None if it would fail as well, because the request is wrong.

    Vendors differ in codes and messages, so both are checked.
    """
    if isinstance(error, NoDeploymentFits):
        return Cause.CONTEXT if error.too_long else Cause.FAILED
    if isinstance(error, RejectedByProvider):
        said = f"{error.code_there or ''} {error.message}"
        if error.status_code == _TOO_LARGE or _CONTEXT.search(said):
            return Cause.CONTEXT
        return Cause.CONTENT_FILTER if _CONTENT.search(said) else None
    if isinstance(error, LimitReached):
        return Cause.FAILED if error.of_model else None
    return Cause.FAILED if isinstance(error, RaceFailed | NothingEnabled) else None


# The models that a call tries in turn: the one it names, then its fallbacks.

FALLBACK = "x-holeshot-fallback"  # the model that was used instead of the requested one

# Builds the call for a model; the second argument is the same call as built for the first model.
PlanModel = Callable[[str, Call | None], PlannedCall]


class FallbackChain:
    """The current model of a call, and the next one. Each model is tried once.

    After a failure the order is: the request's own fallbacks, for any cause; the fallbacks configured for the first
    model and this cause; the fallbacks configured for these.
    """

    def __init__(
        self, fleet: Fleet, asked: str, wanted: Sequence[str], plan_model: PlanModel, *, may_fall_back: bool = True
    ) -> None:
        """Build the call for the model ``asked``, or for the first usable fallback.

        ``wanted``: the request's own fallbacks. ``plan_model`` must not refer to this object: it would be a cycle.

        Raises:
            ApiError: no model can be used.

        """
        self.response_headers: dict[str, str] = {}  # besides those of the answer
        self._fleet = fleet
        self._wanted = wanted
        self._plan_model = plan_model
        self._may_fall_back = may_fall_back
        self._tried = {asked}
        self._failed: list[tuple[str, Cause]] = []  # models that could not answer, with the cause
        self._first_call: Call | None = None  # its id and times are kept by the calls for fallbacks
        try:
            self.entry = plan_model(asked, None)
            self._set_headers(self.entry)
        except ApiError as error:
            found = self._after(error, asked)
            if found is None:
                raise
            self.entry = found
        self._first_call = self.entry.call

    def advance(self, error: ApiError) -> bool:
        """Move on to the next model after ``error``; return whether there is one."""
        following = self._after(error, self.entry.model.name)
        if following is not None:
            self.entry = following
        return following is not None

    def _after(self, error: ApiError, failed: str) -> PlannedCall | None:
        """Build the call for the first usable fallback of the model ``failed``; None if there is none."""
        for name in self._names(error, failed):
            if name in self._tried:
                continue
            self._tried.add(name)
            try:
                entry = self._plan_model(name, self._first_call)
            except ApiError:
                continue
            self._set_headers(entry)
            self.response_headers[FALLBACK] = name
            return entry
        return None

    def _names(self, error: ApiError, failed: str) -> Iterator[str]:
        cause = cause_of(error)
        if cause is None or not self._may_fall_back:
            return
        if self._first_call is None or not is_passed_on(self.entry.model):  # else OpenRouter uses the request's
            yield from self._wanted
        self._failed.append((failed, cause))
        for name, why in self._failed:  # the whole list of the first model before those of its fallbacks
            model = self._fleet.models.get(name)
            if model is not None:
                yield from (each.model for each in model.fallbacks if why in each.causes)

    def _set_headers(self, entry: PlannedCall) -> None:
        self.response_headers.clear()
        self.response_headers.update(entry.response_headers)
        if entry.plan.explanation is not None:
            self.response_headers[PLAN_HEADER] = written(entry.plan.explanation)


# The expected use of limits by a planned call, and the model that pays for it.


def payer_of(entry: PlannedCall) -> Payer:
    """Return the model of ``entry`` as limits see it."""
    model = entry.model
    return Payer(model.name, model.payer or model.name, model.usd_per_day, model.dearest)


def use_of(entry: PlannedCall) -> Use:
    """Return the expected use, and the most that the call may cost."""
    plan, prompt_tokens = entry.plan, entry.call.prompt_tokens
    usd, costs = 0.0, plan.cost_usd
    if costs:
        for launch in plan.launches:
            if launch.delay_s == 0:
                usd += costs.get(launch.deployment, 0.0)
    most_usd = _most_usd(entry) if usd and limits_dollars(entry.call.levels, entry.model) else 0.0
    return Use(prompt_tokens, prompt_tokens + plan.answer_tokens, usd, most_usd)


def _most_usd(entry: PlannedCall) -> float:
    """Return what the call may cost: an answer as long as it allows, of the dearest of its deployments.

    The others that its plan launches add their prompt, and an answer as well if their vendors bill it to the end.
    """
    call, plan, deployments, dearest = entry.call, entry.plan, entry.model.deployments, entry.model.dearest
    max_tokens = None if call.kind is None else call.kind.max_tokens
    answers = 0 if call.kind is None else min(MOST_ANSWERS, answers_asked(call.fields, call.dialect))
    launched = [launch.deployment for launch in plan.launches]
    most_usd = beside_usd = 0.0
    for place, name in enumerate([*launched, *plan.rest]):
        deployment = deployments[name]
        price = deployment.price or dearest
        if price is None:
            continue
        limit = most_answer_tokens(max_tokens, deployment.capabilities.max_output_tokens)
        tokens = max(limit * answers, plan.answer_tokens)
        prompt_usd = call.prompt_tokens * max(price.input_usd, price.cache_write_usd or 0.0)
        answer_usd = tokens * max(price.output_usd, price.reasoning_usd or 0.0)
        most_usd = max(most_usd, prompt_usd + answer_usd)
        if 0 < place < len(launched):
            beside_usd += prompt_usd + (answer_usd if deployment.bills_after_disconnect else 0.0)
    return most_usd + beside_usd


# Runs the call at one model: returns the record if a deployment answered, else why none did.
Run = Callable[[PlannedCall], Awaitable[CallRecord | Unanswered]]


class CallRunner:
    """One call, over all the models it tries. The caller must hold a lease of ``context.fleet`` until it ends."""

    def __init__(
        self,
        context: CallContext,
        model: str,
        preferences: Preferences,
        plan: PlanCall,
        *,
        may_fall_back: bool = True,
        begun: Begun | None = None,
        cancelled_as: Callable[[], type[ApiError]] = lambda: ClientDisconnected,
        answer_here: "Callable[[ApiError], web.Response | None]" = lambda _: None,
        services: Services | None = None,
        body: Kept | None = None,
    ) -> None:
        """Build the call for its model, or for the first fallback that can be used.

        ``begun``: what limits have already counted of the call; ``cancelled_as`` returns the error of a cancellation;
        ``answer_here`` may answer when no model is left; ``services`` replace the gateway's own;
        ``body`` is the request's.

        Raises:
            ApiError: no model can be used.

        """
        fleet = context.fleet
        self._context = context
        self._answer_here = answer_here
        self._begun = begun
        self._fallbacks = FallbackChain(
            fleet, model, preferences.models[1:], partial(plan, fleet=fleet), may_fall_back=may_fall_back
        )
        self.first_call = self._fallbacks.entry.call  # as built for the first usable model
        self.entry: PlannedCall = self._fallbacks.entry  # the current model's
        self.response_headers = self._fallbacks.response_headers  # besides those of the answer
        self._limit_headers: dict[str, str] = {}  # with the remaining amounts of limits
        self.open_call = OpenCall(
            services or context.services,
            self.entry.call,
            fleet=fleet,
            body=body,
            cancelled_as=cancelled_as,
        )

    @property
    def call(self) -> Call:
        """The call, as built for the current model."""
        return self.open_call.call

    async def run(self, run: Run) -> "CallRecord | web.Response":
        """Try the models in turn until one answers; return the record, or the response of ``answer_here``.

        Raises:
            ApiError: no model answered. The call is recorded, and the error has its id.

        """
        try:
            if is_counted(self.entry.call, self.entry.model):
                await self._hold()
            return await self._run(run)
        except ApiError:
            raise
        except asyncio.CancelledError:  # between two models or two parts of an answer; otherwise it is recorded already
            if self.open_call.launched:
                why = self.open_call.cancelled_as()
                self.open_call.finish(None, status_code=why.status, error_kind=why.code)
            raise
        except Exception:  # a defect of ours, perhaps between two models
            self.open_call.finish(None, status_code=InternalError.status, error_kind=InternalError.code)
            raise
        finally:
            self._context.limits.drop(self.call.id)

    async def gather(self, sink: Sink, entry: PlannedCall) -> CallRecord | Unanswered:
        """Race a model's deployments for an answer that is committed at its end. For ``run``."""
        ending = await prepared_race(self._context, entry, self.open_call, sink, self.response_headers).run()
        assert not isinstance(ending, Broken)  # an answer that breaks is replaced until its end
        return ending

    async def stream(self, sink: "ClientSink", entry: PlannedCall) -> CallRecord | Unanswered:
        """Race a model's deployments for a streamed answer; with takeover, others may finish it. For ``run``."""
        call, model, plan, open_call = entry.call, entry.model, entry.plan, self.open_call
        sink.delivered = delivered_of(call, model, open_call)
        ending: CallRecord | Unanswered | Broken
        if model.takeover.slow is not None and sink.delivered is not None:
            from gateway.racing import Rescue  # noqa: PLC0415 - memory: off by default

            rescue = Rescue(call, model, plan, open_call, sink)
            ending = await rescue.run(prepared_race(self._context, entry, open_call, rescue, self.response_headers))
        else:
            ending = await prepared_race(self._context, entry, open_call, sink, self.response_headers).run()
        while isinstance(ending, Broken):
            ending = await Takeover(call, model, plan, open_call, sink).finish(ending)
        return ending

    async def _hold(self) -> None:
        """Reserve the expected use of limits; if a model has no money left, move on to its fallback.

        Raises:
            LimitReached, LargerThanLimit: too little is left.

        """
        while True:
            entry = self.entry
            try:
                held = await self._context.limits.hold(
                    entry.call.id,
                    entry.call.levels,
                    payer_of(entry),
                    use_of(entry),
                    begun=self._begun,
                )
            except LimitReached as error:
                if not error.of_model or not self._fallbacks.advance(error):
                    raise
                self.entry = self._fallbacks.entry
                self.open_call.continue_as(self.entry.call)
            else:
                self._limit_headers = held
                self.response_headers.update(held)
                return

    async def _advance(self, error: ApiError) -> bool:
        """Move on to the next model whose limits allow the call; return whether there is one."""
        while self._fallbacks.advance(error):
            self.entry = entry = self._fallbacks.entry
            if is_counted(entry.call, entry.model):
                try:
                    await self._context.limits.hold_fallback(entry.call.id, payer_of(entry), use_of(entry))
                except LimitReached:
                    continue
            self.response_headers.update(self._limit_headers)
            return True
        return False

    async def _run(self, run: Run) -> "CallRecord | web.Response":
        while isinstance(ending := await run(self.entry), Unanswered):
            entry = self.entry
            out = self._context.steering.not_asked(entry.names, {*ending.full, *ending.asked})
            error = total_failure(entry.model, entry.plan, ending, out)
            if await self._advance(error):
                self.open_call.continue_as(self.entry.call)
                continue
            error.headers.update({"x-holeshot-call-id": self.call.id, **self.response_headers})
            if (own := self._answer_here(error)) is not None:
                own.headers.update(error.headers)
                self.open_call.finish(None, status_code=own.status, error_kind=None)
                return own
            self.open_call.finish(None, status_code=error.status_code, error_kind=error.kind)
            raise error
        return ending


def total_failure(model: Model, plan: Plan, ending: Unanswered, out: Sequence[NotAsked]) -> ApiError:
    """Return one error for all the failures at ``model``; ``out``: deployments that were not tried."""
    if not (plan.launches or plan.rest):
        return all_cooling(model.name, out, plan.retry_after_s or 1.0)
    return race_failed(model.name, ending.failures, full=ending.full, out=out, adhoc=model.adhoc)
