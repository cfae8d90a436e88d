"""Files of configurations, and below each what is said of it: people read them, and one command writes them.

A heading (``# …``) says what its cases have in common. A case is a configuration, indented, and below it what is said.
Before the configuration stand variables (``$ NAME=value``, in quotes as JSON) and options (``$ --name=value``); one
with several values is a case for each. Lines that begin with ``+ `` below a heading are around each of its
configurations, which stands where ``%`` is. ``[…]`` is left open. Whatever has "hush" in it may be a secret.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

SECRET = "hush"  # a part of whatever may be a secret
_PIECES = re.compile(r"((?:    .*\n)+)((?:[^ #+\n].*\n)+)|(.*\n)")  # a configuration and what is said, or another line


class Case(NamedTuple):
    """A configuration, and what the file says is said of it."""

    title: str
    written: str  # as it stands in the file
    text: str
    environ: Mapping[str, str]
    options: Mapping[str, str]
    said: Sequence[str]

    def __str__(self) -> str:
        """Return the id of its test: "The title: the configuration in one line"."""
        return f"{self.title}: {' '.join(self.written.split())}".encode("ascii", "backslashreplace").decode()


SaidOf = Callable[[Case, Path], Sequence[str]]  # of a case, in an empty folder


def cases(file: Path) -> list[Case]:
    """Return all cases of a file."""
    return [case for _, found in _read(file.read_text(encoding="utf-8")) for case in found]


def check(case: Case, said: Sequence[str]) -> None:
    """Assert that what is said of a case is what its file has, and shows nothing that may be a secret."""
    assert with_open_parts(said, case.said) == case.said
    assert SECRET not in "\n".join(said)


def with_open_parts(said: Sequence[str], before: Sequence[str]) -> list[str]:
    """Return what is said, with "[…]" where the file leaves a part of it open."""
    patterns = (".*".join(map(re.escape, line.split("[…]"))) for line in before)
    told = itertools.zip_longest(said, before[: len(said)], patterns)
    return [old if old and re.fullmatch(pattern, new) else new for new, old, pattern in told if new is not None]


def write(file: Path, said_of: SaidOf) -> None:
    """Write what is said today into a file."""
    file.write_text("".join(_written(file.read_text(encoding="utf-8"), said_of)), encoding="utf-8")


def _written(text: str, said_of: SaidOf) -> Iterator[str]:
    for lines, of_lines in _read(text):
        yield lines
        found = set()
        for case in of_lines:
            with TemporaryDirectory() as folder:
                said = with_open_parts(said_of(case, Path(folder)), case.said)
            found.add("".join(f"{line}\n" for line in said))
        if len(found) > 1 or SECRET in str(found):
            message = f"{of_lines[0]}: a secret, or its values need configurations of their own: {found}"
            raise SystemExit(message)
        yield from found


def _read(text: str) -> Iterator[tuple[str, list[Case]]]:
    """Yield each configuration as it stands with its cases, several if a variable has several values; other lines."""
    title, frame = "", ""
    for own, said, other in _PIECES.findall(text):
        if other.startswith("# "):
            title, frame = other[2:-1], ""
        elif other.startswith("+ "):
            frame += other[2:]
        yield own or other, list(_cases(title, frame or "%\n", own, said.splitlines())) if own else []


def _cases(title: str, frame: str, own: str, said: list[str]) -> Iterator[Case]:
    text = "\n".join(line[4:] for line in own.splitlines())
    lines = frame.replace("%", text).splitlines(keepends=True)
    values: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("$ "):
            name, _, value = line[2:-1].partition("=")
            values.setdefault(name, []).append(json.loads(value) if value.startswith('"') else value)
    configuration = "".join(line for line in lines if not line.startswith("$ "))
    for chosen in itertools.product(*values.values()):
        given = dict(zip(values, chosen, strict=True))
        environ = {name: value for name, value in given.items() if not name.startswith("--")}
        options = {name[2:]: value for name, value in given.items() if name.startswith("--")}
        written = " ".join([text, *(value for name, value in given.items() if len(values[name]) > 1)])
        yield Case(title, written, configuration, environ, options, said)
