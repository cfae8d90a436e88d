"""Google's interactions: read for the script, their steps looked through, kept, and answers written whole and streamed.

Streams as ai.google.dev/gemini-api/docs/streaming has them, read on 2026-11-29: their end has no steps.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from strict_vendors.apis.gemini import Wrong, is_signature, signature
from strict_vendors.rules import google, interactions
from strict_vendors.script import Asked, Given, Said, Tool, pieces_of
from strict_vendors.vendor import LETTERS, Ids, as_json

Json = dict[str, Any]

_CONTENTS = frozenset({"audio", "document", "image", "text", "video"})
_FINISHED = {"length": "incomplete"}
WHEN = "2026-11-29T00:00:00Z"


class Kept(Struct):
    """An interaction that is stored, and all steps up to its own."""

    body: Json
    before: list[Json]


def steps_of(given: Any) -> list[Json]:
    """Return an input as steps."""
    if isinstance(given, str):
        return [{"type": "user_input", "content": [{"type": "text", "text": given}]}]
    if isinstance(given, dict):
        return [{"type": "user_input", "content": [given]}]
    if given and given[0]["type"] in _CONTENTS:
        return [{"type": "user_input", "content": given}]
    return list(given or ())


_OF_MODEL = frozenset({"model_output", "thought", "function_call"})


def _unsigned(steps: Sequence[Json]) -> bool:
    """Say whether a turn of the model's has calls, and no thought before them with a signature."""
    is_signed = False
    for step in steps:
        if step["type"] not in _OF_MODEL:
            is_signed = False
        is_signed = is_signed or bool(step["type"] == "thought" and step.get("signature"))
        if step["type"] == "function_call" and not is_signed:
            return True
    return False


def _has_empty_required(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_has_empty_required, schema))
    return isinstance(schema, dict) and (schema.get("required") == [] or any(map(_has_empty_required, schema.values())))


def wrong(body: Json, steps: Sequence[Json], *, signs: bool) -> Iterator[Wrong]:
    """Yield what is wrong with a request whose conversation has these steps; ``signs``: its model signs its calls."""
    if signs and _unsigned(steps):
        yield "Request contains an invalid argument.", "call without signature", interactions.REPLAYED
    if any(_has_empty_required(each.get("parameters")) for each in body.get("tools", ())):
        yield "Request contains an invalid argument.", "empty required", interactions.REPLAYED
    page = interactions.PAGE
    if ("model" in body) == ("agent" in body):
        yield "Exactly one of 'model' and 'agent' must be set.", "model or agent", page
    if not steps and "continuation_token" not in body:
        yield "'input' must not be empty.", "no input", page
    if body.get("background") and body.get("store") is False:
        yield "background=true requires store=true.", "background without store", interactions.BACKGROUND
    if "agent" in body and "generation_config" in body:
        yield "'generation_config' cannot be used with 'agent'.", "configured agent", page
    open_: set[str] = set()
    for number, step in enumerate(steps):
        at = f"input[{number}]"
        if step.get("signature") and not is_signature(step["signature"]):
            yield "Corrupted thought signature.", "foreign signature", google.CORRUPTED
        if step["type"] == "function_call":
            if step["id"] in open_:
                yield f"{at}.id: another call has it.", "two calls with one id", interactions.CALLS
            open_.add(step["id"])
        elif step["type"] == "function_result":
            if step["call_id"] not in open_:
                yield f"{at}.call_id: no function_call has this id.", "result without call", interactions.CALLS
            open_.discard(step["call_id"])
        elif open_ and step["type"] in {"user_input", "model_output"}:
            yield f"{at}: calls before it have no result.", "call without result", interactions.CALLS
    if open_:
        yield "The last calls have no result.", "call without result", interactions.CALLS
    if steps and steps[-1]["type"] in {"model_output", "thought"}:
        yield "The input must end with a user_input or function_result.", "ends with the model", page


def read(body: Json, steps: Sequence[Json]) -> Asked:
    """Return a request as the script reads it."""
    config = body.get("generation_config", {})
    choice = config.get("tool_choice", "auto")
    allowed = choice.get("allowed_tools", {}) if isinstance(choice, dict) else {"mode": choice}
    mode, names = allowed.get("mode", "auto"), allowed.get("tools", ())
    forms = body.get("response_format", ())
    forms = [forms] if isinstance(forms, dict) else forms
    schema = next((form.get("schema", {}) for form in forms if form.get("mime_type") == "application/json"), None)
    return Asked(
        model=body.get("model") or body["agent"],
        body=body,
        turns=[turn for step in steps for turn in _turns(step)],
        system=body.get("system_instruction", ""),
        stream=bool(body.get("stream")),
        tools=[
            Tool(each["name"], each.get("parameters") or {})
            for each in body.get("tools", ())
            if each["type"] == "function" and (not names or each["name"] in names)
        ],
        choice={"none": "none", "any": names[0] if len(names) == 1 else "required"}.get(mode, "auto"),
        schema=schema,
        thinks=True,
        stop=config.get("stop_sequences", ()),
        most=config.get("max_output_tokens"),
    )


