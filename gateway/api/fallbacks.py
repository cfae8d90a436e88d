"""The fallbacks of the model that a request names, and when a fallback is asked beside a late model."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from gateway.api.call_context import CallContext
from gateway.api.plan_call import ModelTurn, PlanCall, PlannedCall
from gateway.api.preferences import is_passed_on
from gateway.api.purse import Allowance, Purse
from gateway.core.errors import ApiError, NoDeploymentFits, NothingEnabled, NothingStored, ResponseNotFound
from gateway.core.race_failures import RaceFailed, RejectedByProvider
from gateway.fleet import Fleet, Model
from gateway.http import PLAN_HEADER, headers
from gateway.limits import LimitReached
from gateway.racing import FallbackModel, Sink
from gateway.settings import Cause, FallbackAfter, When
from providers import Meaning, RefusalScope

if TYPE_CHECKING:
    from gateway.core.calls import Call

# The cause why a model could not answer; it decides which fallback models are tried.


_CAUSES = {
    RefusalScope.LENGTH: Cause.CONTEXT,
    RefusalScope.CONTENT: Cause.CONTENT_FILTER,
    **dict.fromkeys((RefusalScope.MINUTE, RefusalScope.TERMS, RefusalScope.SIZE, RefusalScope.MODEL), Cause.FAILED),
}


def cause_of(error: ApiError) -> Cause | None:
    """Return the cause for which a fallback may be tried after ``error``; None: the request is wrong for all."""
    if isinstance(error, NoDeploymentFits):
        return Cause.CONTEXT if error.meaning is Meaning.TOO_LONG else Cause.FAILED
    if isinstance(error, RejectedByProvider):
        is_large = error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE  # in tokens or bytes, which vendors mix up
        return Cause.CONTEXT if is_large else _CAUSES.get(error.scope)
    is_ours = error.of_model if isinstance(error, LimitReached) else isinstance(error, RaceFailed | NothingEnabled)
    return Cause.FAILED if is_ours else None


# The models that a call tries in turn: the requested model, then its fallbacks.

FALLBACK = "x-holeshot-fallback"  # the model that answers instead of the requested one


class FallbackChain:
    """The current model of a call, and the next one. Each model is tried once.

    After a failure the order is: the request's own fallbacks, for any cause; the fallbacks that are configured for the
    first model and this cause; then the fallbacks of these.
    """

    in_vain: frozenset[str] = frozenset()  # deployments that have failed in this call, or keep its late model waiting

    def __init__(
        self, fleet: Fleet, asked: str, wanted: Sequence[str], plan_call: PlanCall, *, may_fall_back: bool = True
    ) -> None:
        """``asked``: the requested model; ``wanted``: the request's own fallbacks. ``begin`` must be called first.

        ``plan_call`` must not refer to this object, or there would be a reference cycle.
        """
        self.response_headers: dict[str, str] = {}  # besides those of the answer
        self._fleet = fleet
        self._wanted = wanted
        self._plan_call = plan_call
        self._may_fall_back = may_fall_back
        self._asked = asked
        self._tried = {asked}
        self._unseen: set[str] = set()  # models that were planned without pictures
        self._only_after_failure: set[str] = set()  # not asked beside a late model that may not pay for them
        self._causes: list[tuple[str, Cause]] = []  # models that could not answer, with the cause
        self.continuing: dict[str, PlannedCall] = {}  # fallbacks that may continue an answer
        self._first_call: Call | None = None  # calls for fallbacks keep its id and times
        self.planned: PlannedCall
        self.own: str | None = None  # the requested model as planned; None: that model cannot be used
        # Whether another model may be asked beside a late one. A call that changes something at a provider is sent to
        # one only.
        self.hedges = False

    async def begin(self) -> PlannedCall:
        """Build the call for the requested model, or for the first usable fallback.

        If a fallback answered an earlier turn, what the request names is stored there: then the fallback answers.

        Raises:
            ApiError: no model can be used.

        """
        try:
            planned = self.planned = await self._plan_call(ModelTurn(self._asked, self._fleet))
            self.own = planned.model.name
            if planned.response_headers or planned.plan.explanation is not None:
                self._set_headers(planned)
        except ApiError as error:
            is_elsewhere = isinstance(error, ResponseNotFound | NothingStored)
            following = await (self._storing() if is_elsewhere else self.following([(self._asked, error)]))
            if following is None and cause_of(error) is not None:
                following = await self.unseen()
            if following is None:
                raise
            self.use(following)
        self._first_call = call = self.planned.call
        # What one provider may have begun in the background is begun by no other. Until here nobody was asked.
        self._may_fall_back = self._may_fall_back and not call.request.runs_on
        has_others = bool(self._wanted or self.planned.model.fallbacks or self._causes)
        self.hedges = has_others and not call.request.stateful and self._may_fall_back
        return self.planned

    async def _storing(self) -> PlannedCall | None:
        """Build the call for the fallback that has what the request names; None: no fallback has it."""
        asked = self._fleet.known(self._asked)
        for name in (*self._wanted, *(each.model for each in (() if asked is None else asked.fallbacks))):
            with suppress(ApiError):
                return await self._plan_call(ModelTurn(name, self._fleet))
        return None

    async def following(self, errors: Sequence[tuple[str, ApiError]]) -> PlannedCall | None:
        """Build the call for the next model after ``errors`` (model and error); None: no such model."""
        causes = [(name, cause) for name, error in errors if (cause := cause_of(error)) is not None]
        return await self._first_usable(causes) if causes else None

    def after(self, late: str) -> tuple[str, FallbackAfter] | None:
        """Return the model that is asked beside the model ``late``, and when; None: no such model."""
        return next(self._waiting([*self._causes, (late, Cause.FAILED)], beside=True), None)

    def late_s(self, context: CallContext, planned: PlannedCall) -> float | None:
        """Return when the next model is asked beside that of ``planned``, seconds after the start; None: never."""
        following = self.after(planned.model.name)
        return None if following is None else late_after_s(context, self._fleet, planned, following)

    async def beside(self, late: str, first: str) -> PlannedCall | None:
        """Build the call for the next model, to be asked beside the model ``late``; None: no such model.

        ``first``: the first model that was late.
        """
        return await self._first_usable([(late, Cause.FAILED)], beside=first)

    def to_continue(self, *, beside: bool) -> Iterator[PlannedCall]:
        """Yield the fallbacks that may continue the current model's answer; ``beside``: while the answer still runs.

        A fallback that was asked in vain beside the model may be among them. A fallback's own ``takeover`` counts if
        set.
        """
        causes = [*self._causes, (self.planned.model.name, Cause.FAILED)]
        passed = {name for name, _ in causes}
        names = [name for name, _ in self._listed(causes, beside=beside)]
        for is_unseen, name in product((False, True), names):  # those that see pictures come first
            if name in passed:
                continue
            with suppress(ApiError):
                turn = ModelTurn(name, self._fleet, self._first_call, is_unseen=is_unseen)
                planned = self.continuing.get(name) or _at_once(self._plan_call(turn))
                passed.add(name)
                if planned is not None and _takes_over(planned.model):
                    self.continuing[name] = planned
                    yield planned

    def keep(self, name: str) -> None:
        """Ask the model ``name`` only after a failure, as the late model may not pay for it."""
        self._tried.discard(name)
        self._only_after_failure.add(name)

    def allow_all_but(self, failed: set[str]) -> None:
        """Let the models that gave way be asked again, as the answer broke off; not those that have ``failed``."""
        self._tried = failed

    async def again(self) -> PlannedCall | None:
        """Plan the requested model once more, and make it the current one; None: that model cannot be used."""
        with suppress(ApiError):
            planned = self.planned = await self._plan_call(ModelTurn(self._asked, self._fleet, self._first_call))
            self._set_headers(planned)
            self._tried, self._causes = {self._asked}, []
            return planned
        return None

    async def unseen(self) -> PlannedCall | None:
        """Plan the next model, the requested one first, with notes in place of pictures; None: no such model.

        A deployment that sees pictures gets them in this plan, too (``translations.py``).
        """
        names = (self._asked, *(name for name, _ in self._of_all(self._causes)))
        return await self._first_of(names, self._unseen, is_unseen=True)

    def use(self, planned: PlannedCall) -> None:
        """Make the model of ``planned`` the current one: a fallback, or the requested model once more."""
        self.planned = planned
        self.hedges = not planned.call.request.stateful
        self._set_headers(planned)
        if planned.model.name != self.own:
            self.response_headers[FALLBACK] = planned.model.name

    async def _first_usable(
        self, causes: Sequence[tuple[str, Cause]], *, beside: str | None = None
    ) -> PlannedCall | None:
        """Build the call for the first usable fallback of models that could not answer; None: no such fallback.

        ``beside``: the running model; beside it only fallbacks are asked that need no failure.
        """
        self._causes += [each for each in causes if each not in self._causes]
        names = (name for name, _ in self._waiting(self._causes, beside=beside is not None))
        return await self._first_of(names, self._tried, beside=beside)

    async def _first_of(
        self, names: Iterable[str], tried: set[str], *, beside: str | None = None, is_unseen: bool = False
    ) -> PlannedCall | None:
        """Plan the first of the models ``names`` that can be used and was not ``tried``; None: no such model."""
        for name in names:
            if name not in tried:
                tried.add(name)
                turn = ModelTurn(name, self._fleet, self._first_call, beside, self.in_vain, is_unseen)
                with suppress(ApiError):
                    planned = await self._plan_call(turn)
                    self.own = planned.model.name if name == self._asked else self.own
                    return planned
        return None

    def _waiting(self, causes: Sequence[tuple[str, Cause]], *, beside: bool) -> Iterator[tuple[str, FallbackAfter]]:
        """Yield the fallbacks of ``_listed`` that were not tried yet."""
        for name, after in self._listed(causes, beside=beside):
            if name not in self._tried:
                yield name, after

    def _listed(self, causes: Sequence[tuple[str, Cause]], *, beside: bool) -> Iterator[tuple[str, FallbackAfter]]:
        """Yield the fallbacks in order, each with the time after which it is asked beside a late model.

        ``beside``: only fallbacks that need no failure.
        """
        for name, after in self._of_all(causes):
            if not beside or not (after == "failure" or name in self._only_after_failure):
                yield name, after

    def _of_all(self, causes: Sequence[tuple[str, Cause]]) -> Iterator[tuple[str, FallbackAfter]]:
        if not self._may_fall_back:
            return
        if self._asked not in self._tried:  # it gave way
            yield self._asked, "failure"
        if self._first_call is None or not is_passed_on(self.planned.model):  # else OpenRouter uses the request's
            asked_model = self._fleet.known(self._asked)
            yield from ((name, "auto" if asked_model is None else asked_model.fallback_after) for name in self._wanted)
        for name, why in causes:  # the whole list of the first model before the lists of its fallbacks
            model = self._fleet.known(name)
            if model is not None:
                yield from fallbacks_of(model, why)

    def _set_headers(self, planned: PlannedCall) -> None:
        self.response_headers.clear()
        self.response_headers.update(planned.response_headers)
        if planned.plan.explanation is not None:
            self.response_headers[PLAN_HEADER] = headers.written(planned.plan.explanation)


def _at_once(planning: Coroutine[Any, Any, PlannedCall]) -> PlannedCall | None:
    """Return the planned call; None for a request so long that it is translated in a thread."""
    try:
        planning.send(None)
    except StopIteration as planned:
        return cast("PlannedCall", planned.value)
    planning.close()
    return None


def _takes_over(fallback: Model) -> bool:
    """Whether ``fallback`` may continue another model's answer, which only its own ``takeover`` can forbid."""
    return fallback.takeover.when is When.ALWAYS or "when" not in fallback.takeover.model_fields_set


