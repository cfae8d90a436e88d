"""What vendors say when they refuse a field, and the form in which a request is sent again: their real words."""

# ruff: noqa: E501 - a case is one line

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from providers.dialects import CHAT, DIALECTS, Dialect, raw_json
from providers.exchange import FormRequest, Request, adapted
from providers.exchange.forms import has_must
from providers.exchange.quotes import VendorsWords
from providers.exchange.taught import understood
from providers.refusals import NOTHING, ErrorKind, Kind, UpstreamError, error_of_response, read
from providers.refusals.complaints import with_message
from providers.refusals.rules import RULES

RESPONSES, MESSAGES, GEMINI = (DIALECTS[name] for name in ("responses", "messages", "gemini"))


class Case(NamedTuple):
    """What a vendor says of a request, and what is left of that."""

    vendor: str
    said: Any  # its body; a text: in OpenAI's shape
    asked: Mapping[str, Any]
    sent: Mapping[str, Any]
    dialect: Dialect = CHAT
    drop_params: bool = False
    told: tuple[str, ...] | None = None  # None: all that is missing


def openai(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def pydantic(*fields: str | tuple[Any, ...]) -> list[dict[str, Any]]:
    places = [["body", each] if isinstance(each, str) else ["body", *each] for each in fields]
    return [
        {"type": "extra_forbidden", "loc": at, "msg": "Extra inputs are not permitted", "input": 1} for at in places
    ]


EFFORT = {"reasoning_effort": "high"}
CODEX = {"reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
CLAUDE_CODE = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
THINKS = {"generationConfig.thinkingConfig": {"thinkingLevel": "high"}}
UNSUPPORTED = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)
DEFAULT = (
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported."
)
VALUES = "Unsupported value: 'none' is not supported with the 'gpt-5.1-codex' model. Supported values are: 'low', 'medium', and 'high'."
VERIFIED = "Your organization must be verified to generate reasoning summaries. Please go to: https://platform.openai.com/settings/organization/general and click on Verify Organization. If you just verified, it can take up to 15 minutes for access to propagate."
UNKNOWN_NAME = (
    "Invalid JSON payload received. Unknown name \"thinkingConfig\" at 'generation_config': Cannot find field."
)
STOP = "This model doesn't support the stopSequences field. Remove stopSequences and try again."
LEVEL = "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium."
VARIANT = "Failed to deserialize the JSON body into the target type: reasoning_effort: unknown variant `none`, expected one of `high`, `low`, `medium`, `max`, `xhigh` at line 1 column 68"
CEREBRAS = "messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content' is unsupported"

CASES = [
    Case("OpenAI's chat", "Unrecognized request argument supplied: reasoning_effort", EFFORT, {}),
    Case("Azure", "Unrecognized request arguments supplied: reasoning_effort, verbosity", EFFORT | {"verbosity": "low"}, {}),
    Case("OpenAI, a rename", openai(UNSUPPORTED, "max_tokens", "unsupported_parameter"), {"max_tokens": 9}, {"max_completion_tokens": 9}, told=()),
    Case("OpenAI, a value", openai(DEFAULT, "temperature", "unsupported_value"), {"temperature": 0.2}, {}, drop_params=True),
    Case("OpenAI's Responses", openai("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning.effort", "unsupported_parameter"), CODEX, {**CODEX, "reasoning": {"summary": "auto"}}, RESPONSES, told=("reasoning.effort",)),
    Case("OpenAI's Responses, encrypted content", openai("Encrypted content is not supported with this model.", "include"), CODEX, {"reasoning": CODEX["reasoning"]}, RESPONSES),
    Case("OpenAI's Responses, a summary", openai(VERIFIED, "reasoning.summary", "unsupported_value"), {"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning": {"effort": "low"}}, RESPONSES, told=("reasoning.summary",)),
    Case("OpenAI's Responses, a value", openai(VALUES, "reasoning.effort", "unsupported_value"), {"reasoning": {"effort": "none"}}, {"reasoning": {"effort": "low"}}, RESPONSES, told=("reasoning.effort",)),
    Case("OpenAI's Responses, a field of chat", openai("Unknown parameter: 'reasoning'.", "reasoning", "unknown_parameter"), {"reasoning": CODEX["reasoning"]}, {}, RESPONSES),
    Case("OpenAI, padding", openai("Unknown parameter: 'stream_options.include_obfuscation'.", "stream_options.include_obfuscation", "unknown_parameter"), {"stream_options": {"include_usage": True, "include_obfuscation": False}}, {"stream_options": {"include_usage": True}}, told=("stream_options.include_obfuscation",)),
    Case("a code alone", openai("This cannot be used here.", "verbosity", "unsupported_parameter"), {"verbosity": "low"}, {}),
    Case("Groq", "`reasoning_effort` is not supported with this model", EFFORT, {}),
    Case("Groq, an unknown field", "property 'reasoning' is unsupported, did you mean 'reasoning_format'?", {"reasoning": {"effort": "low"}}, {}),
    Case("Groq, a value", "`reasoning_effort` must be one of `none` or `default`", EFFORT, {"reasoning_effort": "default"}, told=("reasoning_effort",)),
    Case("Cerebras", "body.store: property 'body.store' is unsupported", {"store": False}, {}, told=()),
    Case("xAI", {"code": "Client specified an invalid argument", "error": "Model grok-4-0709 does not support parameter reasoningEffort."}, EFFORT, {}),
    Case("xAI, a parameter", {"code": "400", "error": "Argument not supported on this model: stop"}, {"stop": ["x"]}, {}, drop_params=True),
    Case("xAI, a default", {"code": "400", "error": "Model grok-4 does not support parameter presencePenalty."}, {"presence_penalty": 0}, {}, told=()),
    Case("Mistral", {"object": "error", "message": {"detail": pydantic("reasoning_effort", "max_completion_tokens")}, "type": "invalid_request_error"}, EFFORT | {"max_completion_tokens": 9}, {"max_tokens": 9}, told=("reasoning_effort",)),
    Case("vLLM", {"object": "error", "message": str(pydantic("reasoning_effort")), "type": "BadRequestError", "code": 400}, EFFORT, {}),
    Case("FastAPI", {"detail": pydantic("metadata")}, {"metadata": {"a": "b"}}, {}),
    Case("vLLM, of an empty list", str([{"type": "too_short", "loc": ("body", "stop"), "msg": "List should have at least 1 item after validation, not 0", "input": []}]), {"stop": []}, {}, told=()),
    Case("OpenAI, of an empty list", openai("Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.", "tools", "empty_array"), {"tools": []}, {}, told=()),
    Case("Anthropic", {"type": "error", "error": {"type": "invalid_request_error", "message": "output_config: Extra inputs are not permitted"}}, CLAUDE_CODE, {"thinking": CLAUDE_CODE["thinking"]}, MESSAGES),
    Case("Anthropic, of thinking", {"type": "error", "error": {"type": "invalid_request_error", "message": "adaptive thinking is not supported on this model"}}, CLAUDE_CODE | {"max_tokens": 8000}, {"max_tokens": 8000, "thinking": {"type": "enabled", "budget_tokens": 4096}, "output_config": {"effort": "high"}}, MESSAGES, told=("thinking.type",)),
    Case("Anthropic, of a short answer", openai("adaptive thinking is not supported on this model"), {"thinking": {"type": "adaptive"}, "max_tokens": 9}, {"max_tokens": 9}, MESSAGES, told=("thinking.type",)),
    Case("Anthropic, of a budget", openai('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'), {"thinking": {"type": "enabled", "budget_tokens": 9000}}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, MESSAGES, told=("thinking.type",)),
    Case("Alibaba", openai("Only 'enabled' and 'disabled' are supported for thinking; 'adaptive' is not supported."), {"thinking": {"type": "adaptive"}, "max_tokens": 8000}, {"max_tokens": 8000, "thinking": {"type": "enabled", "budget_tokens": 4096}}, MESSAGES, told=("thinking.type",)),
    Case("Anthropic, of an effort", openai("This model does not support the effort parameter."), CLAUDE_CODE, {"thinking": CLAUDE_CODE["thinking"]}, MESSAGES, told=("output_config.effort",)),
    Case("Anthropic, a level", openai(LEVEL), {"output_config": {"effort": "xhigh"}}, {"output_config": {"effort": "max"}}, MESSAGES, told=("output_config.effort",)),
    Case("Anthropic, of a part of thinking", openai("thinking.adaptive.display: Extra inputs are not permitted"), {"thinking": {"type": "adaptive", "display": "omitted"}}, {"thinking": {"type": "adaptive"}}, MESSAGES, told=("thinking.display",)),
    Case("Anthropic, once it does not think", openai("`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive"), {"context_management": {"edits": []}}, {}, MESSAGES),
    Case("a server of Messages", openai("context_management: Extra inputs are not permitted"), {"context_management": {"edits": []}}, {}, MESSAGES),
    Case("Fireworks", "Extra inputs are not permitted, field: 'prompt_cache_key', value: 'x'", {"prompt_cache_key": "x"}, {}),
    Case("Gemini", [{"error": {"code": 400, "message": UNKNOWN_NAME, "status": "INVALID_ARGUMENT"}}], THINKS, {}, GEMINI),
    Case("Gemini, of levels", {"error": {"code": 400, "message": "Thinking level is not supported for this model."}}, THINKS, {}, GEMINI),
    Case("Gemini, of penalties", {"error": {"code": 400, "message": "Penalty is not enabled for this model"}}, {"generationConfig.presencePenalty": 0.1, "generationConfig.frequencyPenalty": 0.1, "generationConfig.seed": 3}, {"generationConfig.seed": 3}, GEMINI),
    Case("Vertex", {"error": {"code": 400, "message": "Unable to submit request because thinking is not supported by this model. Learn more: …"}}, THINKS, {}, GEMINI),
    Case("Ollama", '"hf.co/google/gemma:latest" does not support thinking', EFFORT, {}),
    Case("DeepSeek, a value", VARIANT, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}, told=("reasoning_effort",)),
    Case("Moonshot, a value", openai("Validation error for `reasoning_effort`: expected one of `'low' | 'medium' | 'high'`, received `'xhigh'`"), {"reasoning_effort": "xhigh"}, {"reasoning_effort": "high"}, told=("reasoning_effort",)),
    Case("Moonshot, a temperature", "invalid temperature: only 1 is allowed for this model", {"temperature": 0.3}, {}, drop_params=True),
    Case("Mistral, a value", "reasoning_effort='medium' is not supported for this model. Must be one of (<ReasoningEffort.none: 'none'>, <ReasoningEffort.high: 'high'>)", {"model": "m", "reasoning_effort": "medium"}, {"model": "m", "reasoning_effort": "high"}, told=("reasoning_effort",)),
    Case("Mistral, any value", "reasoning_effort='none' is not supported for this model", {"reasoning_effort": "none"}, {}),
    Case("Anthropic, of one effort", openai("output_config.effort: 'xhigh' is not supported for this model."), {"output_config": {"effort": "xhigh"}}, {}, MESSAGES, told=("output_config.effort",)),
    Case("kin-openapi", "'reasoning_effort' : value is not one of the allowed values ['none','default','low','medium','high']", {"reasoning_effort": "max"}, {"reasoning_effort": "high"}, told=("reasoning_effort",)),
    Case("Groq's Responses", "`reasoning_effort` must be one of `low`, `medium`, or `high`", {"reasoning": {"effort": "minimal"}}, {"reasoning": {"effort": "low"}}, RESPONSES, told=("reasoning.effort",)),
    Case("Groq's Responses, of a plain model", "`reasoning_effort` is not supported with this model", {"reasoning": {"effort": "low"}}, {}, RESPONSES, told=("reasoning.effort",)),
    Case("Gemini's chat completions", "Invalid reasoning_effort: xhigh", {"reasoning_effort": "xhigh"}, {}),
    Case("Gemini, of no thinking", "Budget 0 is invalid. This model only works in thinking mode.", {"reasoning_effort": "none"}, {}),
    Case("serde", "unknown field `user`, expected one of `model`, `messages` at line 1 column 20", {"user": "u"}, {}),
    Case("Go", 'json: unknown field "service_tier"', {"service_tier": "auto"}, {}, told=()),
    Case("zod", "Unrecognized key(s) in object: 'verbosity'", {"verbosity": "high"}, {}),
    Case("Python", "create() got an unexpected keyword argument 'reasoning_effort'", EFFORT, {}),
    Case("JSON Schema", "Additional properties are not allowed ('prompt_cache_key' was unexpected)", {"prompt_cache_key": "u"}, {}),
]  # fmt: skip


