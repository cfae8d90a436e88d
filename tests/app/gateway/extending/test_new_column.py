"""A column is added as docs/contributing/first-day.md says: to a copy of the checkout, step by step."""

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import aiohttp

from gateway.ledger import head_revision
from providers.simulator import ScriptedProvider
from tests.app.gateway.process import CHECKOUT, COMMAND, started
from tests.app.gateway.running_gateway import chat_body, configuration

PAGE = (CHECKOUT / "docs" / "contributing" / "first-day.md").read_text(encoding="utf-8")
STEPS = PAGE[PAGE.index("\n## Add a column\n") : PAGE.index("\n## Add a vendor\n")]
# "In `file`, …, below `a line`:" and what is written there; or "a new file, `file`, …:" and its text.
_STEP = re.compile(
    r"`((?:gateway|migrations)/[\w./]+)`,[^\n]*?(?:below `([^\n]+)`)?:\n\n"
    r"(?: +<!-- [^\n]+ -->\n)?   ```\w+\n(.*?)   ```\n",
    re.DOTALL,
)
_MARGIN = re.compile("^   ", re.MULTILINE)  # of a list on the page
# What the page's words stand for, so that it names no migration that another change may bring.
NUMBERS = {"NEWEST": head_revision(), "NEXT": f"{int(head_revision()) + 1:04}"}
# Any column needs these two.
MEASURED, SHOWN = "gateway/api/admission.py", "gateway/page/assets/views/call.js"
MADE = """
import json
from gateway.core.calls import CallRecord
from gateway.core.columns import names_of
from tools.documentation import ledger_comments, ledger_page
traced = names_of(CallRecord, "traced")
print(json.dumps([traced, ledger_page.page(), ledger_comments.comments()["calls"]["http_version"]]))
"""


def numbered(steps: str) -> str:
    """Return the steps with the numbers of migrations, as they are today."""
    for word, number in NUMBERS.items():
        steps = steps.replace(word, number)
    return steps


def follow(folder: Path) -> set[str]:
    """Take the page's steps in a copy of the checkout; return the files that they open."""
    opened = set()
    for name, anchor, written in _STEP.findall(numbered(STEPS)):
        opened.add(name)
        file, lines = folder / name, _MARGIN.sub("", written)
        if not anchor:
            assert not file.exists()
            file.write_text(lines, encoding="utf-8")
            continue
        before = file.read_text(encoding="utf-8").splitlines(keepends=True)
        [at] = [number for number, line in enumerate(before) if line.rstrip("\n").endswith(anchor)]
        file.write_text("".join((*before[: at + 1], lines, *before[at + 1 :])), encoding="utf-8")
    return opened


async def run(folder: Path, *command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


def test_the_page_names_no_migration_that_another_change_may_bring() -> None:
    assert all(word in STEPS for word in NUMBERS)
    assert not re.search(r"\b\d{4}\b", STEPS)


async def test_a_column_that_is_added_by_the_page_is_everywhere(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for room in ("gateway", "providers", "holeshot", "migrations", "tools", "docs"):
        shutil.copytree(CHECKOUT / room, checkout / room, ignore=shutil.ignore_patterns("__pycache__"))
    opened = follow(checkout)
    assert len(opened - {MEASURED, SHOWN}) <= 2
    assert {MEASURED, SHOWN} < opened

    command = (COMMAND[0], *COMMAND[2:])  # without -P: the copy's own modules
    async with ScriptedProvider() as provider, aiohttp.ClientSession() as http:
        config = configuration(tmp_path, {"alpha": provider.base_url})
        async with started(config, tmp_path, command=command, cwd=checkout) as gateway:
            # Two calls of one client that are alike but for the column: of each its own value is stored.
            async with (
                aiohttp.ClientSession(version=aiohttp.HttpVersion10) as older,
                older.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response,
            ):
                await response.read()
            assert (await gateway.event("call.finished"))["http_version"] == "1.0"
            async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                call_id = response.headers["x-holeshot-call-id"]
                await response.read()
            line = await gateway.event("call.finished", 2)
            told: list[Any] = []
            for path in ("calls", f"calls/{call_id}"):
                async with http.get(f"{gateway.url}/api/{path}") as response:
                    told.append(await response.json())
            async with http.get(f"{gateway.url}/openapi.json") as response:
                schemas = (await response.json())["components"]["schemas"]
    assert line["http_version"] == "1.1"
    assert [told[0]["data"][0]["http_version"], told[1]["call"]["http_version"]] == ["1.1", "1.1"]
    for name in ("ListedCall", "CallRow"):
        assert "`1.0` or `1.1`" in schemas[name]["properties"]["http_version"]["description"]
    query = ("sql", "select http_version from calls", "--json", "--config", str(tmp_path / "gateway.yaml"))
    assert '"1.1"' in await run(checkout, *command, *query)
    traced, page, comment = json.loads(await run(checkout, sys.executable, "-c", MADE))
    assert "http_version" in traced
    assert (
        "\n`http_version`\n: The version of HTTP in which the client asked: `1.0` or `1.1`; null if unknown.\n" in page
    )
    assert comment == "The version of HTTP in which the client asked: 1.0 or 1.1; null if unknown."
