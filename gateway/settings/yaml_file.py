"""Reads a YAML file as plain data with the line of every key, so that messages can name the line.

PyYAML's ``safe_load``, and so pydantic-settings' YAML source, drops lines. Of two equal keys it silently keeps the
last. So the tree of nodes is walked here. ``${NAME}`` needs no quotes, not even inside ``{ }``, where braces are YAML
syntax. While YAML parses the text, the braces of ``${NAME}`` are replaced by two private-use characters, one for one,
so that lines and columns stay correct.
"""

import errno
import re
from collections.abc import Collection
from contextlib import suppress
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gateway.settings.document import (
    Document,
    Place,
    Problem,
    is_free,
    is_number,
    known_keys,
    nearest,
    spaced,
    written,
)
from providers import UNREADABLE

_REFERENCE = re.compile(r"\$\{([^{}\n]*)\}")
_MASKED = r"$" + "\ue000" + r"\1" + "\ue001"
_UNMASK = str.maketrans("\ue000\ue001", "{}")
_MOST_VALUES = 100_000  # with aliases expanded: a few lines of nested aliases can exceed any memory
_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_LOOKS = _NUMBERS | {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"}  # types that a text may look like
_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_MERGE = "tag:yaml.org,2002:merge"
_WORDS = frozenset({"yes", "no", "on", "off"})  # for true and false, to YAML 1.1 alone
_EXPONENT = re.compile(
    r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)[eE][-+]?\d{1,3}"
)  # a number to JSON and YAML 1.2, a text to YAML 1.1
_MOST_EXACT = 2**53  # of whole numbers
_LEADING_ZERO = re.compile(r"[-+]?0(?:o[0-7_]+|[0-9_]+)")  # a text to YAML 1.1, if it has an 8, a 9 or an o


_WAYS_OUT = {
    errno.EISDIR: "; name a file in it",
    errno.EACCES: "; give this user the right to read it (chmod, chown)",
    errno.ENOENT: "; name one that is there",
}


def read_document(path: Path, texts: Collection[str] = ()) -> Document:
    """Read the YAML file at ``path``; errors are in the document's ``problems``.

    ``texts``: in another program's file, the keys whose values are always texts.
    """
    file = str(path)
    try:
        loader = yaml.SafeLoader(_REFERENCE.sub(_MASKED, path.read_text(encoding="utf-8-sig")))
        root = loader.get_single_node()
    except OSError as error:
        problem = Problem(f"cannot be read: {error.strerror}{_WAYS_OUT.get(error.errno or 0, '')}", file)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = Problem(f"is not UTF-8 text (byte {error.start}): save it as UTF-8", file, line)
    except yaml.MarkedYAMLError as error:
        problem = _invalid(error, file)
    except yaml.YAMLError as error:  # a character that YAML does not allow; the message has only the character
        problem = Problem(f"invalid YAML: {getattr(error, 'reason', 'not readable')}", file)
    except RecursionError:
        problem = Problem("is nested too deeply", file)
    else:
        if root is None:
            return Document(file)
        if isinstance(root, yaml.MappingNode):
            walk = _Walk(loader, file, texts)
            try:
                return Document(file, walk.value(root, ()), walk.lines, tuple(walk.problems))
            except (_TooLargeError, RecursionError):
                problem = Problem("is far too large when expanded: does it use aliases (*name) of aliases?", file)
                return Document(file, problems=(problem,))
        problem = Problem("must consist of keys and values, like `port: 4000`", file, _line(root))
    return Document(file, problems=(problem,))


def _odd_base(node: yaml.Node) -> int | None:
    """Return the base in which YAML reads a number that people would not write so; None: another value."""
    if node.tag not in _NUMBERS:
        return None
    return 60 if ":" in node.value else 8 if _OCTAL.fullmatch(node.value) else None


def odd_numbers(text: str) -> list[tuple[str, int]]:
    """Return the numbers of a valid YAML text that are in a base other than ten, with the base."""
    found, left = list[tuple[str, int]](), [yaml.compose(text, yaml.SafeLoader)]
    while left:
        node = left.pop()
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            left += (value for _, value in node.value)
        elif node is not None and (base := _odd_base(node)) is not None:
            found.append((node.value, base))
    return found


def read_value(text: str, place: Place) -> tuple[Any, list[str]]:
    """Return a valid YAML text as the value of the setting at ``place``, and problems of understanding it.

    ``odd_numbers`` must be refused before.
    """
    loader = yaml.SafeLoader(text)
    root = loader.get_single_node()
    if root is None:
        return None, []
    walk = _Walk(loader, "")
    try:
        return walk.value(root, place), [problem.message for problem in walk.problems]
    except (_TooLargeError, RecursionError):
        return None, [f"{written(place)} is far too large"]


