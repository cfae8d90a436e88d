"""Claude Code: one process a conversation, which reads what the user says line by line (as its Agent SDK has it)."""

import json
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import Lost, Turns, forecast
from tests.clients.samples import PNG_BASE64
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "claude"
DEFAULT = "claude-opus-5-5"  # what it asks for by itself, so that it is told of no model there
QUIET = (
    *("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING"),
    "DISABLE_AUTOUPDATER",
)
MODELS = ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL")
OPTIONS = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    *("--include-partial-messages", "--allowedTools", "Bash"),
)

suite = Suite("claude-code", version=lambda: version_of(PROGRAM))


def calls(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two commands of one turn."""
    one, other = (f"printf '{forecast(city)} {number}'" for city in ("Oslo", "Rome"))
    return ("Bash", {"command": one, "description": "Look"}), ("Bash", {"command": other, "description": "Look again"})


class Claude:
    """One conversation with it."""

    def __init__(self, target: Target, place: Workplace) -> None:
        environ = {
            "ANTHROPIC_BASE_URL": target.url,
            "ANTHROPIC_API_KEY": target.key,
            **dict.fromkeys(QUIET, "1"),
        }
        self._model = target.messages
        if self._model == DEFAULT:
            self._process = place.start(PROGRAM, *OPTIONS, environ=environ)
            return
        environ |= dict.fromkeys(MODELS, self._model)  # it uses a smaller one for small things
        self._process = place.start(PROGRAM, *OPTIONS, "--model", self._model, environ=environ)

    def say(self, text: str, *, picture: bool = False, leave: bool = False) -> str:
        """Have one turn; return what it says at its end. ``leave`` interrupts it after its first words."""
        content: list[Any] = [{"type": "text", "text": text}]
        if picture:
            source = {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}
            content.insert(0, {"type": "image", "source": source})
        self._send({"type": "user", "message": {"role": "user", "content": content}})
        if leave:
            while not self._is_words(self._next()):
                pass
            self._send({"type": "control_request", "request_id": "leave", "request": {"subtype": "interrupt"}})
        result = self._result()
        if result["is_error"] and not leave:
            raise Lost(result.get("result") or json.dumps(result))
        return str(result.get("result", ""))

    def _result(self) -> Any:
        while (event := self._next())["type"] != "result":
            if event.get("subtype") == "init" and event["model"] != self._model:
                raise Lost(f"it asks for {event['model']}, not for {self._model}")
        return event

    @staticmethod
    def _is_words(event: Any) -> bool:
        return event["type"] == "stream_event" and "text_delta" in json.dumps(event["event"])

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


@suite.conversation("messages")
def conversation(target: Target, turns: Turns) -> None:
    with workplace() as place:
        turns.hold(calls, Claude(target, place).say)


if __name__ == "__main__":
    suite.main()
