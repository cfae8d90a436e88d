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
HELD, GOOGLES = 15_000, 1_048_576

suite = Suite("gemini-cli", version=lambda: version_of(PROGRAM))


def calls(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two commands of one turn."""
    one, other = (f"printf '{forecast(city)} {number}'" for city in ("Oslo", "Rome"))
    return ("run_shell_command", {"command": one}), ("run_shell_command", {"command": other})


def gemini(target: Target, place: Workplace) -> Acp:
    """Start it."""
    folder = place.home / ".gemini"
    folder.mkdir()
    # It compacts by its own count alone, of Google's million tokens (0.61.0: ChatCompressionService).
    own = {"model": {"compressionThreshold": HELD / GOOGLES}} if target.long else {}
    (folder / "settings.json").write_text(json.dumps(SETTINGS | own))
    environ = {"GEMINI_API_KEY": target.key, "GOOGLE_GEMINI_BASE_URL": target.url}
    options = ("--acp", "--model", target.gemini, "--approval-mode", "yolo", "--skip-trust")
    return Acp(place, PROGRAM, *options, environ=environ)


@suite.conversation("gemini")
def conversation(target: Target, turns: Turns) -> None:
    with workplace() as place:
        turns.hold(calls, gemini(target, place).say)


if __name__ == "__main__":
    suite.main()
