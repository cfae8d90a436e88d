"""Every conversation that is valid in one API is valid in the next, or what cannot be said there is a ``Loss``.

Conversations are made by a grammar of what the APIs document: text, pictures, parallel tools and their errors,
thinking, refusals, empty texts, instructions in the middle. ``strict_apis`` has the rules that the result must keep.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers import load_catalog
from providers.dialects import DIALECTS, Habits, HistoryRules, Wording, converse_from_chat, rendered
from providers.dialects.histories import chat_history
from providers.models import traits_of
from tests.support.searched import examples
from tests.unit.providers.dialects import strict_apis

EXAMPLES = 100  # for each of sixteen pairs, and of four APIs at the vendors: 2,000
PICTURE = "iVBORw0KGgo="
TEXTS = st.sampled_from(["Hi", "weather?", "ünï\n", "<b>"])
# The last one comes again in each turn.
IDS = ("call_{}", "functions.get_weather:{}", "toolu_vrtx_" + "x" * 50 + "{}", "{}abcdefgh", "list_dir:{place}")
SAFE_IDS = ("call_{}", "toolu_vrtx_" + "x" * 50 + "{}")
ARGUMENTS = st.sampled_from([{}, {"city": "Oslo"}, {"a": [1, None, {"b": "c"}]}])
PARTS = st.lists(TEXTS.map(lambda text: ("text", text)) | st.just(("picture", "")), min_size=1, max_size=3)
THOUGHT = st.none() | st.just("Hm.")


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return turns, from the user's first to one that is to be answered."""
    said: list[dict[str, Any]] = [{"kind": "user", "parts": draw(PARTS)}]
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["answer", "refusal", "calls", "system"]))
        if kind == "calls":
            number = draw(st.integers(1, 3))
            calls = [{"id": draw(st.integers(0, 4)), "arguments": draw(ARGUMENTS)} for _ in range(number)]
            results = [draw(st.sampled_from(["rain", "", "error", "picture"])) for _ in range(number)]
            text, after = draw(st.none() | TEXTS), draw(st.none() | PARTS)
            turn = {
                "calls": calls,
                "results": results,
                "text": text,
                "after": after,
                "at": draw(st.integers(0, number)),
            }
            said.append({"kind": kind, "thought": draw(THOUGHT), **turn})
        elif kind == "system":
            said += [{"kind": kind, "text": draw(TEXTS)}, {"kind": "user", "parts": draw(PARTS)}]
        else:
            said.append({"kind": kind, "text": draw(TEXTS), "thought": draw(THOUGHT)})
            said.append({"kind": "user", "parts": draw(PARTS)})
    return said


CONVERSATIONS = st.fixed_dictionaries(
    {
        "system": st.lists(TEXTS, max_size=2),
        "turns": turns(),
        "tools": st.sampled_from(["none", "bare", "full"]),
        "written": st.sampled_from(["plain", "null", "blank", "twice"]),
    }
)
SCHEMAS = {"bare": {"type": "object"}, "full": {"type": "object", "properties": {"city": {"type": "string"}}}}


def named(turn: dict[str, Any], number: int, ids: tuple[str, ...]) -> list[tuple[str, dict[str, Any], str]]:
    """Return the id, the arguments and the result of each call of a turn."""
    pairs = zip(turn["calls"], turn["results"], strict=True)
    return [
        (ids[call["id"] % len(ids)].format(f"{number}{place}", place=place), call["arguments"], result)
        for place, (call, result) in enumerate(pairs)
    ]


def written(arguments: dict[str, Any], how: str) -> str:
    text = msgspec.json.encode(arguments).decode()
    if how == "twice":
        return msgspec.json.encode(text).decode()
    return {"null": "null", "blank": " "}.get(how, text) if not arguments else text


