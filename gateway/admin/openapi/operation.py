"""One operation of the HTTP API as /openapi.json describes it: its input, access and answers."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from gateway.admin.openapi.schemas import Made, Schemas, of_type
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


class Answer(msgspec.Struct, frozen=True):
    """A successful answer: its content by media type, and the names of its described headers.

    A content is the type that the handler returns, a schema, or several types, one of which it is.
    """

    about: str
    content: Mapping[str, Any] = {}
    headers: Sequence[str] = ()

    @property
    def kinds(self) -> Iterator[Any]:
        """The types in it."""
        for of in self.content.values():
            yield from of if isinstance(of, tuple) else (of,)

    def described(self, schemas: Schemas) -> dict[str, Any]:
        """Return it as the document has it."""
        found: dict[str, Any] = {"description": self.about}
        if self.headers:
            found["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in self.headers}
        if self.content:
            found["content"] = {
                media: {
                    "schema": {"anyOf": [schemas.of(each) for each in of]} if isinstance(of, tuple) else schemas.of(of)
                }
                for media, of in self.content.items()
            }
        return found


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. ``errors`` are those beyond the access's; any handler may crash."""

    asked: str  # method and path
    id: str
    summary: str
    tag: Tag
    access: Access
    answers: Mapping[int, Answer]
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
    """Return a parameter, of a type or a schema. Those of paths are required, others are not."""
    schema = of if isinstance(of, Made) else of_type(of)
    return Made({"name": name, "in": place, "required": place == "path", "description": about, "schema": schema})


def in_path(name: str, about: str) -> tuple[Made, ...]:
    """Return the one parameter of a path."""
    return (parameter(name, about, place="path"),)


def body(content: Mapping[str, Made], example: Any = None, *, required: bool = True) -> Made:
    """Return a request body: schemas by media type, with an example of the first one."""
    media: dict[str, dict[str, Any]] = {media: {"schema": of} for media, of in content.items()}
    if example is not None:
        next(iter(media.values()))["example"] = example
    return Made(required=required, content=media)
