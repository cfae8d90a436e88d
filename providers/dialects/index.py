"""All dialects by their names in the configuration. A new one is a folder, and a line here."""

from collections.abc import Mapping

from providers.dialects.chat.dialect import CHAT
from providers.dialects.completions.dialect import COMPLETIONS
from providers.dialects.dialect import Dialect
from providers.dialects.gemini.dialect import GEMINI
from providers.dialects.interactions.dialect import INTERACTIONS
from providers.dialects.messages.dialect import MESSAGES
from providers.dialects.responses.dialect import RESPONSES

PIVOT = CHAT  # all translations go through it; the configuration uses its names for parameters
DIALECTS: Mapping[str, Dialect] = {
    each.name: each for each in (CHAT, COMPLETIONS, RESPONSES, MESSAGES, GEMINI, INTERACTIONS)
}
