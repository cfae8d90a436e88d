"""Summaries in place of a conversation: made by the model that answers, kept by the client alone, read by any other.

OpenAI's compaction is an item that only it can read. Asked for elsewhere, a model sums up in words, which are the
item's content behind a mark of ours: nothing of it is kept here, and the next model gets them as text.
"""

import base64
from collections.abc import Mapping

import msgspec

from providers.dialects.reading import RawObject
from providers.dialects.wording import raw_json
from providers.refusals import UNREADABLE

_MARK = "holeshot-summary-v1:"
MARK = _MARK.encode()  # as it stands in a request, as no other item has it
TRIGGER = b'"compaction_trigger"'
_COMPACTION = msgspec.Raw(b'"compaction"')
_items = msgspec.json.Decoder(list[RawObject])
_text = msgspec.json.Decoder(str)

ASK = raw_json(
    "The conversation so far is about to be replaced by a summary. Write it now, for the model that goes on from here"
    " and sees nothing else of what was said: what the user wants, in their own words where these matter; what was done"
    " and decided, and why; files, names, commands, values and errors that are needed; what is left to do, and what"
    " comes next. Call no tool, and write nothing but the summary."
)
_TOLD = "A summary of the conversation so far, in place of it. Go on from here:\n\n"
NO_COMPACTION = "no other API compacts: the model writes a summary, in an item that only this gateway reads"


def compacts(asked: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a request asks for a summary of its conversation alone."""
    given = asked.get("input")
    if given is None or TRIGGER not in bytes(given):
        return False
    try:
        items = _items.decode(given)
    except UNREADABLE:  # what is wrong is told where it is read
        return False
    return bool(items) and items[-1].get("type") == msgspec.Raw(TRIGGER)


def closed(summary: str) -> str:
    """Return the content of an item that stands for a conversation."""
    return _MARK + base64.b64encode(summary.encode(errors="replace")).decode()


def opened(item: RawObject) -> msgspec.Raw | None:
    """Return as a text what an item stands for that was made so; None: it was not."""
    content = item.get("encrypted_content")
    if item.get("type") != _COMPACTION or content is None or MARK not in bytes(memoryview(content)[:64]):
        return None
    try:
        said = base64.b64decode(_text.decode(content).removeprefix(_MARK), validate=True).decode()
    except (*UNREADABLE, ValueError):  # no base64, also of characters that it cannot have
        return None
    return raw_json(_TOLD + said)
