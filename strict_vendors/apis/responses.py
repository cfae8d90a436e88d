"""OpenAI's Responses: how a request is read, and how an answer is written, whole and streamed.

``ResponsesVendor`` has the routes; what is kept and what a history needs is in ``kept.py``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from strict_vendors.apis import bound_reasoning
from strict_vendors.apis.chat import CREATED, ChatVendor, logprobs_of
from strict_vendors.apis.kept import ITEMS_PAGE, Kept, KeptResponse, Seal, as_items, check_history, resolved
from strict_vendors.caches import NONE_USED, Prefixes, Used
from strict_vendors.models import Model
from strict_vendors.rules.responses import CONVERSATION, MOVED, RESPONSES
from strict_vendors.schemas import STRICT_PAGE, plain_faults, strict_faults
from strict_vendors.script import Asked, Broken, Call, Given, Page, Said, Tool, pieces_of, tokens_of
from strict_vendors.shapes import Record
from strict_vendors.vendor import LETTERS, Breaks, Json, Refused, Reply, Request, Route, as_named
from strict_vendors.words import first_fault, in_openais_words, listed

_PAGE = "https://platform.openai.com/docs/api-reference/responses/create"
_WITHIN = "__"  # between the names of a namespace and a tool in it
_HEX = 50


class ResponsesVendor(ChatVendor):
    """A vendor that has Responses beside chat completions."""

    responses: ClassVar[Record] = RESPONSES

    def __init__(self, seed: str = "", account: str = "") -> None:
        super().__init__(seed, account)
        self.kept = Kept()
        self.seal = Seal(f"{self.name} {account}")
        self.prefixes = Prefixes()
        self.made_with: dict[str, bound_reasoning.Made] = {}  # by the ids of reasoning items
        self.dropped: list[bound_reasoning.Lost] = []  # reasoning that was sent and that no model was shown

    def routes(self) -> Sequence[Route]:
        """Return the routes of Responses and conversations too."""
        below = f"{self.base}/responses"
        talk = f"{self.base}/conversations"
        return [
            *super().routes(),
            ("POST", below, self.respond),
            ("POST", f"{below}/input_tokens", self.count),
            ("POST", f"{below}/compact", self.compact),
            ("GET", f"{below}/{{id}}", lambda asked: Reply(self.kept.response(asked.named["id"]).body)),
            ("DELETE", f"{below}/{{id}}", self.forget),
            ("GET", f"{below}/{{id}}/input_items", self.list_input),
            ("POST", talk, self.converse),
            ("GET", f"{talk}/{{id}}", self.tell_conversation),
            ("POST", f"{talk}/{{id}}", self.change_conversation),
            ("DELETE", f"{talk}/{{id}}", self.drop_conversation),
            ("GET", f"{talk}/{{id}}/items", lambda asked: _listed(self.kept.conversation(asked.named["id"]))),
            ("POST", f"{talk}/{{id}}/items", self.add_items),
            ("GET", f"{talk}/{{id}}/items/{{item}}", lambda asked: Reply(self._item(asked))),
            ("DELETE", f"{talk}/{{id}}/items/{{item}}", self.drop_item),
        ]

    def respond(self, request: Request) -> Reply:
        """Answer a response's request."""
        reply, events = self.answer_response(request.body)
        if events is None:
            return reply
        return msgspec.structs.replace(reply, blocks=as_named(events))

    def answer_response(
        self, body: Json, connection: dict[str, KeptResponse] | None = None
    ) -> tuple[Reply, list[Json] | None]:
        """Return the reply, and the events of one that streams.

        ``connection`` keeps the last response of a WebSocket, stored or not.
        """
        body = self.checked(body)
        model = self.model_of(body["model"], "responses")
        self.check_response(body, model)
        store = body.get("store") is not False
        before = self._before(body, connection or {})
        drops = bound_reasoning.is_bound(model)
        found = resolved(body["input"], self.kept, self.seal, store=store, drops_foreign=drops)
        given = [self._named(item) for item in found]
        items = [*before, *given]
        check_history(items, self.kept)
        asked = self._asked(body, model, items)
        self.check_context(body, model, items)
        answer = self.given(asked)
        lost = bound_reasoning.lost(body, model, items, self._made_with(items))
        self.dropped += lost
        writing = Written(
            self,
            asked,
            answer,
            made=(lambda said: bound_reasoning.made(body, model, [*items, *said])) if drops else None,
            used=self.prefixes.of_openai(body, bound_reasoning.blocks_to_cache(body, model, items)),
            told=[each.told for each in lost] if drops else None,
        )
        response = writing.response(writing.items, done=True)
        if connection is not None:
            connection.clear()
            connection[response["id"]] = KeptResponse(response, before, given)
        if store and not answer.cut:
            self.kept.keep(response, before, given)
        if store and (conversation := _conversation(body)) is not None:
            self.kept.conversation(conversation).extend([*given, *writing.items])
        if asked.stream:
            return Reply(breaks=answer.cut), list(writing.events())
        return Reply(response, breaks=answer.cut), None

    def hears(self, path: str) -> bool:
        """Say whether a WebSocket is opened here (https://platform.openai.com/docs/guides/websocket-mode)."""
        return path == f"{self.base}/responses"

    def hear(self, message: Any, connection: dict[str, KeptResponse]) -> tuple[list[Json], Breaks]:
        """Return the events that answer a message of a WebSocket, and whether it breaks off in the middle."""
        try:
            _check_message(message)
            body = {name: value for name, value in message.items() if name not in {"type", "generate"}}
            if message.get("generate") is False:
                return self._warmed(body, connection), False
            reply, events = self.answer_response({**body, "stream": True}, connection)
        except Broken as broken:
            return [self._error_event(self.broken(broken))], False
        except Refused as refused:
            self.note(Request("GET", f"{self.base}/responses", body=message), refused)
            return [self._error_event(refused)], False
        return events or [], reply.breaks

    def _warmed(self, body: Json, connection: dict[str, KeptResponse]) -> list[Json]:
        """Take the input of a response that answers nothing yet: the next one goes on from it."""
        body = self.checked(body, warms=True)
        model = self.model_of(body["model"], "responses")
        before = self._before(body, connection)
        given = [self._named(item) for item in resolved(body["input"], self.kept, self.seal, store=False)]
        asked = self._asked(body, model, [*before, *given])
        writing = Written(self, msgspec.structs.replace(asked, thinks=False), Given())
        response = writing.response([], done=True)
        connection.clear()
        connection[response["id"]] = KeptResponse(response, before, given)
        return list(writing.events())

    def _error_event(self, refused: Refused) -> Json:
        return {"type": "error", "status": refused.status, **self.refusal(refused).body}

    # What it refuses.

    def checked(self, body: Any, *, warms: bool = False) -> Json:
        """Refuse a body that is not as the table has it; return it with an input of items.

        What only ``warms`` a connection may have none: Codex 0.171 sends so at GPT-6.2, as seen on 2026-11-29.
        """
        if isinstance(body, dict):
            for name, now in MOVED.items():
                if name in body and now.split(".")[0] not in body:
                    raise Refused(
                        400,
                        f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{now}'. Try"
                        " again with the new parameter. See the API documentation for more information: " + _PAGE + ".",
                        code="unsupported_parameter",
                        param=name,
                        rule="moved",
                        page="https://platform.openai.com/docs/guides/migrate-to-responses",
                    )
            if isinstance(body.get("input"), list):
                body = {**body, "input": as_items(body["input"])}
        if (fault := next(self.faults_in(self.responses, body), None)) is not None:
            raise in_openais_words(fault)
        if body.get("model") is None and body.get("prompt") is None:
            raise Refused(
                400,
                "Missing required parameter: 'model'.",
                code="missing_required_parameter",
                param="model",
                rule="missing",
                page=_PAGE,
            )
        wants = ("input", "previous_response_id", "prompt", "conversation")
        if not warms and all(not body.get(name) for name in wants):
            raise Refused(
                400,
                "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
                code="missing_required_parameter",
                rule="missing",
                page=_PAGE,
            )
        if body.get("previous_response_id") and body.get("conversation"):
            raise Refused(
                400,
                "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing"
                " one of: 'previous_response_id' or 'conversation'.",
                code="mutually_exclusive_parameters",
                param="previous_response_id",
                rule="two histories",
                page=_PAGE,
            )
        return {**body, "input": as_items(body.get("input"))}

    def check_response(self, body: Json, model: Model) -> None:
        """Refuse what this model does not take in Responses."""
        reasoning = body.get("reasoning") or {}
        effort = reasoning.get("effort")
        if not model.thinks:
            for name in ("effort", "summary"):
                if reasoning.get(name) is not None:
                    raise _unsupported_parameter(f"reasoning.{name}", model)
            if "reasoning.encrypted_content" in (body.get("include") or ()):
                raise Refused(  # https://github.com/pydantic/pydantic-ai/issues/2865
                    400,
                    "Encrypted content is not supported with this model.",
                    param="include",
                    rule="no thinking model",
                    page="https://github.com/pydantic/pydantic-ai/issues/2865",
                )
        elif effort is not None and effort not in model.efforts:
            raise _unsupported_value("reasoning.effort", effort, body["model"], model.efforts, model)
        thinks = model.thinks and (effort or model.usual) != "none"
        if "only temperature 1" in model.marks or ("samples without effort" in model.marks and thinks):
            for name in ("temperature", "top_p"):
                if body.get(name) is not None:
                    raise _unsupported_parameter(name, model, code=None)
            if body.get("top_logprobs") or "message.output_text.logprobs" in (body.get("include") or ()):
                raise Refused(
                    400,
                    "logprobs are not supported with reasoning models.",
                    param="include",
                    rule="no logprobs of thinking models",
                    page="https://github.com/UKGovernmentBEIS/inspect_ai/pull/2739",
                )
        text = body.get("text") or {}
        if text.get("verbosity") not in {None, "medium"} and not body["model"].startswith(
            ("gpt-5", "gpt-6", "ft:gpt-5")
        ):
            raise _unsupported_value("text.verbosity", text["verbosity"], body["model"], ("medium",), model)
        if (most := body.get("max_output_tokens")) is not None and most > model.longest:
            raise Refused(
                400,
                f"Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {model.longest}, but got"
                f" {most} instead.",
                code="integer_above_max_value",
                param="max_output_tokens",
                rule="longest answer",
                page=model.page,
            )
        if "no flex" in model.marks and body.get("service_tier") == "flex":
            raise Refused(
                400,
                f"Invalid service_tier argument: 'flex' is not supported with {body['model']}.",
                param="service_tier",
                rule="no flex",
                page=model.page,
            )
        if body.get("background") and body.get("store") is False:
            raise Refused(
                400,
                "Background mode requires 'store' to be set to true.",
                param="background",
                rule="background without store",
                page="https://platform.openai.com/docs/guides/background",
            )
        if "no tools" in model.marks and body.get("tools"):
            raise Refused(
                400, f"Tools are not supported with {body['model']}.", param="tools", rule="no tools", page=model.page
            )
        self._check_schemas(body)

    def _check_schemas(self, body: Json) -> None:
        names: set[str] = set()
        for number, tool in enumerate(body.get("tools") or ()):
            if tool["type"] == "function":
                self._check_function(tool, number)
            if tool["type"] in {"function", "custom"}:
                if tool["name"] in names:
                    raise Refused(
                        400,
                        f"Duplicate tool name: '{tool['name']}'. Tool names must be unique.",
                        param="tools",
                        rule="two tools with one name",
                        page=_PAGE,
                    )
                names.add(tool["name"])
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice["type"] in {"function", "custom"} and choice["name"] not in names:
            raise Refused(
                400,
                f"Tool choice '{choice['name']}' not found in 'tools' parameter.",
                param="tool_choice",
                rule="choice of no tool",
                page=_PAGE,
            )
        if choice == "required" and not body.get("tools"):
            raise Refused(
                400,
                "Tool choice 'required' must be specified with 'tools' parameter.",
                param="tool_choice",
                rule="choice without tools",
                page=_PAGE,
            )
        form = (body.get("text") or {}).get("format") or {}
        if form.get("type") == "json_schema" and form.get("strict"):
            fault = next(iter(strict_faults(form["schema"])), None)
            if fault is not None:
                raise Refused(
                    400,
                    f"Invalid schema for response_format '{form['name']}': {fault}",
                    code="invalid_json_schema",
                    param="text.format.schema",
                    rule="strict schema",
                    page=STRICT_PAGE,
                )
        if form.get("type") == "json_object" and "json" not in f"{body['input']}".lower():
            raise Refused(
                400,
                "Response input messages must contain the word 'json' in some form to use 'text.format' of type"
                " 'json_object'.",
                param="input",
                rule="the word json",
                page="https://platform.openai.com/docs/guides/structured-outputs#json-mode",
            )

    @staticmethod
    def _check_function(tool: Json, number: int) -> None:
        schema = tool.get("parameters")
        found = strict_faults(schema) if tool.get("strict") and schema is not None else plain_faults(schema)
        if (fault := next(iter(found), None)) is not None:
            raise Refused(
                400,
                f"Invalid schema for function '{tool['name']}': {fault}",
                code="invalid_function_parameters",
                param=f"tools[{number}].parameters",
                rule="strict schema" if tool.get("strict") else "schema",
                page=STRICT_PAGE,
            )

    def check_context(self, body: Json, model: Model, items: Sequence[Json]) -> None:
        """Refuse an input that the model's context does not hold."""
        tokens = tokens_of(list(items)) + tokens_of(body.get("tools")) + tokens_of(body.get("instructions"))
        if tokens > model.context and body.get("truncation") != "auto":
            raise Refused(
                400,
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                code="context_length_exceeded",
                param="input",
                rule="context",
                page=model.page,
            )

    # How it reads.

    def _before(self, body: Json, connection: Mapping[str, KeptResponse]) -> list[Json]:
        if (name := body.get("previous_response_id")) is not None:
            if (last := connection.get(name)) is not None:
                return [*last.before, *last.given, *last.body["output"]]
            return self.kept.previous(name)
        if (conversation := _conversation(body)) is not None:
            return list(self.kept.conversation(conversation))
        return []

    def _made_with(self, items: Sequence[Json]) -> dict[str, bound_reasoning.Made | None]:
        """Return what reasoning items were made with, by their ids; None: another account's."""
        found: dict[str, bound_reasoning.Made | None] = {}
        for item in items:
            name, sealed = str(item.get("id") or ""), item.get("encrypted_content")
            if item["type"] != "reasoning":
                continue
            if name in self.made_with:
                found[name] = self.made_with[name]
            elif sealed and self.seal.is_foreign(sealed):
                found[name] = None
            elif sealed and (told := self.seal.made(sealed)):
                found[name] = bound_reasoning.Made(*told)
        return found

    def _named(self, item: Json) -> Json:
        """Return an item of an input with the id under which it is kept."""
        if item.get("id"):
            return item
        prefix = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}.get(item["type"], "item_")
        return {**item, "id": self.ids.next(prefix, _HEX)}

    def _asked(self, body: Json, model: Model, items: Sequence[Json]) -> Asked:
        reasoning = body.get("reasoning") or {}
        form = (body.get("text") or {}).get("format") or {}
        systems = [
            text_of(item["content"])
            for item in items
            if item.get("role") in {"system", "developer"} and "content" in item
        ]
        return Asked(
            model=body["model"],
            body=body,
            turns=list(turns_of(items)),
            system="\n".join([*([body["instructions"]] if body.get("instructions") else []), *systems]),
            stream=bool(body.get("stream")),
            tools=[*tools_of(body.get("tools") or ()), *added_tools(items)],
            choice=choice_of(body.get("tool_choice")),
            parallel=body.get("parallel_tool_calls") is not False,
            schema=form.get("schema") or {} if form.get("type") in {"json_schema", "json_object"} else None,
            thinks=model.thinks and (reasoning.get("effort") or model.usual) != "none",
            most=body.get("max_output_tokens"),
            searches=any(tool["type"].startswith("web_search") for tool in body.get("tools") or ()),
            shell=_shell(body.get("tools") or ()),
        )

    # Its other addresses.

    def count(self, request: Request) -> Reply:
        """Count the tokens of an input."""
        body = self.checked(request.body)
        tokens = tokens_of(body["input"]) + tokens_of(body.get("tools")) + tokens_of(body.get("instructions"))
        return Reply({"object": "response.input_tokens", "input_tokens": tokens})

    def compact(self, request: Request) -> Reply:
        """Return a conversation as one item that stands for it."""
        body = self.checked(request.body)
        given = [*self._before(body, {}), *resolved(body["input"], self.kept, self.seal, store=True)]
        users = [item for item in given if item["type"] == "message" and item["role"] == "user"]
        name = self.ids.next("cmp_", _HEX)
        text = "\n".join(text_of(item["content"]) for item in given if item["type"] == "message")
        rest = {"id": name, "type": "compaction", "encrypted_content": self.seal.close(text, None)}
        made = {"id": self.ids.next("resp_", _HEX), "object": "response.compaction", "created_at": CREATED}
        return Reply({**made, "output": [*map(self._named, users), rest], "usage": _usage(tokens_of(given), 1, 0)})

    def forget(self, request: Request) -> Reply:
        """Delete a response and its items."""
        name = request.named["id"]
        for item in self.kept.response(name).body["output"]:
            self.kept.items.pop(item["id"], None)
        del self.kept.responses[name]
        return Reply({"id": name, "object": "response", "deleted": True})

    def list_input(self, request: Request) -> Reply:
        """Tell the items of a response's input, the newest first."""
        kept = self.kept.response(request.named["id"])
        return _listed([*kept.before, *kept.given][::-1])

    def converse(self, request: Request) -> Reply:
        """Make a conversation."""
        body = self._of_conversation(request)
        name = self.ids.next("conv_", _HEX)
        self.kept.conversations[name] = []
        self._add(name, body["items"])
        self.kept.metadata[name] = body.get("metadata") or {}
        return Reply(self._conversation(name))

    def tell_conversation(self, request: Request) -> Reply:
        """Tell a conversation."""
        self.kept.conversation(request.named["id"])
        return Reply(self._conversation(request.named["id"]))

    def change_conversation(self, request: Request) -> Reply:
        """Replace what is noted beside a conversation."""
        name = request.named["id"]
        self.kept.conversation(name)
        self.kept.metadata[name] = self._of_conversation(request).get("metadata") or {}
        return Reply(self._conversation(name))

    def add_items(self, request: Request) -> Reply:
        """Add items to a conversation."""
        self.kept.conversation(request.named["id"])
        return _listed(self._add(request.named["id"], self._of_conversation(request)["items"]))

    def drop_item(self, request: Request) -> Reply:
        """Take an item out of a conversation."""
        name, item = request.named["id"], self._item(request)
        self.kept.conversation(name).remove(item)
        return Reply(self._conversation(name))

    def drop_conversation(self, request: Request) -> Reply:
        """Delete a conversation."""
        name = request.named["id"]
        self.kept.conversation(name)
        del self.kept.conversations[name]
        return Reply({"id": name, "object": "conversation.deleted", "deleted": True})

    def _of_conversation(self, request: Request) -> Json:
        body = {**(request.body or {})}
        body["items"] = as_items(body.get("items"))
        if (fault := first_fault(CONVERSATION, body)) is not None:
            raise in_openais_words(fault)
        return body

    def _add(self, conversation: str, items: Sequence[Json]) -> list[Json]:
        added = [{**self._named(item), **_content_of(item)} for item in items]
        self.kept.conversations[conversation] += added
        self.kept.items |= {item["id"]: item for item in added}
        return added

    def _item(self, request: Request) -> Json:
        name, items = request.named["item"], self.kept.conversation(request.named["id"])
        if (found := next((item for item in items if item["id"] == name), None)) is None:
            raise Refused(404, f"Item with id '{name}' not found.", rule="item not stored", page=ITEMS_PAGE)
        return found

    def _conversation(self, name: str) -> Json:
        return {"id": name, "object": "conversation", "created_at": CREATED, "metadata": self.kept.metadata[name]}


