"""The models that are asked after the one that a request names, and when one is asked beside another."""

from collections.abc import Iterator

from gateway.api.call_context import CallContext
from gateway.api.plan_call import PlannedCall
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Model
from gateway.settings import Cause, FallbackAfter

SEAT_PATIENCE_S = 2.0  # if all deployments are full, the next model is asked after this wait for a seat


def fallbacks_of(model: Model, cause: Cause) -> Iterator[tuple[str, FallbackAfter]]:
    """Yield the configured fallbacks of a ``model`` that fails by this cause, each with when it is asked beside it."""
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
