"""The list of raced APIs, each with a dialect. A new API is a file, and a line here."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api import other_shapes
from gateway.api.endpoint import Description, Endpoint
from gateway.api.json_body import CHARS_PER_TOKEN, Contents, Media, decoded, is_set, least
from gateway.api.nulls import SEARCHED_FOR_NULLS, leave_out_nulls
from gateway.api.request import (
    Decoders,
    Needs,
    ParsedRequest,
    StreamFormat,
    decoded_fields,
    needs_of,
    read_common,
    required,
    required_messages,
    required_turns,
)
from gateway.api.resolved_model import IGNORED
from gateway.core.errors import InvalidRequest, ResponseNotFound
from gateway.keys.keys import GOOGLES
from providers import (
    ALSO_BY_CLIENTS,
    BY_CLIENTS,
    BY_CLIENTS_ANYWHERE,
    BY_CLIENTS_IN,
    BY_GOOGLES_CLIENTS,
    has_hosted,
    is_switched_off,
    runs_among,
    runs_there,
)
from providers.dialects import (
    AGENT,
    CHAT,
    COMPLETIONS,
    GEMINI,
    INTERACTIONS,
    JSON_FORMATS,
    MESSAGES,
    RESPONSES,
    Dialect,
    Malformed,
    camel,
    flattened,
    flattened_interaction,
    raw_json,
    tools_of_items,
)

if TYPE_CHECKING:
    from aiohttp import web

# Reads requests for OpenAI's chat completions.

CHAT_MEDIA = Media.of("image_url", "input_audio", "file", text="text|refusal|function|ephemeral")


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Tool(msgspec.Struct):
    type: str | None = None
    name: Any = None  # of a tool in the form of Responses or Messages
    web_search: Any = None  # Zhipu's; it may be switched off
    tools: Any = None  # within the tool


class _ResponseFormat(msgspec.Struct):
    type: str = "text"


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(_StreamOptions | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "response_format": msgspec.json.Decoder(_ResponseFormat | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "max_tokens": msgspec.json.Decoder(float | None),
    "max_completion_tokens": msgspec.json.Decoder(float | None),
    "prompt_cache_key": msgspec.json.Decoder(str | None),
}


def read_chat(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a chat completion.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    lost: list[str] = []
    if "messages" not in fields and is_set(fields.get("input")):
        lost += other_shapes.from_responses(fields, contents.values)
    messages = required_messages(fields)
    if contents.has_nulls and contents.size <= SEARCHED_FOR_NULLS:
        texts = bytes(messages) + bytes(fields.get("tools", b""))
        if b'":null' in texts or b'": null' in texts:
            leave_out_nulls(fields)
            messages = fields["messages"]
    value_of = decoded_fields(fields, _DECODERS).get
    tools = value_of("tools") or ()
    if tools and any(tool.name is not None and (tool.type is None or tool.type in BY_CLIENTS) for tool in tools):
        lost += other_shapes.with_chat_tools(fields, contents.values)
        messages = fields["messages"]
    options, answer = value_of("stream_options"), value_of("response_format")
    return ParsedRequest(
        dialect=CHAT,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs_of(
            messages,
            contents,
            CHAT_MEDIA,
            max_tokens=least(value_of("max_tokens"), value_of("max_completion_tokens")),
            tools=bool(tools),
            json_schema=answer is not None and answer.type == "json_schema",
        ),
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        wants_usage=bool(options and options.include_usage),
        stateful=bool(value_of("store") or value_of("background")) or _acts(fields, tools),
        nests=bool(tools) and any(tool.tools for tool in tools),
        for_program=bool(tools) or (answer is not None and answer.type in JSON_FORMATS),
        cache_key=value_of("prompt_cache_key"),
        response_headers={IGNORED: ", ".join(lost)} if lost else {},
    )


def _acts(fields: Mapping[str, msgspec.Raw], tools: Iterable[_Tool]) -> bool:
    """Whether the provider is asked to do more than answer, or to continue something that it has stored."""
    if ("previous_response_id" in fields and is_set(fields["previous_response_id"])) or runs_there(fields):
        return True
    if not tools:
        return False
    if any(
        tool.type is not None
        and tool.type not in BY_CLIENTS
        and (tool.web_search is None or not is_switched_off(tool.web_search))
        for tool in tools
    ):
        return True
    # Programs that know Google's tools (``googleSearch``) send them unchanged, in any API.
    return any(tool.type is None for tool in tools) and runs_among(fields["tools"])


_DESCRIPTION = Description(
    id="createChatCompletion",
    summary="OpenAI's chat completions",
    prompt={"type": "array", "minItems": 1, "items": {"type": "object"}},
    example={"messages": [{"role": "user", "content": "Say hello."}], "stream": True},
    answer="ChatCompletion",
    events="Events of `chat.completion.chunk`, then `data: [DONE]`.",
)

CHAT_ENDPOINT = Endpoint(
    dialect=CHAT,
    read=read_chat,
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=CHAT_MEDIA,
)


# Reads requests for OpenAI's older completions: a raw prompt that the model continues.

_COMPLETIONS_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(_StreamOptions | None),
    "max_tokens": msgspec.json.Decoder(float | None),
}


def read_completion(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a completion.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    required(fields, "prompt", "a string, or an array of strings or tokens")
    value_of = decoded_fields(fields, _COMPLETIONS_DECODERS).get
    options = value_of("stream_options")
    return ParsedRequest(
        dialect=COMPLETIONS,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=Needs(contents.size // CHARS_PER_TOKEN, least(value_of("max_tokens")), inline=True),
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        wants_usage=bool(options and options.include_usage),
        stateful=runs_there(fields),
    )


_COMPLETIONS_DESCRIPTION = Description(
    id="createCompletion",
    summary="OpenAI's older completions of a raw prompt",
    prompt={"type": ["string", "array"], "description": "A string, or an array of strings or tokens."},
    example={"prompt": "Once upon a time", "max_tokens": 40},
    answer="Completion",
    events="Events of `text_completion`, then `data: [DONE]`.",
)

COMPLETIONS_ENDPOINT = Endpoint(
    dialect=COMPLETIONS,
    read=read_completion,
    fields=_COMPLETIONS_DECODERS,
    description=_COMPLETIONS_DESCRIPTION,
)


# Reads requests for Anthropic's Messages.

MESSAGES_MEDIA = Media.of(
    "image", "audio", "document", text="text|tool_use|tool_result|thinking|redacted_thinking|ephemeral"
)


_STATE = ("container", "fallback_credit_token")  # stored by the provider, or paid once
THREAD = "thread"


class _MessagesTool(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    tools: Any = None  # within the tool


class _Thread(msgspec.Struct):
    previous_message_id: str | None = None


class _OutputConfig(msgspec.Struct):
    format: dict[str, msgspec.Raw] | None = None


_MESSAGES_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "max_tokens": msgspec.json.Decoder(float | None),
    "tools": msgspec.json.Decoder(list[_MessagesTool] | None),
    "output_config": msgspec.json.Decoder(_OutputConfig | None),
    "mcp_servers": msgspec.json.Decoder(list[msgspec.Raw] | None),
    "thread": msgspec.json.Decoder(_Thread | None),
}


def read_messages(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a Messages request.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    required(fields, "max_tokens", "the maximum number of tokens in the answer")
    messages = required_messages(fields)
    value_of = decoded_fields(fields, _MESSAGES_DECODERS).get
    tools = value_of("tools") or ()
    config, thread = value_of("output_config"), value_of(THREAD)
    # A request that begins a thread has the whole conversation, so any deployment may answer; a later request has only
    # new messages.
    continues = thread is not None and thread.previous_message_id is not None
    return ParsedRequest(
        dialect=MESSAGES,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs_of(
            messages,
            contents,
            MESSAGES_MEDIA,
            max_tokens=least(value_of("max_tokens")),
            tools=bool(tools),
            json_schema=config is not None and config.format is not None,
        ),
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        stateful=continues
        or bool(value_of("mcp_servers"))
        or any(is_set(fields.get(name)) for name in _STATE)
        or any(map(_is_hosted, tools))
        or (any(not tool.type and tool.name is None for tool in tools) and runs_among(fields["tools"]))
        or runs_there(fields),
        for_program=bool(tools),
        nests=bool(tools) and any(tool.tools for tool in tools),
        converses=THREAD if continues else None,
    )


def _is_hosted(tool: _MessagesTool) -> bool:
    """Whether the provider runs a tool: one that acts, searches or spends. The client runs other tools (``bash``)."""
    # Go's programs send "" for no type.
    return tool.type not in {None, ""} and not str(tool.type).startswith(BY_CLIENTS_ANYWHERE)


_MESSAGES_DESCRIPTION = Description(
    id="createMessage",
    summary="Anthropic's messages",
    prompt={"type": "array", "minItems": 1, "items": {"type": "object"}},
    example={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 100},
    answer="Message",
    events="Anthropic's events, from `message_start` to `message_stop`.",
    required=("max_tokens",),
    error_schema="MessagesError",
)

MESSAGES_ENDPOINT = Endpoint(
    dialect=MESSAGES,
    read=read_messages,
    fields=_MESSAGES_DECODERS,
    description=_MESSAGES_DESCRIPTION,
    media=MESSAGES_MEDIA,
)


# Reads requests for OpenAI's Responses.

RESPONSES_MEDIA = Media.of(
    "input_image|computer_screenshot",
    "input_audio",
    "input_file",
    text="message|(input_|output_|summary_|reasoning_)?text|refusal|reasoning|(custom_tool|function)_call(_output)?",
)
STORE_HEADER = "x-holeshot-store"
_ITEM_ID = re.compile(rb'"id"\s*:')  # an item with only an id stands for a stored item, too

_RESPONSES_CLIENT_TOOLS = BY_CLIENTS | ALSO_BY_CLIENTS
_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")


class _Format(msgspec.Struct):
    type: str = "text"


class _ResponsesTool(msgspec.Struct):
    type: str = "function"
    environment: Any = None
    tools: Any = None  # of a namespace

    @property
    def is_clients(self) -> bool:
        """Whether the client runs the tool."""
        if self.type in _RESPONSES_CLIENT_TOOLS:
            return True
        place = self.environment.get("type") if isinstance(self.environment, dict) else None
        return (self.type, place) in BY_CLIENTS_IN


_responses_tool = msgspec.json.Decoder(_ResponsesTool)


class _Text(msgspec.Struct):
    format: _Format | None = None


_RESPONSES_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "max_output_tokens": msgspec.json.Decoder(float | None),
    "previous_response_id": msgspec.json.Decoder(str | None),
    "prompt_cache_key": msgspec.json.Decoder(str | None),
    "tools": msgspec.json.Decoder(list[_ResponsesTool] | None),
    "text": msgspec.json.Decoder(_Text | None),
}


def read_response(contents: Contents, race_header: str | None, *, store: bool) -> ParsedRequest:
    """Read the body of a Responses request.

    The API's default for ``store`` is true, which would forbid a race. The gateway's default, ``store``, is sent to the
    provider explicitly and reported in a response header; with ``background`` the provider's own default holds. An
    answer that continues something stored at a provider is stored there, too, as the next request may continue it.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    continued = is_set(fields.get("previous_response_id")) or is_set(fields.get("conversation"))
    prompt = fields.get("input", msgspec.Raw(b"[]"))
    if not (continued or is_set(fields.get("prompt"))):
        prompt = required(fields, "input", "a string, or an array of items")
    response_headers = {}
    runs_on = is_set(fields.get("background")) and bytes(fields["background"]).strip() == b"true"
    is_asked = is_set(fields.get("store"))
    if not is_asked and not runs_on:  # in the background it must be stored, as is the API's default
        store = store or continued
        fields["store"] = _TRUE if store else _FALSE
        response_headers[STORE_HEADER] = "true" if store else "false"
    value_of = decoded_fields(fields, _RESPONSES_DECODERS).get
    added, within = _of_items(prompt)
    tools: tuple[_ResponsesTool, ...] = (*(value_of("tools") or ()), *added)
    is_clients = [tool.is_clients for tool in tools]
    within += [tool.tools for tool in tools if tool.tools]
    text = value_of("text")
    format_ = text.format.type if text is not None and text.format is not None else "text"
    stores = bool(value_of("store")) or (runs_on and value_of("store") is None)
    needs = needs_of(
        prompt,
        contents,
        RESPONSES_MEDIA,
        max_tokens=least(value_of("max_output_tokens")),
        tools=any(is_clients),
        json_schema=format_ == "json_schema",
    )
    if "prompt" in fields:  # a reference to a prompt that the provider stores
        needs = msgspec.structs.replace(needs, inline=False)
    return ParsedRequest(
        dialect=RESPONSES,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs,
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        stateful=stores
        or continued
        or bool(value_of("background"))
        or not all(is_clients)
        or (bool(within) and any(map(has_hosted, within)))
        or runs_there(fields),
        for_program=bool(tools) or format_ != "text",
        continues=value_of("previous_response_id"),
        converses="conversation" if is_set(fields.get("conversation")) else None,
        runs_on=bool(value_of("background")),
        has_ids=_ITEM_ID.search(prompt) is not None,
        nests=bool(within),
        stores=stores,
        unstored=not (is_asked or runs_on or store),
        cache_key=value_of("prompt_cache_key"),
        response_headers=response_headers,
    )