class Written:
    """One answer as Responses."""

    def __init__(
        self,
        vendor: ResponsesVendor,
        asked: Asked,
        given: Given,
        *,
        made: Callable[[Sequence[Json]], bound_reasoning.Made] | None = None,
        used: Used = NONE_USED,
        told: Sequence[Json] | None = None,
    ) -> None:
        self._vendor, self._asked, self._given = vendor, asked, given
        self._made, self._used, self._told = made, used, told
        self._body: Json = asked.body
        self._id = vendor.ids.next("resp_", _HEX)
        self.items = self._items()

    def response(self, items: list[Json], *, done: bool) -> Json:
        """Return the response, as it is at its beginning and at its end."""
        body, given = self._body, self._given
        is_cut = given.finish == "length"
        reasoning = body.get("reasoning") or {}
        conversation = _conversation(body)
        return {
            "id": self._id,
            "object": "response",
            "created_at": CREATED,
            "status": ("incomplete" if is_cut else "completed") if done else "in_progress",
            "background": bool(body.get("background")),
            "completed_at": CREATED + 1 if done and not is_cut else None,
            **({"conversation": {"id": conversation}} if conversation else {}),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut and done else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "max_tool_calls": body.get("max_tool_calls"),
            "model": body["model"],
            "output": items,
            "parallel_tool_calls": self._asked.parallel,
            "previous_response_id": body.get("previous_response_id"),
            "prompt_cache_key": body.get("prompt_cache_key"),
            "reasoning": {
                "effort": reasoning.get("effort") or self._model.usual,
                "summary": reasoning.get("summary"),
            },
            "safety_identifier": body.get("safety_identifier"),
            "service_tier": "default" if done else "auto",
            "store": body.get("store") is not False,
            "temperature": body.get("temperature", 1.0),
            "text": {
                "format": (body.get("text") or {}).get("format") or {"type": "text"},
                "verbosity": (body.get("text") or {}).get("verbosity") or "medium",
            },
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": [self._echoed(tool) for tool in body.get("tools") or ()],
            "top_logprobs": body.get("top_logprobs") or 0,
            "top_p": body.get("top_p", 1.0),
            "truncation": body.get("truncation") or "disabled",
            "usage": _usage(given.tokens_in, given.tokens_out, given.tokens_of_thoughts, self._used) if done else None,
            **({} if self._told is None else {"input_transformations": list(self._told)}),
            "user": body.get("user"),
            "metadata": body.get("metadata") or {},
        }

    def events(self) -> Iterator[Json]:
        """Yield the events of a stream, numbered."""
        for number, event in enumerate(self._events()):
            yield {"type": event.pop("type"), "sequence_number": number, **event}

    @property
    def _model(self) -> Model:
        return self._vendor.model_of(self._body["model"], "responses")

    @staticmethod
    def _echoed(tool: Json) -> Json:
        """Return a tool as it is told back: strict unless it said otherwise, where its schema can be.

        https://platform.openai.com/docs/guides/function-calling#strict-mode
        """
        if tool["type"] != "function":
            return tool
        can_be = tool.get("parameters") is not None and not any(strict_faults(tool["parameters"]))
        strict = tool["strict"] if tool.get("strict") is not None else can_be
        return {**tool, "description": tool.get("description"), "parameters": tool.get("parameters"), "strict": strict}

    def _events(self) -> Iterator[Json]:
        begun = self.response([], done=False)
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        for index, item in enumerate(self.items):
            place = {"item_id": item["id"], "output_index": index}
            match item["type"]:
                case "reasoning":
                    yield from self._thinking(item, place)
                case "message":
                    yield from self._saying(item, place)
                case "web_search_call":
                    yield from _searching(item, place)
                case "shell_call":
                    yield from self._running(item, place)
                case "shell_call_output":
                    yield from _ran(item, place)
                case "compaction":
                    yield from _compacting(item, place)
                case _:
                    yield from self._calling(item, place)
        end = "response.incomplete" if self._given.finish == "length" else "response.completed"
        yield {"type": end, "response": self.response(self.items, done=True)}

    def _thinking(self, item: Json, place: Json) -> Iterator[Json]:
        yield _added(place, {**item, "summary": []})
        if item["summary"]:
            inner = {**place, "summary_index": 0}
            (part,) = item["summary"]
            yield {"type": "response.reasoning_summary_part.added", **inner, "part": {**part, "text": ""}}
            for piece in pieces_of(part["text"]):
                yield self._delta("response.reasoning_summary_text.delta", inner, piece)
            yield {"type": "response.reasoning_summary_text.done", **inner, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **inner, "part": part}
        yield _done(place, item)

    def _saying(self, item: Json, place: Json) -> Iterator[Json]:
        (part,) = item["content"]
        inner = {**place, "content_index": 0}
        yield _added(place, {**item, "content": [], "status": "in_progress"})
        empty = {**part, "text": "", "logprobs": [], "annotations": []}
        yield {"type": "response.content_part.added", **inner, "part": empty}
        for piece in self._given.pieces:
            yield {**self._delta("response.output_text.delta", inner, piece), "logprobs": self._logprobs([piece])}
        for number, annotation in enumerate(part["annotations"]):
            numbered = {**inner, "annotation_index": number, "annotation": annotation}
            yield {"type": "response.output_text.annotation.added", **numbered}
        yield {"type": "response.output_text.done", **inner, "text": part["text"], "logprobs": part["logprobs"]}
        yield {"type": "response.content_part.done", **inner, "part": part}
        yield _done(place, item)

    def _calling(self, item: Json, place: Json) -> Iterator[Json]:
        field, event = (
            ("input", "response.custom_tool_call_input")
            if item["type"] == "custom_tool_call"
            else ("arguments", "response.function_call_arguments")
        )
        yield _added(place, {**item, field: "", "status": "in_progress"})
        for piece in Call("", item[field]).pieces:
            yield self._delta(f"{event}.delta", place, piece)
        yield {"type": f"{event}.done", **place, field: item[field]}
        yield _done(place, item)

    def _running(self, item: Json, place: Json) -> Iterator[Json]:
        """Yield the events of a call of a shell, which name no item (SDK 3.57, read on 2026-11-29)."""
        at = {"output_index": place["output_index"]}
        action = item["action"]
        yield _added(place, {**item, "action": {**action, "commands": []}, "status": "in_progress"})
        for number, command in enumerate(action["commands"]):
            inner = {**at, "command_index": number}
            yield {"type": "response.shell_call_command.added", **inner, "command": ""}
            for piece in pieces_of(command):
                yield self._delta("response.shell_call_command.delta", inner, piece)
            yield {"type": "response.shell_call_command.done", **inner, "command": command}
        yield _done(place, item)

    def _delta(self, kind: str, place: Json, text: str) -> Json:
        """Return a delta, padded as OpenAI pads it unless that is refused."""
        options = self._body.get("stream_options") or {}
        padded = {} if options.get("include_obfuscation") is False else {"obfuscation": "x" * (16 - len(text) % 16)}
        return {"type": kind, **place, "delta": text, **padded}

    def _items(self) -> list[Json]:
        given, ids = self._given, self._vendor.ids
        items: list[Json] = []
        status = "incomplete" if given.finish == "length" else "completed"
        if self._body["input"] and self._body["input"][-1]["type"] == "compaction_trigger":
            text = f"Summary of {len(self._asked.turns)} turns."
            kind = {"id": ids.next("cmp_", _HEX), "type": "compaction"}
            return [{**kind, "encrypted_content": self._vendor.seal.close(text, None)}]
        if self._asked.thinks:
            items.append(self._reasoning(given.thoughts, items))
        if given.searched:
            items.append(self._searched())
        if given.command:
            items += self._commanded(hosted=self._asked.shell == "vendor")
        if given.text:
            part = {
                "type": "output_text",
                "annotations": [_cited(page) for page in given.pages],
                "logprobs": self._logprobs(given.pieces),
                "text": given.text,
            }
            message = {"id": ids.next("msg_", _HEX), "type": "message", "status": status}
            items.append({**message, "content": [part], "role": "assistant"})
        if given.later:
            items.append(self._reasoning(given.later, items))
        for call in given.calls:
            space, _, name = call.name.rpartition(_WITHIN)
            made = {"status": status, "call_id": ids.next("call_", 24, LETTERS), "name": name}
            made |= {"namespace": space} if space else {}
            if call.free:
                kind = {"id": ids.next("ctc_", _HEX), "type": "custom_tool_call"}
                items.append({**kind, **made, "input": call.arguments})
            else:
                kind = {"id": ids.next("fc_", _HEX), "type": "function_call"}
                items.append({**kind, **made, "arguments": call.arguments})
        return items

    def _searched(self) -> Json:
        """Return the item of a search; where it has found what only where that is asked for."""
        given = self._given
        action: Json = {"type": "search", "query": given.searched, "queries": [given.searched]}
        if "web_search_call.action.sources" in (self._body.get("include") or ()):
            action["sources"] = [{"type": "url", "url": page.url} for page in given.pages]
        name = self._vendor.ids.next("ws_", _HEX)
        return {"id": name, "type": "web_search_call", "status": "completed", "action": action}

    def _commanded(self, *, hosted: bool) -> Iterator[Json]:
        """Yield the call of a shell, and what came of it where OpenAI runs it."""
        ids, command = self._vendor.ids, self._given.command
        call_id = ids.next("call_", 24, LETTERS)
        action = {"commands": [command], "timeout_ms": 120_000, "max_output_length": 4096}
        said: Json = {"call_id": call_id, "status": "completed", "caller": {"type": "direct"}, "created_by": None}
        where = {"type": "container_reference", "container_id": "cntr_strict"} if hosted else {"type": "local"}
        yield {"id": ids.next("sh_", _HEX), "type": "shell_call", **said, "action": action, "environment": where}
        if hosted:
            ended = {"outcome": {"type": "exit", "exit_code": 0}, "stdout": f"ran {command}", "stderr": ""}
            output = {"output": [ended], "max_output_length": 4096}
            yield {"id": ids.next("sho_", _HEX), "type": "shell_call_output", **said, **output}

    def _reasoning(self, thoughts: str, before: Sequence[Json]) -> Json:
        """Return an item of reasoning, bound to what stands ``before`` it in this answer too, where it is bound."""
        name = self._vendor.ids.next("rs_", _HEX)
        made = self._made(before) if self._made is not None else None
        if made is not None:
            self._vendor.made_with[name] = made
        told = (self._body.get("reasoning") or {}).get("summary") is not None
        item: Json = {"id": name, "type": "reasoning"}
        if "reasoning.encrypted_content" in (self._body.get("include") or ()):
            bound = () if made is None else msgspec.structs.astuple(made)
            item["encrypted_content"] = self._vendor.seal.close(thoughts, name, bound)
        return {**item, "summary": [{"type": "summary_text", "text": thoughts}] if told else []}

    def _logprobs(self, pieces: Sequence[str]) -> list[Json]:
        if "message.output_text.logprobs" not in (self._body.get("include") or ()):
            return []
        return logprobs_of(pieces, self._body.get("top_logprobs") or 0)


