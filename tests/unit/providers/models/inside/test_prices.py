"""What a call costs at given prices, what a prompt cache saved, and how litellm's table writes prices."""

import json
from typing import Any

import pytest

from providers import STANDARD, DatasheetTable, Price, cache_saved_usd, cost, cost_usd
from providers.dialects import DIALECTS
from providers.dialects.messages.events import read_event
from providers.dialects.messages.stream_to_chat import ToChat
from providers.models import Usage, completed, reported, tier_of, usage_of
from providers.models.listed_prices import Leaf, parse, read
from tools.requirements.extract_datasheets import unread

PLAIN = Price(2e-6, 8e-6)
APART = Price(2e-6, 8e-6, cached_input_usd=5e-7, cache_write_usd=2.5e-6, reasoning_usd=1e-5)


def test_cached_tokens_cost_their_own_price() -> None:
    assert cost_usd(APART, 1000, 100, cached_tokens=400) == pytest.approx(600 * 2e-6 + 400 * 5e-7 + 100 * 8e-6)


def test_tokens_written_to_the_cache_cost_their_own_price() -> None:
    cost = cost_usd(APART, 1000, 100, cached_tokens=400, cache_write_tokens=500)
    assert cost == pytest.approx(100 * 2e-6 + 400 * 5e-7 + 500 * 2.5e-6 + 100 * 8e-6)


def test_reasoning_costs_its_own_price_within_the_completion() -> None:
    assert cost_usd(APART, 0, 100, reasoning_tokens=70) == pytest.approx(30 * 8e-6 + 70 * 1e-5)


def test_parts_cost_as_the_rest_where_no_price_of_theirs_is_known() -> None:
    cost = cost_usd(PLAIN, 1000, 100, cached_tokens=400, cache_write_tokens=500, reasoning_tokens=70)
    assert cost == pytest.approx(1000 * 2e-6 + 100 * 8e-6)


def test_parts_that_are_free_cost_nothing() -> None:
    free = Price(2e-6, 8e-6, cached_input_usd=0.0, cache_write_usd=0.0, reasoning_usd=0.0)
    cost = cost_usd(free, 1000, 100, cached_tokens=400, cache_write_tokens=600, reasoning_tokens=100)
    assert cost == pytest.approx(0, abs=1e-15)


def test_parts_larger_than_the_whole_are_no_more_than_the_whole() -> None:
    cost = cost_usd(APART, 100, 10, cached_tokens=5000, cache_write_tokens=5000, reasoning_tokens=5000)
    assert cost == pytest.approx(100 * 5e-7 + 10 * 1e-5)


def test_an_unknown_price_or_count_makes_the_cost_unknown_not_zero() -> None:
    assert cost_usd(None, 10, 10) is None
    assert cost_usd(PLAIN, None, 10) is None
    assert cost_usd(PLAIN, 10, None) is None


def test_a_cache_saved_the_difference_of_the_two_prices() -> None:
    assert cache_saved_usd(APART, 1000, 400) == pytest.approx(400 * 1.5e-6)
    assert cache_saved_usd(APART, 1000, 0) == 0
    assert cache_saved_usd(APART, 100, 400) == pytest.approx(100 * 1.5e-6)


@pytest.mark.parametrize(("price", "cached"), [(None, 400), (PLAIN, 400), (APART, None)])
def test_what_a_cache_saved_is_unknown_without_both_prices_and_a_count(price: Price | None, cached: int | None) -> None:
    assert cache_saved_usd(price, 1000, cached) is None


# The grammar of litellm's table.

ROW = {
    "litellm_provider": "openai",
    "mode": "chat",
    "input_cost_per_token": 2e-6,
    "output_cost_per_token": 8e-6,
    "cache_read_input_token_cost": 5e-7,
    "input_cost_per_token_above_200k_tokens": 4e-6,
    "output_cost_per_token_above_200k_tokens": 1e-5,
    "input_cost_per_token_priority": 3e-6,
    "output_cost_per_token_priority": 1.2e-5,
    "input_cost_per_token_flex": 1e-6,
    "output_cost_per_token_flex": 4e-6,
    "input_cost_per_token_above_200k_tokens_flex": 2e-6,
    "cache_creation_input_token_cost": 2.5e-6,
    "cache_creation_input_token_cost_above_1hr": 4e-6,
    "input_cost_per_audio_token": 2e-5,
    "output_cost_per_audio_token": 4e-5,
    "search_context_cost_per_query": {"search_context_size_medium": 0.01},
    "max_input_tokens": 1000000,
}


