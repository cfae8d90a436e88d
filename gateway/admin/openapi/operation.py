"""One operation of the HTTP API as /openapi.json describes it: its input, access and answers."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gateway.admin.openapi.schemas import Made, schema
from gateway.core.errors import (
    ApiError,
    Forbidden,
    HeaderIgnored,
    InternalError,
    KeyExpired,
    KeysNotLoaded,
    KeyUnusable,
    NoKey,
    SessionEnded,
    WrongKey,
)

JSON = "application/json"
EVENTS = "text/event-stream"


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
    """The access to an operation. ``security`` are names of security schemes; any one of them is enough."""

    words: str
    security: tuple[str, ...] = ()
    errors: tuple[type[ApiError], ...] = ()


KEY, API_KEY, GOOGLE_KEY, SESSION = "key", "apiKey", "googleKey", "session"  # the security schemes
_JUDGED = (NoKey, WrongKey, KeyExpired, Forbidden, KeysNotLoaded, KeyUnusable)
_WITH_KEY = ((KEY, API_KEY, GOOGLE_KEY), _JUDGED)
_WITH_SESSION = ((SESSION, KEY, API_KEY, GOOGLE_KEY), (*_JUDGED, SessionEnded, HeaderIgnored))

ANYBODY = Access("Needs no key.")
CLIENT = Access("Needs a key, if clients are configured.", *_WITH_KEY)
CALLER = Access("Needs a key that may make calls, if clients are configured: not a viewer's.", *_WITH_KEY)
VIEWER = Access("Needs the key of an admin, an operator or a viewer, if clients are configured.", *_WITH_KEY)
ADMIN = Access("Needs the key of an admin, if clients are configured.", *_WITH_KEY)
VISITOR = Access(
    "Needs the session or the key of an admin, an operator or a viewer, if clients are configured.", *_WITH_SESSION
)
ADMIN_VISITOR = Access("Needs the session or the key of an admin, if clients are configured.", *_WITH_SESSION)
CALLING_VISITOR = Access(
    "Needs a session or a key that may make calls, if clients are configured: not a viewer's.", *_WITH_SESSION
)


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. ``errors`` are those beyond the access's; any handler may crash."""

    asked: str  # method and path
    id: str
    summary: str
    tag: Tag
    access: Access
    answers: Mapping[int, Made]
    parameters: tuple[Made, ...] = ()
    errors: tuple[type[ApiError], ...] = ()
    body: Made | None = None
    description: str = ""
    error_schema: str = "Error"

    @property
    def method(self) -> str:
        """The method."""
        return self.asked.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path."""
        return self.asked.partition(" ")[2]

    @property
    def all_errors(self) -> tuple[type[ApiError], ...]:
        """All classes of its errors."""
        return (*self.access.errors, *self.errors, InternalError)


def parameter(name: str, about: str, of: Any = str, place: str = "query") -> Made:
    """Return a parameter, in the notation of ``schemas.schema``. Those of paths are required, others are not."""
    is_in_path = place == "path"
    return Made({"name": name, "in": place, "required": is_in_path, "description": about, "schema": schema(of)})


def in_path(name: str, about: str) -> tuple[Made, ...]:
    """Return the one parameter of a path."""
    return (parameter(name, about, place="path"),)


def answer(about: str, content: Mapping[str, Any] | None = None, headers: Iterable[str] = ()) -> Made:
    """Return a successful answer: its content by media type, and the names of its described headers."""
    found = Made(description=about)
    if named := {name: {"$ref": f"#/components/headers/{name}"} for name in headers}:
        found["headers"] = named
    if content:
        found["content"] = _media(content)
    return found


def body(content: Mapping[str, Any], example: Any = None, *, required: bool = True) -> Made:
    """Return a request body: its content by media type, with an example of the first one."""
    media = _media(content)
    if example is not None:
        next(iter(media.values()))["example"] = example
    return Made(required=required, content=media)


def _media(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {media: {"schema": schema(of)} for media, of in content.items()}
