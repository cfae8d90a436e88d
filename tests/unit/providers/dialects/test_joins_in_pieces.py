"""A whole answer of each vendor's documented form, cut into events in every way, is gathered as it was."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects import DIALECTS, Chunk

Draw = Callable[..., Any]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
SAID = st.text("abc é\n", min_size=1, max_size=8)
BYTES = st.binary(min_size=1, max_size=12)
NUMBERS = st.lists(st.integers(0, 99), min_size=1, max_size=5)


def pieces_of(draw: Draw, whole: Any) -> list[Any]:
    """Cut a text or a list into pieces."""
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    edges = [0, *cuts, len(whole)]
    return [whole[begin:end] for begin, end in pairwise(edges)]


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def gathered(dialect: str, said: Sequence[Any]) -> Any:
    gathering = DIALECTS[dialect].answers.gathering()
    for event in said:
        gathering.take(Chunk(msgspec.json.encode(event), meaningful=True))
    return msgspec.json.decode(gathering.body())


def merged(draw: Draw, *lanes: Sequence[Any]) -> list[Any]:
    """Return the events of all lanes, each lane in its order, mixed in any way."""
    left = [list(lane) for lane in lanes if lane]
    said = []
    while left:
        lane = left[draw(st.integers(0, len(left) - 1))]
        said.append(lane.pop(0))
        left = [each for each in left if each]
    return said


# Chat: text and parts in order, reasoning, OpenRouter's details, LiteLLM's blocks, calls, sound, tokens.


def _part(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, kind: text if kind == "text" else [{"type": "text", "text": text}]}


@st.composite
def _contents(draw: Draw) -> tuple[Any, list[Any]]:
    """Return a content, and the deltas of it."""
    if draw(st.booleans()):
        text = draw(SAID)
        return text, [{"content": piece} for piece in pieces_of(draw, text)]
    kinds = draw(st.lists(st.sampled_from(["text", "thinking", "reference"]), min_size=1, max_size=5))
    parts: list[Any] = []
    deltas: list[Any] = []
    for kind in kinds:
        if kind == "reference":
            parts.append({"type": "reference", "reference_ids": draw(NUMBERS)})
            deltas.append({"content": [parts[-1]]})
        elif not parts or parts[-1]["type"] != kind:  # a stream cannot tell two of one kind apart
            text = draw(SAID)
            parts.append(_part(kind, text))
            as_text = kind == "text" and len(parts) > 1 and draw(st.booleans())
            pieces = [piece for piece in pieces_of(draw, text) if piece]
            deltas += [{"content": piece if as_text else [_part(kind, piece)]} for piece in pieces]
    return parts, deltas


@st.composite
def _details(draw: Draw) -> tuple[list[Any], list[Any]]:
    details: list[Any] = []
    deltas: list[Any] = []
    for index in range(draw(st.integers(0, 3))):
        text, signature = draw(SAID), draw(st.sampled_from([None, "sig"]))
        head = {"type": "reasoning.text", "index": index, "format": "f"}
        signed = {"signature": signature} if signature else {}
        details.append({**head, "text": text, **signed})
        deltas += [{"reasoning_details": [{**head, "text": piece}]} for piece in pieces_of(draw, text)]
        deltas += [{"reasoning_details": [{**head, "text": "", **signed}]}] if signed else []
    return details, deltas


@st.composite
def _blocks(draw: Draw) -> tuple[list[Any], list[Any]]:
    blocks: list[Any] = []
    deltas: list[Any] = []
    for number in range(draw(st.integers(0, 3))):
        text, signature = draw(SAID), f"sig{number}"
        blocks.append({"type": "thinking", "thinking": text, "signature": signature})
        said = [{"type": "thinking", "thinking": piece, "signature": ""} for piece in pieces_of(draw, text)]
        deltas += [{"thinking_blocks": [piece]} for piece in said]
        deltas.append({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": signature}]})
    return blocks, deltas


@st.composite
def _calls(draw: Draw) -> tuple[list[Any], list[Any]]:
    calls: list[Any] = []
    lanes: list[list[Any]] = []
    for index in range(draw(st.integers(0, 3))):
        arguments = msgspec.json.encode({"x": draw(TEXT)}).decode()
        call = {"id": f"c{index}", "type": "function", "function": {"name": "f", "arguments": arguments}}
        calls.append(call)
        head = {**call, "index": index, "function": {"name": "f", "arguments": ""}}
        rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces_of(draw, arguments)]
        lanes.append([{"tool_calls": [piece]} for piece in rest])
        lanes[-1].insert(0, {"tool_calls": [head]})
    return calls, [*(lane[0] for lane in lanes), *merged(draw, *(lane[1:] for lane in lanes))]


@st.composite
def chats(draw: Draw) -> tuple[Any, list[Any]]:
    content, lane = draw(_contents())
    message: dict[str, Any] = {"role": "assistant", "content": content}
    lanes = [lane]
    for name, made in (("reasoning_details", _details()), ("thinking_blocks", _blocks()), ("tool_calls", _calls())):
        entries, deltas = draw(made)
        if entries:
            message[name] = entries
            lanes.append(deltas)
    for name in ("reasoning_content", "refusal"):
        if draw(st.booleans()):
            message[name] = draw(SAID)
            lanes.append([{name: piece} for piece in pieces_of(draw, message[name])])
    if draw(st.booleans()):
        sound, transcript = draw(BYTES), draw(SAID)
        message["audio"] = {"id": "a", "data": encoded(sound), "transcript": transcript, "expires_at": 5}
        audio = [{"data": encoded(piece)} for piece in pieces_of(draw, sound)]
        audio += [{"transcript": piece} for piece in pieces_of(draw, transcript)]
        lanes.append([{"audio": each} for each in ({"id": "a"}, *audio, {"expires_at": 5})])
    tokens, usage = draw(NUMBERS), {"completion_tokens": 3}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": tokens}
    choice["logprobs"] = {"content": [{"token": str(token)} for token in tokens], "refusal": None}
    of_tokens = []
    for piece in pieces_of(draw, tokens):
        logprobs = {"content": [{"token": str(token)} for token in piece], "refusal": None}
        of_tokens.append({"index": 0, "delta": {}, "token_ids": piece, "logprobs": logprobs})
    deltas = [{"index": 0, "delta": delta, "finish_reason": None} for delta in merged(draw, *lanes)]
    said = [{"index": 0, "delta": {"role": "assistant", "content": ""}}, *merged(draw, deltas, of_tokens)]
    ends: list[Any] = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    if draw(st.booleans()):
        ends[0]["choices"][0]["usage"] = usage  # Moonshot
    else:
        ends.append({"choices": [], "usage": usage})
    top = {"id": "c", "created": 1, "model": "m"}
    events = [{**top, **each} for each in (*({"choices": [choice]} for choice in said), *ends)]
    return {**top, "object": "chat.completion", "choices": [choice], "usage": usage}, events


@given(chats())
def test_a_chat_in_pieces_is_gathered_whole(answer: tuple[Any, list[Any]]) -> None:
    whole, events = answer
    assert gathered("chat", events) == whole


@st.composite
def geminis(draw: Draw) -> tuple[Any, list[Any]]:
    tokens = [{"token": str(token), "logProbability": -0.5} for token in draw(NUMBERS)]
    kinds = draw(st.lists(st.sampled_from(["text", "thought", "sound", "picture", "call", "signed"]), max_size=5))
    parts: list[Any] = []
    said: list[Any] = []
    last = None
    for kind in kinds:
        if kind in {"text", "thought"} and kind != last:
            text, more = draw(SAID), {"thought": True} if kind == "thought" else {}
            parts.append({"text": text, **more})
            said += [{"text": piece, **more} for piece in pieces_of(draw, text)]
        elif kind == "sound" and kind != last:
            sound = draw(BYTES)
            inline = {"mimeType": "audio/L16;rate=24000"}
            parts.append({"inlineData": {**inline, "data": encoded(sound)}})
            said += [{"inlineData": {**inline, "data": encoded(piece)}} for piece in pieces_of(draw, sound)]
        elif kind not in {"text", "thought", "sound"}:
            part: Any = {"picture": {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}}.get(kind)
            part = part or {"call": {"functionCall": {"name": "f", "args": {"x": 1}}}}.get(kind)
            parts.append(part or {"text": "signed", "thoughtSignature": "s"})
            said.append(parts[-1])
        last = kind
    grounding = {"webSearchQueries": draw(NUMBERS)}
    events = [{"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in said]
    of_tokens = [
        {"candidates": [{"index": 0, "logprobsResult": {"chosenCandidates": piece}}]}
        for piece in pieces_of(draw, tokens)
    ]
    top = {"responseId": "r", "modelVersion": "m"}
    counts = {"usageMetadata": {"candidatesTokenCount": 3}}
    end = {"candidates": [{"index": 0, "finishReason": "STOP", "groundingMetadata": grounding}], **counts}
    candidate = {"index": 0, "logprobsResult": {"chosenCandidates": tokens}, "finishReason": "STOP"}
    candidate["groundingMetadata"] = grounding
    if parts:
        candidate["content"] = {"parts": parts, "role": "model"}
    whole = {"candidates": [candidate], **top, **counts}
    return whole, [{**each, **top} for each in (*merged(draw, events, of_tokens), end)]


@given(geminis())
def test_an_answer_of_gemini_in_pieces_is_gathered_whole(answer: tuple[Any, list[Any]]) -> None:
    whole, events = answer
    assert gathered("gemini", events) == whole


@st.composite
def responses(draw: Draw) -> tuple[Any, list[Any]]:
    """Return a response, and its events; the last one has all of its output, or a part of it that is whole."""
    output: list[Any] = []
    lanes: list[list[Any]] = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(["text", "call", "custom"]), min_size=1, max_size=3))):
        text, place = draw(SAID), {"output_index": index, "item_id": f"i{index}"}
        if kind == "text":
            part = {"type": "output_text", "text": text, "annotations": []}
            item = {"id": f"i{index}", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
            begun, name, field = {**item, "content": [], "status": "in_progress"}, "response.output_text", "text"
            place["content_index"] = 0
        else:
            type_, field = ("function_call", "arguments") if kind == "call" else ("custom_tool_call", "input")
            item = {"id": f"i{index}", "type": type_, "status": "completed", "call_id": f"c{index}", "name": "f"}
            item[field] = text
            begun, name = {**item, field: "", "status": "in_progress"}, f"response.{type_}_{field}"
        output.append(item)
        deltas = [{"type": f"{name}.delta", **place, "delta": piece} for piece in pieces_of(draw, text)]
        ended = {"type": f"{name}.done", **place, field: text}
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        told = draw(st.sampled_from([deltas, [*deltas, ended], [ended], [*deltas, ended, done], [done]]))
        lanes.append([{"type": "response.output_item.added", "output_index": index, "item": begun}, *told])
    kept = draw(st.sampled_from([output, [], output[:1], output[1:]]))
    response = {"id": "r", "object": "response", "status": "completed", "usage": {"output_tokens": 3}}
    end = {"type": "response.completed", "response": {**response, "output": kept}}
    return {**response, "output": output}, [*merged(draw, *lanes), end]


@given(responses())
def test_a_response_in_pieces_is_gathered_whole_whatever_its_last_event_lacks(answer: tuple[Any, list[Any]]) -> None:
    whole, events = answer
    assert gathered("responses", events) == whole


@given(st.data())
def test_a_completion_in_pieces_is_gathered_whole(data: st.DataObject) -> None:
    text, tokens, top = data.draw(SAID), data.draw(NUMBERS), {"id": "c", "created": 1, "model": "m"}
    names = [str(token) for token in tokens]
    logprobs = {"tokens": names, "token_logprobs": [-0.5] * len(names), "text_offset": tokens}
    choice = {"index": 0, "text": text, "logprobs": logprobs, "token_ids": tokens, "finish_reason": "stop"}
    texts = [{"index": 0, "text": piece} for piece in pieces_of(data.draw, text)]
    of_tokens = [
        {"index": 0, "text": "", "token_ids": piece, "logprobs": {**logprobs, **_tokens(piece)}}
        for piece in pieces_of(data.draw, tokens)
    ]
    said = [*merged(data.draw, texts, of_tokens), {"index": 0, "text": "", "finish_reason": "stop"}]
    whole = {**top, "object": "text_completion", "choices": [choice]}
    assert gathered("completions", [{**top, "choices": [each]} for each in said]) == whole


def _tokens(piece: list[int]) -> dict[str, Any]:
    return {"tokens": [str(token) for token in piece], "token_logprobs": [-0.5] * len(piece), "text_offset": piece}


@given(st.data())
def test_a_message_in_pieces_is_gathered_whole(data: st.DataObject) -> None:
    content: list[Any] = []
    events: list[Any] = [{"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}]
    fields = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
    for index, kind in enumerate(data.draw(st.lists(st.sampled_from([*fields]), min_size=1, max_size=4))):
        text, delta = data.draw(SAID), fields[kind]
        block: dict[str, Any] = {"type": kind, kind: text}
        begun: dict[str, Any] = {"type": kind, kind: ""}
        name = kind
        if kind == "tool_use":
            block = {"type": kind, "id": "t", "name": "f", "input": {"x": text}}
            begun, text, name = {**block, "input": {}}, msgspec.json.encode(block["input"]).decode(), "partial_json"
        deltas = [{"type": delta, name: piece} for piece in pieces_of(data.draw, text)]
        if kind == "thinking":
            block["signature"] = "sig"
            deltas.append({"type": "signature_delta", "signature": "sig"})
        content.append(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}})
    whole = {"id": "m", "role": "assistant", "content": content, **end, "usage": {"output_tokens": 3}}
    assert gathered("messages", [*events, {"type": "message_stop"}]) == whole
