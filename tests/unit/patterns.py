"""Finds every regular expression of the product, and inputs that would take it long; run as a module, it lists them."""

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

ROOMS = ("gateway", "providers")
_ROOT = Path(__file__).parents[2]
_parser: Any = re._parser  # type: ignore[attr-defined]
_METHODS = ("match", "fullmatch", "search", "sub", "split", "findall", "finditer")
_ENDS = ("", "\0", "!")
_MORE = 'a0A \n"\\:-_./@&%<>=?#'
_MOST_PUMPS = 50


class Found(NamedTuple):
    """A pattern, where it is compiled, and the methods of it that are called."""

    where: str
    text: str
    flags: int
    is_bytes: bool
    methods: tuple[str, ...]

    def compiled(self) -> re.Pattern[Any]:
        """Return the pattern as the product has it."""
        return re.compile(self.text.encode("latin-1") if self.is_bytes else self.text, self.flags)


def patterns() -> list[Found]:
    """Return each pattern that is compiled while the product is imported, and each that is used without a name."""
    listed = subprocess.run(
        [sys.executable, "-m", "tests.unit.patterns"], cwd=_ROOT, check=True, capture_output=True, text=True
    )
    return [
        Found(where, text, flags, is_bytes, tuple(methods))
        for where, text, flags, is_bytes, methods in json.loads(listed.stdout)
    ]


def _list() -> list[Any]:
    """Import everything while ``re.compile`` notes who calls it."""
    found: dict[tuple[str, int, str], list[Any]] = {}
    compile_ = re.compile

    def noting(pattern: Any, flags: int = 0) -> Any:
        made = compile_(pattern, flags)
        caller = sys._getframe(1)
        path = Path(caller.f_code.co_filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in ROOMS and isinstance(made, re.Pattern):
            said = made.pattern
            is_bytes = isinstance(said, bytes)
            text = said.decode("latin-1") if is_bytes else said
            where = f"{path.relative_to(_ROOT)}:{caller.f_lineno}"
            flags = made.flags & ~(0 if is_bytes else re.UNICODE)
            found[where, caller.f_lineno, text] = [where, text, int(flags), is_bytes]
        return made

    re.compile = noting
    for room in ROOMS:
        for module in pkgutil.walk_packages([str(_ROOT / room)], f"{room}."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except ImportError:  # an optional package is not installed
                    continue
    re.compile = compile_
    uses = _uses()
    return [*([*each, _methods(uses, each[0])] for each in found.values()), *_unnamed()]


def _methods(uses: dict[str, tuple[str, ...]], where: str) -> list[str]:
    """Return the methods that are called on a pattern; where that is unknown ``search``, which may take longest."""
    return sorted({method for name in _names_at(where) for method in uses.get(name, ())}) or ["search"]


@cache
def _sources() -> dict[str, ast.Module]:
    """Return the files in which there are patterns, by their paths."""
    texts = {
        str(path.relative_to(_ROOT)): path.read_text()
        for room in ROOMS
        for path in sorted((_ROOT / room).rglob("*.py"))
    }
    return {where: ast.parse(text) for where, text in texts.items() if re.search(r"\bre\.\w", text)}


def _uses() -> dict[str, tuple[str, ...]]:
    """Return by the name of each variable which methods of patterns are called on it."""
    uses: dict[str, set[str]] = {}
    for where, tree in _sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _METHODS:
                uses.setdefault(f"{where} {node.value.id}", set()).add(node.attr)
    return {name: tuple(sorted(methods)) for name, methods in uses.items()}


def _names_at(where: str) -> list[str]:
    """Return the file with the name of each variable to which the line assigns."""
    path, line = where.split(":")
    for node in _sources()[path].body:
        if node.lineno <= int(line) <= (node.end_lineno or 0) and isinstance(node, ast.Assign):
            return [f"{path} {each.id}" for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)]
    return []


def _unnamed() -> Iterator[list[Any]]:
    """Yield the patterns that are written where they are used: ``re.sub("…", …)``."""
    for where, tree in _sources().items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Attribute(ast.Name("re"), method), [ast.Constant(str(text)), *_]) if (
                    method in _METHODS
                ):
                    yield [f"{where}:{node.lineno}", text, 0, False, [method]]


