"""What a request asks for, read from any of the five dialects into one shape that the answers are made from."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

Json = dict[str, Any]

_DIRECTIVE = re.compile(
    r"^[ \t]*(say|call|data|think|fail|slow|hang|break|echo|spoil|mumble):[ \t]*(.*?)[ \t]*$", re.MULTILINE
)


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call; ``schema`` is that of its arguments."""

    name: str
    schema: Json


class Asked(msgspec.Struct, frozen=True):
    """One request. ``text`` is all that users said, ``results`` what tools returned since the model last spoke."""

    model: str
    body: Json
    text: str
    stream: bool = False
    system: str = ""
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"  # auto, none, required, or the name of a tool
    parallel: bool = True
    schema: Json | None = None  # of a structured answer; {} for any JSON object
    media: tuple[str, ...] = ()  # data URLs, URLs, or ids, as they came
    results: tuple[str, ...] = ()
    reasoning: bool = False
    n: int = 1
    logprobs: int | None = None  # how many alternatives are asked for
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    include_usage: bool = True

    def said(self, directive: str) -> str | None:
        """Return what the last line that begins with ``directive:`` says after it."""
        found = self.all_said(directive)
        return found[-1] if found else None

    def all_said(self, directive: str) -> list[str]:
        """Return what each line that begins with ``directive:`` says after it."""
        return [match[2] for match in _DIRECTIVE.finditer(self.text) if match[1] == directive]


def from_chat(body: Json) -> Asked:
    """Read a request of /chat/completions."""
    users, systems = _Texts(), _Texts()
    results: list[str] = []
    media: list[str] = []
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role == "assistant":
            results.clear()
        elif role == "tool":
            results.append(_text(content))
        elif role in {"system", "developer"}:
            systems.add(_text(content))
        else:
            users.add(_text(content))
            media += [item for part in _parts(content) if (item := _chat_media(part)) is not None]
    tools = [Tool(tool["function"]["name"], tool["function"].get("parameters") or {}) for tool in _functions(body)]
    choice = body.get("tool_choice") or "auto"
    return Asked(
        model=body["model"],
        body=body,
        text=users.all,
        stream=bool(body.get("stream")),
        system=systems.all,
        tools=tuple(tools),
        choice=choice if isinstance(choice, str) else choice["function"]["name"],
        parallel=body.get("parallel_tool_calls") is not False,
        schema=_chat_schema(body.get("response_format")),
        media=tuple(media),
        results=tuple(results),
        reasoning=body.get("reasoning_effort") not in {None, "none"},
        n=body.get("n") or 1,
        logprobs=(body.get("top_logprobs") or 0) if body.get("logprobs") else None,
        stop=_listed(body.get("stop")),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        include_usage=not body.get("stream") or bool((body.get("stream_options") or {}).get("include_usage")),
    )


def from_completions(body: Json) -> Asked:
    """Read a request of /completions."""
    return Asked(
        model=body["model"],
        body=body,
        text="\n".join(str(part) for part in _listed(body["prompt"])),
        stream=bool(body.get("stream")),
        n=body.get("n") or 1,
        logprobs=body.get("logprobs"),
        stop=_listed(body.get("stop")),
        max_tokens=body.get("max_tokens"),
        include_usage=not body.get("stream") or bool((body.get("stream_options") or {}).get("include_usage")),
    )


def from_responses(body: Json) -> Asked:
    """Read a request of /responses."""
    users, systems = _Texts(), _Texts(body.get("instructions") or "")
    results: list[str] = []
    media: list[str] = []
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind, content = item.get("type", "message"), item.get("content")
        if kind in {"function_call_output", "custom_tool_call_output"}:
            results.append(_text(item["output"]))
        elif kind != "message" or item["role"] == "assistant":
            results.clear()
        elif item["role"] == "user":
            users.add(_text(content))
            media += [found for part in _parts(content) if (found := _responses_media(part)) is not None]
        else:
            systems.add(_text(content))
    tools = [
        Tool(tool.get("name", tool["type"]), tool.get("parameters") or {})
        for tool in body.get("tools") or ()
        if tool["type"] in {"function", "custom", "local_shell"}
    ]
    choice = body.get("tool_choice") or "auto"
    form = (body.get("text") or {}).get("format") or {}
    return Asked(
        model=body["model"],
        body=body,
        text=users.all,
        stream=bool(body.get("stream")),
        system=systems.all,
        tools=tuple(tools),
        choice=choice if isinstance(choice, str) else choice.get("name", "auto"),
        parallel=body.get("parallel_tool_calls") is not False,
        schema=form.get("schema", {}) if form.get("type") in {"json_schema", "json_object"} else None,
        media=tuple(media),
        results=tuple(results),
        reasoning=(body.get("reasoning") or {}).get("effort") not in {None, "none"},
        logprobs=body.get("top_logprobs"),
        max_tokens=body.get("max_output_tokens"),
    )


