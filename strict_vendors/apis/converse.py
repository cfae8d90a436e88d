"""Bedrock's Converse: read for the script, its history looked through, answers written whole and as an event stream."""

import hashlib
import itertools
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from strict_vendors.apis import bound_thoughts
from strict_vendors.caches import Block, Used
from strict_vendors.models import Model
from strict_vendors.rules import anthropic as rules_of_claude
from strict_vendors.rules import bedrock as rules
from strict_vendors.script import Asked, Given, Said, Tool
from strict_vendors.shapes import Fault
from strict_vendors.vendor import LETTERS, Ids, Refused, as_json

Json = dict[str, Any]
Wrong = tuple[str, str, str]  # the words, the name of the rule, its page

_STOPPED = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "stop_sequence": "stop_sequence"}
_VALUES = {str: "STRING_VALUE", bool: "TRUE_VALUE", int: "NUMBER_VALUE", float: "NUMBER_VALUE", list: "START_ARRAY"}
_OF_THE_MODEL = "The model returned the following errors: "


def described(found: Sequence[Fault]) -> str:
    """Return the service's words for values that its description does not allow."""
    broken = [fault for fault in found if fault.kind not in {"unknown", "type"}]
    if not broken:
        fault = found[0]
        if fault.kind == "unknown":
            return f'Unknown parameter in input: "{fault.field}" at {_place(fault)}'
        if fault.bound == "object" or fault.value is None:
            return _no_object(_dotted(fault))[0]
        return f"{_VALUES.get(type(fault.value), 'START_OBJECT')} can not be converted to a {str(fault.bound).title()}"
    errors = "; ".join(
        f"{_value(fault)}at '{_place(fault)}' failed to satisfy constraint: {_constraint(fault)}" for fault in broken
    )
    return f"{len(broken)} validation error{'s' * (len(broken) > 1)} detected: {errors}"


def _value(fault: Fault) -> str:
    is_hidden = fault.path[0] == "messages" or fault.kind == "missing"
    return "Value " if is_hidden else f"Value '{fault.value}' "


def _place(fault: Fault) -> str:
    """Write a path as the service does: entries of lists are members, counted from one."""
    return ".".join(f"{step + 1}.member" if isinstance(step, int) else step for step in fault.path)


def _dotted(fault: Fault) -> str:
    return ".".join(map(str, fault.path))


def _constraint(fault: Fault) -> str:
    match fault.kind:
        case "missing":
            return "Member must not be null"
        case "value":
            return f"Member must satisfy enum value set: [{', '.join(map(str, fault.bound))}]"
        case "pattern":
            return f"Member must satisfy regular expression pattern: {fault.bound[4:-2]}"
        case "low":
            return f"Member must have value greater than or equal to {fault.bound}"
        case "high":
            return f"Member must have value less than or equal to {fault.bound}"
        case "short" | "few":
            return f"Member must have length greater than or equal to {fault.bound}"
        case _:
            return f"Member must have length less than or equal to {fault.bound}"


def wrong_blocks(body: Json) -> Iterator[Wrong]:
    """Yield what is wrong with the blocks of turns and of the system's prompt, whatever the model."""
    for number, turn in enumerate(body["messages"]):
        at = f"messages.{number}"
        if not turn["content"]:
            said = f"The content field in the Message object at {at} is empty. Add a ContentBlock object to the content field and try again."
            yield said, "no content", rules.EMPTY
        for order, block in enumerate(turn["content"]):
            yield from _wrong_block(block, f"{at}.content.{order}")
    for order, block in enumerate(body.get("system", ())):
        if "text" in block and not block["text"].strip():
            said = f"The text field in the SystemContentBlock object at system.{order} is blank. Add text to the text field, and try again."
            yield said, "blank text", rules.BLANK
    for number, tool in enumerate(body.get("toolConfig", {}).get("tools", ())):
        schema = tool.get("toolSpec", {}).get("inputSchema", {}).get("json")
        if "toolSpec" in tool and not isinstance(schema, dict):
            yield _no_object(f"toolConfig.tools.{number}.toolSpec.inputSchema.json")


