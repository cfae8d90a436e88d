"""The table of what clients demand and what they only prefer: by any API's name of a field, and by its value."""

from typing import Any

import pytest

from providers import Demand, demanded, is_neutral, of_loss
from providers.dialects import DIALECTS, Loss, raw_json
from providers.vendors.demands import unasked

MUST, PREFERENCE, HINT = Demand.MUST, Demand.PREFERENCE, Demand.HINT


def demand(field: str, said: Any = None, *, hint: bool = False, **beside: Any) -> Demand:
    """Return what the table says of a field with this value, which was lost."""
    fields = {name: raw_json(value) for name, value in {field: said, **beside}.items()}
    return of_loss(Loss(field, "why", hint=hint), fields)


@pytest.mark.parametrize(
    "field",
    [
        *("reasoning_effort", "reasoning.effort", "reasoning", "reasoning.mode", "thinking", "thinking.budget_tokens"),
        *("output_config.effort", "generationConfig.thinkingConfig", "enable_thinking", "thinking_budget"),
        *("verbosity", "text.verbosity", "truncation", "context_management", "generationConfig.mediaResolution"),
        *("messages[0].content[1].image_url.detail", "input[3].output[0].detail", "input[3].content[0].detail"),
        *("tools[0].output_schema", "tools[1].tools[0].async", "input[2].tools[0].tools[1].allowed_callers"),
        *("generationConfig.routingConfig", "generationConfig.modelSelectionConfig", "toolConfig.retrievalConfig"),
        "toolConfig.includeServerSideToolInvocations",
    ],
)
def test_how_to_answer_is_a_preference_by_whatever_name(field: str) -> None:
    assert demand(field, "x") is PREFERENCE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.2),
        ("generationConfig.temperature", 0.2),
        ("top_p", 0.95),
        ("generationConfig.topP", 0.95),
        ("top_k", 64),
        ("generationConfig.topK", 64),
        ("frequency_penalty", -2),
        ("generationConfig.presencePenalty", 0.5),
        ("min_p", 0.05),
    ],
)
def test_sampling_that_shapes_chance_is_a_preference(field: str, value: float) -> None:
    assert demand(field, value) is PREFERENCE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0),
        ("generationConfig.temperature", 0.0),
        ("top_p", 0),
        ("generationConfig.topK", 1),
        ("temperature", 3),
        ("top_p", 2),
        ("temperature", "warm"),
    ],
)
def test_what_leaves_nothing_to_chance_and_what_no_api_takes_is_a_must(field: str, value: object) -> None:
    assert demand(field, value) is MUST


def test_what_programs_of_an_api_send_unasked_is_a_preference_for_its_clients_whatever_it_is() -> None:
    for name, unchosen in ((name, dialect.requests.omissible.unchosen) for name, dialect in DIALECTS.items()):
        field = "generationConfig.temperature" if name == "gemini" else "temperature"
        zero, wrong = {field: raw_json(0)}, {field: raw_json(3)}
        assert of_loss(Loss(field, "why"), zero, unchosen) is (PREFERENCE if name == "gemini" else MUST)
        assert of_loss(Loss(field, "why"), wrong, unchosen) is MUST  # no API takes it
    top_p = {"generationConfig.topP": raw_json(0)}
    assert of_loss(Loss("generationConfig.topP", "why"), top_p, DIALECTS["gemini"].requests.omissible.unchosen) is MUST


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(name, 2) for name in ("seed", "n", "generationConfig.candidateCount", "max_tokens", "logit_bias")],
        *[(name, "x") for name in ("stop", "inference_geo", "store", "safetySettings[0]", "response_format")],
        *[(name, "x") for name in ("tool_choice", "tools[0]", "text.format", "output_config.format", "logprobs")],
        ("output_config", {"format": {}}),
        ("chat_template_kwargs", {"persona": "x"}),
        ("tools[0].function.parameters.properties.detail", "x"),
        ("background", True),
        ("billing_policy", {"type": "billing_policy", "bill_to": "user_profile"}),
        ("tools[0].tools[0]", {}),
    ],
)
def test_what_changes_which_answer_is_meant_is_a_must(field: str, value: object) -> None:
    assert demand(field, value) is MUST


@pytest.mark.parametrize(
    "field",
    [
        "metadata",
        "metadata.user_id",
        "prompt_cache_key",
        "user",
        "labels",
        "speed",
        "background_options",
        "input[2].caller",
    ],
)
def test_what_changes_cost_and_speed_alone_is_a_hint(field: str) -> None:
    assert demand(field, "x") is HINT


@pytest.mark.parametrize("field", ["service_tier", "serviceTier"])
def test_a_tier_for_which_the_client_pays_more_is_a_must_and_others_are_hints(field: str) -> None:
    assert [demand(field, tier) for tier in ("flex", "scale", "priority", "PRIORITY", "ultrafast")] == [
        *(HINT, HINT),
        *(MUST, MUST, MUST),
    ]


def test_whose_request_it_is_for_a_vendors_safety_is_a_preference() -> None:
    assert demand("safety_identifier", "u") is PREFERENCE
    assert demand("safety_identifier", "u", hint=True) is HINT  # told as a hash