def of(row: dict[str, Any], tier: str = STANDARD, prompt_tokens: int = 100) -> Price | None:
    price = read(row)
    assert price is not None
    return price.at(tier, prompt_tokens)


def test_a_longer_prompt_has_the_price_of_its_size_for_all_of_it() -> None:
    at, above = of(ROW, prompt_tokens=200_000), of(ROW, prompt_tokens=200_001)
    assert at is not None
    assert above is not None
    assert (at.input_usd, at.output_usd) == (2e-6, 8e-6)
    assert (above.input_usd, above.output_usd, above.cached_input_usd) == (4e-6, 1e-5, 5e-7)


def test_xai_s_price_for_long_prompts_begins_at_their_size() -> None:
    at = of(ROW | {"litellm_provider": "xai"}, prompt_tokens=200_000)
    assert at is not None
    assert at.input_usd == 4e-6


def test_each_tier_has_its_price_and_what_it_does_not_list_costs_the_same_in_all() -> None:
    priority, flex = of(ROW, "priority"), of(ROW, "flex", 300_000)
    assert priority is not None
    assert flex is not None
    assert (priority.input_usd, priority.output_usd, priority.usd("web_search")) == (3e-6, 1.2e-5, 0.01)
    assert (flex.input_usd, flex.output_usd) == (2e-6, 4e-6)


def test_a_tier_without_a_price_of_its_own_is_unknown_also_for_long_prompts_only() -> None:
    assert of(ROW, "scale") is None
    assert of(ROW, "priority", 300_000) is None


def test_a_model_without_tiers_costs_the_same_whoever_serves_it() -> None:
    plain = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    assert of(plain, "flex") == Price(1e-6, 2e-6)


def test_a_deployment_that_asks_for_a_tier_is_planned_at_its_price_and_billed_at_that_which_served() -> None:
    price = read(ROW)
    assert price is not None
    flex = price.usually("flex")
    assert (flex.input_usd, flex.output_usd) == (1e-6, 4e-6)
    assert flex.at("", 10) == price.at("", 10)
    assert price.usually("scale") == price


def test_prices_by_ranges_of_prompts_are_read_as_sizes() -> None:
    ranges = [
        {"range": [0, 32000.0], "input_cost_per_token": 1e-6, "output_cost_per_token": 5e-6},
        {"range": [32000.0, 128000.0], "input_cost_per_token": 2e-6, "output_cost_per_token": 9e-6},
    ]
    row = {"litellm_provider": "dashscope", "mode": "chat", "tiered_pricing": ranges}
    assert of(row, prompt_tokens=32_000) == Price(1e-6, 5e-6)
    assert of(row, prompt_tokens=32_001) == Price(2e-6, 9e-6)


def test_anthropic_s_fast_service_is_a_multiple_of_the_price_of_tokens() -> None:
    fast = of(ROW | {"provider_specific_entry": {"fast": 6}}, "fast")
    assert fast is not None
    assert (fast.input_usd, fast.usd("audio_input"), fast.usd("web_search")) == (
        pytest.approx(1.2e-5),
        pytest.approx(1.2e-4),
        0.01,
    )


def test_hours_off_peak_are_utc_s_and_their_weekdays_the_vendor_s() -> None:
    day = 24 * 60
    hours = {"input_cost_per_token": 1e-6, "windows": [{"hours_utc": "15:00-17:00", "weekdays": [1]}]}
    for zone, times in (
        ({}, [(15 * 60, 17 * 60)]),
        # There Monday's 16:00 of UTC is Tuesday's midnight: Monday has the hour from Sunday's 16:00.
        ({"weekday_timezone": "Asia/Shanghai"}, [(15 * 60, 16 * 60), (6 * day + 16 * 60, 6 * day + 17 * 60)]),
    ):
        price = read(ROW | {"off_peak_pricing": hours | zone})
        assert price is not None
        assert sorted(price.off_peak) == times


