"""Groq: chat completions that refuse each field that they do not know."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import structs

from strict_vendors.apis.chat import asked_tokens
from strict_vendors.apis.own import OwnServer
from strict_vendors.models import Model, Models, alike
from strict_vendors.rules import groq as rules
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault, Record, Tag
from strict_vendors.vendor import LETTERS, Refused, Reply, Request

Json = dict[str, Any]

_PICTURES, _SCHEMAS, _QWEN = "sees pictures", "has schemas", "thinks as Qwen does"
_NOT_SUPPORTED = ("logprobs", "top_logprobs", "logit_bias")
_NOT_IN_RESPONSES: Mapping[str, tuple[Any, ...]] = {  # and the values that ask for nothing
    "previous_response_id": (None,),
    "store": (None, False),
    "truncation": (None, "disabled"),
    "include": (None, []),
    "safety_identifier": (None,),
    "prompt_cache_key": (None,),
    "prompt": (None,),
}
_KINDS = {"string": "string", "integer": "integer", "decimal": "number", "boolean": "boolean", "array": "array"}


class VENDOR(OwnServer):
    """Groq."""

    name = "groq"
    base = "/openai/v1"
    key = "gsk_strict"
    pages: ClassVar[Sequence[str]] = (rules.SDK, rules.COMPATIBLE, rules.REASONING, rules.STRUCTURED, rules.MODELS)
    chat = rules.CHAT
    thoughts = "reasoning"
    fingerprint = "fp_strict"
    whole_calls = True
    call_ids = ("", 9, LETTERS.lower())
    has_messages = False
    usual_model = ""
    models = Models(
        *alike(
            ["openai/gpt-oss-120b", "openai/gpt-oss-20b"],
            Model(
                context=131_072,
                longest=65_536,
                efforts=("low", "medium", "high"),
                usual="medium",
                marks=frozenset({_SCHEMAS}),
            ),
        ),
        *alike(
            ["qwen/qwen3-32b", "qwen/qwen3.6-27b"],
            Model(
                context=131_072, longest=40_960, efforts=("none", "default"), usual="default", marks=frozenset({_QWEN})
            ),
        ),
        Model("llama-3.3-70b-versatile", context=131_072, longest=32_768),
        Model("llama-3.1-8b-instant", context=131_072, longest=131_072),
        Model(
            "meta-llama/llama-4-scout-17b-16e-instruct",
            context=131_072,
            longest=8_192,
            marks=frozenset({_PICTURES, _SCHEMAS}),
        ),
    )

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "Invalid API Key", code="invalid_api_key", rule="key")

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        said = (
            f"Unknown request URL: {request.method} {request.path}. Please check the URL for typos, or see the docs at"
            " https://console.groq.com/docs/"
        )
        raise Refused(404, said, code="unknown_url", rule="path")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal, without what is not told."""
        told = {"message": refused.message, "type": refused.kind or "invalid_request_error"}
        more = {name: value for name, value in (("param", refused.param), ("code", refused.code)) if value}
        return Reply({"error": {**told, **more}}, refused.status, {"x-request-id": self.ids.next("req_", 26)})

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(broken.status, "Internal Server Error", kind="internal_server_error", rule="as asked for")

    def words(self, fault: Fault) -> Refused:
        """Return a fault in Groq's words."""
        at = next((step for step in fault.path if isinstance(step, Tag)), None)
        said = _said(fault, self.chat)
        if at is not None and fault.path[0] == "messages":
            inner = f"messages.{fault.path[1]}"
            said = f"'{inner}' : for 'role:{at}' the following must be satisfied[('{inner}' : {said})]"
        elif fault.kind != "unknown":
            said = f"'{_place(fault)}' : {said}"
        page = rules.IN_MESSAGES if at is not None else rules.PROPERTY if fault.kind == "unknown" else rules.SDK
        return Refused(400, said, rule=f"field {fault.kind}", page=page)

    def check_items(self, body: Json) -> None:
        """Refuse what its Responses do not have: it keeps nothing."""
        for name, nothing in _NOT_IN_RESPONSES.items():
            if body.get(name) not in nothing:
                said = f"property '{name}' is unsupported"
                raise Refused(400, said, param=name, rule=f"not taken: {name}", page=rules.RESPONSES)
        choice = body.get("tool_choice")
        if isinstance(choice, Mapping) and "name" not in choice:  # its chat has a choice of one function, and no other
            said = "'tool_choice.type' : value is not one of the allowed values ['function']"
            raise Refused(400, said, param="tool_choice", rule="not taken: tool_choice", page=rules.RESPONSES)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what this model does not take."""
        for said, rule, page, param in self._wrong_for(body, model):
            raise Refused(400, said, rule=rule, page=page, param=param)

    def _wrong_for(self, body: Json, model: Model) -> Iterator[tuple[str, str, str, str | None]]:
        for name in _NOT_SUPPORTED:
            if body.get(name):
                yield f"`{name}` is not supported with this model", f"not taken: {name}", rules.COMPATIBLE, None
        effort = body.get("reasoning_effort")
        if effort and not model.thinks:
            yield "`reasoning_effort` is not supported with this model", "effort", rules.NO_EFFORT, None
        elif effort and effort not in model.efforts:
            listed = (
                " or ".join(f"`{each}`" for each in model.efforts)
                if len(model.efforts) == 2
                else "`low`, `medium`, or `high`"
            )
            yield f"`reasoning_effort` must be one of {listed}", "effort", rules.QWENS_EFFORT, None
        form = body.get("reasoning_format")
        if form and not model.thinks:
            yield "`reasoning_format` is not supported with this model", "form of thoughts", rules.REASONING, None
        if form and "include_reasoning" in body:
            said = "cannot specify both `include_reasoning` and `reasoning_format`"
            yield said, "form of thoughts", rules.REASONING, None
        for name in ("max_completion_tokens", "max_tokens"):
            if (body.get(name) or 0) > model.longest:
                said = (
                    f"`{name}` must be less than or equal to `{model.longest}`, the maximum value for `{name}` is less"
                    " than the `context_window` for this model"
                )
                yield said, "longest answer", rules.LONGEST, name
        kind = (body.get("response_format") or {}).get("type", "text")
        if kind == "json_schema" and _SCHEMAS not in model.marks:
            where = f"{rules.STRUCTURED}#supported-models"
            said = f"This model does not support response format `json_schema`. See supported models at {where}"
            yield said, "schema of an answer", rules.STRUCTURED, "response_format"
        if kind != "text" and body.get("tools"):
            said = "json mode cannot be combined with tool/function calling"
            yield said, "JSON and tools", rules.JSON_AND_TOOLS, None
        if kind == "json_schema" and body.get("stream"):
            said = "response format `json_schema` cannot be combined with streaming"
            yield said, "schema in a stream", rules.STRUCTURED, "response_format"
        if kind == "json_object" and "json" not in json.dumps(body["messages"]).lower():
            said = (
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
            )
            yield said, "the word json", rules.STRUCTURED, "messages"
        offered = [tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool]
        called = [call["function"]["name"] for message in body["messages"] for call in message.get("tool_calls") or ()]
        choice = body.get("tool_choice")
        if isinstance(choice, Mapping) and choice["function"]["name"] not in offered:
            yield "requested tool does not exist", "choice of a tool", rules.NO_SUCH_TOOL, "tool_choice"
        if offered and any(name not in offered for name in called):
            yield "requested tool does not exist", "tool of a history", rules.NO_SUCH_TOOL, None
        for number, message in enumerate(body["messages"]):
            parts = message.get("content") if isinstance(message.get("content"), list) else []
            if _PICTURES not in model.marks and any(part["type"] == "image_url" for part in parts or ()):
                yield f"messages[{number}].content must be a string", "pictures", rules.MODELS, None

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that the model's context does not hold."""
        if asked_tokens(asked) > model.context:
            said = "Please reduce the length of the messages or completion."
            raise Refused(
                400, said, param="messages", code="context_length_exceeded", rule="context", page=rules.CONTEXT
            )

    def read(self, body: Json, model: Model) -> Asked:
        """Read a request."""
        asked = super().read(body, model)
        return structs.replace(asked, thinks=self.thinks(body, model))

    def told(self, given: Given, model: Model) -> Given:
        """Return an answer as it is told; ``told_for`` looks at the request too."""
        return given

    def admitted(self, request: Request) -> tuple[Asked, Model]:
        """Remember how thoughts are asked for."""
        asked, model = super().admitted(request)
        self._form = request.body.get("reasoning_format") or (
            "raw" if _QWEN in model.marks and not request.body.get("tools") else "parsed"
        )
        if request.body.get("include_reasoning") is False:
            self._form = "hidden"
        return asked, model

    def finished(self, answer: Json, given: Given) -> Json:
        """Return an answer with its thoughts where they were asked for, and its own times."""
        for choice in answer["choices"]:
            message = choice["message"]
            if given.thoughts and self._form != "parsed":
                message.pop("reasoning", None)
            if given.thoughts and self._form == "raw":
                message["content"] = f"<think>\n{given.thoughts}\n</think>\n\n{message['content'] or ''}"
        return {**answer, "usage": _timed(answer["usage"]), "x_groq": {"id": self.ids.next("req_", 26)}}

    def shaped(self, chunks: Sequence[Json], asked: Asked, given: Given, usage: Json) -> list[Json]:
        """Return chunks of which the first and the last have what only Groq has."""
        found = list(super().shaped(chunks, asked, given, usage))
        number = self.ids.next("req_", 26)
        if given.thoughts and self._form != "parsed":
            found = [chunk for chunk in found if not _thought(chunk)]
        if given.thoughts and self._form == "raw":
            pieces = ["<think>", "\n", *given.thought_pieces, "\n</think>\n\n"]
            head = {name: value for name, value in found[0].items() if name not in {"choices", "usage"}}
            raw = [
                {
                    **head,
                    "choices": [{"index": 0, "delta": {"content": piece}, "logprobs": None, "finish_reason": None}],
                }
                for piece in pieces
            ]
            found = [found[0], *raw, *found[1:]]
        found[0] = {**found[0], "x_groq": {"id": number}}
        last = max(place for place, chunk in enumerate(found) if chunk["choices"])
        found[last] = {**found[last], "x_groq": {"id": number, "usage": _timed(usage)}}
        return found

    _form: str = "parsed"