def chat(said: dict[str, Any]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in said["system"]]

    def user(parts: list[tuple[str, str]]) -> dict[str, Any]:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
        return {
            "role": "user",
            "content": [{"type": "text", "text": text} if kind == "text" else picture for kind, text in parts],
        }

    for number, turn in enumerate(said["turns"]):
        thought = {"reasoning_content": turn["thought"]} if turn.get("thought") else {}
        match turn["kind"]:
            case "user":
                messages.append(user(turn["parts"]))
            case "system":
                messages.append({"role": "developer", "content": turn["text"]})
            case "answer":
                messages.append({"role": "assistant", "content": turn["text"], **thought})
            case "refusal":
                messages.append({"role": "assistant", "content": None, "refusal": turn["text"], **thought})
            case "calls":
                each = named(turn, number, IDS)
                calls = [
                    {
                        "id": call_id,
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": written(arguments, said["written"])},
                    }
                    for call_id, arguments, _ in each
                ]
                messages.append({"role": "assistant", "content": turn["text"], "tool_calls": calls, **thought})
                messages += [{"role": "tool", "tool_call_id": one, "content": result} for one, _, result in each]
                if turn["after"]:
                    messages.append(user(turn["after"]))
    body: dict[str, Any] = {"model": "m", "messages": messages}
    if said["tools"] != "none":
        function = {"name": "get_weather", "parameters": SCHEMAS[said["tools"]]}
        body["tools"] = [{"type": "function", "function": function}]
    return body


def responses(said: dict[str, Any]) -> dict[str, Any]:  # noqa: C901 - one kind after the other
    items: list[dict[str, Any]] = [{"role": "developer", "content": text} for text in said["system"][1:]]
    picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PICTURE}"}

    def user(parts: list[tuple[str, str]]) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text} if kind == "text" else picture for kind, text in parts]
        return {"type": "message", "role": "user", "content": content}

    for number, turn in enumerate(said["turns"]):
        match turn["kind"]:
            case "user":
                items.append(user(turn["parts"]))
            case "system":
                items.append({"type": "message", "role": "developer", "content": turn["text"]})
            case "answer":
                part = {"type": "output_text", "text": turn["text"], "annotations": []}
                items.append({"type": "message", "role": "assistant", "content": [part]})
            case "refusal":
                part = {"type": "refusal", "refusal": turn["text"]}
                items.append({"type": "message", "role": "assistant", "content": [part]})
            case "calls":
                each = named(turn, number, IDS[:2])
                for call_id, arguments, _ in each:
                    call = {"type": "function_call", "call_id": call_id, "name": "get_weather"}
                    items.append({**call, "arguments": written(arguments, said["written"])})
                outputs = [
                    {
                        "type": "function_call_output",
                        "call_id": call_id,
                        "output": [picture] if result == "picture" else result,
                    }
                    for call_id, _, result in each
                ]
                if turn["after"]:  # between the outputs of parallel calls
                    outputs.insert(turn["at"], user(turn["after"]))
                items += outputs
    body: dict[str, Any] = {"model": "m", "store": False, "input": items}
    if said["system"]:
        body["instructions"] = said["system"][0]
    if said["tools"] != "none":
        tool = {"type": "function", "name": "get_weather", "strict": False, "parameters": SCHEMAS[said["tools"]]}
        body["tools"] = [tool]
    return body


def messages(said: dict[str, Any]) -> dict[str, Any]:
    turns_: list[dict[str, Any]] = []
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}

    def parts(given_: list[tuple[str, str]]) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text} if kind == "text" else picture for kind, text in given_]

    for number, turn in enumerate(said["turns"]):
        thought = [{"type": "thinking", "thinking": turn["thought"], "signature": "sig"}] if turn.get("thought") else []
        match turn["kind"]:
            case "user":
                turns_.append({"role": "user", "content": parts(turn["parts"])})
            case "system":
                pass
            case "answer" | "refusal":
                turns_.append({"role": "assistant", "content": [*thought, {"type": "text", "text": turn["text"]}]})
            case "calls":
                each = named(turn, number, SAFE_IDS)
                text = [{"type": "text", "text": turn["text"]}] if turn["text"] else []
                uses = [
                    {"type": "tool_use", "id": call_id, "name": "get_weather", "input": arguments}
                    for call_id, arguments, _ in each
                ]
                results = [
                    {
                        "type": "tool_result",
                        "tool_use_id": call_id,
                        "content": [picture] if result == "picture" else result,
                        "is_error": result == "error",
                    }
                    for call_id, _, result in each
                ]
                turns_.append({"role": "assistant", "content": [*thought, *text, *uses]})
                turns_.append({"role": "user", "content": [*results, *parts(turn["after"] or [])]})
    body: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": turns_}
    if said["system"]:
        body["system"] = [{"type": "text", "text": text} for text in said["system"]]
    if said["tools"] != "none":
        body["tools"] = [{"name": "get_weather", "input_schema": SCHEMAS[said["tools"]]}]
    return body


