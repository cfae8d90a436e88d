"""From a request to a race: builds the call, selects the deployments, plans the race, and prepares it."""

import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.access import Client
from gateway.api.agent_sessions import cache_key_of, session_of
from gateway.api.call_context import CallContext, ClientContext
from gateway.api.fitting import note_betas
from gateway.api.overrides import NOTHING, with_override, withheld
from gateway.api.provider_state import StoredAt
from gateway.api.relayed_plans import demands_of as relayed_demands
from gateway.api.relayed_plans import first_of, fitted, hedged, read_as
from gateway.api.relayed_plans import terms_of as relayed_terms
from gateway.api.request import ParsedRequest
from gateway.api.resolved_model import COUNT_KNOWN, IGNORED, REFUSE, SHORT_BYTES, ResolvedModel
from gateway.api.shapes import CachedDecision, decided, keep, kept_shape_of, shape_of
from gateway.api.translations import Fitting
from gateway.core.calls import AS_ASKED, Call, CallKind, CallRecord, CallTraits, Level, Maker, Mode
from gateway.core.errors import NoDeploymentFits
from gateway.core.prompt_classes import spoken_class
from gateway.fleet import Deployment, Fleet, Model
from gateway.http import CHARS_PER_TOKEN
from gateway.limits import DOLLARS
from gateway.racing import (
    EVENTS,
    Attempt,
    Reading,
    apart_from,
    asked_whole,
    cannot_read,
    is_bound_elsewhere,
    tells_each_apart,
    within_room,
    without_reasoning,
    without_unread,
)
from gateway.steering import (
    CONVERSATION_BYTES,
    NO_DEMANDS,
    PREFIX_BYTES,
    STRATEGIES,
    Demands,
    Plan,
    Prefix,
    Terms,
    conversation_of,
    prefix_of,
)
from providers import Demand, Kind, aside, concerns, of_loss, runs_without
from providers.dialects import PIVOT, SEARCHED_BYTES, LastingPart, Loss, accounts_in, bound_reasoning

if TYPE_CHECKING:
    from gateway.api.vectors import VectorComparisons


class PlannedCall(msgspec.Struct, frozen=True):
    """A planned call, ready to run."""

    call: Call
    model: Model  # with the call's profile and overrides
    plan: Plan
    response_headers: dict[str, str]  # report changes by the gateway
    prefix: Prefix | None
    names: tuple[str, ...]  # of all deployments that can answer, including those out of rotation
    reading: Reading[Attempt] = EVENTS  # how the deployments are asked


class CallAsked(msgspec.Struct, frozen=True):
    """What a client asks for, whichever model answers."""

    context: CallContext
    parsed: ParsedRequest  # as the client sent it
    client_context: ClientContext
    made_by: StoredAt | None = None  # the deployment that has what the request names or continues
    allow: Callable[[Model], Model] | None = None  # may change the model's cost limits
    vectors: "VectorComparisons | None" = None  # knows which deployments' embeddings differ


class ModelTurn(msgspec.Struct, frozen=True):
    """The model for which a call is planned, and why it is this model's turn."""

    name: str
    fleet: Fleet  # that the call has leased
    instead_of: Call | None = None  # the same call for the first model, which could not answer; None: this is the first
    beside: str | None = None  # the late model beside which this one runs
    in_vain: Collection[str] = ()  # deployments that the call has asked in vain: these come last
    # No other model is left: deployments that see no pictures get notes in place of those that can be left out.
    is_unseen: bool = False


# Plans a call for one model. Raises ApiError: this model cannot be used for the call.
PlanCall = Callable[[ModelTurn], Coroutine[Any, Any, PlannedCall]]


class _Session(msgspec.Struct, frozen=True):
    """The session of an agent, from headers or the body."""

    name: str
    whose: str  # the name beside the client's: sessions of two clients are never the same


class _Decided(msgspec.Struct, frozen=True):
    """The decision about one request for one model, from which alone the call, its terms and its plan are made."""

    asked: CallAsked
    turn: ModelTurn
    session: _Session | None
    sent: ParsedRequest  # with the model's parameters
    cached: CachedDecision
    fitting: Fitting
    resolved: ResolvedModel | None = None  # None: an earlier request of the same shape was decided so
    index: Deployment | None = None  # the deployment with whose vectors the client will keep the answer's


