"""Chat chunks whose choices are changed one by one, as a ``Translation`` that holds nothing back."""

from typing import Any, ClassVar

import msgspec

from providers.bodies import encoded, events
from providers.models import Usage
from providers.refusals import UNREADABLE

_chunk = msgspec.json.Decoder(dict[str, Any])


class OfChoices:
    """A ``Translation`` of chat chunks: a subclass says what becomes of each choice."""

    word: ClassVar[bytes] = b'"choices"'  # events without this word pass unchanged
    answer_id = ""  # the id of the chunk whose choices are changed

    @property
    def finishing(self) -> bool:
        """False: this translation holds no end back."""
        return False

    @property
    def usage_so_far(self) -> Usage | None:
        """None: this translation holds no usage back."""
        return None

    def feed(self, block: bytes) -> bytes:
        """Return whole chunks with their choices changed."""
        if self.word not in block:
            return block
        return b"".join(self._said(event.raw, event.data) for event in events(block))

    def end(self) -> bytes:
        """Return ``b""``: a choice that has not ended is no part of an answer."""
        return b""

    def keeps(self, choice: dict[str, Any]) -> bool:
        """Change a choice of a chunk; return whether anything is left of it.

        Raises:
            UNREADABLE, AttributeError, KeyError, TypeError: the choice is malformed. Its chunk passes unchanged.

        """
        raise NotImplementedError

    def _said(self, raw: bytes, data: bytes) -> bytes:
        """Return an event with its choices changed; ``b""`` if no choice is left, and the event has nothing else."""
        if self.word not in data:
            return raw
        try:
            chunk = _chunk.decode(data)
            given, self.answer_id = chunk["choices"], str(chunk.get("id", ""))
            choices = [each for each in given if self.keeps(each)]
        except (*UNREADABLE, AttributeError, KeyError, TypeError):
            return raw
        if given and not choices and not chunk.get("usage"):
            return b""
        return b"data: %b\n\n" % encoded({**chunk, "choices": choices})
