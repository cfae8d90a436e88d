"""The leaderboard, for programs and for the page; and which deployments would run for a model's next call, and why."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from aiohttp import web

from gateway.access import Client
from gateway.admin import answers
from gateway.admin.configuration import priced
from gateway.admin.operations import OPERATIONS
from gateway.admin.queries import answer, is_asked, parse_query
from gateway.admin.visitors import admit_visitor
from gateway.api import (
    CONTEXT,
    ClientContext,
    Context,
    Needs,
    ParsedRequest,
    PlannedCall,
    RaceOverride,
    fallbacks_of,
    late_after_s,
    late_at_first_s,
    plan_hypothetical,
    resolved_objective,
    with_override,
)
from gateway.api import NOTHING as NO_PREFERENCES
from gateway.core.errors import InvalidRequest, ModelNotFound, NothingEnabled
from gateway.core.prompt_classes import Effort
from gateway.core.reports import Gaps
from gateway.fleet import Deployment, Model
from gateway.http import CHARS_PER_TOKEN
from gateway.racing import tier_wanted
from gateway.settings import Cause, Profile
from gateway.steering import Explanation, Leaderboard, Terms
from providers import FORMER, LearntFacts, encoded
from providers.dialects import raw_json

_MOST_TOKENS = 10**9  # far beyond any model's


class HypotheticalCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hypothetical call: its size, its kind, and what a deployment needs to answer it."""

    prompt_tokens: Annotated[int, msgspec.Meta(ge=1, le=_MOST_TOKENS)] = 700  # a typical chat
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=_MOST_TOKENS)] | None = None
    stream: bool = True
    tools: bool = False
    json_schema: bool = False
    vision: bool = False
    effort: Effort | None = None

    @property
    def fields(self) -> Mapping[str, msgspec.Raw]:
        """A minimal body for such a call, which every deployment accepts that could answer the call."""
        fields = {"messages": _PICTURE if self.vision else _TEXT}
        if self.tools:
            fields["tools"] = _TOOLS
        if self.json_schema:
            fields["response_format"] = _SCHEMA
        if self.effort is not None:
            fields["reasoning_effort"] = raw_json(self.effort)
        return fields


class Explained(msgspec.Struct, frozen=True):
    """The explanation for one model."""

    model: str
    profile: Profile | None  # the profile in effect
    explanation: Explanation


class Plans(msgspec.Struct, frozen=True):
    """The explanations for some models."""

    models: list[Explained]


class Leaderboards(msgspec.Struct, frozen=True):
    """The standings of some models."""

    models: list[Leaderboard]


def explained(context: Context, model: Model, query: Mapping[str, str], client: Client) -> Explained:
    """Explain the plan of a call. ``query`` has the fields of ``HypotheticalCall`` and of a race override.

    It is planned as a call is, but changes no counters, so the next call's plan stays the same. A deployment that
    cannot answer is listed with the reason: the length, the abilities it lacks, or the client's rules for providers.

    Raises:
        InvalidRequest: a field is unknown or invalid.

    """
    parsed = _read(query, model)
    try:
        planned = plan_hypothetical(context, parsed, ClientContext(client=client))
    except NothingEnabled:  # no plan for this model; the others' plans are still shown
        return _unplanned(context, with_override(model, parsed.race, client, stateful=False), parsed)
    model, explanation = planned.model, planned.plan.explanation
    assert explanation is not None
    prospects = tuple(
        msgspec.structs.replace(
            each,
            bills_after_disconnect=model.deployments[each.deployment].bills_after_disconnect,
            tier=_tier(model.deployments[each.deployment]),
        )
        for each in explanation.deployments
    )
    fallback, late_s = _fallback(context, planned)
    explanation = msgspec.structs.replace(explanation, deployments=prospects, late_s=late_s, fallback=fallback)
    return Explained(model.name, model.race.profile, explanation)


def _unplanned(context: Context, model: Model, parsed: ParsedRequest) -> Explained:
    """Explain that no deployment of ``model`` runs, as all are switched off."""
    objective = resolved_objective(model.race.objective, streamed=parsed.stream, for_program=parsed.for_program)
    terms = Terms(objective, parsed.needs.prompt_tokens)
    plan = context.steering.explain(model.name, (), model.race, terms, parsed.prompt_class)
    assert plan.explanation is not None
    return Explained(model.name, model.race.profile, plan.explanation)


def _tier(deployment: Deployment) -> str | None:
    """Return the tier of service that a deployment asks for itself: its price is the one of the plan."""
    tier = tier_wanted(deployment, None)
    return tier if tier is None else tier or "standard"


def _fallback(context: Context, planned: PlannedCall) -> tuple[str | None, float | None]:
    """Return the fallback that is asked beside a late model, and when: seconds after the start."""
    fallbacks = () if planned.call.request.stateful else fallbacks_of(planned.model, Cause.FAILED)
    following = next((each for each in fallbacks if each[1] != "failure"), None)
    late_s = None if following is None else late_after_s(context, context.fleet, planned, following)
    if following is None or late_s is None:
        return None, None
    return following[0], late_at_first_s(context, planned, late_s)


