"""Translates a conversation of Messages to chat: blocks of turns become messages."""

import base64
from collections.abc import Mapping, Sequence

import msgspec

from providers.dialects.messages.fields import OF_DOCUMENT, signed_thought
from providers.dialects.messages.toolsets import function_name
from providers.dialects.reading import Object, RawObject, object_at, objects_at, present, raw_text_at, said_of, text_at
from providers.dialects.wording import (
    GOOGLE,
    MARK,
    NOT_SIGNED,
    OF_CALL,
    REDACTED,
    SEALED,
    SEE_BELOW,
    SHOWN_LATER,
    SIGNED,
    Fields,
    HistoryCalls,
    Losses,
    Malformed,
    as_error,
    as_summary,
    decoded,
    extra_content,
    googles,
    is_null,
    is_string,
    one_text,
    raw_json,
    results_first,
    short_name,
    shown,
    shows_results,
    signer_of,
)

_NO_BLOCK = "chat has no such block"
_OF_CLIENTS = frozenset({"image", "document", "search_result", "container_upload"})  # in a turn of the assistant
_OWN_THOUGHTS = "chat has no earlier thinking blocks: only the model that wrote them can use them"
_NO_FIELD = "chat has no such field"
A_BILL = "it is Claude Code's billing note for Anthropic; it changes each time, which would prevent caching"
A_BILLS_BEGIN = b'"x-anthropic-billing-header:'


def conversation(
    asked: Mapping[str, msgspec.Raw], losses: Losses, *, thoughts: bool, signed: str = ""
) -> tuple[list[Object], "InstructedChanges | None"]:
    """Return the chat messages for ``system`` and ``messages``, and the changes that instructions within them make.

    ``thoughts``: with earlier thinking as text. ``signed``: with the thinking that this vendor has signed, for this
    vendor.

    Raises:
        Malformed: ``system`` or ``messages`` are not valid in Messages.

    """
    said: list[Object] = []
    if "system" in asked and (system := _texts(asked["system"], "system", losses)):
        said.append(losses.places.put({"role": "system", "content": system}, "system"))
    turns = objects_at(asked.get("messages"), "messages")
    if not turns:
        raise Malformed("messages: at least one message is required", "messages")
    calls = HistoryCalls(elsewhere="thread" in asked)
    role, changes, before = "", None, 0
    for number, turn in enumerate(turns):
        path = f"messages[{number}]"
        role = text_at(turn, "role", path)
        if role == "system":
            changes = changes or InstructedChanges()
            said += _instructions(turn, path, losses, changes, at_once=_is_new(turns[before], before))
            continue
        before = number
        losses.rest(turn, ("role", "content"), path, _NO_FIELD)
        if role == "user":
            said += _history_to_chat_user(turn, path, losses, calls)
            if changes is not None and _is_new(turn, number):
                changes.begin()
        elif role == "assistant":
            said += _assistant(turn, path, losses, calls, said, thoughts=thoughts, signed=signed)
        else:
            raise Malformed(f"'{path}.role' must be 'user', 'assistant' or 'system'", f"{path}.role")
    if role == "assistant":
        losses.add(f"messages[{len(turns) - 1}]", "chat answers an assistant's last message, and does not continue it")
    return [message for _, message in results_first(said)], changes


class InstructedChanges:
    """What instructions within a conversation change from there on: how hard to think, and which tools are offered."""

    def __init__(self) -> None:
        self.effort: str | None = None
        self._later: str | None = None  # the tools that came later, by name, each with its path
        self.defined: dict[str, tuple[str, RawObject]] = {}  # by name, the tools that came later, each with its path
        self.removed: set[str] = set()

    def think(self, effort: str, *, at_once: bool) -> None:
        """Note how hard to think: in the answer to the turn before, or from the user's next turn with new input on."""
        self._later = effort
        if at_once:
            self.begin()

    def begin(self) -> None:
        """Begin a turn of the user with new input."""
        self.effort, self._later = self._later or self.effort, None

    def offered(self, tools: Sequence[RawObject]) -> tuple[list[RawObject], dict[int, str]]:
        """Return the tools that a request offers at the end of its conversation, and by their numbers their places."""
        given: dict[str, tuple[str, RawObject]] = {}
        for number, tool in enumerate(tools):
            path = f"tools[{number}]"
            given[decoded(tool.get("name"), str, f"{path}.name") or path] = path, tool
        left = [each for name, each in (given | self.defined).items() if name not in self.removed]
        return [tool for _, tool in left], {number: path for number, (path, _) in enumerate(left)}