async def planned_call(asked: CallAsked, turn: ModelTurn) -> PlannedCall:
    """Build and plan the call that is ``asked`` for, for the model whose ``turn`` it is; it counts in the standings.

    Raises:
        ModelNotFound, Forbidden, InvalidRequest: the client may not send this request to this model.
        NoDeploymentFits: no deployment of the model can answer the request.
        TooManyValues: the request has too many values to be translated.
        LimitReached, Overloaded, TooManyBodies: limits or memory leave no room to translate a long request.

    """
    context, parsed, client_context, fleet = asked.context, asked.parsed, asked.client_context, turn.fleet
    client, relayed = client_context.client, parsed.relayed
    may_name_one = client_context.session is not None or parsed.cache_key is not None or "metadata" in parsed.fields
    session = _session(client_context, parsed) if may_name_one else None
    is_first = turn.instead_of is None and not turn.is_unseen and turn.name == parsed.model
    is_usual = is_first and asked.made_by is None and asked.allow is None
    shape = kept_shape_of(fleet.models.get(turn.name), parsed, client) if is_usual else None
    cached = None if shape is None else decided(fleet, client, shape)
    if cached is not None:
        decision = _Decided(asked, turn, session, parsed, cached, _AS_SENT)
    else:
        decision = await _decide(asked, turn, session)
        if shape is not None:
            keep(fleet, client, shape, decision.cached, decision.fitting)
    model, resolved = decision.cached.model, decision.resolved
    call = _call_of(decision)
    if decision.fitting.rooms:
        call = _within_rooms(call, model, decision.fitting)
    if model.common.binds and relayed is None:
        call = await _with_maker(asked, call, model, fleet)
    terms = _terms_of(decision, call)
    plan_of = _plan_with_last if turn.in_vain else _plan
    plan = plan_of(decision, call, terms)
    call = _with_marks(context, call, terms.prefix, plan, is_named=session is not None) if model.marks else call
    plan, reading = (plan, EVENTS) if relayed is None else read_as(parsed, model, plan)
    if asked.vectors is not None and decision.index is not None and resolved is not None and resolved.is_race_set:
        asked.vectors.compare(context, fleet, model, decision.index, plan)
    response_headers = dict(parsed.response_headers) if resolved is None else resolved.response_headers
    if parsed.race.profile is not None and relayed is None and (configured := fleet.models.get(turn.name)) is not None:
        _tell_withheld(response_headers, withheld(configured, parsed.race, client))
    return PlannedCall(call, model, plan, response_headers, terms.prefix, decision.cached.names, reading)


def plan_hypothetical(context: CallContext, parsed: ParsedRequest, client_context: ClientContext) -> PlannedCall:
    """Plan a call that is only supposed, and explain its plan: nothing is counted, and nothing is kept.

    If no deployment can answer, its plan has no launches, and says why. ``parsed`` names a configured model, and
    nothing that is stored; its answer is read.

    Raises:
        NothingEnabled, Forbidden: none of the model's deployments is enabled, or may see what this client sends.

    """
    client = client_context.client
    asked, turn = CallAsked(context, parsed, client_context), ModelTurn(parsed.model, context.fleet)
    resolved = _resolved(asked, turn)
    try:
        fitting = resolved.fitted(context.settings.limits.max_values)
    except NoDeploymentFits as error:
        fitting = Fitting([], dict(error.reasons), {})
    cached = _decision_of(resolved, fitting, client)
    decision = _Decided(asked, turn, None, resolved.parsed, cached, fitting, resolved)
    call = _call_of(decision)
    terms = _terms_of(decision, call, is_made=False)
    plan = context.steering.explain(
        cached.model.name, cached.names, cached.model.race, terms, call.traits.prompt_class, client=client.name
    )
    return PlannedCall(call, cached.model, plan, {}, None, cached.names)


def _tell_withheld(response_headers: dict[str, str], names: Sequence[str]) -> None:
    """Name in a response header the parts of the requested profile that the request does not get."""
    if names:
        response_headers[IGNORED] = ", ".join(filter(None, (response_headers.get(IGNORED), *names)))


_AS_SENT = Fitting([], {}, {})  # for requests decided before: each deployment is sent the request unchanged


