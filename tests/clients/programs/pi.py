"""pi, as other programs run it (``pi --mode rpc``): one process a conversation, in each of the APIs that it speaks.

https://pi.dev: docs/rpc.md and docs/models.md of its package, 2026-11-29.
"""

import json
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import Lost, Turns, forecast
from tests.clients.samples import PNG_BASE64
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

NODE = NODE_PROGRAMS / "node"  # one of its own: it needs a newer Node than this machine may have
PROGRAM = NODE_PROGRAMS / "pi"
OPTIONS = ("--mode", "rpc", "--provider", "holeshot", "--offline")

suite = Suite("pi", version=lambda: version_of(NODE, str(PROGRAM)))


def calls(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two commands of one turn."""
    one, other = (f"printf '{forecast(city)} {number}'" for city in ("Oslo", "Rome"))
    return ("bash", {"command": one}), ("bash", {"command": other})


class Pi:
    """One conversation with it."""

    def __init__(self, target: Target, place: Workplace, api: str, model: str, url: str) -> None:
        folder = place.home / ".pi" / "agent"
        folder.mkdir(parents=True)
        entry = {"id": model, "reasoning": True, "input": ["text", "image"] if target.sees else ["text"]}
        provider = {"baseUrl": url, "api": api, "apiKey": target.key, "models": [entry]}
        (folder / "models.json").write_text(json.dumps({"providers": {"holeshot": provider}}))
        self._process = place.start(NODE, str(PROGRAM), *OPTIONS, "--model", model, environ={})

    def say(self, text: str, *, picture: bool = False, leave: bool = False) -> str:
        """Have one turn; return what it says at its end. ``leave`` interrupts it after its first words."""
        images = [{"type": "image", "data": PNG_BASE64, "mimeType": "image/png"}] if picture else []
        self._send({"id": "said", "type": "prompt", "message": text, "images": images})
        words, error, aborted = "", "", False
        while (event := self._next())["type"] != "agent_settled":
            if event.get("success") is False:
                raise Lost(event["error"])
            if leave and event.get("assistantMessageEvent", {}).get("type") == "text_delta":
                leave = False
                self._send({"type": "abort"})
            if event["type"] == "message_end" and event["message"]["role"] == "assistant":
                content = event["message"]["content"]
                words = "".join(part["text"] for part in content if part["type"] == "text")
                error = event["message"].get("errorMessage", "")
                aborted = event["message"].get("stopReason") == "aborted"
        if error and not aborted:
            raise Lost(error)
        return words

    def _send(self, event: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(event) + "\n")
        self._process.stdin.flush()

    def _next(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise Lost(f"it ended with {self._process.wait()}: {self._error()}")
        return json.loads(line)

    def _error(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()[-1000:]


def talk(target: Target, turns: Turns, api: str, model: str, url: str) -> None:
    """Have the conversation."""
    with workplace() as place:
        turns.hold(calls, Pi(target, place, api, model, url).say)


@suite.conversation("chat")
def chat(target: Target, turns: Turns) -> None:
    talk(target, turns, "openai-completions", target.chat, target.openai)


@suite.conversation("responses")
def responses(target: Target, turns: Turns) -> None:
    talk(target, turns, "openai-responses", target.responses, target.openai)


@suite.conversation("messages")
def messages(target: Target, turns: Turns) -> None:
    talk(target, turns, "anthropic-messages", target.messages, target.url)


@suite.conversation("gemini")
def gemini(target: Target, turns: Turns) -> None:
    talk(target, turns, "google-generative-ai", target.gemini, f"{target.url}/v1beta")


if __name__ == "__main__":
    suite.main()
