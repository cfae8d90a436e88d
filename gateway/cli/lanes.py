"""One race as it is shown: a lane for each attempt, and the answer as it arrives."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.attempt_records import AttemptRecord, AttemptStart
from gateway.calls import Call, CallRecord, CallStart
from gateway.prompt_classes import PromptClass
from gateway.racing.reading import Block
from gateway.racing.sink import ClientGone, Winner
from providers.dialects.chat.events import read_event
from providers.errors import UpstreamError

_TEXT_KINDS = ("content", "refusal")
_THOUGHT_KINDS = ("reasoning", "reasoning_content")


class Lane:
    """One attempt. Milliseconds are since its launch."""

    def __init__(self, start: AttemptStart) -> None:
        self.start = start
        self.first_token_ms: float | None = None
        self.won = False
        self.ended_ms: float | None = None
        self.record: AttemptRecord | None = None  # set when it has ended

    @property
    def deployment(self) -> str:
        """The name of its deployment."""
        return self.start.deployment


class Spectator(Protocol):
    """Receives the events of the lanes as they happen."""

    def changed(self, lane: Lane, at_ms: float) -> None:
        """A launch, a first token, the win or an end, ``at_ms`` after the call began."""

    def text_added(self, text: str) -> None:
        """The next piece of the answer.

        Raises:
            OSError: the output is closed.

        """


class Lanes:
    """A recorder and a sink that keep what they receive. ``clock`` is the gateway's own, monotonic seconds.

    ``catch_up`` has recorders told what has happened.
    """

    streams = True
    understands = True

    def __init__(
        self, clock: Callable[[], float], spectator: Spectator, catch_up: Callable[[], None] = lambda: None
    ) -> None:
        self.lanes: list[Lane] = []
        self.record: CallRecord | None = None  # set when the call has ended
        self.error: str | None = None  # why there is no answer, or an incomplete one
        self.tokens = 0  # of the answer so far: its meaningful chunks, at most providers one token each
        self.claimed_ms: float | None = None  # the claim, since the call began
        self._clock = clock
        self._catch_up = catch_up
        self._spectator = spectator
        self._began_at: float | None = None
        self._thoughts: list[str] = []
        self._text: list[str] = []

    @property
    def answer(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def thoughts(self) -> str:
        """The reasoning so far, if the winner streams it."""
        return "".join(self._thoughts)

    @property
    def elapsed_ms(self) -> float:
        """The age of the call; its total time if it has ended."""
        if self.record is not None:
            return self.record.total_ms
        return 0.0 if self._began_at is None else (self._clock() - self._began_at) * 1000

    @property
    def winner(self) -> Lane | None:
        """The lane that won."""
        return next((lane for lane in self.lanes if lane.won), None)

    def call_started(self, start: CallStart) -> None:
        """Start the clock."""
        since_ms = start.attempts[0].launch_offset_ms if start.attempts else 0.0
        self._began_at = self._clock() - since_ms / 1000

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Add a lane."""
        del call
        lane = Lane(start)
        self.lanes.append(lane)
        self._spectator.changed(lane, self.elapsed_ms)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Record the first token in its lane."""
        del model, prompt_class
        for lane in self.lanes:
            if lane.start.id == start.id:
                lane.first_token_ms = ttft_s * 1000
                self._spectator.changed(lane, self.elapsed_ms - ago_s * 1000)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Close a lane; ignore losers that were watched longer than the race."""
        del model, prompt_class
        if self.record is not None:
            return
        for lane in self.lanes:
            if lane.start.id == attempt.id:
                at_ms = self.elapsed_ms - ago_s * 1000
                lane.record = attempt
                lane.ended_ms = at_ms - attempt.launch_offset_ms
                self._spectator.changed(lane, at_ms)

    def call_finished(self, record: CallRecord) -> None:
        """Keep the record, whose attempts have their costs."""
        self.record = record
        attempts = {attempt.id: attempt for attempt in record.attempts}
        for lane in self.lanes:
            lane.record = attempts.get(lane.start.id, lane.record)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Do nothing: the race is over."""

    async def begin(self, winner: Winner) -> None:
        """Record the winner, and drop text of an earlier one."""
        self._catch_up()
        self._text, self._thoughts, self.tokens = [], [], 0
        self.claimed_ms = winner.ttft_ms
        running = [lane for lane in self.lanes if lane.deployment == winner.deployment and lane.record is None]
        for lane in running:
            # A deployment that races against itself has two lanes; the winner's has a first token.
            if len(running) == 1 or lane.first_token_ms is not None:
                lane.won = True
                self._spectator.changed(lane, self.elapsed_ms)
                return

    async def write(self, block: Block) -> None:
        """Add the text in the chunks."""
        for data in block.events():
            if not read_event(data).meaningful:
                continue
            self.tokens += 1
            thought, text = read_text(data)
            self._thoughts.append(thought)
            if text:
                self._text.append(text)
                try:
                    self._spectator.text_added(text)
                except OSError as error:
                    raise ClientGone from error

    async def end(self, last: Block) -> None:
        """Add the text in the last events."""
        await self.write(last)

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Return False: one race is shown, and how it ends."""
        del error
        return False

    async def fail(self, error: UpstreamError) -> None:
        """Record that the answer broke off."""
        self.error = f"the answer broke off ({error.kind}: {error.message})"


def read_text(data: bytes) -> tuple[str, str]:
    """Return the reasoning and the text in the delta of an event's first choice."""
    choices = msgspec.json.decode(data).get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    thoughts = [delta[kind] for kind in _THOUGHT_KINDS if isinstance(delta.get(kind), str)][:1]
    texts = [delta[kind] for kind in _TEXT_KINDS if isinstance(delta.get(kind), str)]
    if isinstance(delta.get("content"), list):  # Mistral's reasoning models
        texts += [part["text"] for part in delta["content"] if isinstance(part.get("text"), str)]
    return "".join(thoughts), "".join(texts)
