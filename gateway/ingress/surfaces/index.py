"""The list of raced APIs, each with its dialect. A new one is a file, and a line here."""

from collections.abc import Mapping

from gateway.ingress.surfaces.chat import CHAT_SURFACE
from gateway.ingress.surfaces.completions import COMPLETIONS_SURFACE
from gateway.ingress.surfaces.messages import MESSAGES_SURFACE
from gateway.ingress.surfaces.responses import RESPONSES_SURFACE
from gateway.ingress.surfaces.surface import Surface
from providers.dialects.dialect import Dialect

SURFACES: Mapping[Dialect, Surface] = {
    each.dialect: each for each in (CHAT_SURFACE, COMPLETIONS_SURFACE, MESSAGES_SURFACE, RESPONSES_SURFACE)
}
