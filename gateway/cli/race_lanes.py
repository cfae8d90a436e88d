"""The state of one race: a lane for each attempt, the answer as it arrives, and what the race was worth."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.cli.terminal import UNKNOWN
from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import Call, CallRecord, CallStart
from gateway.core.prompt_classes import PromptClass
from gateway.racing import Block, ClientGone, ClientSink, Winner
from providers import UpstreamError, events
from providers.dialects import read_event

_TEXT_KINDS = ("content", "refusal")
_THOUGHT_KINDS = ("reasoning", "reasoning_content")


class PrintedLane:
    """One attempt. Milliseconds are counted from its launch."""

    def __init__(self, start: AttemptStart) -> None:
        self.start = start
        self.first_token_ms: float | None = None
        self.won = False
        self.ended_ms: float | None = None
        self.record: AttemptRecord | None = None  # set when the attempt has ended

    @property
    def deployment(self) -> str:
        """The name of the attempt's deployment."""
        return self.start.deployment


class LaneListener(Protocol):
    """Receives the events of the lanes as they happen."""

    def changed(self, lane: PrintedLane, at_ms: float) -> None:
        """A launch, a first token, the win or an end, ``at_ms`` after the call began."""

    def text_added(self, text: str) -> None:
        """The next piece of the answer.

        Raises:
            OSError: the output is closed.

        """


