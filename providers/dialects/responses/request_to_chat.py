"""Translates a Responses request into a chat completion request."""

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects.reading import RawObject, each_at, inner_at, needed_at, object_at, present, said_of
from providers.dialects.responses.built_in import (
    CALLS,
    OF_CALLS,
    OF_RESULTS,
    RESULTS,
    SEARCH,
    call_id_of,
    called,
    result_of,
)
from providers.dialects.responses.compacting import ASK, NO_COMPACTION, compacts
from providers.dialects.responses.compacting import opened as opened_summary
from providers.dialects.responses.fields import (
    CHANGING_NOTHING,
    all_tools,
    called_name,
    is_clients,
    names_of,
    thinking_of,
)
from providers.dialects.responses.tools import AT_ONCE, chat_tool_choice, chat_tools
from providers.dialects.wording import (
    GOOGLE,
    OF_CALL,
    SEE_BELOW,
    SHOWN_LATER,
    HistoryCalls,
    Loss,
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
    written_object,
)
from providers.refusals import UNREADABLE

# Translates the input items of a Responses request into the messages of a chat completion.

ChatPart = dict[str, Any]
Content = msgspec.Raw | list[ChatPart]

_OF_BUILT_IN = CALLS | RESULTS
_FUNCTION_CALL, _TRIGGER = msgspec.Raw(b'"function_call"'), msgspec.Raw(b'"compaction_trigger"')
_SPEAKERS = frozenset({"user", "system", "developer"})
_TEXT = frozenset({"type", "text"})
_THOUGHTS = ("content", "summary")  # of reasoning
_HIGH = msgspec.Raw(b'"high"')
_ORIGINAL = msgspec.Raw(b'"original"')
_OWN_THOUGHTS = "chat completions have no earlier reasoning: only the model that wrote it can use it"
_OWN_PHASES = "chat completions have no phases: only the model that named them can use them"
_NO_CHECKS = "chat completions have no safety checks of calls"
_NOT_TAKEN_BACK = "chat completions do not take this back with an earlier answer"
# The fields that are read of each item, and of each part of an item.
_OF_SERVERS = ("type", "id", "status", "caller")  # of any item; a server sets the last three, no model reads them
_OF_RESULTS = ("call_id", "output", "name", "namespace")  # the call has the last two too
_ITEMS: Mapping[str | None, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "namespace", "arguments"),
    "custom_tool_call": ("call_id", "name", "namespace", "input"),
    "function_call_output": _OF_RESULTS,
    "custom_tool_call_output": _OF_RESULTS,
    "additional_tools": ("role", "tools"),  # the tools become tools of the request
    **dict.fromkeys(CALLS, OF_CALLS),
    **dict.fromkeys(RESULTS, OF_RESULTS),
}
# Items of OpenAI's own tools in earlier answers: another model continues without these.
_OF_OPENAI = frozenset({
    *("web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call", "program"),
    *("program_output", "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
    "compaction_trigger",  # of an earlier turn
})  # fmt: skip
_PARTS: Mapping[str | None, tuple[str, ...]] = {
    "input_text": ("text",),
    "output_text": ("text", "annotations", "logprobs"),
    "refusal": ("refusal",),
    "input_image": ("image_url", "file_id", "detail"),
    "input_file": ("file_data", "file_id", "filename", "file_url", "detail"),
    "input_audio": ("input_audio",),
    "computer_screenshot": ("image_url", "file_id", "detail"),
}


class Conversation:
    """Chat messages, made from items in their order.

    The model's texts and calls between two inputs become one message in chat, since the results of calls must follow
    the message with the calls.
    """

    def __init__(
        self,
        losses: Losses,
        *,
        thoughts: bool = False,
        signed: str = "",
        elsewhere: bool = False,
        is_summed_up: bool = False,
    ) -> None:
        """``thoughts``: keep earlier reasoning. ``signed``: keep the reasoning that this vendor has signed.

        ``elsewhere``: the items before these are at a provider. ``is_summed_up``: the last item asks for a summary.
        """
        self._is_summed_up = is_summed_up
        self._calls = HistoryCalls(elsewhere=elsewhere)
        self.updates: dict[str, RawObject] = {}  # what items have changed of the request's fields
        self._answered: list[tuple[str, str]] = []  # ids of the calls that have results, and the paths of the results
        self._said: list[dict[str, Any]] = []
        self._losses = losses
        self._takes_thoughts = thoughts
        self._takes_signed = signed
        self._signed: dict[str, Any] = {}  # fields for the next message of the assistant: blocks, Google's signature
        self._of_call: dict[str, Any] = {}  # for the next call: Google's signature
        self._thought: list[str] = []  # reasoning for the next message of the assistant
        self._open: dict[str, Any] | None = None  # the assistant's message, until another role follows
        self._places: list[str] = []  # paths of the parts that were read last
        self._shown_at: list[str] = []  # the paths of the parts in ``_shown``
        self._shown: list[ChatPart] = []  # parts from tool results, to be added after the last result of a turn

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages so far."""
        self._show()
        return [message for _, message in results_first(self._said)]

    def check_results(self) -> None:
        """Check that each result has its own call. First add all items: the API prescribes no order of items.

        Raises:
            Malformed: a result has no call, or a call has two results.

        """
        for call_id, path in self._answered:
            self._calls.answer(call_id, path)

    def say(self, role: str, content: Content, path: str) -> None:
        """Add a message at ``path`` that is not the assistant's, unless everything in it is lost."""
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

    def instead(self, item: RawObject, path: str) -> msgspec.Raw | None:
        """Return what replaces a summary of the gateway's, or an item that asks for a summary; None: another item."""
        if item.get("type") != _TRIGGER:
            return opened_summary(item)
        if not self._is_summed_up:
            return None
        self._losses.note([Loss(path, NO_COMPACTION, nearly=True)])
        return ASK

    def add(self, item: RawObject, path: str) -> None:
        """Add the item at ``path``.

        Raises:
            Malformed: the item lacks a field that its type requires.

        """
        kind = decoded(item.get("type"), str, f"{path}.type")
        known = _ITEMS.get(kind or "message", ())
        match kind:
            case "message" | None if (role := decoded(item.get("role"), str, f"{path}.role")) is not None:
                known = (*known, "phase") if role == "assistant" else known
                self._message(item, role, path)
            case "message":
                raise Malformed(f"Missing required parameter: '{path}.role'.", f"{path}.role")
            case "function_call" | "custom_tool_call":
                self._called(item, path)
            case "function_call_output" | "custom_tool_call_output":
                self._result(item, path)
            case _ if kind in _OF_BUILT_IN:
                (self._ran if kind in RESULTS else self._run)(item, path)
            case "reasoning" | "tool_search_call" | "tool_search_output":
                (self._think if kind == "reasoning" else self._search)(item, path)
                return
            case "additional_tools":
                pass
            case "item_reference" | None:
                self._losses.add(path, "it refers to an item that another provider stores")
                self._calls.elsewhere = True
                return
            case "configuration_update":
                self._update(item, path)
                return
            case _:
                is_left_out = kind in _OF_OPENAI or (kind == "compaction" and any(map(_is_said, self._said)))
                reason = _OF_COMPACTION.get(kind, f"chat completions have no {kind} items")
                self._losses.add(path, reason, hint=is_left_out)
                self._calls.elsewhere = True  # the item may be a call, or stand for calls that were left out
                return
        self._losses.lose(item, "caller", path, _NO_SUCH_FIELD, b'{"type":"direct"}')
        self._losses.rest(item, (*_OF_SERVERS, *known), path, _NO_SUCH_FIELD)

    def _update(self, item: RawObject, path: str) -> None:
        """Note what an item changes from there on: how hard to think, and the format of answers."""
        self._losses.rest(item, (*_OF_SERVERS, "reasoning", "text"), path, _NO_SUCH_FIELD)
        for name in ("reasoning", "text"):
            if name in item:
                self.updates.setdefault(name, {}).update(present(object_at(item[name], f"{path}.{name}")))

    def _search(self, item: RawObject, path: str) -> None:
        """Add a search among tools, or the tools that a search has found; these become tools of the request."""
        self._losses.rest(item, (*_OF_SERVERS, "call_id", "execution", "arguments", "tools"), path, _NO_SUCH_FIELD)
        if not is_clients(item):
            self._losses.add(path, AT_ONCE, hint=True)
        elif "tools" in item:
            found = decoded(item["tools"], list[dict[str, Any]], f"{path}.tools") or []
            told = raw_json(f"Found, and offered from now on: {', '.join(_called(found)) or 'nothing'}")
            self._result({**item, "output": told}, path)
        else:
            written = decoded(item.get("arguments"), dict[str, Any], f"{path}.arguments") or {}
            function = {"name": SEARCH.name, "arguments": raw_json(encoded(written).decode())}
            self._call({"id": needed_at(item, "call_id", path), "type": "function", "function": function}, path)

    def _called(self, item: RawObject, path: str) -> None:
        """Add a call of the client's own function, or of the client's tool with a text argument."""
        said: ChatPart = {"name": called_name(item, path)}
        if item["type"] == _FUNCTION_CALL:
            said["arguments"] = written_object(needed_at(item, "arguments", path))
            kind = "function"
        else:
            said["input"] = needed_at(item, "input", path)
            kind = "custom"
        self._call({"id": needed_at(item, "call_id", path), "type": kind, kind: said}, path)

    def _run(self, item: RawObject, path: str) -> None:
        """Add a call of a tool without a name as a call of a function."""
        self._losses.lose(item, "pending_safety_checks", path, _NO_CHECKS, b"[]", hint=True)
        try:
            name, arguments = called(item)
        except UNREADABLE as error:
            raise Malformed(f"{path!r} is invalid: {error}", path) from None
        function = {"name": name, "arguments": arguments}
        self._call({"id": _call_id(item, path), "type": "function", "function": function}, path)

    def _ran(self, item: RawObject, path: str) -> None:
        """Add the output of such a call as the result of a function."""
        self._losses.lose(item, "acknowledged_safety_checks", path, _NO_CHECKS, b"[]", hint=True)
        flags = "results" in self._losses.beyond
        try:
            output, failed = result_of(item, flags=flags)
        except UNREADABLE as error:
            raise Malformed(f"'{path}.output' is invalid: {error}", f"{path}.output") from None
        self._result({**item, "call_id": _call_id(item, path), "output": output}, path, failed=failed and flags)

    def _message(self, item: RawObject, role: str, path: str) -> None:
        content, self._places = needed_at(item, "content", path), []
        if role == "assistant":
            self._losses.lose(item, "phase", path, _OWN_PHASES, hint=True)
            self._assistant(content, path)
        elif role in _SPEAKERS:
            said = content if is_string(content) else self._parts(content, f"{path}.content")
            self.say(role, said, self._places[0] if len(self._places) == 1 else path)
        else:
            raise Malformed(f"'{path}.role' must be user, assistant, system or developer.", f"{path}.role")

    def _assistant(self, raw: msgspec.Raw, path: str) -> None:
        content = raw if is_string(raw) else self._parts(raw, f"{path}.content")
        if self._open is not None and "tool_calls" in self._open:
            before = self._open["content"]
            self._open["content"] = content if before is None else [*_as_parts(before), *_as_parts(content)]
            return
        begun = self._begin(content, path)
        if isinstance(content, list) and [part["type"] for part in content] == ["refusal"]:
            begun |= {"content": None, "refusal": content[0]["refusal"]}

    def _call(self, call: ChatPart, path: str) -> None:
        at = f"{path}.call_id"
        self._calls.add(decoded(call["id"], str, at), at)
        message = self._begin(None, path) if self._open is None else self._open
        message.setdefault("tool_calls", []).append(call | self._of_call)
        self._of_call = {}

    def _begin(self, content: Content | None, path: str) -> dict[str, Any]:
        """Begin a message of the assistant, with the reasoning that came before."""
        self._show()
        self._open = self._losses.places.put({"role": "assistant", "content": content}, path)
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
        if self._thought or self._signed or self._of_call:  # the answer broke off after the reasoning
            self._losses.add("input", _OWN_THOUGHTS, hint=True)
            self._thought, self._signed, self._of_call = [], {}, {}

    def _think(self, item: RawObject, path: str) -> None:
        """Add reasoning to the open message of the assistant, or keep it for the next."""
        encrypted = item.get("encrypted_content")
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
            told_in = (decoded(item.get(name), list[dict[str, Any]], f"{path}.{name}") for name in _THOUGHTS)
            content = next(filter(None, told_in), [])
        told = "\n\n".join(text for part in content if isinstance(text := part.get("text"), str) and text)
        block = thinking_of(encrypted, told) if self._takes_signed else None
        if block is not None and signer_of(block) == self._takes_signed:
            holder = self._signed if self._open is None else self._open
            holder.setdefault("thinking_blocks", []).append(block)
            return
        if not told or not self._takes_thoughts:
            self._losses.add(path, _OWN_THOUGHTS, hint=True)
        elif self._open is not None:
            before = self._open.get("reasoning_content")
            self._open["reasoning_content"] = told if before is None else f"{before}\n\n{told}"
        else:
            self._thought.append(told)

    def _result(self, item: RawObject, path: str, *, failed: bool = False) -> None:
        call_id, output = needed_at(item, "call_id", path), needed_at(item, "output", path)
        at = f"{path}.call_id"
        self._answered.append((decoded(call_id, str, at), at))
        self._close()
        content = output if is_string(output) else self._parts(output, f"{path}.output", of_call=call_id)
        if isinstance(content, list) and all(part.keys() == _TEXT for part in content):
            content = one_text([part["text"] for part in content])
        message = {"role": "tool", "tool_call_id": call_id, "content": content} | ({"is_error": True} if failed else {})
        self._said.append(self._losses.places.put(message, path))

    def _show(self) -> None:
        """Add what tools showed as a user's message, after all results: results must follow their calls."""
        if self._shown:
            message = {"role": "user", "content": self._shown}
            self._said.append(self._losses.places.put(message, self._shown_at[0], self._shown_at))
            self._shown, self._shown_at = [], []

    def _parts(self, raw: msgspec.Raw, path: str, *, of_call: msgspec.Raw | None = None) -> Content:
        """Return the parts of a message; a string if there is only one text.

        Of a call's result only text is returned, with a note for each part that is shown in the user's message.
        """
        said: list[ChatPart] = []
        places = self._places = list[str]()
        for at, part in each_at(raw, path):
            kind = decoded(part.get("type"), str, f"{at}.type")
            chat = self._part(part, kind, at)
            if chat is None:
                continue
            self._losses.rest(part, ("type", "prompt_cache_breakpoint", *_PARTS[kind]), at, _NO_SUCH_FIELD)
            if of_call is not None and chat["type"] != "text" and "results" not in self._losses.beyond:
                self._losses.add(at, SHOWN_LATER, hint=True)
                shown_by = decoded(of_call, str, path)
                self._shown += [{"type": "text", "text": shown(shown_by)}, chat]
                self._shown_at += [at, at]
                chat = {"type": "text", "text": raw_json(SEE_BELOW)}
            said.append(chat)
            places.append(at)
        if len(said) == 1 and said[0].keys() == _TEXT:
            text: msgspec.Raw = said[0]["text"]
            return text
        return said

    def _part(self, part: RawObject, kind: str | None, at: str) -> ChatPart | None:
        """Return a part in chat's form; None if the part is lost, which is noted."""
        said: ChatPart | None = None
        match kind:
            case "input_text":
                said = {"type": "text", "text": needed_at(part, "text", at)}
            case "output_text":
                self._losses.lose(part, "annotations", at, _NOT_TAKEN_BACK, b"[]", hint=True)
                self._losses.lose(part, "logprobs", at, _NOT_TAKEN_BACK, b"[]", hint=True)
                said = {"type": "text", "text": needed_at(part, "text", at)}
            case "refusal":
                said = {"type": "refusal", "refusal": needed_at(part, "refusal", at)}
            case "input_image" | "computer_screenshot":
                said = self._image(part, at)
            case "input_file":
                said = self._file(part, at)
            case "input_audio":
                said = {"type": "input_audio", "input_audio": needed_at(part, "input_audio", at)}
            case _:
                self._losses.add(at, f"chat completions have no part of type {kind!r}")
        return None if said is None else said | said_of(part, "prompt_cache_breakpoint")

    def _file(self, part: RawObject, at: str) -> ChatPart | None:
        self._losses.lose(part, "detail", at, _NO_SUCH_FIELD, b'"auto"')
        file = said_of(part, "file_data", "file_id", "filename", "file_url")
        url = None if "addresses" in self._losses.beyond else file.pop("file_url", None)
        if url is not None:
            self._losses.add(f"{at}.file_url", "chat completions take a file's data, not its URL")
        if not file and url is None:
            raise Malformed(f"Missing required parameter: '{at}.file_data'.", f"{at}.file_data")
        return {"type": "file", "file": file} if file else None

    def _image(self, part: RawObject, at: str) -> ChatPart | None:
        image = said_of(part, "detail")
        if image.get("detail") == _ORIGINAL:
            self._losses.add(f"{at}.detail", "chat completions have images of high detail at most")
            image["detail"] = _HIGH
        url, file_id = part.get("image_url"), part.get("file_id")
        if url is None and file_id is None:
            raise Malformed(f"Missing required parameter: '{at}.image_url'.", f"{at}.image_url")
        if file_id is not None:
            reason = "chat completions take an image's data or address, not a file's name"
            self._losses.add(f"{at}.file_id", reason)
        return None if url is None else {"type": "image_url", "image_url": {"url": url, **image}}


def _is_said(message: Mapping[str, Any]) -> bool:
    return message["role"] not in {"system", "developer"}


def _as_parts(content: Content) -> list[ChatPart]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _call_id(item: RawObject, path: str) -> msgspec.Raw:
    call_id = call_id_of(item)
    return needed_at(item, "call_id", path) if call_id is None else call_id


def _called(tools: list[dict[str, Any]]) -> list[str]:
    """Return the names in chat of the tools that a search has found."""
    raw = raw_json(tools)
    names = names_of(raw)
    own = [str(tool["name"]) for tool in tools if tool.get("type") != "namespace" and "name" in tool]
    return [*own, *names]


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

_OF_COMPACTION: Mapping[str, str] = {
    "compaction": "only the vendor that compacted the conversation can read this summary: ask a model of that vendor,"
    " or send the conversation itself",
    "compaction_trigger": "the summary that it asked for is behind it",
}
_LOST: Mapping[str, tuple[str, bytes]] = {  # by field: the reason, and the default value
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
# Fields that stand for items at a provider: beside one of these, ``input`` is optional.
ELSEWHERE = ("previous_response_id", "conversation", "prompt")
_NO_SUCH_FIELD = "chat completions have no such field"
_READ = frozenset({
    *SHARED,
    *_LOST,
    *("client_metadata", "image", "include", "input", "instructions", "max_output_tokens", "parallel_tool_calls"),
    *("reasoning", "stream_options", "text", "tool_choice", "tools", "top_logprobs"),
})  # fmt: skip


def to_chat(
    fields: Mapping[str, msgspec.Raw], *, thoughts: bool = False, signed: str = "", beyond: Container[str] = ()
) -> Wording:
    """Translate a Responses request. ``thoughts``: earlier reasoning is sent as ``reasoning_content``.

    ``signed``: the vendor that gets back the thoughts it has signed. ``beyond``: parts for which chat has no place, and
    which the pivot's own fields keep.

    Raises:
        Malformed: there is no input, or a field has another type than the API requires.

    """
    asked, losses = present(fields), Losses(once=True, beyond=beyond, changing_nothing=CHANGING_NOTHING)
    said: dict[str, Any] = said_of(asked, *SHARED)
    stored, is_summed_up = any(name in fields for name in ELSEWHERE), compacts(fields)
    conversation = Conversation(losses, thoughts=thoughts, signed=signed, elsewhere=stored, is_summed_up=is_summed_up)
    said["messages"] = _messages(asked, conversation, optional=stored)
    for name, changed in conversation.updates.items():
        asked[name] = raw_json({**object_at(asked.get(name), name), **changed})
    if is_summed_up:
        asked = {name: value for name, value in asked.items() if name != "text"} | {"tool_choice": _NONE}
    said |= _tools(asked, all_tools(fields), losses)
    if "max_output_tokens" in asked:
        said["max_completion_tokens"] = asked["max_output_tokens"]
    said |= _text(asked, losses)
    said |= _reasoning(asked, losses)
    said |= _logprobs(asked, losses, signed=signed)
    padding, options = "include_obfuscation", present(object_at(asked.get("stream_options"), "stream_options"))
    losses.lose(options, padding, "stream_options", "translated streams are not padded", b"false", hint=True)
    losses.rest(options, (padding,), "stream_options", _NO_SUCH_FIELD)
    losses.lose(asked, "client_metadata", "", "it is information for OpenAI, not for the model", hint=True)
    for name, (reason, plain) in _LOST.items():
        losses.lose(asked, name, "", reason, plain)
    losses.rest(present(object_at(asked.get("image"), "image")), (), "image", _NO_SUCH_FIELD)
    losses.rest(asked, _READ, "", _NO_SUCH_FIELD)
    return losses.with_chat(said)


def _messages(asked: RawObject, conversation: Conversation, *, optional: bool) -> list[dict[str, Any]]:
    if (instructions := asked.get("instructions")) is not None:
        if not is_string(instructions):
            raise Malformed("'instructions' must be a string.", "instructions")
        conversation.say("system", instructions, "instructions")
    given = asked.get("input") if optional else needed_at(asked, "input", "")
    if given is not None and is_string(given):
        conversation.say("user", given, "input")
    else:
        for path, item in each_at(given, "input"):
            if (told := conversation.instead(item, path)) is not None:
                conversation.say("user", told, path)
            else:
                conversation.add(item, path)
    conversation.check_results()
    return conversation.messages


def _tools(asked: RawObject, given: msgspec.Raw | None, losses: Losses) -> dict[str, Any]:
    tools = chat_tools(given, losses)
    choice = asked.get("tool_choice")
    if not tools:  # "'tool_choice' is only allowed when 'tools' are specified", and parallel_tool_calls too
        if choice not in (None, _AUTO, _NONE):
            losses.add("tool_choice", "there is no tool to choose that chat completions have")
        return {}
    how: dict[str, Any] = said_of(asked, "parallel_tool_calls")
    if (said := chat_tool_choice(choice, losses, {bytes(tool[tool["type"]]["name"]) for tool in tools})) is not None:
        how["tool_choice"] = said
    return {"tools": tools, **how}


def _text(asked: RawObject, losses: Losses) -> dict[str, Any]:
    said: dict[str, Any] = {}
    text, path = present(object_at(asked.get("text"), "text")), "text.format"
    form = inner_at(text, "format", "text")
    known: tuple[str, ...] = ("type",)
    match kind := decoded(form.get("type"), str, f"{path}.type"):
        case "json_schema":
            schema = {"name": needed_at(form, "name", path), **said_of(form, "description", "schema", "strict")}
            said["response_format"] = {"type": kind, kind: schema}
            known = ("type", "name", "description", "schema", "strict")
        case "json_object":
            said["response_format"] = {"type": kind}
        case "text" | None:
            pass
        case _:
            losses.add(f"{path}.type", f"chat completions have no format {kind!r}")
    losses.rest(form, known, path, _NO_SUCH_FIELD)
    losses.rest(text, ("format", "verbosity"), "text", _NO_SUCH_FIELD)
    return said | said_of(text, "verbosity")


def _reasoning(asked: RawObject, losses: Losses) -> dict[str, Any]:
    path = "reasoning"
    reasoning = present(object_at(asked.get(path), path))
    said: dict[str, Any] = {}
    for name in ("summary", "generate_summary"):
        reason = "chat completions return reasoning itself, if any, not a summary"
        if "thoughts" not in losses.beyond:
            losses.lose(reasoning, name, path, reason, hint=True)
        elif name in reasoning:
            said["shows_thoughts"] = True
    losses.lose(reasoning, "context", path, _NO_SUCH_FIELD, b'"auto"')
    losses.lose(reasoning, "mode", path, _NO_SUCH_FIELD, b'"standard"')
    losses.rest(reasoning, ("effort", "summary", "generate_summary", "context", "mode"), path, _NO_SUCH_FIELD)
    return said | ({"reasoning_effort": reasoning["effort"]} if "effort" in reasoning else {})


def _logprobs(asked: RawObject, losses: Losses, *, signed: str) -> dict[str, Any]:
    """Return how log probabilities are asked for; anything else to be included is a loss.

    Signed thoughts come as encrypted reasoning, whether the request asks for that or not.
    """
    included = decoded(asked.get("include"), list[str], "include") or []
    for number, name in enumerate(included):
        if name == "reasoning.encrypted_content":
            if not signed:
                losses.add(f"include[{number}]", "chat completions have no encrypted reasoning", hint=True)
        elif name != LOGPROBS:
            # These add details of hosted tools and of the request's own parts: without either there is nothing to add.
            losses.add(f"include[{number}]", f"chat completions do not return {name}", hint=True)
    most_likely = decoded(asked.get("top_logprobs"), int, "top_logprobs") or 0
    if LOGPROBS not in included and not most_likely:
        return {}
    return {"logprobs": True, **({"top_logprobs": most_likely} if most_likely else {})}
