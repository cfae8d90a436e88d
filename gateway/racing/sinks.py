"""The receiver of the winner's answer: forwards it, or gathers it into one JSON body."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.core.calls import Call
from gateway.racing.reader import LONG_BYTES, Block, WholeEvents
from providers import Exchange, UpstreamError, aside, check_room, check_room_for_answer, events
from providers.dialects import DONE, Dialect

if TYPE_CHECKING:
    from providers.dialects import Gathering

_MIB = 1024 * 1024
Forward = Callable[[bytes], bool]  # forwards whole events at once; False: not possible now, use ``write``


class ClientGone(Exception):
    """Raised by a sink whose client has disconnected."""


class Winner(msgspec.Struct, frozen=True):
    """The facts about the winner at the claim, for the response headers."""

    provider: str
    deployment: str
    launched: int  # attempts started so far
    ttft_ms: float | None  # since the call was received; None: the answer came whole
    overhead_ms: float
    exchange: Exchange
    call: Call
    key_name: str | None = None  # of the provider's key; None: the provider has one key
    is_last: bool = False  # if the sink streams, nothing needs the prompt any more


class Sink(Protocol):
    """The receiver of a race's answer. Only the attempt that holds the claim calls it.

    ``streams``: bytes are sent as they are written, and ``begin`` commits: no other attempt may answer after that. A
    sink that does not stream gathers, and ``end`` commits: until then the winner can be replaced. ``understands``: the
    sink needs the parsed parts of blocks; for other sinks these are dropped while the client is slow.
    """

    streams: bool
    understands: bool

    async def begin(self, winner: Winner) -> Forward | None:
        """Start the winner's answer. Called once for each claim, before the first ``write``.

        Returns a function that can forward later events without waking the attempt's task; None if the sink has none.
        """

    async def write(self, block: Block) -> None:
        """Send whole events."""

    async def end(self, last: Block) -> None:
        """End the answer with its ``last`` events. The call is already recorded."""

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish a committed answer that broke off. If so, ``fail`` is not called."""

    async def fail(self, error: UpstreamError) -> None:
        """Tell the client that a committed answer broke off."""


# The sink for answers that are not streamed: gathers the winner's events into one JSON body. The gateway asks providers
# to stream the answers to these calls, too: only streams can be raced and measured.


class GatheringSink:
    """Makes one body of the winner's events. ``winner`` and ``body()`` are available after the race."""

    streams = False
    understands = True

    def __init__(self, dialect: Dialect, *, single: bool = False) -> None:
        """``single``: one answer was asked for."""
        self.winner: Winner | None = None
        self.size = 0  # of what was gathered, in bytes
        self._checked_size = _MIB
        self._single = single
        self._answers = dialect.answers
        self._gathering: Gathering  # set by ``begin``

    async def begin(self, winner: Winner) -> None:
        """Start a new body, and drop the one of an earlier winner."""
        self.winner = winner
        self.size, self._checked_size = 0, _MIB
        self._gathering = self._answers.gathering()
        self._gathering.single = self._single

    async def write(self, block: Block) -> None:
        """Add events to the body.

        Raises:
            UpstreamError: the events are not valid in the dialect, or there is no room for them; another attempt may
                still answer.

        """
        take = self._gathering.take
        self.size += len(block.forward)
        if self.size > self._checked_size:
            check_room_for_answer(3 * self.size)  # ``body`` copies the events up to three times
            self._checked_size = self.size + _MIB
        for part in block.parts:
            if part.chunks is None:
                self._take_plain(part)
            else:
                for chunk in part.chunks:
                    if len(chunk.data) > LONG_BYTES:  # in a thread, so that other calls go on
                        await aside(take, chunk)
                    elif not (chunk.done and chunk.data.strip() == DONE):
                        take(chunk)

    async def end(self, last: Block) -> None:
        """Do nothing: all events were passed to ``write`` before."""

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Return False: a gathered answer is replaced until its end, never continued."""
        del error
        return False

    async def fail(self, error: UpstreamError) -> None:
        """Do nothing: a gathered answer is not committed before its end, so this is never called."""
        raise error

    @property
    def is_long(self) -> bool:
        """Whether to make the body takes long, and should be done in a thread."""
        return self.size > LONG_BYTES

    def body(self) -> bytes:
        """Return the complete answer as JSON.

        Raises:
            MemoryError: there is no room for a long one.

        """
        if self.is_long:
            check_room(3 * self.size)
        return self._gathering.body()

    def _take_plain(self, part: WholeEvents) -> None:
        if part.run is not None and part.pattern is not None and self._gathering.take_run(part.run, part.pattern):
            return
        for event in events(bytes(part.data)):
            self._gathering.take(self._answers.read_event(event.data, ()))
