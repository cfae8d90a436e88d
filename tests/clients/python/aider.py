"""aider, on OpenAI's chat completions, with one message."""

import json
import sys
from pathlib import Path

from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.workplace import Workplace, version_of, workplace

PROGRAM = Path(sys.executable).with_name("aider")
OPTIONS = (
    *("--no-show-model-warnings", "--yes-always", "--no-check-update", "--analytics-disable", "--no-git"),
    *("--edit-format", "whole", "--no-pretty", "--no-show-release-notes"),
)

suite = Suite("aider", version=lambda: version_of(PROGRAM))


def aider(target: Target, place: Workplace, prompt: str) -> str:
    """Return what it prints about one task."""
    prices = place.home / ".aider" / "caches" / "model_prices_and_context_window.json"
    prices.parent.mkdir(parents=True)
    prices.write_text(json.dumps({"fetched": {}}))  # it would fetch them, and wait for it
    environ = {
        "OPENAI_API_BASE": target.openai,
        "OPENAI_API_KEY": target.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # likewise
    }
    return place.run(PROGRAM, "--model", f"openai/{target.chat}", *OPTIONS, "--message", prompt, environ=environ)


@suite.case(Feature.TASK)
def it_writes_a_file(target: Target) -> None:
    with workplace() as place:
        text = "hello.txt\n```\nwritten by aider\n```\n"
        said = aider(target, place, f"Write the file.\nsay: {json.dumps(text)}")
        path = place.folder / "hello.txt"
        expect(path.exists(), said)
        equal(path.read_text().strip(), "written by aider")


if __name__ == "__main__":
    suite.main()