def _thought(chunk: Json) -> bool:
    return bool(chunk["choices"]) and "reasoning" in chunk["choices"][0]["delta"]


def _timed(usage: Json) -> Json:
    return {**usage, "queue_time": 0.01, "prompt_time": 0.001, "completion_time": 0.01, "total_time": 0.011}


def _place(fault: Fault) -> str:
    return ".".join(str(step) for step in fault.path if not isinstance(step, Tag))


def _said(fault: Fault, shape: Record) -> str:
    match fault.kind:
        case "unknown":
            near = difflib.get_close_matches(fault.field, list(shape.fields), 1) if len(fault.path) == 1 else []
            return f"property '{fault.field}' is unsupported" + (f", did you mean '{near[0]}'?" if near else "")
        case "missing":
            return f"property '{fault.field}' is missing"
        case "value" | "tag":
            return f"value is not one of the allowed values [{','.join(repr(each) for each in fault.bound)}]"
        case "low":
            return f"number must be at least {fault.bound}"
        case "high":
            return f"number must be at most {fault.bound}"
        case "many":
            return f"maximum number of items is {fault.bound}"
        case "few":
            return f"minimum number of items is {fault.bound}"
        case _:
            wanted = fault.bound if isinstance(fault.bound, list) else [fault.bound]
            return f"value must be {' or '.join(f'a {_KINDS.get(str(each), each)}' for each in wanted)}"
