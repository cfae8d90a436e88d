"""Translates a Responses request into a chat completion request."""

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from providers.dialects.responses.fields import Fields, Object, all_tools, called_name, objects_of, opened, thinking_of
from providers.dialects.wording import (
    GOOGLE,
    OF_CALL,
    SEE_BELOW,
    SHOWN_LATER,
    Calls,
    Losses,
    Malformed,
    Wording,
    decoded,
    extra_content,
    googles,
    is_string,
    one_text,
    raw_json,
    results_first,
    shown,
    signer_of,
    with_properties,
    written_object,
)

# Translates the input items of a Responses request into the messages of a chat completion.

ChatPart = dict[str, Any]
Content = msgspec.Raw | list[ChatPart]

_SPEAKERS = frozenset({"user", "system", "developer"})
_TEXT = frozenset({"type", "text"})
_HIGH = msgspec.Raw(b'"high"')
_ORIGINAL = msgspec.Raw(b'"original"')
_OWN_THOUGHTS = "chat completions have no earlier reasoning: only the model that wrote it can use it"
_OWN_PHASES = "chat completions have no phases: only the model that named them can use them"
_NOT_TAKEN_BACK = "chat completions do not take this back with an earlier answer"


class Conversation:
    """Chat messages, made from items in their order.

    The model's texts and calls between two inputs become one message in chat, since the results of calls must follow
    the message with the calls.
    """

    def __init__(self, losses: Losses, *, thoughts: bool = False, signed: str = "", elsewhere: bool = False) -> None:
        """``thoughts``: earlier reasoning is kept; ``signed``: that which has a signature of this vendor's.

        ``elsewhere``: items before these are at a provider.
        """
        self._calls = Calls(elsewhere=elsewhere)
        self._answered: list[tuple[str, str]] = []  # ids of the calls that have results, and where
        self._said: list[dict[str, Any]] = []
        self._losses = losses
        self._takes_thoughts = thoughts
        self._takes_signed = signed
        self._signed: dict[str, Any] = {}  # fields for the next message of the assistant: blocks, Google's signature
        self._of_call: dict[str, Any] = {}  # likewise for the next call
        self._thought: list[str] = []  # reasoning for the next message of the assistant
        self._open: dict[str, Any] | None = None  # the assistant's message, until another role follows
        self._places: list[str] = []  # of the parts that were read last
        self._shown_at: list[str] = []  # where these were:
        self._shown: list[ChatPart] = []  # parts from tool results, to be added after the last result of a turn

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages so far."""
        self._show()
        return [message for _, message in results_first(self._said)]

    def check_results(self) -> None:
        """Check that each result has its own call. All items must have been added: the API states no order of them.

        Raises:
            Malformed: a result has no call, or a call has two results.

        """
        for call_id, path in self._answered:
            self._calls.answer(call_id, path)

    def say(self, role: str, content: Content, path: str) -> None:
        """Add a message at ``path`` that is not the assistant's, unless all of it is lost."""
        self._close()
        if not content:
            return
        places = self._places
        if role == "user" and self._shown:
            places = self._shown_at + (list(places) or [path])
            content = [*self._shown, *_as_parts(content)]
            self._shown, self._shown_at = [], []
        self._show()
        self._said.append(self._losses.places.put({"role": role, "content": content}, path, places))

    def add(self, item: Fields) -> None:
        """Add one item.

        Raises:
            Malformed: it lacks a field that its type requires.

        """
        kind = item.take("type", str)
        item.pass_over("id", "status")  # set by a server; no model reads them
        match kind:
            case "message" | None if (role := item.take("role", str)) is not None:
                self._message(item, role)
            case "message":
                raise Malformed(f"Missing required parameter: '{item.named('role')}'.", item.named("role"))
            case "function_call":
                arguments = written_object(item.need("arguments"))
                function = {"name": called_name(item), "arguments": arguments}
                self._call({"id": item.need("call_id"), "type": "function", "function": function}, item)
            case "custom_tool_call":
                custom = {"name": called_name(item), "input": item.need("input")}
                self._call({"id": item.need("call_id"), "type": "custom", "custom": custom}, item)
            case "function_call_output" | "custom_tool_call_output":
                self._result(item)
            case "reasoning":
                self._think(item)
                return
            case "additional_tools":
                item.pass_over("role", "tools")  # they are among the request's
            case "item_reference" | None:
                self._losses.add(item.path, "it refers to an item that another provider stores")
                self._calls.elsewhere = True
                return
            case _:
                self._losses.add(item.path, f"chat completions have no {kind} items")
                self._calls.elsewhere = True  # it may be a call, or stand for what was left out
                return
        item.lose("caller", self._losses, _NO_SUCH_FIELD, b'{"type":"direct"}')
        item.lose_rest(self._losses, _NO_SUCH_FIELD)

    def _message(self, item: Fields, role: str) -> None:
        content, self._places = item.need("content"), []
        if role == "assistant":
            item.lose("phase", self._losses, _OWN_PHASES, hint=True)
            self._assistant(content, item)
        elif role in _SPEAKERS:
            said = content if is_string(content) else self._parts(content, item.named("content"))
            self.say(role, said, self._places[0] if len(self._places) == 1 else item.path)
        else:
            raise Malformed(f"'{item.named('role')}' must be user, assistant, system or developer.", item.named("role"))

    def _assistant(self, raw: msgspec.Raw, item: Fields) -> None:
        content = raw if is_string(raw) else self._parts(raw, item.named("content"))
        if self._open is not None and "tool_calls" in self._open:
            before = self._open["content"]
            self._open["content"] = content if before is None else [*_as_parts(before), *_as_parts(content)]
            return
        begun = self._begin(content, item)
        if isinstance(content, list) and [part["type"] for part in content] == ["refusal"]:
            begun |= {"content": None, "refusal": content[0]["refusal"]}

    def _call(self, call: ChatPart, item: Fields) -> None:
        path = item.named("call_id")
        self._calls.add(decoded(call["id"], str, path), path)
        message = self._begin(None, item) if self._open is None else self._open
        message.setdefault("tool_calls", []).append(call | self._of_call)
        self._of_call = {}

    def _begin(self, content: Content | None, item: Fields) -> dict[str, Any]:
        """Begin a message of the assistant, with the reasoning before it."""
        self._show()
        self._open = self._losses.places.put({"role": "assistant", "content": content}, item.path)
        if self._thought:
            self._open["reasoning_content"] = "\n\n".join(self._thought)
            self._thought = []
        self._open |= self._signed
        self._signed = {}
        self._said.append(self._open)
        return self._open

    def _close(self) -> None:
        self._open = None
        self._calls.begin_turn()
        if self._thought or self._signed or self._of_call:  # the answer broke off after it
            self._losses.add("input", _OWN_THOUGHTS, hint=True)
            self._thought, self._signed, self._of_call = [], {}, {}

    def _think(self, item: Fields) -> None:
        """Add reasoning to the open message of the assistant, or keep it for the next."""
        encrypted = item.raw("encrypted_content")
        kind, signature = googles(encrypted)
        if signature and self._takes_signed == GOOGLE:
            if kind == OF_CALL:
                self._of_call = extra_content(signature)
            else:
                holder = self._signed if self._open is None else self._open
                holder |= extra_content(signature)
            return
        content: list[dict[str, Any]] = []
        if self._takes_thoughts or self._takes_signed:
            content = item.take("content", list[dict[str, Any]]) or item.take("summary", list[dict[str, Any]]) or []
        told = "\n\n".join(text for part in content if isinstance(text := part.get("text"), str) and text)
        block = thinking_of(encrypted, told) if self._takes_signed else None
        if block is not None and signer_of(block) == self._takes_signed:
            holder = self._signed if self._open is None else self._open
            holder.setdefault("thinking_blocks", []).append(block)
            return
        if not told or not self._takes_thoughts:
            self._losses.add(item.path, _OWN_THOUGHTS, hint=True)
        elif self._open is not None:
            before = self._open.get("reasoning_content")
            self._open["reasoning_content"] = told if before is None else f"{before}\n\n{told}"
        else:
            self._thought.append(told)

    def _result(self, item: Fields) -> None:
        call_id, output = item.need("call_id"), item.need("output")
        item.pass_over("name", "namespace")  # the call has them too
        at = item.named("call_id")
        self._answered.append((decoded(call_id, str, at), at))
        self._close()
        path = item.named("output")
        content = output if is_string(output) else self._parts(output, path, of_call=call_id)
        if isinstance(content, list) and all(part.keys() == _TEXT for part in content):
            content = one_text([part["text"] for part in content])
        message = {"role": "tool", "tool_call_id": call_id, "content": content}
        self._said.append(self._losses.places.put(message, item.path))

    def _show(self) -> None:
        """Add what tools showed as a user's message. It comes after all results, which must follow their calls."""
        if self._shown:
            message = {"role": "user", "content": self._shown}
            self._said.append(self._losses.places.put(message, self._shown_at[0], self._shown_at))
            self._shown, self._shown_at = [], []

    def _parts(self, raw: msgspec.Raw, path: str, *, of_call: msgspec.Raw | None = None) -> Content:
        """Return the parts of a message; a string if there is only one text.

        Of the result of a call only text is returned, and a note where the rest is.
        """
        said: list[ChatPart] = []
        places = self._places = list[str]()
        for part in objects_of(raw, path):
            chat = self._part(part)
            if chat is None:
                continue
            part.lose_rest(self._losses, _NO_SUCH_FIELD)
            if of_call is not None and chat["type"] != "text" and "results" not in self._losses.beyond:
                self._losses.add(part.path, SHOWN_LATER, hint=True)
                shown_by = decoded(of_call, str, path)
                self._shown += [{"type": "text", "text": shown(shown_by)}, chat]
                self._shown_at += [part.path, part.path]
                chat = {"type": "text", "text": raw_json(SEE_BELOW)}
            said.append(chat)
            places.append(part.path)
        if len(said) == 1 and said[0].keys() == _TEXT:
            text: msgspec.Raw = said[0]["text"]
            return text
        return said

    def _part(self, part: Fields) -> ChatPart | None:
        """Return a part in chat's form; None if it is lost, which is noted."""
        said: ChatPart | None = None
        match kind := part.take("type", str):
            case "input_text":
                said = {"type": "text", "text": part.need("text")}
            case "output_text":
                part.lose("annotations", self._losses, _NOT_TAKEN_BACK, b"[]", hint=True)
                part.lose("logprobs", self._losses, _NOT_TAKEN_BACK, b"[]", hint=True)
                said = {"type": "text", "text": part.need("text")}
            case "refusal":
                said = {"type": "refusal", "refusal": part.need("refusal")}
            case "input_image":
                said = self._image(part)
            case "input_file":
                part.lose("detail", self._losses, _NO_SUCH_FIELD, b'"auto"')
                keeps = "addresses" in self._losses.beyond
                url = None if keeps else part.raw("file_url")
                if url is not None:
                    self._losses.add(part.named("file_url"), "chat completions take a file's data, not its URL")
                file = part.several("file_data", "file_id", "filename", *(("file_url",) if keeps else ()))
                if not file and url is None:
                    raise Malformed(
                        f"Missing required parameter: '{part.named('file_data')}'.", part.named("file_data")
                    )
                said = {"type": "file", "file": file} if file else None
            case "input_audio":
                said = {"type": "input_audio", "input_audio": part.need("input_audio")}
            case _:
                self._losses.add(part.path, f"chat completions have no part of type {kind!r}")
        marker = part.several("prompt_cache_breakpoint")
        return None if said is None else said | marker

    def _image(self, part: Fields) -> ChatPart | None:
        image = part.several("detail")
        if image.get("detail") == _ORIGINAL:
            self._losses.add(part.named("detail"), "chat completions have images of high detail at most")
            image["detail"] = _HIGH
        url, file_id = part.raw("image_url"), part.raw("file_id")
        if url is None and file_id is None:
            raise Malformed(f"Missing required parameter: '{part.named('image_url')}'.", part.named("image_url"))
        if file_id is not None:
            reason = "chat completions take an image's data or address, not a file's name"
            self._losses.add(part.named("file_id"), reason)
        return None if url is None else {"type": "image_url", "image_url": {"url": url, **image}}


