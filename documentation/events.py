"""Every event of the log: its name, its level and its fields, as the code writes them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from documentation.tables import code, table

ROOT = Path(__file__).resolve().parents[1]
LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3, "exception": 3, "critical": 4}
_HEAD = """# Events of the log

Each line is one event; as JSON (`log_format: json`, the default without a terminal) with `event`, `level`,
`timestamp` and these fields. `exception` has the trace of a defect.
This page is made from the code by `make docs`; a test holds it.
"""


def page() -> str:
    """Return the text of docs/reference/events.md."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for folder in ("gateway", "providers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name, level, fields in _events(path.read_text(encoding="utf-8")):
                levels, known = found.setdefault(name, (set(), set()))
                levels.add(level)
                known.update(fields)
    rows = [
        (
            code(name),
            ", ".join(sorted(levels, key=LEVELS.__getitem__)),
            ", ".join(code(each) for each in sorted(fields)),
        )
        for name, (levels, fields) in sorted(found.items())
    ]
    return "\n".join([_HEAD, *table(("event", "level", "fields"), rows), ""])


def _events(text: str) -> Iterator[tuple[str, str, list[str]]]:
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        for name in _names(node.args[0]) if node.args else ():
            if "." in name and " " not in name:
                yield name, node.func.attr, [each.arg for each in node.keywords if each.arg is not None]


def _names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from _names(one)
            yield from _names(other)
