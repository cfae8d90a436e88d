"""Google's generateContent: read for the script, its history looked through, answers written whole and as a stream."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strict_vendors.caches import Block
from strict_vendors.rules import google as rules
from strict_vendors.script import Asked, Given, Said, Tool, tokens_of
from strict_vendors.shapes import Fault, Path, Tag
from strict_vendors.vendor import Ids, as_json

Json = dict[str, Any]

_LISTS = frozenset({"contents", "parts", "tools", "functionDeclarations", "safetySettings", "stopSequences"})
_FINISHED = {"stop": "STOP", "tool_calls": "STOP", "stop_sequence": "STOP", "length": "MAX_TOKENS"}
_DATA = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
)  # fmt: skip


def normal(value: Any, key: str = "") -> Any:
    """Return a body as its parser sees it: names in either spelling, no null, lists of one entry."""
    if key in rules.FREE:
        return value
    if isinstance(value, list):
        return [normal(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if key == "properties":
        return {name: normal(entry) for name, entry in value.items()}
    found: Json = {}
    for name, entry in value.items():
        if entry is not None:
            spelt = re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), name)
            camel = spelt if spelt in rules.SPELT else name
            one = normal(entry, camel)
            found[camel] = [one] if camel in _LISTS and isinstance(one, dict | str) and one != "" else one
    return found


def place(path: Path, body: Any) -> str:
    """Return a path as errors of protocol buffers write it."""
    words = ""
    at: Any = body
    is_map = False
    for step in path:
        if isinstance(step, Tag):
            continue
        if isinstance(step, int):
            words += f"[{step}]"
        elif is_map:
            words += f"[{list(at).index(step) if step in at else 0}].value"
        else:
            words += f".{_snake(step)}"
        is_map = step == "properties" and not is_map
        is_there = isinstance(at, list) or (isinstance(at, dict) and step in at)
        at = at[step] if is_there else {}
    return words.removeprefix(".")


def described(fault: Fault, body: Any) -> str:
    """Return what the parser says of a fault."""
    where = place(fault.path, body)
    parent = place(fault.path[:-1], body)
    at = f" at '{parent}'" if parent else ""
    unknown = f'Invalid JSON payload received. Unknown name "{fault.field}"{at}'
    match fault.kind:
        case "unknown":
            return f"{unknown}: Cannot find field."
        case "type" if isinstance(fault.value, list):
            return f"{unknown}: Proto field is not repeating, cannot start list."
        case "missing":
            return f"* GenerateContentRequest.{where}: missing field.\n"
        case _:
            wanted = {
                "string": "TYPE_STRING",
                "integer": "TYPE_INT32",
                "decimal": "TYPE_DOUBLE",
                "boolean": "TYPE_BOOL",
            }
            enum = f"type.googleapis.com/google.ai.generativelanguage.v1beta.{fault.field[:1].upper()}{fault.field[1:]}"
            kind = "TYPE_INT32" if fault.kind in {"low", "high"} else wanted.get(str(fault.bound), enum)
            return f"Invalid value at '{where}' ({kind}), {json.dumps(fault.value)}"


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), name)


Wrong = tuple[str, str, str]  # the words, the name of the rule, its page


def wrong_schemas(body: Json) -> Iterator[Wrong]:
    """Yield what is wrong with the declared functions and the schemas of Google's own kind."""
    for number, tool in enumerate(body.get("tools", ())):
        for place_of_it, function in enumerate(tool.get("functionDeclarations", ())):
            at = f"tools[{number}].function_declarations[{place_of_it}]"
            if not re.fullmatch(rules.NAME, function.get("name", "")):
                said = (
                    f"The GenerateContentRequest proto is invalid:\n  * {at}.name: [FIELD_INVALID] Invalid function"
                    " name. Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain underscores"
                    " (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
                )
                yield said, "function name", rules.NAMES
            if "parameters" in function:
                yield from _wrong_schema(function["parameters"], f"{at}.parameters")
    if "responseSchema" in (config := body.get("generationConfig", {})):
        yield from _wrong_schema(config["responseSchema"], "generation_config.response_schema")