class Lanes(ClientSink):
    """A recorder and a sink that keep what they receive. ``clock`` is the gateway's own, in monotonic seconds.

    ``catch_up`` delivers the events that recorders have not received yet.
    """

    streams = True
    understands = False

    def __init__(
        self, clock: Callable[[], float], listener: LaneListener, catch_up: Callable[[], None] = lambda: None
    ) -> None:
        self.lanes: list[PrintedLane] = []
        self.record: CallRecord | None = None  # set when the call has ended
        self.error: str | None = None  # why there is no answer, or an incomplete one
        self.tokens = 0  # meaningful chunks of the answer so far: one token each at most providers
        self.claimed_ms: float | None = None  # when an attempt claimed the win, since the call began
        self._clock = clock
        self._catch_up = catch_up
        self._listener = listener
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
    def winner(self) -> PrintedLane | None:
        """The lane that won."""
        return next((lane for lane in self.lanes if lane.won), None)

    def add(self, start: AttemptStart) -> PrintedLane:
        """Add and return the lane of an attempt; the viewers do not hear of this lane yet."""
        lane = PrintedLane(start)
        self.lanes.append(lane)
        return lane

    def call_started(self, start: CallStart) -> None:
        """Start the clock."""
        since_ms = start.attempts[0].launch_offset_ms if start.attempts else 0.0
        self._began_at = self._clock() - since_ms / 1000

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Add a lane."""
        del call
        self._listener.changed(self.add(start), self.elapsed_ms)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Record the first token in its lane."""
        del model, prompt_class
        for lane in self.lanes:
            if lane.start.id == start.id:
                lane.first_token_ms = ttft_s * 1000
                self._listener.changed(lane, self.elapsed_ms - ago_s * 1000)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Close a lane; ignore losers that were measured longer than the race."""
        del model, prompt_class
        if self.record is not None:
            return
        for lane in self.lanes:
            if lane.start.id == attempt.id:
                at_ms = self.elapsed_ms - ago_s * 1000
                lane.record = attempt
                lane.ended_ms = at_ms - attempt.launch_offset_ms
                self._listener.changed(lane, at_ms)

    def call_finished(self, record: CallRecord) -> None:
        """Keep the record, which has the costs of the call's attempts."""
        self.record = record
        attempts = {attempt.id: attempt for attempt in record.attempts}
        for lane in self.lanes:
            lane.record = attempts.get(lane.start.id, lane.record)
            if record.winner_attempt_id is not None:  # after a takeover, the attempt that finished the answer
                lane.won = lane.start.id == record.winner_attempt_id

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Do nothing: the race is over."""

    async def begin(self, winner: Winner) -> None:
        """Record the winner, and drop text of an earlier one."""
        self._catch_up()
        self._text, self._thoughts, self.tokens = [], [], 0
        self.claimed_ms = winner.ttft_ms
        running = [lane for lane in self.lanes if lane.deployment == winner.deployment and lane.record is None]
        for lane in running:
            # A deployment that races against itself has two lanes; the winner's lane has a first token.
            if len(running) == 1 or lane.first_token_ms is not None:
                lane.won = True
                self._listener.changed(lane, self.elapsed_ms)
                return

    async def write(self, block: Block) -> None:
        """Add the text in the chunks."""
        if self.delivered is not None:
            self.delivered.add(block.forward)
        for event in events(block.forward):
            if not read_event(event.data).meaningful:
                continue
            try:
                self.add_text(*read_text(event.data))
            except OSError as error:
                raise ClientGone from error

    def add_text(self, thought: str, text: str) -> None:
        """Add the text of a meaningful event.

        Raises:
            OSError: the output is closed.

        """
        self.tokens += 1
        self._thoughts.append(thought)
        if text:
            self._text.append(text)
            self._listener.text_added(text)

    def tell(self, lane: PrintedLane) -> None:
        """Tell the viewers the end of an attempt that was not watched while it ran."""
        self._listener.changed(lane, lane.start.launch_offset_ms + (lane.ended_ms or 0.0))

    async def end(self, last: Block) -> None:
        """Add the text in the last events."""
        await self.write(last)

    def keep_alive(self, every_s: float) -> None:
        """Do nothing: no connection waits."""

    async def close(self) -> None:
        """Do nothing: no connection waits."""

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


def verdict(lanes: Lanes) -> str | None:
    """Return what the race was worth against its first choice alone, if known; None without an answer."""
    record = lanes.record
    if record is None or record.winner_attempt_id is None or record.ttft_ms is None:
        return None
    if len(lanes.lanes) < record.launched:
        return None  # one attempt runs on to be measured, elsewhere
    primary, *others = lanes.lanes
    if not others:
        why = "" if record.narrowed is None else f" ({record.narrowed.replace('_', ' ')})"
        return f"one attempt: nobody raced{why}"
    first_ms = _first_at_ms(primary)
    if first_ms is None:
        return _without_its_token(primary, record)
    if first_ms > record.ttft_ms + _SAME_MS:
        return f"{in_ms(first_ms - record.ttft_ms)} sooner than the first choice alone"
    later = [at_ms - record.ttft_ms for at_ms in map(_first_at_ms, others) if at_ms is not None]
    before = f", {in_ms(max(0.0, min(later)))} before the next" if later else ""
    return f"the first choice answered{before}"


def _without_its_token(primary: PrintedLane, record: CallRecord) -> str:
    """Return the verdict on a call whose first choice never had a first token, or has none yet."""
    assert record.ttft_ms is not None
    if primary.record is None:  # the attempt is audited, and runs on
        waits_ms = record.total_ms - record.ttft_ms
        return f"more than {in_ms(waits_ms)} sooner than the first choice alone, which has no token yet"
    if primary.record.error_kind is None:
        return "the first choice was overtaken, and cancelled before its first token: by how much is not known"
    saved_ms = 0.0 if record.alone_ms is None else record.alone_ms - record.ttft_ms
    if saved_ms <= _SAME_MS:
        return "the first choice failed, and another answered"
    return f"the first choice failed: {in_ms(saved_ms)} sooner than asking another only then"


_SAME_MS = 0.5


def _first_at_ms(lane: PrintedLane) -> float | None:
    """Return when an attempt could win, since the call was received; None if it never could."""
    record = lane.record
    token_ms = lane.first_token_ms if record is None else record.token_ms or record.ttft_ms
    return None if token_ms is None else lane.start.launch_offset_ms + token_ms


def in_ms(value: float | None) -> str:
    """Return a time in ms in words; seconds from ten on."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"  # noqa: PLR2004 - five digits are hard to read