def _session(client_context: ClientContext, parsed: ParsedRequest) -> _Session | None:
    name = client_context.session or session_of(parsed.fields, parsed.cache_key)
    return None if name is None else _Session(name, f"{client_context.client.name or ''}\0{name}")


def _plan(decision: _Decided, call: Call, terms: Terms, names: Sequence[str] | None = None) -> Plan:
    """Return the plan of a call for the deployments ``names``, or for all that fit; it counts in the standings."""
    asked, model = decision.asked, decision.cached.model
    return asked.context.steering.plan(
        model.name,
        decision.cached.names if names is None else names,
        model.race,
        terms,
        call.traits.prompt_class,
        explain=asked.client_context.explain,
        payer=model.payer,
        client=call.caller.client,
    )


def _plan_with_last(decision: _Decided, call: Call, terms: Terms) -> Plan:
    """Return the plan of a call in which the deployments that were asked in vain come last, if there are others."""
    names, in_vain = decision.cached.names, decision.turn.in_vain
    others = [name for name in names if name not in in_vain]
    if 0 < len(others) < len(names):
        plan = _plan(decision, call, terms, others)
        if plan.launches:
            return plan.asking_last(name for name in names if name in in_vain)
    return _plan(decision, call, terms)


def _with_supposed(terms: Terms, call: Call, model: Model, names: Sequence[str]) -> Terms:
    """Return the ``terms`` with the deployments among ``names`` that have refused something in this ``call``.

    What a deployment refused to this client is left out of its requests there. Such a deployment counts only if that
    was a preference, as without it the answer differs: not if a hint was refused.
    """
    supposed = [name for name in names if _is_supposed_at(model.deployments[name], call)]
    return msgspec.structs.replace(terms, supposed=(*terms.supposed, *supposed)) if supposed else terms


_LOSING = frozenset({Kind.FIELD, Kind.VALUE})


def _is_supposed_at(deployment: Deployment, call: Call) -> bool:
    learnt, dialect = deployment.learnt, deployment.spoken_in(call)
    if learnt is None or not learnt.is_any:
        return False
    fields, tools = call.sent_to(deployment.name), dialect.requests.tools.offered
    unchosen, client = dialect.requests.omissible.unchosen, call.caller.client
    own = [
        fact
        for fact in learnt.of(deployment.model, client)
        if fact.kind in _LOSING and of_loss(Loss(fact.field, ""), fields, unchosen) is Demand.PREFERENCE
    ]
    facts = (*learnt.met_by_others(deployment.model, client), *own)
    has_tools = any(name in fields for name in tools)
    return any(concerns(fact, fields, dialect.name, call.traits.prompt_tokens, tools=has_tools) for fact in facts)


async def _decide(asked: CallAsked, turn: ModelTurn, session: _Session | None) -> _Decided:
    """Return what is decided of a request: the model with its settings, then who can answer, then the race.

    Raises:
        ApiError: as for ``planned_call``.

    """
    context, parsed, client_context, fleet = asked.context, asked.parsed, asked.client_context, turn.fleet
    client, relayed, most = client_context.client, parsed.relayed, context.settings.limits.max_values
    client.check_model(turn.name)
    resolved, index = _resolved(asked, turn), None
    if relayed is not None:
        if relayed.is_indexed:
            index = first_of(fleet.known(parsed.model) or resolved.configured, relayed)
        unpriced = client.unpriced if limits_dollars(client_context.levels, resolved.model) else COUNT_KNOWN
        differs = _alike if asked.vectors is None else partial(asked.vectors.difference, fleet, index)
        fitting = fitted(resolved, client.require, unpriced, index, differs)
    else:
        if parsed.size <= SHORT_BYTES or resolved.is_light(most):
            fitting = resolved.fitted(most)
        else:
            fitting = await _fitted_aside(context, resolved, client_context)
        for learnt in resolved.model.learnt:
            if learnt.steers:
                note_betas(fitting, client.name, resolved.parsed.fields, client_context.envelope.headers)
                break
    if parsed.for_hosted and _runs_nowhere(resolved.parsed, fitting):
        asked = msgspec.structs.replace(asked, parsed=msgspec.structs.replace(parsed, stateful=False, for_hosted=False))
        resolved = _resolved(asked, turn)
    cached = _decision_of(resolved, fitting, client)
    return _Decided(asked, turn, session, resolved.parsed, cached, fitting, resolved, index)