def test_a_limit_of_calls_at_the_provider_is_one_only_where_some_may_be_made() -> None:
    function = {"type": "function", "name": "f"}
    assert demand("max_tool_calls", 3) is PREFERENCE
    assert demand("max_tool_calls", 3, tools=[function]) is PREFERENCE
    assert demand("max_tool_calls", 3, tools=[function, {"type": "web_search"}]) is MUST


def test_what_is_only_said_otherwise_stays_a_hint() -> None:
    losses = [Loss("tool_choice", "as JSON", hint=True), Loss("stop", "too many"), Loss("verbosity", "none")]
    assert demanded(losses, {"stop": raw_json(["x"]), "verbosity": raw_json("low")}) == [losses[1]]


# What programs send unasked: by field and value.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("preserve_thinking", True),
        ("vl_high_resolution_images", True),
        ("tool_stream", True),
        ("usage", {"include": True}),
        ("usage.include", True),
        ("stream_options", {"include_usage": True, "include_obfuscation": False}),
        ("chat_template_kwargs", {"enable_thinking": False, "preserve_thinking": True}),
        ("chat_template_args", {"enable_thinking": True}),
        ("top_k", 0),
        ("top_k", -1),
        ("length_penalty", 1.0),
        ("cache_prompt", True),
        ("stream_options", {"include_usage": True}),
        ("generationConfig.audioTimestamp", False),
    ],
)
def test_a_value_that_programs_send_unasked_is_a_preference(field: str, value: object) -> None:
    outer, _, inner = field.partition(".")
    if field == "usage.include":
        assert of_loss(Loss(field, "why"), {outer: raw_json({inner: value})}) is PREFERENCE
    else:
        assert demand(field, value) is PREFERENCE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("preserve_thinking", False),
        ("vl_high_resolution_images", "yes"),
        ("skip_special_tokens", False),
        ("usage", {"include": True, "detail": "all"}),
        ("stream_options", {"include_usage": True, "continuous_usage_stats": True}),
        ("chat_template_kwargs", {"preserve_thinking": True, "persona": "x"}),
        ("top_k", -2),
        ("ignore_eos", True),
    ],
)
def test_another_value_of_the_same_field_is_a_must(field: str, value: object) -> None:
    assert demand(field, value) is MUST


# What asks for nothing.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(name, []) for name in ("stop", "stop_token_ids", "tools", "documents", "safetySettings", "any_field")],
        *[(name, {}) for name in ("logit_bias", "provider", "usage", "generationConfig.imageConfig", "any_field")],
        *[(name, "") for name in ("suffix", "inference_geo", "cachedContent", "guided_regex")],
        *[(name, None) for name in ("stop", "seed", "temperature", "any_field")],
        *[
            (name, 0)
            for name in ("min_tokens", "presence_penalty", "top_logprobs", "generationConfig.frequencyPenalty")
        ],
        *[("n", 1), ("n", 1.0), ("best_of", 1), ("generationConfig.candidateCount", 1), ("temperature", 1)],
        *[("logprobs", False), ("background", False), ("echo", False), ("parallel_tool_calls", True)],
        *[("response_format", {"type": "text"}), ("text", {"format": {"type": "text"}}), ("tool_choice", "auto")],
        ("generationConfig.responseModalities", ["TEXT"]),
        ("toolConfig", {"functionCallingConfig": {"mode": "AUTO"}}),
    ],
)
def test_a_value_that_asks_for_nothing_is_no_must_and_nobody_is_told(field: str, value: object) -> None:
    assert demand(field, value) is HINT
    assert is_neutral(field, {field: raw_json(value)})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("temperature", 0), ("seed", 0), ("max_tokens", 0), ("max_completion_tokens", 0), ("max_tool_calls", 0)],
        *[("store", False), ("add_generation_prompt", False), ("skip_special_tokens", False), ("any_field", False)],
        *[("stop", [""]), ("n", 2), ("n", True), ("logprobs", 0), ("prompt_logprobs", 0), ("min_tokens", 1)],
        *[("any_field", 0), ("messages", []), ("input", ""), ("contents", []), ("container", {}), ("audio", {})],
    ],
)
def test_a_value_that_may_ask_for_something_is_not_taken_for_none(field: str, value: object) -> None:
    assert demand(field, value, tools=[{"type": "web_search"}]) is MUST


def test_a_search_that_is_offered_by_an_empty_object_is_a_preference() -> None:
    assert demand("web_search_options", {}) is PREFERENCE


def test_no_default_of_a_program_is_a_temperature_of_0_a_seed_or_a_limit() -> None:
    names = {name.rpartition(".")[2] for name in unasked()}
    assert not names & {"temperature", "seed", "n", "stop", "store", "inference_geo"}
    switches = {"add_special_tokens", "return_token_ids", "skip_special_tokens", "spaces_between_special_tokens"}
    assert not [name for name in names - switches if "max" in name or "token" in name]


def test_one_call_at_a_time_is_held_by_the_gateway_and_so_a_hint() -> None:
    assert demand("parallel_tool_calls", said=False) is HINT
    one = {"tool_choice": raw_json({"type": "auto", "disable_parallel_tool_use": True})}
    assert of_loss(Loss("tool_choice.disable_parallel_tool_use", "why"), one) is HINT
    assert of_loss(Loss("tool_choice", "why"), one) is MUST
