"""One operation of the HTTP API as /openapi.json describes it: what it takes, who may ask, and what it answers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from gateway.core.errors import (
    ApiError,
    Forbidden,
    HeaderIgnored,
    InternalError,
    KeyExpired,
    KeysNotLoaded,
    KeyUnusable,
    NoKey,
    NotFound,
    SessionEnded,
    WrongKey,
)

Schema = Mapping[str, Any]

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT: Schema = {"type": "string"}


class Tag(StrEnum):
    """The groups of operations, in the order in which they are shown."""

    RACED = "Raced APIs"
    RELAYED = "Other model APIs"
    MODELS = "Models"
    STATUS = "Health and figures"
    KEYS = "Keys"
    PAGE_API = "The page's API"
    PAGE = "The page"


class Access(msgspec.Struct, frozen=True):
    """Who may ask. ``security`` are names of security schemes; any one of them is enough."""

    words: str
    security: tuple[str, ...] = ()
    errors: tuple[type[ApiError], ...] = ()


KEY, API_KEY, SESSION = "key", "apiKey", "session"  # the security schemes
_JUDGED = (NoKey, WrongKey, KeyExpired, Forbidden, KeysNotLoaded, KeyUnusable)
_VISITED = (*_JUDGED, SessionEnded, HeaderIgnored)

ANYBODY = Access("Needs no key.")
CLIENT = Access("Needs a key, if clients are configured.", (KEY, API_KEY), _JUDGED)
CALLER = Access("Needs a key that may make calls, if clients are configured: not a viewer's.", (KEY, API_KEY), _JUDGED)
VIEWER = Access("Needs the key of an admin or a viewer, if clients are configured.", (KEY, API_KEY), _JUDGED)
ADMIN = Access("Needs the key of an admin, if clients are configured.", (KEY, API_KEY), _JUDGED)
VISITOR = Access(
    "Needs the session or the key of an admin or a viewer, if clients are configured.",
    (SESSION, KEY, API_KEY),
    _VISITED,
)
ADMIN_VISITOR = Access(
    "Needs the session or the key of an admin, if clients are configured.", (SESSION, KEY, API_KEY), _VISITED
)
CALLING_VISITOR = Access(
    "Needs a session or a key that may make calls, if clients are configured: not a viewer's.",
    (SESSION, KEY, API_KEY),
    _VISITED,
)


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter. Those of paths are required, others are not."""

    name: str
    description: str
    place: Literal["path", "query", "header"] = "query"
    schema: Schema = msgspec.field(default_factory=lambda: TEXT)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that is no error. ``content``: schemas by media type; ``headers``: names of ``HEADERS``."""

    description: str
    content: Mapping[str, Schema] = {}
    headers: tuple[str, ...] = ()


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent: schemas by media type, and an example of the first one."""

    content: Mapping[str, Schema]
    example: Any = None
    required: bool = True


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. ``errors`` are those beyond the access's; any handler may crash."""

    method: str
    path: str
    id: str
    tag: Tag
    summary: str
    description: str = ""
    access: Access
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    answers: Mapping[int, Answer]
    errors: tuple[type[ApiError], ...] = ()
    error_schema: str = "Error"

    @property
    def all_errors(self) -> tuple[type[ApiError], ...]:
        """All classes of errors that it may answer with."""
        return (*self.access.errors, *self.errors, InternalError)


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    """Return the schema that also takes null."""
    if isinstance(kind := schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, about: str = "") -> Schema:
    """Return the schema of an object with these fields; there may be more of them in later versions."""
    optional = optional or {}
    description = {"description": about} if about else {}
    return {
        "type": "object",
        **description,
        "properties": {**required, **optional},
        "required": list(required),
    }


def text(about: str = "", *, one_of: tuple[str, ...] = ()) -> Schema:
    """Return the schema of a string."""
    return {"type": "string", **({"enum": list(one_of)} if one_of else {}), **_described(about)}


def number(about: str = "") -> Schema:
    """Return the schema of a number."""
    return {"type": "number", **_described(about)}


def count(about: str = "") -> Schema:
    """Return the schema of a whole number."""
    return {"type": "integer", **_described(about)}


def flag(about: str = "") -> Schema:
    """Return the schema of a boolean."""
    return {"type": "boolean", **_described(about)}


def instant(about: str = "") -> Schema:
    """Return the schema of a time."""
    return {"type": "string", "format": "date-time", **_described(about)}


def _described(about: str) -> Schema:
    return {"description": about} if about else {}


# The page, its files, and this description.

UNCHANGED = Answer(description="The caller has it: its etag is in `if-none-match`.")
_HTML: Mapping[str, Schema] = {"text/html": TEXT}
_PATH = Parameter(name="path", place="path", description="The file's path, with slashes.")
_WELCOME = record({"name": TEXT, "chat": TEXT, "models": TEXT, "api": TEXT, "page": TEXT})


def page_operations() -> list[Operation]:
    """Return the page_operations."""
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
