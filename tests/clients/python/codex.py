"""Codex, on OpenAI's responses, as ``codex exec``.

One of its tools exists at OpenAI alone, a hosted web search: it is turned off, so that Codex can be raced by
deployments that speak something else.
"""

import json
from collections.abc import Mapping

from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.signed_in import check_rows, sign_in
from tests.clients.workplace import NODE_PROGRAMS, Workplace, version_of, workplace

PROGRAM = NODE_PROGRAMS / "codex"
CONFIG = """
model = "{model}"
model_provider = "holeshot"
check_for_update_on_startup = false
web_search = "disabled"
[analytics]
enabled = false
[model_providers.holeshot]
name = "Holeshot"
base_url = "{url}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
supports_websockets = {over_a_websocket}
"""

suite = Suite("codex", version=lambda: version_of(PROGRAM))


def codex(target: Target, place: Workplace, prompt: str, *, over_a_websocket: bool = False) -> str:
    """Return the last thing it says about one task."""
    folder = place.home / ".codex"
    folder.mkdir()
    config = CONFIG.format(model=target.responses, url=target.openai, over_a_websocket=str(over_a_websocket).lower())
    (folder / "config.toml").write_text(config)
    return _last(place, prompt, environ={"GATEWAY_KEY": target.key})


def _last(place: Workplace, *arguments: str, environ: Mapping[str, str]) -> str:
    last = place.home / "last.txt"
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-o", str(last))
    place.run(PROGRAM, "exec", *options, *arguments, environ=environ)
    return last.read_text().strip()


@suite.case(Feature.ANSWERS)
def it_answers(target: Target) -> None:
    with workplace() as place:
        equal(codex(target, place, "say: hello from the upstream"), "hello from the upstream")


@suite.case(Feature.TASK)
def it_writes_a_file(target: Target) -> None:
    with workplace() as place:
        call = json.dumps({"cmd": "printf 'written by codex' > hello.txt"})
        said = codex(target, place, f"Write the file.\ncall: exec_command {call}")
        equal((place.folder / "hello.txt").read_text(), "written by codex")
    expect("exited with code 0" in said, said)


@suite.case(Feature.TASK)
def it_writes_a_file_over_a_websocket(target: Target) -> None:
    with workplace() as place:  # the upstream alone has none, so there it goes on with POST
        call = json.dumps({"cmd": "printf 'written by codex' > hello.txt"})
        said = codex(target, place, f"Write the file.\ncall: exec_command {call}", over_a_websocket=True)
        equal((place.folder / "hello.txt").read_text(), "written by codex")
    expect("exited with code 0" in said, said)


@suite.case(Feature.SIGNED_IN)
def it_answers_whoever_signed_in_with_one_command(target: Target) -> None:
    with workplace() as place:
        sign_in(target, place, "codex")
        options = ("-m", target.responses, *(("-c", "web_search=disabled") if target.translates else ()))
        equal(_last(place, *options, "say: hello from the upstream", environ={}), "hello from the upstream")
        check_rows(target, place, target.responses)


if __name__ == "__main__":
    suite.main()