def refusal(said: Any) -> UpstreamError:
    body = openai(said) if isinstance(said, str) else said
    return error_of_response(400, {}, msgspec.json.encode(body), (), 0.0)


def request(asked: Mapping[str, Any], dialect: Dialect, *, drop_params: bool = False) -> Request:
    prompt = {dialect.requests.prompt: [{"role": "user", "content": "Hi"}]}
    fields = {name: raw_json(value) for name, value in (prompt | dict(asked)).items()}
    return Request("m", fields, dialect=dialect, drop_params=drop_params)


def form(case: Case) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what of a case's request is sent after the refusal, but for the prompt, and what its client is told."""
    one = request(case.asked, case.dialect, drop_params=case.drop_params)
    asked = FormRequest(one, case.dialect.name, case.dialect.requests)
    facts = understood(read(refusal(case.said)), one.fields, asked)
    sent = adapted(one.fields, facts, asked)
    prompt = case.dialect.requests.prompt
    assert sent.fields[prompt] == one.fields[prompt]
    return {name: msgspec.json.decode(raw) for name, raw in sent.fields.items() if name != prompt}, sent.told


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.vendor)
def test_a_refusal_of_a_field_is_understood_in_the_vendors_own_words(case: Case) -> None:
    told = tuple(name for name in case.asked if name not in case.sent) if case.told is None else case.told
    sent, said = form(case)
    assert sent == dict(case.sent)
    assert sorted(said) == sorted(told)


