"""Reads a Converse request of a client as one of Messages, which have nearly all that Converse has.

The fields are those of botocore 1.44.8's description of the service (bedrock-runtime 2023-09-30), read on 2026-11-30.
Fields that a Claude takes beside them (``additionalModelRequestFields``) are fields of Messages already.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.references import of_converse
from providers.dialects.reading import Object
from providers.dialects.wording import Fields, Malformed, raw_json

_MEDIA_TYPES: Mapping[str, str] = {
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pdf": "application/pdf",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_TEXTS = frozenset({"csv", "html", "md", "txt"})
# The name in early guides (docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-extended-thinking.html), and
# the name that OpenAI's models at Bedrock take.
_THINKING, _EFFORT = "reasoning_config", "reasoning_effort"
_PLACE, _FILE = "document_index", "file_id"  # the places of a citation; only answers have the second
# Fields of a call that change no answer: what the logs may be searched by, and how the model is run.
_UNASKED = ("requestMetadata", "performanceConfig")


class _Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    """A structure of the service's: other fields are refused, as botocore refuses them."""


class _Text(_Strict):
    text: str


class _Source(_Strict):
    bytes: str | None = None  # Base64
    text: str | None = None
    content: tuple[_Text, ...] | None = None
    s3_location: msgspec.Raw = msgspec.Raw()


class _Image(_Strict):
    format: str
    source: _Source


class _Citing(_Strict):
    enabled: bool


class _Document(_Strict):
    name: str
    source: _Source
    format: str = "txt"
    context: str | None = None
    citations: _Citing | None = None


class _SearchResult(_Strict):
    source: str
    title: str
    content: tuple[_Text, ...]
    citations: _Citing | None = None


class _CachePoint(_Strict):
    type: str
    ttl: str | None = None


class _ReasoningText(_Strict):
    text: str
    signature: str = ""


class _Reasoning(_Strict):
    reasoning_text: _ReasoningText | None = None
    redacted_content: str | None = None


class _ToolUse(_Strict):
    tool_use_id: str
    name: str
    input: msgspec.Raw
    type: str | None = None


class _Result(_Strict):
    text: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    image: _Image | None = None
    document: _Document | None = None
    search_result: _SearchResult | None = None


class _ToolResult(_Strict):
    tool_use_id: str
    content: tuple[_Result, ...]
    status: str | None = None
    type: str | None = None


class _CitedText(_Strict):
    content: tuple[_Text, ...] = ()
    citations: tuple[dict[str, Any], ...] = ()


class _GuardedText(_Strict):
    text: str
    qualifiers: tuple[str, ...] = ()


class _Guarded(_Strict):
    text: _GuardedText | None = None
    image: _Image | None = None


class _Block(_Strict):
    text: str | None = None
    image: _Image | None = None
    document: _Document | None = None
    search_result: _SearchResult | None = None
    tool_use: _ToolUse | None = None
    tool_result: _ToolResult | None = None
    guard_content: _Guarded | None = None
    cache_point: _CachePoint | None = None
    reasoning_content: _Reasoning | None = None
    citations_content: _CitedText | None = None


class _Message(_Strict):
    role: str
    content: tuple[_Block, ...]


class _Schema(_Strict):
    json: msgspec.Raw


class _ToolSpec(_Strict):
    name: str
    input_schema: _Schema
    description: str | None = None
    strict: bool | None = None


class _Tool(_Strict):
    tool_spec: _ToolSpec | None = None
    cache_point: _CachePoint | None = None


class _Named(_Strict):
    name: str


class _Choice(_Strict):
    auto: dict[str, Any] | None = None
    any: dict[str, Any] | None = None
    tool: _Named | None = None


class _Tools(_Strict):
    tools: tuple[_Tool, ...]
    tool_choice: _Choice | None = None


class _Inference(_Strict):
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] | None = None


class _JsonSchema(_Strict):
    schema: str  # a string that contains JSON
    name: str | None = None
    description: str | None = None


class _Structure(_Strict):
    json_schema: _JsonSchema


class _TextFormat(_Strict):
    type: str
    structure: _Structure


class _Output(_Strict):
    text_format: _TextFormat | None = None
    effort: str | None = None


class _Tier(_Strict):
    type: str


class _Request(_Strict):
    messages: tuple[_Message, ...] = ()
    system: tuple[_Block, ...] = ()
    inference_config: _Inference | None = None
    tool_config: _Tools | None = None
    output_config: _Output | None = None
    service_tier: _Tier | None = None
    additional_model_request_fields: dict[str, msgspec.Raw] | None = None
    additional_model_response_field_paths: tuple[str, ...] = ()
    request_metadata: dict[str, str] | None = None
    performance_config: msgspec.Raw = msgspec.Raw()


