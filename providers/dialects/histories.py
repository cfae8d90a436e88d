"""How the history of a conversation is adapted to what a provider accepts (``history_rules.py``)."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import msgspec

from providers.dialects.history_rules import PARTS_OF_THOUGHTS, FittedIds, HistoryRules
from providers.dialects.wording import (
    BESIDE_PARTS,
    BOUND_REASON,
    CHANGING_NOTHING,
    LEFT_OUT,
    MARK,
    OF_ANSWER,
    OTHERS_REASON,
    REPEATED,
    SAYS_NOTHING,
    THOUGHTS,
    Fields,
    Loss,
    Wording,
    as_users,
    bound_reasoning,
    is_no_prefix,
    is_string,
    raw_json,
    sealed_data,
)
from providers.refusals import UNREADABLE

_ANY = HistoryRules()
_NO_PARTS = HistoryRules(refused_fields=frozenset({PARTS_OF_THOUGHTS}))
_UNINSTRUCTED = HistoryRules(instructions=False, alternating=True)
SYSTEM_FIRST = "system prompts go first: this one goes into the user's message, in <system> tags"

# A chat conversation.

_Message = dict[str, msgspec.Raw]
_messages_decoder = msgspec.json.Decoder(list[_Message])
_calls_decoder = msgspec.json.Decoder(list[_Message] | None)
_message_decoder = msgspec.json.Decoder(_Message)
_BLANK_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*"(?:\s|\\[nrt])*"')
_BLANK = re.compile(rb'"(?:\s|\\[nrt])*"|null|\[\s*\]')
_TEXTS = frozenset({b'"text"', b'"output_text"'})
_SAYING = ("audio", "function_call", "refusal", "tool_calls")  # fields in which an assistant says something
_parts_decoder = msgspec.json.Decoder(list[_Message])
_NULL = msgspec.Raw(b"null")
_ASSISTANT, _SYSTEM, _TOOL, _USER = b'"assistant"', b'"system"', b'"tool"', b'"user"'
_LISTED = re.compile(rb'"content"\s*:\s*\[')
_INSTRUCTIONS = frozenset({_SYSTEM, b'"developer"'})
_NO_TEXT = b'""'
_THINKING = b'"thinking"'
_NO_PARTS_OF_THOUGHTS = "this provider has no thoughts among the parts of an answer"
_SEALED_ELSEWHERE = "it is sealed reasoning of another API's model"
_OF_FUNCTIONS = frozenset({"arguments", "name"})
_SIGNED = frozenset({"extra_content", "reasoning_details", "thinking_blocks"})
_UNTOLD = frozenset({"annotations", "extra_content", "provider_specific_fields"})  # fields with no meaning elsewhere
_BEFORE = _Message(role=msgspec.Raw(_USER), content=raw_json(LEFT_OUT))
# Stands between a tool's result and a message that cannot be part of the result, where the user may not follow.
_READ = _Message(role=msgspec.Raw(_ASSISTANT), content=msgspec.Raw(b'"I have read the results."'))


def chat_history(fields: Fields, history: HistoryRules) -> Wording:
    """Return a chat completion request with messages as ``history`` wants; anything but a list of objects stays."""
    if history == _ANY:  # nearly all requests: no long prompt is copied for them
        return Wording(fields)
    raw = bytes(fields.get("messages", b""))
    wording = _fitted(fields, raw, history, _Conversation.fit) if _concerns(raw, history) else Wording(fields)
    return _with_called(wording) if history.offers_called and b'"tool_calls"' in raw else wording


def without_system(fields: Fields) -> Wording:
    """Return a chat completion request where the user says the instructions, for models without a system prompt."""
    return chat_history(fields, _UNINSTRUCTED)


def without_parts_of_thoughts(fields: Fields) -> Wording:
    """Return a chat completion request without the thoughts that Mistral has among the parts of answers."""
    return chat_history(fields, _NO_PARTS)


class _Named(msgspec.Struct):
    name: str = ""


class _Function(msgspec.Struct):
    function: _Named | None = None


class _Turn(msgspec.Struct):
    tool_calls: list[_Function] | None = None


_turns_decoder = msgspec.json.Decoder(list[_Turn])
_functions_decoder = msgspec.json.Decoder(list[_Function])


def _with_called(wording: Wording) -> Wording:
    """Return a chat completion request that offers its own functions, and those that its conversation has called."""
    fields = wording.fields
    try:
        offered = [each.function.name for each in _functions_decoder.decode(fields["tools"]) if each.function]
        calls = [each for turn in _turns_decoder.decode(fields["messages"]) for each in turn.tool_calls or ()]
    except (*UNREADABLE, KeyError):
        return wording
    called = [each.function.name for each in calls if each.function]
    return offering(wording, offered, called, lambda function: {"type": "function", "function": function})


def offering(wording: Wording, offered: Sequence[str], called: Sequence[str], tool: Callable[[Any], Any]) -> Wording:
    """Return a request that also offers the functions that were ``called``, if it has ``offered`` other functions.

    ``tool``: makes a tool of a function's name and parameters.

    Raises:
        msgspec.DecodeError: the tools are no list.

    """
    missing = [name for name in dict.fromkeys(called) if name and name not in offered]
    if not offered or not missing:
        return wording
    parameters = {"type": "object", "properties": {}}
    tools = msgspec.json.decode(wording.fields["tools"], type=list[msgspec.Raw])
    added = [tool({"name": name, "parameters": parameters}) for name in missing]
    loss = Loss("tools", _CALLED_BEFORE, hint=True)
    return Wording({**wording.fields, "tools": raw_json([*tools, *added])}, (*wording.losses, loss))


_CALLED_BEFORE = "this provider needs the tools that were called before, so they are offered again"


def messages_history(fields: Fields, history: HistoryRules) -> Wording:
    """Return a Messages request with system prompts among its messages as the user's texts, if ``history`` says so.

    Claude Code sends system prompts among the messages, and templates of people's own servers refuse them there. If the
    server demands thoughts, a turn that calls tools gets a thought, unless the model is not to think. A document of
    plain text becomes a text if the server has no documents. Blank texts are left out if the server refuses them.
    """
    raw = bytes(fields.get("messages", b""))
    if (form := history.call_ids.get("messages")) is not None and b'"tool_use"' in raw:
        fields = _with_ids_of_blocks(fields, raw, FittedIds(form))
        raw = bytes(fields["messages"])
    steps = []
    if not history.blank_turns and _ASSISTANT in raw:
        steps.append(_Conversation.leave_out_blanks)
    if history.moves_system and _SYSTEM in raw:
        steps.append(_Conversation.fit_system)
    if not history.documents and any(kind in raw for kind in _DOCUMENTS):
        steps.append(_Conversation.fit_documents)
    calls = history.missing_reasoning is not None and b'"tool_use"' in raw
    if calls and b'"disabled"' not in bytes(fields.get("thinking", b"")):
        steps.append(_Conversation.fit_thoughts)
    if history.plain_blocks and _LISTED.search(raw) is not None:
        steps.append(_Conversation.fit_texts)
    if not (steps or history.plain_blocks):
        return Wording(fields)

    def fit(conversation: _Conversation) -> None:
        for step in steps:
            step(conversation)

    wording = _fitted(fields, raw, history, fit) if steps else Wording(fields)
    return _with_plain_system(wording) if history.plain_blocks and "system" in fields else wording


def _with_plain_system(wording: Wording) -> Wording:
    """Return a Messages request with its system prompt as one text."""
    losses, said = [*wording.losses], wording.fields["system"]
    try:
        system = _as_one_text(said, "system", losses)
    except (*UNREADABLE, KeyError):  # the provider reports the error
        return wording
    return wording if system is said else Wording({**wording.fields, "system": system}, tuple(losses))


_IDS_OF_BLOCKS = {b'"tool_use"': "id", b'"tool_result"': "tool_use_id"}


def _with_ids_of_blocks(fields: Fields, raw: bytes, ids: FittedIds) -> Fields:
    """Return a Messages request with the ids of its calls and their results in the form of ``ids``."""
    changed = False
    try:
        messages = _messages_decoder.decode(raw)
        for message in messages:
            content = message.get("content", _NULL)
            blocks, are_other = [] if is_string(content) else _parts_decoder.decode(content), False
            for block in blocks:
                name = _IDS_OF_BLOCKS.get(bytes(block.get("type", _NULL)), "")
                if name in block and (fitted := ids.raw(block[name])) is not block[name]:
                    block[name], are_other = fitted, True
            if are_other:
                message["content"], changed = raw_json(blocks), True
    except UNREADABLE:  # the provider reports the error
        return fields
    return {**fields, "messages": raw_json(messages)} if changed else fields


def _fitted(fields: Fields, raw: bytes, history: HistoryRules, fit: "Callable[[_Conversation], None]") -> Wording:
    """Return a request whose messages, ``raw``, are changed by ``fit``."""
    try:
        conversation = _Conversation(_messages_decoder.decode(raw), history)
        fit(conversation)
    except UNREADABLE:
        return Wording(fields)
    if not conversation.changed:
        return Wording(fields)
    messages = [message for _, message in conversation.messages]
    return Wording({**fields, "messages": raw_json(messages)}, tuple(conversation.losses))


def _concerns(raw: bytes, history: HistoryRules) -> bool:
    has_tools = _TOOL in raw or b'"tool_calls"' in raw
    return (
        history.alternating
        or ((history.user_first or not history.answers_in_a_row) and _ASSISTANT in raw)
        or (has_tools and ("chat" in history.call_ids or history.missing_reasoning is not None))
        or (has_tools and not history.user_after_tool)
        or (not history.blank_turns and (_ASSISTANT in raw or _NO_TEXT in raw))
        or (not history.named_turns and b'"name"' in raw)
        or (history.assistant_fields is not None and _ASSISTANT in raw)
        or (
            bool(history.refused_fields)
            and _ASSISTANT in raw
            and _fields_of(history.refused_fields).search(raw) is not None
        )
        or ((history.one_system or not history.instructions) and any(role in raw for role in _INSTRUCTIONS))
        or (not history.blank_arguments and _BLANK_ARGUMENTS.search(raw) is not None)
        or (history.plain_texts and _LISTED.search(raw) is not None)
        or (not history.null_contents and _ASSISTANT in raw)
    )


def stands(names: frozenset[str], fields: Fields) -> bool:
    """Whether a chat completion request may have a field of these ``names``.

    A name is looked for in an assistant's turn. A path begins with where to look, the messages or the tools:
    ``tools.async``. ``*.cache_control`` is looked for in both.
    """
    of_turns, of_messages, of_tools = _looked_for(names)
    raw = bytes(fields.get("messages", b""))
    name = of_turns if _ASSISTANT in raw else of_messages
    return (name is not None and name.search(raw) is not None) or (
        of_tools is not None and "tools" in fields and of_tools.search(fields["tools"]) is not None
    )


@cache
def _looked_for(names: frozenset[str]) -> tuple[re.Pattern[bytes] | None, ...]:
    """Return the patterns of a field in the messages, in messages without an assistant's turn, and in the tools."""
    paths = {(path.partition(".")[0], path.rpartition(".")[2]) for path in names if "." in path}
    of_messages = {name for top, name in paths if top != "tools"}
    of_tools = {name for top, name in paths if top != "messages"}
    each = (of_messages | {name for name in names if "." not in name}, of_messages, of_tools)
    return tuple(_fields_of(frozenset(searched)) if searched else None for searched in each)


