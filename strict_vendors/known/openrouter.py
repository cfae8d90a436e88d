"""OpenRouter: many vendors behind one chat, whose refusals it passes on, whose thoughts must come back."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.chat import asked_tokens
from strict_vendors.apis.gemini import is_signature, signature
from strict_vendors.apis.own import OwnServer
from strict_vendors.models import Model, Models
from strict_vendors.rules import openrouter as rules
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault
from strict_vendors.vendor import Refused, Reply, Request

Json = dict[str, Any]

_EFFORTS = ("max", "xhigh", "high", "medium", "low", "minimal", "none")
_TOOLS, _PICTURES, _SIGNED, _ALWAYS = "tools", "pictures", "signed", "always thinks"
_OPEN = "unknown"  # the form of thoughts that nobody signs: those of open-weight models
_PROVIDERS = {
    "anthropic/": ("Anthropic", "anthropic-claude-v1"),
    "google/": ("Google AI Studio", "google-gemini-v1"),
    "openai/gpt-4": ("OpenAI", "openai-responses-v1"),
}
_PRESERVE = (
    "Gemini models require OpenRouter reasoning details to be preserved in each request. Please refer to our docs:"
    f" {rules.REASONING}#preserving-reasoning-blocks. Upstream error: "
)


class VENDOR(OwnServer):
    """OpenRouter."""

    name = "openrouter"
    base = "/api/v1"
    key = "sk-or-v1-strict"
    pages: ClassVar[Sequence[str]] = (rules.REFERENCE, rules.ERRORS, rules.STREAMING, rules.REASONING, rules.USAGE)
    chat = rules.CHAT
    thoughts = "reasoning"
    usage_in = "last"
    lacks = ("annotations",)
    before = b": OPENROUTER PROCESSING\n\n"
    counts = False
    signature = "of OpenRouter"
    usual_model = ""
    models = Models(
        Model(
            "anthropic/claude-sonnet-4.5",
            context=1_000_000,
            longest=64_000,
            efforts=_EFFORTS,
            usual="none",
            marks=frozenset({_TOOLS, _PICTURES}),
        ),
        Model(
            "openai/gpt-oss-120b",
            context=131_072,
            longest=131_072,
            efforts=("high", "medium", "low"),
            usual="medium",
            marks=frozenset({_TOOLS, _ALWAYS}),
        ),
        Model(
            "moonshotai/kimi-k2.6",
            context=262_144,
            longest=65_536,
            efforts=_EFFORTS,
            usual="none",
            marks=frozenset({_TOOLS, _PICTURES}),
        ),
        Model("openai/gpt-4o", context=128_000, longest=16_384, marks=frozenset({_TOOLS, _PICTURES})),
        Model(
            "google/gemini-3.1-pro-preview",
            context=1_048_576,
            longest=65_536,
            efforts=_EFFORTS,
            usual="high",
            marks=frozenset({_TOOLS, _PICTURES, _SIGNED, _ALWAYS}),
        ),
        Model("meta-llama/llama-3.3-70b-instruct", context=131_072, longest=16_384, marks=frozenset({_TOOLS})),
        Model("meta-llama/llama-guard-4-12b", context=163_840, longest=16_384, marks=frozenset({_PICTURES})),
    )

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        said = "User not found." if given else "No auth credentials found"
        raise Refused(401, said, rule="key", page=rules.ERRORS)

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, f"Not Found: {request.path}", rule="path")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in its shape, with what the vendor behind it said."""
        error: Json = {"message": refused.message, "code": refused.status}
        if isinstance(refused, _Passed):
            error["metadata"] = {"raw": refused.raw, "provider_name": refused.provider}
        return Reply({"error": error, "user_id": "user_strict"}, refused.status, refused.headers)

    def refused_message(self, refused: Refused) -> Reply:
        """Return a refusal of Messages in Anthropic's shape."""
        kinds = {400: "invalid_request_error", 404: "not_found_error"}
        error = {"type": kinds.get(refused.status, "api_error"), "message": refused.message}
        return Reply({"type": "error", "error": error}, refused.status)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return _Passed(broken.status, "upstream error", "Anthropic", "as asked for", rules.ERRORS)

    def words(self, fault: Fault) -> Refused:
        """Return a fault in its words."""
        if fault.path == ("messages",) and fault.kind == "missing":
            said = 'Input required: specify "prompt" or "messages"'
        else:
            where = ".".join(map(str, fault.path))
            said = f"Invalid input: {where}: expected {fault.bound}, received {json.dumps(fault.value)}"
        return Refused(400, said, rule=f"field {fault.kind}", page=rules.REFERENCE)

    def model_of(self, name: str, api: str) -> Model:
        """Return what is known of a model; ``:free`` and its kin are ways to the same."""
        return super().model_of(name.partition(":")[0], api)

    def no_model(self, name: str) -> Refused:
        """Refuse a model that it does not have."""
        return Refused(400, f"{name} is not a valid model ID", rule="model", page=rules.ERRORS)

    def check_fields(self, body: Any) -> None:
        """Refuse types that it does not read; its account may have a model of its own where none is named."""
        super().check_fields(body)
        if not body.get("model"):
            raise Refused(400, "No models provided", rule="model", page=rules.REFERENCE)

    def check_items(self, body: Json) -> None:
        """Refuse what needs a memory: it keeps nothing."""
        for name, fine in (("store", (None, False)), ("previous_response_id", (None,))):
            if body.get(name) not in fine:
                wanted = "false" if name == "store" else "null"
                said = f"Invalid input: {name}: expected {wanted}, received {json.dumps(body[name])}"
                raise Refused(400, said, param=name, rule=f"nothing is kept: {name}", page=rules.STATELESS)

    def behind(self, chat: Json) -> tuple[Asked, Model]:
        """Return what Responses or Messages ask for: how signatures travel there it does not say, so none is missed."""
        unsigned = [{"type": "reasoning.encrypted", "data": "skip_thought_signature_validator"}]
        messages = [
            {**message, "reasoning_details": unsigned} if message.get("tool_calls") else message
            for message in chat["messages"]
        ]
        return super().behind({**chat, "messages": messages})

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what no vendor of this model takes."""
        tools = body.get("tools") or ()
        if tools and _TOOLS not in model.marks:
            name = tools[0].get("function", {}).get("name", tools[0].get("type"))
            said = (
                f'No endpoints found that support tool use. Try disabling "{name}". To learn more about provider routing,'
                f" visit: {rules.ROUTING}"
            )
            raise Refused(404, said, rule="tools", page=rules.NO_TOOLS)
        parts = [
            part
            for message in body["messages"]
            for part in (message.get("content") if isinstance(message.get("content"), list) else ())
        ]
        if _PICTURES not in model.marks and any(part.get("type") == "image_url" for part in parts):
            raise Refused(404, "No endpoints found that support image input", rule="pictures", page=rules.NO_PICTURES)
        reasoning = body.get("reasoning") or {}
        if reasoning.get("effort") is not None and reasoning.get("max_tokens") is not None:
            said = 'Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified'
            raise Refused(400, said, rule="effort and budget", page=rules.REASONING)
        if reasoning.get("effort") == "none" and _ALWAYS in model.marks:
            said = "Reasoning is mandatory for this endpoint and cannot be disabled."
            raise Refused(400, said, rule="must think", page=rules.REASONING)
        if _SIGNED in model.marks:
            self._check_details(body["messages"])

    def _check_details(self, messages: Sequence[Json]) -> None:
        last = max((place for place, each in enumerate(messages) if each["role"] == "user"), default=-1)
        for number, message in enumerate(messages):
            details = [each for each in message.get("reasoning_details") or () if each.get("data")]
            if any(not is_signature(each["data"]) for each in details):
                raw = _googles("Corrupted thought signature.")
                raise _Passed(400, raw, "Google AI Studio", "foreign details", rules.CORRUPTED)
            if number > last and message.get("tool_calls") and not details:
                name = message["tool_calls"][0]["function"]["name"]
                said = (
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
                    " correctly, and missing thought_signature may lead to degraded model performance. Additional data,"
                    f" function call `default_api:{name}` , position {number + 1}. Please refer to"
                    " https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
                )
                raw = _PRESERVE + _googles(said)
                raise _Passed(400, raw, "Google AI Studio", "calls without details", rules.PRESERVED)

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Pass on what the vendor behind it says of a history in the wrong order."""
        try:
            super().check_messages(messages)
        except Refused as refused:
            error = {"message": refused.message, "type": "invalid_request_error", "param": refused.param, "code": None}
            raise _Passed(400, json.dumps({"error": error}), "OpenAI", refused.rule, rules.RAW) from None

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that, with its answer, the model's context does not hold."""
        tokens, most = asked_tokens(asked), body.get("max_tokens") or body.get("max_completion_tokens") or 0
        if tokens + most > model.context:
            said = (
                f"This endpoint's maximum context length is {model.context} tokens. However, you requested about"
                f" {tokens + most} tokens ({tokens} of text input, {most} in the output). Please reduce the length of either"
                ' one, or use the "middle-out" transform to compress your prompt automatically.'
            )
            raise Refused(400, said, rule="context", page=rules.ERRORS)

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether the model thinks: where it may be chosen, if it is asked to."""
        reasoning = body.get("reasoning") or {}
        effort = reasoning.get("effort") or body.get("reasoning_effort")
        asked = reasoning.get("enabled") or reasoning.get("max_tokens") or effort not in {None, "none"}
        return model.thinks and bool(_ALWAYS in model.marks or asked)

    def finished(self, answer: Json, given: Given) -> Json:
        """Return an answer with the details of thoughts, the vendor's name and the price."""
        provider, form = _provider(answer["model"])
        for choice in answer["choices"]:
            message = choice["message"]
            message["reasoning"] = given.thoughts or None
            if details := self._details(given, form, bool(given.calls)):
                message["reasoning_details"] = details
            choice["native_finish_reason"] = choice["finish_reason"]
        return {
            **answer,
            "id": self.ids.next("gen-1790000000-", 20),
            "provider": provider,
            "usage": _priced(answer["usage"]),
        }

    def shaped(self, chunks: Sequence[Json], asked: Asked, given: Given, usage: Json) -> list[Json]:
        """Return chunks that each name the vendor; details of thoughts come beside them."""
        provider, form = _provider(asked.model)
        number = self.ids.next("gen-1790000000-", 20)
        found = [{**chunk, "id": number, "provider": provider} for chunk in chunks if chunk["choices"]]
        for chunk in found:
            delta = chunk["choices"][0]["delta"]
            delta.setdefault("role", "assistant")
            delta.setdefault("content", "")
            if thought := delta.get("reasoning"):
                delta["reasoning_details"] = [{"type": "reasoning.text", "text": thought, "format": form, "index": 0}]
            chunk["choices"][0]["native_finish_reason"] = chunk["choices"][0]["finish_reason"]
        if sealed := [each for each in self._details(given, form, bool(given.calls)) if "data" in each]:
            before = {**found[-1], "choices": [{**found[-1]["choices"][0], "finish_reason": None}]}
            before["choices"][0] |= {"delta": {"role": "assistant", "content": "", "reasoning_details": sealed}}
            found.insert(-1, before)
        end = {**found[-1], "usage": _priced(usage)}
        return [*found, end]

    def _details(self, given: Given, form: str, calls: bool) -> list[Json]:
        if not given.thoughts:
            return []
        text: Json = {"type": "reasoning.text", "text": given.thoughts, "format": form, "index": 0}
        if form == _OPEN:
            return [text]
        if form == "anthropic-claude-v1":
            return [{**text, "signature": signature(self.ids)}]
        sealed = {"type": "reasoning.encrypted", "data": signature(self.ids), "format": form, "index": 1}
        return [text, *([sealed] if calls or form != "google-gemini-v1" else [])]


class _Passed(Refused):
    """What the vendor behind it refused."""

    def __init__(self, status: int, raw: str, provider: str, rule: str, page: str) -> None:
        super().__init__(status, "Provider returned error", rule=rule, page=page)
        self.raw, self.provider = raw, provider


def _googles(message: str) -> str:
    return json.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}, indent=2) + "\n"


def _provider(model: str) -> tuple[str, str]:
    found = (provider for begins, provider in _PROVIDERS.items() if model.startswith(begins))
    return next(found, ("DeepInfra", _OPEN))


def _priced(usage: Json) -> Json:
    details = {
        "upstream_inference_cost": None,
        "upstream_inference_prompt_cost": 0,
        "upstream_inference_completions_cost": 0,
    }
    return {**usage, "cost": 0.000123, "is_byok": False, "cost_details": details}
