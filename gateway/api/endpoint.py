"""What a call needs to know about its API: how bodies are read, and the path."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.json_body import Contents, Media
from gateway.api.request import Decoders, ParsedRequest
from gateway.core.errors import ApiError
from gateway.settings import Settings
from providers.dialects import Dialect, TokenCounting

if TYPE_CHECKING:
    from aiohttp import web

# What /openapi.json says of a raced API, beside what its dialect and its decoders know.


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The words and JSON Schemas for one API. ``model`` is in no example: it is added to each."""

    id: str  # of the operation: SDKs that are made from the document call their methods so
    summary: str
    prompt: Mapping[str, Any]
    example: Mapping[str, Any]
    answer: str | None = None  # the name of a whole answer's schema; None: any object
    events: str
    required: tuple[str, ...] = ()  # fields, beside the model and the prompt
    optional_prompt: bool = False
    errors: tuple[type[ApiError], ...] = ()  # beyond those of every raced call
    headers: Mapping[str, str] = {}  # of answers, with what they say, beyond those of every raced call
    error_schema: str = "Error"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One API. Without ``media`` its prompts are only text. Paths may contain {model}."""

    dialect: Dialect
    read: Callable[[Contents, str | None, Settings], ParsedRequest]  # the second: the header with the race settings
    description: Description
    fields: Decoders = {}  # those that are read, beside the model, the prompt and the gateway's own
    media: Media | None = None
    routes: tuple[str, ...] = ()  # its paths at the gateway; none: /v1/ and the dialect's
    streamed: tuple[str, ...] = ()  # likewise, of answers that are streamed, where the path says so
    below: str | None = None  # where all paths begin that have its errors; None: with its own path
    counted: tuple[str, ...] = ()  # its paths where tokens are counted; none: /v1/ and the dialect's, if it has one
    # Puts what the address says of a request into its fields; None: the address says nothing.
    addressed: "Callable[[web.Request, Contents], Contents] | None" = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths at the gateway."""
        return (*self.routes, *self.streamed) or (f"/v1/{self.dialect.path}",)

    @property
    def prefix(self) -> str:
        """The beginning of all paths that have its errors."""
        return self.below or self.paths[0]

    @property
    def counting(self) -> Iterator[tuple[str, TokenCounting]]:
        """The paths where the tokens of a prompt are counted, and how providers count them."""
        counting = self.dialect.counting
        if counting is not None:
            for path in self.counted or (f"/v1/{counting.path}",):
                yield path, counting