class AskedInConverse(msgspec.Struct, frozen=True):
    """A request as one of Messages, without its model."""

    fields: Fields
    is_limited: bool = True  # the request limits the answer's length
    paths: Sequence[str] = ()  # the model's own fields that the client wants in the answer
    ignored: Sequence[str] = ()  # fields of the request without effect


def messages_of_converse(fields: Fields, max_tokens: int) -> AskedInConverse:
    """Return a Converse request as one of Messages; ``max_tokens``: the answer's limit if the request sets none.

    Raises:
        Malformed: the request is not valid in Converse, or has parts for which Messages have no place (files in S3,
            guardrails).

    """
    try:
        asked = msgspec.json.decode(raw_json(fields), type=_Request)
        said = _said(asked, max_tokens)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"this is no request of Converse that this gateway can answer: {error}") from None
    ignored = tuple(name for name in _UNASKED if name in fields)
    raw = {name: value if isinstance(value, msgspec.Raw) else raw_json(value) for name, value in said.items()}
    is_limited = asked.inference_config is not None and asked.inference_config.max_tokens is not None
    return AskedInConverse(raw, is_limited, asked.additional_model_response_field_paths, ignored)


def _said(asked: _Request, max_tokens: int) -> dict[str, Any]:
    inference, own = asked.inference_config or _Inference(), dict(asked.additional_model_request_fields or {})
    said: dict[str, Any] = {"max_tokens": inference.max_tokens or max_tokens}
    if system := _blocks(asked.system, "system"):
        said["system"] = system
    turns: list[Object] = []
    for number, message in enumerate(asked.messages):
        before = turns[-1]["content"] if turns else ()
        if blocks := _blocks(message.content, f"messages[{number}].content", before):
            turns.append({"role": message.role, "content": blocks})
    said["messages"] = turns
    for name in ("temperature", "top_p", "stop_sequences"):
        if (value := getattr(inference, name)) is not None:
            said[name] = value
    if asked.service_tier is not None and asked.service_tier.type != "default":
        said["service_tier"] = asked.service_tier.type
    said |= _tools(asked.tool_config, own)
    if config := _output(asked.output_config or _Output(), own):
        said["output_config"] = config
    if _THINKING in own:
        own["thinking"] = own.pop(_THINKING)
    return said | own


def _tools(config: _Tools | None, own: dict[str, msgspec.Raw]) -> Object:
    """Return the offered tools, with Anthropic's tools in ``own``, which Converse lacks; remove these there."""
    tools = [] if config is None else _offered(config.tools)
    tools += msgspec.json.decode(own.pop("tools", b"[]"), type=list[Any])
    said: Object = {"tools": tools} if tools else {}
    if config is not None and config.tool_choice is not None:
        said["tool_choice"] = _chosen(config.tool_choice)
    return said


def _output(config: _Output, own: dict[str, msgspec.Raw]) -> Object:
    """Return the fields for the answer's form; such fields in ``own`` are removed there."""
    said: Object = {} if config.effort is None else {"effort": config.effort}
    if _EFFORT in own:
        said["effort"] = own.pop(_EFFORT)
    if (form := config.text_format) is not None:
        schema = msgspec.json.decode(form.structure.json_schema.schema, type=dict[str, msgspec.Raw])
        said["format"] = {"type": form.type, "schema": schema}
    return said | msgspec.json.decode(own.pop("output_config", b"{}"), type=dict[str, msgspec.Raw])


def _blocks(given: Sequence[_Block], at: str, before: Sequence[Object] = ()) -> list[Object]:
    """Return blocks of Messages; ``before``: the blocks of the turn before, of which the last may get a mark."""
    blocks: list[Object] = []
    for number, block in enumerate(given):
        if block.cache_point is not None:
            _mark((blocks or before)[-1:], block.cache_point)
        else:
            blocks.append(_block(block, f"{at}[{number}]"))
    return blocks


def _mark(last: Sequence[Object], point: _CachePoint) -> None:
    for block in last:
        block["cache_control"] = {"type": "ephemeral"} | ({} if point.ttl is None else {"ttl": point.ttl})