def _runs_nowhere(parsed: ParsedRequest, fitting: Fitting) -> bool:
    """Whether what the provider is to run is left out for each deployment: then nothing can run twice in a race."""
    dropped = [fitting.rendered.get(each.name, AS_ASKED).dropped for each in fitting.deployments]
    return all(dropped) and not any(runs_without(parsed.fields, each) for each in {*dropped})


def _resolved(asked: CallAsked, turn: ModelTurn) -> ResolvedModel:
    """Return a model with a request's settings, keys and preferences.

    Raises:
        ModelNotFound, Forbidden, InvalidRequest: as for ``planned_call``.

    """
    parsed, fleet, client = asked.parsed, turn.fleet, asked.client_context.client
    fleet_model = fleet.find(turn.name, adhoc=client.adhoc)
    if parsed.relayed is None and fleet_model.common.acts:
        parsed = msgspec.structs.replace(parsed, stateful=True)
    model = with_override(fleet_model, parsed.race, client, stateful=parsed.stateful)
    model = model if asked.allow is None else asked.allow(model)
    model = model if client.tenant is None else fleet.with_keys(model, client.tenant)
    is_race_set = model.race.mode is not Mode.AUTO
    if parsed.relayed is not None and not parsed.stateful:
        model = hedged(model)
    return ResolvedModel(
        model,
        parsed,
        client,
        configured=fleet_model,
        made_by=asked.made_by,
        is_race_set=is_race_set,
        is_fallback=turn.name != parsed.model,
        is_unseen=turn.is_unseen,
        refuses_unpriced=(
            client.unpriced == REFUSE
            and parsed.relayed
            is None  # else ``relayed_plans`` decides, as an answer may be billed by the second or page
            and limits_dollars(asked.client_context.levels, model)
        ),
    )


def _not_against_itself(model: Model) -> Model:
    """Return a model without a race, as only a single configured deployment may be raced against itself."""
    if not STRATEGIES[model.race.mode].races_itself:
        return model
    return msgspec.structs.replace(model, race=model.race.model_copy(update={"mode": Mode.SINGLE}))


def _decision_of(resolved: ResolvedModel, fitting: Fitting, client: Client) -> CachedDecision:
    """Return what is decided of the requests of a shape, for the model as it is resolved."""
    fleet_model, asked, race_asked = resolved.configured, resolved.asked, resolved.race_asked
    is_read = asked.relayed is None
    # A count of tokens is requested once, and leaves nothing behind, so there is no race to report about.
    counts = asked.relayed is not None and asked.relayed.counts
    if asked.stateful and not counts and (is_read or asked.race != NOTHING):
        race_asked = with_override(fleet_model, asked.race, client, stateful=False).race
    is_alone = len(fitting.deployments) == 1 < len(fleet_model.deployments) and is_read
    model = _not_against_itself(resolved.model) if is_alone else resolved.model
    race_given = fleet_model.under(client.profile).race
    return CachedDecision.of(model, shape_of(resolved.parsed), fitting, race_asked, race_given)


def _demands_of(decision: _Decided, resolved: ResolvedModel, call: Call) -> Demands:
    """Return what this call demands of its plan, however fast deployments are."""
    parsed, model, demands = resolved.asked, resolved.model, NO_DEMANDS
    if call.traits.maker is not None:
        demands = _led_by(call.traits.maker, call, model)
    elif parsed.relayed is not None:
        demands = relayed_demands(parsed, model)
    if parsed.runs_on:
        demands = msgspec.structs.replace(demands, rescued=False)
    if resolved.order or not resolved.may_fail_over:
        demands = msgspec.structs.replace(demands, order=resolved.order, may_fail_over=resolved.may_fail_over)
    if decision.turn.beside is not None:
        demands = msgspec.structs.replace(demands, beside=decision.turn.beside)
    return demands


def _led_by(maker: Maker, call: Call, model: Model) -> Demands:
    """Return the demand to ask the maker of a conversation's reasoning first, and those that refuse it last."""
    strangers = [
        name
        for name, each in model.deployments.items()
        if cannot_read(maker, each, call.caller.client) or is_bound_elsewhere(each, maker, call.caller.client)
    ]
    return Demands(maker=maker.deployment, strangers=frozenset(strangers))


