"""xAI: chat completions whose models refuse parameters by their names in camel case."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from strict_vendors.apis.chat import asked_tokens
from strict_vendors.apis.kept import KeptResponse, as_items
from strict_vendors.apis.own import OwnServer
from strict_vendors.models import Model, Models, alike
from strict_vendors.rules import xai as rules
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault
from strict_vendors.vendor import Refused, Reply, Request

Json = dict[str, Any]

_READ = "Failed to deserialize the JSON body into the target type: "
_NO_STOP, _NO_EFFORT = "no stop", "no effort"
_CAMEL = {"presence_penalty": "presencePenalty", "frequency_penalty": "frequencyPenalty"}
_TICKS = 10_000_000_000  # of a dollar: https://github.com/ENTERPILOT/GoModel/pull/297


class VENDOR(OwnServer):
    """xAI."""

    name = "xai"
    key = "xai-strict"
    pages: ClassVar[Sequence[str]] = (rules.REFERENCE, rules.REASONING, rules.MODELS)
    chat = rules.CHAT
    fingerprint = "fp_strict"
    whole_calls = True  # rules.FUNCTIONS
    usage_in = "last"
    has_messages = False
    usual_model = ""
    tells_thoughts = "sealed"
    models = Models(
        Model(
            "grok-4.3",
            context=1_000_000,
            longest=1_000_000,
            efforts=("none", "low", "medium", "high"),
            usual="low",
            marks=frozenset({_NO_STOP}),
            page=rules.REASONING,
        ),
        Model(
            "grok-4.5",
            context=500_000,
            longest=500_000,
            efforts=("low", "medium", "high"),
            usual="high",
            marks=frozenset({_NO_STOP}),
            page=rules.REASONING,
        ),
        *alike(
            ("grok-4.6", "grok-4.7"),
            Model(
                context=500_000,
                longest=500_000,
                efforts=("low", "medium", "high", "xhigh"),
                usual="high",
                marks=frozenset({_NO_STOP}),
                page=rules.REASONING,
            ),
        ),
        Model(
            "grok-4.20-0309-reasoning",
            context=1_000_000,
            longest=1_000_000,
            efforts=("high",),
            usual="high",
            marks=frozenset({_NO_STOP, _NO_EFFORT}),
            page=rules.EFFORT,
        ),
        Model("grok-4.20-0309-non-reasoning", context=1_000_000, longest=1_000_000, marks=frozenset({_NO_EFFORT})),
    )

    def refuse_key(self, given: str) -> None:
        """Refuse a key: with 400 a wrong one, with 401 a missing one."""
        if given:
            said = f"Incorrect API key provided: {given[:2]}***{given[-2:]}. You can obtain an API key from https://console.x.ai."
            raise Refused(400, said, code="invalid-argument", rule="key")
        said = "No authentication credentials provided. Please supply an Authorization header."
        raise Refused(401, said, code="unauthenticated", rule="key")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal: two words, or the plain text of its reader."""
        if refused.rule.startswith("field"):
            return Reply(refused.message.encode(), refused.status, content_type="text/plain")
        codes = {400: "invalid-argument", 404: "not-found", 429: "resource-exhausted", 503: "unavailable"}
        code = refused.code if refused.rule == "key" else codes.get(refused.status, "internal")
        return Reply({"code": code, "error": refused.message}, refused.status, refused.headers)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(broken.status, "Service temporarily unavailable.", rule="as asked for")

    def words(self, fault: Fault) -> Refused:
        """Return a fault as its reader says it."""
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.path).removeprefix(".")
        match fault.kind:
            case "missing":
                said = f"missing field `{fault.field}`"
            case "value":
                wanted = ", ".join(f"`{each}`" for each in fault.bound)
                said = f"{where}: unknown variant `{fault.value}`, expected one of {wanted}"
            case "type":
                said = f"{where}: invalid type, expected {fault.bound}"
            case _:
                return Refused(400, f"Invalid value of {where}: {fault.value}", rule="range", page=rules.REFERENCE)
        return Refused(422, f"{_READ}{said}", rule=f"field {fault.kind}", page=rules.REFERENCE)

    def no_model(self, name: str) -> Refused:
        """Refuse a model that it does not have."""
        said = (
            f"The model {name} does not exist or your team does not have access to it. Please ensure you're using the correct"
            " API key. If you believe this is a mistake, please contact support and quote your team ID and the model name."
        )
        return Refused(404, said, rule="model", page=rules.MODELS)

    def check_items(self, body: Json) -> None:
        """Refuse tools that it does not know, instructions beside another response, and thoughts that it did not seal."""
        for number, tool in enumerate(body.get("tools") or ()):
            if tool["type"] not in rules.TOOL_TYPES:
                wanted = ", ".join(f"`{each}`" for each in rules.TOOL_TYPES)
                said = f"{_READ}tools[{number}].type: unknown variant `{tool['type']}`, expected one of {wanted}"
                raise Refused(422, said, rule="field value", page=rules.OF_TOOLS)
        if body.get("instructions") and body.get("previous_response_id"):
            said = "Argument not supported: instructions and previous_response_id together"
            raise Refused(400, said, rule="instructions twice", page=rules.INSTRUCTIONS)
        for item in body["input"]:
            sealed = item.get("encrypted_content") if item["type"] == "reasoning" else None
            if sealed and "summary" not in item:
                said = "Could not decode the compaction blob. Ensure it is unmodified from the compact response."
                raise Refused(400, said, rule="thoughts without a summary", page=rules.SUMMARY)
            try:
                self.seal.check(sealed or self.seal.close("", None), None)
            except Refused:
                said = (
                    "Could not decrypt the provided encrypted_content. Ensure the value is the unmodified"
                    " encrypted_content from a previous response."
                )
                raise Refused(400, said, rule="thoughts of others", page=rules.SEALED) from None

    def answer_response(
        self, body: Json, connection: dict[str, KeptResponse] | None = None
    ) -> tuple[Reply, list[Json] | None]:
        """Return the reply, and the events of one that streams; it goes on from what it keeps."""
        before = self._kept_before(body.get("previous_response_id"))
        given = as_items(body.get("input"))
        reply, events = super().answer_response({**body, "input": [*before, *given]}, connection)
        if body.get("store") is not False and not reply.breaks:
            response = reply.body if events is None else events[-1]["response"]
            self.kept.keep(response, before, given)
        return reply, events

    def _kept_before(self, name: str | None) -> list[Json]:
        if name is None:
            return []
        if name not in self.kept.responses:
            raise Refused(404, f"Response with id={name} not found.", rule="nothing kept", page=rules.RESPONSES)
        return self.kept.previous(name)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what this model does not take."""
        for name, page in _not_taken(body, model):
            said = f"Model {model.name} does not support parameter {name}."
            raise Refused(400, said, rule=f"not taken: {name}", page=page)
        effort = body.get("reasoning_effort")
        if effort is not None and effort not in model.efforts:
            raise Refused(400, "Invalid reasoning effort.", rule="effort", page=rules.REASONING)

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse messages that say nothing, and calls and results that do not belong together."""
        for message in messages:
            if not message.get("content") and not message.get("tool_calls") and message["role"] != "tool":
                said = "Invalid request content: Each message must have at least one content element."
                raise Refused(400, said, rule="no content", page=rules.CONTENT)
        super().check_messages(messages)

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that the model's context does not hold."""
        if (tokens := asked_tokens(asked)) > model.context:
            said = f"This model's maximum prompt length is {model.context} but the request contains {tokens} tokens."
            raise Refused(400, said, rule="context", page=rules.CONTEXT)

    def finished(self, answer: Json, given: Given) -> Json:
        """Return an answer whose usage counts thoughts apart, and has a price."""
        return {**answer, "usage": _priced(answer["usage"])}

    def shaped(self, chunks: Sequence[Json], asked: Asked, given: Given, usage: Json) -> list[Json]:
        """Return chunks of which the last has the usage."""
        return list(super().shaped(chunks, asked, given, _priced(usage)))

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, f"The requested resource was not found: {request.path}", rule="path")


def _not_taken(body: Json, model: Model) -> Iterator[tuple[str, str]]:
    for name, camel in _CAMEL.items():
        if body.get(name) is not None:
            yield camel, rules.PENALTIES
    if body.get("stop") is not None and _NO_STOP in model.marks:
        yield "stop", rules.STOP
    if body.get("reasoning_effort") is not None and _NO_EFFORT in model.marks:
        yield "reasoningEffort", rules.EFFORT


def _priced(usage: Json) -> Json:
    thought = usage["completion_tokens_details"]["reasoning_tokens"]
    said = usage["completion_tokens"] - thought
    return {**usage, "completion_tokens": said, "num_sources_used": 0, "cost_in_usd_ticks": _TICKS // 1_000_000}
