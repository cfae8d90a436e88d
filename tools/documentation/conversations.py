"""The tables of how a stream's fields join, and of what vendors accept in histories, from ``providers/dialects``."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from providers import load_catalog
from tools.documentation.tables import code, table

_HEAD = """# Conversations, field by field

How an answer that came in pieces becomes the whole one, and what a conversation that goes on at another vendor may
contain. [Histories](../providers.md#histories) says what to set for a server of your own.


## How the fields of a stream join

A client that does not stream gets one answer, and a provider is asked for a stream all the same. Each field joins with
the same field of the events before it. A null never replaces a value, nor does an empty text.
"""
_MESSAGES = """### Messages

Blocks are found again by their index. Texts, thinking and a tool's JSON are pieces of one; a signature comes whole;
citations have what is new. Of `message_delta` the last one has all.
"""
_RESPONSES = """### Responses

Items are found again by their place, and the event that ends one has all of it. Where the last event lacks what its
events said, they count. Deltas of these events are pieces of a text:
"""
_HISTORIES = """## What vendors accept in a history

Empty: everything. Servers that are not listed get what the client sent; one that answers 400 about roles is asked once
more in the strictest order.

"""
_JOINS = {
    "LAST": "the last one has all",
    "TEXT": "pieces of one text",
    "BASE64": "bytes: each piece is a complete Base64 text",
    "LIST": "lists of what is new",
    "SET": "lists of what is new; an entry that comes again counts once",
    "ENTRIES": "entries, found again by `index` or `id`; parts in their order",
    "BY_TYPE": "a text is a piece of one, a list has what is new, an object joins field by field",
}
_TABLES = (  # of a module, the tables with their places in an event
    ("Chat and completions", "chat.answers", (("", "CHUNK"), ("choices[]", "CHOICE"))),
    ("Gemini", "gemini.events", (("candidates[]", "CANDIDATE"), ("candidates[].content.parts[]", "PART"))),
)


def page() -> str:
    """Return the text of docs/reference/conversations.md."""
    lines = [_HEAD]
    for title, module, tables in _TABLES:
        found = import_module(f"providers.dialects.{module}")
        rows = [
            (code(where) or "the event", fields, join)
            for place, name in tables
            for where, fields, join in _rows(place, getattr(found, name))
        ]
        lines += [f"### {title}", "", *table(("of", "fields", "join as"), rows), ""]
    items = import_module("providers.dialects.responses.events").ITEM
    pieces = [
        (code(f"{event}.delta"), code(f"{of}[].{field}" if of else field)) for event, (of, _, field) in items.items()
    ]
    lines += [_RESPONSES, *table(("event", "field of its item"), pieces), "", _MESSAGES]
    histories = [(vendor.title, vendor.quirks.history) for vendor in load_catalog().values()]
    columns = ("vendor", "ids of calls", "fields of the assistant", "of its calls", "reasoning", "order")
    return "\n".join(
        [*lines, _HISTORIES, *table(columns, (_history(*each) for each in histories if _says(each[1]))), ""]
    )


def _rows(place: str, rules: Any, around: Mapping[str, Any] = {}) -> Iterator[tuple[str, str, str]]:
    """Yield each object of an event, with a way of joining and its fields; not those that are as ``around`` it."""
    fields = {name: rule for name, rule in rules.fields.items() if around.get(name) is not rule}
    joins = {name: rule for name, rule in fields.items() if not hasattr(rule, "fields")}
    for rule in dict.fromkeys(joins.values()):
        yield place, ", ".join(code(name) for name, each in joins.items() if each is rule), _JOINS[rule.name]
    yield place, "all others" if rules.fields else "all", _JOINS[rules.other.name]
    seen: dict[int, str] = {}
    for name, rule in fields.items():
        if name in joins:
            continue
        if (before := seen.setdefault(id(rule), name)) != name:
            yield place, code(name), f"as {code(before)}"
        else:
            yield from _rows(f"{place}.{name}" if place else name, rule, rules.fields)


def _says(history: Any) -> bool:
    return bool(history != type(history)())


def _history(title: str, history: Any) -> tuple[str, ...]:
    ids = [
        f"{api}: {form.longest if form.shortest == form.longest else f'at most {form.longest}'}"
        + (f", {form.letters}" if form.letters != "any" else "")
        for api, form in history.call_ids.items()
    ]
    order = [
        text
        for says, text in (
            (history.one_system, "one system message, first"),
            (not history.user_after_tool, "no user's message after a result"),
            (history.alternating, "roles alternate"),
        )
        if says
    ]
    placeholder = history.missing_reasoning
    reasoning = "" if placeholder is None else f"demanded beside calls; {code(repr(placeholder))} where there is none"
    fields = (", ".join(map(code, sorted(names or ()))) for names in (history.assistant_fields, history.call_fields))
    return (title, "; ".join(ids), *fields, reasoning, "; ".join(order))
