"""What a model is and takes, by any name that vendors give it, and of models that nobody has seen."""

import tomllib
from collections.abc import Iterator
from importlib.resources import files

import pytest

from providers import UNKNOWN_MODEL
from providers.models import traits_of


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-5-5",
        "claude-opus-5.5",
        "anthropic/claude-opus-5.5",
        "us.anthropic.claude-opus-5-5-v1:0",
        "claude-opus-5-5@20260922",
        "claude-opus-5-5-20260922",
        "claude-opus-5-7",
        "claude-opus-6",
        "databricks-claude-opus-5-5",
    ],
)
def test_a_claude_has_its_traits_by_any_name_and_a_later_one_inherits_them(name: str) -> None:
    traits = traits_of(name)
    assert (traits.family, traits.forced_tools, traits.least_thinking) == ("claude", "never", "low")
    assert (traits.sampling, traits.takes_budget, traits.prefill) == ("none", False, False)
    assert traits.bound == {"prefix", "models"}


@pytest.mark.parametrize(
    ("name", "least", "forced"),
    [
        ("claude-sonnet-5-5", "between_tools", "never"),
        ("claude-haiku-5-5", "off", "taken"),
        ("claude-fable-5-2", "low", "never"),
        ("claude-fable-5", "low", "taken"),
        ("claude-sonnet-5", "off", "taken"),
        ("claude-opus-5", "off", "taken"),
        ("claude-opus-4-20250514", "off", "taken"),
    ],
)
def test_lines_of_claude_differ(name: str, least: str, forced: str) -> None:
    traits = traits_of(name)
    assert (traits.least_thinking, traits.forced_tools) == (least, forced)


@pytest.mark.parametrize(
    ("name", "as_usual"),
    [
        ("gpt-35-turbo", "gpt-3.5-turbo"),  # Azure's own name of it
        ("gpt-41-copilot", "gpt-4.1-copilot"),
        ("gpt-41-mini", "gpt-4.1-mini"),
        ("claude-opus-45", "claude-opus-4-5"),
        ("claude-35-sonnet", "claude-3-5-sonnet"),
        ("gemini-25-pro", "gemini-2.5-pro"),
    ],
)
def test_a_version_without_its_point_is_no_model_of_tomorrow(name: str, as_usual: str) -> None:
    for vendor in ("", "azure"):
        assert traits_of(name, vendor) == traits_of(as_usual, vendor)


@pytest.mark.parametrize("name", ["gpt-7-sol", "gpt-8.1", "gpt-10-nova"])
def test_a_gpt_of_tomorrow_takes_what_the_newest_one_takes(name: str) -> None:
    assert traits_of(name, "openai") == traits_of("gpt-6.2-astra", "openai")


@pytest.mark.parametrize(
    ("name", "last"), [("gpt-6.2-astra", True), ("openai/gpt-6.2-sol", True), ("gpt-6.5", True), ("gpt-6.1-sol", False)]
)
def test_from_gpt_6_2_on_instructions_stand_behind_the_input(name: str, last: bool) -> None:
    assert traits_of(name).instructions_last == last


@pytest.mark.parametrize(
    ("name", "vendor", "api"),
    [
        ("gpt-6.2-astra", "openai", "responses"),
        ("gpt-6-sol", "azure", "responses"),
        ("gpt-7", "openai", "responses"),
        ("gpt-6-astra", "openrouter", ""),
        ("gpt-5.6-sol", "openai", "responses"),
        ("gpt-5.5", "openai", "responses"),
        ("gpt-5.5", "openrouter", ""),
        ("gpt-5.2", "openai", ""),
    ],
)
def test_from_gpt_5_5_on_openai_takes_tools_in_one_api(name: str, vendor: str, api: str) -> None:
    assert traits_of(name, vendor).tools_in == api


