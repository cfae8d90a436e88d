"""Anthropic's Messages: how a request is read, what its history must be, and how an answer is written.

``MessagesVendor`` is a vendor of this API; what a model of it refuses is in ``known/anthropic.py``.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from strict_vendors.apis import bound_thoughts
from strict_vendors.caches import NONE_USED, Block, Caches, Used
from strict_vendors.models import Model, Models
from strict_vendors.script import (
    Asked,
    Broken,
    Given,
    Page,
    Said,
    Tool,
    asks_for_summary,
    pieces_of,
    tokens_of,
)
from strict_vendors.shapes import Fault, Record
from strict_vendors.vendor import LETTERS, Json, Refused, Reply, Request, Route, Vendor, as_named
from strict_vendors.words import pydantics_message, pydantics_place

_TOOLS_PAGE = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use"
THREADS = "https://github.com/anthropics/anthropic-sdk-python, 2.14: types/beta/beta_thread_…_params.py, lib/threads/"
_TEXT_PAGE = "https://platform.claude.com/docs/en/api/errors"
COMPACTION_PAGE = "https://platform.claude.com/docs/en/build-with-claude/compaction-background"  # read on 2026-11-29
_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "stop_sequence": "stop_sequence"}
_BILL = "x-anthropic-billing-header:"  # it is left out: https://code.claude.com/docs/en/llm-gateway-protocol
_KINDS = {  # https://platform.claude.com/docs/en/api/errors
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class MessagesVendor(Vendor):
    """A vendor whose API is Messages."""

    messages: ClassVar[Record]
    counted: ClassVar[Record]
    models: ClassVar[Models]
    maker: ClassVar[str] = ""  # of its models, whose signatures all sellers of these take; "": itself

    def __init__(self, seed: str = "", account: str = "") -> None:
        super().__init__(seed, account)
        self.caches = Caches()
        self.threads: dict[str, Json] = {}  # the requests so far, with their answers, by the answers' ids
        self.dropped: list[
            bound_thoughts.Dropped
        ] = []  # thoughts that were sent and that no model was shown, told or not

    def routes(self) -> Sequence[Route]:
        """Return the routes of Messages and of the list of models."""
        return [
            ("POST", f"{self.base}/messages", self.speak),
            ("POST", f"{self.base}/messages/count_tokens", self.count),
            ("GET", f"{self.base}/models", self.list_models),
            ("GET", f"{self.base}/models/{{model*}}", self.tell_model),
        ]

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in Anthropic's shape."""
        kind = refused.kind or _KINDS.get(refused.status, "api_error")
        name = self.ids.next("req_011C", 20, LETTERS)
        error: Json = {"type": kind, "message": refused.message}
        if refused.code is not None:
            error["details"] = {"error_code": refused.code}
        body = {"type": "error", "error": error, "request_id": name}
        return Reply(body, refused.status, {"request-id": name, **refused.headers})

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for, in its words where it has some."""
        told = {429: "This request would exceed your account's rate limit. Please try again later.", 529: "Overloaded"}
        return Refused(broken.status, told.get(broken.status, "Internal server error"), rule="as asked for")

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, "Not Found", rule="path", page="https://platform.claude.com/docs/en/api/errors")

    def parsed(self, body: bytes) -> Any:
        """Return the JSON of a body."""
        try:
            return json.loads(body)
        except ValueError as error:
            raise Refused(400, f"The request body is not valid JSON: {error}", rule="json") from None

    def speak(self, request: Request) -> Reply:
        """Answer a request of Messages."""
        self.check_fields(request.body, self.fields_of(request, self.messages))
        body = self.continued(request.body)
        body = {**body, "messages": [{"content": [], **message} for message in body["messages"]]}
        model = self.model_of(body["model"])
        self.check_version(request, body)
        self.check_model(body, model)
        self.check_history(body, model)
        lost = bound_thoughts.dropped(body, model, self.account, drops=_drops(body))
        self.dropped += lost
        asked = self.read(body, model)
        shown = {**body, "messages": bound_thoughts.without(body["messages"], lost)}
        self.check_context(shown, model)
        given = self.given(asked)
        used = self.caches.used(body["model"], list(_blocks_to_cache(shown)))
        told = [each.told for each in lost] if self.tells_dropped(request) else None
        writing = Writing(self, asked, given, model, omits=self.omits(body, model), used=used, told=told)
        headers = {"request-id": self.ids.next("req_011C", 20, LETTERS)}
        if "thread" in body:
            whole = writing.whole()
            said = {"role": "assistant", "content": whole["content"]}
            self.threads[whole["id"]] = {**body, "messages": [*body["messages"], said]}
        if asked.stream:
            return Reply(blocks=as_named(writing.events()), headers=headers, breaks=given.cut)
        return Reply(writing.whole(), headers=headers, breaks=given.cut)

    def continued(self, body: Json) -> Json:
        """Return a request with what its thread holds: instructions, tools and the messages so far."""
        thread = body.get("thread") or {}
        if thread.get("type") != "continue":
            return body
        if (kept := self.threads.get(thread["previous_message_id"])) is None:
            raise Refused(
                404, "thread: previous message not found", rule="thread", page=THREADS, code="thread_not_found"
            )
        if repeated := [name for name in ("system", "tools") if name in body]:
            raise _refused(f"{repeated[0]}: Extra inputs are not permitted on a thread", "thread", THREADS)
        held: Json = {name: kept[name] for name in ("system", "tools") if name in kept}
        return {**body, **held, "messages": [*kept["messages"], *body["messages"]]}

    def count(self, request: Request) -> Reply:
        """Count the tokens of a request: "The token counting endpoint runs the same prefix check and returns the same 400".

        https://platform.claude.com/docs/en/build-with-claude/preserved-thinking, read on 2026-11-29.
        """
        body = request.body
        self.check_fields(body, self.fields_of(request, self.counted))
        model = self.model_of(body["model"])
        self.check_history(body, model)
        lost = bound_thoughts.dropped(body, model, self.account, drops=_drops(body))
        return Reply({"input_tokens": _tokens({**body, "messages": bound_thoughts.without(body["messages"], lost)})})

    # What it refuses.

    def fields_of(self, _request: Request, usual: Record) -> Record:
        """Return the table of a request: its headers may ask for more fields."""
        return usual

    def tells_dropped(self, _request: Request) -> bool:
        """Say whether an answer tells which thoughts were dropped."""
        return False

    def check_version(self, request: Request, body: Json) -> None:
        """Refuse what the version of the API that is asked for does not have."""

    def check_fields(self, body: Any, shape: Record) -> None:
        """Refuse a body that is not as the table has it."""
        if (fault := next(self.faults_in(shape, body), None)) is not None:
            raise in_pydantics_words(fault)

    def model_of(self, name: str) -> Model:
        """Return what is known of a model."""
        model = self.models.find(name)
        if model is None:
            raise Refused(404, f"model: {name}", rule="model", page="https://platform.claude.com/docs/en/api/errors")
        return self.sized(model)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what this model does not take."""

    def check_context(self, body: Json, model: Model) -> None:
        """Refuse a prompt that the model's context does not hold."""
        tokens = _tokens(body)
        if tokens > model.context:
            raise _refused(f"prompt is too long: {tokens} tokens > {model.context} maximum", "context", model.page)

    def check_history(self, body: Json, model: Model) -> None:
        """Refuse a history in which something is missing, empty, or in the wrong order."""
        messages = body["messages"]
        if not messages:
            raise _refused("messages: at least one message is required", "no messages", _TEXT_PAGE)
        if messages[0]["role"] != "user" and not _begins_compacted(messages[0]):
            raise _refused('messages: first message must use the "user" role', "first turn", _TEXT_PAGE)
        self._check_texts(body)
        self._check_thoughts(body)
        self._check_calls(messages)
        if messages[-1]["role"] == "assistant":
            self._check_prefill(messages[-1], model)

    def check_turns(self, body: Json) -> None:
        """Refuse texts and calls of a history in a wrong form or order, whichever model is asked."""
        self._check_texts(body)
        self._check_calls(body["messages"])

    @staticmethod
    def _check_texts(body: Json) -> None:
        marked = 0
        places: list[tuple[str, Any]] = [("system", body.get("system") or [])]
        places += [(f"messages.{number}", message["content"]) for number, message in enumerate(body["messages"])]
        last = len(body["messages"]) - 1
        for where, content in places:
            number = int(where.partition(".")[2] or -1)
            final = number == last and body["messages"][-1]["role"] == "assistant"
            is_setting = number >= 0 and bool(body["messages"][number].get("output_config"))
            if number >= 0 and not content and not final and not is_setting:
                raise _refused(
                    f"{where}: all messages must have non-empty content except for the optional final assistant message",
                    "empty message",
                    "https://github.com/anthropics/claude-code/issues/6774",
                )
            for inner, block in enumerate(content if isinstance(content, list) else ()):
                marked += block.get("cache_control") is not None
                if block["type"] != "text" or block["text"].strip():
                    continue
                if block.get("cache_control") is not None and not block["text"]:
                    at = f"{where}.content.{inner}.text" if number >= 0 else f"system.{inner}.text"
                    raise _refused(
                        f"{at}: cache_control cannot be set for empty text blocks",
                        "cache_control of an empty text",
                        "https://github.com/anthropics/claude-code/issues/50082",
                    )
                raise _refused(
                    f"{where.partition('.')[0]}: text content blocks must "
                    + ("contain non-whitespace text" if block["text"] else "be non-empty"),
                    "empty text",
                    "https://github.com/experientiallabs/experiential/pull/799",
                )
            if isinstance(content, str) and content and not content.strip():
                raise _refused(
                    f"{where.partition('.')[0]}: text content blocks must contain non-whitespace text",
                    "empty text",
                    "https://github.com/experientiallabs/experiential/pull/799",
                )
        marked += sum(tool.get("cache_control") is not None for tool in body.get("tools") or ())
        if marked > 4:
            raise _refused(
                f"A maximum of 4 blocks with cache_control may be provided. Found {marked}.",
                "four marks for the cache",
                "https://github.com/Wei-Shaw/sub2api/issues/176",
            )

    def _check_thoughts(self, body: Json) -> None:
        for number, block_number, block in _blocks_of(body["messages"], "thinking", "redacted_thinking"):
            where = f"messages.{number}.content.{block_number}"
            if block["type"] == "redacted_thinking":
                if not self.is_signed(block["data"], None):
                    raise _refused(
                        f"{where}: Invalid `data` in `redacted_thinking` block", "redacted thoughts", _TEXT_PAGE
                    )
            elif not self.is_signed(block["signature"], block["thinking"]):
                raise _refused(
                    f"{where}: Invalid `signature` in `thinking` block",
                    "signature",
                    "https://github.com/ding113/claude-code-hub/issues/518",
                )
        if (body.get("thinking") or {}).get("type") == "enabled":
            self._check_thoughts_of_loop(body["messages"])

    @staticmethod
    def _check_thoughts_of_loop(messages: Sequence[Json]) -> None:
        """Refuse a loop of tools that goes on without its thoughts."""
        first = None
        for number in range(len(messages) - 1, -1, -1):
            message = messages[number]
            kinds = (
                {block["type"] for block in message["content"]} if isinstance(message["content"], list) else {"text"}
            )
            if message["role"] == "user" and "tool_result" not in kinds:
                break
            if message["role"] == "assistant":
                first = number
        if first is None:
            return
        content = messages[first]["content"]
        kind = content[0]["type"] if isinstance(content, list) else "text"
        if kind not in {"thinking", "redacted_thinking"}:
            raise _refused(
                f"messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When"
                " `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the"
                " lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from"
                " previous turns. To avoid this requirement, disable `thinking`. Please consult our documentation at"
                " https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
                "loop without thoughts",
                "https://github.com/n8n-io/n8n/issues/22550",
            )

    @staticmethod
    def _check_calls(messages: Sequence[Json]) -> None:
        seen: set[str] = set()
        for number, inner, block in _blocks_of(messages, "tool_use"):
            if block["id"] in seen:
                raise _refused(
                    f"messages.{number}.content.{inner}: `tool_use` ids must be unique",
                    "two calls with one id",
                    "https://github.com/anomalyco/opencode/issues/1279",
                )
            seen.add(block["id"])
        turns = _merged(messages)
        waiting: list[str] = []
        asked = 0
        for number, role, blocks in [*turns, (-1, "end", [])]:
            leading = 0
            while leading < len(blocks) and blocks[leading]["type"] == "tool_result":
                leading += 1
            answered_ids = [block["tool_use_id"] for block in blocks[:leading]]
            missing = [name for name in waiting if name not in answered_ids]
            if missing:
                raise _refused(
                    f"messages.{asked}: `tool_use` ids were found without `tool_result` blocks immediately after:"
                    f" {', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the"
                    " next message.",
                    "calls without results",
                    "https://github.com/anthropics/claude-code/issues/8612",
                )
            for inner, block in enumerate(blocks):
                if block["type"] == "tool_result" and block.get("is_error") and not block.get("content"):
                    raise _refused(
                        f"messages.{number}.content.{inner}.tool_result: content cannot be empty if `is_error` is true",
                        "failed without a word",
                        "https://github.com/jlevy/markform/issues/153",
                    )
                if block["type"] == "tool_result" and block["tool_use_id"] not in waiting:
                    raise _refused(
                        f"messages.{number}.content.{inner}: unexpected `tool_use_id` found in `tool_result` blocks:"
                        f" {block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block in"
                        " the previous message.",
                        "result without its call",
                        "https://github.com/anthropics/claude-code/issues/13460",
                    )
            waiting = [block["id"] for block in blocks if block["type"] == "tool_use"] if role == "assistant" else []
            asked = number

    @staticmethod
    def _check_prefill(message: Json, model: Model) -> None:
        if "no prefill" in model.marks:
            raise _refused(
                "This model does not support assistant message prefill. The conversation must end with a user message.",
                "no prefill",
                "https://platform.claude.com/docs/en/api/errors#prefill-not-supported",
            )
        content = message["content"]
        text = content if isinstance(content, str) else content[-1].get("text", "") if content else ""
        if text != text.rstrip():
            raise _refused(
                "messages: final assistant content cannot end with trailing whitespace",
                "space at the end",
                "https://github.com/tailcallhq/forgecode/issues/1872",
            )

    # How it reads and answers.

    def sign(self, thoughts: str, body: Json | None = None, model: Model | None = None) -> str:
        """Return the signature of some thoughts; of models whose thoughts are bound, by the request that they answer."""
        if body is not None and model is not None and bound_thoughts.is_bound(model):
            return bound_thoughts.sealed(thoughts, body, model, self.account)
        made = hashlib.sha256(thoughts.encode()).hexdigest()
        return "Eo" + self._signed(made) + made

    def cited(self, page: Page) -> Json:
        """Return a citation of what was found, with the vendor's own index, which only it can read."""
        kind = {"type": "web_search_result_location", "url": page.url, "title": page.title}
        return {**kind, "encrypted_index": self.sign(page.url), "cited_text": f"About {page.title}"}

    def is_signed(self, signature: str, thoughts: str | None) -> bool:
        """Say whether it signed these thoughts; what it told without its words is empty."""
        if (seal := bound_thoughts.opened(signature)) is not None:
            return bound_thoughts.is_of(seal, thoughts)
        signed, made = signature[2:66], signature[66:]
        if not signature.startswith("Eo") or not hmac.compare_digest(signed, self._signed(made)):
            return False
        return not thoughts or hashlib.sha256(thoughts.encode()).hexdigest() == made

    def _signed(self, made: str) -> str:
        """Return what signs thoughts of older models: every account reads them, and every platform of Claude.

        https://platform.claude.com/docs/en/build-with-claude/preserved-thinking ties but newer ones to an account.
        """
        return hashlib.sha256(f"{self.maker or self.name}\n{made}".encode()).hexdigest()

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether the model thinks about this request."""
        kind = (body.get("thinking") or {}).get("type") or model.usual
        if kind == "between_tools":  # short notes, once tools have answered: .../whats-new-sonnet-5-5
            return any(turn.who == "tool" for turn in list(turns_of(body["messages"]))[-1:])
        return model.thinks and kind in {"enabled", "adaptive"}

    def omits(self, body: Json, model: Model) -> bool:
        """Say whether thoughts are told without their words."""
        if (body.get("thinking") or {}).get("type") == "between_tools":
            return False
        display = (body.get("thinking") or {}).get("display")
        return display == "omitted" or (display is None and "omits thoughts" in model.marks)

    def read(self, body: Json, model: Model) -> Asked:
        """Read a request for the script."""
        form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        choice = body.get("tool_choice") or {"type": "auto"}
        return Asked(
            model=body["model"],
            body=body,
            turns=list(turns_of(body["messages"])),
            system="\n".join(
                text_of(content)
                for content in (
                    body.get("system") or "",
                    *(message["content"] for message in body["messages"] if message["role"] == "system"),
                )
                if content
            ),
            stream=bool(body.get("stream")),
            tools=[
                Tool(tool["name"], tool["input_schema"]) for tool in body.get("tools") or () if "input_schema" in tool
            ],
            choice={"any": "required", "tool": choice.get("name") or ""}.get(choice["type"], choice["type"]),
            parallel=not choice.get("disable_parallel_tool_use"),
            schema=form.get("schema"),
            thinks=self.thinks(body, model),
            stop=body.get("stop_sequences") or (),
            most=body.get("max_tokens"),
            begun=text_of(body["messages"][-1]["content"]) if body["messages"][-1]["role"] == "assistant" else "",
            searches=any(str(tool.get("type")).startswith("web_search") for tool in body.get("tools") or ()),
        )

    def list_models(self, _request: Request) -> Reply:
        """Tell the models."""
        data = [self._model(name) for name in self.models.names]
        return Reply({"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]})

    def tell_model(self, request: Request) -> Reply:
        """Tell one model."""
        self.model_of(request.named["model"])
        return Reply(self._model(request.named["model"]))

    def _model(self, name: str) -> Json:
        return {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


class Writing:
    """One answer as Messages."""

    def __init__(
        self,
        vendor: MessagesVendor,
        asked: Asked,
        given: Given,
        model: Model | None = None,
        *,
        omits: bool,
        used: Used = NONE_USED,
        told: Sequence[Json] | None = None,
    ) -> None:
        self._vendor, self._asked, self._given, self._omits, self._used = vendor, asked, given, omits, used
        self._model, self._told = model, told
        self._id = vendor.ids.next("msg_01", 22, LETTERS)
        self._made = list(self._compaction() if "compaction" in asked.body else self._blocks())
        self._stop = "compaction" if "compaction" in asked.body else _STOP[given.finish]

    def whole(self) -> Json:
        """Return the JSON of a call that does not stream."""
        given = self._given
        return {
            **self._head(),
            "content": [{**block, **rest} for block, rest, _ in self._made],
            "stop_reason": self._stop,
            "stop_sequence": given.stopped_by,
            "usage": self._usage(given.tokens_out),
        }

    def events(self) -> Iterator[Json]:
        """Yield the events of a stream, a ping among them."""
        begun: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": self._usage(1)}
        yield {"type": "message_start", "message": {**self._head(), **begun}}
        for index, (block, _, deltas) in enumerate(self._made):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            if index == 0:
                yield {"type": "ping"}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        ended = {"stop_reason": self._stop, "stop_sequence": self._given.stopped_by}
        yield {"type": "message_delta", "delta": ended, "usage": self._usage(self._given.tokens_out)}
        yield {"type": "message_stop"}

    def _blocks(self) -> Iterator[tuple[Json, Json, list[Json]]]:
        """Yield each block as it begins, what it has besides at its end, and the deltas between."""
        given = self._given
        if self._asked.thinks:
            yield self._thoughts(given.thoughts, [])
        if given.searched:
            yield from self._search()
        for number, page in enumerate(given.pages):
            citation = self._vendor.cited(page)
            told: list[Json] = [{"type": "text_delta", "text": piece} for piece in pieces_of(page.words)]
            cited: list[Json] = [{"type": "citations_delta", "citation": citation}]
            said = [*told, *cited] if number else [*cited, *told]  # both are seen
            yield {"type": "text", "text": "", "citations": []}, {"text": page.words, "citations": [citation]}, said
        if given.text and not given.pages:
            yield (
                {"type": "text", "text": ""},
                {"text": given.text},
                [{"type": "text_delta", "text": piece} for piece in given.pieces],
            )
        if given.later:
            first, rest, _ = self._thoughts(given.thoughts, [])
            text = [{"type": "text", "text": given.text}] if given.text else []
            yield self._thoughts(given.later, [{**first, **rest}, *text])
        for call in given.calls:
            pieces = call.pieces if call.arguments != "{}" else []
            yield (
                {
                    "type": "tool_use",
                    "id": self._vendor.ids.next("toolu_01", 22, LETTERS),
                    "name": call.name,
                    "input": {},
                },
                {"input": call.object},
                [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)],
            )

    def _search(self) -> Iterator[tuple[Json, Json, list[Json]]]:
        """Yield a search that the vendor has run, and what it found: sealed, for its own eyes.

        https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool, read on 2026-11-29.
        """
        name, direct = self._vendor.ids.next("srvtoolu_01", 22, LETTERS), {"caller": {"type": "direct"}}
        query = json.dumps({"query": self._given.searched})
        pieces = [{"type": "input_json_delta", "partial_json": query[at : at + 7]} for at in range(0, len(query), 7)]
        called = {"type": "server_tool_use", "id": name, "name": "web_search", "input": {}, **direct}
        yield called, {"input": json.loads(query)}, [{"type": "input_json_delta", "partial_json": ""}, *pieces]
        content = [
            {
                "type": "web_search_result",
                "url": page.url,
                "title": page.title,
                "encrypted_content": self._vendor.sign(page.url),
                "page_age": None,
            }
            for page in self._given.pages
        ]
        yield {"type": "web_search_tool_result", "tool_use_id": name, "content": content, **direct}, {}, []

    def _compaction(self) -> Iterator[tuple[Json, Json, list[Json]]]:
        """Yield the one block of an answer to a request of compaction."""
        text = f"Summary of {len(self._asked.turns)} turns."
        block = {"type": "compaction", "content": None, "signature": self._vendor.sign(text)}
        yield block, {"content": text}, [{"type": "compaction_delta", "content": text}]

    def _thoughts(self, thoughts: str, before: list[Json]) -> tuple[Json, Json, list[Json]]:
        """Return a block of thoughts, signed with what stands ``before`` it in this answer too."""
        body = self._asked.body
        said = [{"role": "assistant", "content": before}] if before else []
        signature = self._vendor.sign(thoughts, {**body, "messages": [*body["messages"], *said]}, self._model)
        if self._given.sealed:
            return {"type": "redacted_thinking", "data": signature}, {}, []
        told = [] if self._omits else pieces_of(thoughts)
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in told]
        return (
            {"type": "thinking", "thinking": "", "signature": ""},
            {"thinking": "".join(told), "signature": signature},
            [*deltas, {"type": "signature_delta", "signature": signature}],
        )

    def _head(self) -> Json:
        told = {} if self._told is None else {"input_transformations": list(self._told)}
        return {"id": self._id, "type": "message", "role": "assistant", "model": self._asked.model, **told}

    def _usage(self, tokens_out: int) -> Json:
        used = self._used
        return {
            "input_tokens": self._given.tokens_in if used.rest is None else used.rest,
            "cache_creation_input_tokens": used.written,
            "cache_read_input_tokens": used.read,
            "cache_creation": {"ephemeral_5m_input_tokens": used.written, "ephemeral_1h_input_tokens": 0},
            "output_tokens": tokens_out,
            "service_tier": "standard",
            **({"server_tool_use": {"web_search_requests": 1}} if self._given.searched else {}),
        }


def _blocks_to_cache(body: Json) -> Iterator[Block]:
    """Yield the blocks of a prompt in the order in which they are cached."""
    for role, content in (
        ("tools", body.get("tools") or []),
        ("system", body.get("system") or []),
        *((message["role"], message["content"]) for message in body["messages"]),
    ):
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block.get("text", "").startswith(_BILL):
                continue
            said = {name: value for name, value in block.items() if name != "cache_control"}
            yield Block([role, said], block.get("cache_control") is not None)


def in_pydantics_words(fault: Fault) -> Refused:
    """Return the refusal of a fault as Anthropic writes it: the place, and pydantic's message."""
    path = fault.path[:-1] if fault.kind == "tag" else fault.path
    return _refused(f"{pydantics_place(path)}: {pydantics_message(fault)}", fault.kind, fault.page or _TEXT_PAGE)


