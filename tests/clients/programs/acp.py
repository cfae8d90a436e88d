"""Agents as editors run them: one process a conversation, requests and notifications of JSON-RPC, a line each.

https://agentclientprotocol.com/protocol, 2026-11-29.
"""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clients.conversation import Lost
from tests.clients.samples import PNG_BASE64
from tests.clients.workplace import Workplace


class Acp:
    """One conversation with a program that speaks the Agent Client Protocol."""

    def __init__(self, place: Workplace, program: Path, *arguments: str, environ: Mapping[str, str]) -> None:
        self._process = place.start(program, *arguments, environ=environ)
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
            if event.get("method") == "session/request_permission":
                self._send({"id": event["id"], "result": {"outcome": _allowed(event["params"]["options"])}})
            if leave and self._words:
                leave = False
                self._send({"method": "session/cancel", "params": {"sessionId": self._session}})
        if "error" in event:
            raise Lost(f"{method}: {json.dumps(event['error'])}")
        return event["result"]

    def _hear(self, update: Any) -> None:
        if update["sessionUpdate"] == "agent_message_chunk":
            self._words += update["content"].get("text", "")
        elif update["sessionUpdate"] == "tool_call":
            self._words = ""  # what it says at the end is behind the last call

    def _send(self, event: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **event}) + "\n")
        self._process.stdin.flush()

    def _next(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise Lost(f"it ended with {self._process.wait()}: {self._error()}")
        return json.loads(line)

    def _error(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()[-1000:]


def _allowed(options: Any) -> Any:
    allowed = next(option for option in options if option["kind"].startswith("allow"))
    return {"outcome": "selected", "optionId": allowed["optionId"]}