@cache
def _fields_of(names: frozenset[str]) -> re.Pattern[bytes]:
    # By first letters: at each quote a search compares only the first letters, however many names begin with one.
    by_first = groupby(sorted(names), key=lambda name: name[0])
    kinds = (f"{first}(?:{'|'.join(re.escape(name[1:]) for name in each)})" for first, each in by_first)
    return re.compile(f'"(?:{"|".join(kinds)})"'.encode())


def without_bound_reasoning(fields: Fields, of: frozenset[bytes] | None = None) -> Wording:
    """Return a chat completion request without signed or encrypted reasoning, nor the reasoning in words beside it.

    ``of``: only pieces that have one of these hashes.
    """
    reason = BOUND_REASON if of is None else OTHERS_REASON
    try:
        messages = _messages_decoder.decode(fields.get("messages", b""))
        losses = list[Loss]()
        for number, message in enumerate(messages):
            calls = _calls_decoder.decode(message.get("tool_calls", _NULL)) or []
            for path, holder in [("", message), *((f".tool_calls[{place}]", call) for place, call in enumerate(calls))]:
                signed = sorted(_SIGNED & holder.keys())
                if of is not None and of.isdisjoint(bound_reasoning(b",".join(bytes(holder[name]) for name in signed))):
                    continue
                losses += [
                    Loss(f"messages[{number}]{path}.{name}", reason, hint=True)
                    for name in signed
                    if bytes(holder.pop(name)) not in SAYS_NOTHING
                ]
            if calls:
                message["tool_calls"] = raw_json(calls)
    except UNREADABLE:
        return Wording(fields)
    return Wording({**fields, "messages": raw_json(messages)}, tuple(losses)) if losses else Wording(fields)


