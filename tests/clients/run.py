"""Put real clients through the gateway: ``make test WHAT=clients CLIENTS="openai-python curl"``, or ``WHAT=programs``.

Every case is tried at a lenient strict vendor directly, then at gateways before two such upstreams: ones that speak
the client's own dialect, and ones that do not, so that all is translated. Writes docs/reference/clients.md when all
clients ran. Ends with 1 if a case passes directly and fails at a gateway.

With ``--vendor`` they have conversations of ten turns instead, in their defaults, with strict stand-ins of vendors:
directly, and through gateways before them (``places.py``). ``--page`` keeps them in conversations.jsonl, in place of
earlier ones of the same kind, and writes docs/reference/programs.md of all.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.clients import installs, kept
from tests.clients.case import Target
from tests.clients.conversation import as_data
from tests.clients.gateways import GatewayFailed, mistakes_in
from tests.clients.matrix import Matrix, Talked, page_of
from tests.clients.mixed import MIXES
from tests.clients.places import EVERYWHERE, SETUPS, Ground, ground, said
from tests.clients.table import Result, Table
from tests.clients.targets import AUDIENCE, GATEWAYS, LAPTOPS, plan_of, targets
from tests.identity import Identity

HERE = Path(__file__).parent
DOCS = installs.CHECKOUT / "docs" / "reference" / "clients.md"
PROGRAMS_PAGE = DOCS.with_name("programs.md")
CASES = installs.CHECKOUT / "tests" / "clients" / "RESULTS.md"
TARGETS = ("directly", *GATEWAYS)


class Program(msgspec.Struct, frozen=True):
    """The file of one client, and what it runs in: an environment of Python, node, or the checkout's own Python.

    ``packages`` is the environment of Node in which a program is, if it needs Node. What ``holds`` its turns also has
    sessions that outgrow the model's context, or in which something goes wrong.
    """

    name: str
    file: str
    environment: str
    needs_node: bool = False
    packages: str = "node"
    holds: bool = False


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
    Program("pipecat", "python/pipecat_ai.py", "raced"),
    Program("pipecat-raced", "python/raced_pipecat.py", "raced"),
    Program("livekit-raced", "python/raced_livekit.py", "raced"),
    Program("pydantic-ai-raced", "python/raced_pydantic_ai.py", "raced"),
    Program("langchain-raced", "python/raced_langchain.py", "raced"),
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
# Those that have conversations with vendors.
TALKERS = (
    Program("openai-python", "programs/openai_python.py", "openai-3", holds=True),
    Program("openai-node", "programs/openai_node.mjs", "node", needs_node=True, holds=True),
    Program("openai-agents", "programs/openai_agents.py", "openai-3", holds=True),
    Program("openai-agents-node", "programs/openai_agents_node.mjs", "node", needs_node=True, holds=True),
    Program("ai-sdk", "programs/ai_sdk.mjs", "node", needs_node=True, holds=True),
    Program("langchain", "programs/langchain.py", "openai-3"),
    Program("llama-index", "programs/llama_index.py", "openai-2"),
    Program("pydantic-ai", "programs/pydantic_ai.py", "openai-3"),
    Program("instructor", "programs/instructor.py", "openai-2"),
    Program("anthropic-python", "programs/anthropic_python.py", "openai-3", holds=True),
    Program("anthropic-node", "programs/anthropic_node.mjs", "node", needs_node=True, holds=True),
    Program("google-genai", "programs/google_genai.py", "google", holds=True),
    Program("google-genai-node", "programs/google_genai_node.mjs", "node", needs_node=True, holds=True),
    Program("claude-code", "programs/claude_code.py", "own", needs_node=True, holds=True),
    Program("codex", "programs/codex.py", "own", needs_node=True, holds=True),
    Program("gemini-cli", "programs/gemini_cli.py", "own", needs_node=True, holds=True),
    Program("opencode", "programs/opencode.py", "own", needs_node=True, holds=True),
    Program("qwen-code", "programs/qwen_code.py", "own", needs_node=True, holds=True),
    Program("pi", "programs/pi.py", "own", needs_node=True, packages="pi", holds=True),
    Program("aider", "programs/aider.py", "aider", holds=True),
)


def main() -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(dict.fromkeys(program.name for program in (*PROGRAMS, *TALKERS)))
    vendors = sorted({place.vendor for place in EVERYWHERE} | {place.name for place in EVERYWHERE})
    parser.add_argument("clients", nargs="*", choices=[[], *names], metavar="CLIENT", help=", ".join(names))
    parser.add_argument("--case", default="", help="only cases with this in their title; writes no table")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only there")
    parser.add_argument(
        "--vendor",
        action="append",
        choices=["all", *vendors],
        metavar="VENDOR",
        help=f"have conversations there: all, {', '.join(vendors)}",
    )
    parser.add_argument("--setup", action="append", choices=SETUPS, help="talk only so")
    parser.add_argument(
        "--keep", type=Path, help="a folder for what vendors were asked where something failed or was refused"
    )
    parser.add_argument(
        "--page", action="store_true", help="keep these conversations in place of earlier ones, and write their page"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    asked = parser.parse_args()
    if asked.vendor:
        return _talk(asked)
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


def _talk(asked: argparse.Namespace) -> int:
    programs = [program for program in TALKERS if not asked.clients or program.name in asked.clients]
    vendors = sorted({place.vendor for place in EVERYWHERE}) if "all" in asked.vendor else asked.vendor
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holeshot-clients-") as folder:
        matrix, crashes = asyncio.run(_conversations(programs, vendors, asked, Path(folder)))
        for log in sorted(Path(folder).glob("*/log")):
            crashes += [(f"the gateway ({log.parent.name})", problem) for problem in mistakes_in(log)]
            crashes += [(f"the gateway ({log.parent.name})", problem) for problem in matrix.asked_again(log)]
    for crash in crashes:
        matrix.crash(*crash)
    matrix.seconds = time.monotonic() - began
    if asked.page:
        kept.keep(matrix.talks)
        PROGRAMS_PAGE.write_text(page_of(kept.read()))
    print(json.dumps(matrix.as_json(), indent=1) if asked.json else matrix.as_text())  # noqa: T201 - the result
    return 1 if matrix.failed else 0


async def _conversations(
    programs: Sequence[Program], vendors: Sequence[str], asked: argparse.Namespace, folder: Path
) -> tuple[Matrix, list[tuple[str, str]]]:
    commands, crashes = _commands(programs)
    async with ground(folder, vendors, asked.setup or SETUPS) as had:
        plan = folder / "plan.json"
        turns = {
            each.name: as_data(sees=each.sees, parallel=each.parallel, long=each.long, goes=each.goes)
            for each in had.targets
        }
        matrix = Matrix(asked.setup or SETUPS, had.missing)
        for program in programs:
            if program.name in commands:
                places = [each for each in had.targets if program.holds or not (each.long or each.goes)]
                plan.write_bytes(plan_of(places, turns))
                lines, code = await _lines_of(program, commands[program.name], plan, asked.case, folder)
                talks = [_heard(Talked(**{**line, "client": program.name}), had) for line in lines]
                matrix.add(talks)
                if code:
                    crashes.append((program.name, f"it ended with {code}"))
                if asked.keep is not None:
                    _keep(asked.keep, talks, had)
    return matrix, crashes


def _heard(talk: Talked, had: Ground) -> Talked:
    """Return a conversation with what stand-ins refused in it."""
    exchanges = had.between(talk.began, talk.ended)
    refused = [f"{each.vendor}: {said(each.answered)}" for each in exchanges if each.status >= 400]
    mix = next((each for each in MIXES if each.name == talk.place), None)
    seldom = [] if mix is None else mix.seldom(Counter(each.vendor for each in exchanges if each.method != "GET"))
    why = talk.why if mix is None or not mix.show else mix.stopped(talk.why, talk.turn)
    return msgspec.structs.replace(talk, why=why, refusals=(*refused, *seldom))


def _keep(folder: Path, talks: Sequence[Talked], had: Ground) -> None:
    """Write what vendors were asked and refused in each conversation where something failed or was refused."""
    folder.mkdir(parents=True, exist_ok=True)
    for talk in talks:
        if talk.why or talk.refusals:
            name = f"{talk.client}-{talk.case}-{talk.target}".translate(str.maketrans(" /|:", "____"))
            kept = {"talk": talk, "exchanges": had.between(talk.began, talk.ended)}
            (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept, enc_hook=str)))


async def _run(programs: Sequence[Program], wanted: frozenset[str], case: str, folder: Path) -> Table:
    table = Table([name for name in TARGETS if name in wanted])
    commands, missing = _commands(programs)
    for name, why in missing:
        table.skip(name, why)
    async with Identity() as issuer, targets(folder, wanted, issuer.url) as places:
        issuer.waits = True
        issuer.access = {"aud": AUDIENCE, "client_id": LAPTOPS, "sub": "ann"}
        plan = folder / "plan.json"
        plan.write_bytes(plan_of(places))
        for program in programs:
            if program.name not in commands:
                continue
            name = program.name
            lines, code = await _lines_of(program, commands[name], plan, case, folder)
            # By the program's name: two versions of a client are two rows.
            table.add(Result(**{**line, "client": name}) for line in lines)
            if code:
                table.crash(name, f"it ended with {code}")
            for problem in await _left_behind(places):
                table.crash(name, problem)
        table.tell(await _counts(places))
    return table


def _commands(programs: Sequence[Program]) -> tuple[Mapping[str, list[str]], list[tuple[str, str]]]:
    """Install what programs need; return how each is run, and why some are not."""
    commands: dict[str, list[str]] = {}
    missing = []
    for program in programs:
        try:
            commands[program.name] = _command(program)
        except (installs.Missing, subprocess.CalledProcessError) as error:
            missing.append((program.name, str(error)))
    return commands, missing


async def _lines_of(
    program: Program, command: Sequence[str], plan: Path, case: str, folder: Path
) -> tuple[list[Any], int]:
    """Run one program by its plan; return what it wrote of each case, and its exit code."""
    results = folder / f"{program.name}.jsonl"
    results.touch()
    arguments = [str(plan), str(results), *(["--case", case] if case else [])]
    print(f"{program.name} ...", file=sys.stderr, flush=True)  # noqa: T201 - it takes a while
    environ = installs.environment(folder, command[0], _node_of(program))
    process = await asyncio.create_subprocess_exec(*command, *arguments, cwd=installs.CHECKOUT, env=environ)
    code = await process.wait()
    return [json.loads(line) for line in results.read_text().splitlines()], code


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
    return program.environment if program.environment in installs.NODES else program.packages


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
