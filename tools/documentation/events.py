"""Every event of the log: name, levels and fields from the calls that write it, and the advice beside them."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

from gateway.watching.logs import CallLine
from tools.documentation import advice
from tools.documentation.tables import code

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3, "exception": 3, "critical": 4}
# What to do that the page says once, for all events.
NOTHING, REPORT = "Nothing.", "It is a bug: report it with the trace."
AWAY = frozenset(
    {
        "Make the database reachable.",
        "Make the database reachable. Nothing is lost.",
        "Make Redis reachable. Calls go on.",
    }
)
# Fields that the page explains once, or whose names say enough.
UNLISTED = frozenset(
    {
        *("hint", "effect", "exception", "cause", "error", "problem"),
        *("deployment", "model", "provider", "client", "metric", "alert", "message", "webhook", "tries", "kind"),
        *("open", "folder", "spool", "file", "node", "pid", "peer", "endpoint", "method", "began_at"),
    }
)
_CODE = re.compile(r"`(\w+)`")
_REFUSED = ("count", "peer", "method", "endpoint", "client")
_SLOWDOWN = ("model", "deployment", "metric")


class Written(NamedTuple):
    """The levels and fields with which the code writes an event."""

    levels: frozenset[str]
    fields: frozenset[str]


# Headings, by the first part of an event's name.
GROUPS: Mapping[str, str] = {
    "alert": "Alerts",
    "alerts": "Keeping and sending alerts",
    "audit": "Audits of losers",
    "call": "Calls",
    "configuration": "Configuration",
    "connections": "Connections",
    "demo": "The demo",
    "deployment": "Deployments",
    "detector": "The detector",
    "gateway": "The process",
    "key": "Keys of providers",
    "keys": "Clients' keys",
    "ledger": "The ledger",
    "limits": "Limits",
    "live": "Live streams",
    "log": "The log",
    "metrics": "Metrics",
    "names": "Names of providers",
    "page": "Signing in",
    "probe": "Probes",
    "probes": "Probes not made",
    "race": "Racing",
    "report": "Reports",
    "request": "Refused requests",
    "responses": "Stored responses",
    "secrets": "Secrets",
    "steering": "Steering",
    "targets": "Targets",
    "tls": "Certificates",
    "tracing": "Traces",
    "usage": "Usage",
    "vectors": "Vectors",
    "worker": "Workers",
}
# Events whose name is not a literal where they are written: file, levels and fields.
ELSEWHERE: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "call.finished": (
        "gateway/watching/logs.py",
        ("info",),
        tuple(name for name in CallLine.__struct_fields__ if name not in {"event", "level", "timestamp"}),
    ),
    "log.lines_dropped": ("gateway/watching/logs.py", ("warning",), ("lines", "effect")),
    "request.refused": ("gateway/api/refusals.py", ("warning",), ("status", "reason", *_REFUSED)),
    "request.crashed": (
        "gateway/api/refusals.py",
        ("warning", "error"),
        ("status", "reason", "exception", *_REFUSED),
    ),
    **{
        f"keys.{action}": ("gateway/keys/changes.py", ("info",), ("client", "by"))
        for action in ("created", "changed", "rotated", "revoked")
    },
}
# Fields that are passed as one mapping, so that the call that writes the event does not name them.
HANDED: Mapping[str, tuple[str, ...]] = {
    "connections.cut": (
        "address",
        "strangers",
        "descriptors",
        "late_head",
        "large_head",
        "stalled",
        "ahead",
        "key",
        "hint",
    ),
    "deployment.as_usual": _SLOWDOWN,
    "deployment.slower": (*_SLOWDOWN, "ratio", "low", "high"),
    "ledger.pruned": ("calls", "attempts", "refusals", "outages", "slowdowns", "probes", "rollups"),
    "race.narrowed": ("model", "reason", "since", "why"),
    "steering.opened": ("model",),
}
# What is said once of all events whose names say enough: by the kind that ``_plain`` returns.
PLAIN: Mapping[str, str] = {
    "bug": "Errors of one round of work in the background: a bug, whose trace is beside it. The next round follows",
    "record": "For the record (`info`): all is well again, or was done as asked",
}
_BRIEF = 13  # words of a meaning that adds nothing to its name
_HEAD = """# Events of the log

Every event that the gateway writes to standard error, one line each. With `log_format: json` (the default without a
terminal) a line is an object:

```json
{"event": "limits.redis_away", "level": "warning", "timestamp": "2030-01-01T12:00:00Z", "processes": 2, "hint": "…"}
```

- `error`: something is broken; look now. `warning`: look when it repeats. `info`: for the record. `debug` needs
  `log_level: debug`.
