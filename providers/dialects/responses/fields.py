"""What both directions of translation need of a Responses request and of its answer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.meanings import CODES, Details
from providers.dialects.reading import RawObject, each_at, needed_at
from providers.dialects.responses.built_in import BUILT_IN, BuiltIn, built_in
from providers.dialects.wording import REDACTED, SIGNED, Losses, Malformed, decoded, flat_name, raw_json
from providers.models import Usage, usage_of
from providers.refusals import ErrorKind, UpstreamError, error_in

# The least ``max_output_tokens``: "integer below minimum value. Expected a value >= 16", as reported in
# vectorize-io/hindsight/issues/58 and farion1231/cc-switch/pull/7287, read on 2026-11-29.
LEAST_TOKENS = 16
# Fields of any object that change no answer. Their reason is that of all other fields without a counterpart.
CHANGING_NOTHING = {"cache_control": "", "extra_content": ""}

# The tokens of a response, in the fields of Responses and of chat completions.

_IN_CHAT = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
}
_IN_RESPONSES = {chat: responses for responses, chat in _IN_CHAT.items()}


def usage_of_response(reported: Mapping[str, Any], tier: object = None) -> Usage:
    """Read the ``usage`` of a response; the names of chat completions are accepted too."""
    return usage_of(chat_usage(reported), tier)


def flat(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation in flat form; chat nests its fields in an object named by its type."""
    inner = annotation.get(str(annotation.get("type")))
    return {"type": annotation.get("type"), **inner} if isinstance(inner, dict) else annotation


