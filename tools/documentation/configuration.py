"""Every key of the configuration: type and default from its JSON Schema, its purpose from ``reasons``."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.server.reload import NEEDS_RESTART
from gateway.settings import json_schema
from tools.documentation.reasons import DEFAULTS, REASONS, SECTIONS
from tools.documentation.tables import code

ANY = "NAME"  # stands for a name that the operator chooses
_ENDLESS = 1e12
ROOT = "Settings"  # the class of the first level, which has another title in the schema
_HEAD = """# Configuration

Every key with its type (if it is no text), its default (a switch without one is `false` or not set), and what it is
for. The file is `config/gateway.yaml`, or the path in `HOLESHOT_CONFIG`. Begin with
[your own keys](../start.md#with-your-own-keys);
[gateway.example.yaml](../../config/gateway.example.yaml) shows every key in its place.


- In headings `NAME` is a name that you choose, and `[]` each entry of a list. So `models.NAME.race`, key `mode`, is:

  ```yaml
  models:
    my-model:
      race: { mode: hedge }
  ```

- The end of a name is its unit: `_s` seconds, `_ms` milliseconds, `_days` days, `_mb` MiB, `usd` US dollars. Days and
  months begin at midnight UTC.
- A value may be read from elsewhere: `${VARIABLE}` or `${VARIABLE:-default}` inside a text, `os.environ/VARIABLE` or
  `file:/path` as the whole value, and `${exec:command}` ([secrets](../keys.md#secrets)).
- Numbers are decimal: `060`, `0o17` and `12:30`, which YAML takes for numbers of other bases, are refused, and so are
  `yes`, `no`, `on` and `off` among parameters of requests (`defaults`, `extra_body`), which YAML 1.1 takes for true and
  false and YAML 1.2 for texts. In quotes each is a text.
- A variable of the environment wins over the file: `HOLESHOT_PORT=4001`, and `__` between levels:
  `HOLESHOT_TIMEOUTS__STALL_TIMEOUT_S=30`.
- `holeshot check` names every wrong key with its line and the nearest right one. A running gateway reads a changed file
  by itself; if the new file is wrong, the running configuration stays. These need a restart: {restart}
  (but for users and passwords in stores' addresses).
- `holeshot schema` prints the JSON Schema, with which editors complete and check.
"""


def page() -> str:
    """Return the text of docs/reference/configuration.md."""
    schema = json_schema()
    head = _HEAD.replace("{restart}", ", ".join(map(code, NEEDS_RESTART)))
    lines = [head, "## First level", ""]
    last, shown, alike = "", dict[tuple[str, str, str], str](), dict[tuple[tuple[str, str, str], ...], str]()
    for path, section in sections():
        top = path.partition(".")[0]
        if top != last:
            last = top
            lines += [f"## {code(top)}", ""]
        if path != top:
            lines += [f"### {code(path)}", ""]
        lines += [_about(path, section), ""] if path else []
        title = section["title"]
        plain = {name: one for name, one in section["properties"].items() if not _section(schema, one)}
        entries = {name: (name, reason(title, name), _type(schema, one)) for name, one in plain.items()}
        if plain and (same := alike.setdefault(tuple(entries.values()), path)) != path:
            lines += [f"Keys as in {code(same)}.", ""]
            continue
        known: dict[str, list[str]] = {}  # keys that another section explains, by its path
        for name, one in plain.items():
            entry = entries[name]
            if (before := shown.setdefault(entry, path)) != path:
                known.setdefault(before, []).append(code(name))
            else:
                lines += _entry(schema, title, name, one, is_required=name in section.get("required", ()))
        for before, names in known.items():
            lines += [f"{', '.join(names)}: as in {code(before)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def sections() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each section with its path, which is "" for the first level."""
    schema = json_schema()
    yield "", {**schema, "title": ROOT}
    for name, one in schema["properties"].items():
        if found := _section(schema, one):
            yield from _sections(schema, f"{name}{found[0]}", found[1], ())


def keys() -> Iterator[tuple[str, str]]:
    """Yield each key that is not itself a section, after the class name of its section."""
    schema = json_schema()
    for _, section in sections():
        for name, one in section["properties"].items():
            if not _section(schema, one):
                yield section["title"], name


def default_of(title: str, name: str, one: Mapping[str, Any], *, is_required: bool) -> str:
    """Return a key's default as Markdown: "required" if it must be set, empty if there is none."""
    if is_required:
        return "required"
    if (title, name) in DEFAULTS:
        return DEFAULTS[title, name]
    value = one.get("default")
    if value is None or value in ({}, [], ""):
        return ""
    if isinstance(value, list):
        return ", ".join(code(str(each)) for each in value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return code(json.dumps(value).strip(chr(34)))


def _entry(schema: Mapping[str, Any], title: str, name: str, one: Mapping[str, Any], *, is_required: bool) -> list[str]:
    default = default_of(title, name, one, is_required=is_required)
    kind = _type(schema, one)
    facts = "; ".join(each for each in (kind, default) if each not in {"", "text", "`false`"})
    return [f"**{code(name)}**{f' ({facts})' if facts else ''}", f": {reason(title, name)}", ""]


def reason(title: str, name: str) -> str:
    """Return a key's purpose, or end with what to write where."""
    if (found := REASONS.get(title, {}).get(name)) is None:
        sys.exit(f"{title}.{name} has no reason: add one to REASONS[{title!r}] in tools/documentation/reasons.py")
    return found


def _about(path: str, section: Mapping[str, Any]) -> str:
    return SECTIONS.get(path) or str(section.get("description", "")).replace("``", "`")


def _sections(
    schema: Mapping[str, Any], path: str, section: Mapping[str, Any], above: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, section
    for name, one in section["properties"].items():
        found = _section(schema, one)
        if found and found[1].get("title") not in above:
            yield from _sections(schema, f"{path}.{name}{found[0]}", found[1], (*above, found[1].get("title", name)))


def _section(schema: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return a key's section and its path suffix: ``.NAME`` in a mapping, ``[]`` in a list. None for a plain value."""
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
        of = _type(schema, one["items"]) if "items" in one else "text"
        return "list" if of == "text" else f"list of {of}"
    if kind == "object":
        inner = one.get("additionalProperties")
        return f"{_type(schema, inner)} by name" if isinstance(inner, dict) and inner else "values by name"
    if kind in {"integer", "number"}:
        bounds = _bounds(one)
        return bounds if kind == "number" and bounds else " ".join(filter(None, (str(kind), bounds)))
    return {"null": "", "boolean": "true/false", "string": "text"}.get(str(kind), str(kind or ""))


def _bounds(one: Mapping[str, Any]) -> str:
    """Return the bounds: ``0-65535``, ``>0, <1``, ``≥1``. Those beyond what anybody sets are left out."""
    least, most = one.get("minimum"), one.get("maximum")
    if least is not None and most is not None and most < _ENDLESS:
        return f"{least:g}-{most:g}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign}{one[name]:g}" for name, sign in signs.items() if name in one and one[name] < _ENDLESS)
