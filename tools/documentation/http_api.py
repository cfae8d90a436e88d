"""Every route of the gateway, and how a program reads /api."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tools.documentation.document import openapi
from tools.documentation.tables import code, marked

_HEAD = """# HTTP API

Every route, what it does, and how it can answer. A running gateway serves the same as OpenAPI at `/openapi.json`, with
all fields, and as a page at `/docs`. [The read API](#the-read-api) has examples of
`/api`.

- **Keys**: `authorization: Bearer hs-…`, `x-api-key` as Anthropic's SDKs send it, or `x-goog-api-key` as Google's do.
  Without `clients:` in the configuration, programs on this machine need none.
- **Errors** have the format of the API that is called; [errors](errors.md) says what to do about each.
- [Headers](headers.md) has those of requests and answers.

This page is made from the code by `make docs`, and a test compares them.
"""
_READ_API = Path(__file__).with_suffix(".md")  # written by hand
_FIRST_ERROR = 400


def page() -> str:
    """Return the text of docs/reference/http-api.md."""
    document = openapi()
    about = {tag["name"]: tag.get("description", "") for tag in document.get("tags", [])}
    by_tag: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["Others"])[0]
            by_tag.setdefault(tag, []).append((f"{method.upper()} {path}", operation))
    lines = [_HEAD, _READ_API.read_text(encoding="utf-8")]
    for tag, routes in by_tag.items():
        lines += [f"## {tag}", "", *([marked(about[tag]), ""] if about.get(tag) else [])]
        for facts, alike in groupby(routes, key=lambda route: _facts(route[1])):
            lines += _group(
                [(code(name), operation.get("summary", "").rstrip(".")) for name, operation in alike], facts
            )
    return "\n".join(lines).rstrip() + "\n"


def _group(routes: Sequence[tuple[str, str]], facts: Sequence[str]) -> list[str]:
    """Return the entry of routes with the same ``facts``, which are written once, below all of them."""
    if len(routes) == 1:
        lines = [f"**{routes[0][0]}**", f": {routes[0][1]}.", ""]
        return [*lines, *(line for fact in facts for line in (f"  {fact}", ""))]
    listed = [f"- **{name}**: {summary}." for name, summary in routes]
    return [*listed, "", *(line for fact in facts for line in (fact, ""))]


def _facts(operation: Mapping[str, Any]) -> Sequence[str]:
    query = [each["name"] for each in operation.get("parameters", []) if each.get("in") == "query"]
    statuses = sorted(status for status in operation["responses"] if status.isdigit())
    good = [each for each in statuses if int(each) < _FIRST_ERROR]
    bad = [each for each in statuses if int(each) >= _FIRST_ERROR]
    return tuple(
        filter(
            None,
            (
                marked(" ".join(operation.get("description", "").split())),
                f"*Query:* {', '.join(map(code, query))}." if query else "",
                f"*Answers:* {', '.join(good)}. *Errors:* {', '.join(bad)}.",
            ),
        )
    )