def chat_usage(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``usage`` of a response in the fields of a chat completion."""
    return {_IN_CHAT.get(name, name): value for name, value in reported.items()}


def responses_usage(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``usage`` of a chat completion in the fields of a response; missing counts are 0."""
    counts = usage_of(reported)
    total = (counts.prompt_tokens or 0) + (counts.completion_tokens or 0)
    said = {_IN_RESPONSES.get(name, name): value for name, value in reported.items()}
    ins, outs = (_details(said.get(name)) for name in ("input_tokens_details", "output_tokens_details"))
    ins |= {"cached_tokens": counts.cached_tokens or 0, "cache_write_tokens": counts.cache_write_tokens or 0}
    outs |= {"reasoning_tokens": counts.reasoning_tokens or 0}
    return said | {
        "input_tokens": counts.prompt_tokens or 0,
        "input_tokens_details": ins,
        "output_tokens": counts.completion_tokens or 0,
        "output_tokens_details": outs,
        "total_tokens": total,
    }


def _details(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


# Thoughts that a model of Anthropic's has signed or encrypted, as a reasoning item. The thought's text is the item's
# text. What only the maker can read is the encrypted content, after a word for the kind of the block.


def encrypted_of(block: Mapping[str, Any]) -> str | None:
    """Return the encrypted content for such a block of thinking; None: the block is of another kind."""
    kind = block.get("type")
    bound = block.get("signature" if kind == SIGNED else "data")
    return f"{kind}:{bound}" if kind in {SIGNED, REDACTED} and isinstance(bound, str) and bound else None


def thinking_of(encrypted: msgspec.Raw | None, text: str) -> dict[str, Any] | None:
    """Return the block of thinking, with this ``text``, from such encrypted content; None: the content is another's."""
    kind, _, bound = (decoded(encrypted, str, "encrypted_content") or "").partition(":")
    if not bound or kind not in {SIGNED, REDACTED}:
        return None
    return {"type": kind, "data": bound} if kind == REDACTED else {"type": kind, "thinking": text, "signature": bound}


# Tools that the input of a request adds to ``tools`` (Codex may send all tools that way), and tools that a search among
# deferred tools has found.

_ADDED, _FOUND = b'"additional_tools"', b'"tool_search_output"'


def all_tools(asked: Mapping[str, msgspec.Raw]) -> msgspec.Raw | None:
    """Return the tools of a request, with tools that the input adds and tools that searches have found.

    A tool that is offered already is not added again.

    Raises:
        Malformed: the tools are not lists of objects.

    """
    raw, given = asked.get("tools"), asked.get("input", msgspec.Raw(b"null"))
    added, found = tools_of_items(given)
    if not added and not found:
        return raw
    told = [tool for tools in found for tool in decoded(tools, list[msgspec.Raw], "input") or ()]
    own = [*(decoded(raw, list[msgspec.Raw], "tools") or ()), *added]
    known = set(map(bytes, own))
    return raw_json([*own, *(tool for each, tool in {bytes(tool): tool for tool in told}.items() if each not in known)])


def with_added_tools(asked: Mapping[str, msgspec.Raw]) -> Mapping[str, msgspec.Raw]:
    """Return the fields of a request, with the tools that the input adds; unchanged if the input adds none."""
    try:
        tools = all_tools(asked)
    except Malformed:
        return asked
    return asked if tools is None or tools is asked.get("tools") else {**asked, "tools": tools}


def tools_of_items(given: msgspec.Raw) -> tuple[list[msgspec.Raw], list[msgspec.Raw]]:
    """Return the tools that an ``input`` adds, and the lists of tools that its searches have found.

    Raises:
        Malformed: the added tools are not a list.

    """
    said = bytes(given)
    added: list[msgspec.Raw] = []
    found: list[msgspec.Raw] = []
    if _ADDED not in said and _FOUND not in said:
        return added, found
    for path, item in each_at(given, "input"):
        kind, tools = item.get("type"), item.get("tools")
        if kind == msgspec.Raw(_ADDED):
            added += decoded(tools, list[msgspec.Raw], f"{path}.tools") or ()
        elif kind == msgspec.Raw(_FOUND) and tools is not None:
            found.append(tools)
    return added, found


# A search among deferred tools. Other APIs offer all tools at once; a search that the client runs is a function there.


def is_clients(item: RawObject) -> bool:
    """Whether a tool, a call or a result belongs to a search that the client runs."""
    return item.get("execution") == _CLIENT


_CLIENT = msgspec.Raw(b'"client"')

# Tools in namespaces. Chat completions have no namespaces: there a namespace becomes a part of the tool's name.

_NAMESPACE = msgspec.Raw(b'"namespace"')
_CUSTOM, _FUNCTION = b'"custom"', b'"function"'


def opened(raw: msgspec.Raw | None, losses: Losses) -> list[tuple[str, RawObject]]:
    """Return a request's tools, those inside namespaces too, with their paths and their names in chat.

    The description of a namespace goes before the description of the namespace's first tool.

    Raises:
        Malformed: a namespace lacks its name or its tools.

    """
    said: list[tuple[str, RawObject]] = []
    for path, tool in each_at(raw, "tools"):
        if tool.get("type") != _NAMESPACE:
            said.append((path, tool))
            continue
        namespace = decoded(needed_at(tool, "name", path), str, f"{path}.name")
        about = decoded(tool.get("description"), str, f"{path}.description")
        for at, inner in each_at(needed_at(tool, "tools", path), f"{path}.tools"):
            name = decoded(needed_at(inner, "name", at), str, f"{at}.name")
            named = {**inner, "name": raw_json(flat_name(namespace, name))}
            if about:
                own = decoded(inner.get("description"), str, f"{at}.description")
                named["description"] = raw_json(f"{own or name}\n\nAll {namespace} tools: {about}")
                about = None
            said.append((at, named))
        known = ("type", "name", "description", "tools")
        losses.rest(tool, known, path, "chat completions have no such field in a tool")
    return said


def names_of(raw: msgspec.Raw | None) -> Mapping[str, tuple[str, str] | BuiltIn]:
    """Return by chat's name each tool whose name differs in chat.

    A tool in a namespace has the namespace's name and its own as value. A built-in tool that the client runs has its
    ``BuiltIn``.
    """
    names: dict[str, tuple[str, str] | BuiltIn] = {}
    for tool in decoded(raw, list[dict[str, Any]], "tools") or ():
        if tool.get("type") == "namespace":
            namespace = str(tool.get("name"))
            own = [str(inner.get("name")) for inner in tool.get("tools") or ()]
            names |= {flat_name(namespace, name): (namespace, name) for name in own}
        elif tool.get("type") in BUILT_IN and (found := built_in(tool)) is not None:
            names[found.name] = found
    return names


def custom_names(asked: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """Return the names in chat of tools that take a text, without names that a function has too."""
    try:
        raw = all_tools(asked)
        if raw is None or _CUSTOM not in bytes(raw):
            return frozenset()
        by_kind: dict[object, set[str]] = {}
        for _, tool in opened(raw, Losses()):
            name = decoded(tool.get("name"), str, "tools")
            by_kind.setdefault(bytes(tool.get("type", b"")), set()).add(name)
    except Malformed:
        return frozenset()
    return frozenset(by_kind.get(_CUSTOM, set()) - by_kind.get(_FUNCTION, set()))


# Not within a text, where quotes are escaped. Stored items are not looked into: only Responses can name them.
_OTHER_TOOL = re.compile(
    rb'"type"\s*:\s*"(?:additional_tools|apply_patch|computer|computer_use_preview|custom|local_shell|namespace|shell'
    rb'|tool_search|compaction(?:_trigger)?|configuration_update|(?:file_search|image_generation)(?=_call))(?:_tool)?(?:_call)?"'
)
_STORED = ("previous_response_id", "conversation", "prompt")


def has_other_tools(asked: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a request has its whole conversation, and tools or items of OpenAI's agents alone, no functions."""
    if any(bytes(asked.get(name, b"null")) != b"null" for name in _STORED):
        return False
    return any(_OTHER_TOOL.search(asked[name]) is not None for name in ("tools", "input") if name in asked)


def called_name(item: RawObject, path: str) -> msgspec.Raw:
    """Read the name of the tool in an earlier call, as in chat.

    Raises:
        Malformed: the call has no name.

    """
    name = needed_at(item, "name", path)
    namespace = decoded(item.get("namespace"), str, f"{path}.namespace")
    if not namespace:
        return name
    return raw_json(flat_name(namespace, decoded(name, str, f"{path}.name")))


# The errors of a Responses stream, and the event of an error at which every SDK raises.

_NUMBER = re.compile(rb'(?<!\\)"sequence_number" ?: ?(\d{1,18})\b')  # not within a text, where quotes are escaped


def upstream_error(error: Mapping[str, Any], secrets: Sequence[str]) -> UpstreamError:
    """Return a provider's error object as an ``UpstreamError``; an unknown code is a stream_error."""
    return error_in(msgspec.json.encode({"error": error}), secrets, otherwise=ErrorKind.STREAM_ERROR)


# Codes of answers that break off without an error of their provider's. When a connection breaks, programs ask again by
# Node's codes ("ECONNRESET"), and look for these codes here, too: opencode (1.18.33, in its program), and Qwen Code
# (packages/core/src/core/stream-transport-retry.ts of https://github.com/QwenLM/qwen-code, in 0.24.4). After the first
# text Qwen Code asks again by no other code. Read on 2026-11-30.
_CODES_OF_KIND: Mapping[str, str] = {
    ErrorKind.DISCONNECTED: "ECONNRESET",
    ErrorKind.UPSTREAM_TRUNCATED: "ECONNRESET",
    ErrorKind.STALL_TIMEOUT: "ETIMEDOUT",
    ErrorKind.TOTAL_TIMEOUT: "ETIMEDOUT",
    ErrorKind.INVALID_RESPONSE: "server_error",
}


def failure(kind: str, message: str, _: Details = (), __: str | None = None) -> bytes:
    """Return the event of an error. The code and the message stand in it twice: at the top level, and in ``error``.

    The API documents the first form and sends the second; OpenAI's SDKs raise only at the second. Codex looks only in
    ``response.failed`` for the codes after which it continues (codex-rs/codex-api/src/sse/responses.rs).
    """
    facts = {"code": _CODES_OF_KIND.get(kind, kind), "message": message, "param": None}
    event = {"type": "error", "sequence_number": 0, **facts, "error": {"type": "upstream_error", **facts}}
    told = b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
    if kind not in CODES:
        return told
    response = {"object": "response", "status": "failed", "output": [], "error": {"code": kind, "message": message}}
    failed = {"type": "response.failed", "sequence_number": 1, "response": response}
    return told + b"event: response.failed\ndata: " + msgspec.json.encode(failed) + b"\n\n"


def numbered(failure: bytes, before: bytes) -> bytes:
    """Return the event of an error with the number that follows the last number in the events ``before`` the error."""
    numbers = _NUMBER.findall(before)
    return (
        failure.replace(b'"sequence_number":0', b'"sequence_number":%d' % (int(numbers[-1]) + 1), 1)
        if numbers
        else failure
    )


# Writes the typed events of a Responses stream, with their sequence numbers.


class EventWriter:
    """Events that were written and not taken yet. ``number``: of the first of these events."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._written: list[bytes] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        data = msgspec.json.encode({"type": kind, "sequence_number": self._number, **fields})
        if b"\n" in data or b"\r" in data:  # raw JSON may be pretty-printed; an event's data is one line
            data = msgspec.json.format(data, indent=-1)
        self._written.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))
        self._number += 1

    def skip(self, count: int) -> None:
        """Leave out ``count`` numbers: the events with these numbers are written elsewhere."""
        self._number += count

    def take(self) -> bytes:
        """Return the events that were written since the last call."""
        written = b"".join(self._written)
        self._written.clear()
        return written
