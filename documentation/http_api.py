"""Every route of the gateway."""

from documentation.document import openapi
from documentation.tables import code, table

_HEAD = """# HTTP API

All routes, from `/openapi.json`, which a running gateway serves with a page at `/docs`. [The read API](../api.md)
has examples. This page is made by `make docs`; a test
holds it.
"""


def page() -> str:
    """Return the text of docs/reference/http-api.md."""
    document = openapi()
    by_tag: dict[str, list[tuple[str, str, str, str]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["others"])[0]
            statuses = ", ".join(sorted(operation["responses"]))
            by_tag.setdefault(tag, []).append(
                (code(f"{method.upper()} {path}"), operation.get("summary", ""), statuses, "")
            )
    lines = [_HEAD]
    for tag, rows in by_tag.items():
        lines += [f"## {tag}", "", *table(("route", "what it does", "statuses"), [row[:3] for row in rows]), ""]
    return "\n".join(lines).rstrip() + "\n"
