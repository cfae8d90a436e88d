"""The stand-in of Google's Gemini API takes what its messages have, and refuses the rest with its status and words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import Came, ask, chat

PRO, FLASH = "gemini-3.1-pro-preview", "gemini-2.5-flash"
SAID = {"role": "user", "parts": [{"text": "Hello"}]}
ANSWERED = {"role": "model", "parts": [{"text": "Hi"}]}
DECLARED = {
    "functionDeclarations": [
        {"name": "get_weather", "parametersJsonSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    ]
}
CALL: dict[str, Any] = {"functionCall": {"name": "get_weather", "args": {"city": "Berlin"}}}
CALLED = {"role": "model", "parts": [CALL]}
RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "get_weather", "response": {"output": "sunny"}}}]}


@pytest.fixture
def google() -> Vendor:
    return made("google")


def generate(google: Vendor, model: str, *contents: Any, verb: str = "generateContent", **fields: Any) -> Came:
    body = {"contents": list(contents or [SAID]), **fields}
    return ask(google, f"/v1beta/models/{model}:{verb}", body, {"x-goog-api-key": google.key})


def words(came: Came) -> str:
    assert came.status == 400
    assert came.body["error"]["status"] == "INVALID_ARGUMENT"
    return str(came.body["error"]["message"])


@pytest.mark.parametrize("model", [PRO, FLASH])
def test_a_tool_loop_with_its_signatures_is_taken(google: Vendor, model: str) -> None:
    first = generate(google, model, tools=[DECLARED])
    content = first.body["candidates"][0]["content"]
    assert "thoughtSignature" in content["parts"][0]
    second = generate(google, model, SAID, content, RESULT, tools=[DECLARED])
    assert second.body["candidates"][0]["content"]["parts"][0]["text"] == "The tools said: sunny"
    assert google.refusals == []


def test_a_call_without_a_signature_is_refused_by_gemini_3_in_the_turn_that_goes_on(google: Vendor) -> None:
    said = words(generate(google, PRO, SAID, CALLED, RESULT, tools=[DECLARED]))
    assert said.startswith("Function call is missing a thought_signature in functionCall parts.")
    assert "function call `default_api:get_weather` , position 2." in said
    assert generate(google, PRO, SAID, CALLED, RESULT, ANSWERED, SAID, tools=[DECLARED]).status == 200
    assert generate(google, FLASH, SAID, CALLED, RESULT, tools=[DECLARED]).status == 200


def test_signatures_of_others_are_refused_and_the_word_for_none_is_taken(google: Vendor) -> None:
    def signed(signature: str) -> Came:
        call = {"role": "model", "parts": [{**CALL, "thoughtSignature": signature}]}
        return generate(google, PRO, SAID, call, RESULT, tools=[DECLARED])

    assert words(signed("c2lnbmVkIGJ5IG90aGVycw==")) == "Corrupted thought signature."
    assert signed("skip_thought_signature_validator").status == 200


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ([CALLED, RESULT], "Please ensure that function call turn comes immediately after a user turn or after a"),
        ([SAID, RESULT], "Please ensure that function response turn comes immediately after a function call turn."),
        ([SAID, CALLED, SAID], "Please ensure that the number of function response parts is equal to the number of"),
        ([ANSWERED], "Please ensure that single turn requests end with a user role or the role field is empty."),
        ([{"role": "assistant", "parts": [{"text": "Hi"}]}, SAID], "Please use a valid role: user, model."),
        ([{"role": "user", "parts": [{}]}], "* GenerateContentRequest.contents[0].parts[0].data: required oneof field"),
        (
            [{"role": "user", "parts": []}],
            "* GenerateContentRequest.contents[0].parts: contents.parts must not be empty.",
        ),
    ],
)
def test_a_history_in_another_order_is_refused(google: Vendor, contents: list[Any], said: str) -> None:
    assert words(generate(google, FLASH, *contents)).startswith(said)


def test_newest_models_do_not_go_on_from_their_own_turn(google: Vendor) -> None:
    assert generate(google, FLASH, SAID, ANSWERED).status == 200
    said = "Requests ending with a model turn are not supported unless the last part is a function response."
    assert words(generate(google, "gemini-3.6-flash", SAID, ANSWERED)) == said


def test_unknown_names_are_refused_with_their_place(google: Vendor) -> None:
    came = generate(google, FLASH, store_it=True, generationConfig={"max_tokens": 3})
    assert words(came) == (
        'Invalid JSON payload received. Unknown name "store_it": Cannot find field.\n'
        "Invalid JSON payload received. Unknown name \"max_tokens\" at 'generation_config': Cannot find field."
    )
    assert came.body["error"]["details"][0]["fieldViolations"][1]["field"] == "generation_config"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": False}}},
            'Unknown name "additionalProperties" at \'tools[0].function_declarations[0].parameters.properties[0]',
        ),
        ({"type": ["object", "null"]}, "Proto field is not repeating, cannot start list."),
        ({"type": "object", "properties": {}}, "parameters.properties: should be non-empty for OBJECT type"),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            "parameters.properties[0].value.items: missing field.",
        ),
        ({"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}}, "(TYPE_STRING), 1"),
        ({"type": "object", "properties": {"a": {"const": "b"}}}, 'Unknown name "const"'),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "$schema": "x"}, 'Unknown name "$schema"'),
    ],
)
def test_what_openapis_schemas_do_not_have_is_refused(google: Vendor, schema: Any, said: str) -> None:
    function = {"name": "f", "parameters": schema}
    assert said in words(generate(google, FLASH, tools=[{"functionDeclarations": [function]}]))
    free = {"name": "f", "parametersJsonSchema": schema}
    assert generate(google, FLASH, tools=[{"functionDeclarations": [free]}]).status == 200


def test_both_spellings_and_one_entry_for_a_list_are_taken(google: Vendor) -> None:
    body = {"contents": {"parts": {"text": "Hi"}}, "system_instruction": {"parts": {"text": "Be kind"}}}
    came = ask(google, f"/v1beta/models/{FLASH}:generateContent?key={google.key}", body, {})
    assert came.status == 200


def test_models_refuse_what_they_do_not_take(google: Vendor) -> None:
    def with_config(model: str, **config: Any) -> str:
        return words(generate(google, model, generationConfig=config, tools=[DECLARED]))

    assert (
        with_config(FLASH, thinkingConfig={"thinkingLevel": "low"}) == "Thinking level is not supported for this model."
    )
    budget = with_config("gemini-2.5-pro", thinkingConfig={"thinkingBudget": 0})
    assert budget == "Budget 0 is invalid. This model only works in thinking mode."
    assert with_config(FLASH, responseLogprobs=True) == f"Logprobs is not enabled for models/{FLASH}"
    assert with_config(PRO, candidateCount=2) == "Multiple candidates is not enabled for this model"
    assert generate(google, FLASH, generationConfig={"candidateCount": 2}).status == 200
    assert with_config(FLASH, presencePenalty=0.5) == "Penalty is not enabled for this model"
    json = with_config(FLASH, responseMimeType="application/json")
    assert json == "Function calling with a response mime type: 'application/json' is unsupported"
    assert "supported range is from 1 (inclusive) to 65537 (exclusive)" in with_config(FLASH, maxOutputTokens=100_000)
    assert generate(google, PRO, generationConfig={"thinkingConfig": {"thinkingLevel": "low"}}).status == 200


def test_addresses_are_read_by_https_and_of_some_kinds_alone(google: Vendor) -> None:
    def at(address: str, kind: str) -> int:
        part = {"fileData": {"fileUri": address, "mimeType": kind}}
        return generate(google, FLASH, {"role": "user", "parts": [part, {"text": "Hi"}]}).status

    assert at("https://example.com/a.png", "image/png") == 200
    assert at("https://generativelanguage.googleapis.com/v1beta/files/a", "image/gif") == 200
    assert [at("http://example.com/a.png", "image/png"), at("https://example.com/a.gif", "image/gif")] == [400, 400]


def test_functions_are_allowed_where_one_must_be_called_or_fit_alone(google: Vendor) -> None:
    def allowing(mode: str) -> int:
        config = {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": ["get_weather"]}}
        return generate(google, FLASH, tools=[DECLARED], toolConfig=config).status

    assert [allowing(mode) for mode in ("ANY", "VALIDATED", "AUTO", "NONE")] == [200, 200, 400, 400]


def test_a_name_of_a_function_with_other_letters_is_refused(google: Vendor) -> None:
    said = words(generate(google, FLASH, tools=[{"functionDeclarations": [{"name": "1 of many"}]}]))
    assert "tools[0].function_declarations[0].name: [FIELD_INVALID] Invalid function name." in said


def test_a_stream_is_events_or_a_list_of_json(google: Vendor) -> None:
    events = generate(google, PRO, verb="streamGenerateContent?alt=sse").events
    assert "".join(event["candidates"][0]["content"]["parts"][0]["text"] for event in events).startswith("Hello from")
    assert events[-1]["candidates"][0]["finishReason"] == "STOP"
    assert events[-1]["usageMetadata"]["thoughtsTokenCount"]
    assert generate(google, PRO, verb="streamGenerateContent").text.startswith('[{"candidates"')


def test_the_calls_of_a_stream_come_in_one_piece(google: Vendor) -> None:
    both = {"role": "user", "parts": [{"text": "parallel"}]}
    tools = [DECLARED, {"functionDeclarations": [{"name": "get_time"}]}]
    events = generate(google, FLASH, both, verb="streamGenerateContent?alt=sse", tools=tools).events
    pieces = [event["candidates"][0]["content"]["parts"] for event in events]
    called = [piece for piece in pieces if any("functionCall" in part for part in piece)]
    assert [len(piece) for piece in called] == [2]
    assert events[-1]["candidates"][0]["finishReason"] == "STOP"


def test_thoughts_are_shown_only_if_asked_for(google: Vendor) -> None:
    shown = generate(google, PRO, generationConfig={"thinkingConfig": {"includeThoughts": True}})
    assert shown.body["candidates"][0]["content"]["parts"][0]["thought"] is True
    hidden = generate(google, PRO)
    assert len(hidden.body["candidates"][0]["content"]["parts"]) == 1


def test_wrong_keys_and_models_are_refused_as_google_does(google: Vendor) -> None:
    path = f"/v1beta/models/{FLASH}:generateContent"
    wrong = ask(google, path, {"contents": [SAID]}, {"x-goog-api-key": "wrong"})
    assert (wrong.status, wrong.body["error"]["details"][0]["reason"]) == (400, "API_KEY_INVALID")
    missing = ask(google, path, {"contents": [SAID]}, {})
    assert (missing.status, missing.body["error"]["status"]) == (403, "PERMISSION_DENIED")
    came = ask(google, "/v1beta/models/gemini-9:generateContent", {"contents": [SAID]}, {"x-goog-api-key": google.key})
    assert (came.status, came.body["error"]["status"]) == (404, "NOT_FOUND")


def test_what_is_asked_is_stored_unless_the_request_says_otherwise() -> None:
    google: Any = made("google")
    for fields in ({}, {"store": True}, {"store": False}, {"store": None}):
        assert generate(google, PRO, **fields).status == 200
    assert [each.body.get("store") for each in google.stored] == [None, True, None]
    gemini: Any = made("gemini")
    for more in ({}, {"store": True}, {"store": False}):
        assert chat(gemini, "gemini-3.8-flash", **more).status == 200
    assert [each.body.get("store") for each in gemini.stored] == [None, True]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "MINIMAL"}}},
            "Thinking level MINIMAL is not supported",
        ),
        ({"cachedContent": "cachedContents/x"}, "Explicit caching is not supported"),
    ],
)
def test_argon_thinks_a_little_at_least_and_caches_by_itself_alone(fields: dict[str, Any], told: str) -> None:
    google = made("google")
    came = generate(google, "gemini-4-argon", **fields)
    assert came.page.startswith("https://")
    assert told in words(came)
    assert generate(google, "gemini-3.8-flash", **fields).status == 200
    assert generate(google, "gemini-4-argon", generationConfig={"temperature": 0.2, "topK": 3}).status == 200