def test_hours_off_peak_of_the_shipped_table_are_read() -> None:
    price = DatasheetTable.shipped().look_up([("deepseek", "deepseek-v4-pro")])["deepseek", "deepseek-v4-pro"].price
    assert price is not None
    peak = 5 * 7 * 60  # 01:00 to 04:00 and 06:00 to 10:00 on five days
    assert sum(to - since for since, to in price.off_peak) == 7 * 24 * 60 - peak


def test_what_a_table_does_not_know_is_unknown_not_free() -> None:
    pictures = read({"mode": "image_generation", "input_cost_per_token": 5e-6, "output_cost_per_image": 0.04})
    assert pictures is not None
    assert pictures.unknown == ("output",)
    assert cost_usd(pictures, 10, 4000) is None


def test_the_answer_of_a_model_that_only_paints_costs_what_its_pictures_do() -> None:
    pictures = read({"mode": "image_generation", "input_cost_per_token": 5e-6, "output_cost_per_image_token": 4e-5})
    assert cost_usd(pictures, 50, 4160) == pytest.approx(50 * 5e-6 + 4160 * 4e-5)


@pytest.mark.parametrize(
    ("path", "leaf"),
    [
        ("input_cost_per_token", Leaf("input", "", -1, 1.0)),
        ("input_cost_per_token_cache_hit", Leaf("cached_input", "", -1, 1.0)),
        ("input_cost_per_token_above_272k_tokens_priority", Leaf("input", "priority", 272_000, 1.0)),
        ("cache_creation_input_token_cost_above_12hr_above_272k_tokens_ultrafast",
         Leaf("cache_write_12h", "ultrafast", 272_000, 1.0)),
        ("output_cost_per_image_token_batches", Leaf("image_output", "batch", -1, 1.0)),
        ("output_cost_per_second_1080p", Leaf("second_output_1080p", "", -1, 1.0)),
        ("output_cost_per_image_0.5K", Leaf("picture_output_0.5k", "", -1, 1.0)),
        ("input_cost_per_video_per_second_above_15s_interval", Leaf("video_second_15s", "", -1, 1.0)),
        ("off_peak_pricing.output_cost_per_token", Leaf("output", "off_peak", -1, 1.0)),
        ("input_cost_per_token_warpspeed", Leaf("input", "warpspeed", -1, 1.0)),
        ("max_input_tokens", None),
        ("input_cost_per_smell", None),
    ],
)  # fmt: skip
def test_a_field_names_unit_tier_and_size(path: str, leaf: Leaf | None) -> None:
    assert parse(path, 1.0, {}) == leaf


# What is billed besides text.


def test_sound_costs_its_own_price_within_prompt_and_answer() -> None:
    price = of(ROW)
    usd = cost_usd(price, 1010, 2010, units={"audio_input": 1000, "audio_output": 2000})
    assert usd == pytest.approx(10 * 2e-6 + 1000 * 2e-5 + 10 * 8e-6 + 2000 * 4e-5)


def test_what_is_cached_for_an_hour_costs_its_own_price() -> None:
    usd = cost_usd(of(ROW), 1000, 10, cache_write_tokens=900, units={"cache_write_1h": 600})
    assert usd == pytest.approx(100 * 2e-6 + 300 * 2.5e-6 + 600 * 4e-6 + 10 * 8e-6)


def test_searches_are_added() -> None:
    assert cost_usd(of(ROW), 100, 10, units={"web_search": 3}) == pytest.approx(100 * 2e-6 + 10 * 8e-6 + 0.03)


def test_a_unit_without_a_known_price_makes_the_cost_unknown_and_what_is_known_stays_known() -> None:
    found = cost(PLAIN, 100, 100, units={"audio_output": 60, "web_search": 1})
    assert (found.known_usd, found.unknown) == (
        pytest.approx(100 * 2e-6 + 40 * 8e-6),
        {"audio_output": 60, "web_search": 1},
    )
    assert cost_usd(PLAIN, 100, 100, units={"audio_output": 60}) is None


