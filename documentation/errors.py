"""Every error that a client can receive: its status, its code, and what it means."""

import inspect
from collections.abc import Iterator

from documentation.tables import code, table
from gateway import errors, key_errors, race_failures, reports
from gateway.errors import ApiError

_HEAD = """# Errors

The body is in the format of the API that was asked: `{"error": {"message", "type", "param", "code"}}` in OpenAI's.
The message says what to do. `error_kind` of a call's row in the
ledger is the code, or the type where there is no code. This page is made from the code by `make docs`; a test holds
it.
"""


def page() -> str:
    """Return the text of docs/reference/errors.md."""
    rows = sorted({(each.status, code(each.code or ""), code(each.type), _meaning(each)) for each in _all(ApiError)})
    return "\n".join(
        [
            _HEAD,
            *table(("status", "code", "type", "what it means"), [(str(status), *rest) for status, *rest in rows]),
            "",
        ]
    )


def _all(kind: type[ApiError]) -> Iterator[type[ApiError]]:
    modules = {module.__name__ for module in (errors, key_errors, race_failures, reports)}
    for each in kind.__subclasses__():
        if each.__module__ in modules:
            yield each
        yield from _all(each)


def _meaning(kind: type[ApiError]) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0]