def _alike(_: Deployment) -> None:
    """Return None: no vectors were compared, so none differ."""


def _call_of(decision: _Decided) -> Call:
    """Return the call of one request. The traits of an answer that passes unread say nothing about tokens."""
    asked, cached, resolved, session = decision.asked, decision.cached, decision.resolved, decision.session
    parsed, client_context, instead_of = asked.parsed, asked.client_context, decision.turn.instead_of
    sent = decision.sent
    relayed, fields, model = parsed.relayed, sent.fields, cached.model
    race = model.race
    kind, deadline_ms = None, race.ttft_ms
    if relayed is None:
        kind = CallKind(
            parsed.dialect.endpoint,
            parsed.for_program,
            sent.needs.max_tokens,
            client_context.client.name,
            client_context.tags,
            sent.needs.prompt_tokens,
        )
    elif parsed.stateful:
        deadline_ms = None
    if instead_of is not None and instead_of.traits.deadline_ms is not None:  # a fallback has the requested model's
        deadline_ms = instead_of.traits.deadline_ms
    traits = CallTraits(  # without names, which cost more
        spoken_class(parsed.prompt_class) if cached.terms.spoken else parsed.prompt_class,
        parsed.needs.prompt_tokens,
        sent.inline_bytes(fields),
        None if relayed is None else parsed.size // CHARS_PER_TOKEN,
        kind,
        deadline_ms,
        race.profile if instead_of is None else instead_of.traits.profile,
        None if resolved is None else resolved.key_name,
        _conversation(fields, parsed, model, session) if model.common.has_keys else None,
        None if session is None else _key_of_vendors(session, parsed, model, asked.context.secret),
        resolved is not None and resolved.is_restricted,
    )
    name = None if session is None else session.name
    caller = client_context.caller(asked.context, fields, name) if instead_of is None else instead_of.caller
    return Call(sent, caller, cached.decision, traits, decision.fitting.rendered)


def _terms_of(decision: _Decided, call: Call, *, is_made: bool = True) -> Terms:
    """Return the terms for comparing a model's deployments: those of the call's shape, and the call's own.

    ``is_made``: whether the call is made, or only explained.
    """
    asked, cached, resolved, sent = decision.asked, decision.cached, decision.resolved, decision.sent
    model, seats, traits = cached.model, asked.context.services.seats, call.traits
    has_prefix = sent.size > PREFIX_BYTES[0] and model.race.cache_affinity
    terms = msgspec.structs.replace(
        cached.terms,
        prompt_tokens=traits.prompt_tokens,
        max_tokens=sent.needs.max_tokens,
        limits=seats.now(model.limits, of_call=is_made) if seats.leased else model.limits,
        prefix=_prefix(sent.fields, sent, model, decision.session) if has_prefix else None,
        kind=traits.kind,
        leased=seats.leased,
        # A fallback may run beside another model.
        is_counted=decision.turn.instead_of is not None or bool(call.caller.levels or model.use_limits),
    )
    if resolved is not None:
        is_read = resolved.asked.relayed is None
        whole = _whole(call, decision.fitting) if is_read and not call.request.stream else ()
        terms = msgspec.structs.replace(terms, whole=whole, demands=_demands_of(decision, resolved, call))
        terms = terms if is_read else relayed_terms(terms, resolved.asked, model)
    elif traits.maker is not None:
        terms = msgspec.structs.replace(terms, demands=_led_by(traits.maker, call, model))
    for learnt in model.learnt:
        if learnt.is_any:
            return _with_supposed(terms, call, model, cached.names)
    return terms


def _whole(call: Call, fitting: Fitting) -> Sequence[str]:
    """Return the deployments that are asked without streaming, as the client does not stream either."""
    return [
        each.name
        for each in fitting.deployments
        if (each.whole or (each.learnt is not None and each.learnt.stops_streams)) and asked_whole(call, each)
    ]


