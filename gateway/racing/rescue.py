"""A stream that nearly stops is rescued while it runs: another deployment goes on from what was delivered.

A slow stream is alive, so no time-out helps. It is not cut until another is past what was delivered: until then its
text is held back, and if no other goes on, it is sent as if nothing had been. Imported only where ``takeover.slow`` is
on.
"""

import asyncio
from contextlib import suppress
from enum import Enum
from math import inf

import msgspec

from gateway.core.calls import Call, CallRecord
from gateway.fleet.models import Deployment, Model
from gateway.racing.call import FINISHED, RESCUED, Broken, OpenCall, Unanswered
from gateway.racing.measurement import SHARE, Measurement
from gateway.racing.race import Race
from gateway.racing.reader import Block
from gateway.racing.sinks import ClientGone, Forward, Winner
from gateway.racing.takeover import COMMENT_S, ClientSink, Running, Takeover, again_tokens, in_time
from gateway.steering import Plan
from providers import ErrorKind, UpstreamError
from providers.dialects import Begun

TICK_S = 0.5  # between two looks at a stream
PATIENCE_S = 2.0  # so much later than at the slow speed its tokens have to come
ONE_GAP = 0.3  # of that, for which one gap counts at most: three pauses, however long, are no slow stream
FEWEST = 16  # answers of a deployment, else its speed is not known
OWN_SHARE = 0.25  # of its own deployment's median speed, which a slow stream does not reach
FASTER = 2.0  # than the slow speed is who may go on
AGAIN_S = 1.0  # so much earlier than at the speed of who may go on come the tokens of a slow one that has recovered
MOST_HELD_BYTES = 64 * 1024  # a stream that sends as much while it is held back is not slow


def slow_speed(below_tps: float, fastest_tps: float, own_tps: float | None) -> float:
    """Return below which speed a stream is slow, tokens per second.

    ``fastest_tps``: the usual speed of the fastest deployment; ``own_tps``: the median of its own, None: not known.
    """
    return min(below_tps, SHARE * fastest_tps, inf if own_tps is None else OWN_SHARE * own_tps)


class Slowness:
    """Finds a stream whose tokens come slower than ``tps``: a CUSUM of their delays in seconds (Page, 1954).

    Each gap between tokens adds its length, and each token takes off 1 / ``tps``; below 0 the sum begins again. The
    threshold is ``PATIENCE_S``, or what 2.5 tokens may take, so no stream is found before it was slow for that long. A
    gap adds at most ``ONE_GAP`` of the threshold to the sum.
    """

    __slots__ = ("_late_s", "_longest_s", "_patience_s", "_paused_s", "_seen_at", "_token_s", "_tokens")

    def __init__(self, tps: float, tokens: int, at: float, paused_s: float) -> None:
        """``tokens`` had come when the latest came ``at``; ``paused_s``: as for ``look``."""
        self._token_s = 1.0 / tps
        self._patience_s = max(PATIENCE_S, 2.5 * self._token_s)
        self._longest_s = self._token_s + ONE_GAP * self._patience_s
        self._late_s = 0.0
        self._tokens, self._seen_at, self._paused_s = tokens, at, paused_s

    def look(self, tokens: int, at: float, now: float, paused_s: float) -> bool:
        """Return whether the stream is slow ``now``; ``tokens`` have come, the latest ``at``.

        ``paused_s`` is how long its client has taken nothing, in all.
        """
        if tokens > self._tokens:
            gap_s = max(0.0, at - self._seen_at - (paused_s - self._paused_s))
            expected_s = (tokens - self._tokens) * self._token_s
            self._late_s = max(0.0, self._late_s + min(gap_s, self._longest_s) - expected_s)
            self._tokens, self._seen_at, self._paused_s = tokens, at, paused_s
        gap_s = max(0.0, now - self._seen_at - (paused_s - self._paused_s))
        return self._late_s + max(0.0, min(gap_s, self._longest_s) - self._token_s) >= self._patience_s


def tokens_in(measurement: Measurement) -> int:
    """Return how many tokens have come, rather too many: each chunk is one at least."""
    return max(measurement.meaningful, measurement.tokens_so_far)


class State(Enum):
    """How far a rescue is.

    WATCHING ──► HOLDING ──► PASSED
                    │
                    └──────► OVER
    """

    WATCHING = "watching"
    HOLDING = "holding"  # another deployment is asked; the slow one's text is held back
    PASSED = "passed"  # the other has gone on, and the slow one was cut
    OVER = "over"  # nobody has gone on: the slow one's text was sent, and its stream is not watched any more