def _as_parts(content: Content) -> list[ChatPart]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


# Translates tools and tool_choice: flat in Responses, nested in an object named by the type in chat completions.

_FALSE = msgspec.Raw(b"false")
_TOOLS_NO_SUCH_FIELD = "the other API has no such field in a tool"


def chat_tools(raw: msgspec.Raw | None, losses: Losses) -> list[Any]:
    """Return the tools of a Responses request in chat's form; a hosted tool is a loss.

    A tool in a namespace gets the namespace as a part of its name (``namespaces.py``).
    """
    said: list[Any] = []
    names: set[bytes] = set()
    for tool in opened(raw, losses):
        match kind := tool.take("type", str):
            case "function":
                said.append(losses.places.put({"type": kind, kind: _chat_function(tool)}, tool.path))
            case "custom":
                said.append(losses.places.put({"type": kind, kind: _chat_custom(tool, losses)}, tool.path))
            case None:
                raise Malformed(f"Missing required parameter: '{tool.named('type')}'.", tool.named("type"))
            case _:
                losses.add(tool.path, f"chat completions have no {kind} tool")
                continue
        name = bytes(said[-1][kind]["name"])
        if name in names:
            losses.add(tool.path, "chat completions would have two tools of this name")
            said.pop()
        names.add(name)
        tool.lose("allowed_callers", losses, _TOOLS_NO_SUCH_FIELD, b'["direct"]')
        tool.lose("defer_loading", losses, _TOOLS_NO_SUCH_FIELD, b"false")
        tool.lose_rest(losses, _TOOLS_NO_SUCH_FIELD)
    return said