def gemini(said: dict[str, Any]) -> dict[str, Any]:
    contents: list[dict[str, Any]] = []
    picture = {"inlineData": {"mimeType": "image/png", "data": PICTURE}}

    def parts(given_: list[tuple[str, str]]) -> list[dict[str, Any]]:
        return [{"text": text} if kind == "text" else picture for kind, text in given_]

    for number, turn in enumerate(said["turns"]):
        thought = [{"text": turn["thought"], "thought": True}] if turn.get("thought") else []
        match turn["kind"]:
            case "user":
                contents.append({"role": "user", "parts": parts(turn["parts"])})
            case "system":
                pass
            case "answer" | "refusal":
                contents.append({"role": "model", "parts": [*thought, {"text": turn["text"]}]})
            case "calls":
                each = named(turn, number, IDS)
                text = [{"text": turn["text"]}] if turn["text"] else []
                calls = [
                    {"functionCall": {"id": call_id, "name": "get_weather", "args": arguments}}
                    for call_id, arguments, _ in each
                ]
                results = [
                    {"functionResponse": {"id": call_id, "name": "get_weather", "response": {"output": result}}}
                    for call_id, _, result in each
                ]
                contents.append({"role": "model", "parts": [*thought, *text, *calls]})
                contents.append({"role": "user", "parts": results})
                if turn["after"]:
                    contents.append({"role": "user", "parts": parts(turn["after"])})
    body: dict[str, Any] = {"contents": contents}
    if said["system"]:
        body["systemInstruction"] = {"parts": [{"text": text} for text in said["system"]]}
    if said["tools"] != "none":
        declared = {"name": "get_weather", "parametersJsonSchema": SCHEMAS[said["tools"]]}
        body["tools"] = [{"functionDeclarations": [declared]}]
    return body


APIS = {"chat": chat, "responses": responses, "messages": messages, "gemini": gemini}
PAIRS = [(source, target) for source in APIS for target in (*APIS, "converse") if source != target]


def translated(body: dict[str, Any], source: str, target: str) -> Wording:
    """Return the request of API ``target`` for ``body``, of API ``source``."""
    read = DIALECTS[source].requests.body
    assert read is None or source == "gemini"
    fields = msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw])
    if target == "converse":
        wording = rendered(fields, DIALECTS[source], DIALECTS["chat"], Habits())
        second = converse_from_chat(wording.fields, "m")
        return Wording(second.fields, (*wording.losses, *second.losses))
    pivoting = DIALECTS[target].pivoting
    habits = (
        Habits()
        if pivoting is None or pivoting.habits_of is None
        else pivoting.habits_of(traits_of("m"), None, Habits())
    )
    return rendered(fields, DIALECTS[source], DIALECTS[target], habits)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@settings(max_examples=examples(EXAMPLES), deadline=None, suppress_health_check=list(HealthCheck))
@given(said=CONVERSATIONS)
def test_a_conversation_of_one_api_is_valid_in_the_next(source: str, target: str, said: dict[str, Any]) -> None:
    wording = translated(APIS[source](said), source, target)
    if all(loss.hint for loss in wording.losses):
        body = msgspec.json.decode(msgspec.json.encode(wording.fields))
        assert getattr(strict_apis, f"faults_of_{target}")(body) == []


@pytest.mark.parametrize("source", APIS)
@settings(max_examples=examples(EXAMPLES), deadline=None, suppress_health_check=list(HealthCheck))
@given(said=CONVERSATIONS)
def test_a_conversation_is_valid_at_every_vendor_of_chat(source: str, said: dict[str, Any]) -> None:
    body = APIS[source](said)
    fields = (
        msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw])
        if source == "chat"
        else translated(body, source, "chat").fields
    )
    catalog = load_catalog()
    histories = {name: catalog[name].quirks.history for name in ("mistral", "deepseek", "openai", "groq")}
    for name, history in {**histories, "strictest": HistoryRules().strictest()}.items():
        sent = msgspec.json.decode(msgspec.json.encode(chat_history(fields, history).fields))
        assert strict_apis.faults_at(name, sent) == []