def test_each_rule_says_whose_words_it_knows() -> None:
    assert all(rule.said_by for rule in RULES)


IN_OTHER_WORDS = [
    ("Parameter 'top_k' is not allowed", "top_k"),
    ("Invalid parameter: parallel_tool_calls", "parallel_tool_calls"),
    ("extra fields not permitted: seed", "seed"),
    ("Sorry. stream_options is not a valid parameter here.", "stream_options"),
    ("temperature not supported with reasoning models", "temperature"),
    ("model does not accept temperature", "temperature"),
    ("temperature must be 1 for this model", "temperature"),
    ("`temperature` can only be set to 1.", "temperature"),
    ("Only temperature=1 is supported", "temperature"),
    ("logit_bias: unsupported", "logit_bias"),
    ("Field `user` is not recognized", "user"),
    ("verbosity is not a recognized field", "verbosity"),
    ("property verbosity should not exist", "verbosity"),
    ("'verbosity' is an invalid request parameter", "verbosity"),
    ("The following parameters are not supported: logit_bias, seed", "seed"),
    ("Parameters not supported: top_logprobs", "top_logprobs"),
    ("unexpected field in request: metadata", "metadata"),
    ("'metadata' was unexpected", "metadata"),
    ("parameter `thinking` is currently not supported", "thinking"),
    ("`top_p` cannot be specified for this model", "top_p"),
    ("The `top_k` parameter has been removed", "top_k"),
    ("you cannot use `stop` with this model", "stop"),
    ("schema validation failed: /parallel_tool_calls: additional property not allowed", "parallel_tool_calls"),
    ("Bad request: #/prediction: property not allowed", "prediction"),
    ("Parameter logit_bias not supported", "logit_bias"),
    ("The parameter `logit_bias` is ignored and must not be set", "logit_bias"),
    ("Setting 'temperature' is not possible for reasoning models", "temperature"),
    ("parallel_tool_calls is incompatible with this model", "parallel_tool_calls"),
    ("Please omit the `seed` parameter.", "seed"),
    ("temperature may only be 1", "temperature"),
    ("\u53c2\u6570 top_k \u4e0d\u652f\u6301", "top_k"),
]


@pytest.mark.parametrize(("said", "field"), IN_OTHER_WORDS, ids=lambda each: each)
def test_a_refused_field_is_found_in_words_that_no_rule_has(said: str, field: str) -> None:
    asked = {field: "value", "frequency_penalty": 1}
    assert form(Case("any", said, asked, {"frequency_penalty": 1}, drop_params=True))[0] == {"frequency_penalty": 1}


UNKNOWN_WORDS = [
    "Le param\u00e8tre \u00ab verbosity \u00bb n'est pas pris en charge par ce mod\u00e8le.",
    "Unbekannter Parameter: verbosity",
    "\u30d1\u30e9\u30e1\u30fc\u30bf\u300cverbosity\u300d\u306f\u30b5\u30dd\u30fc\u30c8\u3055\u308c\u3066\u3044\u307e\u305b\u3093\u3002",
    "found unpermitted parameter: :verbosity",
    "unknown_parameter: verbosity",
    "This model has no parameter named verbosity.",
    openai("Request rejected", param="verbosity", code="parameter_not_allowed"),
    {"errors": {"$.verbosity": ["The JSON property 'verbosity' could not be mapped to any .NET member."]}},
    {"errors": [{"source": {"pointer": "/verbosity"}, "detail": "This attribute does not exist."}]},
    {"message": "body is wrong", "validation": [{"params": {"additionalProperty": "verbosity"}}]},
    {"message": "validation failed", "errors": [{"path": ["verbosity"], "message": "Unrecognized key"}]},
]


@pytest.mark.parametrize("said", UNKNOWN_WORDS, ids=str)
def test_the_only_field_that_unknown_words_name_is_left_out(said: Any) -> None:
    one = request({"verbosity": "low", "temperature": 0.3}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [fact.field for fact in facts] == ["verbosity"]


PRIVATE: Mapping[str, Any] = {
    "metadata": {"trace": "t-1"},
    "prompt_cache_key": "a key of mine",
    "safety_identifier": "someone",
    "user": "someone",
}


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("said", ["Unbekannter Parameter: '{}'", "le champ « {} » n'est pas pris en charge"])
def test_a_hint_whose_value_may_not_be_kept_is_refused_once_and_not_in_each_call(said: str, name: str) -> None:
    one = request(PRIVATE, CHAT)
    facts = understood(read(refusal(said.format(name))), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.kind, fact.field, fact.value, fact.passing) for fact in facts] == [(Kind.FIELD, name, "", False)]


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize(
    "said",
    ["'{}' ist zu lang", "« {} » est trop long", "参数 '{}' 过长", "'{}.trace' ist unbekannt"],
)
def test_a_value_of_a_clients_own_that_is_wrong_teaches_of_this_request_alone(said: str, name: str) -> None:
    one = request(PRIVATE, CHAT)
    facts = understood(read(refusal(said.format(name))), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert all(fact.passing and not fact.value for fact in facts)


def test_unknown_words_may_be_about_the_value_and_teach_of_this_value_alone() -> None:
    one = request({"verbosity": "low"}, CHAT)
    facts = understood(read(refusal("Unbekannt: verbosity")), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.field, fact.value) for fact in facts] == [("verbosity", '"low"')]


@pytest.mark.parametrize("said", UNKNOWN_WORDS, ids=str)
def test_a_must_that_unknown_words_name_is_asked_of_others_first(said: Any) -> None:
    said = msgspec.json.decode(msgspec.json.encode(said).replace(b"verbosity", b"wibble_depth"))
    one = request({"wibble_depth": 3}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.kind, fact.field) for fact in facts] == [(Kind.MUST, "wibble_depth")]


def test_a_number_that_unknown_words_refuse_says_nothing_of_other_numbers() -> None:
    for name, given, other in ("seed", -1, 4), ("temperature", 0, 0.7), ("wibble_depth", 3, 4), ("stop", [""], ["END"]):
        one, another = request({name: given}, CHAT), request({name: other}, CHAT)
        said = read(refusal(f"{name!r} geht so nicht"))
        [fact] = understood(said, one.fields, FormRequest(one, "chat", CHAT.requests))
        assert (fact.kind, has_must(fact, one.fields, CHAT.requests)) == (Kind.MUST, True)
        assert not has_must(fact, another.fields, CHAT.requests)