# platform.claude.com/docs/en/build-with-claude/effort-per-message and …/mid-conversation-system-messages, read on
# 2026-11-29: an effort holds until another effort is stated, and so does a change of the tools. Directly after a turn
# of the user with new input, an effort is for the answer to that turn. Anywhere else an effort holds from the user's
# next turn with new input on. Results of tools alone are no new input.
_CHANGES = frozenset({"tool_addition", "tool_removal"})
_STAYS = "chat has no instructions for one turn alone: they stay in the conversation"


def _is_new(turn: RawObject, number: int) -> bool:
    """Whether a turn is the user's, and more than results of tools."""
    if bytes(turn["role"]) != b'"user"':
        return False
    content, at = turn["content"], f"messages[{number}].content"
    return is_string(content) or any(kind != "tool_result" for _, kind, _ in _blocks(content, at))


def _instructions(
    turn: RawObject, path: str, losses: Losses, changes: InstructedChanges, *, at_once: bool
) -> list[Object]:
    """Return instructions among the turns as a message; nothing, if they only change an effort or the tools.

    ``at_once``: the instructions stand behind new input of the user.
    """
    losses.rest(turn, ("role", "content", "clear_at", "output_config"), path, _NO_FIELD)
    losses.lose(turn, "clear_at", path, _STAYS, b"null", b'"never"', hint=True)
    config = object_at(turn.get("output_config"), f"{path}.output_config")
    if (effort := decoded(config.get("effort"), str, f"{path}.output_config.effort")) is not None:
        changes.think(effort, at_once=at_once)
    losses.rest(config, ("effort",), f"{path}.output_config", _NO_FIELD)
    text = _texts(turn.get("content"), f"{path}.content", losses, changes)
    if not text and (config or bytes(turn.get("content", b"[]")) != b"[]"):
        return []
    return [losses.places.put({"role": "system", "content": text}, path)]


def _change_tools(block: RawObject, kind: str, at: str, losses: Losses, changes: InstructedChanges) -> None:
    """Note that a tool is offered from here on, or no longer; a change of a tool that is not the client's is a loss."""
    tool = object_at(block.get("tool"), f"{at}.tool")
    told = text_at(tool, "type", f"{at}.tool")
    if told == "tool_definition":
        definition = object_at(tool.get("definition"), f"{at}.tool.definition")
        name = decoded(definition.get("name"), str, f"{at}.tool.definition.name") or at
        changes.defined[name] = f"{at}.tool.definition", definition
    elif told == "tool_reference":
        name = text_at(tool, "name", f"{at}.tool")
    else:
        losses.add(at, _NO_BLOCK)
        return
    if kind == "tool_removal":
        changes.removed.add(name)
    else:
        changes.removed.discard(name)


def with_tools_changed(fields: Fields) -> Fields:
    """Return a request whose instructions change no tools: it offers the tools of the conversation's end.

    Raises:
        Malformed: the request is not valid.

    """
    losses, changes = Losses(), InstructedChanges()
    turns = [dict(turn) for turn in objects_at(fields.get("messages"), "messages")]
    for turn in turns:
        content = turn.get("content")
        if bytes(turn.get("role", b"")) != b'"system"' or content is None or is_string(content):
            continue
        left = []
        for at, kind, block in _blocks(content, "messages"):
            if kind in _CHANGES:
                _change_tools(block, kind, at, losses, changes)
            else:
                left.append(block)
        turn["content"] = raw_json(left)
    tools, _ = changes.offered(objects_at(fields.get("tools"), "tools"))
    return {**fields, "messages": raw_json(turns), "tools": raw_json(tools)}


def _summarize(block: RawObject, at: str, said: list[Object], losses: Losses) -> bool:
    """Put a summary in place of the messages ``said`` before it, as Claude does; return whether it could be read.

    A summary that only Claude can read is left out: a loss, where the client has nothing else of the conversation.
    platform.claude.com/docs/en/build-with-claude/compaction-background, read on 2026-11-29.
    """
    is_begun = bool(said) and said[0]["role"] == "system"
    if text := decoded(block.get("content"), str, f"{at}.content"):
        said[is_begun:] = [losses.places.put({"role": "user", "content": as_summary(text)}, at)]
    elif "encrypted_content" in block:
        losses.add(at, "only Claude can read this summary", hint=len(said) > is_begun)
    return bool(text)