def _of_items(prompt: msgspec.Raw) -> tuple[list[_ResponsesTool], list[Any]]:
    """Return the tools that the input adds, and the other lists of tools within its items."""
    try:
        added, searched = tools_of_items(prompt)
        return ([_responses_tool.decode(tool) for tool in added] if added else []), [
            *map(msgspec.json.decode, searched)
        ]
    except (Malformed, msgspec.ValidationError, RecursionError) as error:
        raise InvalidRequest(f"'input' is not understood: {error}", param="input") from None


_RESPONSES_DESCRIPTION = Description(
    id="createResponse",
    summary="OpenAI's responses",
    prompt={"type": ["string", "array"], "description": "A string, or an array of items."},
    example={"input": "Say hello.", "store": False},
    answer="Response",
    events="OpenAI's events, from `response.created` to `response.completed`.",
    optional_prompt=True,  # optional if the request continues something
    errors=(ResponseNotFound,),
    headers={STORE_HEADER: "The value of `store` that was sent, as the request had none."},
)

RESPONSES_ENDPOINT = Endpoint(
    dialect=RESPONSES,
    read=lambda contents, race, settings: read_response(contents, race, store=settings.responses_store),
    fields=_RESPONSES_DECODERS,
    description=_RESPONSES_DESCRIPTION,
    media=RESPONSES_MEDIA,
    recalls=RESPONSES.recalling,
)


