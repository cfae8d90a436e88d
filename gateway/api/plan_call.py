"""From a request to a race: builds the call, selects its deployments, plans it, and prepares the race."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from gateway.api.call_context import CallContext, ClientContext
from gateway.api.client import Client
from gateway.api.fitting import REFUSE, SHORT_BYTES, Fitting, ResolvedModel, led_by
from gateway.api.overrides import with_override
from gateway.api.provider_state import StoredAt
from gateway.api.request import ParsedRequest
from gateway.core.attempts import AnswerKind, WinOn
from gateway.core.calls import Call, CallKind, CallRecord, Level, Mode, Objective
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Model
from gateway.limits import DOLLARS, Payer, Use
from gateway.racing import (
    ANSWER_TOKENS,
    EVENTS,
    Attempt,
    Reading,
    answer_kind,
    answers_asked,
    answers_made,
    asked_tier,
    asked_whole,
    cannot_read,
    most_answer_tokens,
    most_per_token,
    tier_wanted,
)
from gateway.steering import (
    CONVERSATION_BYTES,
    PREFIX_BYTES,
    STRATEGIES,
    Plan,
    Prefix,
    Terms,
    conversation_of,
    prefix_of,
)
from providers.dialects import RequestFormat, bound_reasoning


class PlannedCall(msgspec.Struct, frozen=True):
    """A planned call, ready to run."""

    call: Call
    model: Model  # as this call uses it: with its profile and overrides
    plan: Plan
    response_headers: dict[str, str]  # report what the gateway changed
    prefix: Prefix | None
    names: tuple[str, ...]  # of all deployments that can answer, also those that are out of rotation
    reading: Reading[Attempt] = EVENTS  # how they are asked


class PlanCall(Protocol):
    """Builds the call for one model; ``instead_of`` is the same call as built for the first model."""

    def __call__(self, name: str, instead_of: Call | None, *, fleet: Fleet) -> Coroutine[Any, Any, PlannedCall]:
        """Build the call for the model ``name`` of ``fleet``.

        Raises:
            ApiError: this model cannot be used for it.

        """


async def plan_call(
    context: CallContext,
    parsed: ParsedRequest,
    client_context: ClientContext,
    name: str,
    instead_of: Call | None,
    *,
    fleet: Fleet,
    made_by: StoredAt | None = None,
    allow: Callable[[Model], Model] = lambda model: model,
) -> PlannedCall:
    """Build and plan the call that ``parsed`` requests from the model ``name``. The plan is counted in the standings.

    ``fleet`` is the one that the call has leased. ``made_by`` has what the request names or
    continues. ``instead_of`` is the same call as built for the model that could not answer. ``allow`` may change the
    model's cost limits.

    Raises:
        ModelNotFound, Forbidden, InvalidRequest: the client may not send this request to this model.
        NoDeploymentFits: no deployment of the model can answer it.
        TooManyValues: it has too many values to be translated.
        LimitReached, Overloaded, TooManyBodies: likewise, before a long request is translated.

    """
    client_context.client.check_model(name)
    found = fleet.find(name, adhoc=client_context.client.adhoc)
    parsed = msgspec.structs.replace(parsed, stateful=True) if found.common.acts else parsed
    permitted = allow(with_override(found, parsed.race, client_context.client, stateful=parsed.stateful))
    tenant = client_context.client.tenant
    permitted = permitted if tenant is None else fleet.with_keys(permitted, tenant)
    resolved = ResolvedModel(permitted, parsed, client_context.client)
    if made_by is not None:
        resolved.restrict_to(made_by)
    if client_context.client.unpriced == REFUSE and limits_dollars(client_context.levels, resolved.model):
        resolved.refuse_unpriced()
    most = context.settings.limits.max_values
    if parsed.size <= SHORT_BYTES or resolved.is_light(most):
        fitting = resolved.fitted(client_context.client, most)
    else:
        fitting = await _fitted_aside(context, resolved, client_context)
    # ``sent`` is the request as this model is asked, ``parsed`` as its client sent it.
    model, sent, race_asked = resolved.model, resolved.parsed, resolved.race_asked
    if parsed.stateful:
        race_asked = with_override(found, parsed.race, client_context.client, stateful=False).race
    if len(fitting.deployments) == 1 < len(found.deployments) and STRATEGIES[model.race.mode].races_itself:
        # Only a model with a single configured deployment may race it against itself.
        model = msgspec.structs.replace(model, race=model.race.model_copy(update={"mode": Mode.SINGLE}))
    kind = CallKind(
        endpoint=parsed.dialect.endpoint,
        structured=parsed.for_program,
        max_tokens=sent.needs.max_tokens,
        client=client_context.client.name,
        tags=client_context.tags,
        prompt_tokens=sent.needs.prompt_tokens,
    )
    # A fallback has the deadline of the model asked for, where there is one.
    asked_ms = None if instead_of is None else instead_of.deadline_ms
    deadline_ms = model.race.ttft_ms if asked_ms is None else asked_ms
    asked_kind, win_on = answer_kind(sent.fields, parsed.dialect), model.race.win_on
    if win_on is not WinOn.ANY:
        several = answers_asked(sent.fields, parsed.dialect) > 1
        win_on = _win_on(win_on, asked_kind, streamed=parsed.stream, stateful=parsed.stateful, several=several)
    stamp = client_context.stamp(context, sent.fields, instead_of)
    call = Call(
        *msgspec.structs.astuple(stamp),
        client=client_context.client.name,
        model=model.name,
        asked_model=None if model.name == parsed.model else parsed.model,
        endpoint=kind.endpoint,
        dialect=parsed.dialect,
        streamed=parsed.stream,
        mode=model.race.mode,
        objective=resolved_objective(model.race.objective, streamed=parsed.stream, for_program=parsed.for_program),
        win_on=win_on,
        sentence_words=model.race.sentence_words,
        invalid=model.race.invalid,
        prompt_class=parsed.prompt_class,
        prompt_tokens=parsed.needs.prompt_tokens,
        inline_bytes=parsed.inline_bytes(sent.fields),
        wants_usage=parsed.wants_usage,
        fields=sent.fields,
        wordings=fitting.wordings,
        dropped=fitting.dropped,
        spoken=fitting.spoken,
        lowered=fitting.lowered,
        headers=client_context.headers,
        replica=context.replica,
        region=context.settings.region,
        request_id=client_context.request_id,
        stateful=parsed.stateful,
        kind=kind,
        answer_kind=asked_kind,
        deadline_ms=deadline_ms,
        profile=model.race.profile if instead_of is None else instead_of.profile,
        runs_on=parsed.runs_on,
        key_name=resolved.key_name,
        conversation=_conversation(sent.fields, parsed, model) if model.common.has_keys else None,
        is_restricted=resolved.is_restricted,
    )
    if model.common.binds:
        call = await _with_maker(context, call, parsed.dialect.requests, client_context.client, fleet)
    prefix = _prefix(sent.fields, parsed, model.tenant) if model.race.cache_affinity else None
    seats = context.services.seats
    terms = Terms(
        call.objective,
        call.prompt_tokens,
        sent.needs.max_tokens,
        model.prices,
        seats.now(model.limits) if seats.leased else model.limits,
        model.weights or None,
        model.canaries or None,
        fitting.excluded or None,
        prefix,
        kind,
        answer_kind=call.answer_kind,
        bills_losers=model.bills_losers,
        leased=seats.leased,
        is_counted=is_counted(call, model) or instead_of is not None,  # a fallback may run beside the other model
        holds=model.race.holds(streamed=parsed.stream),
        stateful=parsed.stateful,
        whole=()
        if parsed.stream
        else [
            each.name
            for each in fitting.deployments
            if (each.whole or (each.learnt is not None and each.learnt.stops_streams)) and asked_whole(call, each)
        ],
        asked=None if race_asked is model.race else race_asked,
        learnt_as=None if model.tenant is None else model.learnt_as,
    )
    names = [deployment.name for deployment in fitting.deployments]
    plan = context.steering.plan(
        model.name,
        names,
        model.race,
        terms,
        call.prompt_class,
        explain=client_context.explain,
        payer=model.payer,
        client=client_context.client.name,
    )
    if parsed.runs_on:
        plan = msgspec.structs.replace(plan, rescue_s=None)  # however late, it is started once
    if call.maker is not None:
        strangers = [name for name, each in model.deployments.items() if cannot_read(call.maker, each)]
        plan = led_by(call.maker, strangers, plan)
    return PlannedCall(call, model, resolved.applied_to(plan), resolved.response_headers, prefix, tuple(names))


async def _with_maker(context: CallContext, call: Call, requests: RequestFormat, client: Client, fleet: Fleet) -> Call:
    """Return the call with who made the reasoning in its history that only its maker can read, if that is known."""
    if requests.without_bound_reasoning is None:
        return call
    found = bound_reasoning(bytes(call.fields.get(requests.prompt, b"")))
    maker = await context.services.makers.find(found) if found else None
    return msgspec.structs.replace(call, maker=maker) if client.made(maker, fleet) else call


async def _fitted_aside(context: CallContext, resolved: ResolvedModel, client_context: ClientContext) -> Fitting:
    """Translate a long request in the thread, if its client may still use anything and there is memory for it."""
    spends = not (resolved.model.is_free or resolved.model.costs_nothing)
    context.limits.check(client_context.levels, spends=spends, is_begun=True)
    context.limits.check_least(client_context.levels, resolved.least_use(), spends=spends)
    client, most, run = client_context.client, context.settings.limits.max_values, context.work_thread.run
    values = await run(lambda: resolved.counted(most))
    return await run(
        lambda: resolved.fitted(client, most), lambda: context.lend(client.name, resolved.bytes_to_build(values, most))
    )


def _win_on(win_on: WinOn, kind: AnswerKind, *, streamed: bool, stateful: bool, several: bool) -> WinOn:
    """Return the part of an answer with which an attempt wins.

    SENTENCE does not apply to JSON, nor to answers that are not streamed. VALID does not apply to text, which is always
    valid, nor to answers that a provider stores, which have one attempt. Neither applies to several answers at once.
    """
    if win_on is WinOn.VALID:
        return WinOn.ANY if kind is AnswerKind.PLAIN or stateful or several else WinOn.VALID
    is_spoken = streamed and kind is not AnswerKind.JSON and not several
    return WinOn.ANSWER if win_on is WinOn.SENTENCE and not is_spoken else win_on


def is_counted(call: Call, model: Model) -> bool:
    """Whether any limit counts the usage of the call."""
    return bool(call.levels) or model.usd_per_day is not None


def limits_dollars(levels: Iterable[Level], model: Model) -> bool:
    """Whether any limit counts the operator's dollars of a call."""
    if model.is_free:
        return False
    return model.usd_per_day is not None or any(not DOLLARS.isdisjoint(level.limits) for level in levels)