@pytest.mark.parametrize(
    ("stop", "is_passing", "concerns_others"),
    [([""], False, False), ([], None, None), ("", None, None), (["", "END"], True, True), (["END"], False, True)],
    ids=str,
)
def test_an_empty_text_may_be_what_is_refused_and_says_nothing_of_other_texts(
    stop: Any, is_passing: bool | None, concerns_others: bool | None
) -> None:
    one, another = request({"stop": stop}, CHAT), request({"stop": ["OVER"]}, CHAT)
    asked = FormRequest(one, "chat", CHAT.requests)
    [fact] = understood(read(refusal("'stop' geht so nicht")), one.fields, asked)
    if is_passing is None:
        assert fact.kind is Kind.FIELD  # an empty list or text asks for nothing
        return
    assert (fact.kind, fact.passing) == (Kind.MUST, is_passing)
    assert has_must(fact, another.fields, CHAT.requests) is concerns_others


IN_VALIDATORS_WORDS: list[Any] = [
    "Additional properties are not allowed ('verbosity' was unexpected)",
    "Additional properties are not allowed ('verbosity', 'zzz' were unexpected)",
    "Additional properties are not allowed ('verbosity', 'user' were unexpected)",
    "property verbosity is not defined on the model",
    "Property 'verbosity' is not defined on the model",
    "Property 'verbosity' has not been defined and the schema does not allow additional properties.",
    "object has unexpected properties: verbosity",
    'instance additionalProperty "verbosity" exists in instance when not allowed',
    'object instance has properties which are not allowed by the schema: ["verbosity"]',
    "data must NOT have additional properties, verbosity",
    {
        "error": {
            "message": "request body must NOT have additional properties",
            "details": [
                {
                    "instancePath": "",
                    "keyword": "additionalProperties",
                    "params": {"additionalProperty": "verbosity"},
                    "message": "must NOT have additional properties",
                }
            ],
        }
    },
    [
        {
            "instancePath": "",
            "schemaPath": "#/additionalProperties",
            "keyword": "additionalProperties",
            "params": {"additionalProperty": "verbosity"},
            "message": "must NOT have additional properties",
        }
    ],
    {
        "errors": [
            {
                "instancePath": "",
                "schemaPath": "#/additionalProperties",
                "keyword": "additionalProperties",
                "params": {"additionalProperty": "verbosity"},
                "message": "must NOT have additional properties",
            }
        ]
    },
    {
        "statusCode": 400,
        "code": "FST_ERR_VALIDATION",
        "error": "Bad Request",
        "message": "body must NOT have additional properties",
        "validation": [
            {"params": {"additionalProperty": "verbosity"}, "message": "must NOT have additional properties"}
        ],
    },
    {"statusCode": 400, "error": "Bad Request", "message": "body must NOT have additional properties (verbosity)"},
    {"error": "body should NOT have additional properties: 'verbosity'"},
    {"error": {"message": "validation", "params": {"additionalProperty": "verbosity"}}},
    {"message": "must NOT have additional properties", "params": {"additionalProperty": "verbosity"}},
    {
        "detail": [
            {
                "type": "extra_forbidden",
                "loc": ["body", "verbosity"],
                "msg": "Extra inputs are not permitted",
                "input": "low",
            }
        ]
    },
    {
        "error": {
            "message": "1 validation error for ChatCompletionRequest\nverbosity\n  Extra inputs are not permitted [type=extra_forbidden, input_value='low', input_type=str]\n    For further information visit https://errors.pydantic.dev/2.5/v/extra_forbidden"
        }
    },
    {
        "error": {
            "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'verbosity'), 'msg': 'Extra inputs are not permitted', 'input': 'low'}]"
        }
    },
    {"error": {"type": "extra_forbidden", "loc": ["body", "verbosity"]}},
    {"detail": [{"loc": ["body", "verbosity"], "msg": "extra fields not permitted", "type": "value_error.extra"}]},
    {
        "error": {
            "message": "Validation failed",
            "details": [
                {"loc": ["body", "verbosity"], "type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
            ],
        }
    },
    {"errors": [{"loc": ["body", "verbosity"], "type": "extra_forbidden", "msg": "Extra inputs are not permitted"}]},
    {"detail": [{"type": "extra_forbidden", "loc": ["body", "verbosity"]}]},
    "1 validation error for Request\nbody -> verbosity\n  extra fields not permitted (type=value_error.extra)",
    {"error": {"message": "extra_forbidden: verbosity"}},
    {
        "error": {
            "issues": [
                {
                    "code": "unrecognized_keys",
                    "keys": ["verbosity"],
                    "path": [],
                    "message": "Unrecognized key(s) in object: 'verbosity'",
                }
            ],
            "name": "ZodError",
        }
    },
    {"error": {"issues": [{"code": "unrecognized_keys", "keys": ["verbosity"], "path": []}]}},
    {
        "issues": [
            {
                "code": "unrecognized_keys",
                "keys": ["verbosity", "user"],
                "path": [],
                "message": 'Unrecognized keys: "verbosity", "user"',
            }
        ]
    },
    {"error": {"formErrors": ["Unrecognized key(s) in object: 'verbosity'"], "fieldErrors": {}}},
    {"error": {"_errors": ["Unrecognized key(s) in object: 'verbosity'"]}},
    {"errors": [{"code": "unrecognized_keys", "keys": ["verbosity"], "path": []}]},
    'Invalid key: Expected never but received "verbosity"',
    "this field has unspecified keys: verbosity",
    'At path: verbosity -- Expected a value of type `never`, but received: `"low"`',
    {
        "error": {
            "type": "validation",
            "on": "body",
            "property": "/verbosity",
            "message": "Unexpected property",
            "summary": "Property 'verbosity' should not be provided",
        }
    },
    "unknown field `verbosity`, expected one of `model`, `messages`, `temperature` at line 1 column 20",
    'json: unknown field "verbosity"',
    'Unrecognized field "verbosity" (class com.x.ChatRequest), not marked as ignorable (4 known properties: "model", "messages", "temperature", "seed"])\n at [Source: (String)"{...}"; line: 1, column: 20] (through reference chain: com.x.ChatRequest["verbosity"])',
    "The JSON property 'verbosity' could not be mapped to any .NET member contained in type 'ChatRequest'.",
    {
        "type": "https://tools.ietf.org/html/rfc9110#section-15.5.1",
        "title": "One or more validation errors occurred.",
        "status": 400,
        "errors": {
            "$.verbosity": [
                "The JSON property 'verbosity' could not be mapped to any .NET member contained in type 'X'."
            ]
        },
        "traceId": "00-1",
    },
    "Could not find member 'verbosity' on object of type 'ChatRequest'. Path 'verbosity', line 1, position 20.",
    "Unsupported parameter (verbosity)",
    "This parameter is not supported (verbosity).",
    "unsupported parameters: [verbosity]",
    {
        "violations": [{"propertyPath": "verbosity", "message": "This field was not expected."}],
        "title": "Validation Failed",
        "detail": "verbosity: This field was not expected.",
    },
    {"message": "The verbosity field is prohibited.", "errors": {"verbosity": ["The verbosity field is prohibited."]}},
    {"error": {"verbosity": ["Unknown field."]}},
    {
        "error": {
            "code": 400,
            "message": "Invalid JSON payload received.",
            "status": "INVALID_ARGUMENT",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{"field": "verbosity", "description": "Cannot find field."}],
                }
            ],
        }
    },
    {"error": {"code": "invalid_request", "field": "verbosity", "message": "Not supported"}},
    {"code": "unsupported_parameter", "parameter": "verbosity", "message": "This is not supported"},
    {"error": {"message": "Unsupported", "target": "verbosity", "code": "UnsupportedParameter"}},
    {
        "error": {
            "message": "Bad Request",
            "invalid_params": [{"name": "verbosity", "reason": "is not a known parameter"}],
        }
    },
    {"title": "Bad Request", "status": 400, "invalid-params": [{"name": "verbosity", "reason": "unknown"}]},
]