def responses_tools(raw: msgspec.Raw | None, losses: Losses) -> list[Any]:
    """Return the tools of a chat completion in Responses' form."""
    said: list[Any] = []
    for tool in objects_of(raw, "tools"):
        kind = tool.take("type", str)
        if kind not in {"function", "custom"}:
            losses.add(tool.path, f"Responses has no tool of type {kind!r}")
            continue
        inner = tool.inner(kind)
        flat: dict[str, Any] = {"type": kind, "name": inner.need("name"), **inner.several("description")}
        if kind == "function":
            # Unless ``strict`` is false, Responses makes a schema strict, and with it all fields required.
            flat |= {"parameters": None, "strict": False, **inner.several("parameters", "strict")}
            if flat["parameters"] is not None:
                flat["parameters"] = with_properties(flat["parameters"])
        elif format_ := _flat_format(inner.inner("format"), losses):
            flat["format"] = format_
        inner.lose_rest(losses, _TOOLS_NO_SUCH_FIELD)
        tool.lose_rest(losses, _TOOLS_NO_SUCH_FIELD)
        said.append(flat)
    return said


def chat_tool_choice(raw: msgspec.Raw | None, losses: Losses) -> Any:
    """Return a Responses request's tool_choice in chat's form, None where chat has no such choice."""
    if raw is None or is_string(raw):
        return raw
    choice = Fields(decoded(raw, Object, "tool_choice"), "tool_choice")
    said: dict[str, Any]
    match kind := choice.take("type", str):
        case "function" | "custom":
            said = {"type": kind, kind: {"name": choice.need("name")}}
        case "allowed_tools":
            allowed = [_chat_reference(tool, losses) for tool in objects_of(choice.raw("tools"), "tool_choice.tools")]
            said = {"type": kind, kind: {**choice.several("mode"), "tools": [tool for tool in allowed if tool]}}
        case _:
            losses.add("tool_choice", f"chat completions have no {kind} tool")
            return None
    choice.lose_rest(losses, _TOOLS_NO_SUCH_FIELD)
    return said


