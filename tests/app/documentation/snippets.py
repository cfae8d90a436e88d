"""The fenced blocks of the pages that show how to do something, and whether each says that it is not run.

A block with a path after its language (``yaml config.yaml``) is a file: the commands of its page find it there.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[3]
SHELL = frozenset({"bash", "sh"})
RUN = frozenset({*SHELL, "python", "yaml", "json", "toml", "sql"})
CONFIGURATIONS = frozenset({"", "config/gateway.yaml"})  # the variants of YAML that are the gateway's own
SHOWN = frozenset({"text"})  # what a program has printed
_PATTERNS = (
    "README.md",
    "docs/*.md",
    "docs/using/*.md",
    "docs/concepts/*.md",
    "docs/contributing/*.md",
    "docs/guides/*.md",
)
_OF_OTHERS = frozenset({"sql.md"})  # tests/services/ledger/test_sql_page.py runs its statements
_BLOCK = re.compile(
    r"^(?P<above>[^\n]*)\n *(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^ *(?P=fence) *$", re.DOTALL | re.MULTILINE
)
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block: where it starts, its language, its variant ("sql sqlite": sqlite), why it is not run (None: it is).

    The variant of a file is its path.
    """

    page: str
    line: int
    language: str
    variant: str
    text: str
    reason: str | None

    @property
    def is_run(self) -> bool:
        return self.reason is None and self.language in RUN

    @property
    def is_file(self) -> bool:
        return self.is_run and "." in self.variant

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the paths of the pages, below the checkout."""
    found = (path for pattern in _PATTERNS for path in ROOT.glob(pattern))
    return sorted(path.relative_to(ROOT).as_posix() for path in found if path.name not in _OF_OTHERS)


def snippets_in(page: str, text: str) -> list[Snippet]:
    """Return the blocks of ``text``, but directives of the site."""
    found = []
    for match in _BLOCK.finditer("\n" + text):
        language, _, variant = match["info"].strip().partition(" ")
        if language.startswith("{"):
            continue
        marked = _NOT_RUN.fullmatch(match["above"].strip())
        line = text.count("\n", 0, match.start("fence") - 1) + 1
        found.append(
            Snippet(page, line, language, variant.strip(), dedent(match["text"]), marked[1] if marked else None)
        )
    return found


def snippets(*languages: str) -> list[Snippet]:
    """Return the blocks in any of ``languages`` that are run, on all pages."""
    read = [each for page in pages() for each in snippets_in(page, (ROOT / page).read_text(encoding="utf-8"))]
    return [each for each in read if each.language in languages and each.is_run]
