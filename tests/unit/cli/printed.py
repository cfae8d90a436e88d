"""What commands print: ``printed.txt`` has configurations, and below each commands and what they print there.

``python -m tests.unit.cli.printed`` writes what they print today; the diff is what has changed. A new case is a
configuration (``gateway.yaml``, which each command reads) with its commands below it.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli.main import application
from tests.support import told

FILE = Path(__file__).with_name("printed.txt")


def said_of(case: told.Case, folder: Path) -> list[str]:
    """Run the case's commands in ``folder``, in an environment without keys; return them and what they print."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in list(os.environ):
            if name.startswith("HOLESHOT_") or name.endswith(("_KEY", "_TOKEN")):
                patch.delenv(name)
        Path("gateway.yaml").write_text(case.text, encoding="utf-8")
        commands = [line for line in case.said if line.startswith("> ")]
        return [line for command in commands for line in (command, *_printed(command[2:], case.environ))]


def _printed(line: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what a command prints, without a table's rules and the blanks between its columns.

    "check | price" prints the lines with this word, "check --json | .providers.host" this member of each provider.
    """
    command, _, wanted = line.partition(" | ")
    arguments = shlex.split(command)
    given = {"HOLESHOT_CONFIG": "gateway.yaml", "COLUMNS": "200", **environ}
    result = CliRunner().invoke(application(*arguments[:1]), arguments, env=given)
    out = [" ".join(each.split()) for each in result.stdout.splitlines()]
    if wanted.startswith("."):
        out = list(_members(json.loads(result.stdout), wanted[1:].split(".")))
        wanted = ""
    lines = [each for each in out if each.strip("─ ") and wanted in each]
    lines += [f"! {each.strip()}" for each in result.stderr.splitlines()]
    lines += [f"= {result.exit_code}"] if result.exit_code else []
    yield from lines or ["(nothing)"]


def _members(value: Any, names: list[str]) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _members(each, names)
    elif names and "," in names[0]:
        yield json.dumps({name: value[name] for name in names[0].split(",")})
    elif names:
        yield from _members(value[names[0]], names[1:])
    else:
        yield value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    told.write(FILE, said_of)