def _history_to_chat_user(turn: RawObject, path: str, losses: Losses, calls: HistoryCalls) -> list[Object]:
    """Return a message for each tool result, then the user's message."""
    content = turn.get("content")
    if content is None or is_null(content):
        raise Malformed(f"{path}.content: Field required", f"{path}.content")
    if is_string(content):
        return [losses.places.put({"role": "user", "content": content}, path)]
    said: list[Object] = []
    shown_by_tools: list[Object] = []
    parts: list[Object] = []
    places: list[str] = []
    for at, kind, block in _blocks(content, f"{path}.content"):
        if kind == "tool_result":
            calls.answer(text_at(block, "tool_use_id", at), f"{at}.tool_use_id")
            said.append(losses.places.put(_tool_message(block, at, losses, shown_by_tools), at))
        else:
            parts += _parts(block, kind, at, losses)
            places += [at] * (len(parts) - len(places))
    if parts := shown_by_tools + parts:
        places = [path] * len(shown_by_tools) + places
        whole = places[0] if len(parts) == 1 else path
        said.append(losses.places.put({"role": "user", "content": _content(parts)}, whole, places))
    return said


class _Thinking:
    """The thinking of one turn that is kept."""

    def __init__(self, losses: Losses, *, thoughts: bool, signed: str) -> None:
        self._losses, self._thoughts, self._signed = losses, thoughts, signed
        self._texts: list[str] = []
        self._blocks: list[Object] = []
        self._unsigned: list[str] = []  # the places of text that no vendor has signed
        self._googles: Object = {}
        self._of_call: Object = {}

    def add(self, kind: str, block: RawObject, at: str) -> None:
        if self._signed == signer_of(block) and (own := signed_thought(block, self._signed)) is not None:
            self._blocks.append(own)
        elif self._signed == GOOGLE and (sealed := googles(block.get("signature")))[1]:
            if sealed[0] == OF_CALL:
                self._of_call = extra_content(sealed[1])
            else:
                self._googles = extra_content(sealed[1])
        elif self._thoughts and kind == SIGNED:
            self._texts.append(text_at(block, "thinking", at))
        elif self._signed == SEALED and kind == SIGNED and bytes(block.get("signature", b'""')) in NOT_SIGNED:
            self._unsigned.append(at)
        else:
            self._losses.add(at, _OWN_THOUGHTS, hint=True)

    def fields(self) -> Object:
        """Return the fields of the turn's message in chat. Text beside sealed blocks is no loss: blocks have it."""
        for at in () if self._blocks else self._unsigned:
            self._losses.add(at, _OWN_THOUGHTS, hint=True)
        self._unsigned.clear()
        text = "".join(self._texts)
        said: Object = {"reasoning_content": text, "thinking_blocks": self._blocks, **self._googles}
        return {name: value for name, value in said.items() if value}

    def of_call(self) -> Object:
        """Return the field for the next call, which has the signature of the thinking before the call."""
        said, self._of_call = self._of_call, {}
        return said


def _assistant(
    turn: RawObject,
    path: str,
    losses: Losses,
    calls: HistoryCalls,
    before: list[Object],
    *,
    thoughts: bool,
    signed: str,
) -> list[Object]:
    """Return the turn as one message, its texts joined; nothing, if the turn had only thinking.

    A summary in the turn takes the place of the messages ``before`` it.
    """
    content = turn.get("content")
    if content is not None and is_string(content):
        return [losses.places.put({"role": "assistant", "content": content}, path)]
    texts: list[msgspec.Raw] = []
    called: list[Object] = []
    thinking = _Thinking(losses, thoughts=thoughts, signed=signed)
    calls.begin_turn()
    mark: msgspec.Raw | None = None
    for at, kind, block in _blocks(content, f"{path}.content"):
        mark = mark_of(block, losses) or mark
        if kind == "text":
            texts.append(raw_text_at(block, "text", at))
            _lose_citations(block, at, losses)
            losses.rest(block, ("type", "text", "citations"), at, _NO_FIELD)
        elif kind == "tool_use":
            calls.add(text_at(block, "id", at), f"{at}.id")
            called.append(_call(block, at, losses) | thinking.of_call())
        elif kind in {SIGNED, REDACTED}:
            thinking.add(kind, block, at)
        elif kind == "compaction":
            if _summarize(block, at, before, losses):
                texts.clear()
                calls.elsewhere = True
        else:
            losses.add(at, _NO_BLOCK, hint=kind not in _OF_CLIENTS)
            calls.elsewhere = True  # the block may be a call, or stand for calls that were left out
    if not texts and not called:
        if thinking.fields():
            losses.add(f"{path}.content", _OWN_THOUGHTS, hint=True)
        return []
    text = texts[0] if len(texts) == 1 else "".join(msgspec.json.decode(text, type=str) for text in texts) or None
    said = text if mark is None or text is None else [{"type": "text", "text": text, MARK: mark}]
    message: Object = {"role": "assistant", "content": said, **thinking.fields()}
    return [losses.places.put(message | {"tool_calls": called} if called else message, path)]