def resolved_objective(objective: Objective, *, streamed: bool, for_program: bool) -> Objective:
    """Return the objective of a call. ``auto`` depends on whether a human reads the stream or a program the whole.

    A call that is not streamed has no reader: for it ``reading`` is ``completion``.
    """
    if objective is Objective.AUTO:
        return Objective.READING if streamed and not for_program else Objective.COMPLETION
    return objective if streamed or objective is not Objective.READING else Objective.COMPLETION


def remember_prefix(context: CallContext, planned: PlannedCall, record: CallRecord) -> None:
    """Record which deployment should now have this prompt's prefix in its cache."""
    if planned.prefix is None:
        return
    winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
    if winner is not None and winner.deployment in planned.names:  # not a fallback's, which continued the answer
        context.steering.served(
            planned.model.name, planned.prefix, winner.deployment, record.cached_tokens, record.prompt_tokens
        )


def _prefix(fields: Mapping[str, msgspec.Raw], parsed: ParsedRequest, tenant: str | None) -> Prefix | None:
    if parsed.size <= PREFIX_BYTES[0]:
        return None
    order = parsed.dialect.requests.reading_order
    return prefix_of([fields[part] for part in order if part in fields], _cache_key(parsed, tenant))


def _cache_key(parsed: ParsedRequest, tenant: str | None) -> str | None:
    return (
        parsed.cache_key if tenant is None else f"{tenant}\n{parsed.cache_key or ''}"
    )  # an account has its own caches


