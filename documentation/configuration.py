"""Every key of the configuration: type and default from its JSON Schema, and the reason from the example file."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from documentation.tables import code, table
from gateway.settings.schema import json_schema

EXAMPLE = Path(__file__).resolve().parents[1] / "config" / "gateway.example.yaml"
ANY = "NAME"  # stands for a name that the operator chooses
_HEAD = """# Configuration

One YAML file, `config/gateway.yaml`, or the path in `HOLESHOT_CONFIG`. This page has every key. It is made from the
code by `make docs`; a test holds it.
[gateway.example.yaml](../../config/gateway.example.yaml) has them all in one file, and `holeshot schema` prints the
JSON Schema, with which editors complete and check.

- `NAME` is a name that you choose; `[]` is each entry of a list.
- Any value may be read from elsewhere: `${VARIABLE}` or `${VARIABLE:-default}` anywhere in a text,
  `os.environ/VARIABLE`, `file:/path`.
- `HOLESHOT_` and the name of a key of the first level, as in `HOLESHOT_DATABASE_URL`, sets it from the environment.
- `holeshot check` names every wrong key with its line and the nearest right one. A running gateway that is given a
  wrong file keeps the one it has.
"""
_KEY = re.compile(r"^(?P<indent> *)(?P<item>- )?(?P<key>[\w./*'\"-]+):(?P<rest>.*)$")


def page() -> str:
    """Return the text of docs/reference/configuration.md."""
    schema = json_schema()
    reasons = _reasons(EXAMPLE.read_text(encoding="utf-8"))
    lines = [_HEAD]
    top = list(schema["properties"].items())
    plain = [(name, one) for name, one in top if not _section(schema, one)]
    lines += ["## First level", "", *_table(schema, "", plain, reasons), ""]
    for name, one in top:
        if found := _section(schema, one):
            lines += [f"## `{name}`", ""]
            for path, section in _sections(schema, f"{name}{found[0]}", found[1], ()):
                if described := section.get("description"):
                    lines += [f"**`{path}`**: {described}", ""]
                inner = [(each, of) for each, of in section["properties"].items() if not _section(schema, of)]
                if inner:
                    lines += [*_table(schema, path, inner, reasons), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(
    schema: Mapping[str, Any], path: str, keys: list[tuple[str, Any]], reasons: Mapping[tuple[str, ...], str]
) -> list[str]:
    rows = []
    for name, one in keys:
        reason = reasons.get((*_names(path), name)) or one.get("description") or reasons.get((name,), "")
        rows.append((code(name), _type(schema, one), _default(one), reason))
    return table(("key", "type", "default", "what it is for"), rows)


def _sections(
    schema: Mapping[str, Any], path: str, section: Mapping[str, Any], above: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, section
    for name, one in section["properties"].items():
        found = _section(schema, one)
        if found and found[1].get("title") not in above:
            yield from _sections(schema, f"{path}.{name}{found[0]}", found[1], (*above, found[1].get("title", name)))


def _section(schema: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the section that a key has, after ``.NAME`` or ``[]`` if it has several; None for a plain value."""
    for each in _choices(schema, one):
        if each.get("properties") and "env" not in each["properties"]:
            return "", each
        for inner, suffix in ((each.get("additionalProperties"), f".{ANY}"), (each.get("items"), "[]")):
            if isinstance(inner, dict) and (found := _section(schema, inner)):
                return suffix + found[0], found[1]
    return None


def _choices(schema: Mapping[str, Any], one: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in one:
        if one["$ref"].endswith("/Reference"):
            return  # every value may come from the environment
        yield from _choices(schema, schema["$defs"][one["$ref"].rsplit("/", 1)[1]])
    elif many := one.get("anyOf") or one.get("oneOf") or one.get("allOf"):
        for each in many:
            yield from _choices(schema, each)
    else:
        yield one


def _type(schema: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    words: list[str] = []
    for each in _choices(schema, one):
        word = _word(schema, each)
        if word and word not in words:
            words.append(word)
    return " or ".join(words) or "any"


def _word(schema: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    if "enum" in one:
        return ", ".join(code(str(each)) for each in one["enum"])
    if "const" in one:
        return code(str(one["const"]))
    kind = one.get("type")
    if kind == "array":
        return f"list of {_type(schema, one['items'])}" if "items" in one else "list"
    if kind == "object":
        inner = one.get("additionalProperties")
        return f"names with {_type(schema, inner)}" if isinstance(inner, dict) and inner else "mapping"
    if kind in {"integer", "number"}:
        return " ".join(filter(None, (kind, _bounds(one))))
    return "" if kind == "null" else str(kind or "")


def _bounds(one: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign} {one[name]:g}" for name, sign in signs.items() if name in one)


def _default(one: Mapping[str, Any]) -> str:
    if "default" not in one:
        return ""
    value = one["default"]
    return "none" if value is None or value in ({}, []) else code(json.dumps(value).strip('"'))


def _names(path: str) -> tuple[str, ...]:
    return tuple(each.removesuffix("[]") for each in path.split(".") if each and each != ANY)


def _reasons(example: str) -> Mapping[tuple[str, ...], str]:
    """Return the comment of each key of the example, by its path without names that the operator chooses.

    A comment is after the key, or in the lines above it; it goes on in lines of comments below at the same column.
    """
    known = _known()
    found: dict[tuple[str, ...], str] = {}
    stack: list[tuple[int, str]] = []
    last: tuple[tuple[str, ...], int] | None = None
    for line in example.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            if last is not None and line.index("#") >= last[1] > 0:
                found[last[0]] = f"{found[last[0]]} {bare.lstrip('# ')}"
            continue
        last = None
        match = _KEY.match(line)
        if match is None:
            continue
        depth = len(match["indent"]) + (2 if match["item"] else 0)
        while stack and stack[-1][0] >= depth:
            stack.pop()
        stack.append((depth, match["key"].strip("'\"")))
        path = tuple(name for _, name in stack if name in known)
        at = _comment_at(line)
        if at and stack[-1][1] in known and path not in found:
            found[path] = line[at + 1 :].strip()
            last = (path, at)
    return found


def _comment_at(line: str) -> int:
    """Return where the comment of a line begins; 0 if it has none."""
    match = re.search(r"(?<=\s)#(?=\s)", line)
    return match.start() if match else 0


def _known() -> frozenset[str]:
    schema = json_schema()
    definitions = [schema, *schema["$defs"].values()]
    return frozenset(name for each in definitions for name in each.get("properties", {}))
