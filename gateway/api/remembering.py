"""One answer of the Responses API that is to be remembered, from its request to its end."""

import asyncio

import msgspec

from gateway.api.answer_memory import MOST_CONVERSATION_BYTES, AnswerMemory, Scope
from gateway.overload.bodies import SEATED_BYTES
from providers import UNREADABLE, aside
from providers.dialects import Heard, items_of, single_items

LONG_BYTES = 256 * 1024  # of an answer: a longer one is read in a thread


class Remembering:
    """What was asked, and what of the answer the next turn needs."""

    def __init__(self, memory: AnswerMemory, scope: Scope, prompt: msgspec.Raw | None, follows: str | None) -> None:
        """``prompt``: the input, of which a copy is kept: the request forgets its own when its answer begins.

        ``follows``: the answer whose conversation the gateway has put before it.
        """
        self.heard = Heard()
        self._memory, self._scope, self._follows = memory, scope, follows
        size = 0 if prompt is None else len(memoryview(prompt))
        self._asked = items_of(prompt) if size <= MOST_CONVERSATION_BYTES else None

    @property
    def size(self) -> int:
        """The bytes that it keeps until the end of the call."""
        return 0 if self._asked is None else len(self._asked)

    @property
    def counted_bytes(self) -> int:
        """Those of them that count in the budget of bodies: few are covered by the call's seat."""
        return self.size if self.size > SEATED_BYTES else 0

    async def read(self, body: bytes) -> None:
        """Read an answer that came whole."""
        if len(body) > LONG_BYTES:
            await aside(lambda: self.heard.read(body))
        else:
            self.heard.read(body)

    def keep_soon(self) -> None:
        """Keep the answer once its last bytes have gone out: before anything that its client sends then is read."""
        if self._asked is not None:
            asyncio.get_running_loop().call_soon(self._keep)

    def _keep(self) -> None:
        asked, self._asked, heard = self._asked, None, self.heard
        if asked is None or heard.id is None or heard.is_lost or not heard.is_over:
            return
        try:
            items = single_items(asked)
        except UNREADABLE:
            return
        self._memory.keep(self._scope, heard.id, items, heard.said, follows=self._follows)