def from_messages(body: Json) -> Asked:
    """Read a request of Anthropic's /messages."""
    users = _Texts()
    results: list[str] = []
    media: list[str] = []
    for message in body["messages"]:
        parts = _parts(message["content"])
        if message["role"] == "assistant":
            results.clear()
            continue
        users.add("\n".join(part["text"] for part in parts if part["type"] == "text"))
        results += [_text(part.get("content") or "") for part in parts if part["type"] == "tool_result"]
        media += [_source(part["source"]) for part in parts if part["type"] in {"image", "document"}]
    tools = [Tool(tool["name"], tool["input_schema"]) for tool in body.get("tools") or () if "input_schema" in tool]
    choice = body.get("tool_choice") or {"type": "auto"}
    form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return Asked(
        model=body["model"],
        body=body,
        text=users.all,
        stream=bool(body.get("stream")),
        system=_text(body.get("system") or ""),
        tools=tuple(tools),
        choice={"any": "required", "tool": choice.get("name")}.get(choice["type"]) or choice["type"],
        parallel=not choice.get("disable_parallel_tool_use"),
        schema=form.get("schema"),
        media=tuple(media),
        results=tuple(results),
        reasoning=(body.get("thinking") or {}).get("type") in {"enabled", "adaptive"},
        stop=_listed(body.get("stop_sequences")),
        max_tokens=body.get("max_tokens"),
    )


def from_gemini(body: Json) -> Asked:
    """Read a request of Google's generateContent; ``model`` and ``stream`` were in its address."""
    body, said = {name: value for name, value in body.items() if name not in {"model", "stream"}}, body
    users = _Texts()
    results: list[str] = []
    media: list[str] = []
    for turn in body["contents"]:
        parts = turn["parts"]
        if turn.get("role") == "model":
            results.clear()
            continue
        users.add("\n".join(part["text"] for part in parts if "text" in part))
        results += [_output(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
        media += [_inline(part["inlineData"]) for part in parts if "inlineData" in part]
    tools = [
        Tool(each["name"], each.get("parametersJsonSchema") or each.get("parameters") or {})
        for tool in body.get("tools") or ()
        for each in tool.get("functionDeclarations") or ()
    ]
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    mode, names = calling.get("mode", "AUTO"), calling.get("allowedFunctionNames") or ["required"]
    config = body.get("generationConfig") or {}
    is_json = config.get("responseMimeType") == "application/json"
    schema = config.get("responseJsonSchema") or config.get("responseSchema") or {}
    thinking = config.get("thinkingConfig") or {}
    return Asked(
        model=said["model"],
        body=body,
        text=users.all,
        stream=bool(said.get("stream")),
        system=_text((body.get("systemInstruction") or {}).get("parts")),
        tools=tuple(tools),
        choice={"ANY": names[0], "NONE": "none"}.get(mode, "auto"),
        schema=schema if is_json else None,
        media=tuple(media),
        results=tuple(results),
        reasoning=bool(thinking.get("includeThoughts") or thinking.get("include_thoughts")),
        stop=_listed(config.get("stopSequences")),
        max_tokens=config.get("maxOutputTokens"),
    )


def _output(response: Json) -> str:
    for name in ("output", "result"):
        if isinstance(response.get(name), str):
            return str(response[name])
    return json.dumps(response)


def _inline(data: Json) -> str:
    plain = str(data["data"]).replace("-", "+").replace("_", "/")
    return f"data:{data.get('mimeType') or data['mime_type']};base64,{plain}"  # Google's servers take both, too


class _Texts:
    def __init__(self, *texts: str) -> None:
        self._texts = [*texts]

    def add(self, text: str) -> None:
        self._texts.append(text)

    @property
    def all(self) -> str:
        return "\n".join(filter(None, self._texts))


def _parts(content: Any) -> Sequence[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content or []


def _text(content: Any) -> str:
    return "\n".join(part["text"] for part in _parts(content) if isinstance(part.get("text"), str))


def _listed(value: Any) -> tuple[Any, ...]:
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)


def _functions(body: Json) -> Iterable[Json]:
    return (tool for tool in body.get("tools") or () if tool["type"] == "function")


def _chat_schema(form: Mapping[str, Any] | None) -> Json | None:
    if form is None or form["type"] == "text":
        return None
    schema = (form.get("json_schema") or {}).get("schema")
    return schema or {}


def _chat_media(part: Json) -> str | None:
    match part["type"]:
        case "image_url":
            return str(part["image_url"]["url"])
        case "input_audio":
            return f"data:audio/{part['input_audio']['format']};base64,{part['input_audio']['data']}"
        case "file":
            return str(part["file"].get("file_data") or part["file"].get("file_id"))
        case _:
            return None


def _responses_media(part: Json) -> str | None:
    match part["type"]:
        case "input_image":
            return str(part.get("image_url") or part.get("file_id"))
        case "input_file":
            return str(part.get("file_data") or part.get("file_url") or part.get("file_id"))
        case _:
            return None


def _source(source: Json) -> str:
    match source["type"]:
        case "base64":
            return f"data:{source['media_type']};base64,{source['data']}"
        case "url":
            return str(source["url"])
        case _:
            return str(source.get("file_id") or source.get("data"))
