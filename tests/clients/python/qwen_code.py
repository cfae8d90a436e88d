"""Qwen Code, on OpenAI's chat completions, as ``qwen -p``."""

import json

from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "qwen"

suite = Suite("qwen-code", version=lambda: version_of(PROGRAM))


def qwen(target: Target, place: Workplace, prompt: str) -> str:
    """Return what it prints about one task."""
    environ = {"OPENAI_BASE_URL": target.openai, "OPENAI_API_KEY": target.key, "OPENAI_MODEL": target.chat}
    settings = place.home / ".qwen"
    settings.mkdir()
    quiet = {"privacy": {"usageStatisticsEnabled": False}, "general": {"disableAutoUpdate": True}}
    (settings / "settings.json").write_text(json.dumps(quiet))
    return place.run(PROGRAM, "--yolo", "--auth-type", "openai", "-p", prompt, environ=environ)


@suite.case(Feature.ANSWERS)
def it_answers(target: Target) -> None:
    with workplace() as place:
        said = qwen(target, place, "say: hello from the upstream")
    expect("hello from the upstream" in said, said)


@suite.case(Feature.TASK)
def it_writes_a_file(target: Target) -> None:
    with workplace() as place:
        path = place.folder / "hello.txt"
        call = json.dumps({"file_path": str(path), "content": "written by qwen"})
        said = qwen(target, place, f"Write the file.\ncall: write_file {call}")
        expect(path.exists(), said)
        equal(path.read_text().strip(), "written by qwen")


if __name__ == "__main__":
    suite.main()