def without_sealed(fields: Fields) -> Wording:
    """Return a chat completion request without what the gateway has sealed: no vendor of chat has made such texts.

    Other details of thoughts stay.
    """
    losses = list[Loss]()
    try:
        messages = _messages_decoder.decode(fields.get("messages", b""))
        for number, message in enumerate(messages):
            for name in ("reasoning_details", "thinking_blocks"):
                entries = _calls_decoder.decode(message.get(name, _NULL)) or []
                kept = [each for each in entries if not sealed_data(each)]
                if len(kept) == len(entries):
                    continue
                losses.append(Loss(f"messages[{number}].{name}", _SEALED_ELSEWHERE, hint=True))
                del message[name]
                if kept:
                    message[name] = raw_json(kept)
    except UNREADABLE:
        return Wording(fields)
    return Wording({**fields, "messages": raw_json(messages)}, tuple(losses)) if losses else Wording(fields)


_NO_REASONING = "this provider demands the reasoning before a tool call, and there is none: a placeholder is sent"


class _Conversation:
    """Messages, each with its number in the request (for losses; -1: the gateway added it)."""

    def __init__(self, messages: list[_Message], history: HistoryRules) -> None:
        self.messages = list(enumerate(messages))
        self.changed = False
        self.losses: list[Loss] = []
        self._history = history
        form = history.call_ids.get("chat")
        self._ids = FittedIds(form) if form is not None else None

    def fit(self) -> None:
        """Adapt all messages.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: a message is not valid in chat.

        """
        history = self._history
        if PARTS_OF_THOUGHTS in history.refused_fields:
            self._leave_out_parts_of_thoughts()
        if not history.blank_turns:
            self.leave_out_blanks()
        if history.one_system or not history.instructions:
            self.messages = list(self._with_one_system())
        for number, message in self.messages:
            self._fit_turn(number, message)
        if history.user_first:
            self._begin_with_user()
        if not history.user_after_tool:
            self.messages = list(self._without_users_after_tools())
        if history.alternating or not history.answers_in_a_row:
            self.messages = list(self._alternating())
        if history.plain_texts or not history.null_contents:
            self._fit_contents(history)

    def _leave_out_parts_of_thoughts(self) -> None:
        """Leave thoughts out of the parts of answers. An answer of thoughts alone keeps its calls, or becomes blank."""
        for number, message in self.messages:
            content = message.get("content", _NULL)
            if _role(message) != _ASSISTANT or bytes(memoryview(content)[:1]) != b"[":
                continue
            parts = _parts_decoder.decode(content)
            kept = [part for part in parts if bytes(part.get("type", _NULL)) != _THINKING]
            if len(kept) == len(parts):
                continue
            self.losses += [
                Loss(f"messages[{number}].content[{at}]", _NO_PARTS_OF_THOUGHTS, hint=True)
                for at, part in enumerate(parts)
                if bytes(part.get("type", _NULL)) == _THINKING
            ]
            nothing = _NULL if "tool_calls" in message else msgspec.Raw(_NO_TEXT)
            self._set(message, "content", raw_json(kept) if kept else nothing)

    def _fit_contents(self, history: HistoryRules) -> None:
        for number, message in self.messages:
            parts = message.get("content", _NULL)
            if not history.null_contents and parts == _NULL and _role(message) == _ASSISTANT:
                self._set(message, "content", msgspec.Raw(_NO_TEXT))
            elif history.plain_texts:
                self._set(message, "content", _as_one_text(parts, f"messages[{number}].content", self.losses))

    def _begin_with_user(self) -> None:
        place = next((at for at, (_, each) in enumerate(self.messages) if _role(each) not in _INSTRUCTIONS), None)
        if place is not None and _role(self.messages[place][1]) == _ASSISTANT:
            self.messages.insert(place, (-1, dict(_BEFORE)))
            self.changed = True

    def _set(self, message: _Message, name: str, value: msgspec.Raw) -> None:
        if value is not message.get(name):
            message[name] = value
            self.changed = True

    def _fit_turn(self, number: int, message: _Message) -> None:
        if (role := _role(message)) == _ASSISTANT:
            self._fit_assistant(number, message)
        elif self._ids is not None and "tool_call_id" in message:
            self._set(message, "tool_call_id", self._ids.raw(message["tool_call_id"]))
        elif not self._history.named_turns and "name" in message and role != _TOOL:
            self._leave_out(number, message, ["name"])

    def _fit_assistant(self, number: int, message: _Message) -> None:
        history = self._history
        self._leave_out(number, message, _refused(message, history.assistant_fields, history))
        if history.assistant_fields is not None:
            self._leave_out_repeated(number, message)
        calls = _calls_decoder.decode(message.get("tool_calls", _NULL)) or []
        if not calls:
            return
        changed = False
        for call in calls:
            if self._ids is not None and "id" in call and (fitted := self._ids.raw(call["id"])) is not call["id"]:
                call["id"], changed = fitted, True
            for name in _refused(call, history.call_fields, history):
                del call[name]
                changed = True
            if (written := _fitted_function(call.get("function", _NULL), history)) is not None:
                call["function"], changed = written, True
        if changed:
            self._set(message, "tool_calls", raw_json(calls))
        placeholder = history.missing_reasoning
        if placeholder is not None and bytes(message.get("reasoning_content", _NULL)) == b"null":
            self._set(message, "reasoning_content", raw_json(placeholder))
            self.losses.append(Loss(f"messages[{number}].reasoning_content", _NO_REASONING, hint=True))

    def _leave_out(self, number: int, message: _Message, names: Sequence[str]) -> None:
        for name in names:
            value = message.pop(name)
            self.changed = True
            if name == "refusal" and bytes(value) not in SAYS_NOTHING:  # a refusal is the answer of the assistant
                message["content"] = _joined(message.get("content", _NULL), value)
            elif name not in _UNTOLD and bytes(value) not in SAYS_NOTHING and not is_no_prefix(name, value):
                reason = "this provider refuses reasoning of others" if name in THOUGHTS else "this provider refuses it"
                self.losses.append(Loss(f"messages[{number}].{name}", reason, hint=name in THOUGHTS))

    def _leave_out_repeated(self, number: int, message: _Message) -> None:
        """Leave the fields of the message out of the parts of an answer: OpenAI's SDK for agents repeats them there."""
        content = message.get("content", _NULL)
        if is_string(content) or _fields_of(OF_ANSWER).search(content) is None:
            return
        parts = _parts_decoder.decode(content)
        for at, part in enumerate(parts):
            for name in sorted(part.keys() & OF_ANSWER):
                if bytes(part.get("type", _NULL)) == f'"{name}"'.encode():  # a refusal is the part's own text
                    continue
                if bytes(part.pop(name)) not in SAYS_NOTHING and name not in BESIDE_PARTS:
                    self.losses.append(Loss(f"messages[{number}].content[{at}].{name}", REPEATED, hint=True))
        self._set(message, "content", raw_json(parts))

    def fit_system(self) -> None:
        """Move each system prompt into the user's messages, except the first.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: a message is not valid.

        """
        kept = list[tuple[int, _Message]]()
        for number, message in self.messages:
            is_system = _role(message) == _SYSTEM
            if is_system and "output_config" in message:
                self.losses.append(Loss(f"messages[{number}].output_config", SYSTEM_FIRST, hint=True))
            told = self._as_users(number, message) if is_system else (number, message)
            # Instructions without words change only how hard to think, or the tools.
            if not is_system or bytes(told[1]["content"]) not in SAYS_NOTHING:
                kept.append(told)
        self.messages = kept

    def leave_out_blanks(self) -> None:
        """Leave out blank turns of the assistant, blank texts in these turns, and blank instructions.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: a turn is not valid.

        """
        self.messages, losses = without_blanks(self.messages, "messages")
        self.changed |= bool(losses)
        self.losses += losses

    def fit_documents(self) -> None:
        """Make a text of each document of plain text, and of each text that was found, also in results of tools.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: a message is not valid.

        """
        for number, message in self.messages:
            content = message.get("content", _NULL)
            if any(kind in bytes(content) for kind in _DOCUMENTS) and not is_string(content):
                self._set(message, "content", self._without_documents(content, f"messages[{number}].content"))

    def _without_documents(self, content: msgspec.Raw, at: str) -> msgspec.Raw:
        blocks = _parts_decoder.decode(content)
        for number, block in enumerate(blocks):
            kind, place = bytes(block.get("type", _NULL)), f"{at}[{number}]"
            inner = block.get("content", _NULL)
            if kind in _DOCUMENTS and (text := _text_of(block)) is not None:
                mark = {MARK: block[MARK]} if MARK in block else {}
                blocks[number] = {"type": msgspec.Raw(b'"text"'), "text": text, **mark}
                self.losses.append(Loss(f"{place}.type", _AS_TEXT, hint=True))
                if b"true" in bytes(block.get("citations", _NULL)):
                    self.losses.append(Loss(f"{place}.citations", _NO_DOCUMENTS))
            elif kind in _DOCUMENTS:
                self.losses.append(Loss(place, _NO_DOCUMENTS, kept=True))
            elif kind == b'"tool_result"' and bytes(memoryview(inner)[:1]) == b"[":
                block["content"] = self._without_documents(inner, f"{place}.content")
        return raw_json(blocks)

    def fit_texts(self) -> None:
        """Make one text of each list of texts, in turns of Messages and in results of tools.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: a message is not valid.

        """
        for number, message in self.messages:
            at = f"messages[{number}].content"
            content = _as_one_text(message.get("content", _NULL), at, self.losses)
            if b'"tool_result"' in bytes(content) and not is_string(content):
                blocks = _parts_decoder.decode(content)
                for place, block in enumerate(blocks):
                    if "content" in block:
                        block["content"] = _as_one_text(block["content"], f"{at}[{place}].content", self.losses)
                content = raw_json(blocks)
            self._set(message, "content", content)

    def fit_thoughts(self) -> None:
        """Begin each turn of Messages that calls tools with a thought.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: a message is not valid.

        """
        for number, message in self.messages:
            content = message.get("content", _NULL)
            if _role(message) != _ASSISTANT or is_string(content):
                continue
            blocks = _parts_decoder.decode(content)
            kinds = {bytes(block.get("type", _NULL)) for block in blocks}
            if b'"tool_use"' in kinds and b'"thinking"' not in kinds:
                thought = {"type": "thinking", "thinking": self._history.missing_reasoning, "signature": ""}
                self._set(message, "content", raw_json([thought, *blocks]))
                self.losses.append(Loss(f"messages[{number}].content", _NO_REASONING, hint=True))

    def _as_users(self, number: int, message: _Message) -> tuple[int, _Message]:
        self.changed = True
        self.losses.append(Loss(f"messages[{number}].role", SYSTEM_FIRST, hint=True))
        return number, {"role": msgspec.Raw(_USER), "content": tagged(message.get("content", _NULL))}

    def _with_one_system(self) -> Iterator[tuple[int, _Message]]:
        """Yield the messages: the first instructions as one if there may be any, others in the user's messages."""
        first: _Message | None = None
        said = not self._history.instructions
        for number, message in self.messages:
            if _role(message) not in _INSTRUCTIONS:
                said = True
                yield number, message
            elif said:
                yield self._as_users(number, message)
            elif first is None:
                first = message
                if _role(message) != _SYSTEM:
                    self._set(message, "role", msgspec.Raw(_SYSTEM))
                yield number, message
            else:
                self._set(first, "content", _joined(first.get("content", _NULL), message.get("content", _NULL)))

    def _without_users_after_tools(self) -> Iterator[tuple[int, _Message]]:
        """Yield the messages; a text of the user's after a tool's result goes to the end of that result.

        The last of several texts in a row stays the user's. Programs first comment on the result, then ask (Codex
        comments that a command was stopped). Models do not answer a question within a tool's result.
        """
        before: _Message = {}
        has_joined = False
        roles = [_role(message) for _, message in self.messages]
        for (number, message), role, after in zip(self.messages, roles, [*roles[1:], None], strict=True):
            if _role(before) == _TOOL and role not in {_TOOL, _ASSISTANT}:
                self.changed = True
                is_told = role == _USER and _is_text(message.get("content", _NULL))
                if is_told and (after == _USER or not has_joined):
                    before["content"] = _joined(before.get("content", _NULL), message["content"])
                    has_joined = True
                    continue
                yield -1, _READ
            before, has_joined = message, False
            yield number, message

    def _alternating(self) -> Iterator[tuple[int, _Message]]:
        """Yield the messages; consecutive messages of the assistant, and if need be of the user, are joined."""
        before: _Message = {}
        for number, message in self.messages:
            role = _role(message)
            if role == _role(before) and self._is_joined(role, before, message):
                self._set(before, "content", _joined(before.get("content", _NULL), message.get("content", _NULL)))
                before.update({name: value for name, value in message.items() if name not in _OF_TURNS})
                self.changed = True
                continue
            before = message
            yield number, message

    def _is_joined(self, role: bytes, before: _Message, message: _Message) -> bool:
        """Whether two messages of one role become one. A call joins an answer only where it may not stand alone."""
        if role == _USER:
            return self._history.alternating
        if role != _ASSISTANT or not before.keys().isdisjoint({"function_call", "tool_calls"}):
            return False
        both = before.keys() | message.keys() if self._history.answers_in_a_row else before.keys() & message.keys()
        return both <= _OF_TURNS