@pytest.mark.parametrize("said", IN_VALIDATORS_WORDS, ids=str)
def test_a_field_is_found_in_the_words_and_shapes_of_validators(said: Any) -> None:
    one = request({"verbosity": "low", "temperature": 0.3}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.kind, fact.field) for fact in facts] == [(Kind.FIELD, "verbosity")]


PAGES = [
    "<html><head><title>400 Bad Request</title></head><body><h1>Bad Request</h1><p>Unsupported parameter: &quot;verbosity&quot;</p></body></html>",
    "<!DOCTYPE html><html><head><title>Error</title></head><body><pre>ValidationError: &#39;verbosity&#39; is not allowed</pre></body></html>",
    "<html><body>Unknown parameter: &#x27;verbosity&#x27;</body></html>",
    '<?xml version="1.0"?><error><code>400</code><message>Unsupported parameter: &quot;verbosity&quot;</message></error>',
    "Unsupported parameter: &apos;verbosity&apos;",
    "<html><title>Error</title><body><b>Type</b> Status Report<b>Message</b> Unrecognized field &quot;verbosity&quot; (class x), not marked as ignorable</body></html>",
]


@pytest.mark.parametrize("within", [False, True], ids=["a page", "a page within JSON"])
@pytest.mark.parametrize("page", PAGES)
def test_a_field_is_found_in_a_page_with_escaped_quotes(page: str, *, within: bool) -> None:
    body = msgspec.json.encode(openai(page)) if within else page.encode()
    one = request({"verbosity": "low", "temperature": 0.3}, CHAT)
    refused = error_of_response(400, {}, body, (), 0.0, own=VendorsWords(one.fields))
    facts = understood(read(refused), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.kind, fact.field) for fact in facts] == [(Kind.FIELD, "verbosity")]


@pytest.mark.parametrize(
    "said",
    [
        "body must NOT have additional properties",
        {"error": {"message": "slow down", "path": "/v1/verbosity"}},
        {"error": {"message": "This is wrong", "field": "messages"}},
        {"error": {"message": "This is wrong", "target": "the verbosity of it"}},
        {"errors": [{"name": "ValidationError", "message": "messages are wrong"}]},
        {"detail": [{"type": "missing", "loc": ["body", "verbosity"], "msg": "Field required"}]},
        {"error": {"issues": [{"code": "invalid_type", "path": ["messages", 0], "message": "Required"}]}},
        "Failed to parse near: &quot;json: unknown field &#39;verbosity&#39;&quot;",
        "Failed to parse near: unrecognized_keys','keys':['verbosity'",
    ],
    ids=str,
)
def test_validators_words_of_other_things_teach_nothing(said: Any) -> None:
    prompt = "What is json: unknown field 'verbosity'? And unrecognized_keys','keys':['verbosity'?"
    one = request({"verbosity": "low", "messages": [{"role": "user", "content": prompt}]}, CHAT)
    body = msgspec.json.encode(openai(said) if isinstance(said, str) else said)
    refused = error_of_response(400, {}, body, (), 0.0, own=VendorsWords(one.fields))
    assert understood(read(refused), one.fields, FormRequest(one, "chat", CHAT.requests)) == NOTHING


@pytest.mark.parametrize(
    "said",
    [
        "Parâmetro não suportado: {}",
        "Nieznany parametr: {}",
        "Parámetro desconocido: '{}'",
        "Le champ est inconnu : {}",
        "Параметр {} не поддерживается",
        "不支持 {} 参数",
        "参数 {} 未知",
    ],
)
def test_a_field_named_as_a_word_is_known_beside_a_noun_of_another_language(said: str) -> None:
    one = request({"user": "someone", "temperature": 0.3}, CHAT)
    asked = FormRequest(one, "chat", CHAT.requests)
    assert [fact.field for fact in understood(read(refusal(said.format("user"))), one.fields, asked)] == ["user"]
    for other in ("messages", "nobody"):
        assert understood(read(refusal(said.format(other))), one.fields, asked) == NOTHING


OF_KINDS = [
    "'{}' muss eine Zeichenkette sein",
    "Der Wert von '{}' muss ein string sein",
    "le champ \u00ab {} \u00bb doit \u00eatre de type string",
    "El valor de '{}' debe ser un objeto",
    "'{}' \u306e\u5024\u306f\u6587\u5b57\u5217\u3067\u306a\u3051\u308c\u3070\u306a\u308a\u307e\u305b\u3093 (type: string)",
    "'{}' \uac12\uc740 \ubb38\uc790\uc5f4\uc774\uc5b4\uc57c \ud569\ub2c8\ub2e4",
    "'{}' \u7684\u503c\u65e0\u6548",
    "Ung\u00fcltiger Wert f\u00fcr '{}': null",
]


@pytest.mark.parametrize("said", OF_KINDS)
def test_a_hint_of_the_wrong_kind_is_left_out_in_another_language(said: str) -> None:
    one = request({"verbosity": 3, "metadata": "x", "stop": "x", "temperature": 3}, CHAT)

    def taught(name: str) -> list[tuple[Kind, str, bool]]:
        facts = understood(read(refusal(said.format(name))), one.fields, FormRequest(one, "chat", CHAT.requests))
        return [(fact.kind, fact.value, fact.passing) for fact in facts]

    assert taught("verbosity") == [(Kind.FIELD, "3", False)]
    assert taught("metadata") == [(Kind.FIELD, "", True)]  # the value may be a client's own, so of this request alone
    assert taught("stop") == [(Kind.MUST, "", True)]
    assert taught("temperature") == []  # no vendor takes this