def test_sound_costs_what_text_does_where_its_operator_or_vendor_says_so() -> None:
    price = Price(2e-6, 8e-6, as_text=True)
    assert cost_usd(price, 100, 100, units={"audio_input": 50}) == cost_usd(price, 100, 100)
    google = read({"litellm_provider": "gemini", "input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6})
    assert cost_usd(google, 100, 100, units={"audio_input": 50}) == cost_usd(price, 100, 100)


def test_pictures_in_a_prompt_cost_what_text_does_unless_listed_apart() -> None:
    assert cost_usd(PLAIN, 100, 0, units={"image_input": 50}) == pytest.approx(100 * 2e-6)


@pytest.mark.parametrize(
    ("word", "tier"),
    [("auto", ""), ("default", ""), ("standard_only", ""), ("ON_DEMAND", ""), ("ON_DEMAND_PRIORITY", "priority"),
     ("priority", "priority"), ("flex", "flex"), ("SERVICE_TIER_FLEX", "flex"), ("", None), ("unspecified", None),
     ("SERVICE_TIER_UNSPECIFIED", None), ("TRAFFIC_TYPE_UNSPECIFIED", None), (7, None), (None, None)],
)  # fmt: skip
def test_a_tier_is_known_by_each_vendor_s_word(word: object, tier: str | None) -> None:
    assert tier_of(word) == tier


def test_a_number_that_nobody_has_looked_at_is_told_before_the_table_is_taken() -> None:
    row = {"input_cost_per_token": 1e-6, "max_input_tokens": 8, "input_cost_per_smell": 2.0, "quirk": [{"x": 1}]}
    assert list(unread({"m": row})) == ["m: input_cost_per_smell: 2.0", "m: quirk[0].x: 1"]


def test_the_shipped_table_has_the_dearest_price_of_each_unit_by_vendor() -> None:
    sheet = DatasheetTable.shipped().look_up([("openai", "gpt-5.4")])["openai", "gpt-5.4"]
    assert sheet.price is not None
    dearest = dict(sheet.price.dearest)
    assert dearest["audio_output"] >= 64e-6
    assert sheet.price.tiers >= {"priority", "flex"}


def test_the_dearest_price_of_a_vendor_is_also_that_of_its_branches() -> None:
    """Vertex AI sells each publisher's models under a name of its own."""
    unheard, command = (
        DatasheetTable.shipped().look_up([("vertex_ai", "unheard-of"), ("cohere", "unheard-of")]).values()
    )
    assert unheard.listed is not None
    assert dict(unheard.listed.dearest)["output"] >= 50e-6
    assert command.listed is not None
    assert dict(command.listed.dearest)["output"] >= 1e-5


# What answers report, in each dialect.


@pytest.mark.parametrize(
    ("dialect", "event", "tier", "units"),
    [
        ("chat",
         {"choices": [], "service_tier": "priority",
          "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"audio_tokens": 4},
                    "completion_tokens_details": {"audio_tokens": 3}}},
         "priority", {"audio_input": 4, "audio_output": 3}),
        ("chat", {"choices": [], "service_tier": "default", "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
         "", None),
        ("responses",
         {"type": "response.completed",
          "response": {"service_tier": "flex", "usage": {"input_tokens": 10, "output_tokens": 5,
                                                         "output_tokens_details": {"reasoning_tokens": 2}}}},
         "flex", None),
        ("messages",
         {"type": "message_delta",
          "usage": {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 8, "speed": "fast",
                    "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 6},
                    "server_tool_use": {"web_search_requests": 2}}},
         "fast", {"cache_write_1h": 6, "web_search": 2}),
        ("gemini",
         {"candidates": [],
          "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "trafficType": "ON_DEMAND_PRIORITY",
                            "cachedContentTokenCount": 2,
                            "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 2}],
                            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 4},
                                                    {"modality": "AUDIO", "tokenCount": 6}]}},
         "priority", {"audio_input": 4, "cached_audio_input": 2}),
        ("gemini",
         {"candidates": [{"content": {"parts": [{"text": "It rains."}]}, "finishReason": "STOP",
                          "groundingMetadata": {"webSearchQueries": ["weather", "", "weather", "rain today"]}}],
          "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5}},
         None, {"web_search": 2}),
        ("responses",
         {"type": "response.completed",
          "response": {"output": [{"type": "web_search_call", "action": {"type": "search", "query": "rain"}},
                                  {"type": "web_search_call", "action": {"type": "open_page", "url": "http://a"}},
                                  {"type": "web_search_call"}, {"type": "message", "content": []}],
                       "usage": {"input_tokens": 10, "output_tokens": 5}}},
         None, {"web_search": 2}),
        ("chat",
         {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "search_context_size": "high"}},
         None, {"web_search_high": 1}),
        ("chat",
         {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5,
                                   "server_side_tool_usage_details": {"web_search_calls": 3}}},
         None, {"web_search": 3}),
        ("chat",
         {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5,
                                   "server_side_tool_usage_details": {"web_search_calls": 0, "x_search_calls": 4,
                                                                      "code_interpreter_calls": 1, "mcp_calls": 2}}},
         None, {"x_search": 4, "code_interpreter": 1}),
    ],
)  # fmt: skip
def test_an_answer_s_tier_and_units_are_read(
    dialect: Any, event: dict[str, Any], tier: str | None, units: dict[str, int] | None
) -> None:
    usage = DIALECTS[dialect].answers.read_event(json.dumps(event).encode(), ()).usage
    assert usage is not None
    assert (usage.tier, usage.units) == (tier, units)


