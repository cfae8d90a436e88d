"""Summaries in place of a conversation: made by the model that answers, kept by the client alone, read by any other.

OpenAI's compaction is an item that only OpenAI can read. Any other vendor's model sums up in words. These words are the
item's content, behind a mark of the gateway's. The gateway stores no summary, and the next model gets the words as
text.
"""

import base64
from collections.abc import Mapping

import msgspec

from providers.dialects.reading import RawObject
from providers.dialects.wording import raw_json
from providers.refusals import UNREADABLE

_MARK = "holeshot-summary-v1:"
MARK = _MARK.encode()  # the mark as it stands in a request; no other item has it
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
    """Whether a request asks only for a summary of its conversation."""
    given = asked.get("input")
    if given is None or TRIGGER not in bytes(given):
        return False
    try:
        items = _items.decode(given)
    except UNREADABLE:  # the reader of the field reports the error
        return False
    return bool(items) and items[-1].get("type") == msgspec.Raw(TRIGGER)


def closed(summary: str) -> str:
    """Return the content of an item that stands for a conversation."""
    return _MARK + base64.b64encode(summary.encode(errors="replace")).decode()


def opened(item: RawObject) -> msgspec.Raw | None:
    """Return as a text the conversation for which an item stands; None: the gateway did not make the item."""
    content = item.get("encrypted_content")
    if item.get("type") != _COMPACTION or content is None or MARK not in bytes(memoryview(content)[:64]):
        return None
    try:
        said = base64.b64decode(_text.decode(content).removeprefix(_MARK), validate=True).decode()
    except (*UNREADABLE, ValueError):  # no Base64, or characters that Base64 cannot have
        return None
    return raw_json(_TOLD + said)