def _added(place: Json, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": place["output_index"], "item": item}


def _done(place: Json, item: Json) -> Json:
    return {"type": "response.output_item.done", "output_index": place["output_index"], "item": item}


def _searching(item: Json, place: Json) -> Iterator[Json]:
    yield _added(place, {"id": item["id"], "type": item["type"], "status": "in_progress"})
    for state in ("in_progress", "searching", "completed"):
        yield {"type": f"response.web_search_call.{state}", **place}
    yield _done(place, item)


def _ran(item: Json, place: Json) -> Iterator[Json]:
    yield _added(place, {**item, "output": [], "status": "in_progress"})
    for number, output in enumerate(item["output"]):
        inner = {**place, "command_index": number}
        delta = {"stdout": output["stdout"], "stderr": None}
        yield {"type": "response.shell_call_output_content.delta", **inner, "delta": delta}
        yield {"type": "response.shell_call_output_content.done", **inner, "output": [output]}
    yield _done(place, item)


def _compacting(item: Json, place: Json) -> Iterator[Json]:
    """Yield the events of a ``compaction_trigger``: how it gets on is told at most twice a minute, without words.

    https://developers.openai.com/api/reference/resources/responses/streaming-events, read on 2026-11-29.
    """
    yield _added(place, {"id": item["id"], "type": "compaction", "encrypted_content": ""})
    yield {"type": "response.compaction.compacting", **place}
    yield _done(place, item)


def _cited(page: Page) -> Json:
    return {
        "type": "url_citation",
        "start_index": page.begin,
        "end_index": page.end,
        "url": page.url,
        "title": page.title,
    }


def _shell(tools: Sequence[Json]) -> Literal["", "client", "vendor"]:
    """Say who runs a shell that is offered: who asks, unless its environment is one of OpenAI's.

    https://developers.openai.com/api/docs/guides/tools-shell, read on 2026-11-29.
    """
    for tool in tools:
        if tool["type"] == "shell":
            return "client" if (tool.get("environment") or {}).get("type", "local") == "local" else "vendor"
    return ""


def _usage(tokens_in: int, tokens_out: int, thought: int, used: Used = NONE_USED) -> Json:
    read = min(used.read, tokens_in)
    written = min(used.written, tokens_in - read)
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": read, **({"cache_write_tokens": written} if written else {})},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": tokens_in + tokens_out,
    }


