"""Chat completions: how a request is read, what its history must be, and how an answer is written, whole and streamed.

``ChatVendor`` is a vendor of this API. Other vendors of it inherit and change the table of fields (``chat``), the models,
and the methods in which they differ.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from strict_vendors.caches import NONE_USED, Block, Used, is_marked
from strict_vendors.models import Model, Models
from strict_vendors.script import Asked, Given, Said, Tool, tokens_of
from strict_vendors.shapes import Fault, Record
from strict_vendors.vendor import LETTERS, Json, Refused, Reply, Request, Route, Vendor, as_data
from strict_vendors.words import in_openais_words, place

CREATED = 1_790_000_000


def blocks_to_cache(body: Json) -> Iterator[tuple[Block, int]]:
    """Yield the blocks of a prompt in the order in which they are cached, each with its tokens."""
    yield Block(["tools", body.get("tools") or []], is_marked=False), 0
    for message in body["messages"]:
        said = {**message, "content": _unmarked(message.get("content"))}
        yield (
            Block([message["role"], said], is_marked(message.get("content"))),
            tokens_of(text_of(message.get("content"))),
        )


def _unmarked(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return content
    return [{name: value for name, value in part.items() if name != "prompt_cache_breakpoint"} for part in content]


class ChatVendor(Vendor):
    """A vendor whose chat completions are OpenAI's or nearly."""

    chat: ClassVar[Record]
    models: ClassVar[Models]
    thoughts: ClassVar[str | None] = None  # the field of a message in which it tells thoughts
    fingerprint: ClassVar[str | None] = "fp_strict"
    call_ids: ClassVar[tuple[str, int, str]] = ("call_", 24, LETTERS)

    def routes(self) -> Sequence[Route]:
        """Return the routes of chat and of the list of models."""
        return [
            ("POST", f"{self.base}/chat/completions", self.complete),
            ("GET", f"{self.base}/models", self.list_models),
            ("GET", f"{self.base}/models/{{model*}}", self.tell_model),
        ]

    def complete(self, request: Request) -> Reply:
        """Answer a chat completion."""
        body = request.body
        self.check_fields(body)
        model = self.model_of(body["model"], "chat")
        self.check_model(body, model)
        self.check_messages(body["messages"])
        self.check_tools(body)
        asked = self.read(body, model)
        self.check_length(body, model, asked)
        given = self.given(asked)
        writing = Writing(self, asked, given, used=self.used(body))
        if asked.stream:
            return Reply(blocks=as_data(writing.events()), breaks=given.cut)
        return Reply(writing.whole(), breaks=given.cut)

    # What it refuses. Each may be changed by a vendor.

    def check_fields(self, body: Any) -> None:
        """Refuse a body that is not as the table has it."""
        if (fault := next(self.faults_in(self.chat, body), None)) is not None:
            raise self.words(fault)

    def words(self, fault: Fault) -> Refused:
        """Return a fault in the vendor's words."""
        if fault.kind == "missing" and fault.path == ("model",):
            return Refused(400, "you must provide a model parameter", rule="missing", page=fault.page)
        return in_openais_words(fault, unrecognized=True)

    def model_of(self, name: str, api: str) -> Model:
        """Return what is known of a model that this API has."""
        model = self.models.find(name)
        if model is None:
            raise self.no_model(name)
        if api not in model.apis:
            raise self.not_in_api(model, api)
        return self.sized(model)

    def no_model(self, name: str) -> Refused:
        """Return the refusal of a model that does not exist."""
        return Refused(
            404,
            f"The model `{name}` does not exist or you do not have access to it.",
            code="model_not_found",
            rule="model",
            page="https://platform.openai.com/docs/guides/error-codes",
        )

    def not_in_api(self, model: Model, api: str) -> Refused:
        """Return the refusal of a model that another API has."""
        raise NotImplementedError

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what this model does not take."""
        for name in model.not_taken:
            if body.get(name) is not None:
                raise Refused(
                    400,
                    f"Unsupported parameter: '{name}' is not supported with this model.",
                    code="unsupported_parameter",
                    param=name,
                    rule="not taken by this model",
                    page=model.page,
                )

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse a history in the wrong order: calls without results, results without calls.

        The words: https://github.com/BerriAI/litellm/issues/28995, https://github.com/microsoft/promptflow/pull/3130,
        with the field as in https://github.com/Abraxas-365/langchain-rust/pull/250.
        """
        page = "https://platform.openai.com/docs/guides/function-calling"
        waiting: list[str] = []
        for number, message in enumerate([*messages, {"role": "end"}]):
            if message["role"] != "tool" and waiting:
                raise Refused(
                    400,
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                    f" 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
                    param=f"messages.[{number}].role",
                    rule="calls without results",
                    page=page,
                )
            if message["role"] == "tool":
                if (
                    not number
                    or messages[number - 1]["role"] not in {"assistant", "tool"}
                    or not self._called(messages[:number])
                ):
                    raise Refused(
                        400,
                        "Invalid parameter: messages with role 'tool' must be a response to a"
                        " preceeding message with 'tool_calls'.",  # codespell:ignore preceeding - so it is spelt there
                        param=f"messages.[{number}].role",
                        rule="result without calls",
                        page=page,
                    )
                if message["tool_call_id"] not in self._called(messages[:number]):
                    raise Refused(
                        400,
                        f"Invalid parameter: 'tool_call_id' of '{message['tool_call_id']}' not found in 'tool_calls' of"
                        " previous message.",
                        param=f"messages.[{number}].tool_call_id",
                        rule="result of no call",
                        page=page,
                    )
                if message["tool_call_id"] in waiting:
                    waiting.remove(message["tool_call_id"])
            if message["role"] == "assistant":
                self.check_assistant(message, ("messages", number))
                waiting = [call["id"] for call in message.get("tool_calls") or ()]

    @staticmethod
    def _called(before: Sequence[Json]) -> list[str]:
        """Return the ids of the calls that results after these messages may be of."""
        for message in reversed(before):
            if message["role"] == "assistant":
                return [call["id"] for call in message.get("tool_calls") or ()]
            if message["role"] != "tool":
                break
        return []

    def check_assistant(self, message: Json, path: tuple[str | int, ...]) -> None:
        """Refuse a turn of the assistant that says nothing."""
        spoken = any(message.get(name) is not None for name in ("content", "refusal", "audio", "function_call"))
        if not spoken and not message.get("tool_calls"):
            where = place((*path, "content"))
            raise Refused(
                400,
                "Invalid value for 'content': expected a string, got null.",
                param=where,
                rule="an assistant that says nothing",
                page="https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages",
            )

    def check_tools(self, body: Json) -> None:
        """Refuse tools that cannot be: their schemas, and a choice of one that is not offered."""

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that the model's context does not hold."""
        tokens = asked_tokens(asked)
        if tokens > model.context:
            raise Refused(
                400,
                f"This model's maximum context length is {model.context} tokens. However, your messages resulted in"
                f" {tokens} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
                param="messages",
                rule="context",
                page=model.page,
            )

    # How it reads and answers.

    def used(self, body: Json) -> Used:
        """Return what of a prompt is in its cache, and keep the prompt there."""
        return NONE_USED

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether the model thinks about this request."""
        return model.thinks and (body.get("reasoning_effort") or model.usual) not in {None, "none"}

    def read(self, body: Json, model: Model) -> Asked:
        """Read a request for the script."""
        form = body.get("response_format") or {}
        schema = (form.get("json_schema") or {}).get("schema") or {}
        return Asked(
            model=body["model"],
            body=body,
            turns=list(turns_of(body["messages"])),
            system="\n".join(
                text_of(each["content"]) for each in body["messages"] if each["role"] in {"system", "developer"}
            ),
            stream=bool(body.get("stream")),
            tools=list(tools_of(body.get("tools") or ())),
            choice=choice_of(body.get("tool_choice")),
            parallel=body.get("parallel_tool_calls") is not False,
            schema=schema if form.get("type") in {"json_schema", "json_object"} else None,
            thinks=self.thinks(body, model),
            stop=[body["stop"]] if isinstance(body.get("stop"), str) else body.get("stop") or (),
            most=body.get("max_completion_tokens") or body.get("max_tokens"),
            begun=self.begun(body),
            searches=self.searches(body),
        )

    def searches(self, body: Json) -> bool:
        """Say whether a search is offered that the vendor runs."""
        return body.get("web_search_options") is not None

    def begun(self, body: Json) -> str:
        """Return the beginning of the answer, if the last message is one."""
        return ""

    def whole(self, answer: Json) -> Json:
        """Return the JSON of an answer as this vendor has it, from OpenAI's."""
        return answer

    def chunk(self, chunk: Json) -> Json:
        """Return a chunk of a stream as this vendor has it, from OpenAI's."""
        return chunk

    def list_models(self, _request: Request) -> Reply:
        """Tell the models."""
        return Reply({"object": "list", "data": [self._model(name) for name in self.models.names]})

    def tell_model(self, request: Request) -> Reply:
        """Tell one model."""
        name = request.named["model"]
        if self.models.find(name) is None:
            raise self.no_model(name)
        return Reply(self._model(name))

    def _model(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": CREATED, "owned_by": self.name}


class Writing:
    """One answer as chat completions."""

    def __init__(self, vendor: ChatVendor, asked: Asked, given: Given, *, used: Used = NONE_USED) -> None:
        self._vendor, self._asked, self._given = vendor, asked, given
        self._cached = min(used.read, given.tokens_in)
        self._written = min(used.written, given.tokens_in - self._cached)
        self._id = vendor.ids.next("chatcmpl-", 29, LETTERS)
        self._calls = [vendor.ids.next(*vendor.call_ids) for _ in given.calls]

    def whole(self) -> Json:
        """Return the JSON of a call that does not stream."""
        given = self._given
        message: Json = {"role": "assistant", "content": given.text if given.text or not given.calls else None}
        message |= {"refusal": None, "annotations": self._annotations}
        if given.thoughts and self._vendor.thoughts:
            message[self._vendor.thoughts] = given.thoughts
        if given.calls:
            message["tool_calls"] = [
                _call(call_id, call.name, call.arguments, free=call.free)
                for call_id, call in zip(self._calls, given.calls, strict=True)
            ]
        choices = [
            {
                "index": index,
                "message": message,
                "logprobs": self._logprobs(given.pieces),
                "finish_reason": self._finish,
            }
            for index in range(self._asked.body.get("n") or 1)
        ]
        return self._vendor.whole({**self._head("chat.completion"), "choices": choices, "usage": self.usage()})

    def events(self) -> Iterator[Json]:
        """Yield the chunks of a stream; each has a null ``usage`` when it is asked for, as OpenAI's have."""
        with_usage = bool((self._asked.body.get("stream_options") or {}).get("include_usage"))
        head = self._head("chat.completion.chunk")
        tail: Json = {"usage": None} if with_usage else {}
        for index in range(self._asked.body.get("n") or 1):
            for delta, logprobs in self._deltas():
                choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
                yield self._vendor.chunk({**head, "choices": [choice], **tail})
            if self._annotations:
                choice = {"index": index, "delta": {"annotations": self._annotations}}
                yield self._vendor.chunk(
                    {**head, "choices": [{**choice, "logprobs": None, "finish_reason": None}], **tail}
                )
            end = {"index": index, "delta": {}, "logprobs": None, "finish_reason": self._finish}
            yield self._vendor.chunk({**head, "choices": [end], **tail})
        if with_usage:
            yield self._vendor.chunk({**head, "choices": [], "usage": self.usage()})

    def usage(self) -> Json:
        """Return what the call counts for."""
        given = self._given
        answer = given.tokens_out * (self._asked.body.get("n") or 1)
        written = {"cache_write_tokens": self._written} if self._written else {}
        return {
            "prompt_tokens": given.tokens_in,
            "completion_tokens": answer,
            "total_tokens": given.tokens_in + answer,
            "prompt_tokens_details": {"cached_tokens": self._cached, "audio_tokens": 0, **written},
            "completion_tokens_details": {
                "reasoning_tokens": given.tokens_of_thoughts,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    @property
    def _annotations(self) -> list[Json]:
        """What the answer cites: https://platform.openai.com/docs/guides/tools-web-search, read on 2026-11-29."""
        return [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": page.begin,
                    "end_index": page.end,
                    "title": page.title,
                    "url": page.url,
                },
            }
            for page in self._given.pages
        ]

    @property
    def _finish(self) -> str:
        return {"stop_sequence": "stop"}.get(self._given.finish, self._given.finish)

    def _deltas(self) -> Iterator[tuple[Json, Json | None]]:
        given = self._given
        yield {"role": "assistant", "content": None if given.calls else "", "refusal": None}, None
        if self._vendor.thoughts:
            for piece in given.thought_pieces:
                yield {self._vendor.thoughts: piece}, None
        for piece in given.pieces:
            yield {"content": piece}, self._logprobs([piece])
        for number, (call_id, call) in enumerate(zip(self._calls, given.calls, strict=True)):
            yield {"tool_calls": [{"index": number, **_call(call_id, call.name, "", free=call.free)}]}, None
            for piece in call.pieces:
                inner = {"custom": {"input": piece}} if call.free else {"function": {"arguments": piece}}
                yield {"tool_calls": [{"index": number, **inner}]}, None

    def _head(self, kind: str) -> Json:
        head: Json = {"id": self._id, "object": kind, "created": CREATED, "model": self._asked.model}
        if self._vendor.fingerprint:
            head |= {"service_tier": "default", "system_fingerprint": self._vendor.fingerprint}
        return head

    def _logprobs(self, pieces: Sequence[str]) -> Json | None:
        if not self._asked.body.get("logprobs"):
            return None
        return {"content": logprobs_of(pieces, self._asked.body.get("top_logprobs") or 0), "refusal": None}


def logprobs_of(pieces: Sequence[str], top: int) -> list[Json]:
    """Return the log probabilities of an answer, each with so many alternatives."""

    def entry(token: str, logprob: float) -> Json:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}

    others = [entry(f"other{rank}", -2.5 - rank) for rank in range(1, top)]
    return [{**entry(piece, -0.25), "top_logprobs": [entry(piece, -0.25), *others][:top]} for piece in pieces]


