"""The journey of one call, alike for every API: its model, then those asked in its place, until one has answered."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from aiohttp import web

from gateway.calls import Call, CallRecord
from gateway.errors import ApiError
from gateway.fleet.model import Model
from gateway.ingress.context import Context
from gateway.ingress.entry import Enter, Entry
from gateway.ingress.preferences.provider_preferences import Preferences
from gateway.ingress.succession import Succession
from gateway.race_failures import NotAsked, all_cooling, race_failed
from gateway.racing.open_call import OpenCall, Unanswered
from gateway.racing.services import Services
from gateway.steering.plans import Plan

# Has the deployments of one model answer; the record if one did, and else why not.
Run = Callable[[Entry], Awaitable[CallRecord | Unanswered]]


class Journey:
    """One call on its way. It keeps the configuration that it began with: its holder leases ``context.fleet``."""

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
        """Enter the model, or the first that can be asked in its place.

        ``answer_here`` may answer when nobody else is left to be asked; ``services`` replace the gateway's own.

        Raises:
            ApiError: nobody can be asked.

        """
        fleet = context.fleet
        self._context = context
        self._answer_here = answer_here
        self._succession = Succession(
            fleet, model, preferences.models[1:], partial(enter, fleet=fleet), may_fall_back=may_fall_back
        )
        self.entry: Entry = self._succession.entry  # the model whose turn it is
        self.told = self._succession.told  # headers for the client besides those of the answer
        self.open_call = OpenCall(
            services or context.services,
            self.entry.call,
            fleet=fleet,
            cancelled_as=partial(context.cancelled_as, request),
        )

    @property
    def call(self) -> Call:
        """The call, as it is for this model."""
        return self.open_call.call

    async def run(self, run: Run) -> CallRecord | web.Response:
        """Have model after model answer until one has; return the record, or an answer of the gateway's own.

        Raises:
            ApiError: nobody answered. The call is recorded, and the error tells which it was.

        """
        while isinstance(ending := await run(self.entry), Unanswered):
            entry = self.entry
            out = self._context.steering.not_asked(entry.names, {*ending.full, *ending.asked})
            error = total_failure(entry.model, entry.plan, ending, out)
            if self._succession.goes_on(error):
                self.entry = self._succession.entry
                self.open_call.goes_on(self.entry.call)
                continue
            error.headers.update({"x-holeshot-call-id": self.call.id, **self.told})
            if (own := self._answer_here(error)) is not None:
                own.headers.update(error.headers)
                self.open_call.finish(None, status_code=own.status, error_kind=None)
                return own
            self.open_call.finish(None, status_code=error.status_code, error_kind=error.kind)
            raise error
        return ending


def total_failure(model: Model, plan: Plan, ending: Unanswered, out: Sequence[NotAsked]) -> ApiError:
    """Return the one error that stands for all that kept ``model`` from answering; ``out`` were not even asked."""
    if not (plan.launches or plan.rest):
        return all_cooling(model.name, out, plan.retry_after_s or 1.0)
    return race_failed(model.name, ending.failures, full=ending.full, out=out, adhoc=model.adhoc)
