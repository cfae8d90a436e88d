"""Mistral AI: chat completions as strict as https://docs.mistral.ai/api and its validator."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

from strict_vendors.apis.chat import asked_tokens
from strict_vendors.apis.chat_like import ChatLike
from strict_vendors.models import Model, Models, alike
from strict_vendors.rules import mistral as rules
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault, faults
from strict_vendors.vendor import Refused, Reply, Request
from strict_vendors.words import PYDANTIC_ERRORS, pydantics_message

Json = dict[str, Any]

_KINDS = {"unknown": "extra_forbidden", "missing": "missing", "value": "literal_error", "tag": "union_tag_invalid"}
_TYPES = {"string": "string_type", "integer": "int_type", "decimal": "float_type", "boolean": "bool_type"}
_AFTER: dict[str, set[str]] = {
    "system": {"user", "assistant", "system"},
    "user": {"assistant", "system", "user"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool"},
}


class VENDOR(ChatLike):
    """Mistral."""

    name = "mistral"
    key = "strict-mistral"
    pages: ClassVar[Sequence[str]] = (rules.OPENAPI, rules.ORDER, rules.EFFORTS)
    chat = rules.CHAT
    usage_in = "last"
    whole_calls = True
    call_ids = ("", 9, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    models = Models(
        *alike(["mistral-large-latest", "ministral-8b-latest"], Model(context=262_144, longest=262_144)),
        *alike(["codestral-latest", "devstral-medium-latest"], Model(context=256_000, longest=256_000)),
        *alike(
            ["mistral-small-latest", "mistral-small-2603", "mistral-medium-latest", "mistral-medium-3-5"],
            Model(context=262_144, longest=262_144, efforts=["none", "high"], usual="none", page=rules.EFFORTS),
        ),
        Model("magistral-medium-latest", context=131_072, longest=131_072, efforts=["high"], usual="high"),
    )

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "Unauthorized", rule="key", page="https://docs.mistral.ai/resources/error-glossary")

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, "no Route matched with those values", rule="path")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal: of a field as pydantic has it, of the rest in Mistral's own shape."""
        if isinstance(refused, _Invalid):
            return Reply({"detail": refused.details}, refused.status, refused.headers)
        if refused.rule in {"key", "path"}:
            return Reply({"message": refused.message, "request_id": self.ids.next("", 32)}, refused.status)
        error = {
            "object": "error",
            "message": refused.message,
            "type": refused.kind or "invalid_request_error",
            "param": refused.param,
            "code": refused.code,
            "raw_status_code": refused.status,
        }
        return Reply(error, refused.status, refused.headers)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(
            broken.status, "Service unavailable.", kind="service_unavailable", rule="as asked for", code="3505"
        )

    def check_fields(self, body: Any) -> None:
        """Refuse all that is not in its OpenAPI document, with one list."""
        if found := list(faults(self.chat, body)):
            raise _Invalid(found)

    def no_model(self, name: str) -> Refused:
        """Refuse a model that it does not have."""
        return Refused(400, f"Invalid model: {name}", kind="invalid_model", code="1500", rule="model")

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse efforts that this model does not take."""
        effort = body.get("reasoning_effort")
        if effort is not None and (not model.thinks or model.name.startswith("magistral")):
            raise _invalid(f"reasoning_effort={effort!r} is not supported for this model", "effort", rules.ORDER)
        if effort is not None and effort not in model.efforts:
            raise _invalid(
                f"reasoning_effort={effort!r} is not supported for this model. Must be one of"
                " (<ReasoningEffort.none: 'none'>, <ReasoningEffort.high: 'high'>)",
                "effort",
                rules.NO_EFFORT,
            )
        if body.get("prompt_mode") and not model.name.startswith("magistral"):
            raise _invalid("Reasoning prompt mode is not enabled for this model", "prompt mode", rules.PROMPT_MODE)
        if (body.get("n") or 1) > 1 and body.get("temperature") == 0:
            raise _invalid("n > 1 is not supported for greedy sampling", "n", rules.OPENAPI)

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse histories in an order that its templates do not have, and ids and names of another form."""
        if not messages:
            raise _disordered("Conversation must have at least one message")
        last = messages[-1]
        if len(messages) > 1 and last["role"] == "assistant" and not last.get("prefix"):
            raise _disordered(
                "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
            )
        if len(messages) == 1 and last["role"] not in {"user", "system"}:
            raise _disordered("Conversation must start with a user message or system message")
        for before, after in pairwise(messages):
            if after["role"] not in _AFTER[before["role"]]:
                raise _disordered(f"Unexpected role '{after['role']}' after role '{before['role']}'")
        _check_calls(messages)
        for number, message in enumerate(messages):
            _check_ids(message)
            if message.get("prefix") and number < len(messages) - 1:
                raise _invalid("Assistant message with prefix True must be last message", "prefix", rules.ORDER)
            if message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls"):
                raise Refused(
                    400,
                    "Assistant message must have either content or tool_calls, but not none.",
                    kind="invalid_request_assistant_message",
                    code="3240",
                    rule="an assistant that says nothing",
                    page=rules.ORDER,
                )

    def check_tools(self, body: Json) -> None:
        """Refuse names of functions that are too long or have other letters."""
        for tool in body.get("tools") or ():
            if "function" in tool and not re.fullmatch(rules.NAME, tool["function"]["name"]):
                raise Refused(
                    400,
                    f"Function name was {tool['function']['name']} but must be a-z, A-Z, 0-9, or contain underscores"
                    " and dashes, with a maximum length of 64.",
                    kind="invalid_function_call",
                    code="3280",
                    rule="name of a function",
                    page=rules.ORDER,
                )

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that, with its answer, the model's context does not hold."""
        tokens = asked_tokens(asked)
        if tokens + (body.get("max_tokens") or 0) > model.context:
            raise _invalid(
                f"Prompt contains {tokens} tokens and 0 draft tokens, too large for model with {model.context} maximum"
                " context length",
                "context",
                rules.OPENAPI,
            )

    def finished(self, answer: Json, given: Given) -> Json:
        """Return an answer whose thoughts are part of its content."""
        for choice in answer["choices"]:
            message = choice["message"]
            message["content"] = _typed(given.thoughts, message["content"] or "")
            message.setdefault("tool_calls", None)
        return answer

    def shaped(self, chunks: Sequence[Json], asked: Asked, given: Given, usage: Json) -> list[Json]:
        """Return chunks that tell thoughts first, as content in pieces of its own kind."""
        found = list(super().shaped(chunks, asked, given, usage))
        head = {name: value for name, value in found[0].items() if name not in {"choices", "usage"}}
        thought = [
            {**head, "choices": [{"index": 0, "delta": {"content": _typed(piece, "")}, "finish_reason": None}]}
            for piece in given.thought_pieces
        ]
        return [found[0], *thought, *found[1:]]


