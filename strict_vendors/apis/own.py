"""Responses and Messages of servers that make chat completions of both: one's own ones, and some vendors'.

What the chat behind them refuses (the model's template, pictures, its context) is refused here, too.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from msgspec import structs

from strict_vendors.apis import messages, responses
from strict_vendors.apis.chat_like import ChatLike
from strict_vendors.apis.kept import KeptResponse, as_items
from strict_vendors.models import Model
from strict_vendors.script import Asked, Broken, Given, tokens_of
from strict_vendors.vendor import Refused, Reply, Request, Route, as_named

Json = dict[str, Any]


class OwnServer(ChatLike, responses.ResponsesVendor):
    """A server of one's own, or nearly: chat as its class says, and the newer APIs beside it."""

    is_newest: ClassVar[bool] = True  # an older release has chat completions alone
    has_messages: ClassVar[bool] = True
    counts: ClassVar[bool] = True  # it has Messages' count of tokens
    # How Responses tells thoughts: in the clear, as their summary, or as OpenAI does
    tells_thoughts: ClassVar[Literal["content", "summary", "sealed"]] = "content"
    signature: ClassVar[str | None] = None  # what stands behind thoughts in Messages, where something does

    def routes(self) -> Sequence[Route]:
        """Return the routes of this release."""
        speaking, speaks = f"{self.base}/messages", self.is_newest and self.has_messages
        return [
            *[route for route in super().routes() if "/responses" not in route[1] and "/conversations" not in route[1]],
            *([("POST", f"{self.base}/responses", self.respond)] if self.is_newest else ()),
            *([("POST", speaking, self.speak)] if speaks else ()),
            *([("POST", f"{speaking}/count_tokens", self.count_messages)] if speaks and self.counts else ()),
        ]

    def hears(self, _path: str) -> bool:
        """Say that it has no WebSocket."""
        return False

    def behind(self, chat: Json) -> tuple[Asked, Model]:
        """Return what a request asks for, and of whom, once it has become one of chat."""
        model = self.model_of(chat["model"], "chat")
        self.check_model(chat, model)
        self.check_messages(chat["messages"])
        asked = self.read(chat, model)
        self.check_length(chat, model, asked)
        return asked, model

    # Responses.

    def check_items(self, body: Json) -> None:
        """Refuse a request that it cannot make chat of."""

    def answer_response(
        self, body: Json, connection: dict[str, KeptResponse] | None = None
    ) -> tuple[Reply, list[Json] | None]:
        """Return the reply, and the events of one that streams."""
        self.check_items(body)
        body = {**body, "model": body.get("model") or self.usual_model, "input": as_items(body.get("input"))}
        asked, model = self.behind(chat_of_responses(body))
        answer = self.told(self.given(asked), model)
        writing = _Written(self, structs.replace(asked, body=body), answer)
        if asked.stream:
            return Reply(breaks=answer.cut), list(writing.events())
        return Reply(writing.response(writing.items, done=True), breaks=answer.cut), None

    @property
    def usual_model(self) -> str:
        """The model that answers if none is named; none, where one must be."""
        return self.models.names[0]

    # Messages.

    def check_turns(self, body: Json) -> None:
        """Refuse a request of Messages that it cannot make chat of."""

    def refused_message(self, refused: Refused) -> Reply:
        """Return a refusal of Messages in its shape."""
        return self.refusal(refused)

    def speak(self, request: Request) -> Reply:
        """Answer a request of Messages."""
        try:
            return self._speak(request.body)
        except Broken as broken:
            refused = self.broken(broken)
        except Refused as error:
            refused = error
        self.note(request, refused)
        return self.refused_message(refused)

    def _speak(self, body: Json) -> Reply:
        self.check_turns(body)
        asked, model = self.behind({**chat_of_messages(body), "model": body.get("model") or self.usual_model})
        given = self.told(self.given(asked), model)
        writing = _Speaking(self, structs.replace(asked, body=body), given)
        if asked.stream:
            return Reply(blocks=as_named(writing.events()), breaks=given.cut)
        return Reply(writing.whole(), breaks=given.cut)

    def count_messages(self, request: Request) -> Reply:
        """Count the tokens of Messages."""
        body = request.body
        return Reply({"input_tokens": sum(tokens_of(body.get(name)) for name in ("messages", "system", "tools"))})


class _Written(responses.Written):
    """One answer as Responses, with thoughts in the clear."""

    def __init__(self, vendor: OwnServer, asked: Asked, given: Given) -> None:
        self._tells = vendor.tells_thoughts
        super().__init__(vendor, asked, given)

    def _items(self) -> list[Json]:
        items = super()._items()
        if self._tells == "sealed":
            return items
        return [self._opened(item) if item["type"] == "reasoning" else item for item in items]

    def _opened(self, item: Json) -> Json:
        thoughts = self._given.thoughts
        if self._tells == "summary":
            return {**item, "summary": [{"type": "summary_text", "text": thoughts}], "encrypted_content": thoughts}
        rest = {
            "content": [{"type": "reasoning_text", "text": thoughts}],
            "encrypted_content": "",
            "status": "completed",
        }
        return {**item, "summary": [], **rest}

    def _thinking(self, item: Json, place: Json) -> Iterator[Json]:
        if self._tells == "sealed":
            yield from super()._thinking(item, place)
            return
        index = {"output_index": place["output_index"]}
        part = {"summary_index": 0} if self._tells == "summary" else {"content_index": 0}
        kind = "response.reasoning_summary_text" if self._tells == "summary" else "response.reasoning_text"
        yield {"type": "response.output_item.added", **index, "item": {**item, "summary": [], "content": []}}
        for piece in self._given.thought_pieces:
            yield {"type": f"{kind}.delta", **place, **part, "delta": piece}
        yield {"type": f"{kind}.done", **place, **part, "text": self._given.thoughts}
        yield {"type": "response.output_item.done", **index, "item": item}

    def _delta(self, kind: str, place: Json, text: str) -> Json:
        return {"type": kind, **place, "delta": text}