_OF_TURNS = frozenset({"content", "role"})
_Turns = list[tuple[int, _Message]]


def without_blanks(turns: _Turns, prompt: str) -> tuple[_Turns, list[Loss]]:
    """Return turns, each with its number in ``prompt``, without blank texts of the assistant and blank instructions.

    Programs keep such turns and texts of answers that broke off, and send an empty system prompt where a user has none.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: a turn of the assistant, or an instruction, is not
            valid.

    """
    kept, losses = _Turns(), list[Loss]()
    for number, turn in turns:
        role = _role(turn)
        left = _without_blank_texts(turn) if role == _ASSISTANT or role in _INSTRUCTIONS else turn
        if left is not turn:
            losses.append(Loss(f"{prompt}[{number}]", _NO_BLANKS, hint=True))
        if left is not None:
            kept.append((number, left))
    return kept, losses


def _without_blank_texts(message: _Message) -> _Message | None:
    """Return a turn without its blank texts, unchanged if it has none; None: the whole turn is blank."""
    content = message.get("content", _NULL)
    if _BLANK.fullmatch(content) is not None:
        return message if any(bytes(message.get(name, _NULL)) not in SAYS_NOTHING for name in _SAYING) else None
    if is_string(content):
        return message
    parts = _parts_decoder.decode(content)
    left = [
        part
        for part in parts
        if bytes(part.get("type", _NULL)) not in _TEXTS or not _BLANK.fullmatch(part.get("text", _NULL))
    ]
    if len(left) == len(parts):
        return message
    without = {**message, "content": raw_json(left)}
    return without if left else _without_blank_texts(without | {"content": _NULL})


