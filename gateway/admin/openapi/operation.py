"""One operation of the HTTP API as /openapi.json describes it: what it takes, who may ask, and what it answers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from gateway.admin.openapi.schemas import TEXT, Made
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
    """Who may ask. ``security`` are names of security schemes; any one of them is enough."""

    words: str
    security: tuple[str, ...] = ()
    errors: tuple[type[ApiError], ...] = ()


KEY, API_KEY, SESSION = "key", "apiKey", "session"  # the security schemes
_JUDGED = (NoKey, WrongKey, KeyExpired, Forbidden, KeysNotLoaded, KeyUnusable)
_WITH_KEY = ((KEY, API_KEY), _JUDGED)
_WITH_SESSION = ((SESSION, KEY, API_KEY), (*_JUDGED, SessionEnded, HeaderIgnored))

ANYBODY = Access("Needs no key.")
CLIENT = Access("Needs a key, if clients are configured.", *_WITH_KEY)
CALLER = Access("Needs a key that may make calls, if clients are configured: not a viewer's.", *_WITH_KEY)
VIEWER = Access("Needs the key of an admin or a viewer, if clients are configured.", *_WITH_KEY)
ADMIN = Access("Needs the key of an admin, if clients are configured.", *_WITH_KEY)
VISITOR = Access("Needs the session or the key of an admin or a viewer, if clients are configured.", *_WITH_SESSION)
ADMIN_VISITOR = Access("Needs the session or the key of an admin, if clients are configured.", *_WITH_SESSION)
CALLING_VISITOR = Access(
    "Needs a session or a key that may make calls, if clients are configured: not a viewer's.", *_WITH_SESSION
)


class Parameter(msgspec.Struct, frozen=True):
    """One parameter. Those of paths are required, others are not."""

    name: str
    description: str
    schema: Made = TEXT
    place: Literal["path", "query", "header"] = "query"


class Answer(msgspec.Struct, frozen=True):
    """One answer that is no error. ``content``: by media type, in the notation of ``schemas.schema``."""

    description: str
    content: Mapping[str, Any] = {}
    headers: tuple[str, ...] = ()  # names of those that are described


class Body(msgspec.Struct, frozen=True):
    """What is sent: by media type, in the notation of ``schemas.schema``, and an example of the first one."""

    content: Mapping[str, Any]
    example: Any = None
    required: bool = True


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. ``errors`` are those beyond the access's; any handler may crash."""

    asked: str  # method and path
    id: str
    summary: str
    tag: Tag
    access: Access
    answers: Mapping[int, Answer]
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[type[ApiError], ...] = ()
    body: Body | None = None
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
        """All classes of errors that it may answer with."""
        return (*self.access.errors, *self.errors, InternalError)


def in_path(name: str, description: str) -> Parameter:
    """Return a parameter of the path."""
    return Parameter(name, description, place="path")