def read_parameter(text: str, place: Place) -> tuple[Any, str | None]:
    """Return the value of a request's parameter at ``place``, and what is unclear about the value; None if it is clear.

    The value is JSON, or one word or number as the file has it; anything else is a text.
    """
    with suppress(*UNREADABLE):
        return msgspec.json.decode(text), None
    try:
        is_one = isinstance(yaml.compose(text, yaml.SafeLoader), yaml.ScalarNode)
    except (yaml.YAMLError, RecursionError):
        is_one = False
    if not is_one:
        return text, None
    value, problems = read_value(text, place)
    return value, problems[0].removeprefix(written(place)).lstrip() if problems else None


class _TooLargeError(Exception):
    """The expanded document is too large."""


class _Walk:
    """Converts nodes to plain data, and collects lines and problems."""

    def __init__(self, loader: yaml.SafeLoader, file: str, texts: Collection[str] = ()) -> None:
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []
        self._loader = loader
        self._file = file
        self._texts = texts
        self._count = 0
        self._open: set[int] = set()  # the nodes being walked: an alias may refer to such a node

    def value(self, node: yaml.Node, place: Place) -> Any:
        """Return the value of ``node``.

        Raises:
            _TooLargeError: the expanded document is too large.

        """
        self._count += 1
        if self._count > _MOST_VALUES:
            raise _TooLargeError
        if id(node) in self._open:
            self._complain(node, place, "contains itself")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, place)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, place)
            return self._scalar(node, place)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        inherited: dict[str, Any] = {}
        own: dict[str, Any] = {}
        # Merged keys first, wherever they are: the line is that of a section's own key, which is stronger.
        for key_node, value_node in sorted(node.value, key=lambda pair: pair[0].tag != _MERGE):
            if key_node.tag == _MERGE:
                inherited = self._inherited(value_node, place) | inherited
                continue
            key = key_node.value.translate(_UNMASK) if isinstance(key_node, yaml.ScalarNode) else ""
            if not key:
                self._complain(key_node, place, "has a key that is not plain text")
                continue
            if node.flow_style and _has_no_colon(value_node):
                self._complain_of_no_value(key_node, place, key)
                continue
            here = (*place, key)
            if key in own:
                self._complain(key_node, here, f"is set twice, first in line {self.lines[here]}")
                continue
            self.lines[here] = _line(key_node)
            own[key] = self.value(value_node, here)
        return inherited | own

    def _complain_of_no_value(self, node: yaml.Node, place: Place, key: str) -> None:
        """Complain of ``{budget:0}``, one key to YAML, and of ``{hold}``. What follows the colon may be a secret."""
        key, colon, _ = key.partition(":")
        message = spaced(key) if colon else f"has no value: write `{key}: …`"
        known = known_keys(place)
        if known and key not in known:
            message += f"; and it is an unknown key; {nearest(key, known)}"
        self.problems.append(Problem(f"{written((*place, key))}: {message}", self._file, _line(node)))

    def _inherited(self, node: yaml.Node, place: Place) -> dict[str, Any]:
        """Return the keys merged by ``<<``: of one mapping, or of several, of which the first takes precedence."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            if isinstance(source, yaml.MappingNode):
                merged = self.value(source, place) | merged
            else:
                self._complain(source, place, "merges (<<) a value that is not a section")
        return merged

    def _sequence(self, node: yaml.SequenceNode, place: Place) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self.lines[*place, index] = _line(item)
            items.append(self.value(item, (*place, index)))
        return items

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        if place and place[-1] in self._texts and node.tag in _LOOKS:
            return node.value
        if (base := _odd_base(node)) is not None:
            self._complain(node, place, f"is a number in base {base} to YAML: write it in decimal, or in quotes")
            return None
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError, AttributeError):  # an unknown tag, or an impossible date
            self._complain(node, place, "cannot be understood; put it in quotes")
            return None
        if _is_plain(node) and _EXPONENT.fullmatch(node.value) and (self._texts or is_number(place) or is_free(place)):
            value = _number(node.value)
        if (unclear := _unclear(node, value)) is not None and is_free(place):
            self._complain(node, place, unclear)
            return None
        if isinstance(value, date) and is_free(place):
            return node.value  # JSON has no dates
        return value.translate(_UNMASK) if isinstance(value, str) else value

    def _complain(self, node: yaml.Node, place: Place, message: str) -> None:
        self.problems.append(Problem(f"{written(place) or 'the file'} {message}", self._file, _line(node)))


def must_be_quoted(text: str) -> bool:
    """Whether a text without quotes would be read as a number, or refused: PyYAML's writer does not know."""
    return (_EXPONENT.fullmatch(text) or _LEADING_ZERO.fullmatch(text)) is not None


