"""All dialects by their names in the configuration. A new one is a folder, and a line here."""

from collections.abc import Mapping

import msgspec

from providers.dialects.chat.custom_tools import TAKES_TEXT
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


def _of_functions(dialect: Dialect) -> Dialect:
    assert dialect.pivoting is not None
    beyond = dialect.pivoting.beyond - {TAKES_TEXT}
    return msgspec.structs.replace(dialect, pivoting=msgspec.structs.replace(dialect.pivoting, beyond=beyond))


# APIs of servers that take functions alone among tools, by name. A request that came in such an API is translated too,
# so that its other tools are functions there.
OF_FUNCTIONS: Mapping[str, Dialect] = {each.name: _of_functions(each) for each in (RESPONSES,)}