# Reads requests for Google's generateContent; the URL has the model, and whether the answer streams.

_STREAMED = ":streamGenerateContent"
_LIMIT = GEMINI.requests.parameters.answer_limits[0]
_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")
_ARRAY, _EVENTS = msgspec.Raw(b'"json"'), msgspec.Raw(b'"sse"')


def _of_kind(kinds: str) -> re.Pattern[bytes]:
    return re.compile(rb'"mime_?[tT]ype"\s*:\s*"(?:%b)/' % kinds.encode())


_DOCUMENTS = "application|text|video"
GEMINI_MEDIA = Media(
    odd=re.compile(rb'"(?:(?:inline|file)_?[dD]ata|executable_?[cC]ode|code_?[eE]xecution_?[rR]esult)"\s*:'),
    any=_of_kind(f"image|audio|{_DOCUMENTS}"),
    vision=_of_kind("image"),
    audio=_of_kind("audio"),
    documents=_of_kind(_DOCUMENTS),
)


class _GenerationConfig(msgspec.Struct, rename="camel"):
    max_output_tokens: float | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None


_GEMINI_DECODERS: Decoders = {
    "tools": msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | dict[str, msgspec.Raw] | None),
    "generationConfig": msgspec.json.Decoder(
        _GenerationConfig | None
    ),  # for the documentation only; requests are read field by field
}
_numbers = msgspec.json.Decoder(float | None)