def _listed(items: Sequence[Json]) -> Reply:
    edges = {"first_id": items[0]["id"] if items else None, "last_id": items[-1]["id"] if items else None}
    return Reply({"object": "list", "data": list(items), **edges, "has_more": False})


def _content_of(item: Json) -> Json:
    """Return the content of an item as a conversation keeps it: a text is a list of one part."""
    text = item.get("content")
    return {"content": [{"type": "input_text", "text": text}]} if isinstance(text, str) else {}


def _conversation(body: Json) -> str | None:
    given = body.get("conversation")
    return given["id"] if isinstance(given, dict) else given


def _check_message(message: Any) -> None:
    if isinstance(message, dict) and message.get("type") == "response.create":
        return
    kind = message.get("type") if isinstance(message, dict) else message
    raise Refused(
        400,
        f"Invalid value: '{kind}'. Value must be 'response.create'.",
        code="invalid_value",
        param="type",
        rule="kind of a message",
        page="https://platform.openai.com/docs/guides/websocket-mode",
    )


def _unsupported_parameter(name: str, model: Model, code: str | None = "unsupported_parameter") -> Refused:
    return Refused(
        400,
        f"Unsupported parameter: '{name}' is not supported with this model.",
        code=code,
        param=name,
        rule="not taken by this model",
        page=model.page,
    )


