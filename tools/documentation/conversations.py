"""The table of what vendors accept in histories, from ``providers/vendors/vendors.toml``."""

from typing import Any

from providers import load_catalog
from tools.documentation.tables import code, table

_HEAD = """# Conversations

What a conversation that goes on at another vendor may contain. [Histories](../providers.md#histories) says what to set
for a server of your own, `providers/dialects` how the fields of a stream join to a whole answer.

## What vendors accept in a history

Empty: everything. Servers that are not listed get what the client sent; one that answers 400 about roles or lists of
texts is asked once more in the strictest form. `thinking` is a kind of parts, which Mistral has: thoughts in an answer.

"""


def page() -> str:
    """Return the text of docs/reference/conversations.md."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for vendor in load_catalog().values():
        if _says(vendor.quirks.history):
            alike.setdefault(_history(vendor.quirks.history), []).append(vendor.title)
    columns = ("vendor", "ids of calls", "fields of the assistant", "of its calls", "reasoning", "order and form")
    return "\n".join([_HEAD, *table(columns, ((", ".join(titles), *cells) for cells, titles in alike.items())), ""])


def _says(history: Any) -> bool:
    return bool(history != type(history)())


def _history(history: Any) -> tuple[str, ...]:
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
            (not history.answers_in_a_row, "no two answers in a row"),
            (history.plain_texts, "texts in no lists"),
        )
        if says
    ]
    placeholder = history.missing_reasoning
    reasoning = "" if placeholder is None else f"demanded beside calls; {code(repr(placeholder))} where there is none"
    fields = [", ".join(map(code, sorted(names or ()))) for names in (history.assistant_fields, history.call_fields)]
    if history.assistant_fields is None and history.refused_fields:
        fields[0] = f"all but {', '.join(map(code, sorted(history.refused_fields)))}"
    return ("; ".join(ids), *fields, reasoning, "; ".join(order))
