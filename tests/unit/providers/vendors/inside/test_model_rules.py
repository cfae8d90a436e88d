"""What OpenAI's models that think, or search, take of its parameters, at OpenAI and at Azure."""

import json
from typing import Any

import msgspec
import pytest

from providers import fitted_to, within
from providers.models import Traits, traits_of

SAMPLING = {"temperature": 0.2, "top_p": 0.9, "logprobs": True, "top_logprobs": 2}
PENALTIES = {"presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {"1": 1}}


def rules(model: str, vendor: str = "openai") -> Traits | None:
    traits = traits_of(model, vendor)
    return traits if traits.narrows else None


def fitted(model: str, **fields: Any) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return what ``model`` is sent, what that loses, and which of it are only hints."""
    found = rules(model)
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    if found is None:
        return fields, [], []
    wording = fitted_to(found, raw)
    said = {name: json.loads(bytes(value)) for name, value in wording.fields.items()}
    return (
        said,
        [loss.field for loss in wording.losses if not loss.hint],
        [loss.field for loss in wording.losses if loss.hint],
    )


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o3", "o4-mini-2025-04-16", "ft:o4-mini-2025-04-16:acme::x"])
def test_an_o_model_takes_no_sampling_and_its_limit_by_the_newer_name(model: str) -> None:
    said, lost, hints = fitted(model, max_tokens=9, parallel_tool_calls=False, seed=1, **SAMPLING, **PENALTIES)
    assert said == {"max_completion_tokens": 9, "seed": 1}
    assert set(lost) == {*SAMPLING, *PENALTIES}
    assert hints == ["parallel_tool_calls"]


def test_the_latest_of_them_take_no_stop_sequences() -> None:
    assert fitted("o1", stop=["a"]) == ({"stop": ["a"]}, [], [])
    for model in ("o3", "o4-mini", "gpt-5", "gpt-5.2", "gpt-6-sol"):
        assert fitted(model, stop=["a"]) == ({}, ["stop"], [])


def test_a_default_that_a_model_refuses_is_left_out_without_a_loss() -> None:
    defaults = {"temperature": 1, "top_p": 1.0, "presence_penalty": 0, "logprobs": False, "stop": None}
    for model in ("o3", "gpt-5", "gpt-5.2-chat-latest", "gpt-4o-search-preview"):
        said, lost, hints = fitted(model, seed=1, **defaults)
        assert (set(said) <= {"seed", "stop"}, lost, hints) == (True, [], [])


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1", "gpt-3.5-turbo", "ft:gpt-4o-2024-08-06:acme::x"])
def test_a_model_that_does_not_think_takes_all_but_what_came_later(model: str) -> None:
    assert fitted(model, max_tokens=9, verbosity="medium", **SAMPLING, **PENALTIES) == (
        {"max_tokens": 9, **SAMPLING, **PENALTIES}, [], [],
    )  # fmt: skip
    assert fitted(model, verbosity="low") == ({}, ["verbosity"], [])
    assert fitted(model, text={"verbosity": "low", "format": {"type": "text"}}) == (
        {"text": {"format": {"type": "text"}}}, ["text.verbosity"], [],
    )  # fmt: skip
    assert fitted(model, text={"verbosity": "medium"}) == ({}, [], [])
    assert rules("chatgpt-4o") is None


EFFORTS_ELSEWHERE = [
    ("groq", "openai/gpt-oss-120b", "minimal", "low"),
    ("groq", "openai/gpt-oss-120b", "none", "low"),
    ("groq", "openai/gpt-oss-20b", "max", "high"),
    ("groq", "qwen/qwen3-32b", "low", "default"),  # Groq's word for thinking at all
    ("groq", "qwen/qwen3-32b", "none", "none"),
    ("xai", "grok-4.3", "xhigh", "high"),
    ("xai", "grok-4.5", "none", "low"),
    ("xai", "grok-4.6", "max", "xhigh"),
    ("xai", "grok-7", "xhigh", "xhigh"),
    ("mistral", "mistral-medium-latest", "low", "high"),
    ("mistral", "mistral-medium-latest", "none", "none"),
    ("openrouter", "x-ai/grok-4.5", "none", "none"),
    ("vllm", "openai/gpt-oss-120b", "max", "max"),
]


@pytest.mark.parametrize(("vendor", "model", "asked", "sent"), EFFORTS_ELSEWHERE)
def test_an_effort_is_one_that_the_model_has_at_this_vendor(vendor: str, model: str, asked: str, sent: str) -> None:
    raw = msgspec.Raw(msgspec.json.encode(asked))
    wording = fitted_to(traits_of(model, vendor), {"reasoning_effort": raw})
    assert json.loads(bytes(wording.fields["reasoning_effort"])) == sent
    assert [(loss.field, loss.hint) for loss in wording.losses] == (
        [("reasoning_effort", True)] if sent != asked else []
    )


@pytest.mark.parametrize(
    ("vendor", "model"), [("xai", "grok-4.20-0309-reasoning"), ("mistral", "magistral-medium-latest")]
)
def test_where_a_model_takes_no_effort_none_is_sent(vendor: str, model: str) -> None:
    wording = fitted_to(traits_of(model, vendor), {"reasoning_effort": msgspec.Raw(b'"low"')})
    assert (wording.fields, [loss.field for loss in wording.losses]) == ({}, ["reasoning_effort"])
    if vendor == "xai":
        wording = fitted_to(traits_of(model, vendor), {"reasoning": msgspec.Raw(b'{"effort":"low","summary":"auto"}')})
        assert json.loads(bytes(wording.fields["reasoning"])) == {"summary": "auto"}


@pytest.mark.parametrize("vendor", ["bedrock", "vertex_ai"])
def test_litellms_presets_of_the_clouds_know_what_claude_takes(vendor: str) -> None:
    both = {"temperature": msgspec.Raw(b"0.7"), "top_p": msgspec.Raw(b"0.9")}
    assert fitted_to(traits_of("anthropic.claude-haiku-4-5-20251001-v1:0", vendor), both).fields.keys() == {
        "temperature"
    }
    assert fitted_to(traits_of("claude-sonnet-5-5", vendor), both).fields == {}


def test_the_chat_variant_of_gpt_5_takes_all_and_those_after_it_only_defaults() -> None:
    assert fitted("gpt-5-chat-latest", max_tokens=9, **SAMPLING)[0] == {"max_completion_tokens": 9, **SAMPLING}
    assert fitted("gpt-5.1-chat-latest", temperature=0.2)[1] == ["temperature"]


@pytest.mark.parametrize(
    ("model", "effort", "taken"),
    [
        ("gpt-5", None, False),
        ("gpt-5", "minimal", False),
        ("gpt-5.1", None, True),  # it does not think unless it is asked to
        ("gpt-5.1", "none", True),
        ("gpt-5.1", "low", False),
        ("gpt-5.4-mini", None, True),
        ("gpt-5.2", "xhigh", False),
        ("gpt-5.6-sol", None, False),
        ("gpt-5.6-sol", "none", True),
        ("gpt-6-astra", "none", False),  # always thinks
    ],
)
def test_sampling_is_taken_where_the_model_is_not_to_think(model: str, effort: str | None, *, taken: bool) -> None:
    for asked in ({"reasoning_effort": effort}, {"reasoning": {"effort": effort, "summary": "auto"}}):
        said, lost, _ = fitted(model, **({} if effort is None else asked), **SAMPLING, **PENALTIES)
        assert (SAMPLING.keys() <= said.keys()) == taken
        assert set(lost) == {*PENALTIES, *(() if taken else SAMPLING)}


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("o3", "minimal", "low"),
        ("o3", "xhigh", "high"),
        ("gpt-5", "none", "minimal"),
        ("gpt-5", "xhigh", "high"),
        ("gpt-5-pro", "low", "high"),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.1-codex-max", "xhigh", "xhigh"),
        ("gpt-5.2", "max", "xhigh"),
        ("gpt-5.2-chat-latest", "high", "medium"),
        ("gpt-6-astra", "none", "low"),
        ("gpt-5", "an-effort-of-tomorrow", "an-effort-of-tomorrow"),
    ],
)
def test_an_effort_that_a_model_lacks_becomes_the_nearest_that_it_has(model: str, asked: str, sent: str) -> None:
    said, lost, hints = fitted(model, reasoning_effort=asked)
    assert (said, lost, hints) == ({"reasoning_effort": sent}, [], ["reasoning_effort"] if sent != asked else [])
    said, _, hints = fitted(model, reasoning={"effort": asked, "summary": "auto"})
    assert said == {"reasoning": {"effort": sent, "summary": "auto"}}
    assert hints == (["reasoning.effort"] if sent != asked else [])


def test_of_both_names_of_a_limit_the_newer_one_counts() -> None:
    assert fitted("o3", max_tokens=9, max_completion_tokens=7)[0] == {"max_completion_tokens": 7}


def test_a_request_that_is_taken_as_it_is_stays_the_same_object() -> None:
    found, fields = rules("o3"), {"messages": msgspec.Raw(b"[]"), "reasoning_effort": msgspec.Raw(b'"low"')}
    assert found is not None
    assert fitted_to(found, fields).fields is fields


@pytest.mark.parametrize("fields", [{"reasoning": 5}, {"reasoning_effort": {}}, {"reasoning": {"effort": 5}}])
def test_what_is_no_effort_is_left_for_the_vendor_to_refuse(fields: dict[str, Any]) -> None:
    assert fitted("o3", **fields) == (fields, [], [])


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("claude-opus-4-6", True),
        ("claude-haiku-4-5-20251001", True),
        ("claude-opus-4-8", False),
        ("claude-sonnet-5", False),
    ],
)
def test_from_claude_4_7_on_no_sampling_is_taken(model: str, *, takes: bool) -> None:
    fields = {"temperature": msgspec.Raw(b"0.5")}
    assert (fitted_to(traits_of(model, "anthropic"), fields).fields == fields) == takes


@pytest.mark.parametrize(
    ("model", "said", "hints"),
    [
        ("claude-opus-4-6", {"temperature": 0}, ["top_p"]),
        ("claude-opus-4-0", {"temperature": 0, "top_p": 0.9}, []),
        ("claude-3-7-sonnet-latest", {"temperature": 0, "top_p": 0.9}, []),
    ],
)
def test_of_two_ways_of_sampling_the_one_that_decides_is_kept(model: str, said: Any, hints: list[str]) -> None:
    fields = {"temperature": msgspec.Raw(b"0"), "top_p": msgspec.Raw(b"0.9")}
    wording = fitted_to(traits_of(model, "anthropic"), fields)
    assert {name: json.loads(bytes(value)) for name, value in wording.fields.items()} == said
    assert [loss.field for loss in wording.losses if loss.hint] == hints


def test_azure_s_models_are_openai_s() -> None:
    assert rules("gpt-5-mini", "azure") == rules("gpt-5-mini")


@pytest.mark.parametrize(
    ("fields", "sent", "named"),
    [
        ({"output_config": {"effort": "medium"}}, {"output_config": {"effort": "high"}}, ["output_config.effort"]),
        ({"output_config": {"effort": "xhigh"}}, {"output_config": {"effort": "max"}}, ["output_config.effort"]),
        ({"output_config": {"effort": "low"}}, {"output_config": {"effort": "low"}}, []),
        ({"output_config": {"format": {}}}, {"output_config": {"format": {}}}, []),
        ({"reasoning_effort": "medium"}, {"reasoning_effort": "high"}, ["reasoning_effort"]),
    ],
)
def test_an_effort_that_a_model_does_not_have_is_its_nearest_in_each_api(fields: Any, sent: Any, named: Any) -> None:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    wording = fitted_to(traits_of("kimi-k3", "moonshot"), raw)
    assert {name: json.loads(bytes(value)) for name, value in wording.fields.items()} == sent
    assert [loss.field for loss in wording.losses] == named


@pytest.mark.parametrize(
    ("temperature", "sent"), [(0, 0.01), (1.5, 1.0), (1, 1), (0.2, 0.2), (None, None), ("warm", "warm")]
)
def test_a_temperature_that_a_vendor_does_not_take_is_the_nearest(temperature: Any, sent: Any) -> None:
    raw = {"temperature": msgspec.Raw(msgspec.json.encode(temperature))}
    wording = fitted_to(within(traits_of("MiniMax-M3"), (0.01, 1.0)), raw)
    assert json.loads(bytes(wording.fields["temperature"])) == sent
    assert [loss.field for loss in wording.losses] == (["temperature"] if sent != temperature else [])