@pytest.mark.parametrize("said", ["'{}' must be a string", "{} must be an object", "invalid type for {}: number"])
def test_a_hint_of_the_wrong_kind_stays_the_clients_mistake_in_english(said: str) -> None:
    one = request({"verbosity": 3, "metadata": "x"}, CHAT)
    for name in ("verbosity", "metadata"):
        reading = read(refusal(said.format(name)))
        assert understood(reading, one.fields, FormRequest(one, "chat", CHAT.requests)) == NOTHING


@pytest.mark.parametrize(
    "said", ["Model gpt-5.2-xhigh is in maintenance", "Could not fetch http://a.example/xhigh.png"]
)
def test_what_only_has_an_effort_in_its_name_says_nothing_of_efforts(said: str) -> None:
    one = request({"reasoning_effort": "low"}, CHAT)
    assert understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests)) == NOTHING


@pytest.mark.parametrize(
    ("said", "effort", "is_taught"),
    [
        ("xhigh isn't one of low, medium, high", "xhigh", True),
        ("xhigh isn't one of low, medium, high", "high", False),
        ("xhigh needs a plan", "xhigh", True),
        ("xhigh needs a plan", "high", False),
        ("Efforts are low, medium, high, xhigh. Your account is not ready.", "xhigh", False),
        ("Efforts are low, medium, high, xhigh. Your account is not ready.", "high", False),
        ("Something is wrong (efforts: low|medium|high|xhigh)", "xhigh", False),
        ("Something is wrong (efforts: xhigh, high or low)", "xhigh", False),
    ],
)
def test_a_list_of_efforts_says_nothing_of_those_in_it(said: str, effort: str, is_taught: bool) -> None:
    one = request({"reasoning_effort": effort}, CHAT)
    assert bool(understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))) is is_taught


@pytest.mark.parametrize(
    "said",
    [
        "The user is not supported.",
        "user is not supported in your region",
        "The requested speed is not supported",
        "This model does not support user",
        "The user must be one of your organization",
        "The user must be verified to use this model",
        "speed must be one of slow or fast",
    ],
)
def test_an_everyday_word_is_no_field_of_that_name(said: str) -> None:
    one = request({"user": "u1", "speed": "fast"}, CHAT)
    assert understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests)) == NOTHING


@pytest.mark.parametrize(
    "said",
    [
        "`{}` is not supported",
        "'{}' geht nicht",
        "{}: Extra inputs are not permitted",
        "Unsupported parameter: {}",
        "Unsupported parameter {}",
        "unexpected keyword argument {}",
        "The model does not support the parameter {}",
        "Only {}=1 is supported",
    ],
)
@pytest.mark.parametrize("name", ["user", "speed"])
def test_a_field_with_the_name_of_an_everyday_word_is_known_where_it_is_called_a_field(said: str, name: str) -> None:
    one = request({name: "fast"}, CHAT)
    facts = understood(read(refusal(said.format(name))), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [fact.field for fact in facts] == [name]


@pytest.mark.parametrize(
    ("path", "taught"),
    [
        ("tools[0].function.strict", (Kind.SCHEMAS, "")),
        ("messages[0].content[0].cache_control.ttl", (Kind.FIELD, "*.cache_control.ttl")),
        ("messages[1].tool_calls[0].extra_content", (Kind.FIELD, "messages.tool_calls.extra_content")),
        ("messages[1].reasoning_content", (Kind.FIELD, "messages.reasoning_content")),
        ("messages[1].content", None),
        ("tools[0].function.name", None),
    ],
)
@pytest.mark.parametrize("words", ["Unbekannter Parameter: {}", "{} : inconnu (\u00ab {last} \u00bb)", "a pointer"])
def test_a_member_of_a_list_is_found_by_its_path_in_unknown_words(
    words: str, path: str, taught: tuple[Kind, str] | None
) -> None:
    pointer = {"source": {"pointer": f"/{path.replace('[', '/').replace(']', '').replace('.', '/')}"}, "detail": "no"}
    said: Any = words.format(path, last=path.rpartition(".")[2]) if words != "a pointer" else {"errors": [pointer]}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"a": 1}}
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    messages = [
        {"role": "user", "content": [marked]},
        {"role": "assistant", "content": "b", "reasoning_content": "c", "tool_calls": [call]},
    ]
    tools = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}]
    one = request({"messages": messages, "tools": tools}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.kind, fact.field) for fact in facts] == ([] if taught is None else [taught])


@pytest.mark.parametrize(
    ("said", "taught"),
    [
        ("Par\u00e1metro no admitido: verbosity", ["verbosity"]),
        ("Parametro sconosciuto: verbosity", ["verbosity"]),
        (
            "\u30d1\u30e9\u30e1\u30fc\u30bf verbosity \u306f\u30b5\u30dd\u30fc\u30c8\u3055\u308c\u3066\u3044\u307e\u305b\u3093",
            ["verbosity"],
        ),
        ("KeyError: 'verbosity'", []),
        ("Internal server error while reading verbosity", []),
        ("The kernel for verbosity crashed", []),
    ],
)
@pytest.mark.parametrize("status", [500, 501])
def test_a_server_that_refuses_with_500_is_understood_unless_it_tells_a_failure(
    said: str, status: int, taught: list[str]
) -> None:
    one = request({"messages": [], "verbosity": "low"}, CHAT)
    error = UpstreamError(ErrorKind.SERVER_ERROR, said, status=status)
    facts = understood(read(error), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [fact.field for fact in facts] == taught


def test_complaints_of_a_long_list_are_gathered_as_far_as_somebody_reads_them() -> None:
    complaints = [{"field": f"field_{number}", "message": f"is unknown, {number}"} for number in range(1000)]
    message = with_message({"message": "wrong", "errors": complaints})["message"]
    assert message.startswith("wrong; field_0: is unknown, 0; field_1: is unknown, 1;")
    assert 4096 <= len(message) < 5000


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("temperature must be between 0 and 1", {"temperature": 1.5}),
        ("temperature: range: 0..1", {"temperature": 1.5}),
        ({"issues": [{"path": ["temperature"], "message": "Number must be at most 1"}]}, {"temperature": 1.5}),
        (openai("Expected a value <= 1, but got 1.5 instead.", param="temperature"), {"temperature": 1.5}),
        ("xhigh isn't one of low, medium, high", {"reasoning_effort": "xhigh"}),
        ("reasoning_effort: Expected 'low' | 'high', received another", {"reasoning_effort": "medium"}),
    ],
    ids=str,
)
def test_a_value_that_other_vendors_take_is_left_out_and_no_other_value(said: Any, asked: Mapping[str, Any]) -> None:
    one = request(asked, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    [[name, value]] = asked.items()
    assert [(fact.field, fact.value) for fact in facts] == [(name, bytes(raw_json(value)).decode())]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("temperature must be between 0 and 2", {"temperature": 3}),
        ("temperature must be at least 0.1", {"temperature": 0}),
        ("reasoning_effort must be a string", {"reasoning_effort": "banana"}),
        ("verbosity must be a known value", {"verbosity": "loud"}),
        ("stop must be a list", {"stop": "a"}),
    ],
)
def test_a_value_that_decides_or_that_no_api_takes_stays_the_clients_mistake(
    said: str, asked: Mapping[str, Any]
) -> None:
    one = request(asked, CHAT)
    assert understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests)) == NOTHING