def _refused(given: _Message, known: frozenset[str] | None, history: HistoryRules) -> list[str]:
    """Return the fields of a message or a call that a provider refuses; ``known``: the only fields that it takes."""
    return [name for name in given if name in history.refused_fields or (known is not None and name not in known)]


def _fitted_function(function: msgspec.Raw, history: HistoryRules) -> msgspec.Raw | None:
    """Return a call's function with arguments, without what a provider refuses; None: the function stays as it is.

    Blank arguments are no JSON. Models send blank arguments to a function without parameters, and clients send them
    back. Servers that parse them refuse the request (labring/FastGPT/issues/5497 on github.com, of vLLM, read on
    2026-11-27). ``{}`` is the same call. LiteLLM adds ``provider_specific_fields`` to functions as to calls
    (litellm/litellm_core_utils/prompt_templates/factory.py, read on 2026-11-30).
    """
    is_blank = _BLANK_ARGUMENTS.search(function) is not None
    known = None if history.call_fields is None else _OF_FUNCTIONS
    is_refused = bool(history.refused_fields) and _fields_of(history.refused_fields).search(function) is not None
    if not (is_blank or is_refused or (known is not None and bytes(function) != b"null")):
        return None
    said = _message_decoder.decode(function)
    refused = {*_refused(said, known, history)}
    left = {name: each for name, each in said.items() if name not in refused}
    arguments = said.get("arguments", _NULL)
    if is_blank and is_string(arguments) and not msgspec.json.decode(arguments, type=str).strip():
        left["arguments"] = msgspec.Raw(b'"{}"')
    return None if left == said else raw_json(left)