def _read(query: Mapping[str, str], model: Model) -> ParsedRequest:
    fields = {name: value for name, value in query.items() if name not in _ADDRESS}
    override = {name: fields.pop(name) for name in RaceOverride.__struct_fields__ if name in fields}
    try:
        call = msgspec.convert(fields, HypotheticalCall, strict=False)
        race = msgspec.convert(override, RaceOverride, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join((*HypotheticalCall.__struct_fields__, *RaceOverride.__struct_fields__))
        raise InvalidRequest(f"the query is not understood: {error}; explain takes {known}") from None
    return ParsedRequest(
        model=model.name,
        fields=call.fields,
        stream=call.stream,
        size=call.prompt_tokens * CHARS_PER_TOKEN,
        needs=Needs(call.prompt_tokens, call.max_tokens, call.tools, call.json_schema, call.vision),
        race=race,
        preferences=NO_PREFERENCES,
        for_program=call.tools or call.json_schema,
    )


_TEXT = msgspec.Raw(b'[{"role":"user","content":"?"}]')
_PICTURE = msgspec.Raw(
    b'[{"role":"user","content":[{"type":"text","text":"?"},'
    b'{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]'
)
_TOOLS = msgspec.Raw(b'[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{}}}}]')
_SCHEMA = msgspec.Raw(
    b'{"type":"json_schema","json_schema":{"name":"told","strict":true,"schema":{"type":"object",'
    b'"properties":{"it":{"type":"string"}},"required":["it"],"additionalProperties":false}}}'
)
_ADDRESS = frozenset({"explain", "model"})


# GET /leaderboard for programs; GET /api/leaderboard and /api/explain for the page.


async def leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of ``?model=``; with ``?explain=1`` also the plans of their next calls.

    Needs the key of an admin or a viewer if keys are required.

    Raises:
        ModelNotFound: ``model`` is not configured.

    """
    context = request.app[CONTEXT]
    client = context.admission.admit_viewer(request)
    models = _wanted(context, request.query.get("model"))
    if is_asked(request, "explain"):
        body = encoded(Plans(await _plans(context, models, request.query, client)))
    else:
        body = encoded(Leaderboards(await context.body_work.pieces(_standings(context, model) for model in models)))
    return web.Response(body=body, content_type="application/json")


class BoardQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model to explain; None: all models."""

    model: str | None = None


async def page_leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of one, with prices, and how long answers paused lately."""
    admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, parse_query(request, BoardQuery).model)
    gaps = await request.app[OPERATIONS].reports.gaps()
    boards = await context.body_work.pieces(_board(context, model, gaps) for model in models)
    return answer(request, answers.PageBoards(boards))


async def page_explain(request: web.Request) -> web.Response:
    """Return the plan of the next call of every model, or of ``?model=``, with reasons."""
    client = admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, request.query.get("model"))
    return answer(request, Plans(await _plans(context, models, request.query, client)))


async def _plans(
    context: Context, models: Iterable[Model], query: Mapping[str, str], client: Client
) -> list[Explained]:
    return await context.body_work.pieces(explained(context, model, query, client) for model in models)


def _standings(context: Context, model: Model) -> Leaderboard:
    """Return a model's standings, with what its deployments are known to refuse."""
    board = context.steering.leaderboard(model.name)
    rows = []
    for row in board.deployments:
        deployment = model.deployments.get(row.deployment)
        known = None if deployment is None else deployment.upstream.learnt
        refuses = {} if deployment is None or known is None else _refusals(known, deployment.model)
        rows.append(msgspec.structs.replace(row, refuses=tuple(refuses)) if refuses else row)
    return msgspec.structs.replace(board, deployments=tuple(rows))


def _refusals(learnt: LearntFacts, model: str) -> dict[str, None]:
    """Return in words what ``model`` is known to refuse, and which client alone has met it, if only one has."""
    found: dict[str, None] = {}
    for known in learnt.listed():
        if known.model == model:
            client = None if known.met.is_for_all else known.met.clients[-1]
            alone = "" if client is None or client == FORMER else f" (for {client} alone)"
            found[f"{known.fact.words}{alone}"] = None
    return found


def _board(context: Context, model: Model, gaps: Gaps) -> answers.PageBoard:
    board = _standings(context, model)
    rows = []
    for row in board.deployments:
        deployment = model.deployments.get(row.deployment)
        p50_ms, p95_ms, silence_ms = gaps.get((model.name, row.deployment), (None, None, None))
        price = None if deployment is None else priced(deployment.price)
        known = msgspec.structs.asdict(row)
        rows.append(
            answers.PageRow(**known, price=price, itl_p50_ms=p50_ms, itl_p95_ms=p95_ms, silence_p95_ms=silence_ms)
        )
    return answers.PageBoard(**msgspec.structs.asdict(board) | {"deployments": tuple(rows)})


def _wanted(context: Context, name: str | None) -> list[Model]:
    """Return the requested models.

    Raises:
        ModelNotFound: the one that is named is not configured.

    """
    fleet = context.fleet
    if name is None:
        return list(fleet.models.values())
    if (model := fleet.known(name)) is None:
        known = ", ".join(fleet.configured) or "none"
        raise ModelNotFound(f"the model {name!r} is not configured; known models: {known}")
    return [model]
