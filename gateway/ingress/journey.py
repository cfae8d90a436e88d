"""The way of one call, the same for every API: its model, then its fallbacks, until one has answered."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from aiohttp import web

from gateway.calls import Call, CallRecord
from gateway.errors import ApiError, InternalError
from gateway.fleet.model import Model
from gateway.ingress.context import BEGUN, Context
from gateway.ingress.entry import Enter, Entry, is_counted
from gateway.ingress.expected_use import payer_of, use_of
from gateway.ingress.preferences.provider_preferences import Preferences
from gateway.ingress.succession import Succession
from gateway.limits.errors import LimitReached
from gateway.race_failures import NotAsked, all_cooling, race_failed
from gateway.racing.open_call import OpenCall, Unanswered
from gateway.racing.services import Services
from gateway.steering.plans import Plan

# Runs the call at one model: returns the record if a deployment answered, else why none did.
Run = Callable[[Entry], Awaitable[CallRecord | Unanswered]]


class Journey:
    """One call, over all the models it tries. The caller must hold a lease of ``context.fleet`` until it ends."""

    def __init__(
        self,
        context: Context,
        request: web.Request | None,
        model: str,
        preferences: Preferences,
        enter: Enter,
        *,
        may_fall_back: bool = True,
        answer_here: Callable[[ApiError], web.Response | None] = lambda _: None,
        services: Services | None = None,
    ) -> None:
        """Build the call for its model, or for the first fallback that can be used.

        ``answer_here`` may answer when no model is left; ``services`` replace the gateway's own.

        Raises:
            ApiError: no model can be used.

        """
        fleet = context.fleet
        self._context = context
        self._answer_here = answer_here
        self._begun = None if request is None else request.get(BEGUN)
        self._succession = Succession(
            fleet, model, preferences.models[1:], partial(enter, fleet=fleet), may_fall_back=may_fall_back
        )
        self.first_call = self._succession.entry.call  # as built for the first model that could be asked
        self.entry: Entry = self._succession.entry  # the current model's
        self.response_headers = self._succession.response_headers  # besides those of the answer
        self._limit_headers: dict[str, str] = {}  # that say what is left
        self.open_call = OpenCall(
            services or context.services,
            self.entry.call,
            fleet=fleet,
            cancelled_as=partial(context.cancelled_as, request),
        )

    @property
    def call(self) -> Call:
        """The call, as built for the current model."""
        return self.open_call.call

    async def run(self, run: Run) -> CallRecord | web.Response:
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
        except asyncio.CancelledError:  # between two models, or two parts of an answer; otherwise it is recorded
            if self.open_call.launched:
                why = self.open_call.cancelled_as()
                self.open_call.finish(None, status_code=why.status, error_kind=why.code)
            raise
        except Exception:  # a defect of ours, perhaps between two models
            self.open_call.finish(None, status_code=InternalError.status, error_kind=InternalError.code)
            raise
        finally:
            self._context.limits.drop(self.call.id)

    async def _hold(self) -> None:
        """Hold what the call will probably use of its limits; a model without money left is followed by its fallback.

        Raises:
            LimitReached, LargerThanLimit: too little is left.

        """
        while True:
            entry = self.entry
            try:
                held = await self._context.limits.hold(
                    entry.call.id,
                    entry.call.client,
                    entry.call.limits,
                    payer_of(entry),
                    use_of(entry),
                    begun=self._begun,
                )
            except LimitReached as error:
                if not error.of_model or not self._succession.advance(error):
                    raise
                self.entry = self._succession.entry
                self.open_call.continue_as(self.entry.call)
            else:
                self._limit_headers = held
                self.response_headers.update(held)
                return

    async def _advance(self, error: ApiError) -> bool:
        """Move on to the next model that may be paid for; return whether there is one."""
        while self._succession.advance(error):
            self.entry = entry = self._succession.entry
            if is_counted(entry.call, entry.model):
                try:
                    await self._context.limits.hold_fallback(entry.call.id, payer_of(entry), use_of(entry))
                except LimitReached:
                    continue
            self.response_headers.update(self._limit_headers)
            return True
        return False

    async def _run(self, run: Run) -> CallRecord | web.Response:
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
    """Return one error for all the failures at ``model``; ``out`` are deployments that were not asked at all."""
    if not (plan.launches or plan.rest):
        return all_cooling(model.name, out, plan.retry_after_s or 1.0)
    return race_failed(model.name, ending.failures, full=ending.full, out=out, adhoc=model.adhoc)