# When the next model is asked beside one that is late, and how.

SEAT_PATIENCE_S = 2.0  # if all deployments are full, the next model is asked after this wait for a seat


def fallbacks_of(model: Model, cause: Cause) -> Iterator[tuple[str, FallbackAfter]]:
    """Yield the configured fallbacks of a ``model`` for this cause, each with when it is asked beside the model."""
    for each in model.fallbacks:
        if cause in each.causes:
            yield each.model, each.fallback_after or model.fallback_after


def late_after_s(
    context: CallContext, fleet: Fleet, planned: PlannedCall, following: tuple[str, FallbackAfter]
) -> float | None:
    """Return when the ``following`` model is asked beside that of ``planned``, seconds after the start; None: never.

    With a deadline the next model is asked early enough that nine of ten of its first tokens can meet the deadline. But
    it is not asked before three of four first tokens of the late model would have come, so that few calls are doubled.
    """
    (name, after), call = following, planned.call
    model = fleet.known(name)
    late_s = planned.model.waits_s(after, planned.plan.late_s, model)
    if late_s is not None and after == "auto" and call.deadline_at is not None and not planned.model.is_dear(model):
        left_s = call.deadline_at - context.services.clock()
        names = () if model is None else tuple(model.deployments)
        takes_s = context.steering.first_token_s(name, names, call.traits.prompt_class, call.traits.prompt_tokens)
        start_s = left_s - (left_s / 2 if takes_s is None else takes_s)
        late_s = late_s if start_s <= 0 else min(late_s, max(start_s, planned.plan.mostly_s))
    return late_s


