"""What is said of configurations: ``messages.txt`` has them, and below each its problems or its notes.

``python -m tests.unit.settings.messages`` writes what is said today; the diff is what has changed. A new case is a
configuration with ``?`` below it. The head of the file describes its form.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from gateway.settings import ConfigurationError, doubtful, doubtful_model, doubtful_takeovers, load
from tests.unit.settings.conftest import CATALOG

FILE = Path(__file__).with_name("messages.txt")
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


def read(text: str) -> Iterator[tuple[str, list[Case]]]:
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


def said_of(case: Case, folder: Path) -> list[str]:
    """Load the configuration from ``folder``; return its problems, or if there are none what is noted."""
    path = folder / "gateway.yaml"
    path.write_text(case.text, encoding="utf-8")
    try:
        settings = load(path, case.environ, case.options, catalog=CATALOG)
    except ConfigurationError as error:
        return [str(problem).replace(f"{folder}/", "") for problem in error.problems]
    notes = [*doubtful_takeovers(settings, CATALOG), *doubtful(settings)]
    for name, model in settings.models.items():
        is_priced = any(each.price_per_mtok is not None for each in model.deployments)
        notes += doubtful_model(name, model, priced=is_priced)
    return [f"note: {note}" for note in notes] or ["(nothing)"]


def with_open_parts(said: Sequence[str], before: Sequence[str]) -> list[str]:
    """Return what is said, with "[…]" where the file leaves a part of it open."""
    patterns = (".*".join(map(re.escape, line.split("[…]"))) for line in before)
    told = itertools.zip_longest(said, before[: len(said)], patterns)
    return [old if old and re.fullmatch(pattern, new) else new for new, old, pattern in told if new is not None]


def _written(text: str) -> Iterator[str]:
    """Yield the lines of the file with what is said today."""
    with TemporaryDirectory() as folder:
        for lines, cases in read(text):
            yield lines
            found = {
                "".join(f"{line}\n" for line in with_open_parts(said_of(case, Path(folder)), case.said))
                for case in cases
            }
            if len(found) > 1 or SECRET in str(found):
                message = f"{cases[0]}: a secret, or its values need configurations of their own: {found}"
                raise SystemExit(message)
            yield from found


if __name__ == "__main__":
    FILE.write_text("".join(_written(FILE.read_text(encoding="utf-8"))), encoding="utf-8")
