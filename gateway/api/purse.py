"""Whether a launch may be paid: the only place that asks the budget, dollars and limits, and tells reasons of refusals.

The race itself asks for a seat, and may wait for one; a launch refused for want of a seat is also told here.
"""

from collections.abc import Callable, MutableMapping

import msgspec

from gateway.api.call_context import CallContext
from gateway.api.plan_call import PlannedCall, is_counted, limits_dollars
from gateway.core.attempts import Narrowed, Role
from gateway.fleet import Model
from gateway.http import NARROWED
from gateway.limits import LimitReached, Payer, Use
from gateway.racing import (
    ANSWER_TOKENS,
    Continuer,
    OpenCall,
    StopKind,
    answers_made,
    asked_tier,
    most_answer_tokens,
    most_per_token,
    tier_wanted,
)
from gateway.steering import Launch, Plan


class Purse:
    """Pays for the launches of one call, at all models of the call."""

    def __init__(self, context: CallContext, open_call: OpenCall, response_headers: MutableMapping[str, str]) -> None:
        """``response_headers`` tell the client why the call has fewer attempts than asked for."""
        self.kept_out: dict[str, LimitReached] = {}  # models refused by a limit
        self.open_call = open_call
        self._context = context
        self._response_headers = response_headers

    def pay_beside(self, fallback: PlannedCall, late: PlannedCall, launch: Launch, *, is_second: bool) -> bool:
        """Pay for a fallback's launch from the late model beside which it starts; return whether that model may pay.

        Want of money refuses a launch only if the call has had a rescue already, or if the fallback costs over ten
        times as much.
        """
        is_needed = not (is_second or late.model.is_dear(fallback.model))
        reason = self.charge(late.model, launch, fallback.plan, is_needed=is_needed, of=fallback.model)
        if reason is not None:
            self.tell(reason)
        return reason is None

    async def reserve(self, planned: PlannedCall) -> bool:
        """Reserve the expected use of limits by a further model; return whether the limits allow the use."""
        self.kept_out.pop(planned.model.name, None)
        if is_counted(planned.call, planned.model):
            try:
                await self._context.limits.hold_fallback(planned.call.caller.id, payer_of(planned), use_of(planned))
            except LimitReached as error:
                self.kept_out[planned.model.name] = error
                self.tell(Narrowed.LIMITS)
                return False
        return True

    def charge(
        self, model: Model, launch: Launch, plan: Plan, *, is_needed: bool, of: Model | None = None
    ) -> Narrowed | None:
        """Charge an extra attempt of ``plan`` to ``model``; return why it may not start now. None: it is paid.

        ``is_needed``: the call's first rescue or fallback, which no limit in dollars refuses. ``of``: the model to ask;
        None: ``model``.
        """
        steering, cost_usd, of = self._context.steering, plan.cost_usd.get(launch.deployment), of or model
        learnt_as = None if of.tenant is None else of.learnt_as
        if learnt_as is not None and launch.deployment in learnt_as:
            cost_usd = None  # the client pays
        return steering.draw_extra(
            model.name,
            launch,
            model.race,
            cost_usd=cost_usd,
            payer=model.payer,
            is_needed=is_needed,
            learnt_as=learnt_as,
            client=self.open_call.call.caller.client,
        )

    def continuer(
        self,
        planned: PlannedCall,
        *,
        beside: PlannedCall | None = None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> Continuer:
        """Return ``planned`` as a model that may continue a broken answer, its own or that of the model ``beside``.

        An attempt that continues a broken answer runs beside no other, and is not extra. ``on_refused`` is called if
        the model ``beside`` may not pay.
        """

        async def reserve(launch: Launch) -> bool:
            if beside is None:
                return True  # reserved when the call began
            return await self.reserve(msgspec.structs.replace(planned, plan=planned.plan.continued(launch)))

        def pay(launch: Launch, stopped: StopKind) -> bool:
            if stopped is StopKind.BROKE:
                return True
            if stopped is StopKind.SLOW:
                return self._context.services.rescues.spend(self.open_call.call.caller.client)
            if beside is None:
                is_needed = launch.role is Role.FAILOVER
                return self.charge(planned.model, launch, planned.plan, is_needed=is_needed) is None
            is_permitted = self.pay_beside(planned, beside, launch, is_second=False)
            if not is_permitted:
                on_refused()
            return is_permitted

        return Continuer(planned.model, planned.plan, planned.call, reserve, pay)

    def left_out(self, planned: PlannedCall) -> None:
        """Count the attempts asked for by a plan and not started."""
        self._context.steering.left_out(planned.model.name, planned.plan)

    def count_refused_seat(self, planned: PlannedCall) -> None:
        """Count an extra launch without a seat."""
        self._context.services.seats.refused(planned.model.name)

    def tell(self, reason: Narrowed) -> None:
        """Tell why the call has fewer attempts than asked for, unless a reason with priority is known."""
        open_call = self.open_call
        open_call.narrowed = self._response_headers[NARROWED] = reason.before(open_call.narrowed)

    def tell_again(self) -> None:
        """Tell the known reason, if any, in the headers of another model's answer."""
        if self.open_call.narrowed is not None:
            self._response_headers[NARROWED] = self.open_call.narrowed


class Allowance(msgspec.Struct, eq=False):
    """The money that one plan may spend: asked before each launch that is due."""

    purse: Purse
    planned: PlannedCall
    is_told: bool = True  # the client, why the plan starts fewer attempts; False: it runs beside another model's
    is_rescued: bool = False

    def begin(self) -> None:
        """Note in the call what its plan asks for, and tell why the plan has fewer attempts already."""
        purse, planned = self.purse, self.planned
        open_call, plan = purse.open_call, planned.plan
        open_call.width_asked, open_call.cached = plan.width_asked or None, plan.cached
        if open_call.narrowed is not Narrowed.LIMITS:  # a limit kept another fallback out
            open_call.narrowed = None
        if plan.narrowed is not None:
            purse.left_out(planned)
            purse.tell(plan.narrowed)

    def pay(self, launch: Launch) -> bool:
        """Pay for a launch beside another attempt; return whether the launch may start now. Probes are only counted."""
        planned, rescues = self.planned, launch.role is Role.FAILOVER
        plan = planned.plan
        if plan.withheld_by is not None and launch is plan.withheld:
            self.purse.left_out(planned)
            self._tell(plan.withheld_by)
            return False
        is_needed = rescues and not self.is_rescued
        reason = self.purse.charge(planned.model, launch, plan, is_needed=is_needed)
        self.is_rescued |= rescues and reason is None
        if reason is not None:
            self._tell(reason)
        return reason is None

    def note_refused_seat(self, launch: Launch) -> None:  # noqa: ARG002 - whichever it is
        """Count and tell that an extra launch gets no seat."""
        self.purse.count_refused_seat(self.planned)
        self._tell(Narrowed.CAPACITY)

    def _tell(self, reason: Narrowed) -> None:
        if self.is_told:
            self.purse.tell(reason)


# The expected use of limits by a planned call, and the model that pays.


def payer_of(planned: PlannedCall) -> Payer:
    """Return the model of ``planned`` in the form for limits."""
    model = planned.model
    return Payer(model.name, model.payer or model.name, model.use_limits, model.dearest, model.zone)


def use_of(planned: PlannedCall) -> Use:
    """Return the expected use of limits by the call, and the most that it may cost."""
    plan, prompt_tokens = planned.plan, planned.call.traits.prompt_tokens
    usd, costs, may_cost = 0.0, plan.cost_usd, len(planned.model.prices) < len(planned.model.deployments)
    if planned.model.tenant is not None:
        deployments = planned.model.deployments
        costs = {name: each for name, each in costs.items() if deployments[name].tenant is None}
        may_cost = any(deployments[name].tenant is None for name in planned.names)
    if costs:
        for launch in plan.launches:
            if launch.delay_s == 0:
                usd += costs.get(launch.deployment, 0.0)
        if planned.model.tenant is not None and not usd:  # the client's own key goes first, and others may follow
            usd = max(costs.values())
    may_cost = may_cost or usd > 0.0
    most_usd = _most_usd(planned) if may_cost and limits_dollars(planned.call.caller.levels, planned.model) else 0.0
    return Use(prompt_tokens, prompt_tokens + plan.answer_tokens, usd, most_usd)


def _most_usd(planned: PlannedCall) -> float:
    """Return the most that the call may cost: the longest allowed answer of the most expensive deployment.

    Other launches of the plan add their prompt, and an answer, too, if their vendor bills an answer to its end.
    """
    call, plan, deployments, dearest = planned.call, planned.plan, planned.model.deployments, planned.model.dearest
    max_tokens = None if call.traits.kind is None else call.traits.kind.max_tokens
    answers = 0 if call.traits.kind is None else answers_made(call.request.fields, call.request.dialect)
    has_limit = bool(call.request.dialect.requests.parameters.answer_limits)  # other APIs do not answer in tokens
    launched = [launch.deployment for launch in plan.launches]
    tier = asked_tier(call.request.fields)
    most_usd = beside_usd = 0.0
    for place, name in enumerate([*launched, *plan.rest]):
        deployment = deployments[name]
        if deployment.tenant is not None:
            continue
        limit = most_answer_tokens(max_tokens, deployment.capabilities) if has_limit else ANSWER_TOKENS
        tokens = max(limit * answers, plan.answer_tokens)
        prompt_usd = answer_usd = 0.0
        for price in (deployment.price,) if deployment.price is not None else (deployment.listed, dearest):
            if price is not None:
                input_usd, output_usd = most_per_token(price, tier_wanted(deployment, tier), call.traits.prompt_tokens)
                prompt_usd = max(prompt_usd, call.traits.prompt_tokens * input_usd)
                answer_usd = max(answer_usd, tokens * output_usd)
        most_usd = max(most_usd, prompt_usd + answer_usd)
        if 0 < place < len(launched):
            beside_usd += prompt_usd + (answer_usd if deployment.bills_after_disconnect else 0.0)
    return most_usd + beside_usd