def worst_inputs(found: Found) -> Iterator[tuple[str, str, str]]:
    """Yield beginnings, pieces to be repeated, and ends with which a pattern might take long."""
    tree = list(_parser.parse(found.text, found.flags))
    beginnings = list(dict.fromkeys(["", *_beginnings(tree)]))[:6]
    pumps = list(dict.fromkeys([*_pumps(tree), *_MORE]))[:_MOST_PUMPS]
    for pump in filter(None, pumps):
        for beginning in beginnings:
            for end in _ENDS:
                yield beginning, pump, end


def _beginnings(items: Sequence[Any]) -> Iterator[str]:
    for number in range(1, len(items) + 1):
        yield "".join(map(_sample, items[:number]))


def _pumps(items: Sequence[Any]) -> Iterator[str]:
    """Yield what parts of a pattern match: each item, and each run of items."""
    items = _with_words(items)
    for begin in range(len(items)):
        for end in range(begin + 1, min(len(items), begin + 6) + 1):
            yield "".join(map(_sample, items[begin:end]))
            yield "".join(_sample(item, fewest=True) for item in items[begin:end])
            yield "".join(_sample(item, last=True) for item in items[begin:end])
    for item in items:
        for inner in _inside(item):
            yield from _pumps(inner)


def _with_words(items: Sequence[Any]) -> list[Any]:
    """Return the items with each run of letters as one of them: a part of a word would not reach what follows it."""
    words: list[Any] = []
    for is_letter, run in groupby(items, lambda item: str(item[0]) == "LITERAL"):
        found = list(run)
        words += [("WORD", "".join(map(_sample, found)))] if is_letter else found
    return words


def _inside(item: Any) -> list[Any]:
    name, value = str(item[0]), item[1]
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        return [list(value[2])]
    if name == "SUBPATTERN":
        return [list(value[3])]
    if name == "ATOMIC_GROUP":
        return [list(value)]
    if name in {"ASSERT", "ASSERT_NOT"}:
        return [list(value[1])]
    if name == "BRANCH":
        return [list(each) for each in value[1]]
    return []


def _sample(item: Any, *, fewest: bool = False, last: bool = False) -> str:
    """Return a text that an item of a pattern matches; repeats once, or with ``fewest`` as few times as possible.

    ``last``: of a class its last character, which other classes beside it may have too (``_`` is one of a word).
    """
    name, value = str(item[0]), item[1]
    if name == "WORD":
        return str(value)
    if name == "LITERAL":
        return chr(int(value))
    if name in {"NOT_LITERAL", "ANY"}:
        return "a" if value != ord("a") else "b"
    if name == "IN":
        return _member(value, last=last)
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, most, inner = value
        times = least if fewest else min(max(1, least), most)
        return str("".join(_sample(each, fewest=fewest, last=last) for each in inner) * min(times, 50))
    inner = [] if name in {"ASSERT", "ASSERT_NOT"} else _inside(item)
    return "".join(_sample(each, fewest=fewest, last=last) for each in inner[0]) if inner else ""


def _member(items: Sequence[Any], *, last: bool) -> str:
    text = "".join(chr(each) for each in range(32, 127))
    pattern = re.compile("[" + "".join(_written(each) for each in items) + "]")
    order = text[::-1] if last else "a0 " + text + "\r\n"
    return next((each for each in order if pattern.match(each)), "a")


_CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}


def _written(item: Any) -> str:
    name, value = str(item[0]), item[1]
    if name == "NEGATE":
        return "^"
    if name == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    if name == "CATEGORY":
        return _CATEGORIES[str(value).removeprefix("CATEGORY_")]
    return re.escape(chr(value))


if __name__ == "__main__":
    json.dump(_list(), sys.stdout)