_ALIKE = "in chat all tools are alike"


def _call(block: RawObject, at: str, losses: Losses) -> Object:
    arguments = block.get("input")
    if arguments is None or bytes(memoryview(arguments)[:1]) != b"{":
        raise Malformed(f"'{at}.input' must be an object", f"{at}.input")
    caller = object_at(block.get("caller"), f"{at}.caller")
    if bytes(caller.get("type", b'"direct"')) != b'"direct"':
        losses.add(f"{at}.caller", "in chat only the model calls tools")
    name = text_at(block, "name", at)
    toolset = decoded(block.get("toolset_name"), str, f"{at}.toolset_name")
    if toolset is not None and (own := function_name(toolset, name)) is not None:
        name = own
    elif toolset is not None:
        losses.add(f"{at}.toolset_name", _ALIKE, hint=True)
    losses.rest(block, ("type", "id", "name", "input", "caller", "toolset_name"), at, _NO_FIELD)
    function = {"name": short_name(name), "arguments": bytes(arguments).decode()}
    return {"id": raw_text_at(block, "id", at), "type": "function", "function": function}


def _tool_message(block: RawObject, at: str, losses: Losses, shown_by_tools: list[Object]) -> Object:
    """Return a tool's result as a message, and add its parts that are not text to ``shown_by_tools``.

    Chat has no flag for a failed tool, so the text begins with "Error".
    """
    call_id = raw_text_at(block, "tool_use_id", at)
    content = block.get("content")
    parts: list[Object] = []
    mark = mark_of(block, losses)
    if is_string(content):
        parts = [{"type": "text", "text": content}]
    else:
        for inner, kind, item in _blocks(content, f"{at}.content"):
            for part in _parts(item, kind, inner, losses):
                mark = part.pop(MARK, mark)
                if part["type"] == "text" or shows_results(losses):
                    parts.append(part)
                else:
                    losses.add(inner, SHOWN_LATER, hint=True)
                    shown_by = text_at(block, "tool_use_id", at)
                    shown_by_tools += [{"type": "text", "text": shown(shown_by)}, part]
                    parts.append({"type": "text", "text": SEE_BELOW})
    failed = decoded(block.get("is_error"), bool, f"{at}.is_error")
    said: Object = {"role": "tool", "tool_call_id": call_id}
    if failed and "results" in losses.beyond:
        said["is_error"] = True
    elif failed:
        begun = parts[:1] if parts and parts[0]["type"] == "text" else []
        text = decoded(raw_json(begun[0]["text"]), str, f"{at}.content") if begun else ""
        parts[: len(begun)] = [{"type": "text", "text": as_error(text)}]
    toolset = decoded(block.get("toolset_name"), str, f"{at}.toolset_name")
    if toolset is not None and function_name(toolset, "") is None:  # any other toolset is part of the call's name
        losses.add(f"{at}.toolset_name", _ALIKE, hint=True)
    losses.rest(block, ("type", "tool_use_id", "content", "is_error", "toolset_name"), at, _NO_FIELD)
    is_text = all(part["type"] == "text" for part in parts)
    said["content"] = one_text([part["text"] for part in parts]) if is_text else parts
    return said if mark is None else said | {MARK: mark}


def mark_of(block: RawObject, losses: Losses) -> msgspec.Raw | None:
    """Return a block's mark, if marks are kept."""
    mark = block.get(MARK) if losses.keeps_marks else None
    return None if mark is None or is_null(mark) else mark


def _parts(block: RawObject, kind: str, at: str, losses: Losses) -> list[Object]:
    """Return the content parts for a block of a user's turn or of a tool's result; the last part gets the mark."""
    parts = _unmarked(block, kind, at, losses)
    if parts and (mark := mark_of(block, losses)) is not None:
        parts[-1] = parts[-1] | {MARK: mark}
    return parts