def _call(call_id: str, name: str, arguments: str, *, free: bool) -> Json:
    if free:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": arguments}}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked_tokens(asked: Asked) -> int:
    """Return about how many tokens the prompt is."""
    return tokens_of(asked.body.get("messages")) + tokens_of(asked.body.get("tools"))


def turns_of(messages: Sequence[Json]) -> Iterator[Said]:
    """Yield the turns of a conversation."""
    for message in messages:
        match message["role"]:
            case "user":
                parts = message["content"] if isinstance(message["content"], list) else []
                media = sum(part.get("type") in {"image_url", "input_audio", "file"} for part in parts)
                yield Said("user", text_of(message["content"]), media=media)
            case "assistant":
                yield Said("assistant", text_of(message.get("content")), calls=len(message.get("tool_calls") or ()))
            case "tool" | "function":
                yield Said("tool", text_of(message["content"]))
            case _:
                pass


def tools_of(tools: Sequence[Json]) -> Iterator[Tool]:
    """Yield the tools that may be called."""
    for tool in tools:
        if tool.get("type") == "custom":
            yield Tool(tool["custom"]["name"], {}, free=True)
        elif "function" in tool:  # others run at the vendor
            yield Tool(tool["function"]["name"], tool["function"].get("parameters") or {})


def choice_of(choice: Any) -> str:
    """Return what the script is to choose of the tools."""
    if isinstance(choice, Mapping):
        inner = choice.get("function") or choice.get("custom") or {}
        return str(inner.get("name") or (choice.get("allowed_tools") or {}).get("mode") or "auto")
    return {"any": "required"}.get(choice, choice) if choice else "auto"


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if isinstance(part.get("text"), str))


def is_object(arguments: Any) -> bool:
    """Say whether a text is the JSON of an object."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError):
        return False
