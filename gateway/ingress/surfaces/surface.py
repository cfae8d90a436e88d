"""What a call needs to know about its API: how bodies are read, and the path."""

from collections.abc import Callable

import msgspec

from gateway.ingress.asked import Asked, Decoders
from gateway.ingress.body import Contents
from gateway.ingress.surfaces.description import Description
from gateway.ingress.survey import Media
from gateway.settings.model import Settings
from providers.dialects.dialect import Dialect


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """One API. Without ``media`` its prompts are only text."""

    dialect: Dialect
    read: Callable[[Contents, str | None, Settings], Asked]  # the second argument is the header with the race settings
    description: Description
    fields: Decoders = {}  # those that are read, beside the model, the prompt and the gateway's own
    media: Media | None = None

    @property
    def route(self) -> str:
        """The path at the gateway."""
        return f"/v1/{self.dialect.path}"
