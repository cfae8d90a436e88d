"""The page, its files, and this description."""

from collections.abc import Mapping

from gateway.errors import ApiError, NotFound
from gateway.ingress.openapi.operation import ANYBODY, JSON, TEXT, Answer, Operation, Parameter, Schema, Tag, record

UNCHANGED = Answer(description="The caller has it: its etag is in `if-none-match`.")
_HTML: Mapping[str, Schema] = {"text/html": TEXT}
_PATH = Parameter(name="path", place="path", description="The file's path, with slashes.")
_WELCOME = record({"name": TEXT, "chat": TEXT, "models": TEXT, "api": TEXT, "page": TEXT})


def operations() -> list[Operation]:
    """Return the operations."""
    return [
        _file("/", "getPage", "The page, for a browser; for a program where to go", {**_HTML, JSON: _WELCOME}),
        _file("/docs", "getDocs", "This description as a page", _HTML),
        _file("/openapi.json", "getDescription", "This description, OpenAPI 3.1", {JSON: {"type": "object"}}),
        _file("/favicon.ico", "getIcon", "The icon", {"image/svg+xml": TEXT}),
        _file("/page/{path}", "getFile", "A file of the page", {"*/*": {}}, parameters=(_PATH,), errors=(NotFound,)),
    ]


def _file(
    path: str,
    name: str,
    summary: str,
    content: Mapping[str, Schema],
    *,
    parameters: tuple[Parameter, ...] = (),
    errors: tuple[type[ApiError], ...] = (),
) -> Operation:
    return Operation(
        method="GET",
        path=path,
        id=name,
        tag=Tag.PAGE,
        summary=summary,
        access=ANYBODY,
        parameters=parameters,
        answers={200: Answer(description="The file.", content=content, headers=("etag",)), 304: UNCHANGED},
        errors=errors,
    )
