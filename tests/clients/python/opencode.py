"""opencode, on OpenAI's chat completions, as ``opencode run``."""

import json

from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.signed_in import check_rows, sign_in
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "opencode"

suite = Suite("opencode", version=lambda: version_of(PROGRAM))


def opencode(target: Target, place: Workplace, prompt: str) -> str:
    """Return what it prints about one task."""
    model = f"holeshot/{target.chat}"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Holeshot",
        "options": {"baseURL": target.openai, "apiKey": target.key},
        "models": {target.chat: {"name": target.chat}},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": model,
        "small_model": model,
        "provider": {"holeshot": provider},
    }
    (place.folder / "opencode.json").write_text(json.dumps(config))
    return _said(place, prompt)


def _said(place: Workplace, prompt: str, *options: str) -> str:
    environ = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return place.run(PROGRAM, "run", *options, environ=environ, said=prompt)  # as an argument it would be quoted


@suite.case(Feature.ANSWERS)
def it_answers(target: Target) -> None:
    with workplace() as place:
        said = opencode(target, place, "say: hello from the upstream")
    expect("hello from the upstream" in said, said)


@suite.case(Feature.TASK)
def it_writes_a_file(target: Target) -> None:
    with workplace() as place:
        path = place.folder / "hello.txt"
        call = json.dumps({"filePath": str(path), "content": "written by opencode"})
        said = opencode(target, place, f"Write the file.\ncall: write {call}")
        expect(path.exists(), said)
        equal(path.read_text().strip(), "written by opencode")


@suite.case(Feature.SIGNED_IN)
def it_answers_whoever_signed_in_with_one_command(target: Target) -> None:
    with workplace() as place:
        sign_in(target, place, "opencode")
        said = _said(place, "say: hello from the upstream", "-m", f"holeshot/{target.chat}")
        expect("hello from the upstream" in said, said)
        check_rows(target, place, target.chat)


if __name__ == "__main__":
    suite.main()
