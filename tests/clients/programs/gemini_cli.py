"""Gemini CLI, as editors run it (``gemini --acp``): one process a conversation, requests and notifications a line each.

https://agentclientprotocol.com/protocol, 2026-11-29.
"""

import itertools
import json
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import Lost, Turns, forecast
from tests.clients.samples import PNG_BASE64
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


class Gemini:
    """One conversation with it."""

    def __init__(self, target: Target, place: Workplace) -> None:
        folder = place.home / ".gemini"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(SETTINGS))
        environ = {"GEMINI_API_KEY": target.key, "GOOGLE_GEMINI_BASE_URL": target.url}
        options = ("--acp", "--model", target.gemini, "--approval-mode", "yolo", "--skip-trust")
        self._process = place.start(PROGRAM, *options, environ=environ)
        self._numbers = itertools.count(1)
        self._words = ""
        self.request("initialize", protocolVersion=1, clientCapabilities={})
        self._session = self.request("session/new", cwd=str(place.folder), mcpServers=[])["sessionId"]

    def say(self, text: str, *, picture: bool = False, leave: bool = False) -> str:
        """Have one turn; return what it says at its end. ``leave`` interrupts it after its first words."""
        said: list[Any] = [{"type": "text", "text": text}]
        if picture:
            said.append({"type": "image", "mimeType": "image/png", "data": PNG_BASE64})
        self._words = ""
        self.request("session/prompt", leave=leave, sessionId=self._session, prompt=said)
        return self._words

    def request(self, method: str, *, leave: bool = False, **params: Any) -> Any:
        """Return the result of a request."""
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        while (event := self._next()).get("id") != number or "method" in event:
            if event.get("method") == "session/update":
                self._hear(event["params"]["update"])
            if leave and self._words:
                leave = False
                self._send({"method": "session/cancel", "params": {"sessionId": self._session}})
        if "error" in event:
            raise Lost(f"{method}: {json.dumps(event['error'])}")
        return event["result"]

    def _hear(self, update: Any) -> None:
        if update["sessionUpdate"] == "agent_message_chunk":
            self._words += update["content"]["text"]
        elif update["sessionUpdate"] == "tool_call":
            self._words = ""  # what it says at the end is behind the last call

    def _send(self, event: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **event}) + "\n")
        self._process.stdin.flush()

    def _next(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise Lost(f"it ended with {self._process.wait()}")
        return json.loads(line)


@suite.conversation("gemini")
def conversation(target: Target, turns: Turns) -> None:
    with workplace() as place:
        gemini = Gemini(target, place)
        for turn in turns(calls):
            if turn.cut:
                gemini.say(turn.cut, leave=True)
            turn.ends_with(gemini.say(turn.text, picture=turn.picture))


if __name__ == "__main__":
    suite.main()
