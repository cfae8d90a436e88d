"""Codex, as editors run it (``codex app-server``): one process a conversation, over HTTP and over a WebSocket."""

import itertools
import json
from dataclasses import replace
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import CUT, LETTERS, Lost, Turns, forecast
from tests.clients.samples import PNG_URL
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "codex"
# It knows these models, and has their tools called by programs in JavaScript, one at a time.
BY_CODE = {"gpt-6.2-astra"}
CONFIG = """
model = "{model}"
model_provider = "holeshot"
check_for_update_on_startup = false
{more}
[analytics]
enabled = false
[model_providers.holeshot]
name = "Holeshot"
base_url = "{url}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
supports_websockets = {over_a_websocket}
"""

# Codex 0.171 compacts after such a refusal only if it comes early in the session, and once: it takes for the tokens in
# use what the window that it knows is more than the sum of all its requests (fill_to_context_window).
WINDOW = 20_000  # by which it is to sum up in time, where it is told
MUCH, LITTLE = 40_000, 500  # letters that commands print; more than the first is cut off

suite = Suite("codex", version=lambda: version_of(PROGRAM))


def calls(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two commands of one turn."""
    one, other = (f"printf '{forecast(city)} {number}'" for city in ("Oslo", "Rome"))
    return ("exec_command", {"cmd": one}), ("exec_command", {"cmd": other})


def calls_by_code(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the same where the only tool takes a program."""
    (_, one), (_, other) = calls(number)
    return by_code(one), by_code(other)


def by_code(arguments: Any) -> tuple[str, Any]:
    """Return the call of a program that runs a command."""
    return "functions__exec", {"input": f"text(await tools.exec_command({json.dumps(arguments)}))"}


class Codex:
    """One conversation with it: requests and notifications, a line each."""

    def __init__(self, target: Target, place: Workplace, *, over_a_websocket: bool, more: str) -> None:
        folder = place.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(
            CONFIG.format(
                model=target.responses,
                url=target.openai,
                over_a_websocket=str(over_a_websocket).lower(),
                more=more,
            )
        )
        self._process = place.start(PROGRAM, "app-server", environ={"GATEWAY_KEY": target.key})
        self._numbers = itertools.count(1)
        self.request("initialize", clientInfo={"name": "holeshot", "title": "Holeshot", "version": "1"})
        self._send({"method": "initialized"})
        started = self.request(
            "thread/start", cwd=str(place.folder), approvalPolicy="never", sandbox="danger-full-access"
        )
        self._thread = started["thread"]["id"]

    def say(self, text: str, *, picture: bool = False, leave: bool = False) -> str:
        """Have one turn; return what it says at its end. ``leave`` interrupts it while a command runs."""
        said: list[Any] = [{"type": "text", "text": text, "text_elements": []}]
        if picture:
            said.append({"type": "image", "url": PNG_URL})
        turn = self.request("turn/start", threadId=self._thread, input=said)["turn"]["id"]
        words = ""
        while (event := self._next()).get("method") != "turn/completed":
            if leave and event.get("method") == "item/started" and _item(event)["type"] == "commandExecution":
                leave = False
                self.request("turn/interrupt", threadId=self._thread, turnId=turn)
            if event.get("method") == "item/completed" and _item(event)["type"] == "agentMessage":
                words = _item(event)["text"]
        ended = event["params"]["turn"]
        if ended["status"] == "failed":
            raise Lost(json.dumps(ended["error"]))
        return words

    def request(self, method: str, **params: Any) -> Any:
        """Return the result of a request."""
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        while (event := self._next()).get("id") != number or "method" in event:
            pass
        if "error" in event:
            raise Lost(f"{method}: {json.dumps(event['error'])}")
        return event["result"]

    def _send(self, event: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(event) + "\n")
        self._process.stdin.flush()

    def _next(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise Lost(f"it ended with {self._process.wait()}")
        return json.loads(line)


def _item(event: Any) -> Any:
    return event["params"]["item"]


def outgrow(codex: Codex, text: str) -> None:
    """Have a turn that the context does not hold: it tells so, and compacts when more is said.

    Raises:
        Lost: it does not, or in another way.

    """
    try:
        said = codex.say(f"{'Look. ' * 1500}\n{text}")
    except Lost as lost:
        if "contextWindowExceeded" in str(lost):
            return
        raise
    raise Lost(f"the context holds it: {said}")


def talk(
    target: Target, turns: Turns, *, over_a_websocket: bool = False, more: str = "", is_told: bool = False
) -> None:
    """Have the conversation; ``is_told`` says whether it knows how much the model holds."""
    with workplace() as place:
        codex = Codex(target, place, over_a_websocket=over_a_websocket, more=more)
        if turns.goes:
            turns.hold(calls, codex.say)
            return
        is_by_code = target.responses in BY_CODE
        letters = (lambda _: LETTERS) if is_told else (lambda number: MUCH if number == 1 else LITTLE)
        had = turns(calls_by_code, parallel=False) if is_by_code else turns(calls, letters)
        waiting: Any = {"cmd": "sleep 60"}
        tool, arguments = by_code(waiting) if is_by_code else ("exec_command", waiting)
        for turn in had:
            if turn.long and turn.number == 1 and not is_told:
                outgrow(codex, turn.text)
                continue
            if turn.cut:
                # In the middle of an answer it would keep thoughts without what follows them, which OpenAI refuses.
                codex.say(f"Turn {turn.number}: wait.\ncall: {tool} {json.dumps(arguments)}", leave=True)
            results = 2 * turn.number + (turn.number >= CUT)  # it tells the model of the command that did not end
            said = replace(turn, says=turn.says.replace(f"results {2 * turn.number}", f"results {results}"))
            said.ends_with(codex.say(turn.text, picture=turn.picture))


@suite.conversation("responses")
def over_http(target: Target, turns: Turns) -> None:
    talk(target, turns)


@suite.conversation("responses")
def over_a_websocket(target: Target, turns: Turns) -> None:
    talk(target, turns, over_a_websocket=True)


@suite.conversation("responses")
def without_search(target: Target, turns: Turns) -> None:
    window = f"model_context_window = {WINDOW}" if target.long else ""
    talk(target, turns, more=f'web_search = "disabled"\n{window}', is_told=target.long)


if __name__ == "__main__":
    suite.main()