- An entry has the level, the meaning, what to do (if there is anything to do), and more fields. Not listed are `hint`
  and `effect`, sentences for you, and names that say enough, such as `cause`, `model` and `file`.
- Of a database or Redis that does not answer: make it reachable. Calls go on, and no row is lost.
- An `exception` is the trace of a bug: please report it.
- Most problems that last are also an [alert](../monitoring.md#alerts-and-targets). Watch alerts; read the log for
  details.
- A line whose `event` is a sentence comes from a library.
"""


def page() -> str:
    """Return the text of docs/reference/events.md."""
    lines = [_HEAD]
    found = written()
    advised = advice.demand("Event", found)
    plain = {name: kind for name in found if (kind := _plain(found[name], advised[name].parts))}
    for kind, says in PLAIN.items():
        lines += [f"- {says}: {', '.join(code(name) for name in sorted(plain) if plain[name] == kind)}."]
    lines += [""]
    last = ""
    for name in sorted(found.keys() - plain.keys()):
        group = name.partition(".")[0]
        if group != last:
            last = group
            if group not in GROUPS:
                sys.exit(f"events of {group!r} have no heading: add one to GROUPS in tools/documentation/events.py")
            lines += [f"## {GROUPS[group]}", ""]
        lines += _entry(name, found[name], advised[name].parts)
    return "\n".join(lines).rstrip() + "\n"


def written() -> Mapping[str, Written]:
    """Return the levels and fields of each event, by its name."""
    levels: dict[str, set[str]] = {}
    fields: dict[str, set[str]] = {}
    for path in advice.files():
        for name, level, named in _events(path):
            levels.setdefault(name, set()).add(level)
            fields.setdefault(name, set(HANDED.get(name, ()))).update(named)
    for name, (_, of, given) in ELSEWHERE.items():
        levels.setdefault(name, set()).update(of)
        fields.setdefault(name, set()).update(given)
    return {name: Written(frozenset(levels[name]), frozenset(fields[name])) for name in levels}


def unreadable() -> Mapping[str, int]:
    """Return the number of log calls whose event is not a literal, by file. Their events are in ``ELSEWHERE``."""
    found: dict[str, int] = {}
    for path in advice.files():
        for node in _log_calls(path):
            if not list(_names(_event_argument(node))):
                name = path.relative_to(ROOT).as_posix()
                found[name] = found.get(name, 0) + 1
    return found


def _plain(one: Written, parts: Mapping[str, str]) -> str:
    """Return which of ``PLAIN`` says all about an event, or an empty text."""
    if parts["Do"] == REPORT and "exception" in one.fields:
        return "bug"
    is_brief = len(parts["Means"].split()) <= _BRIEF and "`" not in parts["Means"]
    return "record" if parts["Do"] == NOTHING and one.levels == {"info"} and is_brief else ""


def _entry(name: str, one: Written, parts: Mapping[str, str]) -> list[str]:
    levels = ", ".join(
        sorted({"error" if each == "exception" else each for each in one.levels}, key=LEVELS.__getitem__)
    )
    do = "" if parts["Do"] in {NOTHING, *AWAY} else f" *Do:* {parts['Do']}"
    named = set(_CODE.findall(parts["Means"] + do))
    fields = sorted(one.fields - UNLISTED - named)
    shown = f" *Fields:* {', '.join(map(code, fields))}." if fields else ""
    return [f"**{code(name)}** ({levels})", f": {parts['Means']}{do}{shown}", ""]


@cache
def _log_calls(path: Path) -> Sequence[ast.Call]:
    """Return the calls of a logger, and of ``_say``, a method that passes a level and an event to one."""
    return tuple(node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if _is_log_call(node))


def _is_log_call(node: ast.AST) -> TypeGuard[ast.Call]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr == "_say":
        return bool(node.args) and ast.unparse(node.args[0]).startswith("logging.")
    return node.func.attr in {*LEVELS, "log"} and ast.unparse(node.func.value).endswith(("log", "get_logger()"))


def _events(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    for node in _log_calls(path):
        assert isinstance(node.func, ast.Attribute)
        level = node.func.attr
        if level == "_say":
            level = ast.unparse(node.args[0]).removeprefix("logging.").lower()
        named = [each.arg for each in node.keywords if each.arg is not None]
        named = ["exception" if each == "exc_info" else each for each in named]
        named += ["exception"] if level == "exception" else []
        for name in _names(_event_argument(node)):
            yield name, level, named


def _event_argument(node: ast.Call) -> ast.expr | None:
    assert isinstance(node.func, ast.Attribute)
    place = 1 if node.func.attr in {"_say", "log"} else 0
    return node.args[place] if len(node.args) > place else None


def _names(node: ast.expr | None) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from _names(one)
            yield from _names(other)
