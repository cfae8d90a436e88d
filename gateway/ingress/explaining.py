"""GET /leaderboard?explain=1: which deployments would run for a model's next call, with which delays, and why."""

from collections.abc import Mapping

import msgspec

from gateway.attempt_records import AnswerKind
from gateway.calls import Kind
from gateway.errors import InvalidRequest, NoDeploymentFits, NothingEnabled
from gateway.fleet.model import Model
from gateway.ingress.admission import Client
from gateway.ingress.asked import Needs
from gateway.ingress.body import CHARS_PER_TOKEN, size_class
from gateway.ingress.context import Context
from gateway.ingress.entry import resolved_objective
from gateway.ingress.fitting import Question, fitted
from gateway.ingress.preferences.override import RaceOverride, as_asked
from gateway.prompt_classes import answer_class
from gateway.settings.profiles import Profile
from gateway.steering.candidates import Terms
from gateway.steering.explanation import Explanation
from providers.dialects.index import PIVOT


class HypotheticalCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hypothetical call: its size, its kind, and what a deployment needs to answer it."""

    prompt_tokens: int = 700  # a typical chat
    max_tokens: int | None = None
    stream: bool = True
    tools: bool = False
    json_schema: bool = False
    vision: bool = False

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


def explained(context: Context, model: Model, query: Mapping[str, str], client: Client) -> Explained:
    """Explain the plan of a call. ``query`` has the fields of ``HypotheticalCall`` and of a race override.

    Nothing is counted: the next call's plan does not change. A deployment that cannot answer is listed with the
    reason: the length, the abilities it lacks, or the client's rules for providers.

    Raises:
        InvalidRequest: a field is unknown or invalid.

    """
    call, override = _read(query)
    model = as_asked(model, override, client, stateful=False)
    able: list[str] = []
    excluded: Mapping[str, str] = {}
    try:
        needs = Needs(call.prompt_tokens, call.max_tokens, call.tools, call.json_schema, call.vision)
        fitting = fitted(Question(model.name, PIVOT, call.fields, needs, client.require), client.deployments(model))
        able, excluded = [deployment.name for deployment in fitting.deployments], fitting.excluded
    except NoDeploymentFits as error:
        excluded = error.reasons
    except NothingEnabled:
        pass  # nothing to explain here, but the other models' plans are still shown
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
            model.limits,
            model.weights or None,
            model.canaries or None,
            excluded or None,
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
        answer_class(size_class(call.prompt_tokens * CHARS_PER_TOKEN)),
    )
    prospects = tuple(
        msgspec.structs.replace(each, bills_after_disconnect=model.deployments[each.deployment].bills_after_disconnect)
        for each in explanation.deployments
    )
    explanation = msgspec.structs.replace(explanation, deployments=prospects)
    return Explained(model.name, model.race.profile, explanation)


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
