"""The rules of answers: for each an input in the API of its provider, and the one thing that it says."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from tests.app.gateway.rules.asking import Rule, Said, chat, converse, google, interaction, named

# Each API's words for a text, calls and an end.

_TOP = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


def chunk(delta: Mapping[str, Any] | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {**_TOP, "choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}], **more}


def completion(message: Mapping[str, Any], reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return {**_TOP, "object": "chat.completion", "choices": [choice], "usage": _USAGE, **more}


def calling(*calls: tuple[int, str, str, str]) -> dict[str, Any]:
    """Return a delta with pieces of calls: index, id, name, arguments."""
    return {
        "tool_calls": [
            {"index": index, **({"id": call_id, "type": "function"} if call_id else {})}
            | {"function": {**({"name": name} if name else {}), "arguments": written}}
            for index, call_id, name, written in calls
        ]
    }


def message_start(**usage: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    message |= {"stop_sequence": None, "usage": usage or {"input_tokens": 11, "output_tokens": 1}}
    return {"type": "message_start", "message": message}


def block(index: int, begun: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int, *texts: str) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


def call_block(index: int, call_id: str, name: str, *pieces: str) -> list[dict[str, Any]]:
    begun = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, begun, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def message_end(reason: str, usage: Mapping[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    told = {"output_tokens": 5} if usage is None else usage
    return [{"type": "message_delta", "delta": delta, "usage": told}, {"type": "message_stop"}]


def message(*content: Mapping[str, Any], reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    said = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    usage = {"input_tokens": 11, "output_tokens": 5}
    return {**said, "stop_reason": reason, "stop_sequence": None, "usage": usage, **more}


def text_of(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_GOOGLES = {"promptTokenCount": 11, "candidatesTokenCount": 5, "totalTokenCount": 16}


def parts(*said: Mapping[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(said)}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    facts = {"usageMetadata": _GOOGLES, "modelVersion": "m", "responseId": "r1"}
    return {"candidates": [candidate], **facts, **more}


_RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "usage": None}
_COUNTED = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}


def responded(*items: Mapping[str, Any], status: str = "completed", why: str | None = None, **more: Any) -> Any:
    said = {**_RESPONSE, "status": status, "output": list(items), "usage": _COUNTED, "error": None}
    return {**said, "incomplete_details": None if why is None else {"reason": why}, **more}


def item_text(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], **more}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def item_call(number: int, call_id: str, name: str, written: str) -> dict[str, Any]:
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": call_id}
    return {**item, "name": name, "arguments": written}


def response_begun() -> dict[str, Any]:
    return {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}}


def response_text(*texts: str) -> list[dict[str, Any]]:
    place = {"item_id": "msg_1", "output_index": 0}
    begun = {**item_text(""), "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    whole = "".join(texts)
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.content_part.added", **place, "content_index": 0, "part": part},
        *({"type": "response.output_text.delta", **place, "content_index": 0, "delta": text} for text in texts),
        {"type": "response.output_text.done", **place, "content_index": 0, "text": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": item_text(whole)},
    ]


def response_call(number: int, call_id: str, name: str, *pieces: str, whole: str) -> list[dict[str, Any]]:
    place = {"item_id": f"fc_{number}", "output_index": number}
    begun = {**item_call(number, call_id, name, ""), "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": number, "item": begun},
        *({"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces),
        {"type": "response.function_call_arguments.done", **place, "arguments": whole},
        {"type": "response.output_item.done", "output_index": number, "item": item_call(number, call_id, name, whole)},
    ]


def response_end(whole: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": f"response.{whole['status']}", "response": whole}


_METERED = {"inputTokens": 11, "outputTokens": 5, "totalTokens": 16}


def said_by_converse(
    *blocks: Sequence[tuple[str, Mapping[str, Any]]], reason: str, usage: Any = _METERED, **more: Any
) -> bytes:
    return converse(
        ("messageStart", {"role": "assistant"}),
        *(event for each in blocks for event in each),
        ("messageStop", {"stopReason": reason}),
        ("metadata", {"usage": usage, "metrics": {"latencyMs": 1}, **more}),
    )


def converse_block(index: int, *deltas: Mapping[str, Any], start: Any = None) -> list[tuple[str, dict[str, Any]]]:
    begun = [] if start is None else [("contentBlockStart", {"contentBlockIndex": index, "start": start})]
    said = [("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}) for delta in deltas]
    return [*begun, *said, ("contentBlockStop", {"contentBlockIndex": index})]


def conversed(*content: Mapping[str, Any], reason: str, usage: Any = _METERED) -> dict[str, Any]:
    output = {"message": {"role": "assistant", "content": list(content)}}
    return {"output": output, "stopReason": reason, "usage": usage, "metrics": {"latencyMs": 1}}


_COUNTS = {"total_input_tokens": 11, "total_output_tokens": 5, "total_tokens": 16}
_INTERACTION = {"id": "v1_1", "object": "interaction", "model": "m"}
INTERACTING: Sequence[Mapping[str, Any]] = (
    {"event_type": "interaction.created", "interaction": {**_INTERACTION, "status": "in_progress"}},
    {"event_type": "interaction.status_update", "interaction_id": "v1_1", "status": "in_progress"},
)


def step_of(index: int, step: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"event_type": "step.start", "index": index, "step": step},
        *({"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas),
        {"event_type": "step.stop", "index": index},
    ]


def output_of(text: str) -> dict[str, Any]:
    return {"type": "model_output", "content": [{"type": "text", "text": text}]}


def interacted(*steps: Mapping[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {**_INTERACTION, "status": status, "steps": list(steps), "usage": _COUNTS, **more}


def interacted_at_end(whole: Mapping[str, Any]) -> dict[str, Any]:
    over = {name: value for name, value in whole.items() if name != "steps"}
    return {"event_type": "interaction.completed", "interaction": over}


# What ended the answer.

TEXT = "Hello"


def ending(api: str, reason: str, text: str = TEXT) -> tuple[bytes, Any]:
    """Return an answer with a text, or none, that ends with this word of its API."""
    pieces = [text[:2], text[2:]] if text else []
    match api:
        case "chat":
            said = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": piece}) for piece in pieces)]
            counted = {**_TOP, "choices": [], "usage": _USAGE}
            return chat(*said, chunk({}, reason), counted), completion({"content": text or None}, reason)
        case "messages":
            blocks = text_block(0, *pieces) if text else []
            content = [text_of(text)] if text else []
            return named(message_start(), *blocks, *message_end(reason)), message(*content, reason=reason)
        case "responses":
            status = "completed" if reason == "completed" else "incomplete"
            whole = responded(
                *([item_text(text)] if text else ()), status=status, why=reason if status != reason else None
            )
            return named(response_begun(), *(response_text(*pieces) if text else ()), response_end(whole)), whole
        case "gemini":
            said = [parts({"text": piece}) for piece in pieces]
            return google(*said, parts(reason=reason)), parts(*([{"text": text}] if text else ()), reason=reason)
        case "interactions":
            whole = interacted(*([output_of(text)] if text else ()), status=reason)
            step = step_of(0, {"type": "model_output"}, *({"type": "text", "text": piece} for piece in pieces))
            return interaction(*INTERACTING, *(step if text else ()), interacted_at_end(whole)), whole
        case _:
            told = [converse_block(0, *({"text": piece} for piece in pieces))] if text else []
            content = [{"text": text}] if text else []
            return said_by_converse(*told, reason=reason), conversed(*content, reason=reason)


COUNTED = {"prompt_tokens": 11, "completion_tokens": 5}
ENDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "stop": {
        "chat": ("stop",),
        "messages": ("end_turn", "pause_turn"),
        "responses": ("completed",),
        "gemini": ("STOP",),
        "converse": ("end_turn", "stop_sequence"),
        "interactions": ("completed",),
    },
    "length": {
        "chat": ("length", "model_length", "MAX_TOKENS", "max_tokens", "model_context_window_exceeded"),
        "messages": ("max_tokens", "model_context_window_exceeded"),
        "responses": ("max_output_tokens",),
        "gemini": ("MAX_TOKENS",),
        "converse": ("max_tokens", "model_context_window_exceeded"),
        "interactions": ("incomplete", "budget_exceeded", "requires_continuation"),
    },
    "filtered": {
        "chat": (
            *("content_filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "refusal", "sensitive"),
            *("content_filter: PROHIBITED_CONTENT", "safety", "recitation", "prohibited_content"),
        ),
        "messages": ("refusal",),
        "responses": ("content_filter",),
        "gemini": (
            *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
            *("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"),
        ),
        "converse": ("guardrail_intervened", "content_filtered"),
    },
    "error": {
        "chat": ("error", "abort", "network_error", "insufficient_system_resource"),
    },
}


# What was said before is an answer; without it, these say that there is none. Nor is a text before a call that the
# model wrote badly, for clients of other APIs.
FAIL_ALONE: Mapping[str, Sequence[str]] = {
    "gemini": (
        *("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"),
        *("TOO_MANY_TOOL_CALLS", "OTHER", "NO_IMAGE", "IMAGE_OTHER"),
    ),
    "converse": ("malformed_model_output", "malformed_tool_use"),
    "chat": ("malformed_function_call", "function_call_filter: MALFORMED_FUNCTION_CALL"),
}
MISWRITTEN = frozenset({"MALFORMED_FUNCTION_CALL", "malformed_tool_use", *FAIL_ALONE["chat"]})


def _of_ends() -> list[Rule]:
    rules = []
    for ended, by_api in ENDS.items():
        for api, reasons in by_api.items():
            for reason in reasons:
                for text in (TEXT, ""):
                    if not text and ended == "stop":
                        continue
                    said = Said(text, ended=ended, error=reason if ended == "error" else None)
                    name = f"{api} ends with {reason}{'' if text else ' and nothing else'}"
                    stream, body = ending(api, reason, text)
                    rules.append(Rule(name, api, stream, body, said, None if ended == "error" else COUNTED))
    for api, reasons in FAIL_ALONE.items():
        for reason, text in product(reasons, (TEXT, "")):
            is_broken = bool(text) and reason in MISWRITTEN
            said = Said(text) if text and not is_broken else Said(text, ended="error", error=reason)
            stream, body = ending(api, reason, text)
            name = f"{api} ends with {reason}, {text or 'nothing'}"
            rules.append(Rule(name, api, stream, body, said, passes=is_broken, passes_whole=is_broken))
    rules += _of_unread_calls()
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 11}}
    refused = Said(ended="error", error="The prompt was blocked: PROHIBITED_CONTENT")
    rules.append(Rule("a blocked prompt", "gemini", google(blocked), blocked, refused, passes=True, passes_whole=True))
    return rules


def _of_unread_calls() -> list[Rule]:
    """Return what is said with a call that could not be read: that is none, but what came before may be an answer."""
    rules = []
    broken = {"toolUse": {"input": '{"x": tru'}}
    first, last = ({"toolUse": {"toolUseId": key, "name": name}} for key, name in (("a", "f"), ("b", "g")))
    whole_call = converse_block(0, {"toolUse": {"input": '{"x":1}'}}, start=first)
    first_body = {"toolUse": {**first["toolUse"], "input": {"x": 1}}}
    text = converse_block(0, {"text": TEXT})
    called = Said(calls=[("f", {"x": 1})], ended="calls")
    for reason in FAIL_ALONE["converse"]:
        behind_text = Said(TEXT, ended="error", error=reason) if reason in MISWRITTEN else Said(TEXT)
        for how, pieces, given in (
            ("breaks off", [broken], '{"x": tru'),
            ("has no arguments", [], {}),
        ):
            for ends, stopped in ((", ended", None), ("", -1)):
                block_ = converse_block(1, *pieces, start=last)[:stopped]
                body: dict[str, Any] = {"toolUse": {**last["toolUse"], "input": given}}
                for behind, before, content, said in (
                    ("alone", [], [], Said(ended="error", error=reason)),
                    ("behind a text", [text], [{"text": TEXT}], behind_text),
                    ("behind a call", [whole_call], [first_body], called),
                ):
                    name = f"converse: a call that {how}{ends}, {behind}, {reason}"
                    # Of a stream its client has pieces of that call, which nothing takes back but an error.
                    failed = Said(said.text, ended="error", error=reason)
                    streamed = said_by_converse(*before, block_, reason=reason)
                    rules.append(Rule(name, "converse", streamed, None, failed))
                    if stopped is None:
                        sent = said_by_converse(*before, reason=reason)
                        rules.append(
                            Rule(f"{name}, whole", "converse", sent, conversed(*content, body, reason=reason), said)
                        )
    routers: Mapping[str, Any] = {
        "index": 0,
        "finish_reason": "stop",
        "native_finish_reason": "MALFORMED_FUNCTION_CALL",
    }
    for words in (TEXT, ""):  # OpenRouter
        failed = Said(words, ended="error", error="the answer ended with")
        stream = chat(chunk({"content": words}), {**_TOP, "choices": [{**routers, "delta": {}}]})
        message = {"role": "assistant", "content": words or None}
        whole = {**completion({}), "choices": [{**routers, "message": message}]}
        name = f"chat: {words or 'nothing'}, then a call that its vendor could not read"
        rules.append(Rule(name, "chat", stream, whole, failed, passes=bool(words), passes_whole=bool(words)))
    args = {"functionCall": {"name": "f", "args": {"x": 1}}}
    for reason in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"):
        stream = google(parts(args), parts(reason=reason))
        rules.append(Rule(f"gemini: a call, then {reason}", "gemini", stream, parts(args, reason=reason), called))
    return rules


# Tools' calls.

F, G = ("f", {"x": 1}), ("g", {"x": 2})


def _called(name: str, *deltas: Mapping[str, Any], calls: Sequence[tuple[str, Any]] = (F, G)) -> Rule:
    """Return a rule of chat whose chunks have these deltas; its body has the calls whole."""
    whole = [
        {"id": f"id_{name_}", "type": "function", "function": {"name": name_, "arguments": json.dumps(args)}}
        if args
        else {"id": f"id_{name_}", "type": "function", "function": {"name": name_, "arguments": "{}"}}
        for name_, args in calls
    ]
    counted = {**_TOP, "choices": [], "usage": _USAGE}
    stream = chat(*map(chunk, deltas), chunk({}, "tool_calls"), counted)
    body = completion({"content": None, "tool_calls": whole}, "tool_calls")
    passes = "empty object" in name
    return Rule(name, "chat", stream, body, Said(calls=list(calls), ended="calls"), COUNTED, passes)


def _of_calls() -> list[Rule]:
    both_empty = calling((0, "a", "f", "{}"), (1, "b", "g", "{}"))
    first, second = calling((0, "a", "f", "{}")), calling((1, "b", "g", "{}"))
    one, two = calling((0, "", "", '{"x":1}')), calling((1, "", "", '{"x":2}'))
    return [
        _called("calls in pieces", calling((0, "a", "f", ""), (1, "b", "g", "")), one, two),
        _called("a name in a chunk of its own", calling((0, "a", "f", "")), one, calling((1, "b", "g", "")), two),
        _called("an empty object first", first, one, calls=(F,)),
        _called("an empty object first, one after the other", first, one, second, two),
        _called("parallel calls, all with an empty object first", both_empty, one, two),
        _called("an empty object first: one chunk each", first, second, one, two),
        _called("an empty object first: the second one's arguments first", first, second, two, one),
        _called(
            "an empty object first: their arguments in turns",
            both_empty,
            *(calling((0, "", "", '{"x"')), calling((1, "", "", '{"x"'))),
            *(calling((0, "", "", ":1}")), calling((1, "", "", ":2}"))),
        ),
        _called("an empty object first: another call comes whole", first, calling((1, "b", "g", '{"x":2}')), one),
        _called(
            "an empty object first, in pieces", calling((0, "a", "f", "{")), calling((0, "", "", "}")), one, second, two
        ),
        _called("an empty object that stays", first, second, two, calls=(("f", {}), G)),
        _called("empty objects that stay", both_empty, calls=(("f", {}), ("g", {}))),
        *_of_calls_elsewhere(),
    ]


def _of_calls_elsewhere() -> list[Rule]:
    said = Said(calls=[F, G], ended="calls")
    blocks = [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]
    blocks.append({"type": "tool_use", "id": "b", "name": "g", "input": {"x": 2}})
    items = [item_call(0, "a", "f", '{"x":1}'), item_call(1, "b", "g", '{"x":2}')]
    google_calls = [{"functionCall": {"name": name, "args": args}} for name, args in (F, G)]
    tools = [{"toolUseId": "a", "name": "f"}, {"toolUseId": "b", "name": "g"}]
    inputs = [{"x": 1}, {"x": 2}]
    content = [{"toolUse": {**tool, "input": given}} for tool, given in zip(tools, inputs, strict=True)]
    rules = []
    for name, pieces in (
        ("in pieces", (('{"x"', ":1}"), ('{"x":', "2}"))),
        ("with an empty object first", (("{}", '{"x":1}'), ("{}", '{"x"', ":2}"))),
    ):
        stream = named(
            message_start(),
            *call_block(0, "a", "f", *pieces[0]),
            *call_block(1, "b", "g", *pieces[1]),
            *message_end("tool_use"),
        )
        whole = message(*blocks, reason="tool_use")
        passes = "{}" in pieces[0]
        rules.append(Rule(f"messages: calls {name}", "messages", stream, whole, said, COUNTED, passes))
        responded_ = responded(*items)
        stream = named(
            response_begun(),
            *response_call(0, "a", "f", *pieces[0], whole='{"x":1}'),
            *response_call(1, "b", "g", *pieces[1], whole='{"x":2}'),
            response_end(responded_),
        )
        rules.append(Rule(f"responses: calls {name}", "responses", stream, responded_, said, COUNTED))
        written = [
            converse_block(
                number, *({"toolUse": {"input": piece}} for piece in pieces[number]), start={"toolUse": tools[number]}
            )
            for number in (0, 1)
        ]
        stream = said_by_converse(*written, reason="tool_use")
        whole = conversed(*content, reason="tool_use")
        rules.append(Rule(f"converse: calls {name}", "converse", stream, whole, said, COUNTED))
    rules.append(
        Rule(
            "gemini: calls",
            "gemini",
            google(*map(parts, google_calls), parts(reason="STOP")),
            parts(*google_calls, reason="STOP"),
            said,
            COUNTED,
        )
    )
    return rules


# Errors.

WORDS = "the model is overloaded"


def _of_errors() -> list[Rule]:
    rules = []
    error = Said(ended="error", error=WORDS)
    for text in (TEXT, ""):
        after = "after a text" if text else "alone"
        said = Said(text, ended="error", error=WORDS)
        begun = {
            "chat": [chunk({"content": text})] if text else [],
            "messages": [message_start(), *(text_block(0, text)[:-1] if text else [])],
            "responses": [response_begun(), *(response_text(text)[:3] if text else [])],
            "gemini": [parts({"text": text})] if text else [],
        }
        nameless: dict[str, dict[str, Any]] = {
            "its message alone": {"message": WORDS},
            "a detail": {"detail": WORDS},
            "an error's message": {"error_message": WORDS, "error_type": "overloaded"},
            "base_resp": {"base_resp": {"status_code": 1013, "status_msg": WORDS}},
            "an error": {"error": {"message": WORDS, "type": "server_error"}},
            "an error as text": {"error": WORDS},
        }
        for how, told in nameless.items():
            for api, events in begun.items():
                write = {"chat": chat, "messages": named, "responses": named, "gemini": google}[api]
                stream = write(*events).replace(b"data: [DONE]\n\n", b"") + chat(told).replace(b"data: [DONE]\n\n", b"")
                body = told if not text else None
                rules.append(Rule(f"{api}: {how}, {after}", api, stream, body, said))
        own: dict[str, dict[str, Any]] = {
            "messages": {"type": "error", "error": {"type": "overloaded_error", "message": WORDS}},
            "responses": {"type": "error", "code": "server_error", "message": WORDS, "param": None},
        }
        for api, told in own.items():
            rules.append(
                Rule(
                    f"{api}: its own error, {after}",
                    api,
                    named(*begun[api], told),
                    None if text or api == "responses" else told,
                    said,
                )
            )
        failed = {**responded(status="failed"), "error": {"code": "server_error", "message": WORDS}}
        rules.append(
            Rule(
                f"responses: failed, {after}",
                "responses",
                named(*begun["responses"], response_end(failed)),
                None if text else failed,
                said,
            )
        )
        frames = [("messageStart", {"role": "assistant"}), *(converse_block(0, {"text": text})[:-1] if text else [])]
        broken = converse(*frames, ("internalServerException", {"message": WORDS}))
        rules.append(
            Rule(f"converse: an exception, {after}", "converse", broken, None if text else {"message": WORDS}, said)
        )
    del error
    return rules


# Usage.


def _of_usage() -> list[Rule]:
    said = Said(TEXT)
    first = {**_USAGE, "cost": 0.02, "prompt_tokens_details": {"cached_tokens": 4}}
    begun = [chunk({"content": TEXT}), chunk({}, "stop")]
    known = {**COUNTED, "cached_tokens": 4, "cost_usd": 0.02}
    rules = [
        Rule(
            "chat: a later usage without cost",
            "chat",
            chat(*begun, {**_TOP, "choices": [], "usage": first}, {**_TOP, "choices": [], "usage": _USAGE}),
            completion({"content": TEXT}, usage=first),
            said,
            known,
        ),
        Rule(
            "chat: usage beside the end",
            "chat",
            chat(chunk({"content": TEXT}), chunk({}, "stop", usage=first)),
            completion({"content": TEXT}, usage=first),
            said,
            known,
        ),
        Rule(
            "chat: usage in the choice",
            "chat",
            chat(begun[0], {**_TOP, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": first}]}),
            completion({"content": TEXT}, usage=first),
            said,
            known,
        ),
        Rule(
            "chat: usage of Groq's",
            "chat",
            chat(begun[0], chunk({}, "stop", x_groq={"usage": first})),
            completion({"content": TEXT}, usage=first),
            said,
            known,
        ),
        Rule(
            "chat: counts that are not told",
            "chat",
            chat(*begun, {**_TOP, "choices": [], "usage": _USAGE}),
            completion({"content": TEXT}, usage=_USAGE),
            said,
            {**COUNTED, "cached_tokens": None, "reasoning_tokens": None, "cache_write_tokens": None},
        ),
    ]
    counts = {"input_tokens": 7, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
    rules.append(
        Rule(
            "messages: the prompt's at the start",
            "messages",
            named(message_start(**counts, output_tokens=1), *text_block(0, TEXT), *message_end("end_turn")),
            message(text_of(TEXT), usage={**counts, "output_tokens": 5}),
            said,
            {**COUNTED, "cached_tokens": 4, "cache_write_tokens": 0, "reasoning_tokens": None},
        )
    )
    plain = {"cached_tokens": None, "cache_write_tokens": None, "reasoning_tokens": None}
    for api, end in (
        ("messages", "end_turn"),
        ("responses", "completed"),
        ("gemini", "STOP"),
        ("converse", "end_turn"),
    ):
        stream, body = ending(api, end)
        rules.append(Rule(f"{api}: counts that are not told", api, stream, body, said, {**COUNTED, **plain}))
    life = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 6}
    hour = {"input_tokens": 5, "cache_creation_input_tokens": 6, "cache_creation": life, "service_tier": "priority"}
    rules.append(
        Rule(
            "messages: what is cached for an hour, and a tier",
            "messages",
            named(message_start(**hour, output_tokens=1), *text_block(0, TEXT), *message_end("end_turn")),
            message(text_of(TEXT), usage={**hour, "output_tokens": 5}),
            said,
            {**COUNTED, "cache_write_tokens": 6, "units": {"cache_write_1h": 6}, "tier_served": "priority"},
        )
    )
    sound = [{"modality": "TEXT", "tokenCount": 3}, {"modality": "AUDIO", "tokenCount": 8}]
    heard = {**_GOOGLES, "promptTokensDetails": sound, "thoughtsTokenCount": 2, "candidatesTokenCount": 3}
    heard["serviceTier"] = "priority"
    rules.append(
        Rule(
            "gemini: sound in the prompt, and a tier",
            "gemini",
            google(parts({"text": TEXT}, usageMetadata=heard), parts(reason="STOP", usageMetadata=heard)),
            parts({"text": TEXT}, reason="STOP", usageMetadata=heard),
            said,
            {**COUNTED, "reasoning_tokens": 2, "units": {"audio_input": 8}, "tier_served": "priority"},
        )
    )
    metered = {"inputTokens": 7, "outputTokens": 5, "totalTokens": 16, "cacheReadInputTokens": 4}
    rules.append(
        Rule(
            "converse: tokens of the cache",
            "converse",
            said_by_converse(converse_block(0, {"text": TEXT}), reason="end_turn", usage=metered),
            conversed({"text": TEXT}, reason="end_turn", usage=metered),
            said,
            {**COUNTED, "cached_tokens": 4, "cache_write_tokens": None},
        )
    )
    rules.append(
        Rule(
            "messages: no usage",
            "messages",
            named(
                {"type": "message_start", "message": {**message_start()["message"], "usage": None}},
                *text_block(0, TEXT),
                {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
                {"type": "message_stop"},
            ),
            None,
            said,
            {"tokens_source": "estimated"},
        )
    )
    return rules


RULES = [*_of_ends(), *_of_calls(), *_of_errors(), *_of_usage()]