def _wrong_block(block: Json, at: str) -> Iterator[Wrong]:
    if len(block.keys() & rules.one_of("ContentBlock")) != 1:
        keys = ", ".join(sorted(rules.one_of("ContentBlock")))
        said = f"The ContentBlock object at {at} must set one of the following keys: {keys}."
        yield said, "one key of a block", rules.SERVICE
    if "text" in block and not block["text"].strip():
        said = f"The text field in the ContentBlock object at {at} is blank. Add text to the text field, and try again."
        yield said, "blank text", rules.BLANK
    if "toolUse" in block and not isinstance(block["toolUse"]["input"], dict):
        yield _no_object(f"{at}.toolUse.input")
    if "toolResult" in block:
        result = block["toolResult"]
        if not result["content"] and result.get("status") == "error":
            said = f"The content field at {at}.toolResult cannot be empty when status value is error."
            yield said, "no content of an error", rules.EMPTY_ERROR
        for number, inner in enumerate(result["content"]):
            if "json" in inner and not isinstance(inner["json"], dict):
                yield _no_object(f"{at}.toolResult.content.{number}.json")
            if "text" in inner and not inner["text"].strip():
                said = f"{_OF_THE_MODEL}messages: text content blocks must contain non-whitespace text"
                yield said, "blank text of a result", rules.WHITESPACE


def _no_object(at: str) -> Wrong:
    said = f"The format of the value at {at} is invalid. Provide a json object for the field and try again."
    return said, "no object", rules.NO_OBJECT


def wrong_order(body: Json) -> Iterator[Wrong]:
    """Yield what is wrong with the order of turns, and of uses of tools and their results."""
    turns = body["messages"]
    if not turns or turns[0]["role"] != "user":
        said = "A conversation must start with a user message. Try again with a conversation that starts with a user message."
        yield said, "first turn", rules.FIRST
    for number, turn in enumerate(turns):
        if number and turn["role"] == turns[number - 1]["role"]:
            said = "A conversation must alternate between user and assistant roles. Make sure the conversation alternates between user and assistant roles and try again."
            yield said, "alternating roles", rules.ALTERNATE
        used = _ids(turns[number - 1], "toolUse") if number else []
        results = _ids(turn, "toolResult")
        if missing := [each for each in used if each not in results]:
            said = (
                f"Expected toolResult blocks at messages.{number}.content for the following Ids: {', '.join(missing)}"
            )
            yield said, "uses without results", rules.RESULTS
        if len(results) > len(used) or any(each not in used for each in results):
            said = f"The number of toolResult blocks at messages.{number}.content exceeds the number of toolUse blocks of previous turn."
            yield said, "results without uses", rules.TOO_MANY
    if turns and (left := _ids(turns[-1], "toolUse")):
        said = f"Expected toolResult blocks at messages.{len(turns)}.content for the following Ids: {', '.join(left)}"
        yield said, "uses without results", rules.RESULTS
    is_used = any("toolUse" in block or "toolResult" in block for turn in turns for block in turn["content"])
    if is_used and not body.get("toolConfig", {}).get("tools"):
        said = "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        yield said, "tools of a history", rules.NO_TOOLS


def _ids(turn: Json, kind: str) -> list[str]:
    return [block[kind]["toolUseId"] for block in turn["content"] if kind in block]


def wrong_for(model: rules.BedrockModel, body: Json, *, streams: bool) -> Iterator[Wrong]:
    """Yield what a model does not take."""
    config = body.get("inferenceConfig", {})
    if config.get("maxTokens", 1) > model.longest:
        said = f"The maximum tokens you requested exceeds the model limit of {model.longest}. Try again with a maximum tokens value that is lower than {model.longest}."
        yield said, "longest answer", rules.LONGEST
    tools = body.get("toolConfig", {})
    if tools and not model.tools:
        yield "This model doesn't support tool use.", "tools", rules.TABLE
    if tools and streams and not model.tools_in_streams:
        yield "This model doesn't support tool use in streaming mode.", "tools in a stream", rules.TABLE
    for choice in tools.get("toolChoice", {}).keys() - model.choices:
        yield _unsupported(f"toolConfig.toolChoice.{choice}")
    if "effort" in body.get("outputConfig", {}) and not model.effort:
        yield _unsupported("outputConfig.effort")
    for number, turn in enumerate(body["messages"]):
        kinds = {kind for block in turn["content"] for kind in block}
        if "image" in kinds and not model.pictures:
            yield _unsupported("image")
        if "reasoningContent" in kinds and not model.thinks:
            yield _unsupported("reasoningContent")
        if not model.mixed_turns and len(kinds) > 1 and (kinds & {"toolUse", "toolResult"}):
            what = "tool use" if "toolUse" in kinds else "tool result"
            said = (
                f"messages.{number}.content: Conversation blocks and {what} blocks cannot be provided in the same turn."
            )
            yield said, "texts beside tools", rules.SAME_TURN
    if model.family == "claude":
        for said, rule, page in _wrong_for_claude(model, body):
            yield _OF_THE_MODEL + said, rule, page