def _unmarked(block: RawObject, kind: str, at: str, losses: Losses) -> list[Object]:
    if kind == "text":
        _lose_citations(block, at, losses)
        losses.rest(block, ("type", "text", "citations"), at, _NO_FIELD)
        return [{"type": "text", "text": raw_text_at(block, "text", at)}]
    if kind == "image":
        losses.rest(block, ("type", "source"), at, _NO_FIELD)
        return _image(object_at(block.get("source"), f"{at}.source"), f"{at}.source", losses)
    if kind == "document":
        return _document(block, at, losses)
    text = _in_words(block, kind, at, losses)
    return [] if text is None else [{"type": "text", "text": text}]


def _in_words(block: RawObject, kind: str, at: str, losses: Losses) -> str | None:
    """Return a block that chat lacks as a text; None: the block is lost."""
    if kind == "search_result":
        return _search_result(block, at, losses)
    if kind == "tool_reference":  # a tool that was found: chat has had it from the beginning
        losses.rest(block, ("type", "tool_name"), at, _NO_FIELD)
        return found(short_name(text_at(block, "tool_name", at)))
    if kind == "browser_state":
        losses.rest(block, ("type", "tabs", "state_changes"), at, _NO_FIELD)
        return _browser(block, at)
    losses.add(at, _NO_BLOCK)
    return None


def _browser(block: RawObject, at: str) -> str:
    """Return the state of the client's browser after a call in words, as Anthropic tells it to its models."""
    tabs = decoded(block.get("tabs"), list[_Tab], f"{at}.tabs") or []
    changes = decoded(block.get("state_changes"), list[_BrowserChange], f"{at}.state_changes") or []
    lines = ["Tabs:" if tabs else "No tab is open."]
    lines += [f"- {tab.tab_id}{' (active)' if tab.active else ''}: {tab.title} {tab.url}".rstrip() for tab in tabs]
    for change in changes:
        if change.tab_id:
            lines.append(f"Tab {change.tab_id} was opened.")
            continue
        size = "" if change.size_bytes is None else f"{change.size_bytes} bytes"
        more = ", ".join(filter(None, (change.path, size, change.error)))
        happened = change.type.removeprefix("download_")
        lines.append(f"Download {change.download_id} {happened}: {change.url}{f' ({more})' if more else ''}")
    return "\n".join(lines)


class _Tab(msgspec.Struct):
    tab_id: str
    title: str = ""
    url: str = ""
    active: bool = False


class _BrowserChange(msgspec.Struct):
    type: str
    tab_id: str = ""  # the id of a tab that was opened; other events are of a download
    download_id: str = ""
    url: str = ""
    path: str | None = None
    size_bytes: int | None = None
    error: str | None = None


def found(tool: str) -> str:
    """Return a description of a tool that a search has found, for servers that take words alone."""
    return f"Tool loaded: {tool}"


def _image(source: RawObject, at: str, losses: Losses) -> list[Object]:
    kind = text_at(source, "type", at)
    if kind == "url":
        return [{"type": "image_url", "image_url": {"url": raw_text_at(source, "url", at)}}]
    if kind == "base64":
        return [{"type": "image_url", "image_url": {"url": _data_url(source, at)}}]
    losses.add(at, "chat has no images from Anthropic's Files API")
    return []


def _document(block: RawObject, at: str, losses: Losses) -> list[Object]:
    path = f"{at}.source"
    source = object_at(block.get("source"), path)
    kind = text_at(source, "type", path)
    losses.rest(block, ("type", "source", "citations", "title", "context"), at, _NO_FIELD)
    if "citations" in losses.beyond and kind in {"text", "base64"} and _asks_citations(block, at):
        return [_cited(block, source, kind, at)]
    _lose_citations(block, at, losses)
    parts: list[Object] = []
    if kind == "text":
        parts = [{"type": "text", "text": raw_text_at(source, "data", path)}]
    elif kind == "base64":
        name = decoded(block.get("title"), str, f"{at}.title") or "document.pdf"
        parts = [{"type": "file", "file": {"filename": name, "file_data": _data_url(source, path)}}]
    elif kind == "content" and is_string(source.get("content")):
        parts = [{"type": "text", "text": source["content"]}]
    elif kind == "content":
        for inner, inner_kind, item in _blocks(source.get("content"), f"{path}.content"):
            parts += _parts(item, inner_kind, inner, losses)
    elif kind == "url" and "addresses" in losses.beyond:
        file = {"file_url": raw_text_at(source, "url", path), "filename": block.get("title")}
        parts = [{"type": "file", "file": {name: value for name, value in file.items() if value is not None}}]
    else:
        losses.add(path, "chat has no documents by URL or from Anthropic's Files API")
    if context := decoded(block.get("context"), str, f"{at}.context"):
        losses.add(f"{at}.context", "chat's documents have no context: it is sent as a text", hint=True)
        parts.insert(0, {"type": "text", "text": context})
    is_file = any(part["type"] == "file" for part in parts)  # the file's name is the title
    if not is_file and not is_null(block.get("title", msgspec.Raw(b"null"))):
        losses.add(f"{at}.title", "chat's texts have no titles", hint=True)
    return parts


