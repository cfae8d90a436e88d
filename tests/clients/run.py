"""Put real clients through the gateway: ``make test WHAT=clients CLIENTS="openai-python curl"``.

Every case is tried at the deterministic upstream directly, then at gateways before two such upstreams: ones that speak
the client's own dialect, and ones that do not, so that all is translated. Writes docs/reference/clients.md when all
clients ran. Ends with 1 if a case passes directly and fails at a gateway.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.clients import installs
from tests.clients.case import Target
from tests.clients.gateways import GatewayFailed, mistakes_in
from tests.clients.table import Result, Table
from tests.clients.targets import GATEWAYS, plan_of, targets

HERE = Path(__file__).parent
DOCS = installs.CHECKOUT / "docs" / "reference" / "clients.md"
CASES = installs.CHECKOUT / "tests" / "clients" / "RESULTS.md"
TARGETS = ("directly", *GATEWAYS)


class Program(msgspec.Struct, frozen=True):
    """The file of one client, and what it runs in: an environment of Python, node, or the checkout's own Python."""

    name: str
    file: str
    environment: str
    needs_node: bool = False


PROGRAMS = (
    Program("openai-python", "python/openai_python.py", "openai-3"),
    Program("openai-python-2", "python/openai_python.py", "openai-2"),
    Program("anthropic-python", "python/anthropic_python.py", "openai-3"),
    Program("anthropic-python-1", "python/anthropic_python.py", "former"),
    Program("google-genai", "python/google_genai.py", "google"),
    Program("google-genai-2", "python/google_genai.py", "former"),
    Program("cohere", "python/cohere_python.py", "cohere"),
    Program("langchain", "python/langchain.py", "openai-3"),
    Program("pydantic-ai", "python/pydantic_ai.py", "openai-3"),
    Program("llama-index", "python/llama_index.py", "openai-2"),
    Program("instructor", "python/instructor.py", "openai-2"),
    Program("llm", "python/llm.py", "openai-3"),
    Program("pipecat", "python/pipecat_ai.py", "voice"),
    Program("openai-node", "node/openai_node.mjs", "node", needs_node=True),
    Program("openai-node-6", "node/openai_node.mjs", "node-former", needs_node=True),
    Program("ai-sdk", "node/ai_sdk.mjs", "node", needs_node=True),
    Program("curl", "python/curl.py", "own"),
    Program("claude-code", "python/claude_code.py", "own", needs_node=True),
    Program("codex", "python/codex.py", "own", needs_node=True),
    Program("opencode", "python/opencode.py", "own", needs_node=True),
    Program("qwen-code", "python/qwen_code.py", "own", needs_node=True),
    Program("aider", "python/aider.py", "aider"),
)


def main() -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [program.name for program in PROGRAMS]
    parser.add_argument("clients", nargs="*", choices=[[], *names], metavar="CLIENT", help=", ".join(names))
    parser.add_argument("--case", default="", help="only cases with this in their title; writes no table")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only there")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    asked = parser.parse_args()
    programs = [program for program in PROGRAMS if not asked.clients or program.name in asked.clients]
    wanted = frozenset(asked.target or TARGETS)
    try:
        with tempfile.TemporaryDirectory(prefix="holeshot-clients-") as folder:
            table = asyncio.run(_run(programs, wanted, asked.case, Path(folder)))
            for log in sorted(Path(folder).glob("*/log")):
                for problem in mistakes_in(log):
                    table.crash(f"the gateway ({log.parent.name})", problem)
    except GatewayFailed as error:
        print(error, file=sys.stderr)  # noqa: T201 - why there is no result
        return 1
    everything = not (asked.clients or asked.case or asked.target)
    if everything and not table.skipped:
        DOCS.write_text(table.as_markdown())
        CASES.write_text(table.as_cases())
    print(json.dumps(table.as_json(), indent=1) if asked.json else table.as_text())  # noqa: T201 - the result
    return 1 if table.failed else 0


async def _run(programs: Sequence[Program], wanted: frozenset[str], case: str, folder: Path) -> Table:
    table = Table([name for name in TARGETS if name in wanted])
    nodes = {program.name: _node_of(program) for program in programs}
    commands: dict[str, list[str]] = {}
    for program in programs:
        try:
            commands[program.name] = _command(program)
        except (installs.Missing, subprocess.CalledProcessError) as error:
            table.skip(program.name, str(error))
    async with targets(folder, wanted) as places:
        plan = folder / "plan.json"
        plan.write_bytes(plan_of(places))
        for name, command in commands.items():
            results = folder / f"{name}.jsonl"
            results.touch()
            arguments = [str(plan), str(results), *(["--case", case] if case else [])]
            print(f"{name} ...", file=sys.stderr, flush=True)  # noqa: T201 - it takes a while
            process = await asyncio.create_subprocess_exec(
                *command, *arguments, cwd=installs.CHECKOUT, env=installs.environment(folder, command[0], nodes[name])
            )
            code = await process.wait()
            # By the program's name: two versions of a client are two rows.
            table.add(Result(**{**json.loads(line), "client": name}) for line in results.read_text().splitlines())
            if code:
                table.crash(name, f"it ended with {code}")
            for problem in await _left_behind(places):
                table.crash(name, problem)
        table.tell(await _counts(places))
    return table


def _command(program: Program) -> list[str]:
    if program.needs_node:
        installs.node(_node_of(program))
    if program.environment in installs.NODES:
        return ["node", str(HERE / program.file)]
    own = program.environment == "own"
    interpreter = Path(sys.executable) if own else installs.python(program.environment)
    return [str(interpreter), "-m", f"tests.clients.{program.file.removesuffix('.py').replace('/', '.')}"]


def _node_of(program: Program) -> str:
    """Return the environment of Node that a program finds its packages in, if it needs any."""
    return program.environment if program.environment in installs.NODES else "node"


async def _left_behind(places: Sequence[Target]) -> list[str]:
    """Wait until no upstream has anything under way; return what goes on all the same."""
    answers = await _control(places, "quiet")
    return [f"requests to {url} go on after their clients left" for url, said in answers if not said["quiet"]]


async def _counts(places: Sequence[Target]) -> dict[str, int]:
    answers = await _control(places, "counts")
    return {
        word: sum(sum(said[word].values()) for _, said in answers) for word in ("begun", "answered", "refused", "cut")
    }


async def _control(places: Sequence[Target], what: str) -> list[tuple[str, Any]]:
    urls = dict.fromkeys(url for place in places for url in place.upstreams)
    answers = []
    async with aiohttp.ClientSession() as session:
        for url in urls:
            async with session.get(f"{url}/control/{what}") as response:
                answers.append((url, await response.json()))
    return answers


if __name__ == "__main__":
    sys.exit(main())
