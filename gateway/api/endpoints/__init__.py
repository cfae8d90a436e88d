"""The list of raced APIs, each with a dialect. A new API is a file, and a line here."""

from collections.abc import Mapping

from gateway.api.endpoint import Endpoint
from gateway.api.endpoints.chat import CHAT_ENDPOINT
from gateway.api.endpoints.completions import COMPLETIONS_ENDPOINT
from gateway.api.endpoints.gemini import GEMINI_ENDPOINT
from gateway.api.endpoints.interactions import INTERACTIONS_ENDPOINT
from gateway.api.endpoints.messages import MESSAGES_ENDPOINT
from gateway.api.endpoints.responses import RESPONSES_ENDPOINT
from providers.dialects import Dialect

ENDPOINTS: Mapping[Dialect, Endpoint] = {
    each.dialect: each
    for each in (
        CHAT_ENDPOINT,
        COMPLETIONS_ENDPOINT,
        MESSAGES_ENDPOINT,
        RESPONSES_ENDPOINT,
        GEMINI_ENDPOINT,
        INTERACTIONS_ENDPOINT,
    )
}
