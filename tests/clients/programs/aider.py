"""aider: one process a conversation, whose user types; it has no tools, so each turn changes a file."""

import os
import signal
import sys
from pathlib import Path

from tests.clients.case import Suite, Target
from tests.clients.conversation import FILTERED, LETTERS, STORY, Lost, Turn, Turns
from tests.clients.samples import PNG
from tests.clients.workplace import Workplace, version_of, workplace

PROGRAM = Path(sys.executable).with_name("aider")
OPTIONS = (
    *("--no-show-model-warnings", "--yes-always", "--no-check-update", "--analytics-disable", "--no-git"),
    *("--no-pretty", "--no-show-release-notes", "--no-fancy-input", "--edit-format", "whole"),
)

suite = Suite("aider", version=lambda: version_of(PROGRAM))


class Aider:
    """One conversation with it."""

    def __init__(self, target: Target, place: Workplace) -> None:
        prices = place.home / ".aider" / "caches" / "model_prices_and_context_window.json"
        prices.parent.mkdir(parents=True)
        prices.write_text('{"fetched": {}}')  # it would fetch them, and wait for it
        (place.folder / "picture.png").write_bytes(PNG)
        environ = {
            "OPENAI_API_BASE": target.openai,
            "OPENAI_API_KEY": target.key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # likewise
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "1000",  # an error is a line
        }
        self._process = place.start(PROGRAM, "--model", f"openai/{target.chat}", *OPTIONS, environ=environ)

    def type(self, text: str) -> None:
        """Type something: what has several lines goes between braces."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{\n{text}\n}}\n" if "\n" in text else f"{text}\n")
        self._process.stdin.flush()

    def read_until(self, words: str) -> str:
        """Return what it prints, up to these words."""
        assert self._process.stdout is not None
        said = ""
        while words not in said:
            if not (letter := self._process.stdout.read(1)):
                raise Lost(f"it ended with {self._process.wait()}: {said[-1000:]}")
            said += letter
            if "litellm." in said and "Error" in said and "\n" in said[said.index("litellm.") :]:
                raise Lost(said[said.index("litellm.") :])
        return said

    def say(self, text: str) -> str:
        """Have one turn, which may be lost; return all that it prints."""
        self.type(text)
        self.type("/nothing")  # it reads this once the turn is over
        assert self._process.stdout is not None
        said = ""
        while "Invalid command: /nothing" not in said:
            if not (letter := self._process.stdout.read(1)):
                raise Lost(f"it ended with {self._process.wait()}: {said[-1000:]}")
            said += letter
        return said

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.kill(self._process.pid, signal.SIGINT)


@suite.conversation("chat")
def conversation(target: Target, turns: Turns) -> None:
    with workplace() as place:
        aider = Aider(target, place)
        lost = ""
        for turn in turns:
            if turn.cut:
                aider.type(turn.cut)
                aider.read_until(STORY[:30])
                aider.interrupt()
                aider.read_until("again to exit")
            if turn.picture:
                aider.type("/add picture.png")
            answer = f"turn-{turn.number}.txt\\n```\\nwritten in turn {turn.number}\\n```\\n"
            text = f'Turn {turn.number}: write the file.\nsay: "{answer}"'
            if turn.long and turn.number == 1:
                outgrow(aider, text)
            elif turn.is_wrong:
                lost = went_wrong(aider, turn, text)
            if turn.goes != FILTERED or not turn.is_wrong:
                aider.type(text)
                aider.read_until(f"Applied edit to turn-{turn.number}.txt")
                written = (place.folder / f"turn-{turn.number}.txt").read_text().strip()
                if written != f"written in turn {turn.number}":
                    raise Lost(f"it wrote {written!r}")
        if lost:
            raise Lost(lost)


def outgrow(aider: Aider, text: str) -> None:
    """Say what the context does not hold: it tells so, and what to do; do that.

    Raises:
        Lost: it does not.

    """
    said = aider.say(f"{'Look. ' * 6 * LETTERS}\n{text}")
    if "token limit" not in said or "/clear" not in said:
        raise Lost(f"it does not tell of the length: {said[-1000:]}")
    aider.say("/clear")


def went_wrong(aider: Aider, turn: Turn, text: str) -> str:
    """Have the turn in which something goes wrong; return what is wrong with its end."""
    said = aider.say(f"{text}\n{turn.text.splitlines()[1]}")
    if turn.goes == FILTERED:
        return (
            "" if "flagged" in said or "blocked" in said or "filter" in said else f"it does not show why: {said[-500:]}"
        )
    return "" if f"Applied edit to turn-{turn.number}.txt" in said else f"turn {turn.number} was lost: {said[-500:]}"


if __name__ == "__main__":
    suite.main()