async def _with_maker(asked: CallAsked, call: Call, model: Model, fleet: Fleet) -> Call:
    """Return the call with the maker of the reasoning in its history that only the maker can read, if known.

    If the maker is not known: with the deployment that may have stored the answer before. Reasoning is not sent to
    other accounts of a vendor that drops foreign reasoning in silence, nor with keys of other accounts.
    """
    context, parsed, client = asked.context, asked.parsed, asked.client_context.client
    requests = parsed.dialect.requests
    if requests.thoughts.without_bound is None:
        return call
    prompt = bytes(call.request.fields.get(requests.prompt, b""))
    is_long = len(prompt) > SEARCHED_BYTES
    hashes = await aside(bound_reasoning, prompt) if is_long else bound_reasoning(prompt)
    known_maker = await context.services.makers.find(hashes) if hashes else None
    maker = known_maker or (_sealed_by(prompt, model) if hashes else None) or parsed.follows
    if maker is not None and not client.made(maker, fleet):
        maker = None
    call = _with_traits(call, maker=maker) if maker is not None else call
    are_known, refused = False, context.services.makers.refused(hashes)
    if known_maker is not None or refused:
        makers = context.services.makers.of_each(hashes)
        are_known = all(each in makers for each in hashes)
        call = await _without_unread(call, model, makers, refused, is_long=is_long)
    return call if maker is None else await _left_to(call, model, maker, is_long=is_long, are_known=are_known)


async def _left_to(call: Call, model: Model, maker: Maker, *, is_long: bool, are_known: bool) -> Call:
    """Return the call with the reasoning that each deployment is sent, if ``maker`` made the newest piece.

    ``are_known``: the makers of all pieces are known; then pieces of others are left out already, and the rest is read.
    """
    for each in model.deployments.values():
        if is_bound_elsewhere(each, maker, call.caller.client):
            if are_known and tells_each_apart(each, call):
                continue
            without = partial(without_reasoning, call, each)
            rest = await aside(without) if is_long else without()
            if rest is not None:
                call = call.rendered_as(each.name, fields=rest.fields, dropped=rest.dropped)
        elif each.learnt is not None and each.learnt.is_any and maker.key_name is not None:
            of_keys = partial(apart_from, maker, call, each)
            apart = await aside(of_keys) if is_long else of_keys()
            if apart is not None:
                call = call.rendered_as(each.name, apart=apart)
    return call


def _with_traits(call: Call, **changed: Any) -> Call:
    """Return the call with ``changed`` traits."""
    return msgspec.structs.replace(call, traits=msgspec.structs.replace(call.traits, **changed))


async def _without_unread(
    call: Call, model: Model, makers: Mapping[bytes, Maker], refused: Mapping[bytes, Collection[str]], *, is_long: bool
) -> Call:
    """Return the call without the reasoning that a deployment is known not to read, for each; the rest stays."""
    call = _with_traits(call, makers=frozenset(makers.values()))
    for each in model.deployments.values():
        of_others = partial(without_unread, call, each, makers, refused)
        readable = await aside(of_others) if is_long else of_others()
        call = call if readable is None else readable.of(call, each.name)
    return call


def _within_rooms(call: Call, model: Model, fitting: Fitting) -> Call:
    """Return the call with limits of the answer no higher than what is known to fit beside the prompt.

    If clients need not set a limit, only if neither a deployment nor a fallback may have room for the requested length.
    """
    has_to_set = call.request.dialect.requests.with_limit is not None
    if not has_to_set and (model.fallbacks or len(fitting.rooms) < len(fitting.deployments)):
        return call
    for name, room in fitting.rooms.items():
        call = within_room(call, model.deployments[name], room) or call
    return call


def _sealed_by(prompt: bytes, model: Model) -> Maker | None:
    """Return which of ``model``'s deployments made the newest sealed reasoning in ``prompt``; None: none of them."""
    for account in reversed(accounts_in(prompt)):
        for each in model.deployments.values():
            if each.habits[PIVOT.name].encrypts and each.seal is not None and each.seal.whose == account:
                return Maker(each.name, tenant=each.tenant, account=account)
    return None


async def _fitted_aside(context: CallContext, resolved: ResolvedModel, client_context: ClientContext) -> Fitting:
    """Translate a long request in the thread, if the client's limits leave something and there is memory."""
    spends = not (resolved.model.is_free or resolved.model.costs_nothing)
    context.limits.check(client_context.levels, spends=spends, is_begun=True)
    context.limits.check_least(client_context.levels, resolved.least_use(), spends=spends)
    client, most, run = client_context.client, context.settings.limits.max_values, context.work_thread.run
    values = await run(lambda: resolved.counted(most))
    return await run(
        lambda: resolved.fitted(most, values), lambda: context.lend(client.name, resolved.bytes_to_build(values, most))
    )