def responses_tool_choice(raw: msgspec.Raw | None, losses: Losses) -> Any:
    """Return a chat completion's tool_choice in Responses' form, None where Responses has no such choice."""
    if raw is None or is_string(raw):
        return raw
    choice = Fields(decoded(raw, Object, "tool_choice"), "tool_choice")
    said: dict[str, Any]
    match kind := choice.take("type", str):
        case "function" | "custom":
            said = {"type": kind, "name": choice.inner(kind).need("name")}
        case "allowed_tools":
            inner = choice.inner(kind)
            tools = objects_of(inner.raw("tools"), "tool_choice.allowed_tools.tools")
            allowed = [_flat_reference(tool, losses) for tool in tools]
            said = {"type": kind, **inner.several("mode"), "tools": [tool for tool in allowed if tool]}
        case _:
            losses.add("tool_choice", f"Responses has no choice of type {kind!r}")
            return None
    choice.lose_rest(losses, _TOOLS_NO_SUCH_FIELD)
    return said


def _chat_function(tool: Fields) -> Object:
    function = {"name": tool.need("name"), **tool.several("description", "parameters", "strict")}
    if "parameters" in function:
        function["parameters"] = with_properties(function["parameters"])
    # Without ``strict``, Responses is strict where the schema allows. Chat refuses other schemas, so it is not set.
    if function.get("strict") == _FALSE:
        del function["strict"]
    return function