@pytest.mark.parametrize(
    ("asked", "is_others"),
    [
        ({"temperature": 3}, False),
        ({"temperature": "hot"}, False),
        ({"top_p": 5}, False),
        ({"frequency_penalty": 9}, False),
        ({"temperature": 0}, True),  # a must
        ({"top_k": 0}, True),  # none, on servers of one's own
        ({"temperature": 0.3}, True),
        ({"temperature": None}, True),
    ],
    ids=str,
)
def test_a_sampling_value_that_no_api_takes_stays_the_clients_mistake_in_unknown_words(
    asked: Mapping[str, Any], is_others: bool
) -> None:
    one = request(asked, CHAT)
    said = refusal(f"{next(iter(asked))!r} geht so nicht")
    assert bool(understood(read(said), one.fields, FormRequest(one, "chat", CHAT.requests))) is is_others


def test_an_argument_of_a_tool_with_a_fields_name_teaches_of_this_request_alone() -> None:
    properties = {"temperature": {"type": "integer"}}
    tool = {"name": "thermostat", "parameters": {"type": "object", "properties": properties}}
    said = read(refusal("Tool call of thermostat: argument 'temperature' must be an integer"))
    for tools, passing in ([{"type": "function", "function": tool}], True), ([], False):
        one = request({"temperature": 0.7, "tools": tools}, CHAT)
        facts = understood(said, one.fields, FormRequest(one, "chat", CHAT.requests))
        assert [(fact.field, fact.passing) for fact in facts] == [("temperature", passing)]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Beta 'wibble-2026-11-01' wordt niet ondersteund", {"wibble-2026-11-01"}),
        ("anthropic-beta: wibble-2026-11-01 not in [context-1m-2025-08-07]", {"wibble-2026-11-01"}),
        ("We have not enabled wibble-2026-11-01 for your account", {"wibble-2026-11-01"}),
        ("The account has a problem", set()),
    ],
)
def test_a_beta_that_unknown_words_name_is_left_out_and_no_other(said: str, left: set[str]) -> None:
    one = request({"messages": []}, MESSAGES)
    sent = {"anthropic-beta": "wibble-2026-11-01,context-1m-2025-08-07"}
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "messages", MESSAGES.requests), sent)
    assert {fact.value for fact in facts} == left


def test_strict_is_known_where_a_decoder_names_it_alone() -> None:
    tools = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}]
    for fields, kinds in (({"tools": tools}, [Kind.SCHEMAS]), ({"tools": []}, [])):
        one = request(fields, CHAT)
        facts = understood(
            read(refusal('json: unknown field "strict"')), one.fields, FormRequest(one, "chat", CHAT.requests)
        )
        assert [fact.kind for fact in facts] == kinds


@pytest.mark.parametrize(
    "said",
    [
        "Bekannt sind temperature und top_p, unbekannt verbosity",  # which of the three, no rule knows
        "Unbekannter Parameter: messages",
        "Unbekannter Parameter: tools",
        "max_tokens: zu viele",
        "response_format ist falsch",
        "La temperature est trop \u00e9lev\u00e9e: prompt is too long: 9000 tokens > 8000 maximum",
        "Dein Text wurde geblockt: content_filter, verbosity",
        "gpt-5.1-codex-xhigh macht Pause",
    ],
)
def test_other_words_leave_nothing_out_and_keep_nobody_out(said: str) -> None:
    asked = {
        "verbosity": "low",
        "temperature": 0.3,
        "top_p": 0.5,
        "max_tokens": 9,
        "messages": [],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
    }
    one = request(asked, CHAT)
    assert understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests)) == NOTHING


@pytest.mark.parametrize(
    "said",
    [
        "reasoning_effort 'xhigh' is not supported",
        "thinking level xhigh is not supported for this model",
        "Unknown reasoning effort: xhigh",
        'reasoning effort "xhigh" is not available for this model',
        "Reasoning is mandatory for this endpoint and cannot be disabled.",
    ],
)
def test_an_effort_that_is_refused_in_other_words_is_left_out_and_no_other(said: str) -> None:
    one = request({"reasoning_effort": "xhigh", "seed": 1}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.field, fact.value) for fact in facts] == [("reasoning_effort", '"xhigh"')]


def test_a_value_before_such_words_is_of_the_field_before_it() -> None:
    case = Case(
        "any", "parallel_tool_calls: true is not supported", {"parallel_tool_calls": True}, {}, drop_params=True
    )
    assert form(case)[0] == {}


@pytest.mark.parametrize(
    "said",
    [
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",  # Anthropic
        "Can't specify both `temperature` and `top_p`",
        "temperature and top_p are mutually exclusive",
        "Only one of temperature and top_p may be set.",
        "temperature and top_p cannot be used together",
    ],
)
def test_of_two_fields_of_which_one_may_be_given_the_first_is_kept_for_this_request(said: str) -> None:
    one = request({"temperature": 0, "top_p": 0.5, "seed": 1}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.field, fact.passing) for fact in facts] == [("top_p", True)]


@pytest.mark.parametrize(
    "said",
    [
        "tools cannot both be empty and required",
        "`tools` and `tool_choice` cannot be used together",
        "Remove the tool 'delete_file' from the request",
        "Please omit additionalProperties in the schema of `lookup`",
    ],
)
def test_what_is_never_left_out_is_not_left_out_for_such_words(said: str) -> None:
    case = Case(
        "any", said, {"tool_choice": "required", "metadata": {"additionalProperties": "a"}}, {}, drop_params=True
    )
    assert form(case)[0] == case.asked


@pytest.mark.parametrize("length", [0, 1, 8])
@pytest.mark.parametrize(
    "said",
    [
        "Tool call id was functions.look:0 but must be a-z, A-Z, 0-9, with a length of {}.",
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length {}.",
    ],
)
def test_ids_too_short_to_be_told_apart_are_not_learnt(said: str, length: int) -> None:
    assert read(refusal(said.format(length))).of_ids is None
    assert read(refusal(said.format(9))).of_ids is not None


def test_metadata_without_a_stored_answer_is_refused_once_and_goes_with_one() -> None:
    said = "The 'metadata' parameter is only allowed when 'store' is enabled."
    one = request({"metadata": {"a": "b"}, "store": False}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.field, fact.passing) for fact in facts] == [("metadata", False)]
    for store, left in ((None, {}), (False, {}), (True, {"metadata": {"a": "b"}})):
        other = request({"metadata": {"a": "b"}} | ({} if store is None else {"store": store}), CHAT)
        sent = adapted(other.fields, facts, FormRequest(other, "chat", CHAT.requests))
        kept = {name: msgspec.json.decode(bytes(value)) for name, value in sent.fields.items() if name != "messages"}
        assert kept == left | ({} if store is None else {"store": store})
        assert sent.told == (() if left else ("metadata",))