def _block(block: _Block, at: str) -> Object:
    if (call := block.tool_use) is not None:
        said: Object = {"type": "tool_use", "id": call.tool_use_id, "name": call.name, "input": call.input}
    elif (result := block.tool_result) is not None:
        error = {"is_error": True} if result.status == "error" else {}
        content = [_shown(each, f"{at}.toolResult.content[{number}]") for number, each in enumerate(result.content)]
        said = {"type": "tool_result", "tool_use_id": result.tool_use_id, "content": content, **error}
    elif (thought := block.reasoning_content) is not None:
        said = _thought(thought)
    elif (cited := block.citations_content) is not None:
        said = _cited(cited)
    elif (guarded := block.guard_content) is not None:  # the model reads this text; no guardrail looks at it
        text = None if guarded.text is None else guarded.text.text
        said = _shown(_Result(text=text, image=guarded.image), f"{at}.guardContent")
    else:
        own = _Result(text=block.text, image=block.image, document=block.document, search_result=block.search_result)
        said = _shown(own, at)
    return said


def _thought(thought: _Reasoning) -> Object:
    if (own := thought.reasoning_text) is not None:
        return {"type": "thinking", "thinking": own.text, "signature": own.signature}
    return {"type": "redacted_thinking", "data": _data(thought.redacted_content or "")}


def _data(blob: str) -> str:
    """Return a sealed thought of Messages. A thought that Bedrock itself has sealed is no text in Base64, and stays."""
    try:
        data = base64.b64decode(blob, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return blob
    return data if data.isprintable() else blob


def _cited(cited: _CitedText) -> Object:
    found = [place for each in cited.citations for place in of_converse(each) if _PLACE in place]
    places = [{name: value for name, value in each.items() if name != _FILE} for each in found]
    text = "".join(piece.text for piece in cited.content)
    return {"type": "text", "text": text} | ({"citations": places} if places else {})


def _shown(block: _Result, at: str) -> Object:
    """Return a block that a turn may have, and a tool's result too."""
    if block.text is not None:
        return {"type": "text", "text": block.text}
    if bytes(block.json):
        return {"type": "text", "text": bytes(block.json).decode()}
    if (image := block.image) is not None:
        kind = "jpeg" if image.format == "jpg" else image.format
        source = {"type": "base64", "media_type": f"image/{kind}", "data": _bytes(image.source, f"{at}.image")}
        return {"type": "image", "source": source}
    if block.document is not None:
        return _document(block.document, f"{at}.document")
    if (found := block.search_result) is not None:
        content = [{"type": "text", "text": each.text} for each in found.content]
        told: Object = {"type": "search_result", "source": found.source, "title": found.title, "content": content}
        return told | _citing(found.citations)
    raise Malformed(f"{at} is of no kind that this gateway knows", at)


def _document(document: _Document, at: str) -> Object:
    source, kind = document.source, document.format
    if source.content is not None:
        told: Object = {"type": "content", "content": [{"type": "text", "text": each.text} for each in source.content]}
    elif source.text is not None or kind in _TEXTS:
        text = source.text if source.text is not None else _text(_bytes(source, at), at)
        told = {"type": "text", "media_type": "text/plain", "data": text}
    elif kind in _MEDIA_TYPES:
        told = {"type": "base64", "media_type": _MEDIA_TYPES[kind], "data": _bytes(source, at)}
    else:
        raise Malformed(f"{at}.format: Converse has no {kind!r}", f"{at}.format")
    own = {"title": document.name} | ({} if document.context is None else {"context": document.context})
    return {"type": "document", "source": told, **own, **_citing(document.citations)}


def _citing(asked: _Citing | None) -> Object:
    return {} if asked is None else {"citations": {"enabled": asked.enabled}}


def _bytes(source: _Source, at: str) -> str:
    if source.bytes is None:
        raise Malformed(f"{at}.source: this gateway reads no files in S3: send them as bytes", f"{at}.source")
    return source.bytes


def _text(data: str, at: str) -> str:
    try:
        return base64.b64decode(data).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Malformed(f"{at}.source.bytes is no text in UTF-8", f"{at}.source.bytes") from None


def _offered(given: Sequence[_Tool]) -> list[Object]:
    tools: list[Object] = []
    for tool in given:
        if tool.cache_point is not None:
            _mark(tools[-1:], tool.cache_point)
        elif (spec := tool.tool_spec) is not None:
            more = {name: value for name in ("description", "strict") if (value := getattr(spec, name)) is not None}
            tools.append({"name": spec.name, "input_schema": spec.input_schema.json, **more})
    return tools


def _chosen(choice: _Choice) -> Object:
    if choice.tool is not None:
        return {"type": "tool", "name": choice.tool.name}
    return {"type": "auto" if choice.any is None else "any"}
