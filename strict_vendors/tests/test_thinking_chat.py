"""The stand-ins of Moonshot and DashScope think unless told not to, and call no forced tool meanwhile."""

from typing import Any

import pytest

from strict_vendors import made
from strict_vendors.tests.asking import WEATHER, chat

NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("name", "model", "off", "said"),
    [
        ("moonshot", "kimi-k2.6", {"thinking": {"type": "disabled"}}, "is incompatible with thinking enabled"),
        ("dashscope", "qwen3.7-plus", {"enable_thinking": False}, "does not support being set to required or object"),
    ],
)
def test_a_forced_tool_is_called_by_who_does_not_think(name: str, model: str, off: dict[str, Any], said: str) -> None:
    vendor = made(name)
    for choice in ("required", NAMED):
        came = chat(vendor, model, tools=[WEATHER], tool_choice=choice)
        assert (came.status, said in came.body["error"]["message"]) == (400, True)
        assert came.page.startswith("https://")
        message = chat(vendor, model, tools=[WEATHER], tool_choice=choice, **off).body["choices"][0]["message"]
        assert message["tool_calls"][0]["function"]["name"] == "get_weather"
        assert "reasoning_content" not in message
    assert chat(vendor, model, tools=[WEATHER]).body["choices"][0]["message"]["reasoning_content"]


def test_one_of_kimi_always_thinks() -> None:
    came = chat(made("moonshot"), "kimi-k2.7-code", thinking={"type": "disabled"})
    assert came.body["error"]["message"] == "invalid thinking: only type=enabled is allowed for this model"
