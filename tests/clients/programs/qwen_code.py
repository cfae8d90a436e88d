"""Qwen Code, as editors run it (``qwen --acp``), in the APIs whose address is a variable; chat is its default."""

import json
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import Turns, forecast
from tests.clients.programs.acp import Acp
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "qwen"
SETTINGS = {
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
}

suite = Suite("qwen-code", version=lambda: version_of(PROGRAM))


def calls(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two commands of one turn."""
    one, other = (
        {"command": f"printf '{forecast(city)} {number}'", "is_background": False, "description": "Look"}
        for city in ("Oslo", "Rome")
    )
    return ("run_shell_command", one), ("run_shell_command", other)


def qwen(target: Target, place: Workplace, kind: str = "openai") -> Acp:
    """Start it, with the variables of the API that it is to speak."""
    environs = {
        "openai": ("OPENAI", target.openai, target.chat),
        "openai-responses": ("OPENAI", target.openai, target.responses),
        "anthropic": ("ANTHROPIC", target.url, target.messages),
    }
    name, url, model = environs[kind]
    environ = {f"{name}_API_KEY": target.key, f"{name}_BASE_URL": url, f"{name}_MODEL": model}
    folder = place.home / ".qwen"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    return Acp(place, PROGRAM, "--acp", "--auth-type", kind, "--approval-mode", "yolo", environ=environ)


def talk(target: Target, turns: Turns, kind: str) -> None:
    """Have the conversation."""
    with workplace() as place:
        turns.hold(calls, qwen(target, place, kind).say)


@suite.conversation("chat")
def chat(target: Target, turns: Turns) -> None:
    talk(target, turns, "openai")


@suite.conversation("responses")
def responses(target: Target, turns: Turns) -> None:
    talk(target, turns, "openai-responses")


@suite.conversation("messages")
def messages(target: Target, turns: Turns) -> None:
    talk(target, turns, "anthropic")


if __name__ == "__main__":
    suite.main()