class _Invalid(Refused):
    """A body that is not as the document has it."""

    def __init__(self, found: Sequence[Fault]) -> None:
        first = found[0]
        super().__init__(
            422,
            f"{'.'.join(map(str, first.path))}: {pydantics_message(first)}",
            rule=f"field {first.kind}",
            page=first.page or rules.OPENAPI,
            param=first.field,
        )
        self.details = [
            {
                "type": _KINDS.get(each.kind, _TYPES.get(str(each.bound), "value_error")),
                "loc": ["body", *each.path],
                "msg": pydantics_message(each),
                "input": each.value,
                "url": f"{PYDANTIC_ERRORS}#{_KINDS.get(each.kind, 'value_error')}",
            }
            for each in found
        ]


def _invalid(message: str, rule: str, page: str) -> Refused:
    return Refused(400, message, kind="invalid_request_invalid_args", code="3051", rule=rule, page=page)


def _disordered(message: str) -> Refused:
    page = rules.USER_AFTER_TOOL if "after role 'tool'" in message else rules.ORDER
    return Refused(400, message, kind="invalid_request_message_order", code="3230", rule="order of roles", page=page)


def _check_calls(messages: Sequence[Json]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                raise _disordered(f"Unexpected tool call id {message.get('tool_call_id')} in tool results")
            waiting.remove(message["tool_call_id"])
        elif message["role"] == "assistant":
            if waiting:
                raise _disordered("Not the same number of function calls and responses")
            waiting = [call.get("id", "null") for call in message.get("tool_calls") or ()]
            if len(set(waiting)) < len(waiting):
                raise _disordered(f"Duplicate tool call id {waiting[0]} in assistant message")
    if waiting:
        raise _disordered("Not the same number of function calls and responses")


def _check_ids(message: Json) -> None:
    ids = [call.get("id", "null") for call in message.get("tool_calls") or ()]
    for call_id in [*ids, *([message.get("tool_call_id")] if message["role"] == "tool" else [])]:
        if not re.fullmatch(rules.CALL_ID, call_id or ""):
            raise Refused(
                400,
                f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9.",
                kind="invalid_function_call",
                code="3280",
                rule="form of an id",
                page="https://github.com/nearai/ironclaw/issues/1241",
            )
    for call in message.get("tool_calls") or ():
        if isinstance(arguments := call["function"]["arguments"], str):
            try:
                json.loads(arguments or "{}")
            except ValueError:
                raise _invalid("Function arguments must be valid JSON", "arguments", rules.ORDER) from None


def _typed(thoughts: str, text: str) -> Any:
    """Return content as Mistral has it when there are thoughts: a list of pieces of two kinds."""
    if not thoughts:
        return text
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]}
    return [thinking, {"type": "text", "text": text}] if text else [thinking]
