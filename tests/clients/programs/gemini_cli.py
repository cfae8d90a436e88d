"""Gemini CLI, as editors run it (``gemini --acp``)."""

import json
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import Turns, forecast
from tests.clients.programs.acp import Acp
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "gemini"
SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}

suite = Suite("gemini-cli", version=lambda: version_of(PROGRAM))


def calls(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two commands of one turn."""
    one, other = (f"printf '{forecast(city)} {number}'" for city in ("Oslo", "Rome"))
    return ("run_shell_command", {"command": one}), ("run_shell_command", {"command": other})


def gemini(target: Target, place: Workplace) -> Acp:
    """Start it."""
    folder = place.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    environ = {"GEMINI_API_KEY": target.key, "GOOGLE_GEMINI_BASE_URL": target.url}
    options = ("--acp", "--model", target.gemini, "--approval-mode", "yolo", "--skip-trust")
    return Acp(place, PROGRAM, *options, environ=environ)


@suite.conversation("gemini")
def conversation(target: Target, turns: Turns) -> None:
    with workplace() as place:
        program = gemini(target, place)
        for turn in turns(calls):
            if turn.cut:
                program.say(turn.cut, leave=True)
            turn.ends_with(program.say(turn.text, picture=turn.picture))


if __name__ == "__main__":
    suite.main()
