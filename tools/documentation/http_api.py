"""Every route of the gateway, and how a program reads /api."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.admin.openapi.operation import (
    ADMIN,
    ADMIN_VISITOR,
    ANYBODY,
    CALLER,
    CALLING_VISITOR,
    CLIENT,
    PERSON,
    READER,
    VIEWER,
    VISITOR,
)
from tools.documentation import headers
from tools.documentation.document import openapi
from tools.documentation.tables import code, marked

_HEAD = """# HTTP API

Every route and what it does. A running gateway serves the same as OpenAPI at `/openapi.json`, with all fields and
errors, and as a page at `/docs`. [The read API](#the-read-api) has examples of `/api`.

- **Keys**: `authorization: Bearer hs-…`, `x-api-key` as Anthropic's SDKs send it, or `x-goog-api-key` as Google's do.
  These two count beside an `authorization` that is no key of the gateway: a proxy may have put its own there.
  Without `clients:` in the configuration, programs on this machine need none. In brackets stands whose key a route
  needs: *any*, a *caller's* (not a viewer's), a *viewer's* (an operator's or an admin's, too), an *admin's*,
  a *person's* (who sees their own calls alone), or *none*;
  *or session*: the page's sign-in will do.
- **`/api/keys`** is `/admin/keys` for the page's session.
- **Errors** have the format of the API that is called; [errors](errors.md) says what to do about each.
- [Headers](#headers) come last.
"""
_READ_API = Path(__file__).with_suffix(".md")  # written by hand
_NEEDS: Mapping[str, str] = {
    ANYBODY.words: "none",
    CLIENT.words: "any",
    CALLER.words: "caller",
    VIEWER.words: "viewer",
    ADMIN.words: "admin",
    VISITOR.words: "viewer or session",
    READER.words: "viewer, person or session",
    PERSON.words: "person or session",
    ADMIN_VISITOR.words: "admin or session",
    CALLING_VISITOR.words: "caller or session",
}


def page() -> str:
    """Return the text of docs/reference/http-api.md."""
    document = openapi()
    about = {tag["name"]: tag.get("description", "") for tag in document.get("tags", [])}
    by_tag: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["Others"])[0]
            by_tag.setdefault(tag, []).append((f"{method.upper()} {path}", operation))
    lines, told = [_HEAD, _READ_API.read_text(encoding="utf-8")], dict[str, str]()  # the tag that has a description
    named = {name for routes in by_tag.values() for name, _ in routes}
    for tag, routes in by_tag.items():
        lines += [f"## {tag}", "", *([marked(about[tag]), ""] if about.get(tag) else [])]
        found = [(name, operation, *_described(operation)) for name, operation in routes]
        usual, times = Counter(access for _, _, access, _ in found).most_common(1)[0]
        usual = usual if times > 1 else ""
        lines += [f"Key: *{usual}*, where no other is named.", ""] if usual else []
        groups: dict[str, list[str]] = {}
        for name, operation, access, about_it in found:
            if name.replace(" /api/", " /admin/") in named - {name}:
                continue  # the same for the page, as the head says
            groups.setdefault(about_it, []).append(_route(name, "" if access == usual else f" ({access})", operation))
        for about_it, entries in groups.items():
            said = told.setdefault(about_it, tag)
            lines += [*entries, ""]
            lines += [marked(about_it) if said == tag else f"As *{said}* above.", ""] if about_it else []
    return "\n".join([*lines, headers.section(document)]).rstrip() + "\n"


def _described(operation: Mapping[str, Any]) -> tuple[str, str]:
    """Return whose key an operation needs, in a word or three, and the rest of its description."""
    text = " ".join(operation.get("description", "").split())
    needs = max((each for each in _NEEDS if text.endswith(each)), key=len)
    return _NEEDS[needs], text.removesuffix(needs).strip()


def _route(name: str, access: str, operation: Mapping[str, Any]) -> str:
    query = [each["name"] for each in operation.get("parameters", []) if each.get("in") == "query"]
    asked = f" *Query:* {', '.join(map(code, query))}." if query else ""
    asked = " *Query:* as `GET /leaderboard`, without `explain`." if name == "GET /api/explain" else asked
    return f"- **{code(name)}**{access}: {operation.get('summary', '').rstrip('.')}.{asked}"