def _conversation(fields: Mapping[str, msgspec.Raw], parsed: ParsedRequest, model: Model) -> bytes | None:
    """Return what key rings know the conversation by; None if it is too short, or caches do not matter."""
    requests = parsed.dialect.requests
    if parsed.size <= CONVERSATION_BYTES or requests.prompt not in fields or not model.race.cache_affinity:
        return None
    before = [fields[part] for part in requests.reading_order if part in fields and part != requests.prompt]
    return conversation_of(before, fields[requests.prompt], _cache_key(parsed, model.tenant))


# The expected use of limits by a planned call, and the model that pays for it.


def payer_of(planned: PlannedCall) -> Payer:
    """Return the model of ``planned`` as limits see it."""
    model = planned.model
    return Payer(model.name, model.payer or model.name, model.usd_per_day, model.dearest)


def use_of(planned: PlannedCall) -> Use:
    """Return the expected use, and the most that the call may cost."""
    plan, prompt_tokens = planned.plan, planned.call.prompt_tokens
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
    most_usd = _most_usd(planned) if may_cost and limits_dollars(planned.call.levels, planned.model) else 0.0
    return Use(prompt_tokens, prompt_tokens + plan.answer_tokens, usd, most_usd)


def _most_usd(planned: PlannedCall) -> float:
    """Return what the call may cost: an answer as long as it allows, of the dearest of its deployments.

    The others that its plan launches add their prompt, and an answer as well if their vendors bill it to the end.
    """
    call, plan, deployments, dearest = planned.call, planned.plan, planned.model.deployments, planned.model.dearest
    max_tokens = None if call.kind is None else call.kind.max_tokens
    answers = 0 if call.kind is None else answers_made(call.fields, call.dialect)
    has_limit = bool(call.dialect.requests.parameters.answer_limits)  # others are not written token by token
    launched = [launch.deployment for launch in plan.launches]
    tier = asked_tier(call.fields)
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
                input_usd, output_usd = most_per_token(price, tier_wanted(deployment, tier), call.prompt_tokens)
                prompt_usd = max(prompt_usd, call.prompt_tokens * input_usd)
                answer_usd = max(answer_usd, tokens * output_usd)
        most_usd = max(most_usd, prompt_usd + answer_usd)
        if 0 < place < len(launched):
            beside_usd += prompt_usd + (answer_usd if deployment.bills_after_disconnect else 0.0)
    return most_usd + beside_usd