def _wrong_schema(schema: Json, at: str) -> Iterator[Wrong]:
    kind = str(schema.get("type", "")).upper()
    properties = schema.get("properties", {})
    if kind == "OBJECT" and not properties:
        said = f"* GenerateContentRequest.{at}.properties: should be non-empty for OBJECT type\n"
        yield said, "object without properties", rules.NO_PROPERTIES
    if kind == "ARRAY" and "items" not in schema:
        yield f"* GenerateContentRequest.{at}.items: missing field.\n", "array without items", rules.SCHEMA
    if "enum" in schema and kind != "STRING":
        yield f"* GenerateContentRequest.{at}.enum: only allowed for STRING type\n", "enum of no string", rules.SCHEMA
    if kind == "STRING" and schema.get("format", "enum") not in {"enum", "date-time"}:
        said = f"* GenerateContentRequest.{at}.format: only 'enum' and 'date-time' are supported for STRING type\n"
        yield said, "format of a string", rules.SCHEMA
    for number, name in enumerate(schema.get("required", ())):
        if properties and name not in properties:
            said = f"* GenerateContentRequest.{at}.required[{number}]: property is not defined\n"
            yield said, "required property that is not defined", rules.SCHEMA
    for number, entry in enumerate(properties.values()):
        yield from _wrong_schema(entry, f"{at}.properties[{number}].value")
    for number, entry in enumerate(schema.get("anyOf", ())):
        yield from _wrong_schema(entry, f"{at}.any_of[{number}]")
    if "items" in schema:
        yield from _wrong_schema(schema["items"], f"{at}.items")


def wrong_history(body: Json, *, signs: bool, continues: bool = True) -> Iterator[Wrong]:
    """Yield what is wrong with turns, their parts and signatures.

    ``signs``: the model wants its own back; ``continues``: it goes on from a turn of its own at the end.
    """
    contents = body.get("contents", [])
    if not contents:
        yield "* GenerateContentRequest.contents: contents is not specified\n", "no contents", rules.FIELDS
        return
    for number, content in enumerate(contents):
        if content.get("role", "user") not in {"user", "model"}:
            yield "Please use a valid role: user, model.", "role", rules.ROLES
        if not content.get("parts"):
            said = f"* GenerateContentRequest.contents[{number}].parts: contents.parts must not be empty.\n"
            yield said, "no parts", rules.FIELDS
        for order, part in enumerate(content.get("parts", ())):
            if sum(name in part for name in _DATA) != 1:
                said = f"* GenerateContentRequest.contents[{number}].parts[{order}].data: required oneof field 'data' must have one initialized field\n"
                yield said, "part without data", rules.NO_DATA
            yield from _wrong_file(part.get("fileData", {}))
            if (signature := part.get("thoughtSignature")) and not is_signature(signature):
                yield "Corrupted thought signature.", "foreign signature", rules.CORRUPTED
    yield from _wrong_order(contents)
    if contents[-1].get("role") == "model" and not continues and not _of(contents[-1], "functionResponse"):
        yield (
            "Requests ending with a model turn are not supported unless the last part is a function response.",
            "ends with the model",
            rules.ENDS,
        )
    if signs:
        yield from _unsigned(contents)


def _wrong_file(file: Json) -> Iterator[Wrong]:
    address, kind = file.get("fileUri", "https://"), file.get("mimeType", "application/pdf")
    if not address.startswith("https://"):
        yield f"Invalid or unsupported file uri: {address}", "address of a file", rules.ADDRESSES
    elif "googleapis.com" not in address and not kind.startswith("video/") and kind not in rules.AT_ADDRESSES:
        yield f"Unsupported MIME type: {kind}", "kind of a file", rules.ADDRESSES


def _wrong_order(contents: Sequence[Json]) -> Iterator[Wrong]:
    counted = [(content, _of(content, "functionCall"), _of(content, "functionResponse")) for content in contents]
    for number, (content, calls, responses) in enumerate(counted):
        before = counted[number - 1] if number else ({}, [], [])
        if calls and (number == 0 or (before[0].get("role") == "model" and not before[1])):
            said = "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
            yield said, "call after no turn of the user", rules.CALL_AFTER_USER
        if responses and not before[1]:
            said = "Please ensure that function response turn comes immediately after a function call turn."
            yield said, "response after no call", rules.RESPONSE_AFTER_CALL
        elif before[1] and len(responses) != len(before[1]) and content.get("role", "user") == "user":
            said = "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
            yield said, "number of responses", rules.SAME_NUMBER
    if len(contents) == 1 and contents[0].get("role") == "model":
        said = "Please ensure that single turn requests end with a user role or the role field is empty."
        yield said, "ends with the model", rules.SINGLE