def test_what_one_vendor_refuses_others_may_take() -> None:
    assert traits_of("gpt-5.2", "openai").drop == traits_of("gpt-5.2", "azure").drop != frozenset()
    assert traits_of("gpt-5.2", "openrouter").drop == frozenset()
    assert traits_of("deepseek-v4-pro", "deepseek").forced_tools == "not_while_thinking"
    assert traits_of("deepseek-v4-pro", "fireworks").forced_tools == "taken"


@pytest.mark.parametrize("name", ["m", "", "llama-4-maverick", "gpt-oss-120b", "mistral-large-latest"])
def test_of_what_is_not_known_nothing_is_said(name: str) -> None:
    assert traits_of(name) == UNKNOWN_MODEL


OFF: dict[str, object] = {"thinking": {"type": "disabled"}}
FLAG: dict[str, object] = {"enable_thinking": False}
UP_TO_MAX = ("low", "medium", "high", "xhigh", "max")
ANTHROPICS, OPENAIS = frozenset({"temperature", "top_k", "top_p"}), frozenset({"temperature", "top_p", "logprobs"})

# Models that are not out: what they inherit of the newest of their line. Forced tools, the least thinking, the fields
# that forbid it, efforts, what is refused, and tiers that are not there.
Unseen = tuple[str, str, str, str, dict[str, object], tuple[str, ...], frozenset[str], set[str]]
UNSEEN: list[Unseen] = [
    ("claude-opus-6", "anthropic", "never", "low", {}, (), ANTHROPICS, set()),
    ("claude-opus-5-7", "anthropic", "never", "low", {}, (), ANTHROPICS, set()),
    ("claude-sonnet-6", "anthropic", "never", "between_tools", {}, (), ANTHROPICS, set()),
    ("claude-haiku-5-6", "anthropic", "taken", "off", {}, (), ANTHROPICS, set()),
    ("gpt-6.4-nova", "openai", "taken", "off", {}, UP_TO_MAX, OPENAIS, {"flex"}),
    ("gpt-6.3-luna", "openai", "taken", "off", {}, UP_TO_MAX, OPENAIS, {"flex"}),
    ("gpt-7", "azure", "taken", "off", {}, UP_TO_MAX, OPENAIS, {"flex"}),
    ("o5-mini", "openai", "taken", "off", {}, UP_TO_MAX[:3], OPENAIS, set()),
    ("gemini-5-flash", "google", "taken", "off", {}, (), frozenset(), set()),
    ("gemini-4.2-argon", "google", "taken", "off", {}, (), frozenset(), set()),
    ("deepseek-v5", "deepseek", "not_while_thinking", "off", OFF, (), frozenset(), set()),
    ("deepseek-flash", "deepseek", "not_while_thinking", "off", OFF, (), frozenset(), set()),
    ("kimi-k3.5", "moonshot", "taken", "low", {}, ("low", "high", "max"), frozenset({"thinking"}), set()),
    ("qwen4-max", "dashscope", "not_while_thinking", "off", FLAG, (), frozenset(), set()),
]


@pytest.mark.parametrize("row", UNSEEN, ids=[row[0] for row in UNSEEN])
def test_a_model_that_is_not_out_inherits_the_newest_of_its_line(row: Unseen) -> None:
    name, vendor, forced, least, off, efforts, refused, tiers = row
    traits = traits_of(name, vendor)
    assert (traits.forced_tools, traits.least_thinking, traits.not_thinking) == (forced, least, off)
    assert (traits.efforts, traits.lacks_tiers) == (efforts, tiers)
    assert refused <= traits.drop
    assert bool(refused) == bool(traits.drop)
    assert not traits.is_usual or traits.family == "gemini"


def sources() -> Iterator[tuple[str, str, str]]:
    """Yield each row's family, page and day."""
    told = tomllib.loads(files("providers.models").joinpath("families.toml").read_text(encoding="utf-8"))
    for family, given in told.items():
        for row in given.get("rows", ()):
            yield family, row.get("page", ""), row.get("read", "")


def test_each_row_says_where_it_is_said_and_when_it_was_read() -> None:
    assert [each for each in sources() if not all(each)] == []