class _Speaking(messages.Writing):
    """One answer as Messages, with the signature that this server has, if any."""

    def __init__(self, vendor: Any, asked: Asked, given: Given) -> None:
        self._signature = vendor.signature
        super().__init__(_Signing(vendor), asked, given, omits=False)  # type: ignore[arg-type] # as far as it is used

    def _blocks(self) -> Iterator[tuple[Json, Json, list[Json]]]:
        for block, rest, deltas in super()._blocks():
            if block["type"] != "thinking" or self._signature is not None:
                yield block, rest, deltas
                continue
            unsigned = {name: value for name, value in rest.items() if name != "signature"}
            yield {"type": "thinking", "thinking": ""}, unsigned, deltas[:-1]

    def _usage(self, tokens_out: int) -> Json:
        return {"input_tokens": self._given.tokens_in, "output_tokens": tokens_out}


class _Signing:
    """What an answer of Messages needs of its vendor."""

    def __init__(self, vendor: OwnServer) -> None:
        self.ids, self._signature = vendor.ids, vendor.signature

    def sign(self, _thoughts: str, *_more: Any) -> str:
        return self._signature or ""


# How a request becomes one of chat.


def chat_of_responses(body: Json) -> Json:
    """Return a request of Responses as one of chat."""
    found: list[Json] = []
    if body.get("instructions"):
        found.append({"role": "system", "content": body["instructions"]})
    for item in body["input"]:
        match item.get("type"):
            case "message":
                found.append({"role": item["role"], "content": _parts_of(item.get("content"))})
            case "function_call":
                _call(found, item["call_id"], item["name"], item.get("arguments") or "")
            case "function_call_output":
                text = responses.text_of(item.get("output") or "")
                found.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})
            case _:
                pass
    tools = [
        {"name": tool["name"], "description": tool.get("description"), "parameters": tool.get("parameters")}
        for tool in body.get("tools") or ()
        if tool["type"] == "function"
    ]
    choice = body.get("tool_choice") if tools else None
    if isinstance(choice, dict) and "name" in choice:
        choice = {"type": "function", "function": {"name": choice["name"]}}
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": {"name": form.get("name"), "schema": form["schema"]}}
    asked = {"tool_choice": choice, "parallel_tool_calls": body.get("parallel_tool_calls"), "response_format": form}
    effort = (body.get("reasoning") or {}).get("effort")
    if body["input"] and body["input"][-1].get("status") == "in_progress":
        # https://github.com/vllm-project/vllm/pull/32100
        asked |= {"continue_final_message": True}
    return _chat(body, found, tools, {**asked, "max_tokens": body.get("max_output_tokens"), "reasoning_effort": effort})


def chat_of_messages(body: Json) -> Json:
    """Return a request of Messages as one of chat."""
    found: list[Json] = []
    if body.get("system"):
        found.append({"role": "system", "content": messages.text_of(body["system"])})
    for message in body.get("messages") or ():
        content = message.get("content", [])
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_result":
                text = messages.text_of(block.get("content") or "")
                found.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
        parts = _parts_of([block for block in blocks if block["type"] in {"text", "image"}])
        if parts or not blocks:
            found.append({"role": message["role"], "content": parts})
        for block in blocks:
            if block["type"] == "tool_use":
                _call(found, block["id"], block["name"], json.dumps(block["input"]))
    tools = [
        {"name": tool["name"], "description": tool.get("description"), "parameters": tool["input_schema"]}
        for tool in body.get("tools") or ()
        if "input_schema" in tool
    ]
    chosen = body.get("tool_choice") or {"type": "auto"}
    choice: Any = {"any": "required", "none": "none"}.get(chosen["type"], "auto")
    if chosen["type"] == "tool":
        choice = {"type": "function", "function": {"name": chosen["name"]}}
    form = (body.get("output_config") or {}).get("format") or {}
    if form:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form["schema"]}}
    asked = {
        "tool_choice": choice if tools else None,
        "parallel_tool_calls": not chosen.get("disable_parallel_tool_use"),
        "response_format": form,
        "max_tokens": body.get("max_tokens"),
        "stop": body.get("stop_sequences"),
        "reasoning_effort": "none" if (body.get("thinking") or {}).get("type") == "disabled" else None,
    }
    return _chat(body, found, tools, asked)


def _chat(body: Json, found: Sequence[Json], functions: Sequence[Json], asked: Json) -> Json:
    tools = [{"type": "function", "function": function} for function in functions]
    fields = {name: value for name, value in asked.items() if value}
    return {
        "model": body.get("model"),
        "messages": list(found),
        "stream": bool(body.get("stream")),
        **fields,
        **({"tools": tools} if tools else {}),
    }


def _call(found: list[Json], name: str, function: str, arguments: str) -> None:
    """Add a call to the assistant's turn before it, or to a turn of its own."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": None})
    called = {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}
    found[-1].setdefault("tool_calls", []).append(called)


def _parts_of(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: Json) -> Json:
    match part.get("type"):
        case "text" | "input_text" | "output_text" | "refusal":
            return {"type": "text", "text": part.get("text") or part.get("refusal") or ""}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
        case "image":
            source = part["source"]
            url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            return part
