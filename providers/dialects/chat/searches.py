"""The web search that a chat request offers beside its tools, for the APIs in which the search is a tool."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.reading import inner_at, object_at, present, said_of
from providers.dialects.wording import Losses

SEARCH_FIELD = "web_search_options"
_PLACE = "user_location"
_SIZE = "search_context_size"


def search_in(
    asked: Mapping[str, msgspec.Raw], losses: Losses, kind: Mapping[str, Any], *, sizes: bool = False
) -> list[Any]:
    """Return a search as a tool of this ``kind``, which may say where the user is; none if no search is offered.

    ``sizes``: the API has sizes of what is found. In chat the user's place stands one object deeper
    (developers.openai.com/api/docs/guides/tools-web-search,
    platform.claude.com/docs/agents-and-tools/tool-use/web-search-tool, read on 2026-11-29).

    Raises:
        Malformed: the field is no object.

    """
    if SEARCH_FIELD not in asked:
        return []
    options = present(object_at(asked[SEARCH_FIELD], SEARCH_FIELD))
    place = inner_at(options, _PLACE, SEARCH_FIELD)
    inner = inner_at(place, "approximate", f"{SEARCH_FIELD}.{_PLACE}")
    where = {_PLACE: {"type": "approximate", **inner}} if inner else {}
    if not sizes:
        losses.lose(options, _SIZE, SEARCH_FIELD, "its search has no sizes", b'"medium"', hint=True)
    losses.rest(options, (_PLACE, _SIZE), SEARCH_FIELD, "its search has no such field")
    return [{**kind, **where, **(said_of(options, _SIZE) if sizes else {})}]