def _turns(step: Json) -> Iterator[Said]:
    contents = step.get("content") or []
    texts = "".join(each["text"] for each in contents if each["type"] == "text")
    match step["type"]:
        case "user_input":
            yield Said("user", texts, media=sum(each["type"] != "text" for each in contents))
        case "model_output":
            yield Said("assistant", texts)
        case "function_call":
            yield Said("assistant", calls=1)
        case "function_result":
            result = step["result"]
            if isinstance(result, list):
                told = "".join(each.get("text", "") for each in result)
                yield Said("tool", told, media=sum(each["type"] != "text" for each in result))
            else:
                yield Said("tool", result if isinstance(result, str) else json.dumps(result))


def joined(turns: Sequence[Said]) -> list[Said]:
    """Return turns with calls of one answer as one: they are steps that follow each other."""
    found: list[Said] = []
    for turn in turns:
        last = found[-1] if found else None
        if last is not None and last.who == turn.who == "assistant":
            found[-1] = Said("assistant", last.text + turn.text, calls=last.calls + turn.calls)
        else:
            found.append(turn)
    return found


def steps(asked: Asked, given: Given, ids: Ids) -> list[Json]:
    """Return the steps of an answer: each thought is signed, and its summary told only if that is asked for."""
    shows = asked.body.get("generation_config", {}).get("thinking_summaries") == "auto"
    said: list[Json] = []
    for thoughts, follows in ((given.thoughts, given.text), (given.later or not given.text, given.calls)):
        if (thoughts and follows) or (thoughts is given.thoughts and thoughts and not given.calls):
            summary = [{"type": "text", "text": thoughts}] if shows and isinstance(thoughts, str) else []
            said.append({"type": "thought", "signature": signature(ids), **({"summary": summary} if summary else {})})
        if follows is given.text and given.text:
            said.append({"type": "model_output", "content": [{"type": "text", "text": given.text}]})
    for call in given.calls:
        arguments = call.object
        said.append(
            {"type": "function_call", "id": ids.next("", 8, LETTERS), "name": call.name, "arguments": arguments}
        )
    return said


def usage(given: Given, cached: int) -> Json:
    """Return Google's counts: the answer's tokens are without its thoughts."""
    return {
        "total_input_tokens": given.tokens_in,
        "total_cached_tokens": min(cached, given.tokens_in),
        "total_output_tokens": given.tokens_out - given.tokens_of_thoughts,
        "total_thought_tokens": given.tokens_of_thoughts,
        "total_tool_use_tokens": 0,
        "total_tokens": given.tokens_in + given.tokens_out,
        "input_tokens_by_modality": [{"modality": "text", "tokens": given.tokens_in}],
    }


def whole(asked: Asked, given: Given, ids: Ids, cached: int = 0) -> Json:
    """Return the answer in one piece."""
    status = _FINISHED.get(given.finish) or ("requires_action" if given.calls else "completed")
    named = {"agent": asked.model} if "agent" in asked.body else {"model": asked.model}
    return {
        "id": ids.next("v1_", 40, LETTERS),
        "object": "interaction",
        **named,
        "status": status,
        "created": WHEN,
        "updated": WHEN,
        "steps": steps(asked, given, ids),
        "usage": usage(given, cached),
    }


def stream(answer: Json) -> list[bytes]:
    """Return the events of an answer, the last of which has no steps."""
    top = {name: value for name, value in answer.items() if name not in {"steps", "usage", "updated"}}
    events: list[Json] = [
        {"interaction": {**top, "status": "in_progress"}, "event_type": "interaction.created"},
        {"interaction_id": answer["id"], "status": "in_progress", "event_type": "interaction.status_update"},
    ]
    for index, step in enumerate(answer["steps"]):
        events.append({"index": index, "step": _begun(step), "event_type": "step.start"})
        events += [{"index": index, "delta": each, "event_type": "step.delta"} for each in _deltas(step)]
        events.append({"index": index, "event_type": "step.stop"})
    last = {name: value for name, value in answer.items() if name != "steps"}
    events.append({"interaction": last, "event_type": "interaction.completed"})
    named = [b"event: " + each["event_type"].encode() + b"\ndata: " + as_json(each) + b"\n\n" for each in events]
    return [*named, b"event: done\ndata: [DONE]\n\n"]


def _begun(step: Json) -> Json:
    if step["type"] == "function_call":
        return {**step, "arguments": {}}
    return {"type": step["type"]}


def _deltas(step: Json) -> Iterator[Json]:
    match step["type"]:
        case "thought":
            for each in step.get("summary", ()):
                for piece in pieces_of(each["text"]):
                    yield {"type": "thought_summary", "content": {"type": "text", "text": piece}}
            yield {"type": "thought_signature", "signature": step["signature"]}
        case "model_output":
            for each in step["content"]:
                yield from ({"type": "text", "text": piece} for piece in pieces_of(each["text"]))
        case _:
            written = as_json(step["arguments"]).decode()
            half = len(written) // 2
            yield from ({"type": "arguments_delta", "arguments": piece} for piece in (written[:half], written[half:]))