def is_counted(call: Call, model: Model) -> bool:
    """Whether any limit counts the usage of the call."""
    return bool(call.caller.levels or model.use_limits)


def limits_dollars(levels: Iterable[Level], model: Model) -> bool:
    """Whether any limit counts the dollars that the operator pays for a call."""
    if model.is_free:
        return False
    return model.has_dollars or any(not DOLLARS.isdisjoint(level.limits) for level in levels)


def remember_prefix(context: CallContext, planned: PlannedCall, record: CallRecord) -> None:
    """Record the deployments that should have this prompt's prefix in their cache now."""
    if planned.prefix is None:
        return
    if planned.model.marks:
        deployments = {each.deployment for each in record.attempts}
        context.steering.asked(planned.model.name, planned.prefix, deployments.intersection(planned.names))
    winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
    if winner is not None and winner.deployment in planned.names:  # not a fallback's, which continued the answer
        context.steering.served(
            planned.model.name, planned.prefix, winner.deployment, record.cached_tokens, record.prompt_tokens
        )


def _prefix(
    fields: Mapping[str, msgspec.Raw], parsed: ParsedRequest, model: Model, session: _Session | None
) -> Prefix | None:
    if parsed.size <= PREFIX_BYTES[0] or parsed.relayed is not None:
        return None
    order = parsed.dialect.requests.reading_order
    # Where caches are marked, a client's key separates nothing: Claude has no such keys.
    key = model.tenant if model.marks else _cache_key(parsed, model.tenant)
    return prefix_of(
        [fields[part] for part in order if part in fields], key, None if session is None else session.whose
    )


def _cache_key(parsed: ParsedRequest, tenant: str | None) -> str | None:
    # Each account has its own caches.
    return parsed.cache_key if tenant is None else f"{tenant}\n{parsed.cache_key or ''}"


# Whether a model has answered in a conversation, in any API: then the conversation is likely to go on.
_ANSWERED = re.compile(rb'"role"\s*:\s*"(?:assistant|model)"|"type"\s*:\s*"(?:function_call|custom_tool_call)"')


def _with_marks(context: CallContext, call: Call, prefix: Prefix | None, plan: Plan, *, is_named: bool) -> Call:
    """Return a call with the part that each deployment is told to cache, if any lasts. ``is_named``: by a session.

    A write to a cache costs a quarter more than reading the prompt, and the first later read repays that. So only a
    prefix that was sent before is marked, or the prompt of an agent's later turn. At a deployment that is asked beside
    the first, only a prefix is marked that this deployment was sent before: most of these attempts lose, and what a
    loser writes is of use only if the conversation is raced again and again.
    """
    if prefix is None:
        return call
    goes_on = _ANSWERED.search(call.request.fields.get(call.request.dialect.requests.prompt, b"")) is not None
    below = dict(context.steering.lasting_bytes(call.decision.model, prefix))
    if plan.launches:
        usual = inf if goes_on and is_named else max(below.values(), default=0.0)
        below[plan.launches[0].deployment] = usual
    for name, most in below.items():
        call = call.rendered_as(name, marks=LastingPart(most, goes_on)) if most else call
    return call


def _key_of_vendors(session: _Session, parsed: ParsedRequest, model: Model, secret: bytes) -> msgspec.Raw | None:
    """Return the ``prompt_cache_key`` of a session; None if no vendor caches so short a prompt."""
    if parsed.size <= PREFIX_BYTES[0] or parsed.relayed is not None or not model.race.cache_affinity:
        return None
    return cache_key_of(session.whose, model.tenant, secret)


def _conversation(
    fields: Mapping[str, msgspec.Raw], parsed: ParsedRequest, model: Model, session: _Session | None
) -> bytes | None:
    """Return the conversation's key for key rings; None: the prompt is too short, or caches do not matter."""
    requests = parsed.dialect.requests
    is_short = parsed.size <= CONVERSATION_BYTES or parsed.relayed is not None
    if is_short or requests.prompt not in fields or not model.race.cache_affinity:
        return None
    before = [fields[part] for part in requests.reading_order if part in fields and part != requests.prompt]
    whose = None if session is None else session.whose
    return conversation_of(before, fields[requests.prompt], _cache_key(parsed, model.tenant), whose)