def test_research_costs_what_perplexity_bills_for_its_searches_thoughts_and_citations() -> None:
    """The counts and the bill are those of a real answer."""
    said = {
        "prompt_tokens": 1188, "completion_tokens": 4240, "total_tokens": 5428, "citation_tokens": 8014,
        "num_search_queries": 54, "reasoning_tokens": 92431,
    }  # fmt: skip
    price = DatasheetTable.shipped().look_up([("perplexity", "sonar-deep-research")]).popitem()[1].price
    usage = usage_of(said)
    usd = cost_usd(
        price,
        usage.prompt_tokens,
        usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        units=usage.units,
    )
    assert usd == pytest.approx(0.59962, abs=1e-5)


@pytest.mark.parametrize(("billing", "usd"), [({}, 0.035), ({"web_search_billing_unit": "per_query"}, 0.07)])
def test_google_bills_its_searches_once_a_prompt_or_from_its_third_models_on_each(
    billing: dict[str, Any], usd: float
) -> None:
    row = {
        "litellm_provider": "gemini", "mode": "chat", "input_cost_per_token": 0.0, "output_cost_per_token": 0.0,
        "search_context_cost_per_query": {"search_context_size_medium": 0.035}, **billing,
    }  # fmt: skip
    assert cost_usd(read(row), 10, 5, units={"web_search": 2}) == pytest.approx(usd)


def test_what_only_the_first_event_of_a_message_says_stays_known() -> None:
    first = Usage(10, cache_write_tokens=8, tier="priority", units={"cache_write_1h": 6})
    last = completed(Usage(10, 5, units={"web_search": 1}), first)
    assert (last.tier, last.units) == ("priority", {"cache_write_1h": 6, "web_search": 1})


def test_a_last_event_that_is_silent_of_the_cache_takes_nothing_from_the_first() -> None:
    first = Usage(2004, cached_tokens=2000, cache_write_tokens=0)  # Messages: 4 tokens besides the cached ones
    assert completed(Usage(4, 5), first) == Usage(2004, 5, None, 2000, 0)
    assert completed(Usage(10, 5, cached_tokens=8), first) == Usage(10, 5, None, 8)
    assert completed(Usage(3000, 5), first) == Usage(3000, 5)


@pytest.mark.parametrize(
    ("answer", "units"),
    [
        ({"usage": {"type": "duration", "seconds": 12.4}}, {"second": 12}),
        ({"usage": {"input_tokens": 9, "output_tokens": 4, "input_token_details": {"audio_tokens": 7}}},
         {"audio_input": 7}),
        ({"usage": {"input_tokens": 9, "output_tokens": 4, "output_tokens_details": {"image_tokens": 4}}},
         {"image_output": 4}),
    ],
)  # fmt: skip
def test_pictures_and_sound_that_are_not_raced_report_their_units(answer: Any, units: dict[str, int]) -> None:
    usage = reported(json.dumps(answer).encode()).usage
    assert usage is not None
    assert usage.units == units


