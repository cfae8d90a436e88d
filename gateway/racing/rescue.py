"""Rescues a stream that stands still or nearly stops: another deployment continues from the text delivered so far.

The stream is cut only when the other deployment has text beyond what was delivered, so a false alarm costs no answer.
If a silent stream goes on first, the other deployment is cut. A slow stream's text is held back until then; if no other
deployment continues, that text is sent after all. Imported only where ``takeover`` is on.

Where a voice speaks the answer, the second attempt of the race may be kept (``race.keep_rival``) until the voice has
enough to say. The rival was sent the same request. So while both texts are the same, the rival can go on with the
answer, even at a vendor that continues no answers. A rival with another text is cut. Where no deployment could continue
the answer, text is sent by whole clauses while the voice has other clauses to say: an answer that breaks off then ends
with a clause.
"""

import asyncio
from collections import deque
from contextlib import suppress
from enum import Enum
from math import inf
from typing import TYPE_CHECKING

import msgspec

from gateway.core.attempts import Outcome, WinOn
from gateway.core.calls import CallRecord
from gateway.core.tasks import forget_frames, retrieve
from gateway.racing.attempt import Attempt, AttemptState
from gateway.racing.call import FINISHED, RESCUED, BrokenAnswer, NoAnswer, OpenCall
from gateway.racing.continuation import Continuation, Continuers, StopKind
from gateway.racing.delivered import ClientSink
from gateway.racing.measurement import SHARE, HeardPart, Measurement
from gateway.racing.race import Race
from gateway.racing.reader import Block
from gateway.racing.seam import is_blank
from gateway.racing.sinks import ClientGone, Forward, Winner
from gateway.settings import Profile
from providers import UNREADABLE, ErrorKind, UpstreamError, events

if TYPE_CHECKING:
    from gateway.racing.entry import Entry
    from gateway.racing.speech import Clauses

TICK_S = 0.5  # between two checks of a stream
PATIENCE_S = 2.0  # seconds: the tokens of a slow stream are so much later than at the slow speed
ONE_GAP = 0.3  # of the patience, at most, that one gap uses: three pauses, however long, make no slow stream
FEWEST = 16  # after so many answers the speed of a deployment is known
OWN_SHARE = 0.25  # a stream is slow only below this share of its own deployment's median speed
FASTER = 2.0  # times the slow speed: only a deployment that is so fast may continue
AGAIN_S = 1.0  # seconds: a stream that is so far ahead of a deployment that may continue has recovered
MOST_HELD_BYTES = 64 * 1024  # a stream that sends more than this while held back is not slow


def slow_speed(below_tps: float, fastest_tps: float, own_tps: float | None) -> float:
    """Return the speed below which a stream is slow, in tokens per second.

    ``fastest_tps``: the usual speed of the fastest deployment; ``own_tps``: the median of the stream's own
    deployment; None if unknown.
    """
    return min(below_tps, SHARE * fastest_tps, inf if own_tps is None else OWN_SHARE * own_tps)


class Slowness:
    """Finds a stream whose tokens come slower than ``tps``: a CUSUM of their delays in seconds (Page, 1954).

    The sum: each gap between tokens adds its length, each token takes off 1 / ``tps``, and 0 is the least. The
    threshold is ``PATIENCE_S``, or what 2.5 tokens may take, so no stream is found before it was slow for that long. A
    gap adds at most ``ONE_GAP`` of the threshold to the sum. For example, with a ``tps`` of 10 a token after 0.3 s adds
    0.2 s, and a token after 0.05 s takes off 0.05 s.
    """

    __slots__ = ("_late_s", "_longest_s", "_patience_s", "_paused_s", "_seen_at", "_token_s", "_tokens")

    def __init__(self, tps: float, tokens: int, at: float, paused_s: float) -> None:
        """``tokens``: received so far, the latest ``at``; ``paused_s``: as for ``look``."""
        self._token_s = 1.0 / tps
        self._patience_s = max(PATIENCE_S, 2.5 * self._token_s)
        self._longest_s = self._token_s + ONE_GAP * self._patience_s
        self._late_s = 0.0
        self._tokens, self._seen_at, self._paused_s = tokens, at, paused_s

    def look(self, tokens: int, at: float, now: float, paused_s: float) -> bool:
        """Return whether the stream is slow ``now``; ``tokens`` were received, the latest ``at``.

        ``paused_s``: the total time for which the client did not read.
        """
        if tokens > self._tokens:
            # The client may have paused since ``at``: what is not part of this gap is left to the next one.
            since_s = max(0.0, at - self._seen_at)
            paused_within_s = min(since_s, paused_s - self._paused_s)
            gap_s = since_s - paused_within_s
            expected_s = (tokens - self._tokens) * self._token_s
            self._late_s = max(0.0, self._late_s + min(gap_s, self._longest_s) - expected_s)
            self._tokens, self._seen_at = tokens, at
            self._paused_s += paused_within_s
        gap_s = max(0.0, now - self._seen_at - (paused_s - self._paused_s))
        return self._late_s + max(0.0, min(gap_s, self._longest_s) - self._token_s) >= self._patience_s


