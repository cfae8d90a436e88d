"""Reads the advice for errors and events from comments in the code, which cost a gateway nothing at run time.

A block of comments begins with the meaning, ``# Event NAME: …``, ``# Error STATUS CODE: …`` or ``# Refusal WORD: …``.
Then follows ``# Do: …`` or, for an error, ``# Retry: …``, ``# Caller: …`` and ``# Operator: …``. A block without a
name begins with ``# Means: …``, and is for the class around it, or for the constant below it.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[2]
_FIRST = re.compile(r"\s*# (Event \S+|Error \d+ \S+|Refusal \S+|Means): (.*)")
_NEXT = re.compile(r"\s*# (Retry|Caller|Operator|Do): (.*)")
_ANY = re.compile(r"\s*# (.*)")


class Block(NamedTuple):
    """One advice: its subject (``Event ledger.pruned``, or ``""``), its parts, and the number of the line below it."""

    subject: str
    parts: Mapping[str, str]
    below: int  # counted from 1
    path: Path


class _Parts(dict[str, str]):
    """The parts of an advice; what is missing ends the program with what to write."""

    def __missing__(self, name: str) -> NoReturn:
        sys.exit(f"the comment that begins with {self['Means']!r} has no part `# {name}: …`: add it")


def demand(kind: str, names: Iterable[str]) -> Mapping[str, Block]:
    """Return the advice of a ``kind`` for each of ``names``; end the program with what to write if one has none."""
    found = named(kind)
    if missing := sorted(set(names) - found.keys()):
        sys.exit(
            f"no comment says what {', '.join(missing)} means: write `# {kind} {missing[0]}: …` and `# Do: …` in the"
            " lines above it, as tools/documentation/advice.py describes"
        )
    return found


def named(kind: str) -> Mapping[str, Block]:
    """Return all advice of a ``kind`` (``Event``, ``Error``, ``Refusal``), by the rest of its subject."""
    found: dict[str, Block] = {}
    for block in (each for path in files() for each in blocks(path)):
        word, _, name = block.subject.partition(" ")
        if word == kind:
            assert name not in found, f"{name} has advice in two places: {found[name].path}, {block.path}"
            found[name] = block
    return found


def of_class(defined: type) -> Mapping[str, str]:
    """Return the advice inside the class ``defined``; empty if there is none."""
    path, name = ROOT / f"{defined.__module__.replace('.', '/')}.py", defined.__name__
    body = _tree(path).body
    place, node = next((i, each) for i, each in enumerate(body) if isinstance(each, ast.ClassDef) and each.name == name)
    ends = body[place + 1].lineno if place + 1 < len(body) else sys.maxsize  # a comment may be the last of a class
    inside = [each for each in blocks(path) if not each.subject and node.lineno < each.below < ends]
    return inside[0].parts if inside else {}


def of_constants(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the advice above each constant of ``path``, including constants of classes, by the constant's name."""
    below = {each.below: each.parts for each in blocks(path) if not each.subject}
    return {
        node.targets[0].id: below[node.lineno]
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.lineno in below
    }


def files() -> Iterator[Path]:
    """Yield the Python files of ``gateway`` and ``providers``."""
    for folder in ("gateway", "providers"):
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def blocks(path: Path) -> tuple[Block, ...]:
    """Return the blocks of advice of a file."""
    found: list[Block] = []
    subject, parts, last = "", _Parts(), ""
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        begins, goes_on, words = _FIRST.fullmatch(line), _NEXT.fullmatch(line), _ANY.fullmatch(line)
        if parts and (begins or not words):
            found.append(Block(subject, parts, number, path))
            parts = _Parts()
        if begins:
            subject, last, parts = begins[1].removeprefix("Means"), "Means", _Parts({"Means": begins[2]})
        elif parts and goes_on:
            last = goes_on[1]
            parts[last] = goes_on[2]
        elif parts and words:
            parts[last] += f" {words[1]}"
    return tuple(found)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