def _search_result(block: RawObject, at: str, losses: Losses) -> str:
    """Return a text that a search has found, behind its title and its source."""
    _lose_citations(block, at, losses)
    losses.rest(block, ("type", "source", "title", "content", "citations"), at, _NO_FIELD)
    losses.add(f"{at}.type", "chat has no such block: it is sent as a text", hint=True)
    texts = [text_at(block, "title", at), text_at(block, "source", at)]
    texts += [text_at(item, "text", inner) for inner, _, item in _blocks(block.get("content"), f"{at}.content")]
    return "\n\n".join(texts)


def _data_url(source: RawObject, at: str) -> str:
    return f"data:{text_at(source, 'media_type', at)};base64,{text_at(source, 'data', at)}"


def _cited(block: RawObject, source: RawObject, kind: str, at: str) -> Object:
    """Return a document that is to be cited, in the pivot's own field: chat has none."""
    if kind == "text":
        text = base64.b64encode(text_at(source, "data", f"{at}.source").encode()).decode()
        name, data = "document.txt", f"data:text/plain;base64,{text}"
    else:
        name, data = "document.pdf", _data_url(source, f"{at}.source")
    title = decoded(block.get("title"), str, f"{at}.title") or name
    more = said_of(present(block), *OF_DOCUMENT)
    return {"type": "file", "file": {"filename": title, "file_data": data}, **more}


def _asks_citations(block: RawObject, at: str) -> bool:
    asked = block.get("citations")
    if asked is None or bytes(memoryview(asked)[:1]) != b"{":
        return False
    return decoded(object_at(asked, f"{at}.citations").get("enabled"), bool, f"{at}.citations.enabled") is True


def _lose_citations(block: RawObject, at: str, losses: Losses) -> None:
    """Note citations as lost: the citations of earlier answers are a hint, a request for citations is not."""
    asked = block.get("citations")
    if asked is None or bytes(asked) in {b"null", b"[]", b"{}"}:
        return
    if bytes(memoryview(asked)[:1]) == b"[":
        losses.add(f"{at}.citations", "chat has no citations of earlier answers", hint=True)
    elif _asks_citations(block, at):
        losses.add(f"{at}.citations", "chat has no citations")


def _texts(content: msgspec.Raw | None, path: str, losses: Losses, changes: InstructedChanges | None = None) -> object:
    """Return a system prompt, which is text only, as a message's content; among turns it may change tools."""
    if content is not None and is_string(content):
        return content
    parts: list[Object] = []
    for at, kind, block in _blocks(content, path):
        if kind == "text" and is_bill(block.get("text")):
            losses.add(at, A_BILL, hint=True)
        elif kind == "text":
            parts += _parts(block, kind, at, losses)
        elif changes is not None and kind in _CHANGES:
            _change_tools(block, kind, at, losses, changes)
        else:
            losses.add(at, _NO_BLOCK)
    return _content(parts)


def is_bill(text: msgspec.Raw | None) -> bool:
    """Whether a text is only Claude Code's billing line in its system prompt."""
    return (
        text is not None
        and bytes(memoryview(text)[: len(A_BILLS_BEGIN)]) == A_BILLS_BEGIN
        and b"\\n" not in bytes(text)
    )


def _content(parts: Sequence[Object]) -> object:
    """Return parts as a message's content; a single text as a string, which every server accepts."""
    if len(parts) == 1 and parts[0]["type"] == "text" and MARK not in parts[0]:
        return parts[0]["text"]
    return parts


def _blocks(content: msgspec.Raw | None, path: str) -> list[tuple[str, str, RawObject]]:
    """Return the path, the type and the fields of each block."""
    blocks = objects_at(content, path)
    return [(f"{path}[{i}]", text_at(block, "type", f"{path}[{i}]"), block) for i, block in enumerate(blocks)]
