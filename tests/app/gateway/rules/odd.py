"""What providers say beside texts and calls, and what they say oddly: for each an input, and the one thing it says."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.app.gateway.rules.asking import Rule, Said, chat, google, interaction, named
from tests.app.gateway.rules.table import (
    COUNTED,
    INTERACTING,
    TEXT,
    WORDS,
    F,
    G,
    block,
    call_block,
    chunk,
    completion,
    converse_block,
    conversed,
    interacted,
    interacted_at_end,
    item_call,
    item_text,
    message,
    message_end,
    message_start,
    output_of,
    parts,
    responded,
    response_begun,
    response_call,
    response_end,
    response_text,
    said_by_converse,
    step_of,
    text_block,
    text_of,
)

_WRITERS: Mapping[str, Callable[..., bytes]] = {
    "chat": chat,
    "messages": named,
    "responses": named,
    "gemini": google,
    "interactions": interaction,
}
_USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
_TOP = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
COUNT = {**_TOP, "choices": [], "usage": _USAGE}
STOP = chunk({}, "stop")
DONE = b"data: [DONE]\n\n"
HE, LLO = chunk({"content": "He"}), chunk({"content": "llo"})
SAID = Said(TEXT)


def rule(
    api: str,
    name: str,
    stream: bytes | Sequence[Any],
    body: Any = None,
    said: Said = SAID,
    *,
    tokens: Mapping[str, Any] | None = COUNTED,
    **more: Any,
) -> Rule:
    told = stream if isinstance(stream, bytes) else _WRITERS[api](*stream)
    return Rule(f"{api}: {name}", api, told, body, said, None if said.error is not None else tokens, **more)


def wrong(*given: Any, **more: Any) -> Rule:
    """Return the rule of what was wrong once, in a form or for a client."""
    return rule(*given, **more, once_wrong=True)


def data(*said: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in said)


def without(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != name}


# What answers say beside texts: references, log probabilities, pictures, sound, refusals, thoughts.

PAGE, OTHER = "https://example.com/a", "https://example.com/b"
CITED = Said(TEXT, cited=[PAGE])
PNG = "data:image/png;base64,aGk="
SOUND = "aGVsbG8h"


def url_citation(url: str = PAGE) -> dict[str, Any]:
    return {"type": "url_citation", "url_citation": {"url": url, "title": "A", "start_index": 0, "end_index": 2}}


def _of_references() -> list[Rule]:
    flat = {"type": "url_citation", "url": PAGE, "title": "A", "start_index": 0, "end_index": 2}
    found = {"type": "web_search_result_location", "url": PAGE, "title": "A", "cited_text": "x", "encrypted_index": "e"}
    given: dict[str, Any] = {"type": "search_result_location", "source": PAGE, "title": "A", "cited_text": "x"}
    given |= {"search_result_index": 0, "start_block_index": 0, "end_block_index": 1}
    grounding = {"groundingMetadata": {"groundingChunks": [{"web": {"uri": PAGE, "title": "A"}}]}}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    added = {"type": "response.output_text.annotation.added", **place, "annotation_index": 0, "annotation": flat}
    begun, end = response_text(TEXT)[:3], response_text(TEXT)[3:-1]
    cited = item_text(TEXT, annotations=[flat])
    done = {"type": "response.output_item.done", "output_index": 0, "item": cited}
    whole = parts({"text": TEXT}, reason="STOP")
    whole["candidates"][0] |= grounding
    late = {**parts(), "candidates": [{"index": 0, **grounding}]}
    page = {"title": "A", "location": {"web": {"url": PAGE, "domain": "example.com"}}}
    block_ = [*converse_block(0, {"text": TEXT})[:-1], ("contentBlockDelta", {"delta": {"citation": page}})]
    content = {"citationsContent": {"content": [{"text": TEXT}], "citations": [page]}}
    rules = [
        wrong(
            "chat",
            "annotations",
            [HE, LLO, chunk({"annotations": [url_citation()]}), STOP, COUNT],
            completion({"content": TEXT, "annotations": [url_citation()]}),
            CITED,
        ),
        wrong(
            "messages",
            "a citation of a page",
            [
                message_start(),
                *text_block(0, TEXT)[:-1],
                {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": found}},
                *text_block(0)[-1:],
                *message_end("end_turn"),
            ],
            message({**text_of(TEXT), "citations": [found]}),
            CITED,
        ),
        wrong(
            "responses",
            "annotations",
            [response_begun(), *begun, added, *end, done, response_end(responded(cited))],
            responded(cited),
            CITED,
        ),
        wrong(
            "gemini",
            "grounding",
            [parts({"text": TEXT}), {**parts(reason="STOP"), **late}, parts(reason="STOP")],
            whole,
            CITED,
        ),
        wrong(
            "converse",
            "a citation of a page",
            said_by_converse([*block_, ("contentBlockStop", {})], reason="end_turn"),
            conversed(content, reason="end_turn"),
            CITED,
        ),
    ]
    vendors: Mapping[str, Mapping[str, Any]] = {
        "xAI": {"citations": [PAGE]},
        "Perplexity": {"citations": [PAGE], "search_results": [{"title": "A", "url": PAGE}]},
    }
    for vendor, beside in vendors.items():
        last = {**STOP, **beside, "usage": _USAGE}
        body = completion({"content": TEXT}, **beside)
        rules.append(
            wrong("chat", f"{vendor}'s references", [HE, LLO, last], body, CITED, passes=True, passes_whole=True)
        )
        both = chunk({"annotations": [url_citation()]})
        said = Said(TEXT, cited=[PAGE])
        body = completion({"content": TEXT, "annotations": [url_citation()]}, **beside)
        rules.append(wrong("chat", f"{vendor}'s references, and annotations", [HE, LLO, both, last], body, said))
    begun = [message_start(), *text_block(0, TEXT)[:-1]]
    cite = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": given}}
    events = [*begun, cite, *text_block(0)[-1:], *message_end("end_turn")]
    whole = message({**text_of(TEXT), "citations": [given]})
    rules.append(
        wrong("messages", "a citation of a given result", events, whole, CITED, passes=True, passes_whole=True)
    )
    return rules


def _of_tokens() -> list[Rule]:
    tokens = [("He", -0.5), ("llo", -0.25)]
    said = Said(TEXT, tokens=tokens)
    own = [{"token": text, "logprob": number, "bytes": [*text.encode()], "top_logprobs": []} for text, number in tokens]
    chosen = [{"token": text, "logProbability": number} for text, number in tokens]
    chunks = [
        {**_TOP, "choices": [{"index": 0, "delta": {"content": each["token"]}, "logprobs": {"content": [each]}}]}
        for each in own
    ]
    body = completion({"content": TEXT})
    body["choices"][0]["logprobs"] = {"content": own, "refusal": None}
    deltas = response_text("He", "llo")
    for delta, each in zip(deltas[2:4], own, strict=True):
        delta["logprobs"] = [each]
    item = item_text(TEXT, logprobs=own)
    deltas[-1] = {**deltas[-1], "item": item}
    events = [parts({"text": text}) for text, _ in tokens]
    for event, each in zip(events, chosen, strict=True):
        event["candidates"][0]["logprobsResult"] = {"chosenCandidates": [each]}
    whole = parts({"text": TEXT}, reason="STOP")
    whole["candidates"][0]["logprobsResult"] = {"chosenCandidates": chosen}
    return [
        wrong("chat", "log probabilities", [*chunks, STOP, COUNT], body, said),
        wrong(
            "responses",
            "log probabilities",
            [response_begun(), *deltas, response_end(responded(item))],
            responded(item),
            said,
        ),
        wrong("gemini", "log probabilities", [*events, parts(reason="STOP")], whole, said),
    ]


def _of_pictures_and_sound() -> list[Rule]:
    seen = Said(TEXT, pictures=[PNG])
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    images = {"images": [{"type": "image_url", "image_url": {"url": PNG}}]}
    item = {
        "id": "ig_1",
        "type": "image_generation_call",
        "status": "completed",
        "result": "aGk=",
        "output_format": "png",
    }
    added = {"type": "response.output_item.added", "output_index": 1, "item": {**item, "result": None}}
    done = {"type": "response.output_item.done", "output_index": 1, "item": item}
    source = {"format": "png", "source": {"bytes": "aGk="}}
    delta = {"image": {"source": source["source"]}}
    text: list[dict[str, Any]] = [{"text": TEXT}, {"image": source}]
    drawn = [converse_block(0, {"text": TEXT}), converse_block(1, delta, start={"image": {"format": "png"}})]
    heard = Said(sound=SOUND)
    sound = {"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": SOUND}}
    audio = {"audio": {"id": "a", "data": SOUND}}
    mute = ("messages", "responses")
    return [
        rule(
            "chat",
            "a picture",
            [HE, LLO, chunk(images), STOP, COUNT],
            completion({"content": TEXT, **images}),
            seen,
            no_place=("messages",),
        ),
        rule(
            "gemini",
            "a picture",
            [parts({"text": TEXT}), parts(picture), parts(reason="STOP")],
            parts({"text": TEXT}, picture, reason="STOP"),
            seen,
            no_place=("messages",),
        ),
        rule(
            "responses",
            "a picture",
            [response_begun(), *response_text(TEXT), added, done, response_end(responded(item_text(TEXT), item))],
            responded(item_text(TEXT), item),
            seen,
            no_place=("messages",),
        ),
        rule(
            "converse",
            "a picture",
            said_by_converse(*drawn, reason="end_turn"),
            conversed(*text, reason="end_turn"),
            seen,
            no_place=("messages",),
        ),
        rule(
            "chat", "sound", [chunk(audio), STOP, COUNT], completion({"content": None, **audio}), heard, no_place=mute
        ),
        rule(
            "gemini",
            "sound",
            [parts(sound), parts(reason="STOP")],
            parts(sound, reason="STOP"),
            heard,
            no_place=mute,
        ),
    ]


def _of_refusals() -> list[Rule]:
    refused = Said("I cannot.", ended="refused")
    item = item_text("")
    item["content"] = [{"type": "refusal", "refusal": "I cannot."}]
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events = [
        response_begun(),
        {"type": "response.refusal.delta", **place, "delta": "I cannot."},
        {"type": "response.refusal.done", **place, "refusal": "I cannot."},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        response_end(responded(item)),
    ]
    pieces = [chunk({"refusal": "I can"}), chunk({"refusal": "not."})]
    empty = [chunk({"content": "He", "refusal": ""}), chunk({"content": "llo", "refusal": None}), STOP, COUNT]
    filtered = Said("I cannot.", ended="filtered")
    return [
        rule(
            "chat", "a refusal", [*pieces, STOP, COUNT], completion({"content": None, "refusal": "I cannot."}), refused
        ),
        rule(
            "chat",
            "a refusal, by a filter",
            [*pieces, chunk({}, "content_filter"), COUNT],
            completion({"content": None, "refusal": "I cannot."}, "content_filter"),
            filtered,
        ),
        rule("chat", "refusals of nothing", empty, completion({"content": TEXT, "refusal": ""})),
        rule("responses", "a refusal", events, responded(item), refused),
    ]


THOUGHT = Said(TEXT, thoughts="hmm")


def _of_thoughts() -> list[Rule]:
    hm, m = ({"type": "reasoning.text", "text": text, "index": 0} for text in ("hm", "m"))
    typed = {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}
    by_name: dict[str, tuple[list[dict[str, Any]], Any]] = {
        "reasoning": ([{"reasoning": "hm"}, {"reasoning": "m"}], {"reasoning": "hmm"}),
        "reasoning_content": ([{"reasoning_content": "hm"}, {"reasoning_content": "m"}], {"reasoning_content": "hmm"}),
        "by two names": (
            [{"reasoning": "hm", "reasoning_content": "hm"}, {"reasoning_content": "m", "reasoning": "m"}],
            {"reasoning": "hmm", "reasoning_content": "hmm"},
        ),
        "by two names, of which one is empty": (
            [{"reasoning": "hm", "reasoning_content": ""}, {"reasoning_content": None, "reasoning": "m"}],
            {"reasoning": "hmm", "reasoning_content": ""},
        ),
        "with details": (
            [{"reasoning": "hm", "reasoning_details": [hm]}, {"reasoning": "m", "reasoning_details": [m]}],
            {"reasoning": "hmm", "reasoning_details": [{**hm, "text": "hmm"}]},
        ),
        "in details": (
            [{"reasoning_details": [hm]}, {"reasoning_details": [m]}],
            {"reasoning_details": [{**hm, "text": "hmm"}]},
        ),
        "in a summary": ([{"reasoning_details": [{"type": "reasoning.summary", "summary": "hmm"}]}], None),
        "in blocks": ([{"thinking_blocks": [{"type": "thinking", "thinking": "hmm"}]}], None),
        "reasoning_text": ([{"reasoning_text": "hm"}, {"reasoning_text": "m"}], {"reasoning_text": "hmm"}),
        "thinking": ([{"thinking": "hm"}, {"thinking": "m"}], {"thinking": "hmm"}),
        "in a part": ([{"content": [typed]}], {"content": [typed, {"type": "text", "text": TEXT}]}),
        "in a part as text": ([{"content": [{"type": "thinking", "thinking": "hmm"}]}], None),
        "in a part and by name": ([{"reasoning_content": "hmm", "content": [typed]}], None),
        "in a part with a summary": (
            [{"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}]}]}],
            {
                "content": [
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}]},
                    {"type": "text", "text": TEXT},
                ]
            },
        ),
        "in a part of reasoning": ([{"content": [{"type": "reasoning", "text": "hmm"}]}], None),
    }
    plain = {"reasoning", "reasoning_content", "by two names", "by two names, of which one is empty", "with details"}
    right = {*plain, "in a part", "in a part as text"}
    rules = [
        (rule if how in right else wrong)(
            "chat",
            f"thoughts: {how}",
            [*map(chunk, deltas), HE, LLO, STOP, COUNT],
            None if body is None else completion({"content": TEXT, **body}),
            THOUGHT,
            passes=how not in plain,
            passes_whole=how not in plain,
        )
        for how, (deltas, body) in by_name.items()
    ]
    tagged = "<think>hmm</think>Hello"
    pieces = ("<", "think>hm", "m</", "think>", "He", "llo")
    events = [*(chunk({"content": piece}) for piece in pieces), STOP, COUNT]
    rules.append(rule("chat", "thoughts: between marks", events, completion({"content": tagged}), Said(tagged)))
    late = [HE, chunk({"reasoning": "hmm"}), LLO, STOP, COUNT]
    rules.append(rule("chat", "thoughts: behind a text", late, None, THOUGHT))
    return [*rules, *_of_thoughts_elsewhere()]


def _of_thoughts_elsewhere() -> list[Rule]:
    rules = []
    start, end = message_start(), message_end("end_turn")
    hmm = {"type": "thinking_delta", "thinking": "hmm"}
    signature = {"type": "signature_delta", "signature": "s"}
    for how, begun, deltas, said in (
        ("signed", {"type": "thinking", "thinking": "", "signature": ""}, [hmm, signature], {"signature": "s"}),
        ("not signed", {"type": "thinking", "thinking": ""}, [hmm], {}),
        ("at the start of their block", {"type": "thinking", "thinking": "hmm"}, [], {}),
    ):
        events = [start, *block(0, begun, *deltas), *text_block(1, "He", "llo"), *end]
        whole = message({"type": "thinking", "thinking": "hmm", **said}, text_of(TEXT))
        rules.append(rule("messages", f"thoughts: {how}", events, whole, THOUGHT))
    place = {"item_id": "rs_1", "output_index": 0}
    behind = [{**event, "output_index": 1} for event in response_text("He", "llo")]
    summary = [{"type": "summary_text", "text": "hmm"}]
    for how, item, delta in (
        ("a summary", {"summary": summary}, {"type": "response.reasoning_summary_text.delta", "summary_index": 0}),
        (
            "a text",
            {"summary": [], "content": [{"type": "reasoning_text", "text": "hmm"}]},
            {"type": "response.reasoning_text.delta"},
        ),
        ("in their item alone", {"summary": summary}, None),
    ):
        whole_item = {"type": "reasoning", "id": "rs_1", **item}
        done = {"type": "response.output_item.done", "output_index": 0, "item": whole_item}
        told = [] if delta is None else [{**delta, **place, "content_index": 0, "delta": "hmm"}]
        whole = responded(whole_item, item_text(TEXT))
        events = [response_begun(), *told, done, *behind, response_end(whole)]
        rules.append(rule("responses", f"thoughts: {how}", events, whole, THOUGHT))
    thought = {"text": "hmm", "thought": True}
    events = [parts(thought), parts({"text": TEXT}), parts(reason="STOP")]
    rules.append(rule("gemini", "thoughts", events, parts(thought, {"text": TEXT}, reason="STOP"), THOUGHT))
    thinking = {"reasoningContent": {"text": "hmm"}}
    stream = said_by_converse(converse_block(0, thinking), converse_block(1, {"text": TEXT}), reason="end_turn")
    body = conversed({"reasoningContent": {"reasoningText": {"text": "hmm"}}}, {"text": TEXT}, reason="end_turn")
    return [*rules, rule("converse", "thoughts", stream, body, THOUGHT)]


# Chat, oddly.


def _of_chat() -> list[Rule]:
    nothing = {**COUNT, "usage": {}}
    zeros = {**COUNT, "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
    named_ = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}
    bare = {**_TOP, "choices": [{"index": 0, "finish_reason": "stop"}]}
    empty = {**_TOP, "choices": [{"index": 0, "delta": None, "finish_reason": None}]}
    last = {**_TOP, "choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}
    part = {"type": "text", "text": "llo"}
    partly: dict[str, Any] = {"passes": True, "passes_whole": True}
    one = {**_TOP, "choices": [{"index": 1, "delta": {"content": TEXT}}]}
    end = {**_TOP, "choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}
    words = {**_TOP, "choices": [{"index": "0", "delta": {"content": TEXT}, "finish_reason": None}]}
    as_message = {**_TOP, "choices": [{"index": 0, "message": {"content": TEXT}, "finish_reason": None}]}
    events: dict[str, Sequence[Any]] = {
        "usage with each chunk": [{**each, "usage": {**_USAGE, "completion_tokens": 1}} for each in (HE, LLO)]
        + [STOP, COUNT],
        "usage at first": [COUNT, HE, LLO, STOP],
        "usage without choices": [HE, LLO, STOP, without(COUNT, "choices")],
        "usage with null for choices": [HE, LLO, STOP, {**COUNT, "choices": None}],
        "usage beside an empty delta": [HE, LLO, STOP, {**chunk({}), "usage": _USAGE}],
        "usage in parts": [
            {**HE, "usage": {"prompt_tokens": 11}},
            LLO,
            STOP,
            {**COUNT, "usage": {"completion_tokens": 5}},
        ],
        "no usage with each chunk": [{**HE, "usage": {}}, {**LLO, "usage": None}, STOP, COUNT],
        "an empty word with each chunk": [chunk({"content": "He"}, ""), chunk({"content": "llo"}, ""), STOP, COUNT],
        "a word with each chunk": [chunk({"content": "He"}, "stop"), chunk({"content": "llo"}, "stop"), STOP, COUNT],
        "the end twice": [HE, LLO, STOP, STOP, COUNT],
        "the end without a delta": [HE, LLO, bare, COUNT],
        "the end with null for a delta": [HE, empty, LLO, last, COUNT],
        "a number for a word": [HE, LLO, chunk({}, 1), STOP, COUNT],  # type: ignore[arg-type]  # so it is sent
        "text behind the end": [HE, STOP, LLO, COUNT],
        "a role with each chunk": [chunk({"role": "assistant", "content": text}) for text in ("He", "llo")]
        + [STOP, COUNT],
        "no role with each chunk": [chunk({"role": "", "content": text}) for text in ("He", "llo")] + [STOP, COUNT],
        "nulls for texts": [
            chunk({"role": "assistant", "content": None}),
            HE,
            chunk({"content": None}),
            LLO,
            STOP,
            COUNT,
        ],
        "no choices first, between and last": [
            {**COUNT, "usage": None},
            HE,
            {**_TOP, "choices": None},
            LLO,
            STOP,
            COUNT,
            {**_TOP, "choices": []},
        ],
        "a choice with another number": [one, end, COUNT],
        "a choice with a number in words": [words, STOP, COUNT],
        "a message for a delta": [as_message, STOP, COUNT],
        "calls of nothing": [
            chunk({"content": "He", "tool_calls": []}),
            chunk({"content": "llo", "tool_calls": None}),
            STOP,
            COUNT,
        ],
    }
    rules = [rule("chat", name, chunks) for name, chunks in events.items()]
    body = completion({"content": TEXT}, usage=named_)
    parted = completion({"content": ["He", part]})
    rules += [
        wrong("chat", "usage, then an empty one", [HE, LLO, STOP, COUNT, nothing]),
        wrong("chat", "usage, then zeros", [HE, LLO, STOP, COUNT, zeros]),
        wrong("chat", "usage by the names of Responses", [HE, LLO, STOP, {**COUNT, "usage": named_}], body),
        wrong("chat", "a text among parts", [chunk({"content": ["He", part]}), STOP, COUNT], parted, **partly),
        wrong(
            "chat", "a part without a list", [chunk({"content": {**part, "text": TEXT}}), STOP, COUNT], None, **partly
        ),
        rule("chat", "parts", [HE, chunk({"content": [part]}), STOP, COUNT], None, **partly),
        rule("chat", "calls that are none", [HE, LLO, chunk({}, "tool_calls"), COUNT], None, **partly),
        rule(
            "chat",
            "an unknown word",
            [HE, LLO, chunk({}, "eos"), COUNT],
            completion({"content": TEXT}, "eos"),
            **partly,
        ),
        rule("chat", "a body without an end", [HE, LLO, STOP, COUNT], completion({"content": TEXT}, None)),
        rule("chat", "a body in an array", [HE, LLO, STOP, COUNT], [completion({"content": TEXT})]),
    ]
    broken = Said(TEXT, ended="error", error="finish reason")
    rules.append(rule("chat", "no end", [HE, LLO, chunk({}), COUNT], None, broken))
    object_ = {**_TOP, "choices": [{"index": 0, "delta": {}, "finish_reason": {"type": "stop"}}]}
    rules.append(wrong("chat", "an object for a word", [HE, LLO, object_, COUNT], None, broken, passes=True))
    delta = completion({"content": TEXT})
    delta["choices"] = [{"index": 0, "delta": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}]
    rules.append(rule("chat", "a body with a delta", [HE, LLO, STOP, COUNT], delta))
    rules += _of_framing()
    return rules


def _of_framing() -> list[Rule]:
    told = data(HE, LLO, STOP, COUNT)
    halves = rb'{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}'
    smile = b"".join(b"data: %b\n\n" % halves.replace(b"%s", half) for half in (b"\\ud83d", b"\\ude00"))
    letters = ("Grüße 日本", "語 😀\u2028x\x85")
    utf_8 = b"".join(
        b"data: %b\n\n" % json.dumps(chunk({"content": text}), ensure_ascii=False).encode() for text in letters
    )
    lines = b"".join(b"event: message\nid: 3\nretry: 10\n" + event + b"\n\n" for event in told.split(b"\n\n") if event)
    split = b'data: {"id":"c1","model":"m",\ndata: "choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
    streams: dict[str, tuple[bytes, str]] = {
        "no [DONE]": (told, TEXT),
        "no blank line at the end": ((told + DONE)[:-2], TEXT),
        "neither": (told[:-2], TEXT),
        "[DONE] twice": (told + DONE + DONE, TEXT),
        "more behind [DONE]": (told + DONE + data(HE), TEXT),
        "no space behind data": ((told + DONE).replace(b"data: ", b"data:"), TEXT),
        "CRLF": ((told + DONE).replace(b"\n", b"\r\n"), TEXT),
        "CR": ((told + DONE).replace(b"\n", b"\r"), TEXT),
        "a byte order mark": (b"\xef\xbb\xbf" + told + DONE, TEXT),
        "comments": (
            b": x\n\n" + data(HE) + b": PROCESSING\n\n" + data(LLO) + b":\n\n" + data(STOP, COUNT) + DONE,
            TEXT,
        ),
        "names, ids and times": (lines + DONE, TEXT),
        "pings": (data(HE) + b'event: ping\ndata: {"type":"ping"}\n\n' + data({}, LLO, STOP, COUNT) + DONE, TEXT),
        "no data": (data(HE) + b"data: \n\ndata:\n\n" + data(LLO, STOP, COUNT) + DONE, TEXT),
        "several lines of data": (split + data(STOP, COUNT) + DONE, TEXT),
        "no blank lines between": ((told + DONE).replace(b"\n\n", b"\n"), TEXT),
        "many blank lines": ((told + DONE).replace(b"\n\n", b"\n\n\n\n"), TEXT),
        "halves of a character": (smile + data(STOP, COUNT) + DONE, "😀"),
        "half a character": (smile.partition(b"\n\n")[0] + b"\n\n" + data(HE, STOP, COUNT) + DONE, "\ufffdHe"),
        "letters as they are": (utf_8 + data(STOP, COUNT) + DONE, "".join(letters)),
    }
    return [rule("chat", name, stream, None, Said(text)) for name, (stream, text) in streams.items()]


def piece(index: Any, call_id: Any = None, name: Any = None, written: Any = None) -> dict[str, Any]:
    """Return a piece of a call with what is given of it."""
    beside = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    function = {key: value for key, value in (("name", name), ("arguments", written)) if value is not None}
    return {**beside, "function": function}


ONE, TWO = '{"x":1}', '{"x":2}'


def _of_chats_calls() -> list[Rule]:
    first, second = piece(0, "a", "f", ONE), piece(1, "b", "g", TWO)
    nulls = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": ONE}}
    both = Said(calls=[F, G], ended="calls")
    same = Said(calls=[F, ("f", {"x": 2})], ended="calls")
    empty = Said(calls=[("f", {}), ("g", {})], ended="calls")
    long = ['{"x":"', *["y" * 20_000] * 20, '"}']
    pieces: dict[str, tuple[Sequence[Any], Said]] = {
        "no indexes": ([piece(None, "a", "f", ""), piece(None, None, None, ONE), piece(None, "b", "g", TWO)], both),
        "one index": ([piece(0, "a", "f", ONE), piece(0, "b", "g", TWO)], both),
        "indexes from 1": ([piece(1, "a", "f", ONE), piece(2, "b", "g", TWO)], both),
        "indexes out of order": (
            [piece(1, "a", "f", ""), piece(0, "b", "g", ""), piece(1, None, None, ONE), piece(0, None, None, TWO)],
            both,
        ),
        "indexes in words": ([piece("0", "a", "f", ONE), piece("1", "b", "g", TWO)], both),
        "no ids": ([piece(0, None, "f", ONE), piece(1, None, "g", TWO)], both),
        "neither": ([piece(None, None, "f", ONE), piece(None, None, "g", TWO)], both),
        "neither, of one name": ([piece(None, None, "f", ONE), piece(None, None, "f", TWO)], same),
        "one id, no indexes": ([piece(None, "a", "f", ONE), piece(None, "a", "g", TWO)], both),
        "one id, of one name": ([piece(None, "a", "f", ONE), piece(None, "a", "f", TWO)], same),
        "ids and names again": ([piece(0, "a", "f", '{"x"'), piece(0, "a", "f", ":1}"), piece(1, "b", "g", TWO)], both),
        "new ids, and names again": (
            [piece(0, "a", "f", '{"x"'), piece(0, "c", "f", ":1}"), piece(1, "b", "g", TWO)],
            both,
        ),
        "empty ids and names": ([piece(0, "a", "f", '{"x"'), piece(0, "", "", ":1}"), piece(1, "b", "g", TWO)], both),
        "objects for arguments": ([piece(0, "a", "f", {"x": 1}), piece(1, "b", "g", {"x": 2})], both),
        "nulls": ([{**first, "function": {"name": "f", "arguments": None}}, nulls, second], both),
        "a function of null": ([first, {"index": 0, "function": None}, second], both),
        "no arguments": ([piece(0, "a", "f", ""), piece(1, "b", "g")], empty),
        "null for arguments": ([piece(0, "a", "f", "null"), second], Said(calls=[("f", {}), G], ended="calls")),
        "arguments encoded twice": ([piece(0, "a", "f", json.dumps(ONE)), second], both),
        "arguments so far": ([piece(0, "a", "f", '{"x"'), piece(0, None, None, ONE), second], both),
        "arguments again": ([first, piece(0, None, None, ONE), second], both),
        "blanks around": ([piece(0, "a", "f", " " + ONE), piece(0, None, None, "\n"), second], both),
        "long arguments": (
            [piece(0, "a", "f", ""), *(piece(0, None, None, each) for each in long)],
            Said(calls=[("f", {"x": "y" * 400_000})], ended="calls"),
        ),
        "halves of a character": (
            [piece(0, "a", "f", '{"x":"\ud83d'), piece(0, None, None, '\ude00"}')],
            Said(calls=[("f", {"x": "😀"})], ended="calls"),
        ),
    }
    strict = {"ids and names again", "new ids, and names again", "arguments so far", "arguments again", "nulls"}
    rules = []
    for name, (said, wanted) in pieces.items():
        events = [*(chunk({"tool_calls": [each]}) for each in said), chunk({}, "tool_calls"), COUNT]
        tokens = None if name == "long arguments" else COUNTED
        own: dict[str, Any] = {"passes": True, "passes_whole": True}
        whole = None
        if name in {"no ids", "neither", "neither, of one name", "objects for arguments", "one index"}:
            whole = completion({"content": None, "tool_calls": list(said)}, "tool_calls")
        own["passes_whole"] = name not in strict
        rules.append(rule("chat", f"calls: {name}", events, whole, wanted, tokens=tokens, **own))
    calls = {"tool_calls": [first, second]}
    old = {"function_call": {"name": "f", "arguments": ONE}}
    begun = {"function_call": {"name": "f", "arguments": ""}}
    one = Said(calls=[F], ended="calls")
    with_text = Said("Hi", calls=[F, G], ended="calls")
    passing: dict[str, Any] = {"passes": True, "passes_whole": True}
    alone = [chunk({"tool_calls": first}), chunk({"tool_calls": second}), chunk({}, "tool_calls"), COUNT]
    words = [chunk({"content": "Hi"})]
    return [
        *rules,
        wrong("chat", "calls: without a list", alone, None, both, passes=True),
        rule("chat", "calls: the end says stop", [chunk(calls), STOP, COUNT], completion(calls), both),
        rule("chat", "calls: with the end", [chunk(calls, "tool_calls"), COUNT], None, both),
        rule("chat", "calls: behind the end", [chunk({}, "stop"), chunk(calls), STOP, COUNT], None, both, passes=True),
        rule("chat", "calls: behind a text", [*words, chunk(calls), STOP, COUNT], None, with_text),
        rule("chat", "calls: before a text", [chunk(calls), *words, STOP, COUNT], None, with_text),
        rule(
            "chat",
            "calls: function_call",
            [chunk(begun), chunk({"function_call": {"arguments": ONE}}), chunk({}, "function_call"), COUNT],
            completion({"content": None, **old}, "function_call"),
            one,
            **passing,
        ),
        wrong(
            "chat",
            "calls: no end",
            [chunk(calls), COUNT],
            None,
            Said(calls=[F, G], ended="error", error="finish reason"),
        ),
    ]


def _of_chats_errors() -> list[Rule]:
    error = {"message": WORDS, "code": 502}
    empty = {"index": 0, "delta": {"content": ""}}
    told: dict[str, Any] = {
        "with a type": {"type": "error", "error": {"type": "overloaded_error", "message": WORDS}},
        "as an object": {"object": "error", "message": WORDS, "code": 503},
        "in a list of errors": {"success": False, "errors": [{"message": WORDS}]},
        "in a list of details": {"detail": [{"msg": WORDS, "type": "x"}]},
        "msg": {"code": 1234, "msg": WORDS},
        "error_msg": {"error_code": 17, "error_msg": WORDS},
        "errorMessage": {"errorMessage": WORDS, "errorType": "x"},
        "in a list": {"error": [{"message": WORDS}]},
        "around its vendor's": {"error": {"error": {"message": WORDS}}},
        "beside choices": {**_TOP, "error": error, "choices": [{**empty, "finish_reason": "error"}]},
        "in its choice": {**_TOP, "choices": [{**empty, "error": error, "finish_reason": "error"}]},
        "in its choice, which stops": {**_TOP, "choices": [{**empty, "error": error, "finish_reason": "stop"}]},
        "in an array": [{"error": {"code": 503, "message": WORDS, "status": "UNAVAILABLE"}}],
    }
    new = {"error_msg", "errorMessage", "in a list", "around its vendor's"}
    rules = []
    for how, event in told.items():
        make = wrong if how in new else rule
        said = Said("He", ended="error", error=WORDS)
        rules.append(make("chat", f"an error {how}, after a text", data(HE, event) + DONE, None, said))
        rules.append(make("chat", f"an error {how}, alone", data(event), event, Said(ended="error", error=WORDS)))
    for how, written in {"a text": WORDS.encode(), "an object": b'{"message":"%b"}' % WORDS.encode()}.items():
        said = Said("He", ended="error", error=WORDS)
        rules.append(
            rule(
                "chat",
                f"an event named error: {how}",
                data(HE) + b"event: error\ndata: " + written + b"\n\n",
                None,
                said,
            )
        )
    return rules


# Messages, oddly.


def _of_messages() -> list[Rule]:
    start, text, end = message_start(), text_block(0, "He", "llo"), message_end("end_turn")
    null = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}}
    counted = {"type": "message_delta", "usage": {"output_tokens": 5}}
    passing: dict[str, Any] = {"passes": True}
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}}
    late = [stop, {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}}, end[1]]
    counts = message_end("end_turn", {"input_tokens": 11, "output_tokens": 5})
    nulls = {"output_tokens": 5, "input_tokens": None, "cache_read_input_tokens": None}
    plain = data(start, *text, *end)
    rules = [
        rule("messages", "no start", [*text, *counts], None, **passing),
        rule("messages", "no start of a block", [start, *text[1:], *end], None, **passing),
        rule("messages", "no end of a block", [start, *text[:-1], *end]),
        rule("messages", "no message_stop", [start, *text, end[0]]),
        rule("messages", "[DONE] for message_stop", named(start, *text, end[0]) + DONE, None, **passing),
        rule("messages", "[DONE] behind message_stop", named(start, *text, *end) + DONE),
        rule("messages", "a change twice", [start, *text, end[0], *end]),
        rule("messages", "the usage in a change of its own", [start, *text, *late]),
        wrong("messages", "a change without a delta", [start, *text, counted, *end], None, **passing),
        wrong("messages", "null for a change", [start, *text, {**counted, "delta": None}, *end], None, **passing),
        rule("messages", "pings", [start, {"type": "ping"}, *text, {"type": "ping"}, *end]),
        wrong("messages", "null for a text", [start, text[0], null, *text[1:], *end], None, **passing),
        wrong("messages", "no indexes", [start, *(without(each, "index") for each in text), *end], None, **passing),
        rule("messages", "one index", [start, *text_block(0, "He"), *text_block(0, "llo"), *end], None, **passing),
        rule("messages", "indexes from 1", [start, *text_block(1, "He"), *text_block(2, "llo"), *end], None, **passing),
        rule("messages", "an unknown event", [start, {"type": "future"}, *text, *end]),
        rule("messages", "no names", plain),
        rule("messages", "CRLF", named(start, *text, *end).replace(b"\n", b"\r\n")),
        rule("messages", "all usage at the end", [message_start(input_tokens=0, output_tokens=0), *text, *counts]),
        rule("messages", "nulls in the usage", [start, *text, *message_end("end_turn", nulls)]),
        rule("messages", "halves of a character", [start, *text_block(0, "\ud83d", "\ude00"), *end], None, Said("😀")),
        rule("messages", "no stop reason", [start, *text, end[1]], None, Said(TEXT, ended="error", error="")),
    ]
    both = Said(calls=[F, G], ended="calls")
    second = call_block(1, "b", "g", TWO)
    used = [
        {"type": "tool_use", "id": key, "name": name, "input": args}
        for key, (name, args) in zip("ab", (F, G), strict=True)
    ]
    first = {"type": "tool_use", "name": "f", "input": {}}
    given = {"type": "input_json_delta", "partial_json": ONE}
    turns = [call_block(0, "a", "f", '{"x"', ":1}"), call_block(1, "b", "g", '{"x"', ":2}")]
    calls: dict[str, tuple[Sequence[Any], Any]] = {
        "input at the start": ([*block(0, used[0]), *block(1, used[1])], message(*used, reason="tool_use")),
        "input at the start, and in pieces": ([*block(0, used[0], given), *second], None),
        "one index": ([*call_block(0, "a", "f", ONE), *call_block(0, "b", "g", TWO)], None),
        "in turns": ([event for pair in zip(*turns, strict=True) for event in pair], None),
        "empty pieces": ([*call_block(0, "a", "f", "", ONE, ""), *second], None),
        "no id": ([*block(0, first, given), *second], message(without(used[0], "id"), used[1], reason="tool_use")),
        "a text for an input": (
            [*call_block(0, "a", "f", ONE), *second],
            message({**used[0], "input": ONE}, used[1], reason="tool_use"),
        ),
    }
    for how, (events, whole) in calls.items():
        make = wrong if how in {"no id", "a text for an input"} else rule
        own: dict[str, Any] = (
            {"passes": True, "passes_whole": True} if how in {"no id", "a text for an input", "one index"} else {}
        )
        rules.append(make("messages", f"calls: {how}", [start, *events, *message_end("tool_use")], whole, both, **own))
    for how, error in {"a text": WORDS, "a list": [{"message": WORDS}]}.items():
        told = [start, *text[:-1], {"type": "error", "error": error}]
        make = wrong if how == "a list" else rule
        rules.append(make("messages", f"an error that is {how}", told, None, Said(TEXT, ended="error", error=WORDS)))
    return rules


# Gemini, oddly.


def _of_gemini() -> list[Rule]:
    he, llo, end = parts({"text": "He"}), parts({"text": "llo"}), parts(reason="STOP")
    uncounted = [without(each, "usageMetadata") for each in (he, llo, end)]
    count = {"usageMetadata": he["usageMetadata"]}
    part_of = {**parts(reason="STOP"), "usageMetadata": {"promptTokenCount": 11, "totalTokenCount": 11}}
    ending = {"finishReason": "STOP", "index": 0}
    plain = google(he, llo, end)
    rules = [
        rule(
            "gemini",
            "no parts at the end",
            [he, llo, {"candidates": [{**ending, "content": {"role": "model"}}], **count}],
        ),
        rule("gemini", "no content at the end", [he, llo, {"candidates": [ending], **count}]),
        wrong("gemini", "null for a content", [he, llo, {"candidates": [{**ending, "content": None}], **count}]),
        rule("gemini", "null for parts", [he, llo, {"candidates": [{**ending, "content": {"parts": None}}], **count}]),
        rule("gemini", "an empty text at the end", [he, llo, parts({"text": ""}, reason="STOP")]),
        rule(
            "gemini",
            "a word with each event",
            [parts({"text": "He"}, reason="STOP"), parts({"text": "llo"}, reason="STOP")],
        ),
        rule(
            "gemini",
            "no word with each event",
            [parts({"text": "He"}, reason=""), parts({"text": "llo"}, reason="STOP")],
        ),
        rule("gemini", "usage in the last event", [*uncounted[:2], end]),
        rule("gemini", "usage in an event of its own", [*uncounted, count]),
        wrong("gemini", "usage without the answer's at the end", [he, llo, part_of]),
        rule("gemini", "nothing first", [{}, he, llo, end]),
        rule("gemini", "comments, and [DONE]", b": hi\n\n" + plain + DONE),
        rule("gemini", "LF", plain.replace(b"\r\n", b"\n")),
        rule("gemini", "no space behind data", plain.replace(b"data: ", b"data:")),
        rule("gemini", "an array of events", [he, llo, end], [he, llo, end]),
        rule(
            "gemini",
            "halves of a character",
            [parts({"text": "\ud83d"}), parts({"text": "\ude00"}), end],
            None,
            Said("😀"),
        ),
        rule("gemini", "no end", [he, llo], None, Said(TEXT, ended="error", error="")),
    ]
    calls = [{"functionCall": {"name": name, "args": args}} for name, args in (F, G)]
    one = Said(calls=[F], ended="calls")
    empty = Said(calls=[("f", {})], ended="calls")
    written = {"functionCall": {"name": "f", "args": ONE}}
    passing: dict[str, Any] = {"passes": True, "passes_whole": True}
    beside = parts({"text": "Hi", **calls[0]})
    return [
        *rules,
        rule("gemini", "calls: with the end", [parts(*calls, reason="STOP")], None, Said(calls=[F, G], ended="calls")),
        rule("gemini", "calls: no arguments", [parts({"functionCall": {"name": "f"}}), end], None, empty, **passing),
        rule(
            "gemini",
            "calls: null for arguments",
            [parts({"functionCall": {"name": "f", "args": None}}), end],
            None,
            empty,
            **passing,
        ),
        wrong(
            "gemini",
            "calls: a text for arguments",
            [parts(written), end],
            parts(written, reason="STOP"),
            one,
            **passing,
        ),
        wrong("gemini", "calls: beside a text in one part", [beside, end], None, Said("Hi", calls=[F], ended="calls")),
    ]


# Interactions, oddly.


def _of_interactions() -> list[Rule]:
    api, output = "interactions", {"type": "model_output"}
    whole = interacted(output_of(TEXT))
    he, llo = ({"type": "text", "text": piece} for piece in ("He", "llo"))
    text, end = step_of(0, output, he, llo), interacted_at_end(whole)
    thought = {"type": "thought", "signature": "c2lnbmVk", "summary": [{"type": "text", "text": "Hm"}]}
    summary = {"type": "thought_summary", "content": {"type": "text", "text": "Hm"}}
    thinking = step_of(0, {"type": "thought"}, summary, {"type": "thought_signature", "signature": "c2lnbmVk"})
    later = step_of(1, output, he, llo)
    failed = {"event_type": "error", "error": {"code": "unavailable", "message": WORDS}}
    plain = interaction(*INTERACTING, *text, end)
    cited = {"type": "url_citation", "url": "https://a.example/", "title": "A"}
    told = {"type": "text_annotation_delta", "annotations": [cited]}
    page = {**output_of(TEXT), "content": [{"type": "text", "text": TEXT, "annotations": [cited]}]}
    calls = [{"type": "function_call", "id": f"call_{name}", "name": name, "arguments": args} for name, args in (F, G)]
    begun = [{**call, "arguments": {}} for call in calls]
    pieces = [
        *step_of(0, begun[0], *({"type": "arguments_delta", "arguments": piece} for piece in ('{"x"', ":1}"))),
        *step_of(1, begun[1], {"type": "arguments_delta", "arguments": TWO}),
    ]
    acting = interacted(*calls, status="requires_action")
    both, over = Said(calls=[F, G], ended="calls"), interacted_at_end(acting)
    thoughts = Said(TEXT, "Hm")
    return [
        rule(api, "thoughts", [*INTERACTING, *thinking, *later, end], interacted(thought, output_of(TEXT)), thoughts),
        rule(api, "no state", [INTERACTING[0], *text, end]),
        rule(api, "no beginning", [*text, end]),
        rule(api, "no ends of steps", [*INTERACTING, *text[:-1], end], None, passes=True),
        rule(api, "two texts", [*INTERACTING, *text[:2], text[-1], *step_of(1, output, llo), end]),
        rule(api, "unknown events", [*INTERACTING, {"event_type": "interaction.future"}, *text, end], passes=True),
        rule(api, "comments", b": hi\n\n" + plain),
        rule(api, "no names", data(*INTERACTING, *text, end)),
        rule(api, "no space behind data", plain.replace(b"data: ", b"data:")),
        rule(api, "no [DONE]", plain.replace(b"event: done\ndata: [DONE]\n\n", b""), passes=True),
        rule(api, "no end", [*INTERACTING, *text], None, Said(TEXT, ended="error", error="")),
        rule(api, "an error", [*INTERACTING, *text[:2], failed], None, Said("He", ended="error", error=WORDS)),
        rule(
            api,
            "cited",
            [*INTERACTING, *text[:3], {**text[1], "delta": told}, text[-1], end],
            interacted(page),
            Said(TEXT, cited=["https://a.example/"]),
        ),
        rule(api, "calls: in pieces", [*INTERACTING, *pieces, over], acting, both),
        rule(
            api,
            "calls: whole at once",
            [*INTERACTING, *step_of(0, calls[0]), *step_of(1, calls[1]), over],
            None,
            both,
            passes=True,
        ),
        rule(
            api,
            "calls: behind thoughts",
            [*INTERACTING, *thinking, *step_of(1, calls[0]), over],
            interacted(thought, calls[0], status="requires_action"),
            Said(thoughts="Hm", calls=[F], ended="calls"),
            passes=True,
        ),
    ]


# Responses, oddly.


def _of_responses() -> list[Rule]:
    begun, text, whole = response_begun(), response_text("He", "llo"), responded(item_text(TEXT))
    end = response_end(whole)
    passing: dict[str, Any] = {"passes": True}
    chat_count = {**whole, "usage": _USAGE}
    cut = {**whole, "status": "incomplete", "incomplete_details": None}
    failed = {"message": WORDS, "code": "server_error"}
    rules = [
        rule("responses", "no beginning", [*text, end]),
        rule("responses", "all in the last event", [end], None, **passing),
        rule("responses", "all in the item", [begun, text[-1], end], None, **passing),
        rule("responses", "all in the end of a text", [begun, *text[:2], *text[-2:], end], None, **passing),
        rule("responses", "nothing in the last event", [begun, *text, response_end(responded())], None, **passing),
        rule(
            "responses",
            "null in the last event",
            [begun, *text, response_end({**whole, "output": None})],
            None,
            **passing,
        ),
        rule("responses", "no indexes", [begun, *(without(each, "output_index") for each in text), end]),
        rule("responses", "[DONE] behind", named(begun, *text, end) + DONE),
        rule("responses", "no names", data(begun, *text, end)),
        wrong("responses", "Realtime's end", [begun, *text, {**end, "type": "response.done"}], None, **passing),
        rule("responses", "usage by the names of chat", [begun, *text, response_end(chat_count)], chat_count),
        rule(
            "responses", "cut short without a word", [begun, *text, response_end(cut)], cut, Said(TEXT, ended="length")
        ),
        rule("responses", "unknown events", [begun, {"type": "response.future"}, {"type": "keepalive"}, *text, end]),
        rule("responses", "no end", [begun, *text], None, Said(TEXT, ended="error", error="")),
        wrong(
            "responses",
            "completed, but failed",
            [begun, *text, {"type": "response.completed", "response": {**whole, "status": "failed", "error": failed}}],
            None,
            Said(TEXT, ended="error", error=WORDS),
        ),
        wrong(
            "responses",
            "failed with a text",
            [begun, *text, {"type": "response.failed", "response": {**whole, "status": "failed", "error": WORDS}}],
            None,
            Said(TEXT, ended="error", error=WORDS),
        ),
    ]
    first, second = response_call(0, "a", "f", '{"x"', ":1}", whole=ONE), response_call(1, "b", "g", TWO, whole=TWO)
    items = [item_call(0, "a", "f", ONE), item_call(1, "b", "g", TWO)]
    objects = [{**items[0], "arguments": {"x": 1}}, {**items[1], "arguments": {"x": 2}}]
    turns = [first[0], second[0], first[1], second[1], *first[2:], *second[2:]]
    empty = [item_call(0, "a", "f", ""), item_call(1, "b", "g", "")]
    none = [*response_call(0, "a", "f", whole=""), *response_call(1, "b", "g", whole="")]
    both = Said(calls=[F, G], ended="calls")
    nothing = Said(calls=[("f", {}), ("g", {})], ended="calls")
    calls: dict[str, tuple[Sequence[Any], Sequence[Any], Said]] = {
        "all in the items": ([first[-1], second[-1]], items, both),
        "all in the last event": ([], items, both),
        "all in the end of arguments": ([first[0], *first[-2:], second[0], *second[-2:]], items, both),
        "no beginnings": ([*first[1:], *second[1:]], items, both),
        "nothing in the last event": ([*first, *second], [], both),
        "in turns": (turns, items, both),
        "objects for arguments": ([], objects, both),
        "no indexes": ([without(each, "output_index") for each in (*first, *second)], items, both),
        "one index, in turns": ([{**each, "output_index": 0} for each in turns], items, both),
        "no arguments": (none, empty, nothing),
    }
    once = {"objects for arguments", "no indexes", "one index, in turns", "no arguments"}
    for how, (events, output, said) in calls.items():
        told = responded(*output)
        own: dict[str, Any] = {"passes": True, "passes_whole": how in {"objects for arguments", "no arguments"}}
        make = wrong if how in once else rule
        body = told if output else None
        rules.append(make("responses", f"calls: {how}", [begun, *events, response_end(told)], body, said, **own))
    return rules


ODD = [
    *(*_of_references(), *_of_tokens(), *_of_pictures_and_sound(), *_of_refusals(), *_of_thoughts()),
    *(
        *_of_chat(),
        *_of_chats_calls(),
        *_of_chats_errors(),
        *_of_messages(),
        *_of_gemini(),
        *_of_interactions(),
        *_of_responses(),
    ),
]