class Rescue:
    """The sink of one race, whose answer is watched. Use once: ``await rescue.run(race)``."""

    streams = True
    understands = False

    def __init__(self, call: Call, model: Model, plan: Plan, open_call: OpenCall, sink: ClientSink) -> None:
        """The model's ``takeover.slow`` is on, and ``sink.delivered`` keeps what the client was sent."""
        assert sink.delivered is not None
        assert model.takeover.slow is not None
        self._call = call
        self._model = model
        self._plan = plan
        self._open_call = open_call
        self._sink = sink
        self._delivered = sink.delivered
        self._slow = model.takeover.slow
        self._clock = open_call.services.clock
        self._state = State.WATCHING
        self._race: Race | None = None  # of the slow one, while it runs
        self._rival: Race | None = None  # of those who are to go on
        self._asking: asyncio.Task[CallRecord | Unanswered | Broken] | None = None
        self._held: list[bytes] = []
        self._turn = asyncio.Lock()  # held while events are written to the client
        self._forward: Forward | None = None
        self._slowness: Slowness | None = None
        self._slow_tps = 0.0
        self._fast: list[str] = []  # deployments that are known to be fast
        self._asked_at, self._asked_tokens = 0.0, 0  # when another was asked, and what had come by then
        self._paused_s = 0.0  # how long the client took nothing, or the event loop stood still
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    async def run(self, race: Race) -> CallRecord | Unanswered | Broken:
        """Run the race, whose sink this is; return how its answer, or the rival's, has ended."""
        self._race, self._open_call.rescue = race, self
        try:
            ending = await race.run()
            if self._asking is not None and self._state in {State.HOLDING, State.PASSED}:
                if self._state is State.HOLDING and isinstance(ending, Broken):
                    self._open_call.takeover = FINISHED
                rivals = await asyncio.shield(self._asking)
                if self._state is State.PASSED:
                    return rivals
            return ending
        finally:
            self._open_call.rescue = self._race = None
            if self._timer is not None:
                self._timer.cancel()
            try:
                if self._asking is not None:
                    await _ended(self._asking)
            finally:  # also when the client leaves meanwhile
                self._rival = self._forward = self._asking = None  # its exception knows this frame

    def settle(self) -> None:
        """Stop the rival: the slow one ends the call, which is about to be recorded."""
        if self._state is State.HOLDING:
            self._state = State.OVER
            self._open_call.broken.pop()
            if self._rival is not None:
                self._rival.withdraw()

    def passed(self) -> None:
        """Cut the slow one: the rival has text that follows what was delivered."""
        if self._state is State.HOLDING:
            self._state = State.PASSED
            self._held.clear()
            broken = None if self._race is None else self._race.supersede(self._error())
            self._open_call.takeover = FINISHED if broken is None else RESCUED

    # The sink of the watched answer.

    async def begin(self, winner: Winner) -> Forward | None:
        """Start the answer, and watch it."""
        self._forward = await self._sink.begin(winner)
        if self._delivered.obstacle is None:
            self._open_call.services.rescues.earn(self._slow.budget)
            self._sleep()
        return None if self._forward is None else self._pass_on

    async def write(self, block: Block) -> None:
        """Send events, or hold them back while another is asked."""
        async with self._turn:
            if self._state is State.HOLDING:
                self._held.append(block.forward)
                if self._is_whole() or self._has_recovered() or sum(map(len, self._held)) > MOST_HELD_BYTES:
                    self.settle()
                    await self._flush()
                return
            since = self._clock()
            await self._sink.write(block)
            self._paused_s += self._clock() - since

    async def end(self, last: Block) -> None:
        """Send what is held back, and end the answer."""
        async with self._turn:
            await self._flush()
            await self._sink.end(last)

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish it."""
        return self._sink.may_be_continued(error)

    async def fail(self, error: UpstreamError) -> None:
        """Send what is held back, and tell the client that the answer broke off."""
        async with self._turn:
            await self._flush()
            await self._sink.fail(error)

    def _pass_on(self, events: bytes) -> bool:
        if self._state is State.HOLDING or self._forward is None or self._turn.locked():
            return False
        return self._forward(events)

    async def _flush(self) -> None:
        """Send what was held back. The caller has the turn."""
        if self._asking is not None:
            await self._sink.close()
        if self._held:
            held, self._held = b"".join(self._held), []
            await self._sink.write(Block(held, ()))

    # Watches it, and asks others.

    def _sleep(self) -> None:
        self._due = self._clock() + TICK_S
        self._timer = self._open_call.services.tasks.loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        winner = None if self._race is None else self._race.winner
        if winner is None or self._state is not State.WATCHING or self._is_whole():
            return
        now, measurement = self._clock(), winner.measurement
        self._paused_s += max(0.0, now - self._due)  # what came meanwhile may not have been read
        if self._turn.locked():  # the client takes nothing: what that takes is known when it does
            self._sleep()
            return
        tokens, at, paused_s = tokens_in(measurement), measurement.last_at or now, self._paused_s
        if self._slowness is None:
            if not self._knows(winner.deployment.name):
                return
            self._slowness = Slowness(self._slow_tps, tokens, at, paused_s)
        if not self._slowness.look(tokens, at, now, paused_s):
            self._sleep()
        elif self._delivered.obstacle is None:
            self._ask()

    def _knows(self, deployment: str) -> bool:
        """Find out which speed is slow, and who is faster; return whether anybody is."""
        paces = self._open_call.services.paces
        names = dict.fromkeys([*(launch.deployment for launch in self._plan.launches), *self._plan.rest, deployment])
        usual = {name: paces.slowest_usual(name, FEWEST) for name in names}
        known = {name: tps for name, tps in usual.items() if tps is not None}
        if not known:
            return False
        own_tps = paces.median(deployment, FEWEST)  # not the slowest: one of its replicas may be slow
        self._slow_tps = slow_speed(self._slow.below_tps, max(known.values()), own_tps)
        self._fast = [name for name, tps in known.items() if tps >= FASTER * self._slow_tps and name != deployment]
        return bool(self._fast)

    def _ask(self) -> None:
        """Have others go on from what was delivered; hold back what the slow one sends meanwhile."""
        race, call, open_call = self._race, self._call, self._open_call
        continuing = call.dialect.continuing
        broken = None if race is None else race.so_far(self._error())
        if broken is None or continuing is None:
            return
        begun = self._sink.begun(continuing)
        takeover = Takeover(call, self._model, self._plan, open_call, _Outlet(self, self._sink))
        able = takeover.candidates(broken, begun, most=len(self._model.deployments))
        candidates = [each for each in able if each.name in self._fast][:2]
        if begun.obstacle is not None or not candidates or not open_call.services.rescues.spend():
            return
        self._state, self._asked_at = State.HOLDING, self._clock()
        self._asked_tokens = 0 if race is None or race.winner is None else tokens_in(race.winner.measurement)
        # As it is now: what comes later is held back, and dropped if another goes on.
        open_call.broken.append(msgspec.structs.replace(broken, again_tokens=again_tokens(begun.text)))
        self._asking = open_call.services.tasks.loop.create_task(self._go_on(takeover, begun, candidates))

    async def _go_on(
        self, takeover: Takeover, begun: Begun, candidates: list[Deployment]
    ) -> CallRecord | Unanswered | Broken:
        model = self._model
        await self._sink.close()
        if self._state is not State.HOLDING:
            return Unanswered()
        self._rival = takeover.race(begun, candidates, needs_text=True)
        self._sink.keep_alive(min(COMMENT_S, model.keepalive_s or COMMENT_S))
        ending = await in_time(self._rival, model.takeover.within_s)
        if not self._has_passed:
            self.settle()
            with suppress(ClientGone):
                async with self._turn:
                    await self._flush()
        return ending

    @property
    def _has_passed(self) -> bool:
        return self._state is State.PASSED

    def _is_whole(self) -> bool:
        """Whether the watched answer has its finish reason: no other can be sooner."""
        winner = None if self._race is None else self._race.winner
        return winner is not None and winner.measurement.reported.finish_reason is not None

    def _has_recovered(self) -> bool:
        """Whether what is held back has come so fast that it must not wait for another, nor be dropped."""
        winner = None if self._race is None else self._race.winner
        if winner is None:
            return False
        tokens = tokens_in(winner.measurement) - self._asked_tokens
        return tokens >= FASTER * self._slow_tps * (self._clock() - self._asked_at + AGAIN_S)

    def _error(self) -> UpstreamError:
        return UpstreamError(ErrorKind.STALL_TIMEOUT, f"fewer than {self._slow_tps:g} tokens per second")


class _Outlet:
    """The sink of the answer that the rival goes on with: its first text cuts the slow one."""

    streams = True
    understands = False

    def __init__(self, rescue: Rescue, sink: Running) -> None:
        self._rescue = rescue
        self._sink = sink
        self.begun = sink.begun
        self.keep_alive = sink.keep_alive
        self.begin = sink.begin
        self.end = sink.end
        self.may_be_continued = sink.may_be_continued
        self.fail = sink.fail

    async def close(self) -> None:
        """Cut the slow one, and stop sending comments: text follows."""
        self._rescue.passed()
        await self._sink.close()

    async def write(self, block: Block) -> None:
        """Send events."""
        await self._sink.write(block)


async def _ended(task: asyncio.Task[CallRecord | Unanswered | Broken]) -> None:
    """Cancel a task and await it."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # it was raised, or the call had ended by itself
