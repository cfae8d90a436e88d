"""Claude Code, on Anthropic's messages, as ``claude -p``."""

import json
from collections.abc import Mapping
from typing import Any

from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.signed_in import check_rows, sign_in
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "claude"
QUIET = (
    *("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING"),
    *("DISABLE_AUTOUPDATER", "DISABLE_NON_ESSENTIAL_MODEL_CALLS"),
)

suite = Suite("claude-code", version=lambda: version_of(PROGRAM))


def claude(target: Target, place: Workplace, prompt: str) -> Any:
    """Return what it reports of one task."""
    return _report(target, place, prompt, {"ANTHROPIC_BASE_URL": target.url, "ANTHROPIC_API_KEY": target.key})


def _report(target: Target, place: Workplace, prompt: str, environ: Mapping[str, str]) -> Any:
    environ = {**environ, **dict.fromkeys(QUIET, "1")}
    options = ("--model", target.messages, "--allowedTools", "Write,Read,Bash", "--output-format", "json")
    report = json.loads(place.run(PROGRAM, "-p", prompt, *options, environ=environ, may_fail=True))
    expect(not report["is_error"], report["result"])
    return report


@suite.case(Feature.ANSWERS)
def it_answers(target: Target) -> None:
    with workplace() as place:
        report = claude(target, place, "say: hello from the upstream")
    equal(report["result"], "hello from the upstream")


@suite.case(Feature.TASK)
def it_writes_a_file(target: Target) -> None:
    with workplace() as place:
        path = place.folder / "hello.txt"
        call = json.dumps({"file_path": str(path), "content": "written by claude"})
        report = claude(target, place, f"Write the file.\ncall: Write {call}")
        equal(path.read_text(), "written by claude")
    equal(report["num_turns"], 2)
    expect(report["usage"]["output_tokens"] > 0, report)


@suite.case(Feature.TOOLS)
def it_uses_two_tools_at_once(target: Target) -> None:
    with workplace() as place:
        calls = [
            json.dumps({"file_path": str(place.folder / f"{name}.txt"), "content": name}) for name in ("one", "two")
        ]
        claude(target, place, "\n".join(("Write the files.", *(f"call: Write {call}" for call in calls))))
        equal(sorted(path.read_text() for path in place.folder.glob("*.txt")), ["one", "two"])


@suite.case(Feature.SIGNED_IN)
def it_answers_whoever_signed_in_with_one_command(target: Target) -> None:
    with workplace() as place:
        sign_in(target, place, "claude-code")
        equal(_report(target, place, "say: hello from the upstream", {})["result"], "hello from the upstream")
        check_rows(target, place, target.messages)


if __name__ == "__main__":
    suite.main()