def test_beside_what_it_is_not_taken_is_of_that_request_alone() -> None:
    one = request({"top_p": 0.5, "thinking": {"type": "enabled"}}, CHAT, drop_params=True)
    facts = understood(
        read(refusal("`top_p` can't be allowed when `thinking` is on")),
        one.fields,
        FormRequest(one, "chat", CHAT.requests),
    )
    assert [(fact.field, fact.passing) for fact in facts] == [("top_p", True)]


WRONG = [
    ("Invalid parameter: temperature must be between 0 and 2", {"temperature": 3}),
    ("temperature is not a valid number", {"temperature": "hot"}),
    ("temperature must be 1 or lower", {"temperature": 3}),
    ("The user is not allowed to use this model", {"user": "u"}),
    ("Function 'metadata' is not allowed", {"metadata": {"a": "b"}}),
    ("Unknown tool `seed`", {"seed": 1}),
    ("Unsupported value: 'user'", {"user": "user"}),
    ("top_logprobs must be an integer", {"top_logprobs": "2"}),
    ("Your store is unavailable. Stop it.", {"stop": ["."]}),
    ("temperature must be between 0 and 2", {"temperature": 3}),
    (
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
        {"temperature": 3},
    ),
    ("max_tokens is too large: 99999. This model supports at most 16384 completion tokens.", {"max_tokens": 99999}),
    ("'reasoning_effort' is required", {"reasoning_effort": "high"}),
    ("This model's maximum context length is 8192 tokens.", {"reasoning_effort": "high"}),
    ("stablelm2:latest does not support tools", {"tools": [{"type": "function"}]}),
    ("Unrecognized request argument supplied: tools", {"tools": [{"type": "function"}], "reasoning_effort": "high"}),
    ("`n` is not supported with this model", {"n": 2}),
    ("`response_format` is not supported with this model", {"response_format": {"type": "json_object"}}),
    ("Unrecognized request argument supplied: store", {"store": True}),
    ("messages.0.content: Extra inputs are not permitted", {"reasoning_effort": "high"}),
]


@pytest.mark.parametrize(("said", "asked"), WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_wrong_with_a_request_teaches_nothing_even_where_parameters_may_be_dropped(
    said: str, asked: dict[str, Any]
) -> None:
    sent, told = form(Case("any", said, asked, asked, drop_params=True))
    assert (sent, told) == (asked, ())


@pytest.mark.parametrize("name", ["temperature", "top_p", "stop", "seed", "logit_bias", "stream_options"])
def test_what_a_client_asked_for_is_left_out_only_where_the_operator_allows_it(name: str) -> None:
    case = Case("any", f"Unrecognized request argument supplied: {name}", {name: {"a": 1}}, {name: {"a": 1}})
    assert form(case) == ({name: {"a": 1}}, ())
    assert form(case._replace(drop_params=True)) == ({}, (name,))


def test_one_field_that_may_not_be_left_out_keeps_the_others_in() -> None:
    both = {"reasoning_effort": "high", "seed": 1}
    case = Case("Mistral", {"detail": pydantic("reasoning_effort", "seed")}, both, both)
    assert form(case) == (both, ())
    assert form(case._replace(drop_params=True)) == ({}, ("reasoning_effort", "seed"))


def test_what_the_operator_has_set_stays() -> None:
    one = msgspec.structs.replace(request(EFFORT, CHAT), extra_body={"reasoning_effort": raw_json("low")})
    fields = {**one.fields, **one.extra_body}
    asked = FormRequest(one, "chat", CHAT.requests)
    assert understood(read(refusal("`reasoning_effort` is not supported with this model")), fields, asked) == ()


def test_an_items_list_keeps_what_the_answer_would_lack() -> None:
    asked = {"include": ["reasoning.encrypted_content", "file_search_call.results"]}
    case = Case(
        "OpenAI", openai("Encrypted content is not supported with this model.", "include"), asked, {}, RESPONSES
    )
    assert form(case) == ({"include": ["file_search_call.results"]}, ("include",))


def test_fields_of_earlier_answers_are_left_out_of_the_history() -> None:
    one = request({}, CHAT)
    facts = understood(read(refusal(CEREBRAS)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert [(fact.kind, fact.field) for fact in facts] == [("history", "reasoning_content")]


def test_a_value_that_is_sent_in_place_of_another_may_be_refused_as_well() -> None:
    one = request({"reasoning_effort": "xhigh"}, CHAT)
    asked, known = FormRequest(one, "chat", CHAT.requests), NOTHING
    for said, effort in [
        ("`reasoning_effort` must be one of `none` or `default`", "high"),
        ("'reasoning_effort' : value is not one of the allowed values ['none','default','low','high']", "xhigh"),
    ]:
        known = (*known, *understood(read(refusal(said)), {"reasoning_effort": raw_json(effort)}, asked))
    assert adapted(one.fields, known, asked).fields["reasoning_effort"] == raw_json("default")


@pytest.mark.parametrize(
    "said",
    [
        "Budget 0 is invalid. This model only works in thinking mode.",
        "Invalid reasoning_effort: none",
        "Invalid reasoning effort.",
    ],
)
def test_a_refused_effort_says_nothing_of_the_others(said: str) -> None:
    one, other = request({"reasoning_effort": "none"}, CHAT), request({"reasoning_effort": "high"}, CHAT)
    facts = understood(read(refusal(said)), one.fields, FormRequest(one, "chat", CHAT.requests))
    assert facts
    assert adapted(other.fields, facts, FormRequest(other, "chat", CHAT.requests)).fields == other.fields


def test_a_long_refusal_is_read_in_no_time() -> None:
    for pattern in (
        "a" * 4096,
        "'" * 4096,
        "loc: [" + "1," * 2000,
        "Unsupported value: '" * 200,
        "x is not " * 400,
        "parameter " * 400,
        "a_" * 2000,
        "not supported: a, " * 200,
    ):
        read(refusal(pattern))


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (
            "Value at 'messages.2.member.content.1.toolUse.name' failed to satisfy constraint: Member must have length less",
            "tool_name",
        ),
        ("tools.0.custom.name: String should have at most 128 characters", "tool_name"),
        ("Function arguments must be valid JSON", "call_arguments"),
        ("Invalid 'metadata.name': string too long. Expected a string with maximum length 64.", ""),
        ("Unknown parameter: 'messages[0].name'.", ""),
    ],
)
def test_a_refusal_says_whether_a_call_or_a_tool_is_unfit(said: str, part: str) -> None:
    assert read(refusal(said)).of_calls == part