def _unsupported_value(name: str, value: str, called: str, known: Sequence[str], model: Model) -> Refused:
    return Refused(
        400,
        f"Unsupported value: '{value}' is not supported with the '{called}' model. Supported values are: {listed(known)}.",
        code="unsupported_value",
        param=name,
        rule="value not taken by this model",
        page=model.page,
    )


def turns_of(items: Sequence[Json]) -> Iterator[Said]:
    """Yield the turns of a conversation of items."""
    calls = 0
    for item in items:
        kind = item["type"]
        if kind.endswith("_call"):
            calls += 1
            continue
        if kind == "reasoning":
            continue
        if calls:
            yield Said("assistant", calls=calls)
            calls = 0
        if kind == "message" and item["role"] == "user":
            parts = item["content"] if isinstance(item["content"], list) else []
            media = sum(part["type"] in {"input_image", "input_file"} for part in parts)
            yield Said("user", text_of(item["content"]), media=media)
        elif kind == "message" and item["role"] == "assistant":
            yield Said("assistant", text_of(item["content"]))
        elif kind.endswith("_output"):
            yield Said("tool", text_of(item.get("output") or ""))


def tools_of(tools: Sequence[Json]) -> Iterator[Tool]:
    """Yield the tools that may be called: those that OpenAI runs itself are not."""
    for tool in tools:
        match tool["type"]:
            case "function":
                yield Tool(tool["name"], tool.get("parameters") or {})
            case "custom":
                yield Tool(tool["name"], {}, free=True)
            case _:
                pass


def added_tools(items: Sequence[Json]) -> Iterator[Tool]:
    """Yield the tools that items of an input add, as Codex does; in a namespace they are called by both names."""
    for item in items:
        for tool in item.get("tools") or () if item["type"] == "additional_tools" else ():
            within = f"{tool['name']}{_WITHIN}" if tool["type"] == "namespace" else ""
            for each in tools_of(tool["tools"] if within else [tool]):
                yield msgspec.structs.replace(each, name=within + each.name)


def choice_of(choice: Any) -> str:
    """Return what the script is to choose of the tools."""
    if isinstance(choice, dict):
        return str(choice.get("name") or choice.get("mode") or "auto")
    return choice or "auto"


def text_of(content: Any) -> str:
    """Return the text of an item's content."""
    if isinstance(content, str):
        return content
    return "\n".join(
        part["text"] for part in content or () if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