def _chat_custom(tool: Fields, losses: Losses) -> dict[str, Any]:
    custom: dict[str, Any] = {"name": tool.need("name"), **tool.several("description")}
    format_ = tool.inner("format")
    match format_.take("type", str):
        case "grammar":
            custom["format"] = {"type": "grammar", "grammar": format_.several("definition", "syntax")}
        case "text":
            custom["format"] = {"type": "text"}
        case None:
            pass
        case kind:
            losses.add(format_.named("type"), f"chat completions have no format {kind!r} of a custom tool")
    return custom


def _flat_format(format_: Fields, losses: Losses) -> dict[str, Any] | None:
    match kind := format_.take("type", str):
        case "grammar":
            return {"type": kind, **format_.inner("grammar").several("definition", "syntax")}
        case "text":
            return {"type": kind}
        case str():
            losses.add(format_.named("type"), f"Responses has no format {kind!r} of a custom tool")
    return None


def _chat_reference(tool: Fields, losses: Losses) -> dict[str, Any] | None:
    """Return one of the allowed tools, each given by its type and name."""
    kind = tool.take("type", str)
    if kind in {"function", "custom"}:
        return {"type": kind, kind: {"name": tool.need("name")}}
    losses.add(tool.path, f"chat completions have no {kind} tool")
    return None


def _flat_reference(tool: Fields, losses: Losses) -> dict[str, Any] | None:
    kind = tool.take("type", str)
    if kind in {"function", "custom"}:
        return {"type": kind, "name": tool.inner(kind).need("name")}
    losses.add(tool.path, f"Responses has no tool of type {kind!r}")
    return None


SHARED = (  # fields with the same name and meaning in both APIs
    "model",
    "stream",
    "temperature",
    "top_p",
    "metadata",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
)
LOGPROBS = "message.output_text.logprobs"

_LOST: Mapping[str, tuple[str, bytes]] = {  # the reason, and the value that is the default
    "previous_response_id": ("chat completions keep no earlier responses", b"null"),
    "conversation": ("chat completions keep no conversations", b"null"),
    "prompt": ("chat completions have no prompt templates", b"null"),
    "background": ("chat completions do not run in the background", b"false"),
    "store": ("chat completions keep no response that can be referred to later", b"false"),
    "truncation": ("chat completions do not shorten a conversation that is too long", b'"disabled"'),
    "max_tool_calls": ("chat completions have no hosted tools whose calls could be limited", b"null"),
    "context_management": ("chat completions do not compact a conversation", b"[]"),
    "moderation": ("chat completions give the results of moderation in another shape", b"null"),
}
_AUTO, _NONE = msgspec.Raw(b'"auto"'), msgspec.Raw(b'"none"')
_STATE = ("previous_response_id", "conversation", "prompt")  # with any of them, input is optional
_NO_SUCH_FIELD = "chat completions have no such field"