def _of_the_address(request: "web.Request", contents: Contents) -> Contents:
    """Add the URL's parts (the model, ``:streamGenerateContent``) to the body's fields."""
    streamed = request.path.endswith(_STREAMED)
    fields_of_address = {
        "model": raw_json(request.match_info["model"]),
        "stream": _TRUE if streamed else _FALSE,
        "alt": _EVENTS if request.query.get("alt") == "sse" else _ARRAY,
    }
    return msgspec.structs.replace(contents, fields={**contents.fields, **fields_of_address})


def read_gemini(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a request, with the fields from the URL.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    try:
        fields = flattened(contents.fields)
    except Malformed as error:
        raise InvalidRequest(error.message, param=error.param) from None
    is_array, stream = fields.pop("alt", _EVENTS) == _ARRAY, fields["stream"] == _TRUE
    prompt = required_turns(fields, GEMINI.requests.prompt)
    tools = decoded_fields(fields, _GEMINI_DECODERS).get("tools") or ()
    kinds = {camel(kind) for tool in ((tools,) if isinstance(tools, dict) else tools) for kind in tool}
    limit = fields.get(_LIMIT)
    formats = [name for name in GEMINI.requests.json_formats if is_set(fields.get(name))]
    is_json = bool(formats) and any(GEMINI.requests.json_formats[name](fields[name]) is not None for name in formats)
    needs = needs_of(
        prompt,
        contents,
        GEMINI_MEDIA,
        max_tokens=None if limit is None else least(decoded(_LIMIT, limit, _numbers)),
        tools=not kinds.isdisjoint(BY_GOOGLES_CLIENTS),
        json_schema=is_json and any(name.endswith("chema") for name in formats),
    )
    return ParsedRequest(
        dialect=GEMINI,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=msgspec.structs.replace(needs, inline=False) if is_set(fields.get("cachedContent")) else needs,
        race=race,
        preferences=preferences,
        stream=stream,
        written=StreamFormat.ARRAY if stream and is_array else StreamFormat.EVENTS,
        # The provider runs all other tools: they search or spend, so such calls are never duplicated.
        stateful=bool(kinds - BY_GOOGLES_CLIENTS) or runs_there(contents.fields),
        for_program=bool(tools) or is_json,
    )


_GEMINI_DESCRIPTION = Description(
    id="generateContent",
    summary="Google's generateContent",
    prompt={"type": ["array", "object"], "description": "The turns, each with a `role` and `parts`."},
    example={"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]},
    answer="GenerateContentResponse",
    events="At `:streamGenerateContent` events with `alt=sse`, else the elements of an array.",
    error_schema="GeminiError",
)

_MODELS = (f"{GOOGLES}models/{{model:.+}}", "/v1/models/{model:.+}")  # newer SDKs of Google use the second
GEMINI_ENDPOINT = Endpoint(
    dialect=GEMINI,
    read=read_gemini,
    fields=_GEMINI_DECODERS,
    description=_GEMINI_DESCRIPTION,
    media=GEMINI_MEDIA,
    routes=tuple(f"{path}:generateContent" for path in _MODELS),
    streamed=tuple(f"{path}{_STREAMED}" for path in _MODELS),
    below=GOOGLES,
    counted=tuple(f"{path}:countTokens" for path in _MODELS),
    addressed=_of_the_address,
)


# Reads requests for Google's interactions.

INTERACTIONS_MEDIA = Media.of(
    "image",
    "audio",
    "document|video",
    text="user_input|model_output|thought|text|function_call|function_result|object|string",
)
_INTERACTIONS_LIMIT = INTERACTIONS.requests.parameters.answer_limits[0]
_FORMAT = "response_format"

_INTERACTIONS_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "previous_interaction_id": msgspec.json.Decoder(str | None),
    "agent": msgspec.json.Decoder(str | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
}


def read_interaction(contents: Contents, race_header: str | None, *, store: bool) -> ParsedRequest:
    """Read the body of a request for an interaction.

    The API's default for ``store`` is true, which would forbid a race. As with Responses, the gateway's default,
    ``store``, is sent to the provider explicitly and reported in a response header; in the background and with agents
    the provider's own default holds.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    fields = contents.fields
    is_agent = is_set(fields.get(AGENT))
    if is_agent and not is_set(fields.get("model")):
        fields["model"] = fields[AGENT]
    model, race, preferences = read_common(contents, race_header)
    try:
        fields = flattened_interaction(fields)
    except Malformed as error:
        raise InvalidRequest(error.message, param=error.param) from None
    continued = is_set(fields.get("previous_interaction_id"))
    prompt = fields.get("input", msgspec.Raw(b"[]"))
    if not continued:
        prompt = required(fields, "input", "a text, a content, or an array of contents or steps")
    value_of = decoded_fields(fields, _INTERACTIONS_DECODERS).get
    runs_on, response_headers = bool(value_of("background")), {}
    is_asked = value_of("store") is not None
    keeps_default = runs_on or is_agent
    if not is_asked and not keeps_default:
        store = store or continued
        fields["store"] = _TRUE if store else _FALSE
        response_headers[STORE_HEADER] = "true" if store else "false"
    stores = bool(value_of("store")) if is_asked else store or keeps_default
    tools = value_of("tools") or ()
    is_json = _FORMAT in fields and INTERACTIONS.requests.json_formats[_FORMAT](fields[_FORMAT]) is not None
    limit = fields.get(_INTERACTIONS_LIMIT)
    needs = needs_of(
        prompt,
        contents,
        INTERACTIONS_MEDIA,
        max_tokens=None if limit is None else least(decoded(_INTERACTIONS_LIMIT, limit, _numbers)),
        tools=any(tool.type == "function" for tool in tools),
        json_schema=is_json and b'"schema"' in bytes(fields[_FORMAT]),
    )
    return ParsedRequest(
        dialect=INTERACTIONS,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=msgspec.structs.replace(needs, inline=False) if is_set(fields.get("cached_content")) else needs,
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        stateful=stores
        or continued
        or keeps_default
        or any(is_set(fields.get(name)) for name in _HOLDS)
        or not all(tool.type == "function" for tool in tools)
        or runs_there(fields),
        for_program=bool(tools) or is_json,
        continues=value_of("previous_interaction_id"),
        runs_on=runs_on,
        stores=stores,
        unstored=not (is_asked or keeps_default or store),
        response_headers=response_headers,
    )


_HOLDS = ("continuation_token", "environment", "webhook_config")  # of one provider, or called once

_INTERACTIONS_DESCRIPTION = Description(
    id="createInteraction",
    summary="Google's interactions",
    prompt={
        "type": ["string", "array", "object"],
        "description": "A text, a content, or an array of contents or of steps.",
    },
    example={"input": "Say hello.", "store": False},
    answer="Interaction",
    events="Google's events, from `interaction.created` to `interaction.completed`, then `data: [DONE]`.",
    optional_prompt=True,  # optional if the request continues something
    errors=(ResponseNotFound,),
    headers={STORE_HEADER: "The value of `store` that was sent, as the request had none."},
    error_schema="InteractionError",
)

INTERACTIONS_ENDPOINT = Endpoint(
    dialect=INTERACTIONS,
    read=lambda contents, race, settings: read_interaction(contents, race, store=settings.responses_store),
    fields=_INTERACTIONS_DECODERS,
    description=_INTERACTIONS_DESCRIPTION,
    media=INTERACTIONS_MEDIA,
    routes=(f"{GOOGLES}interactions", "/v1/interactions"),  # newer SDKs of Google use the second
    recalls=INTERACTIONS.recalling,
)


ENDPOINTS: Mapping[Dialect, Endpoint] = {
    each.dialect: each
    for each in (
        *(CHAT_ENDPOINT, COMPLETIONS_ENDPOINT, MESSAGES_ENDPOINT, RESPONSES_ENDPOINT, GEMINI_ENDPOINT),
        INTERACTIONS_ENDPOINT,
    )
}
