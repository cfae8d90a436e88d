"""A call's entry into its race: what it is, who can answer it, who is to run, and the race that only needs running."""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from aiohttp import web

from gateway.calls import Call, Kind, Mode, Objective, Recorder
from gateway.errors import ApiError
from gateway.fleet import Fleet, Model
from gateway.ingress.admission import Client
from gateway.ingress.asked import Asked
from gateway.ingress.context import Context
from gateway.ingress.headers import NARROWED
from gateway.ingress.preferences.override import as_asked
from gateway.ingress.preferences.resolved_model import ResolvedModel
from gateway.racing.expected import answer_kind
from gateway.racing.race import Earlier, Race
from gateway.racing.seats import MAX_IN_FLIGHT
from gateway.racing.sink import Sink
from gateway.steering.affinity import Prefix, prefix_of
from gateway.steering.candidates import Terms
from gateway.steering.constants import PREFIX_BYTES
from gateway.steering.planner import Launch, Plan

_RACING = frozenset({Mode.RACE, Mode.HEDGE})
_PROMPTS = ("tools", "system", "instructions", "messages", "input", "prompt")  # in the order in which they are read

ENDPOINTS = {
    "chat": "chat.completions",
    "completions": "completions",
    "messages": "messages",
    "responses": "responses",
}


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what came along with the request."""

    client: Client
    headers: Mapping[str, str] = {}  # those for upstream
    tags: Mapping[str, str] = {}
    request_id: str | None = None
    explain: bool = False  # the plan is to be explained
    received_at: float | None = None  # when the body was complete, monotonic seconds; None: now


class Entry(msgspec.Struct, frozen=True):
    """A call that is ready to run."""

    call: Call
    model: Model  # as the call sees it
    plan: Plan
    told: dict[str, str]  # response headers that say what the gateway made of the request
    prefix: Prefix | None
    names: tuple[str, ...]  # of the deployments that can answer it, also those that are out


def enter(
    context: Context,
    asked: Asked,
    origin: Origin,
    *,
    name: str,
    fleet: Fleet | None = None,
    made_by: str | None = None,
    instead_of: Call | None = None,
    allow: Callable[[Model], Model] = lambda model: model,
) -> Entry:
    """Return the call that ``asked`` makes of the model ``name``, planned. Counts it.

    ``fleet`` is the one the call has leased, if it began earlier; ``made_by`` the one deployment
    that can go on from the response it continues; ``instead_of`` is the same call as it was for the model that could
    not answer; ``allow`` may change what the model's race may cost.

    Raises:
        ModelNotFound, Forbidden, InvalidRequest: this client cannot ask this of this model.
        NoDeploymentFits: none of its deployments can answer it.

    """
    origin.client.check_model(name)
    found = (fleet or context.fleet).find(name, adhoc=origin.client.adhoc)
    resolved = ResolvedModel(
        allow(as_asked(found, asked.race, origin.client, stateful=asked.stateful)), asked, origin.client
    )
    if made_by is not None:
        resolved.keep_to(made_by)
    fitting = resolved.fitted(origin.client)
    model = resolved.model
    if len(fitting.deployments) == 1 < len(found.deployments) and model.race.mode in _RACING:
        # Only a model that has one deployment to begin with may race it against itself.
        model = msgspec.structs.replace(model, race=model.race.model_copy(update={"mode": Mode.SINGLE}))
    kind = Kind(
        endpoint=ENDPOINTS[asked.dialect],
        structured=asked.for_program,
        max_tokens=resolved.needs.max_tokens,
        client=origin.client.name,
        tags=origin.tags,
        prompt_tokens=resolved.needs.prompt_tokens,
    )
    call = _call(context, asked, origin, model, kind=kind, instead_of=instead_of)
    if resolved.fields is not asked.fields or fitting.wordings or fitting.dropped:
        call = msgspec.structs.replace(call, fields=resolved.fields, wordings=fitting.wordings, dropped=fitting.dropped)
    if resolved.is_narrowed:
        call = msgspec.structs.replace(call, is_narrowed=True)
    prefix = _prefix(resolved.fields, asked) if model.race.cache_affinity else None
    terms = Terms(
        call.objective,
        call.prompt_tokens,
        resolved.needs.max_tokens,
        model.prices,
        model.limits,
        model.weights or None,
        model.canaries or None,
        fitting.excluded or None,
        prefix,
        kind,
        answer_kind=call.answer_kind,
        bills_losers=model.bills_losers,
    )
    names = [deployment.name for deployment in fitting.deployments]
    plan = context.steering.plan(model.name, names, model.race, terms, call.prompt_class, explain=origin.explain)
    return Entry(call, model, resolved.kept_in(plan), resolved.told, prefix, tuple(names))


def resolved(objective: Objective, *, streamed: bool, for_program: bool) -> Objective:
    """Return what a call is to be good at: ``auto`` asks whether somebody reads along, or waits for the whole.

    Nobody reads along where nothing is streamed, whatever is configured.
    """
    if objective is Objective.AUTO:
        return Objective.READING if streamed and not for_program else Objective.COMPLETION
    return objective if streamed or objective is not Objective.READING else Objective.COMPLETION


def lined_up(
    context: Context,
    entry: Entry,
    sink: Sink,
    *,
    recorder: Recorder | None = None,
    told: dict[str, str] | None = None,
    falls_back: Callable[[ApiError], bool] = lambda _: False,
    earlier: Earlier | None = None,
    request: web.Request | None = None,
) -> Race:
    """Return the race that carries the entry's plan out; ``recorder`` is the gateway's own unless another is given.

    When the budget or ``max_in_flight`` makes the race narrower, the response headers ``told`` say so.
    """
    steering, model, plan = context.steering, entry.model, entry.plan

    def full(_: Launch) -> None:
        context.seats.refused(model.name)
        if told is not None:
            told[NARROWED] = MAX_IN_FLIGHT

    def permit(launch: Launch) -> bool:
        cost_usd = plan.cost_usd.get(launch.deployment)
        permitted = steering.permit(model.name, launch, model.race, cost_usd=cost_usd, payer=model.payer)
        if not permitted and told is not None:
            told[NARROWED] = steering.refused_by(model.payer, model.race, cost_usd=cost_usd, model=model.name)
        return permitted

    return Race(
        entry.call,
        model,
        plan,
        sink,
        recorder or context.recorder,
        tasks=context.attempts,
        clock=context.clock,
        permit=permit,
        seats=context.seats,
        full=full,
        new_id=context.new_id,
        utc_now=context.utc_now,
        cancelled_as=partial(context.cancelled_as, request),
        falls_back=falls_back,
        not_asked=partial(steering.not_asked, entry.names),
        earlier=earlier,
    )


def _call(context: Context, asked: Asked, origin: Origin, model: Model, *, kind: Kind, instead_of: Call | None) -> Call:
    return Call(
        id=context.new_id() if instead_of is None else instead_of.id,
        received_at=_received_at(context, origin) if instead_of is None else instead_of.received_at,
        started_at=context.utc_now() if instead_of is None else instead_of.started_at,
        client=origin.client.name,
        model=model.name,
        asked_model=None if model.name == asked.model else asked.model,
        endpoint=kind.endpoint,
        dialect=asked.dialect,
        streamed=asked.stream,
        mode=model.race.mode,
        objective=resolved(model.race.objective, streamed=asked.stream, for_program=asked.for_program),
        win_on=model.race.win_on,
        prompt_class=asked.prompt_class,
        prompt_tokens=asked.needs.prompt_tokens,
        wants_usage=asked.wants_usage,
        fields=asked.fields,
        headers=origin.headers,
        tags=origin.tags,
        request_id=origin.request_id,
        replica=context.replica,
        region=context.settings.region,
        stateful=asked.stateful,
        kind=kind,
        answer_kind=answer_kind(asked.fields),
        deadline_ms=model.race.ttft_ms,
    )


def _received_at(context: Context, origin: Origin) -> float:
    return context.clock() if origin.received_at is None else origin.received_at


def _prefix(fields: Mapping[str, msgspec.Raw], asked: Asked) -> Prefix | None:
    if asked.size <= PREFIX_BYTES[0]:
        return None
    return prefix_of([fields[part] for part in _PROMPTS if part in fields], asked.cache_key)
