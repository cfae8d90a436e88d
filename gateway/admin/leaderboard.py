"""The leaderboard, for programs and for the page; and which deployments would run for a model's next call, and why."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from aiohttp import web

from gateway.admin import answers
from gateway.admin.configuration import priced
from gateway.admin.operations import OPERATIONS
from gateway.admin.queries import answer, is_asked, parse_query
from gateway.admin.visitors import admit_visitor
from gateway.api.client import Client
from gateway.api.context import CONTEXT, Context
from gateway.api.fitting import Question, fitted
from gateway.api.json_body import CHARS_PER_TOKEN, size_class
from gateway.api.overrides import RaceOverride, with_override
from gateway.api.request import Needs
from gateway.api.shapes import resolved_objective
from gateway.core.attempts import AnswerKind, WinOn
from gateway.core.calls import CallKind
from gateway.core.errors import InvalidRequest, ModelNotFound, NoDeploymentFits, NothingEnabled
from gateway.core.prompt_classes import Effort, answer_class, spoken_class
from gateway.core.reports import Gaps
from gateway.fleet.models import Deployment, Model
from gateway.racing import tier_wanted
from gateway.settings import Cause, Profile
from gateway.steering import Explanation, Leaderboard, Terms
from providers import FORMER, LearntFacts, encoded, learnt_of
from providers.dialects import PIVOT

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
        """A minimal body for such a call: every deployment that could answer it accepts it."""
        fields = {"messages": _PICTURE if self.vision else _TEXT}
        if self.tools:
            fields["tools"] = _TOOLS
        if self.json_schema:
            fields["response_format"] = _SCHEMA
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

    This changes no counters, so the next call's plan stays the same. A deployment that cannot answer is listed with the
    reason: the length, the abilities it lacks, or the client's rules for providers.

    Raises:
        InvalidRequest: a field is unknown or invalid.

    """
    call, override = _read(query)
    given = model.under(client.profile).race
    asked = with_override(model, override, client, stateful=False)
    model = with_override(model, override, client, stateful=True) if model.common.acts else asked
    able: list[str] = []
    excluded: Mapping[str, str] = {}
    try:
        needs = Needs(call.prompt_tokens, call.max_tokens, call.tools, call.json_schema, call.vision)
        question = Question(model.name, PIVOT, call.fields, needs, client.require, client=client.name)
        fitting = fitted(question, client.deployments(model))
        able, excluded = [deployment.name for deployment in fitting.deployments], fitting.excluded
    except NoDeploymentFits as error:
        excluded = error.reasons
    except NothingEnabled:
        pass  # no plan for this model; the others' plans are still shown
    seats = context.services.seats
    prompt_class = answer_class(size_class(call.prompt_tokens * CHARS_PER_TOKEN), call.effort)
    spoken = model.race.win_on is WinOn.SENTENCE and call.stream and not call.json_schema
    prompt_class = spoken_class(prompt_class) if spoken else prompt_class
    explanation = context.steering.explain(
        model.name,
        able,
        model.race,
        Terms(
            resolved_objective(
                model.race.objective,
                streamed=call.stream,
                for_program=call.tools or call.json_schema,
            ),
            call.prompt_tokens,
            call.max_tokens,
            model.prices,
            seats.now(model.limits, of_call=False) if seats.leased else model.limits,
            model.weights or None,
            model.canaries or None,
            excluded or None,
            leased=seats.leased,
            kind=CallKind(
                structured=call.tools or call.json_schema,
                max_tokens=call.max_tokens,
                client=client.name,
                prompt_tokens=call.prompt_tokens,
            ),
            answer_kind=_answer_kind(call),
            bills_losers=model.bills_losers,
            holds=model.race.holds(streamed=call.stream),
            stateful=model.common.acts,
            asked=None if model is asked else asked.race,
            spoken=spoken,
            speaks_unasked=given.win_on is not WinOn.SENTENCE,
        ),
        prompt_class,
    )
    prospects = tuple(
        msgspec.structs.replace(
            each,
            bills_after_disconnect=model.deployments[each.deployment].bills_after_disconnect,
            tier=_tier(model.deployments[each.deployment]),
        )
        for each in explanation.deployments
    )
    fallback, late_s = _fallback(context, model, explanation.late_s or 0.0)
    explanation = msgspec.structs.replace(explanation, deployments=prospects, late_s=late_s, fallback=fallback)
    return Explained(model.name, model.race.profile, explanation)


def _tier(deployment: Deployment) -> str | None:
    """Return the tier of service that a deployment asks for itself: its price is the one of the plan."""
    tier = tier_wanted(deployment, None)
    return tier if tier is None else tier or "standard"


def _fallback(context: Context, model: Model, late_s: float) -> tuple[str | None, float | None]:
    """Return the model that is asked beside this one when it is late, and when: seconds after the start."""
    for each in model.fallbacks:
        fallback = context.fleet.known(each.model)
        after_s = model.waits_s(each.fallback_after or model.fallback_after, late_s, fallback)
        if Cause.FAILED in each.causes and after_s is not None:
            return each.model, after_s
    return None, None


def _answer_kind(call: HypotheticalCall) -> AnswerKind:
    if call.json_schema:
        return AnswerKind.JSON
    return AnswerKind.TOOLS if call.tools else AnswerKind.PLAIN


def _read(query: Mapping[str, str]) -> tuple[HypotheticalCall, RaceOverride]:
    fields = {name: value for name, value in query.items() if name not in _ADDRESS}
    override = {name: fields.pop(name) for name in RaceOverride.__struct_fields__ if name in fields}
    try:
        return msgspec.convert(fields, HypotheticalCall, strict=False), msgspec.convert(
            override, RaceOverride, strict=False
        )
    except msgspec.ValidationError as error:
        known = ", ".join((*HypotheticalCall.__struct_fields__, *RaceOverride.__struct_fields__))
        raise InvalidRequest(f"the query is not understood: {error}; explain takes {known}") from None


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
        known = None if deployment is None else learnt_of(deployment.upstream)
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
