"""All dialects by their names in the configuration. A new dialect is a folder, and a line here."""

from collections.abc import Mapping

import msgspec

from providers.dialects.chat.custom_tools import TAKES_TEXT
from providers.dialects.chat.dialect import CHAT
from providers.dialects.completions.dialect import COMPLETIONS
from providers.dialects.dialect import Dialect, Habits
from providers.dialects.gemini.dialect import GEMINI
from providers.dialects.interactions.dialect import INTERACTIONS
from providers.dialects.messages.dialect import MESSAGES
from providers.dialects.responses.dialect import RESPONSES
from providers.models import Traits

PIVOT = CHAT  # all translations go through chat; the configuration uses chat's names for parameters
DIALECTS: Mapping[str, Dialect] = {
    each.name: each for each in (CHAT, COMPLETIONS, RESPONSES, MESSAGES, GEMINI, INTERACTIONS)
}


def _of_functions(dialect: Dialect) -> Dialect:
    assert dialect.pivoting is not None
    beyond = dialect.pivoting.beyond - {TAKES_TEXT}
    return msgspec.structs.replace(dialect, pivoting=msgspec.structs.replace(dialect.pivoting, beyond=beyond))


# APIs of servers that take only functions as tools, by name. A request that came in such an API is translated too, so
# that the server gets its other tools as functions.
OF_FUNCTIONS: Mapping[str, Dialect] = {RESPONSES.name: _of_functions(RESPONSES)}


def habits_by_dialect(known: Habits, traits: Traits, longest: int | None) -> Mapping[str, Habits]:
    """Return how a model is asked in each dialect, by the dialect's name; in chat as is ``known``.

    ``longest``: the tokens of the model's longest answer; None: unknown.
    """
    habits = dict.fromkeys(DIALECTS, known)
    for name, dialect in DIALECTS.items():
        if dialect.pivoting is not None and dialect.pivoting.habits_of is not None:
            habits[name] = dialect.pivoting.habits_of(traits, longest, known)
    return habits
