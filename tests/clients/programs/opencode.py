"""opencode, as editors run it (``opencode acp``), with the AI SDK's package of each API."""

import json
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import Turns, forecast
from tests.clients.programs.acp import Acp
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "opencode"
QUIET = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}

suite = Suite("opencode", version=lambda: version_of(PROGRAM))


def calls(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two commands of one turn."""
    one, other = (f"printf '{forecast(city)} {number}'" for city in ("Oslo", "Rome"))
    return ("bash", {"command": one, "description": "Look"}), ("bash", {"command": other, "description": "Look again"})


def opencode(target: Target, place: Workplace, package: str, model: str, url: str) -> Acp:
    """Start it, at a provider of the user's own."""
    modalities = {"input": ["text", "image"] if target.sees else ["text"], "output": ["text"]}
    entry = {"name": model, "limit": {"context": 200_000, "output": 32_000}, "modalities": modalities}
    provider = {
        "npm": package,
        "name": "Holeshot",
        "options": {"baseURL": url, "apiKey": target.key},
        "models": {model: {**entry, "attachment": target.sees, "tool_call": True}},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"holeshot/{model}",
        "small_model": f"holeshot/{model}",
        "provider": {"holeshot": provider},
    }
    (place.folder / "opencode.json").write_text(json.dumps(config))
    return Acp(place, PROGRAM, "acp", environ=QUIET)


def talk(target: Target, turns: Turns, package: str, model: str, url: str) -> None:
    """Have the conversation."""
    with workplace() as place:
        turns.hold(calls, opencode(target, place, package, model, url).say)


@suite.conversation("chat")
def compatible(target: Target, turns: Turns) -> None:
    talk(target, turns, "@ai-sdk/openai-compatible", target.chat, target.openai)


@suite.conversation("responses")
def responses(target: Target, turns: Turns) -> None:
    talk(target, turns, "@ai-sdk/openai", target.responses, target.openai)


@suite.conversation("messages")
def messages(target: Target, turns: Turns) -> None:
    talk(target, turns, "@ai-sdk/anthropic", target.messages, f"{target.url}/v1")


@suite.conversation("gemini")
def gemini(target: Target, turns: Turns) -> None:
    talk(target, turns, "@ai-sdk/google", target.gemini, f"{target.url}/v1beta")


if __name__ == "__main__":
    suite.main()