def _unsupported(field: str) -> Wrong:
    said = f"This model doesn't support the {field} field. Remove {field} and try again."
    return said, f"not taken: {field}", rules.NOT_THIS_FIELD


def _wrong_for_claude(model: rules.BedrockModel, body: Json) -> Iterator[Wrong]:
    config, extra = body.get("inferenceConfig", {}), body.get("additionalModelRequestFields") or {}
    if model.one_sampling and "temperature" in config and "topP" in config:
        said = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        yield said, "temperature and topP", rules.SAMPLING
    seen: set[str] = set()
    for number, turn in enumerate(body["messages"]):
        for order, block in enumerate(turn["content"]):
            if "toolUse" in block and block["toolUse"]["toolUseId"] in seen:
                yield f"messages.{number}.content.{order}: `tool_use` ids must be unique", "ids twice", rules.CLAUDE
            seen |= set(_ids({"content": [block]}, "toolUse"))
            if "reasoningText" in (thought := block.get("reasoningContent", {})):
                yield from _wrong_thought(thought["reasoningText"], f"messages.{number}.content.{order}")
    thinking = extra.get("thinking") or {}
    if (own := rules_of_claude.MODELS.find(model.own)) is not None:
        yield from _wrong_for_newer(own, body)
    if thinking.get("type") != "enabled":
        return
    if not model.thinks:
        yield "thinking: Extra inputs are not permitted", "thinking", rules.CLAUDE
    budget = thinking.get("budget_tokens", 0)
    if budget < 1024:
        said = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        yield said, "budget of thinking", rules.CLAUDE
    if config.get("maxTokens", budget + 1) <= budget:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`.", "budget of thinking", rules.CLAUDE
    if config.get("temperature", 1) != 1:
        said = "`temperature` may only be set to 1 when thinking is enabled."
        yield said, "temperature beside thinking", rules.CLAUDE
    if "any" in (choice := body.get("toolConfig", {}).get("toolChoice", {})) or "tool" in choice:
        yield "Thinking may not be enabled when tool_choice forces tool use.", "forced beside thinking", rules.CLAUDE
    for number, turn in list(enumerate(body["messages"]))[::-1]:
        if turn["role"] == "assistant":
            if _ids(turn, "toolUse") and "reasoningContent" not in turn["content"][0]:
                found = "tool_use" if "toolUse" in turn["content"][0] else "text"
                said = (
                    f"messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
                    f" `{found}`. When `thinking` is enabled, a final `assistant` message must start with a thinking"
                    " block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
                )
                yield said, "use of a tool without its thoughts", rules.REASONING
            break


def _wrong_for_newer(model: Model, body: Json) -> Iterator[Wrong]:
    """Yield what a Claude of this autumn does not take, as in its own API; how its switch is called differs."""
    extra, choice = body.get("additionalModelRequestFields") or {}, body.get("toolConfig", {}).get("toolChoice", {})
    thinking = extra.get("thinking") or {}
    kind = thinking.get("type")
    if kind == "disabled" and rules_of_claude.ALWAYS_THINKS in model.marks:
        yield '"thinking.type.disabled" is not supported for this model.', "always thinks", model.page
    if kind not in {None, "disabled", *model.efforts}:
        yield f'"thinking.type.{kind}" is not supported for this model.', "thinking", model.page
    if choice.keys() & {"any", "tool"} and rules_of_claude.NO_FORCED_TOOLS in model.marks:
        yield 'tool_choice: type "tool" and "any" are not supported for this model.', "no forced tools", model.page
    if "block_binding" not in thinking:
        return
    at = f"thinking.{kind}.block_binding"
    if kind not in {"adaptive", "enabled"} or bound_thoughts.CONTROLS not in extra.get("anthropic_beta", ()):
        yield f"{at}: Extra inputs are not permitted", "switch without its beta", rules.BINDING
    for name in thinking["block_binding"].keys() - {"mismatch_behavior"}:
        yield f"{at}.{name}: Extra inputs are not permitted", "the switch's name", rules.BINDING


def dropped(body: Json, model: rules.BedrockModel, account: str) -> list[bound_thoughts.Dropped]:
    """Return the thoughts of a request that its model is not shown.

    Raises:
        Refused: there are such behind another beginning, and the request does not say that they are dropped.

    """
    if (own := rules_of_claude.MODELS.find(model.own)) is None:
        return []
    thinking = (body.get("additionalModelRequestFields") or {}).get("thinking") or {}
    drops = (thinking.get("block_binding") or {}).get("mismatch_behavior") == "drop_block"
    try:
        return bound_thoughts.dropped(as_messages(body), own, account, drops=drops)
    except Refused as refused:
        said = refused.message.replace("prefix_mismatch_behavior", "mismatch_behavior")
        raise Refused(400, _OF_THE_MODEL + said, rule=refused.rule, page=rules.BINDING) from None


def as_messages(body: Json) -> Json:
    """Return what thoughts are bound to, as a request of Messages has it."""

    def blocks(content: Sequence[Json]) -> list[Json]:
        return [_as_block(block) for block in content if "cachePoint" not in block]

    return {
        "system": blocks(body.get("system") or ()),
        "tools": blocks((body.get("toolConfig") or {}).get("tools") or ()),
        "messages": [{"role": turn["role"], "content": blocks(turn["content"])} for turn in body["messages"]],
    }


def _as_block(block: Json) -> Json:
    thought = block.get("reasoningContent", {})
    if "reasoningText" in thought:
        text = thought["reasoningText"]
        return {"type": "thinking", "thinking": text["text"], "signature": text["signature"]}
    if thought:
        return {"type": "redacted_thinking", "data": thought["redactedContent"]}
    return {"type": next(iter(block)), **block}


def _wrong_thought(text: Json, at: str) -> Iterator[Wrong]:
    if "signature" not in text:
        yield f"{at}.thinking.signature: Field required", "thought without signature", rules.CLAUDE
    elif not is_signature(text["signature"], text["text"]):
        yield f"{at}: Invalid `signature` in `thinking` block", "foreign signature", rules.CLAUDE


def is_signature(signed: str, thoughts: str) -> bool:
    """Say whether a signature is of these thoughts: Anthropic's own are valid here too, and the other way round.

    Source: platform.claude.com/docs/en/build-with-claude/extended-thinking (signatures are compatible across platforms)
    """
    if (seal := bound_thoughts.opened(signed)) is not None:
        return bound_thoughts.is_of(seal, thoughts)
    anthropics = signed.startswith("Eo") and signed.endswith(hashlib.sha256(thoughts.encode()).hexdigest())
    return anthropics or signed == signature(thoughts)


def signature(thoughts: str, body: Json | None = None, model: str = "", account: str = "") -> str:
    """Return the signature of thoughts, which is bound to the request where the model binds them."""
    if body is not None and (own := rules_of_claude.MODELS.find(model)) is not None and bound_thoughts.is_bound(own):
        return bound_thoughts.sealed(thoughts, as_messages(body), own, account)
    return hashlib.sha512(f"a stand-in of Bedrock {thoughts}".encode()).hexdigest()


def read(body: Json, name: str, model: rules.BedrockModel, *, stream: bool) -> Asked:
    """Return a request as the script reads it."""
    config, tools = body.get("inferenceConfig", {}), body.get("toolConfig", {})
    choice = tools.get("toolChoice", {})
    form = body.get("outputConfig", {}).get("textFormat", {})
    thinking = (body.get("additionalModelRequestFields") or {}).get("thinking") or {}
    return Asked(
        model=name,
        body=body,
        turns=[said for turn in body["messages"] for said in _said(turn)],
        system="\n".join(block.get("text", "") for block in body.get("system", ())),
        stream=stream,
        tools=[
            Tool(each["toolSpec"]["name"], each["toolSpec"]["inputSchema"]["json"])
            for each in tools.get("tools", ())
            if "toolSpec" in each
        ],
        choice="required" if "any" in choice else choice.get("tool", {}).get("name", "auto"),
        schema=json.loads(form["structure"]["jsonSchema"]["schema"]) if form else None,
        thinks=model.thinks and thinking.get("type", "adaptive" if model.own else None) in {"enabled", "adaptive"},
        stop=config.get("stopSequences", ()),
        most=config.get("maxTokens"),
    )


def _said(turn: Json) -> Iterator[Said]:
    blocks = turn["content"]
    texts = "".join(block["text"] for block in blocks if "text" in block)
    if turn["role"] == "assistant":
        yield Said("assistant", texts, calls=len(_ids(turn, "toolUse")))
        return
    for result in (block["toolResult"] for block in blocks if "toolResult" in block):
        told = [
            inner.get("text") or json.dumps(inner["json"])
            for inner in result["content"]
            if inner.keys() & {"text", "json"}
        ]
        yield Said("tool", "".join(told), media=sum("image" in inner for inner in result["content"]))
    media = sum(bool(block.keys() & {"image", "document", "video", "audio"}) for block in blocks)
    if texts or media:
        yield Said("user", texts, media=media)


def whole(given: Given, ids: Ids, used: Used, sign: Callable[[str], str]) -> Json:
    """Return the answer in one piece."""
    content: list[Json] = []
    if given.thoughts:
        text = {"text": given.thoughts, "signature": sign(given.thoughts)}
        content.append({"reasoningContent": {"reasoningText": text}})
    if given.text or not given.calls:
        content.append({"text": given.text})
    content += [{"toolUse": {"toolUseId": _use(ids), "name": call.name, "input": call.object}} for call in given.calls]
    return {
        "metrics": {"latencyMs": 12},
        "output": {"message": {"content": content, "role": "assistant"}},
        "stopReason": _STOPPED[given.finish],
        "usage": _usage(given, used),
    }


def frames(given: Given, ids: Ids, used: Used, sign: Callable[[str], str]) -> list[bytes]:
    """Return the frames of an event stream."""
    return [frame(name, event) for name, event in _events(given, ids, used, sign)]


def _events(given: Given, ids: Ids, used: Used, sign: Callable[[str], str]) -> Iterator[tuple[str, Json]]:
    yield "messageStart", {"role": "assistant"}
    index = 0
    if given.thoughts:
        for piece in given.thought_pieces:
            yield "contentBlockDelta", {"contentBlockIndex": index, "delta": {"reasoningContent": {"text": piece}}}
        signed = {"reasoningContent": {"signature": sign(given.thoughts)}}
        yield "contentBlockDelta", {"contentBlockIndex": index, "delta": signed}
        yield "contentBlockStop", {"contentBlockIndex": index}
        index += 1
    if given.text or not given.calls:
        for piece in given.pieces:
            yield "contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": piece}}
        yield "contentBlockStop", {"contentBlockIndex": index}
        index += 1
    for number, call in enumerate(given.calls, index):
        start = {"toolUse": {"toolUseId": _use(ids), "name": call.name}}
        yield "contentBlockStart", {"contentBlockIndex": number, "start": start}
        for piece in call.pieces:
            yield "contentBlockDelta", {"contentBlockIndex": number, "delta": {"toolUse": {"input": piece}}}
        yield "contentBlockStop", {"contentBlockIndex": number}
    yield "messageStop", {"stopReason": _STOPPED[given.finish]}
    yield "metadata", {"usage": _usage(given, used), "metrics": {"latencyMs": 12}}


def frame(name: str, event: Json, kind: str = "event") -> bytes:
    """Return one frame of an AWS event stream, its checksums and all."""
    what = ":event-type" if kind == "event" else ":exception-type"
    headers = _header(what, name) + _header(":content-type", "application/json") + _header(":message-type", kind)
    payload = as_json({**event, "p": "abcdefghijklmnop"[: 4 + len(name) % 8]})
    prelude = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    return struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()


def _use(ids: Ids) -> str:
    return ids.next("tooluse_", 22, LETTERS)


def blocks_to_cache(body: Json) -> Iterator[Block]:
    """Yield the blocks of a prompt in the order in which they are cached; a mark is a block of its own."""
    parts = [("tools", (body.get("toolConfig") or {}).get("tools") or []), ("system", body.get("system") or [])]
    for role, content in (*parts, *((message["role"], message["content"]) for message in body["messages"])):
        for block, behind in itertools.zip_longest(content, content[1:]):
            if "cachePoint" not in block:
                yield Block([role, block], "cachePoint" in (behind or {}))


def _usage(given: Given, used: Used) -> Json:
    tokens_in = given.tokens_in if used.rest is None else used.rest
    told = {
        "inputTokens": tokens_in,
        "outputTokens": given.tokens_out,
        "cacheReadInputTokens": used.read,
        "cacheWriteInputTokens": used.written,
    }
    return {**told, "totalTokens": sum(told.values())}