# Where somebody listens, a stream is slow if the voice will soon have said all text that has come. As a voice takes
# seconds for a sentence, a stream that stands still or crawls is found before the listener hears a silence.
SPOKEN_TICK_S = 0.25
LEAD_S = 1.0  # seconds of speech left when another deployment is asked: about as long as a first token takes
# In a slow stream less speech has come than was said, over so many seconds; in others the stream is soon ahead. The
# window lasts at least ``LEAST_S``, as more text comes at once after a short first clause.
WINDOW_S = 1.0
LEAST_S = 0.5
SPOKEN_TPS = 4.0  # how fast text is said

# Where no other deployment could continue, an unfinished clause is held back while the voice has that many seconds of
# other text, and for so long at most: an answer that breaks off then ends with a clause, and not within a word.
CLAUSE_S = 1.0

# A rival is kept until the voice has so many seconds of text left, and for so long at most.
RIVAL_LEAD_S = 8.0
RIVAL_FOR_S = 20.0
CATCH_UP_S = 1.0  # the shortest wait for a rival when the answer breaks off, as the rival may have begun a little later
CAUGHT_UP_EACH_S = 0.05  # how often the rival is looked at meanwhile


class VoiceWatch:
    """Finds a stream that falls behind its voice."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()  # the time of each look, and until when there was text

    def look(self, now: float, heard_until: float) -> bool:
        """Return whether the voice will soon be silent; it has text until ``heard_until``."""
        last = self._seen
        last.append((now, heard_until))
        while len(last) > 1 and last[1][0] <= now - WINDOW_S:
            last.popleft()
        since, before = last[0]
        if heard_until - now >= LEAD_S or now - since < LEAST_S:
            return False
        return heard_until < now or heard_until - before < now - since


def tokens_in(measurement: Measurement) -> int:
    """Return the number of tokens received, rather too many than too few: each chunk counts as at least one."""
    return max(measurement.meaningful, measurement.tokens_so_far)


class RescueState(Enum):
    """The state of a rescue.

    WATCHING ──► HOLDING ──► PASSED
                    │
                    └──────► OVER
    """

    WATCHING = "watching"
    HOLDING = "holding"  # another deployment was asked; a slow stream's text is held back
    PASSED = "passed"  # the other has continued the answer, and the slow stream was cut
    OVER = "over"  # no other has continued: the slow stream's text was sent, and the stream is watched no more


def _are_the_same(delivered: str | None, text: str | None) -> bool:
    """Whether a rival runs, and its ``text`` is the ``delivered`` text, as far as either goes."""
    return delivered is not None and text is not None and (delivered.startswith(text) or text.startswith(delivered))


class Rescue:
    """The sink of one race, which watches its answer. Use once: ``await rescue.run(race)``."""

    streams = True
    understands = False

    def __init__(
        self,
        open_call: OpenCall,
        sink: ClientSink,
        continuers: Continuers,
    ) -> None:
        """Requires ``sink.delivered``, which keeps what the client was sent."""
        assert sink.delivered is not None
        self._open_call = open_call
        self._sink = sink
        self._continuers = continuers
        self._delivered = sink.delivered
        self._slow = continuers.own.model.takeover.slow  # None: the speed of the answer is not watched, or no longer
        self._stopped = StopKind.SLOW  # why another deployment was asked
        self._clock = open_call.services.clock
        self._state = RescueState.WATCHING
        self._race: Race | None = None  # the race with the slow stream, while it runs
        self._continuation: Continuation | None = None
        self._continuing: asyncio.Task[CallRecord | NoAnswer | BrokenAnswer] | None = None
        self._held: list[bytes] = []
        self._write_lock = asyncio.Lock()  # held while events are written to the client
        self._forward: Forward | None = None
        self._slowness: Slowness | None = None
        self._listening = VoiceWatch() if open_call.call.decision.win_on is WinOn.SENTENCE else None
        self._slow_tps = 0.0
        self._fast: list[str] = []  # deployments fast enough to continue
        self._started_at, self._started_tokens = 0.0, 0  # when it was started, and the tokens received by then
        self._started_chunks = 0  # chunks with text by then: a short one may leave the estimate of tokens as it was
        self._paused_s = 0.0  # time in which the client did not read, or the event loop was blocked
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._heard: HeardPart | None = None  # by the listener, when the rescue began to hold text back
        self._clauses: Clauses | None = None  # None: text is sent as it comes, not by clauses
        self._rivals: Entry | None = None  # the entry that keeps a rival; None: none is kept, or not any more
        self._kept_since: float | None = None  # when the rival was first looked at; None: not yet

    async def run(self, race: Race) -> CallRecord | NoAnswer | BrokenAnswer:
        """Run the race whose sink this is; return the end of its answer, or of the continuation."""
        self._race = race
        if (
            self._listening is not None
            and self._delivered.obstacle is None
            and self._continuers.own.model.race.keeps_speakers
        ):
            self._rivals = race.entries[0]
            self._rivals.keep_rival()
        try:
            ending = await race.run()
            if self._continuing is not None and self._state in {RescueState.HOLDING, RescueState.PASSED}:
                if self._state is RescueState.HOLDING and isinstance(ending, BrokenAnswer):
                    self._open_call.takeover = FINISHED
                continued = await asyncio.shield(self._continuing)
                if self._state is RescueState.PASSED:
                    return continued
            return ending
        finally:
            self._race = self._rivals = None
            if self._open_call.rescue is self:
                self._open_call.rescue = None
            if self._timer is not None:
                self._timer.cancel()
            try:
                if self._continuing is not None:
                    await _ended(self._continuing)
            finally:  # also when the client leaves meanwhile
                self._continuation = self._forward = self._continuing = None  # the exception refers to this frame

    def settle(self) -> None:
        """Stop the continuation: the slow stream ends the call, which is about to be recorded."""
        self._dismiss_rival()
        if self._state is RescueState.HOLDING:
            self._state = RescueState.OVER
            if self._continuation is not None:
                self._continuation.withdraw()
            winner = None if self._race is None else self._race.winner
            if winner is not None and winner.measurement.listener is not None and self._heard is not None:
                winner.measurement.listener.go_on(self._clock(), self._heard, self._heard.text_s)  # all held text now

    def cut_slow(self) -> None:
        """Cut the slow stream: the continuation has text beyond what was delivered."""
        if self._state is RescueState.HOLDING:
            self._state = RescueState.PASSED
            self._held.clear()
            outcome = Outcome.STALLED if self._stopped is StopKind.SILENT else Outcome.SUPERSEDED
            broken = None if self._race is None else self._race.supersede(self._error(), outcome)
            self._open_call.takeover = FINISHED if broken is None or self._stopped is StopKind.SILENT else RESCUED

    # The sink of the watched answer.

    async def begin(self, winner: Winner) -> Forward | None:
        """Start the answer, and watch it."""
        self._open_call.rescue = self
        self._forward = await self._sink.begin(winner)
        if self._delivered.obstacle is None and self._slow is not None:
            client, now_s = self._open_call.call.caller.client, self._clock()
            self._open_call.services.rescues.earn(self._slow.budget, client, now_s)
        if self._rivals is not None and self._rivals.rival is None:
            self._rivals = None
        if self._forward is not None and self._ends_with_clauses(winner.deployment):
            from gateway.racing import speech  # noqa: PLC0415 - loaded already, by the speech of this answer

            self._clauses = speech.Clauses(self._continuers.own.call.request.dialect.answers.texts)
        if self._clauses is not None or (self._delivered.obstacle is None and self._is_watched):
            self._sleep()
        return None if self._forward is None else self._forward_events

    async def write(self, block: Block) -> None:
        """Send events, or hold them back while a continuation is tried."""
        async with self._write_lock:
            if self._state is RescueState.HOLDING:
                self._held.append(block.forward)
                if self._is_whole() or self._has_recovered() or sum(map(len, self._held)) > MOST_HELD_BYTES:
                    self.settle()
                    await self._flush()
                return
            since = self._clock()
            if (clauses := self._clauses) is not None:
                ready = clauses.add(block.forward, since)
                block = Block(ready + clauses.release() if self._needs_clause(clauses, since) else ready, ())
            if block.forward:
                await self._sink.write(block)
            self._paused_s += self._clock() - since
            if self._rivals is not None and self._kept_since is None:
                self._kept_since = self._clock()
                self._look_after_rival(self._kept_since)

    async def end(self, last: Block) -> None:
        """Send what is held back, and end the answer."""
        async with self._write_lock:
            await self._flush()
            await self._sink.end(last)

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish the answer."""
        return self._sink.may_be_continued(error)

    async def fail(self, error: UpstreamError) -> None:
        """Send what is held back, but for an unfinished clause, and tell the client that the answer broke off."""
        async with self._write_lock:
            if self._clauses is None or self._clauses.has_ended:
                await self._flush()
            await self._sink.fail(error)

    def _forward_events(self, events: bytes) -> bool:
        if self._state is RescueState.HOLDING or self._forward is None or self._write_lock.locked():
            return False
        if self._clauses is not None:  # their text is looked at
            return False
        return self._forward(events)

    async def _flush(self) -> None:
        """Send what was held back. The caller holds the lock."""
        if self._continuing is not None:
            await self._sink.close()
        self._hold_clause()
        if self._held:
            data, self._held = b"".join(self._held), []
            await self._sink.write(Block(data, ()))

    # If no other deployment can continue the answer, text is sent by clauses while the voice has other text to say.

    def _ends_with_clauses(self, deployment: str) -> bool:
        """Whether a listener is to hear whole clauses only, as only ``deployment`` could go on within a clause."""
        own = self._continuers.own
        race = own.model.race
        if self._listening is None or race.profile is not Profile.VOICE or not race.whole_sentences:
            return False
        if self._delivered.obstacle is not None:
            return True
        if own.model.fallbacks:
            return False
        others = (
            own.model.deployments[name] for name in [*(each.deployment for each in own.plan.launches), *own.plan.rest]
        )
        able = (each.name for each in others if each.can_continue(each.spoken_in(own.call)))
        return all(name == deployment for name in able)

    def _needs_clause(self, clauses: "Clauses", now: float) -> bool:
        """Whether the voice will soon need the unfinished clause, or the clause was held for long enough."""
        winner = None if self._race is None else self._race.winner
        listener = None if winner is None else winner.measurement.listener
        lead_s = (now if listener is None else listener.until) - clauses.open_s - now
        return lead_s < LEAD_S or now - clauses.since >= CLAUSE_S or self._is_whole()

    def _look_after_clause(self, now: float) -> None:
        """Send an unfinished clause when it is due."""
        clauses = self._clauses
        if clauses is None or self._forward is None or self._write_lock.locked() or not (clause := clauses.held):
            return
        if self._needs_clause(clauses, now) and self._forward(clause):
            clauses.release()

    def _without_clause(self, broken: BrokenAnswer) -> BrokenAnswer:
        """Return the answer so far without the clause that is held back, which was not heard."""
        heard_part, clauses = broken.heard, self._clauses
        if heard_part is None or clauses is None:
            return broken
        heard_part = msgspec.structs.replace(
            heard_part, until=heard_part.until - clauses.held_s, text_s=heard_part.text_s - clauses.held_s
        )
        return msgspec.structs.replace(broken, heard=heard_part)

    def _hold_clause(self) -> None:
        """Have an unfinished clause be held like other text."""
        if self._clauses is not None and (clause := self._clauses.release()):
            self._held.append(clause)

    # The watch of the stream, and the start of a continuation.

    @property
    def _is_watched(self) -> bool:
        return self._slow is not None or self._rivals is not None or self._clauses is not None

    def stands_still(self, attempt: Attempt) -> bool:
        """Ask another deployment beside ``attempt``, which is silent in its answer; return whether one was asked."""
        if self._race is None or attempt is not self._race.winner or not self._may_start:
            return False
        self._stopped = StopKind.SILENT
        return self._replace_by_rival() or self._start_continuation()

    @property
    def _may_start(self) -> bool:
        return self._state is RescueState.WATCHING and not self._is_whole() and self._delivered.obstacle is None

    def _sleep(self) -> None:
        tick_s = TICK_S if self._listening is None else SPOKEN_TICK_S
        self._due = self._clock() + tick_s
        self._timer = self._open_call.services.tasks.loop.call_later(tick_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        winner, now = None if self._race is None else self._race.winner, self._clock()
        if winner is not None and self._clauses is not None:
            self._look_after_clause(now)
        if winner is None or not self._may_start:
            self._dismiss_rival()
            if self._clauses is not None and self._state is RescueState.WATCHING and not self._is_whole():
                self._sleep()
            return
        if self._rivals is not None:
            self._look_after_rival(now)
        late_s = max(0.0, now - self._due)  # data that arrived meanwhile may not have been read
        self._paused_s += late_s
        # The pause of a client that does not read is added when the client reads again.
        if not self._write_lock.locked() and late_s < TICK_S and self._gives_way(winner, now):
            return
        if self._is_watched:
            self._sleep()

    def _gives_way(self, winner: Attempt, now: float) -> bool:
        """If the stream is slow, have a rival or others go on; return whether any does. Others are asked once."""
        listener, is_behind = winner.measurement.listener, False
        if self._listening is not None and listener is not None:
            is_behind = self._listening.look(now, listener.until)
            if is_behind and self._continuers.own.model.takeover.slow is not None:
                self._stopped, self._slow_tps = StopKind.SLOW, SPOKEN_TPS
                if self._replace_by_rival():
                    return True
        if not self._is_slow(winner, now, is_behind=is_behind):
            return False
        self._slow, self._stopped = None, StopKind.SLOW
        return self._start_continuation()

    def _is_slow(self, winner: Attempt, now: float, *, is_behind: bool) -> bool:
        """Whether the stream is slow, and others are known to be fast enough."""
        if self._slow is None:
            return False
        measurement = winner.measurement
        if self._listening is not None and measurement.listener is not None:
            return is_behind and self._find_speakers(winner.deployment.name)
        tokens, at, paused_s = tokens_in(measurement), measurement.last_at or now, self._paused_s
        if self._slowness is None:
            if not self._measure_speeds(winner.deployment.name, self._slow.below_tps):
                self._slow = None
                return False
            self._slowness = Slowness(self._slow_tps, tokens, at, paused_s)
        return self._slowness.look(tokens, at, now, paused_s)

    def _find_speakers(self, deployment: str) -> bool:
        """Find the deployments that are not known to be slower than a voice; return whether there are any."""
        paces, plan = self._open_call.services.paces, self._continuers.own.plan
        names = dict.fromkeys([*(launch.deployment for launch in plan.launches), *plan.rest])
        usual = {name: paces.slowest_usual(name, FEWEST) for name in names if name != deployment}
        self._slow_tps = SPOKEN_TPS
        self._fast = [name for name, tps in usual.items() if tps is None or tps >= FASTER * SPOKEN_TPS]
        return bool(self._fast)

    def _measure_speeds(self, deployment: str, below_tps: float) -> bool:
        """Determine the slow speed and the deployments that are fast enough; return whether there are any."""
        paces = self._open_call.services.paces
        plan = self._continuers.own.plan
        names = dict.fromkeys([*(launch.deployment for launch in plan.launches), *plan.rest, deployment])
        usual = {name: paces.slowest_usual(name, FEWEST) for name in names}
        speeds = {name: tps for name, tps in usual.items() if tps is not None}
        if not speeds:
            return False
        own_tps = paces.median(deployment, FEWEST)  # not the slowest answers: one replica of the deployment may be slow
        self._slow_tps = slow_speed(below_tps, max(speeds.values()), own_tps)
        self._fast = [name for name, tps in speeds.items() if tps >= FASTER * self._slow_tps and name != deployment]
        return bool(self._fast)

    def _start_continuation(self) -> bool:
        """Have others continue from what was delivered; return whether any may. A slow stream's text is held back."""
        race, open_call, continuers = self._race, self._open_call, self._continuers
        broken = None if race is None else race.so_far(self._error())
        continuing = continuers.own.call.request.dialect.continuing
        if race is None or race.winner is None or broken is None or continuing is None:
            return False
        broken = self._without_clause(broken)
        among = self._fast if self._stopped is StopKind.SLOW else None
        continuation = Continuation(
            open_call, self._sink, continuers, broken, self._stopped, among=among, on_text=self.cut_slow
        )
        if not continuation.plan():
            return False
        self._dismiss_rival()
        self._hold_clause()
        self._clauses, self._heard = None, broken.heard
        self._state, self._started_at = RescueState.HOLDING, self._clock()
        self._started_tokens = tokens_in(race.winner.measurement)
        self._started_chunks = race.winner.measurement.meaningful
        self._continuation = continuation
        self._continuing = open_call.services.tasks.loop.create_task(self._continue(continuation))
        self._continuing.add_done_callback(forget_frames)
        return True

    async def _continue(self, continuation: Continuation) -> CallRecord | NoAnswer | BrokenAnswer:
        ending = await continuation.run()
        if not self._has_passed:
            self.settle()
            with suppress(ClientGone):
                async with self._write_lock:
                    await self._flush()
        return ending

    @property
    def _has_passed(self) -> bool:
        return self._state is RescueState.PASSED

    # The rival, which was sent the same request.

    async def rival_goes_on(self, broken: BrokenAnswer) -> bool:
        """Let the rival finish a ``broken`` answer, if the rival's text is the same; return whether it does.

        A rival that is behind is waited for while the voice has text, and for a second at least. A clause that was held
        back is sent first, if the clause has ended.
        """
        if self._clauses is not None and self._clauses.has_ended:
            async with self._write_lock:
                await self._flush()
        winner = None if self._race is None else self._race.winner
        listener = None if winner is None else winner.measurement.listener
        until = max(self._clock() + CATCH_UP_S, 0.0 if listener is None else listener.until - LEAD_S)
        while self._state is RescueState.WATCHING and self._rivals is not None:
            texts = self._texts()  # read once: each look reads all that the rival has said
            if self._has_caught_up(*texts):
                self._stopped = StopKind.BROKE
                self._go_on_after(broken)
                return True
            rival = self._rivals.rival
            has_begun = rival is not None and rival.measurement.first_at is not None
            if not has_begun or self._clock() >= until or not _are_the_same(*texts):
                self._dismiss_rival()
                break
            await asyncio.sleep(CAUGHT_UP_EACH_S)
        return False

    def _replace_by_rival(self) -> bool:
        """Let the rival replace a slow or silent stream, if the rival has more text; return whether it does."""
        if self._race is None or self._write_lock.locked() or not self._has_caught_up(*self._texts()):
            return False
        outcome = Outcome.STALLED if self._stopped is StopKind.SILENT else Outcome.SUPERSEDED
        broken = self._race.cut_winner(self._error(), outcome)
        if broken is None:
            return False
        self._go_on_after(broken)
        return True

    def _go_on_after(self, broken: BrokenAnswer) -> None:
        """Let the rival answer from where ``broken`` ends. The rival's own speed is not watched."""
        rivals, self._rivals = self._rivals, None
        assert rivals is not None
        assert self._race is not None
        broken = self._without_clause(broken)
        self._state, self._clauses = RescueState.OVER, None
        if self._timer is not None:
            self._timer.cancel()
        self._open_call.takeover = RESCUED if self._stopped is StopKind.SLOW else FINISHED
        sink = Continuation(self._open_call, self._sink, self._continuers, broken, self._stopped).by_rival(self._race)
        rivals.go_on_with_rival(sink)

    def _look_after_rival(self, now: float) -> None:
        """Dismiss the rival if its text differs, or when the voice has enough text left, or after ``RIVAL_FOR_S``."""
        rivals, race = self._rivals, self._race
        if rivals is None or race is None or race.winner is None:
            return
        listener = race.winner.measurement.listener
        is_ahead = listener is not None and listener.until - now >= RIVAL_LEAD_S
        if is_ahead or now - (self._kept_since or now) >= RIVAL_FOR_S or not _are_the_same(*self._texts()):
            self._dismiss_rival()

    def _dismiss_rival(self) -> None:
        rivals, self._rivals = self._rivals, None
        if rivals is not None:
            rivals.dismiss_backup()

    def _has_caught_up(self, delivered: str | None, text: str | None) -> bool:
        """Whether the rival has bid, and its ``text`` begins with the ``delivered`` text."""
        rival = None if self._rivals is None else self._rivals.rival
        if rival is None or rival.state is not AttemptState.HELD:
            return False
        if delivered is None or text is None or not text.startswith(delivered):
            return False
        return rival.measurement.reported.finish_reason is not None or not is_blank(text[len(delivered) :])

    def _texts(self) -> tuple[str | None, str | None]:
        """Return the delivered text, and the rival's text so far; None for a text that cannot be continued.

        The rival's text is None, too, if the rival has ended, calls a tool, or has more events than are kept.
        """
        rival = None if self._rivals is None else self._rivals.rival
        dialect = self._continuers.own.call.request.dialect
        continuing, texts = dialect.continuing, dialect.answers.texts
        if rival is None or continuing is None:
            return None, None
        begun = self._delivered.begun(continuing)
        delivered = begun.text if begun.obstacle is None and self._delivered.obstacle is None else None
        if rival.answer is None or rival.measurement.first_at is None:
            return delivered, ""
        blocks = [block.forward for block in rival.answer.kept]
        if rival.measurement.reported.tool_calls is not None or sum(map(len, blocks)) > MOST_HELD_BYTES:
            return delivered, None
        objects = (event.data for block in blocks for event in events(block) if event.data.startswith(b"{"))
        try:
            return delivered, "".join(text for data in objects for _, text in texts(data))
        except UNREADABLE:
            return delivered, None

    def _is_whole(self) -> bool:
        """Whether the watched answer has its finish reason: no continuation can be faster."""
        winner = None if self._race is None else self._race.winner
        return winner is not None and winner.measurement.reported.finish_reason is not None

    def _has_recovered(self) -> bool:
        """Whether the stream goes on, so that its text must neither wait for a continuation nor be dropped."""
        winner = None if self._race is None else self._race.winner
        if winner is None:
            return False
        if self._stopped is StopKind.SILENT:
            return winner.measurement.meaningful > self._started_chunks
        tokens = tokens_in(winner.measurement) - self._started_tokens
        return tokens >= FASTER * self._slow_tps * (self._clock() - self._started_at + AGAIN_S)

    def _error(self) -> UpstreamError:
        if self._stopped is StopKind.SILENT:
            return UpstreamError(ErrorKind.STALL_TIMEOUT, "stood still until another deployment went on")
        return UpstreamError(ErrorKind.STALL_TIMEOUT, f"fewer than {self._slow_tps:g} tokens per second")


async def _ended(task: asyncio.Task[CallRecord | NoAnswer | BrokenAnswer]) -> None:
    """Cancel a task and await it."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    retrieve(task)