def _as_one_text(content: msgspec.Raw, path: str, losses: list[Loss]) -> msgspec.Raw:
    """Return a list of texts as one text, and add the texts' marks to ``losses``; any other content stays."""
    if bytes(memoryview(content)[:1]) != b"[" or not _is_text(content) or not (texts := _parts(content)):
        return content
    marks = sorted({name for part in texts for name in part} & CHANGING_NOTHING.keys())
    losses += [Loss(f"{path}.{each}", CHANGING_NOTHING[each], hint=True) for each in marks]
    return raw_json("\n\n".join(msgspec.json.decode(part["text"], type=str) for part in texts if "text" in part))


def _joined(first: msgspec.Raw, second: msgspec.Raw) -> msgspec.Raw:
    """Return two contents as one: texts with a blank line between, else the parts of both."""
    if bytes(first) in SAYS_NOTHING or bytes(second) in SAYS_NOTHING:
        return second if bytes(first) in SAYS_NOTHING else first
    if is_string(first) and is_string(second):
        before, after = (msgspec.json.decode(each, type=str) for each in (first, second))
        return raw_json(f"{before}\n\n{after}")
    return raw_json([*_parts(first), *_parts(second)])


def _parts(content: msgspec.Raw) -> list[_Message]:
    if is_string(content):
        return [{"type": msgspec.Raw(b'"text"'), "text": content}]
    return _parts_decoder.decode(content)