def _is_plain(node: yaml.Node) -> bool:
    """Whether a value is written without quotes."""
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= _MOST_EXACT else value


def _unclear(node: yaml.Node, value: object) -> str | None:
    """Return what is unclear about a plain value that goes into requests unchanged; None if nothing is unclear."""
    if isinstance(value, bool):
        words = "is true or false to YAML 1.1, and a text to YAML 1.2: write true or false, or put it in quotes"
        return words if node.value.lower() in _WORDS else None
    if isinstance(value, float) and not isfinite(value):
        return "is no number that JSON has: leave it out, or put it in quotes"
    if isinstance(value, str) and _is_plain(node) and _LEADING_ZERO.fullmatch(value):
        return "begins with a zero: write a number in decimal and without it, or put a text in quotes"
    return None


def _has_no_colon(node: yaml.Node) -> bool:
    """Whether ``node``, a value in braces, is what YAML adds to a key without a colon after it."""
    start, end = node.start_mark, node.end_mark
    is_empty = isinstance(node, yaml.ScalarNode) and start.index == end.index
    return is_empty and start.buffer is not None and start.buffer[start.pointer - 1] != ":"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


# Advice for PyYAML's messages, by their beginnings. {line}: where the construct began that PyYAML was reading. No
# advice quotes the file, which may contain a key.
_EXPLAINED: tuple[tuple[str, str], ...] = (
    ("found character '\\t'", "there is a tab: indent with spaces"),
    ("found a tab character", "there is a tab: indent with spaces"),
    ("found character", "a value cannot begin with this character: put it in quotes"),
    ("expected ',' or '}'", "the { of line {line} is not closed: a comma or a } is missing"),
    ("expected ',' or ']'", "the [ of line {line} is not closed: a comma or a ] is missing"),
    ("expected <block end>, but found '}'", "there is a } without its {"),
    ("expected <block end>, but found ']'", "there is a ] without its ["),
    ("expected <block end>, but found '-'", "there is a list item (-) among keys: indent it below the key it is for"),
    ("expected <block end>, but found ','", "there is a comma after the value: remove it, or put the value in quotes"),
    (
        "expected <block end>, but found '<scalar>'",
        "there is text after the closing quote: put all of the value in quotes",
    ),
    ("expected <block end>", "this line is indented unlike those before it: the keys of a section begin in one column"),
    ("expected the node content", "a value is missing"),
    ("mapping values are not allowed", ""),
    ("could not find expected ':'", "a colon is missing: write `key: value`"),
    ("found unexpected end of stream", "a quote is not closed"),
    ("found unexpected document separator", "a quote is not closed"),
    ("found unknown escape character", "a backslash means something else in double quotes: use single quotes"),
    ("expected escape sequence", "a backslash means something else in double quotes: use single quotes"),
    ("expected chomping or indentation", "after | or > the text begins in the next line"),
    ("expected a comment or a line break", "after | or > the text begins in the next line"),
    ("expected alphabetic or numeric", "a value that begins with * or & must be in quotes"),
    ("found undefined alias", "an alias (*name) without an anchor; quote values that begin with *"),
    ("found duplicate anchor", "an anchor (&name) is there twice"),
    ("found undefined tag handle", "a value that begins with ! must be in quotes"),
    ("expected a single document", "a second document (---); a configuration has only one"),
)
_AT_THE_BEGINNING = ("a colon is missing: write `key: value`", "a quote is not closed")  # the mistake is on that line


def _invalid(error: yaml.MarkedYAMLError, file: str) -> Problem:
    """Describe a syntax error without PyYAML's excerpt of the file, which may contain a key."""
    mark = error.problem_mark or error.context_mark
    said = [str(error.problem), str(error.context)]
    reason = next((words for begins, words in _EXPLAINED if any(each.startswith(begins) for each in said)), None)
    if reason is None:
        reason = "this cannot be read: is a quote, a colon or a bracket missing?"
    elif not reason:
        reason = "there is a colon too many" if mark is None else _odd_colon(mark)
    if error.context_mark is not None:
        reason = reason.replace("{line}", str(error.context_mark.line + 1))
        if reason in _AT_THE_BEGINNING:
            mark = error.context_mark
    column = f" (column {mark.column + 1})" if mark else ""
    return Problem(f"invalid YAML: {reason}{column}", file, mark.line + 1 if mark else None)


def _odd_colon(mark: yaml.Mark) -> str:
    """Return why the colon at ``mark`` cannot be there."""
    *others, own = (mark.buffer or "")[: mark.pointer].split("\n")
    before = next((line for line in reversed(others) if line.strip()), "")
    if ":" in own:
        return "there is a second colon in this line: put the value in quotes"
    if ":" in before:
        return "this is below a key that has its value in its own line: indent it less, or remove that value"
    return "the line before this has no colon: write `key: value`"