def late_at_first_s(context: CallContext, planned: PlannedCall, late_s: float) -> float:
    """Return when the next model is asked beside the first one, which is late after ``late_s``.

    If all deployments of the first one are broken, that is at once; if all are full, soon.
    """
    learnt_as = None if planned.model.tenant is None else planned.model.learnt_as
    out = context.steering.not_asked(planned.names, (), learnt_as, client=planned.call.caller.client)
    if len(out) == len(planned.names):
        return 0.0
    lines = context.services.seats.lines
    if lines and all(name in lines and not lines[name].has_room for name in planned.names):
        return min(late_s, SEAT_PATIENCE_S)
    return late_s


class FallbacksBeside:
    """The fallbacks of a late model, for its race: planned and paid one by one, until a fallback answers."""

    def __init__(
        self,
        context: CallContext,
        purse: Purse,
        fallbacks: FallbackChain,
        first: PlannedCall,
        *,
        late_s: float,
        sink: Sink,
        use: Callable[[PlannedCall], None],
    ) -> None:
        """``late_s``: when ``first`` is late. ``sink``: for the answers. ``use``: called with the fallback that won."""
        self.late_s = late_s
        self.plans = {first.model.name: first}  # of all models of the race
        self._context = context
        self._purse = purse
        self._fallbacks = fallbacks
        self._first = first
        self._late = first.model.name  # the model that was asked last, and is late
        self._sink = sink
        self._use = use

    async def next(self, *, is_rescued: bool) -> FallbackModel | None:
        """Return the next fallback that limits and the late model's budget allow; None: no such fallback."""
        purse, fallbacks = self._purse, self._fallbacks
        if purse.open_call.sent.left <= 0:
            return None
        for plan in self.plans.values():
            fallbacks.in_vain |= {launch.deployment for launch in plan.plan.launches}
        while (planned := await fallbacks.beside(self._late, self._first.model.name)) is not None:
            self._late = planned.model.name
            if await purse.reserve(planned) and self._is_paid(planned, is_second=is_rescued):
                self.plans[planned.model.name] = planned
                allowance = Allowance(purse, planned, is_told=False)
                return FallbackModel(
                    planned.model,
                    planned.plan,
                    planned.call,
                    self._sink,
                    may_launch=allowance.pay,
                    on_seat_refused=allowance.note_refused_seat,
                    late_s=fallbacks.late_s(self._context, planned),
                    reading=planned.reading,
                )
        return None

    def _is_paid(self, fallback: PlannedCall, *, is_second: bool) -> bool:
        """Whether the late model pays for a fallback beside it; if not, the fallback is asked only after a failure."""
        launches = fallback.plan.launches
        if self.late_s == 0.0 or not launches:  # the late model cannot answer at all, or there is nothing to pay for
            return True
        is_permitted = self._purse.pay_beside(fallback, self._first, launches[0], is_second=is_second)
        if not is_permitted:
            self._fallbacks.keep(fallback.model.name)
        return is_permitted

    def won(self, model: str) -> None:
        """Make a fallback the model that answers."""
        self._use(self.plans[model])

    def runs_on(self, model: str, attempts: Sequence[str]) -> bool:
        """Whether the overtaken primary of ``model`` runs on to its first token."""
        return self._context.steering.runs_on(model, self.plans[model].plan, attempts)
