"""What an API is to the way of a call: how its bodies are read, and what it is called."""

from collections.abc import Callable

import msgspec

from gateway.ingress.asked import Asked
from gateway.ingress.body import Contents
from gateway.ingress.survey import Media
from gateway.settings.model import Settings
from providers.dialects.dialect import Dialect


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """One API. Without ``media`` its prompts are text alone."""

    dialect: Dialect
    read: Callable[[Contents, str | None, Settings], Asked]  # the second is the header that says how to race
    media: Media | None = None

    @property
    def route(self) -> str:
        """Its path here."""
        return f"/v1/{self.dialect.path}"