def tagged(content: msgspec.Raw) -> msgspec.Raw:
    """Return instructions as the user's text, in <system> tags."""
    if is_string(content):
        return raw_json(as_users(msgspec.json.decode(content, type=str)))
    parts = [] if bytes(content) in SAYS_NOTHING else _parts_decoder.decode(content)
    for part in parts:
        if "text" in part:
            part["text"] = raw_json(as_users(msgspec.json.decode(part["text"], type=str)))
    return raw_json(parts)


_NO_BLANKS = "this provider takes no turn, nor a text in one, that says nothing"
_DOCUMENTS = (b'"document"', b'"search_result"')
_NO_DOCUMENTS = "this provider has no documents"
_AS_TEXT = "this provider has no documents: it is sent as a text"


def _text_of(document: _Message) -> msgspec.Raw | None:
    """Return the words of a document, behind its title and context; None: the document is no plain text."""
    names, source = ("title", "context"), document.get("source", _NULL)
    is_found = is_string(source)  # a text that a search has found has a text as source
    held = document if is_found else _message_decoder.decode(source)
    kind, inner = bytes(held.get("type", _NULL)), held.get("content", _NULL)
    if kind == b'"text"':
        said = [held["data"]] if "data" in held else []
    elif (is_found or kind == b'"content"') and (is_string(inner) or _is_text(inner)):
        said = [part["text"] for part in _parts(inner) if "text" in part]
        names = ("title", "source") if is_found else names
    else:
        return None
    texts = [msgspec.json.decode(document.get(name, _NULL), type=str | None) for name in names]
    texts += [msgspec.json.decode(each, type=str) for each in said]
    return raw_json("\n\n".join(text for text in texts if text))


def _role(message: _Message) -> bytes:
    return bytes(message.get("role", b""))


def _is_text(content: msgspec.Raw) -> bool:
    return all(bytes(part.get("type", _NULL)) == b'"text"' for part in _parts(content))
