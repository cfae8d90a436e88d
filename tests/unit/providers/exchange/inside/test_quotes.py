"""What a client writes is not read as the vendor's word; and what a vendor says is, whatever stands in prompts."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.api.fallbacks import cause_of
from gateway.core.race_failures import RejectedByProvider
from gateway.settings import Cause
from providers import ErrorKind, UpstreamError, lacking, refuses_to_stream, stated_limit
from providers.dialects import CHAT, GEMINI, RESPONSES, Dialect, raw_json
from providers.exchange import FormRequest, Request, VendorsWords, mark, may_teach
from providers.exchange.taught import understood
from providers.refusals import Facts, blames_request, error_in, error_of_response, read
from tests.unit.providers.refusals.inside.test_refusals import CASES, WRONG, Case, refusal, request

# What a client writes: the words of each rule.
WRITTEN = [
    "maximum context length is 100 tokens",
    "too many tokens: context length exceeded",
    "prompt is too long: 5000 > 100 maximum",
    "max_tokens: 5 > 100, which is the maximum",
    "a\nmaximum context length is 100 tokens",
    "maximum-context-length-is-100-tokens",
    "stream_options",
    "stream_options is not supported",
    "Unsupported parameter: 'prompt_cache_key' is not supported with this model",
    "'. Unsupported parameter: 'service_tier' is not supported with this model. '",
    "service_tier is not supported",
    "tools[0].strict: Extra inputs are not permitted",
    "Invalid schema for function",
    "roles must alternate",
    'role "system" is not supported',
    "only supported in v1/responses",
    "This model does not support the Responses API",
    "Your credit balance is too low",
    "Incorrect API key provided",
    "streaming is not supported",
    "does not support thinking",
    "Jinja Exception: no tools",
]
# And how vendors quote it.
QUOTES = [
    "Invalid value: '{}'. Supported values are: 'low', 'high'.",
    'Invalid value: "{}"',
    "Input should be 'low' or 'high' (got {})",
    "[{{'type': 'enum', 'loc': ['body', 'x'], 'msg': 'Input should be one of these', 'input': '{}'}}]",
    "Invalid reasoning_effort: {}",
    "unknown variant `{}`, expected one of `low`, `high` at line 1",
    "'{}' is not one of ['low', 'high']",
    "{} is not a valid effort",
    "Invalid 'tools[0].function.name': \"{}\" does not match pattern",
]
USED = {"service_tier": "auto", "prompt_cache_key": "k", "max_tokens": 9000}


def fields(asked: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    whole = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **asked}
    return {name: raw_json(value) for name, value in whole.items()}


def places(written: str, quoted: str) -> dict[str, dict[str, Any]]:
    tool = {"type": "function", "function": {"name": written, "strict": True, "parameters": {"type": "object"}}}
    listed = {"type": "function", "function": {"name": "f", "parameters": {"enum": [written]}}}
    return {
        "effort": {"reasoning_effort": written},
        "user": {"user": written},
        "stop": {"stop": [written]},
        "metadata": {"metadata": {"a": written}},
        "tool": {"tools": [tool]},
        "enum": {"tools": [listed]},
        "model": {"model": written if " " in written else "m"},
        # Who knows how a vendor quotes can write that as well.
        "effort and prompt": {"reasoning_effort": written, "messages": [{"role": "user", "content": f"x {quoted} y"}]},
    }


def escaped(written: str) -> list[str]:
    return [written, repr(written)[1:-1], msgspec.json.encode(written).decode()[1:-1]]


def test_a_value_of_several_words_is_a_quote_also_where_nothing_presents_it() -> None:
    for written in (
        "This is not a chat model and thus not supported in the v1/chat/completions endpoint",
        *WRITTEN[:2],
    ):
        said = f"verbosity does not support {written} with this model."
        assert written not in VendorsWords(fields({"verbosity": written}))(said)
        assert VendorsWords(fields({"messages": [{"role": "user", "content": written}]}))(said) == said


@pytest.mark.parametrize("written", WRITTEN)
def test_a_quoted_value_teaches_nothing(written: str) -> None:
    for quote in QUOTES:
        for form in dict.fromkeys(escaped(written)):
            said = quote.format(form)
            for place, asked in places(written, said).items():
                if asked == {"model": "m"}:
                    continue  # a name of one word stays: rules compare it
                sent = fields({**USED, **asked})
                error = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said)
                mark(error, VendorsWords(sent))
                one = Request("m", sent, dialect=CHAT, is_ceiling=True)
                learnt = understood(read(error), sent, FormRequest(one, "chat", CHAT.requests))
                # A value of the effort may be refused; that is the vendor's word.
                others = [fact for fact in learnt if not (fact.field == "reasoning_effort" and fact.value)]
                case = (quote, form, place, error.said)
                assert others == [], case
                assert not error.is_too_long, case
                assert stated_limit(error.said) is None, case
                assert lacking(error) is None, case
                assert not refuses_to_stream(error), case
                assert not blames_request(error.said), case


# Names by which a rule, or a field of the request, is known.
NAMES = [
    *("stream_options", "include_usage", "service_tier", "prompt_cache_key", "max_tokens", "context_length_exceeded"),
    *("exceed_context_size", "request_too_large", "invalid_role", "TemplateError"),
]
OF_TOOLS = [
    "Invalid 'tools[0].function.name': '{}' is not supported",
    'tools.0.custom.name: "{}" is not supported',
    "Tool '{}' is not supported with this model.",
    "Tool \u201c{}\u201d is not supported with this model.",
    "'{}' is not a valid tool name",
    "`{}` is not one of the available tools",
    "The function `{}` is not supported",
    "No tool named '{}' is not unsupported",
    "Tool choice '{}' not found in 'tools' parameter",
    '{{"detail": "Tool \\"{}\\" is not supported"}}',
    "Invalid function name: {}",
    "Unsupported tool: {}",
]
OF_TOOLS_UNQUOTED = [
    *("Function {} is not supported", "unknown tool {}", "does not support the tool {}.", "Tool {} not allowed"),
]


def declaring(name: str) -> list[tuple[Dialect, dict[str, Any]]]:
    function = {"name": name, "parameters": {"type": "object"}}
    chosen = {"type": "function", "function": {"name": name}}
    only = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    return [
        (CHAT, {"tools": [{"type": "function", "function": function}]}),
        (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": chosen}),
        (CHAT, {"functions": [function], "function_call": {"name": name}}),
        (RESPONSES, {"input": "Hi", "tools": [{"type": "function", **function}]}),
        (GEMINI, {"contents": [], "tools": [{"functionDeclarations": [function]}]}),
        (GEMINI, {"contents": [], "toolConfig": only}),
    ]


@pytest.mark.parametrize("name", [*NAMES, "streaming"])
def test_a_tools_name_teaches_nothing_where_it_is_said_to_be_one(name: str) -> None:
    for quote in OF_TOOLS if name == "streaming" else OF_TOOLS + OF_TOOLS_UNQUOTED:
        said = quote.format(name)
        for dialect, asked in declaring(name):
            sent = fields({**USED, "stream_options": {"include_usage": True}, **asked})
            error = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said)
            mark(error, VendorsWords(sent))
            one = Request("m", sent, dialect=dialect, is_ceiling=True, drop_params=True)
            assert not understood(read(error), sent, FormRequest(one, dialect.name, dialect.requests)), error.said
            assert name not in error.said
            assert not error.is_too_long
            assert not blames_request(error.said)
            assert not refuses_to_stream(error)


@pytest.mark.parametrize(
    "said",
    [
        "Unsupported parameter: '{}' is not supported with this model.",
        "Unknown parameter: '{}'",
        "property '{}' is unsupported",
        "{} is not supported",
        "`{}` is not supported with function calling",
        "{} function calling is not supported",
        "This model does not support the parameter {}.",
        "[{{'type': 'extra_forbidden', 'loc': ('body', '{}'), 'msg': 'Extra inputs are not permitted'}}]",
        "tools.0.function.{}: Extra inputs are not permitted",
    ],
)
def test_a_field_is_understood_beside_a_tool_of_its_name(said: str) -> None:
    for name in NAMES:
        for _, asked in declaring(name):
            message = said.format(name)
            assert VendorsWords(fields({**USED, **asked}))(message) == message


@pytest.mark.parametrize(
    "said",
    [
        "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions.",
        "tool choice is not supported",
        "Unsupported tool choice",
        "Function calling is not enabled for this model",
        "This model does not support tool use.",
        "Tool streaming is not supported: streaming tool calls needs another model",
    ],
)
def test_a_plain_word_behind_tool_is_no_name_of_one(said: str) -> None:
    named = [{"type": "function", "function": {"name": word.strip(".:,")}} for word in said.split()]
    assert VendorsWords(fields({"tools": named}))(said) == said


@pytest.mark.parametrize("written", ["Your credit balance is too low", "Incorrect API key provided"])
@pytest.mark.parametrize("quote", ["{}: unknown field", "{} is not a valid effort", "Invalid value: '{}'"])
def test_no_quote_takes_a_key_out(written: str, quote: str) -> None:
    for asked in ({"reasoning_effort": written}, {written: 1}):
        said = quote.format(written)
        if quote.startswith("{}:") and written not in asked:
            continue
        body = msgspec.json.encode({"error": {"message": said}})
        sent = fields(asked)
        error = error_of_response(400, {}, body, (), 0.0, own=VendorsWords(sent))
        assert error.kind is ErrorKind.BAD_REQUEST
        assert error.message == said  # its caller reads it as it is


@pytest.mark.parametrize("written", ["Your credit balance is too low", "Incorrect API key provided"])
@pytest.mark.parametrize("code", [{}, {"type": "invalid_request_error"}, {"code": 400}])
def test_no_quote_within_an_answer_takes_a_key_out_and_a_vendor_s_word_does(
    written: str, code: Mapping[str, Any]
) -> None:
    said = {"error": {"message": f"{written} is not a valid effort", **code}}
    quote = error_in(msgspec.json.encode(said), (), otherwise=ErrorKind.STREAM_ERROR)
    mark(quote, VendorsWords(fields({"reasoning_effort": written})))
    assert quote.kind is (ErrorKind.BAD_REQUEST if code else ErrorKind.STREAM_ERROR)
    assert not quote.findings.is_certain
    assert quote.message == said["error"]["message"]  # its caller reads it as it is
    for asked in mentions(written):
        true = error_in(
            msgspec.json.encode({"error": {"message": written, **code}}), (), otherwise=ErrorKind.STREAM_ERROR
        )
        mark(true, VendorsWords(fields(asked)))
        if code:
            assert (true.kind, true.findings.is_certain) == (ErrorKind.PROVIDER_AUTH, True), asked


def test_words_that_cannot_be_told_from_the_client_s_blame_nobody_but_excuse() -> None:
    spent = {"error": {"message": "Your credit balance is too low", "code": 400}}
    flagged = {"error": {"message": "Content violates usage guidelines.", "code": 403}}
    for said in (spent, flagged):
        error = error_in(msgspec.json.encode(said), (), otherwise=ErrorKind.STREAM_ERROR)
        mark(error, VendorsWords(None))
        assert error.kind is ErrorKind.BAD_REQUEST
    large = VendorsWords(fields({"messages": "x" * (9 * 1024 * 1024)}))
    assert error_of_response(403, {}, msgspec.json.encode(flagged), (), 0.0, own=large).kind is ErrorKind.BAD_REQUEST


def test_no_quote_has_a_fallback_asked_and_a_vendor_s_word_has() -> None:
    written = "blocked by the content policy"
    said = f"Invalid value: '{written}'"
    for message, asked, cause in (
        (said, {"reasoning_effort": written}, None),
        (f"Your request was {written}.", {"messages": written}, Cause.CONTENT_FILTER),
    ):
        error = UpstreamError(ErrorKind.BAD_REQUEST, message, status=400, words=message)
        mark(error, VendorsWords(fields(asked)))
        assert cause_of(RejectedByProvider(error)) is cause


LENGTHS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Error code: 400 - This model's maximum context length is 8192 tokens.",
    "litellm.BadRequestError: OpenAIException - This model's maximum context length is 8192 tokens.",
    'Provider returned error: {"error":{"message":"This model\'s maximum context length is 8192 tokens."}}',
]


def mentions(said: str) -> list[dict[str, Any]]:
    words = [word.strip("'`\".:,()[]") for word in said.split()]
    function = {"name": "f", "description": said, "parameters": {"enum": [said, *words], "properties": {said: {}}}}
    return [
        {"messages": [{"role": "user", "content": f"Why do I get this?\n\n{said}\n\nAnd what is to be done?"}]},
        {"messages": [{"role": "user", "content": said}]},
        {"messages": [{"role": "user", "content": "Explain " + "; ".join(words)}]},
        {"tools": [{"type": "function", "function": function}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"enum": words}}}]},
        {"tools": [{"type": "function", "function": {"name": word, "parameters": {}}} for word in words]},
    ]


@pytest.mark.parametrize("said", LENGTHS)
def test_a_length_is_understood_though_the_prompt_is_about_it(said: str) -> None:
    for asked in mentions(said):
        error = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said)
        mark(error, VendorsWords(fields(asked)))
        assert error.is_too_long, error.said
        assert stated_limit(error.said) == stated_limit(said)


@pytest.mark.parametrize("case", [each for each in CASES if each.dialect is CHAT], ids=lambda case: case.vendor)
def test_what_a_vendor_refuses_is_understood_though_the_request_speaks_of_it(case: Case) -> None:
    tells(case.said, case.asked)


@pytest.mark.parametrize(("said", "asked"), WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_what_taught_nothing_teaches_nothing_beside_such_words(said: str, asked: Mapping[str, Any]) -> None:
    tells(said, asked)


def prompts(dialect: Dialect, said: str) -> list[dict[str, Any]]:
    """Return requests of an API that speak of ``said``: in their prompt, tools and schemas."""
    words = [word.strip("'`\".:,()[]") for word in said.split()]
    schema: dict[str, Any] = {
        "type": "object",
        "description": said,
        "properties": {"a": {"enum": [said, *words]}, said: {}},
    }
    tool: dict[str, Any] = {"name": "f", "description": said}
    asked: list[dict[str, Any]]
    tools: dict[str, Any]
    texts = [f"Why do I get this?\n\n{said}\n\nAnd what is to be done?", said, "Explain " + "; ".join(words)]
    if dialect is GEMINI:
        asked = [{"contents": [{"role": "user", "parts": [{"text": text}]}]} for text in texts]
        tools = {"tools": [{"functionDeclarations": [{**tool, "parameters": schema}]}]}
    elif dialect is RESPONSES:
        asked = [{"input": text} for text in texts]
        tools = {"tools": [{**tool, "type": "function", "parameters": schema}]}
    else:
        asked = [{"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]} for text in texts]
        tools = {"tools": [{**tool, "input_schema": schema}]}
    [[whole]] = tools.values()
    declared = [{**tool, "name": word} for word in words]
    named = {"tools": [{"functionDeclarations": declared} if dialect is GEMINI else {**whole, "name": "f"}, *declared]}
    return [*asked, tools, named]


@pytest.mark.parametrize("case", [each for each in CASES if each.dialect is not CHAT], ids=lambda case: case.vendor)
def test_in_its_own_api_too(case: Case) -> None:
    one = request(case.asked, case.dialect, drop_params=case.drop_params)
    asked = FormRequest(one, case.dialect.name, case.dialect.requests)
    expected = understood(read(refusal(case.said)), one.fields, asked)
    for more in prompts(case.dialect, refusal(case.said).message):
        error = refusal(case.said)
        mark(error, VendorsWords({**{name: raw_json(said) for name, said in more.items()}, **one.fields}))
        assert understood(read(error), one.fields, asked) == expected, error.said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.vendor)
@pytest.mark.parametrize("within", [False, True], ids=["a status", "within an answer"])
def test_a_developers_prompt_that_quotes_an_error_teaches_nothing_where_it_is_quoted(case: Case, within: bool) -> None:
    told = refusal(case.said).message
    one = request(case.asked, case.dialect, drop_params=True)
    asked = FormRequest(one, case.dialect.name, case.dialect.requests)
    for prompt in prompts(case.dialect, told)[:3]:
        sent = {**one.fields, **{name: raw_json(said) for name, said in prompt.items()}}
        [content] = texts_in(prompt)
        for quote in ("Invalid value: '{}'", 'messages.0.content: Input is wrong (got "{}")', "[{{'input': '{}'}}]"):
            for form in dict.fromkeys((content, *escaped(content), b64encode(content.encode()).decode())):
                body = msgspec.json.encode({"error": {"message": quote.format(form), "type": "invalid_request_error"}})
                own = VendorsWords(sent)
                if within:
                    error = error_in(body, (), otherwise=ErrorKind.STREAM_ERROR)
                    mark(error, own)
                else:
                    error = error_of_response(400, {}, body, (), 0.0, own=own)
                assert error.kind is ErrorKind.BAD_REQUEST
                assert not understood(read(error), sent, asked), error.said
                assert lacking(error) is None
                assert not error.is_too_long
                assert not refuses_to_stream(error)


def texts_in(value: Any) -> list[str]:
    """Return the texts below ``text``, ``input`` and ``content``."""
    if isinstance(value, dict):
        own = [said for name, said in value.items() if name in {"text", "input", "content"} and isinstance(said, str)]
        return own + [text for said in value.values() for text in texts_in(said)]
    return [text for each in value for text in texts_in(each)] if isinstance(value, list) else []


def tells(said: Any, asked: Mapping[str, Any]) -> None:
    """Check that a refusal tells the same, whatever else is in the request."""
    expected = learnt_of(said, asked, marked=False)
    for more in mentions(refusal(said).message):
        if not more.keys() & asked.keys():
            assert learnt_of(said, {**more, **asked}, marked=True) == expected


def learnt_of(said: Any, asked: Mapping[str, Any], *, marked: bool) -> Any:
    sent, error = fields(asked), refusal(said)
    if marked:
        mark(error, VendorsWords(sent))
    one = Request("m", sent, dialect=CHAT, is_ceiling=True, drop_params=True)
    found = understood(read(error), sent, FormRequest(one, "chat", CHAT.requests))
    return [msgspec.structs.replace(fact, value="") if fact.kind == "schemas" else fact for fact in found]


def test_of_a_request_that_is_too_large_to_be_searched_codes_and_status_count() -> None:
    said = "This model's maximum context length is 8192 tokens."
    large = fields({"messages": "x" * (9 * 1024 * 1024)})
    plain = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said)
    coded = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said, names=("context_length_exceeded",))
    mark(plain, VendorsWords(large))
    mark(coded, VendorsWords(large))
    assert not plain.is_too_long
    assert coded.is_too_long


def test_a_prompt_that_is_forgotten_cannot_be_compared() -> None:
    said = "This model's maximum context length is 8192 tokens."
    error = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said)
    mark(error, VendorsWords(None))
    assert not error.is_too_long


def test_whoever_asks_whether_a_refusal_may_teach_has_it_marked() -> None:
    sent = fields({"reasoning_effort": "roles must alternate"})
    error = refusal("Invalid value: 'roles must alternate'")
    assert may_teach(error, Request("m", sent, dialect=CHAT))
    assert not read(error)


@pytest.mark.parametrize("said", ["'a b' " * 700, "x: a b " * 600])
def test_a_message_that_was_written_to_be_slow_is_not_read(said: str) -> None:
    assert not VendorsWords(fields({"user": "a b"}))(said)


# What a client has named as a field of its request is named, where it is, and what a vendor says of it there.
NAMED: Mapping[str, tuple[dict[str, Any], list[str]]] = {
    "a property": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"temperature": {}}}}}]},
        [
            "Unsupported property '{}' in tool parameters",
            "Schema field `{}` is not supported",
            "parameters for tool f did not match schema: errors: [additionalProperties '{}' not allowed]",
            "Additional properties are not allowed ('{}' was unexpected)\n\nOn instance['tools'][0]['function']",
        ],
    ),
    "a format's name": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "temperature", "schema": {}}}},
        ["Schema name '{}' is not supported", "Invalid 'response_format.json_schema.name': '{}' is not allowed"],
    ),
    "a tool": (
        {"tools": [{"type": "function", "function": {"name": "temperature"}}]},
        ["`{}` is a reserved function name and cannot be used", "The tool call {} is not permitted"],
    ),
    "metadata": (
        {"metadata": {"temperature": "v"}},
        ["metadata key '{}' is not allowed", "Reserved metadata keys are not permitted: {}"],
    ),
    "a value of metadata": ({"metadata": {"k": "temperature"}}, ["Unsupported metadata field '{}'"]),
    "a stop": ({"stop": ["temperature"]}, ["Unsupported stop sequence: {}", "The stop word `{}` cannot be used"]),
}


@pytest.mark.parametrize("place", NAMED)
def test_what_a_client_has_named_as_a_field_is_named_teaches_nothing_of_that_field(place: str) -> None:
    asked, quotes = NAMED[place]
    for said in [quote.format("temperature") for quote in quotes]:
        assert [fact for fact in taught(said, asked) if not fact.passing] == [], said
    true = [
        "Unsupported parameter: 'temperature' is not supported with this model.",
        "Unknown parameter: 'temperature'",
    ]
    true += ["extraneous key [temperature] is not permitted", 'Unknown name "temperature": Cannot find field.']
    for said in (*true, "property 'temperature' is unsupported", "`temperature` is deprecated for this model."):
        assert [(fact.field, fact.passing) for fact in taught(said, asked)] == [("temperature", False)], said
    for said in [quote.format("temperature") for quote in quotes[:1]]:  # no other request has named anything so
        assert [fact.field for fact in taught(said, {}) if fact.field != "metadata"] == ["temperature"]


def test_a_property_called_strict_takes_strict_schemas_from_nobody() -> None:
    tool = {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {"strict": {"x": 1}}}}
    asked = {"tools": [{"type": "function", "function": tool}]}
    assert not taught("tools.0.function.parameters.properties.strict: Extra inputs are not permitted", asked)
    assert taught("tools.0.function.strict: Extra inputs are not permitted", asked)


def test_a_field_that_is_called_like_a_path_takes_what_is_there_from_nobody() -> None:
    said = "Unknown parameter: 'reasoning.effort'."
    for asked, expected in (
        ({"reasoning.effort": "low"}, []),
        ({"reasoning": {"effort": "low"}}, ["reasoning.effort"]),
    ):
        assert [fact.field for fact in taught(said, asked, RESPONSES)] == expected


def test_a_property_called_stream_options_takes_the_usage_from_nobody() -> None:
    """The gateway asks for it, whatever its client does."""
    one = Request("m", fields({"metadata": {"stream_options": "x"}}), dialect=CHAT)
    sent = {**one.fields, "stream_options": raw_json({"include_usage": True})}
    for said, passing in (
        ("metadata key stream_options is not allowed", True),
        ("stream_options is not allowed", False),
    ):
        error = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said)
        found = understood(read(error), sent, FormRequest(one, "chat", CHAT.requests))
        assert {fact.passing for fact in found if fact.field == "stream_options"} == {passing}, said


def taught(said: str, asked: Mapping[str, Any], dialect: Dialect = CHAT) -> Facts:
    """Return what a refusal teaches of a request that has these fields beside the usual ones."""
    sent = fields({**USED, "temperature": 0.3, **asked})
    error = UpstreamError(ErrorKind.BAD_REQUEST, said, status=400, words=said)
    mark(error, VendorsWords(sent))
    one = Request("m", sent, dialect=dialect, drop_params=True)
    return understood(read(error), sent, FormRequest(one, dialect.name, dialect.requests))
