"""What an API is to the way of a call: how its bodies are read, and where in them the prompt is."""

from collections.abc import Callable

import msgspec

from gateway.ingress.asked import Asked
from gateway.ingress.body import Contents
from gateway.ingress.survey import Media
from gateway.settings.model import Settings


class Surface(msgspec.Struct, frozen=True):
    """One API. Without ``media`` its prompts are text alone."""

    read: Callable[[Contents, str | None, Settings], Asked]  # the second is the header that says how to race
    prompt: str = ""
    media: Media | None = None
