"""Which deployments are known to go on with another's answer: the configuration's word over the catalog's."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.fleet import Deployment, Fleet
from gateway.settings import Settings
from providers import UNLISTED, load_catalog
from providers.dialects import CHAT, COMPLETIONS, MESSAGES, RESPONSES

CATALOG = load_catalog()
NOBODY: Any = SimpleNamespace(accepts_all_parameters=True, refused_fields=frozenset(), learnt=None)  # nothing is sent


def deployment(name: str, *, provider: dict[str, Any] | None = None, **said: Any) -> Deployment:
    """Return a deployment as calls see it."""
    settings = Settings.model_validate(
        {
            "providers": {name.partition("/")[0]: {"api_key": "k", **(provider or {})}},
            "models": {"m": {"deployments": [{"deployment": name, **said}]}},
        }
    )
    fleet = Fleet(settings, CATALOG, open_upstream=lambda *_: NOBODY, find_datasheet=lambda *_: UNLISTED)
    return fleet.models["m"].deployments[name]


def test_a_vendor_continues_in_the_apis_for_which_it_is_declared() -> None:
    vllm = deployment("vllm/m")
    assert [vllm.way_to_continue(each) for each in (CHAT, RESPONSES, MESSAGES)] == [
        "final_message",
        "in_progress",
        None,
    ]
    assert [vllm.can_continue(each) for each in (CHAT, RESPONSES, MESSAGES, COMPLETIONS)] == [True, True, False, True]


def test_where_it_has_chat_only_other_apis_are_continued_there() -> None:
    chatting = deployment("vllm/m", apis=["chat"])
    assert {chatting.way_to_continue(each) for each in (CHAT, RESPONSES, MESSAGES)} == {"final_message"}


def test_mistral_repeats_what_it_continues() -> None:
    assert deployment("mistral/m").way_to_continue(CHAT) == "repeated_prefix"


@pytest.mark.parametrize("base_url", ["https://api.deepseek.com/beta", "https://api.deepseek.com/beta/"])
def test_deepseek_continues_at_its_beta_address_only(base_url: str) -> None:
    assert deployment("deepseek/m", provider={"base_url": base_url}).way_to_continue(CHAT) == "prefix"
    assert not deployment("deepseek/m").can_continue(CHAT)


@pytest.mark.parametrize(
    ("model", "is_able"),
    [
        ("claude-3-7-sonnet-20250219", True),
        ("claude-sonnet-4-20250514", True),
        ("claude-sonnet-4-5", True),
        ("claude-haiku-4-5-20251001", True),
        ("claude-opus-4-5", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-4-6", False),
        ("claude-opus-5", False),
        ("claude-one-of-the-future", False),
    ],
)
def test_of_anthropics_models_the_older_ones_continue(model: str, is_able: bool) -> None:
    assert deployment(f"anthropic/{model}").can_continue(MESSAGES) is is_able


def test_the_configuration_has_the_last_word() -> None:
    assert not deployment("vllm/m", continues="no").can_continue(CHAT)
    assert deployment("openai/m", continues="prefill").way_to_continue(CHAT) == "prefill"
    assert not deployment("openai/m").can_continue(CHAT)