def _drops(body: Json) -> bool:
    """Say whether thoughts behind another beginning are dropped: they are refused unless a request says that."""
    binding = (body.get("thinking") or {}).get("block_binding") or {}
    return binding.get("prefix_mismatch_behavior") == "drop_block"


def _refused(message: str, rule: str, page: str) -> Refused:
    return Refused(400, message, rule=rule, page=page)


def _tokens(body: Mapping[str, Any]) -> int:
    return sum(tokens_of(body.get(name)) for name in ("messages", "system", "tools") if body.get(name))


def _blocks_of(messages: Sequence[Json], *kinds: str) -> Iterator[tuple[int, int, Json]]:
    for number, message in enumerate(messages):
        if isinstance(message["content"], list):
            for inner, block in enumerate(message["content"]):
                if block["type"] in kinds:
                    yield number, inner, block


def _merged(messages: Sequence[Json]) -> list[tuple[int, str, list[Json]]]:
    """Return the turns with consecutive ones of one role as one, as Anthropic reads them, by the number of the last."""
    turns: list[tuple[int, str, list[Json]]] = []
    for number, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        before = turns.pop()[2] if turns and turns[-1][1] == message["role"] else []
        turns.append((number, message["role"], [*before, *blocks]))
    return turns


def _begins_compacted(message: Json) -> bool:
    """Say whether a turn of the assistant begins with a summary of all before it."""
    return isinstance(message["content"], list) and [*message["content"], {}][0].get("type") == "compaction"


def turns_of(messages: Sequence[Json]) -> Iterator[Said]:
    """Yield the turns of a conversation: what stands beside results is no new turn of the user.

    But it is if it asks for a summary. What is before a summary is dropped (``COMPACTION_PAGE``).
    """
    compacted = [number for number, message in enumerate(messages) if _begins_compacted(message)]
    for message in messages[compacted[-1] if compacted else 0 :]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "system":
            continue
        if message["role"] == "assistant":
            yield Said("assistant", text_of(content), calls=sum(block["type"] == "tool_use" for block in blocks))
            continue
        results = [block for block in blocks if block["type"] == "tool_result"]
        for block in results:
            yield Said("tool", text_of(block.get("content") or ""))
        if not results or asks_for_summary(text_of(content)):
            media = sum(block["type"] in {"image", "document"} for block in blocks)
            yield Said("user", text_of(content), media=media)


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if isinstance(block.get("text"), str))
