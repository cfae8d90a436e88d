"""The description of one API: its paths, how its bodies are read, and its documentation."""

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

# The part of /openapi.json about a raced API that does not follow from its dialect and decoders.


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Texts and JSON Schemas for one API. Examples are without ``model``, which is added to each."""

    id: str  # of the operation: generated SDKs name their methods by it
    summary: str
    prompt: Mapping[str, Any]
    example: Mapping[str, Any]
    answer: str | None = None  # the name of the schema of a complete answer; None: any object
    events: str
    required: tuple[str, ...] = ()  # fields, beside the model and the prompt
    optional_prompt: bool = False
    errors: tuple[type[ApiError], ...] = ()  # beyond those of every raced call
    headers: Mapping[str, str] = {}  # of answers, with their descriptions, beyond those of every raced call
    error_schema: str = "Error"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One API. Without ``media`` its prompts are only text. Paths may contain {model}."""

    dialect: Dialect
    read: Callable[[Contents, str | None, Settings], ParsedRequest]  # the second: the header with the race settings
    description: Description
    fields: Decoders = {}  # of fields that are read, besides the model, the prompt and the gateway's own
    media: Media | None = None
    routes: tuple[str, ...] = ()  # its paths at the gateway; none: /v1/ and the dialect's
    streamed: tuple[str, ...] = ()  # likewise for streamed answers, where the path decides that
    below: str | None = None  # prefix of all paths that have its errors; None: its own path
    counted: tuple[str, ...] = ()  # its paths that count tokens; none: /v1/ and the dialect's, if it has one
    # Copies the parts of the URL that belong to the request into its fields; None: there are none.
    addressed: "Callable[[web.Request, Contents], Contents] | None" = None
    recalls: bool = False  # whether requests name earlier answers, which the gateway may know

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths at the gateway."""
        return (*self.routes, *self.streamed) or (f"/v1/{self.dialect.path}",)

    @property
    def prefix(self) -> str:
        """The prefix of all paths that have its errors."""
        return self.below or self.paths[0]

    @property
    def counting(self) -> Iterator[tuple[str, TokenCounting]]:
        """The paths that count the tokens of a prompt, with the providers' API for it."""
        counting = self.dialect.counting
        if counting is not None:
            for path in self.counted or (f"/v1/{counting.path}",):
                yield path, counting