def _unsigned(contents: Sequence[Json]) -> Iterator[Wrong]:
    """Yield the calls of the turn that is going on which lack a signature: the first of each step must have one."""
    last = max(
        (number for number, each in enumerate(contents) if each.get("role", "user") == "user" and _is_said(each)),
        default=-1,
    )
    for number, content in enumerate(contents[last + 1 :], last + 1):
        calls = [part for part in content.get("parts", ()) if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            name = calls[0]["functionCall"]["name"]
            said = (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
                " correctly, and missing thought_signature may lead to degraded model performance. Additional data,"
                f" function call `default_api:{name}` , position {number + 1}. Please refer to {rules.SIGNATURES} for"
                " more details."
            )
            yield said, "call without signature", rules.SIGNATURES


def _of(content: Json, name: str) -> list[Json]:
    return [part[name] for part in content.get("parts", ()) if name in part]


def _is_said(content: Json) -> bool:
    return any("functionResponse" not in part for part in content.get("parts", ()))


def signature(ids: Ids) -> str:
    """Return a signature as Google gives it: bytes, that only it can read."""
    number = ids.next("", 12)
    return base64.b64encode(f"{number}.{_mac(number)}".encode()).decode()


def is_signature(text: str) -> bool:
    """Say whether a signature is Google's, or the word that stands for none."""
    if text in rules.UNSIGNED:
        return True
    try:
        number, _, mac = base64.b64decode(text.replace("-", "+").replace("_", "/") + "==").decode().partition(".")
    except ValueError:
        return False
    return mac == _mac(number)


def _mac(number: str) -> str:
    return hashlib.sha256(f"a stand-in of Google {number}".encode()).hexdigest()[:32]


def read(body: Json, model: str, *, stream: bool) -> Asked:
    """Return a request as the script reads it."""
    config = body.get("generationConfig", {})
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    allowed = calling.get("allowedFunctionNames", ())
    forced = allowed[0] if len(allowed) == 1 else "required"
    is_json = config.get("responseMimeType") == "application/json"
    known = rules.of(model)
    thinking = config.get("thinkingConfig", {})
    return Asked(
        model=model,
        body=body,
        turns=[turn for content in body.get("contents", ()) for turn in _turns(content)],
        system="\n".join(part.get("text", "") for part in body.get("systemInstruction", {}).get("parts", ())),
        stream=stream,
        tools=[
            Tool(each["name"], each.get("parametersJsonSchema") or each.get("parameters") or {})
            for tool in body.get("tools", ())
            for each in tool.get("functionDeclarations", ())
            if not allowed or each["name"] in allowed
        ],
        choice={"NONE": "none", "ANY": forced}.get(calling.get("mode", "").upper(), "auto"),
        schema=(config.get("responseJsonSchema") or config.get("responseSchema") or {}) if is_json else None,
        thinks=thinking.get("thinkingBudget", -1 if known.thinks or "thinkingLevel" in thinking else 0) != 0,
        stop=config.get("stopSequences", ()),
        most=config.get("maxOutputTokens"),
        searches=any({"googleSearch", "googleSearchRetrieval"} & tool.keys() for tool in body.get("tools", ())),
    )


def _turns(content: Json) -> Iterator[Said]:
    parts = content.get("parts", ())
    texts = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    if content.get("role") == "model":
        yield Said("assistant", texts, calls=len(_of(content, "functionCall")))
        return
    for response in _of(content, "functionResponse"):
        values = list(response["response"].values())
        plain = values[0] if len(values) == 1 and isinstance(values[0], str) else json.dumps(response["response"])
        yield Said("tool", plain, media=len(response.get("parts", ())))
    media = len(_of(content, "inlineData")) + len(_of(content, "fileData"))
    if texts or media:
        yield Said("user", texts, media=media)


def blocks_to_cache(body: Json) -> Iterator[tuple[Block, int]]:
    """Yield the blocks of a prompt in the order in which they are cached, each with its tokens."""
    yield Block(["tools", body.get("tools")], is_marked=False), 0
    said = [("system", part) for part in (body.get("systemInstruction") or {}).get("parts", ())]
    said += [(content.get("role"), part) for content in body["contents"] for part in content.get("parts", ())]
    for role, part in said:
        yield Block([role, part], is_marked=False), tokens_of(part)


def whole(asked: Asked, given: Given, ids: Ids, cached: int = 0) -> Json:
    """Return the answer in one piece."""
    parts = [part for part, _ in _parts(asked, given, ids, pieces=False)]
    return _response(asked, given, ids.next("", 22), parts, ended=True, cached=cached)


def stream(asked: Asked, given: Given, ids: Ids, cached: int = 0) -> list[Json]:
    """Return the pieces of the answer; all its calls are in one (https://github.com/jeremychone/rust-genai/pull/173)."""
    number = ids.next("", 22)
    parts = [part for part, _ in _parts(asked, given, ids, pieces=True)]
    calls = [part for part in parts if "functionCall" in part]
    pieces = [[part] for part in parts if "functionCall" not in part] + ([calls] if calls else [])
    found = [_response(asked, given, number, piece, ended=False, cached=cached) for piece in pieces[:-1]]
    last = pieces[-1] if pieces else [{"text": ""}]
    return [*found, _response(asked, given, number, last, ended=True, cached=cached)]


def _parts(asked: Asked, given: Given, ids: Ids, *, pieces: bool) -> Iterator[tuple[Json, bool]]:
    config = asked.body.get("generationConfig", {}).get("thinkingConfig", {})
    signed = {"thoughtSignature": signature(ids)} if given.thoughts or rules.of(asked.model).signs else {}
    if given.thoughts and config.get("includeThoughts"):
        yield from (
            ({"text": text, "thought": True}, True) for text in (given.thought_pieces if pieces else [given.thoughts])
        )
    if given.text:
        texts = given.pieces if pieces else [given.text]
        for number, text in enumerate(texts):
            last = number == len(texts) - 1 and not given.calls
            yield {"text": text, **(signed if last else {})}, False
    for number, call in enumerate(given.calls):
        called = {"name": call.name, "args": call.object}
        if rules.of(asked.model).signs:
            called = {"id": ids.next("", 8), **called}
        yield {"functionCall": called, **(signed if number == 0 else {})}, False


def _response(asked: Asked, given: Given, number: str, parts: list[Json], *, ended: bool, cached: int) -> Json:
    candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if ended:
        candidate["finishReason"] = _FINISHED[given.finish]
        if given.searched:
            candidate["groundingMetadata"] = _grounding(given)
    said = given.tokens_out - given.tokens_of_thoughts
    usage = {"promptTokenCount": given.tokens_in, "totalTokenCount": given.tokens_in + given.tokens_out}
    if cached:
        usage["cachedContentTokenCount"] = min(cached, given.tokens_in)
    if ended:
        usage["candidatesTokenCount"] = said
    if given.thoughts:
        usage["thoughtsTokenCount"] = given.tokens_of_thoughts
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": asked.model, "responseId": number}


def _grounding(given: Given) -> Json:
    """Return what an answer rests on; places are counted in bytes, and addresses lead by way of Google's.

    https://ai.google.dev/gemini-api/docs/google-search, read on 2026-11-29.
    """

    def place(letters: int) -> int:
        return len(given.text[:letters].encode())

    return {
        "webSearchQueries": [given.searched],
        "searchEntryPoint": {"renderedContent": f"<div>{given.searched}</div>"},
        "groundingChunks": [{"web": {"uri": page.url, "title": page.title}} for page in given.pages],
        "groundingSupports": [
            {
                "segment": {"startIndex": place(page.begin), "endIndex": place(page.end), "text": page.words},
                "groundingChunkIndices": [number],
            }
            for number, page in enumerate(given.pages)
        ],
    }


def blocks(responses: Sequence[Mapping[str, Any]], *, events: bool) -> list[bytes]:
    """Return the bytes of a stream: events, or, where they are not asked for, a list of JSON in pieces."""
    if events:
        return [b"data: " + as_json(each) + b"\r\n\r\n" for each in responses]
    first = b"[" + as_json(responses[0])
    return [first, *(b",\r\n" + as_json(each) for each in responses[1:]), b"]"]
