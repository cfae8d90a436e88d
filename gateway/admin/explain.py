"""GET /leaderboard?explain=1: which deployments would run for a model's next call, with which delays, and why."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from gateway.admin.answers import Alive, Readiness
from gateway.admin.operations import OPERATIONS
from gateway.api.client import Client
from gateway.api.context import CONTEXT, Context, Phase
from gateway.api.fitting import Question, fitted
from gateway.api.json_body import CHARS_PER_TOKEN, size_class
from gateway.api.overrides import RaceOverride, with_override
from gateway.api.plan_call import resolved_objective
from gateway.api.request import Needs
from gateway.core.attempts import AnswerKind
from gateway.core.calls import Kind
from gateway.core.errors import InvalidRequest, ModelNotFound, NoDeploymentFits, NothingEnabled
from gateway.core.prompt_classes import Effort, answer_class
from gateway.fleet.models import Deployment, Model
from gateway.racing import tier_wanted
from gateway.settings import Cause, Profile
from gateway.steering import Explanation, Leaderboard, Terms
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
    model = with_override(model, override, client, stateful=False)
    able: list[str] = []
    excluded: Mapping[str, str] = {}
    try:
        needs = Needs(call.prompt_tokens, call.max_tokens, call.tools, call.json_schema, call.vision)
        fitting = fitted(Question(model.name, PIVOT, call.fields, needs, client.require), client.deployments(model))
        able, excluded = [deployment.name for deployment in fitting.deployments], fitting.excluded
    except NoDeploymentFits as error:
        excluded = error.reasons
    except NothingEnabled:
        pass  # no plan for this model; the others' plans are still shown
    seats = context.services.seats
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
            kind=Kind(
                structured=call.tools or call.json_schema,
                max_tokens=call.max_tokens,
                client=client.name,
                prompt_tokens=call.prompt_tokens,
            ),
            answer_kind=_answer_kind(call),
            bills_losers=model.bills_losers,
            holds=model.race.holds(streamed=call.stream),
        ),
        answer_class(size_class(call.prompt_tokens * CHARS_PER_TOKEN), call.effort),
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
    """Return which model is asked beside this one when it is late, and when that is, in seconds after the start."""
    for each in model.fallbacks:
        fallback = context.fleet.models.get(each.model)
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


# Status endpoints for operators and their tools: health, metrics and the leaderboard.


async def live(_request: web.Request) -> web.Response:
    """Answer 200 as long as the process responds."""
    return web.json_response(body=msgspec.json.encode(Alive()))


async def ready(request: web.Request) -> web.Response:
    """Answer 200 while new calls are accepted; 503 while stopping, or before the keys of the database are known.

    The gateway stays ready when its database or Redis goes away: calls are answered, rows wait in the spool, each
    replica steers with its own statistics, and known keys stay good. The body has the state of both. ``degraded``: a
    part is sick, and calls are answered all the same, unless ``ledger.required`` refuses them.
    """
    context = request.app[CONTEXT]
    readiness = request.app[OPERATIONS].readiness()
    workers, is_unrecorded = readiness.workers, context.is_unrecorded()
    is_degraded = is_unrecorded or (workers is not None and bool(workers.stopped))
    status: Literal["ok", "degraded", "keys_not_loaded", "stopping"] = "degraded" if is_degraded else "ok"
    accepts = not (is_unrecorded and context.settings.ledger.required)
    if not context.admission.keys.table.is_loaded:
        status, accepts = "keys_not_loaded", False
    if context.phase is not Phase.SERVING:
        status, accepts = "stopping", False
    body = msgspec.json.encode(Readiness(status=status, **msgspec.structs.asdict(readiness)))
    return web.Response(body=body, content_type="application/json", status=200 if accepts else 503)


async def metrics(request: web.Request) -> web.Response:
    """Return the metrics in Prometheus' text format. Needs the key of an admin or a viewer if keys are required."""
    context = request.app[CONTEXT]
    context.admission.admit_viewer(request)
    body, content_type = await request.app[OPERATIONS].render_metrics()
    return web.Response(body=body, headers={"content-type": content_type})


async def leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of ``?model=``; with ``?explain=1`` also the plans of their next calls.

    Needs the key of an admin or a viewer if keys are required.

    Raises:
        ModelNotFound: ``model`` is not configured.

    """
    context = request.app[CONTEXT]
    client = context.admission.admit_viewer(request)
    wanted = request.query.get("model")
    models = context.fleet.models
    if wanted is not None and wanted not in models:
        raise ModelNotFound(f"the model {wanted!r} is not configured; known models: {', '.join(models) or 'none'}")
    names = [wanted] if wanted is not None else list(models)
    if request.query.get("explain", "0") not in _NO:
        plans = [explained(context, models[name], request.query, client) for name in names]
        return web.Response(body=msgspec.json.encode(Plans(plans)), content_type="application/json")
    standings = [context.steering.leaderboard(name) for name in names]
    return web.Response(body=msgspec.json.encode(Leaderboards(standings)), content_type="application/json")


_NO = frozenset({"0", "false", ""})
