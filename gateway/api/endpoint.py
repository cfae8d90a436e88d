"""The description of one API: its paths, how its bodies are read, and its documentation."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.json_body import JSON, Contents, Media
from gateway.api.relayed_api import RelayedApi, counting_api
from gateway.api.request import Decoders, ParsedRequest
from gateway.core.errors import ApiError
from gateway.settings import Settings
from providers.dialects import PIVOT, Dialect, Recalling, TokenCounting, raw_json

if TYPE_CHECKING:
    from aiohttp import web

# The part of /openapi.json about a raced API that does not follow from its dialect and decoders.


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Texts and JSON Schemas for one API. Examples are without ``model``, which is added to each.

    Of an API whose answers pass unread, the body follows from what it demands.
    """

    id: str  # of the operation: generated SDKs name their methods by it
    summary: str
    prompt: Mapping[str, Any] = {}
    example: Mapping[str, Any] = {}
    answer: str | None = None  # the name of the schema of a complete answer; None: any object
    content: tuple[str, ...] = (JSON,)  # media types of answers, besides events of tokens
    events: str = ""
    required: tuple[str, ...] = ()  # fields, beside the model and the prompt
    optional_prompt: bool = False
    errors: tuple[type[ApiError], ...] = ()  # beyond those of every raced call
    headers: Mapping[str, str] = {}  # of answers, with their descriptions, beyond those of every raced call
    error_schema: str = "Error"
    streamed_as: str | None = None  # the media type of a streamed answer that is no events


def _unread(contents: Contents, race_header: str | None, settings: Settings) -> ParsedRequest:
    raise NotImplementedError


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One API: a row of the table. Its answers are read in its dialect, or pass unread (``relayed``).

    Without ``media`` its prompts are only text. Paths may contain {model}.
    """

    dialect: Dialect = PIVOT
    relayed: RelayedApi | None = None
    # Reads a body, unless the answer passes unread. The second: the header with the race settings.
    read: Callable[[Contents, str | None, Settings], ParsedRequest] = _unread
    description: Description
    fields: Decoders = {}  # of fields that are read, besides the model, the prompt and the gateway's own
    media: Media | None = None
    routes: tuple[str, ...] = ()  # its paths at the gateway; none: /v1/ and the dialect's
    streamed: tuple[str, ...] = ()  # likewise for streamed answers, where the path decides that
    takes: tuple[str, ...] = (JSON,)  # media types of bodies, if its answers are read: JSON by any of these names
    below: str | None = None  # prefix of all paths whose errors are in this API's format; None: its own path
    counted: tuple[str, ...] = ()  # its paths that count tokens; none: /v1/ and the dialect's, if it has one
    # Copies the parts of the URL that belong to the request into its fields; None: there are none.
    addressed: "Callable[[web.Request, Contents], Contents] | None" = None
    # Takes a prompt that is counted out of what it stands in; None: it stands in nothing.
    unpacked: "Callable[[ParsedRequest], ParsedRequest] | None" = None
    recalls: Recalling | None = None  # how requests name earlier answers, which the gateway may know
    counts: TokenCounting | None = None  # for an API that only counts: how the tokens of a prompt are counted

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths at the gateway."""
        return (*self.routes, *self.streamed) or (f"/v1/{self.dialect.path}",)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of all paths whose errors are in this API's format."""
        return self.paths if self.below is None else (self.below,)

    @property
    def counter(self) -> "Endpoint | None":
        """The API that counts the tokens of such prompts (``/v1/messages/count_tokens``); None: there is none."""
        counts = self.dialect.counting
        if counts is None:
            return None
        return msgspec.structs.replace(
            self,
            relayed=counting_api(self.dialect.name, counts.path),
            counts=counts,
            routes=self.counted or (f"/v1/{counts.path}",),
            streamed=(),
            addressed=None if self.addressed is None else _with_model,
        )


def _with_model(request: "web.Request", contents: Contents) -> Contents:
    """Add the model, which is in the URL, to the body's fields."""
    return msgspec.structs.replace(contents, fields={**contents.fields, "model": raw_json(request.match_info["model"])})
