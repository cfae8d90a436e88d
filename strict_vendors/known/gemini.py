"""Gemini by chat completions: fields that it does not know are refused, and signatures come and go in extra_content."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from strict_vendors.apis import gemini
from strict_vendors.apis.chat import text_of
from strict_vendors.apis.chat_like import ChatLike
from strict_vendors.known.google import wrong_for
from strict_vendors.models import Model, Models
from strict_vendors.rules import gemini as rules
from strict_vendors.rules import google
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault
from strict_vendors.vendor import Refused, Reply, Request

Json = dict[str, Any]

_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}


class VENDOR(ChatLike):
    """Google, as its older clients of chat know it."""

    name = "gemini"
    base = "/v1beta/openai"
    key = "AIza-strict-vendor"
    pages: ClassVar[Sequence[str]] = (rules.GUIDE, rules.UNKNOWN, rules.SIGNATURES, google.MODELS)
    chat = rules.CHAT
    fingerprint = None
    whole_calls = True
    lacks = ("refusal", "annotations")
    call_ids = ("function-call-", 19, "0123456789")
    models = Models(
        *(
            Model(name, context=each.context, longest=each.longest, efforts=tuple(rules.BUDGETS), usual="medium")
            for name, each in google.KNOWN.items()
        )
    )

    def __init__(self, seed: str = "", account: str = "") -> None:
        super().__init__(seed, account)
        self.stored: list[Request] = []  # as of ``known/google.py``

    def admitted(self, request: Request) -> tuple[Asked, Model]:
        """Return what is asked for and of whom, or refuse it; it is kept with its answer unless it says otherwise."""
        found = super().admitted(request)
        if request.body.get("store") is not False:
            self.stored.append(request)
        return found

    def refuse_key(self, given: str) -> None:
        """Refuse a key: a wrong one, and a missing one."""
        said = (
            "API key not valid. Please pass a valid API key." if given else "Missing or invalid Authorization header."
        )
        raise Refused(400, said, rule="key", page=google.KEYS)

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have, with no body."""
        raise Refused(404, f"no such address: {request.method} {request.path}", rule="path")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in Google's shape, in a list of one."""
        if refused.rule == "path":
            return Reply(b"", 404, content_type="text/html")
        status = _STATUS.get(refused.status, "UNAVAILABLE" if refused.status == 503 else "INTERNAL")
        error = {"code": refused.status, "message": refused.message, "status": status}
        return Reply([{"error": error}], refused.status)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(broken.status, "The model is overloaded. Please try again later.", rule="as asked for")

    def words(self, fault: Fault) -> Refused:
        """Return a fault as the reader of protocol buffers tells it."""
        at = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.path[:-1]).lstrip(".")
        where = f" at '{at}'" if at else ""
        if fault.kind == "unknown":
            said = f'Invalid JSON payload received. Unknown name "{fault.field}"{where}: Cannot find field.'
        elif fault.kind == "value":
            said = f"Invalid {fault.field}: {fault.value}"
        else:
            said = f"Invalid value at '{at}{'.' if at else ''}{fault.field}', {json.dumps(fault.value)}"
        return Refused(400, said, param=fault.field, rule=f"field {fault.kind}", page=fault.page or rules.UNKNOWN)

    def model_of(self, name: str, api: str) -> Model:
        """Return what is known of a model, with or without ``models/``."""
        return super().model_of(name.removeprefix("models/"), api)

    def no_model(self, name: str) -> Refused:
        """Refuse a model that it does not have."""
        said = (
            f"models/{name} is not found for API version v1main, or is not supported for generateContent. Call ListModels"
            " to see the list of available models and their supported methods."
        )
        return Refused(404, said, rule="model", page=google.MODELS)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what generateContent does, once the request has become one of it."""
        known = google.KNOWN[model.name]
        inner = _as_content(body, levels=known.levels)
        history = gemini.wrong_history(inner, signs=known.signs, continues=known.continues)
        for said, rule, page in (*history, *wrong_for(known, inner["generationConfig"], inner, body["model"])):
            raise Refused(400, said, rule=rule, page=page)

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse nothing more: the order was looked at with the model."""

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse nothing more: the length was looked at with the model."""

    def finished(self, answer: Json, given: Given) -> Json:
        """Return the whole answer with the signature of its first call."""
        for choice in answer["choices"]:
            self._sign(choice["message"], answer["model"], given)
        return answer

    def shaped(self, chunks: Sequence[Json], asked: Asked, given: Given, usage: Json) -> Iterable[Json]:
        """Return the chunks of a stream: all calls are numbered 0."""
        for chunk in super().shaped(chunks, asked, given, usage):
            for choice in chunk["choices"]:
                for number, call in enumerate(choice["delta"].get("tool_calls", ())):
                    first = call["index"] == 0 and number == 0
                    call["index"] = 0
                    if first:
                        self._sign(choice["delta"], asked.model, given)
            yield chunk

    def _sign(self, message: Json, model: str, given: Given) -> None:
        calls = message.get("tool_calls")
        if calls and (given.thoughts or google.KNOWN[model.removeprefix("models/")].signs):
            calls[0]["extra_content"] = {"google": {"thought_signature": gemini.signature(self.ids)}}

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether the model thinks about this request."""
        return google.KNOWN[model.name].thinks and body.get("reasoning_effort") != "none"


def _as_content(body: Json, *, levels: bool) -> Json:
    """Return a request as generateContent has it, as far as it is looked at."""
    config: Json = {}
    if (most := body.get("max_completion_tokens") or body.get("max_tokens")) is not None:
        config["maxOutputTokens"] = most
    if (body.get("n") or 1) > 1:
        config["candidateCount"] = body["n"]
    effort = body.get("reasoning_effort")
    if effort == "none" or (effort and not levels):
        config["thinkingConfig"] = {"thinkingBudget": rules.BUDGETS[effort]}
    elif effort:
        config["thinkingConfig"] = {"thinkingLevel": effort.upper()}
    if (body.get("response_format") or {}).get("type", "text") != "text":
        config["responseMimeType"] = "application/json"
    tools = [{"functionDeclarations": [tool.get("function")]} for tool in body.get("tools") or ()]
    return {"contents": list(_contents(body["messages"])), "generationConfig": config, "tools": tools}


def _contents(messages: Sequence[Json]) -> Iterator[Json]:
    responses: list[Json] = []
    for message in [*messages, {"role": "end"}]:
        if message["role"] in {"tool", "function"}:
            response = {"output": text_of(message.get("content"))}
            responses.append({"functionResponse": {"name": "of a call", "response": response}})
            continue
        if responses:
            yield {"role": "user", "parts": responses}
            responses = []
        if message["role"] == "user":
            content = message.get("content")
            yield {"role": "user", "parts": [{"text": text_of(content)}] if content else []}
        elif message["role"] == "assistant":
            text = text_of(message.get("content"))
            calls = [_called(call) for call in message.get("tool_calls") or ()]
            yield {"role": "model", "parts": [*([{"text": text}] if text else ()), *calls]}


def _called(call: Json) -> Json:
    part: Json = {"functionCall": {"name": call.get("function", {}).get("name", ""), "args": {}}}
    signed = ((call.get("extra_content") or {}).get("google") or {}).get("thought_signature")
    return {**part, **({"thoughtSignature": signed} if signed else {})}