def to_chat(
    fields: Mapping[str, msgspec.Raw], *, thoughts: bool = False, signed: str = "", beyond: Container[str] = ()
) -> Wording:
    """Translate a Responses request; with ``thoughts``, earlier reasoning is sent as ``reasoning_content``.

    What the vendor ``signed`` has signed is sent back to it; what is ``beyond`` chat is kept in the pivot's own fields.

    Raises:
        Malformed: it has no input, or a field has another type than the API requires.

    """
    asked, losses = Fields(fields), Losses(once=True, beyond=beyond)
    said: dict[str, Any] = asked.several(*SHARED)
    stored = any(name in fields for name in _STATE)
    conversation = Conversation(losses, thoughts=thoughts, signed=signed, elsewhere=stored)
    said["messages"] = _messages(asked, conversation, optional=stored)
    said |= _tools(asked, all_tools(fields), losses)
    if (limit := asked.raw("max_output_tokens")) is not None:
        said["max_completion_tokens"] = limit
    said |= _text(asked.inner("text"), losses)
    said |= _reasoning(asked.inner("reasoning"), losses)
    said |= _logprobs(asked, losses)
    options = asked.inner("stream_options")
    options.lose("include_obfuscation", losses, "translated streams are not padded", b"false", hint=True)
    options.lose_rest(losses, _NO_SUCH_FIELD)
    asked.lose("client_metadata", losses, "it is information for OpenAI, not for the model", hint=True)
    for name, (reason, plain) in _LOST.items():
        asked.lose(name, losses, reason, plain)
    asked.lose_rest(losses, _NO_SUCH_FIELD)
    return losses.with_chat(said)


def _messages(asked: Fields, conversation: Conversation, *, optional: bool) -> list[dict[str, Any]]:
    if (instructions := asked.raw("instructions")) is not None:
        if not is_string(instructions):
            raise Malformed("'instructions' must be a string.", "instructions")
        conversation.say("system", instructions, "instructions")
    given = asked.raw("input") if optional else asked.need("input")
    if given is not None and is_string(given):
        conversation.say("user", given, "input")
    else:
        for item in objects_of(given, "input"):
            conversation.add(item)
    conversation.check_results()
    return conversation.messages


def _tools(asked: Fields, given: msgspec.Raw | None, losses: Losses) -> dict[str, Any]:
    asked.pass_over("tools")
    tools = chat_tools(given, losses)
    choice = asked.raw("tool_choice")
    how = asked.several("parallel_tool_calls")
    if not tools:  # chat completions refuse both without tools
        if choice not in (None, _AUTO, _NONE):
            losses.add("tool_choice", "there is no tool to choose that chat completions have")
        return {}
    if (said := chat_tool_choice(choice, losses)) is not None:
        how["tool_choice"] = said
    return {"tools": tools, **how}


def _text(text: Fields, losses: Losses) -> dict[str, Any]:
    said: dict[str, Any] = {}
    format_ = text.inner("format")
    match kind := format_.take("type", str):
        case "json_schema":
            schema = {"name": format_.need("name"), **format_.several("description", "schema", "strict")}
            said["response_format"] = {"type": kind, kind: schema}
        case "json_object":
            said["response_format"] = {"type": kind}
        case "text" | None:
            pass
        case _:
            losses.add("text.format.type", f"chat completions have no format {kind!r}")
    format_.lose_rest(losses, _NO_SUCH_FIELD)
    said |= text.several("verbosity")
    text.lose_rest(losses, _NO_SUCH_FIELD)
    return said


def _reasoning(reasoning: Fields, losses: Losses) -> dict[str, Any]:
    effort = reasoning.raw("effort")
    shows: dict[str, Any] = {}
    for name in ("summary", "generate_summary"):
        if "thoughts" in losses.beyond and reasoning.raw(name) is not None:
            shows["shows_thoughts"] = True
        reasoning.lose(name, losses, "chat completions return reasoning itself, if any, not a summary", hint=True)
    reasoning.lose("context", losses, _NO_SUCH_FIELD, b'"auto"')
    reasoning.lose("mode", losses, _NO_SUCH_FIELD, b'"standard"')
    reasoning.lose_rest(losses, _NO_SUCH_FIELD)
    return shows if effort is None else {"reasoning_effort": effort, **shows}


def _logprobs(asked: Fields, losses: Losses) -> dict[str, Any]:
    included = asked.take("include", list[str]) or []
    for number, name in enumerate(included):
        if name == "reasoning.encrypted_content":
            losses.add(f"include[{number}]", "chat completions have no encrypted reasoning", hint=True)
        elif name != LOGPROBS:
            # These add details of hosted tools and of the request's own parts: without either there are none to add.
            losses.add(f"include[{number}]", f"chat completions do not return {name}", hint=True)
    most_likely = asked.take("top_logprobs", int) or 0
    if LOGPROBS not in included and not most_likely:
        return {}
    return {"logprobs": True, **({"top_logprobs": most_likely} if most_likely else {})}