@pytest.mark.parametrize(
    ("said", "cached", "written"),
    [
        pytest.param({"cached_tokens": 10}, 10, None, id="moonshot, together, stepfun"),
        pytest.param({"prompt_cache_hit_tokens": 10, "prompt_cache_miss_tokens": 9}, 10, None, id="deepseek"),
        pytest.param({"cache_read_input_tokens": 10, "cache_creation_input_tokens": 4}, 10, 4, id="litellm"),
        pytest.param({"prompt_tokens_details": {"cached_tokens": 10, "cache_creation_tokens": 4}}, 10, 4, id="within"),
        pytest.param({"prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": 10}, 0, None, id="both"),
        pytest.param({"prompt_tokens_details": None}, None, None, id="none"),
    ],
)
def test_what_the_cache_had_is_read_wherever_a_vendor_says_it(
    said: dict[str, Any], cached: int | None, written: int | None
) -> None:
    usage = usage_of({"prompt_tokens": 19, "completion_tokens": 21, "total_tokens": 40, **said})
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens) == (19, cached, written)
    assert usage.completion_tokens == 21


@pytest.mark.parametrize(
    ("reported", "usd"),
    [
        pytest.param(
            {"cost": 0.95, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}, 0.95, id="OpenRouter"
        ),
        pytest.param(
            {"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.9}}, 0.95, id="own key"
        ),
        pytest.param({"cost_in_usd_ticks": 9_500_000_000}, 0.95, id="xAI"),
        pytest.param(
            {"cost": {"input_tokens_cost": 0.05, "request_cost": 0.9, "total_cost": 0.95}}, 0.95, id="Perplexity"
        ),
        pytest.param({"cost": 0}, 0.0, id="free"),
        *(pytest.param({"cost": each}, None) for each in list[Any]([None, "0.95", True, -1.0, {}, [0.95]])),
        *(pytest.param({"cost": each}, None) for each in (float("inf"), 10**400, 1e300, {"total_cost": 10**400})),
        pytest.param({"cost_in_usd_ticks": "many"}, None),
        pytest.param({"cost_in_usd_ticks": 10**400}, None),
        pytest.param({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None),
        pytest.param({"cost": 0, "is_byok": True}, None),
        pytest.param({}, None),
    ],
)
def test_what_a_usage_states_that_the_call_cost_is_read_in_dollars(reported: dict[str, Any], usd: float | None) -> None:
    assert usage_of({"prompt_tokens": 9, "completion_tokens": 2} | reported).stated_usd == pytest.approx(usd)


@pytest.mark.parametrize(
    ("reported", "usd"),
    [
        ({"cost": 0.95, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}, 0.95),
        ({"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.9}}, 0.95),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.95}}, 0.95),
        ({"cost": 0, "is_byok": True}, None),
        ({"cost": 0, "is_byok": False}, 0.0),
        ({"cost": "0.95"}, None),
        ({"cost": None}, None),
        ({}, None),
    ],
)
def test_it_is_read_in_the_messages_api_too_and_when_that_is_translated(
    reported: dict[str, Any], usd: float | None
) -> None:
    begin = {"input_tokens": 9, "output_tokens": 1, "cost": 0}
    end = {"input_tokens": 9, "output_tokens": 2} | reported
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end}
    events = [{"type": "message_start", "message": {"model": "m", "usage": begin}}, delta, {"type": "message_stop"}]
    sent = [json.dumps(each).encode() for each in events]
    told = read_event(sent[1]).usage
    assert told is not None
    assert told.stated_usd == pytest.approx(usd)
    translation = ToChat()
    chunks = b"".join(translation.feed(b"data: " + each + b"\n\n") for each in sent)
    assert translation.usage_so_far is not None
    assert translation.usage_so_far.stated_usd == pytest.approx(usd)
    [usage] = [each["usage"] for line in chunks.split(b"\n\n") if b'"usage"' in line for each in [json.loads(line[6:])]]
    assert usage_of(usage).stated_usd == pytest.approx(usd)


@pytest.mark.parametrize(
    ("last", "usd"),
    [
        (Usage(9, 2), 0.5),
        (Usage(9), 0.5),
        (Usage(9, 3), None),
        (Usage(9, 2, stated_usd=0.25), 0.25),
        (Usage(9, 2, stated_usd=0.0), 0.0),
    ],
)
def test_a_cost_stays_that_the_last_report_does_not_repeat_unless_the_answer_has_grown(
    last: Usage, usd: float | None
) -> None:
    assert completed(last, Usage(9, 2, stated_usd=0.5)).stated_usd == usd
