"""The services that all running calls of a gateway share: created once, by ``gateway/app/engine.py``."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.core.calls import Maker, Recorder
from gateway.core.log import get_logger
from gateway.core.shares import Shares
from gateway.core.tasks import retrieve
from gateway.fleet import Deployment
from gateway.racing.measurement import Paces
from gateway.racing.other_forms import OtherForms
from gateway.racing.reasoning import read_after_all, told_apart
from gateway.racing.seats import Seats
from gateway.racing.thoughts import HabitsByDeployment
from gateway.racing.timeouts import PausesByDeployment
from providers import UNREADABLE, BoundReasoningExchange, Exchange, LearntFacts, Request, maker_of
from providers.dialects import OF_AN_ACCOUNT, UnshownThought

# Owns and counts the tasks of attempts. An audited attempt may outlive its call, but no task outlives the gateway.


class HasDeployment(Protocol):
    """An attempt, as ``AttemptTasks`` sees it."""

    @property
    def deployment(self) -> Deployment:
        """The deployment of the attempt."""


AttemptT = TypeVar("AttemptT", bound=HasDeployment)


class AttemptTasks(Generic[AttemptT]):
    """The tasks of all running attempts. ``close`` cancels and awaits them."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], AttemptT] = {}
        self.running_at: dict[str, int] = {}  # deployment → attempts in this process; without any, no entry
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the tasks: the one running at the first access.

        On Python 3.11 each ``get_running_loop`` takes a system call.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def start(
        self, work: Coroutine[Any, Any, None], attempt: AttemptT, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Task[None]:
        """Run ``work`` of an attempt as a task of the running ``loop``. ``work`` handles its own errors."""
        task = loop.create_task(work)
        deployment = attempt.deployment.name
        self._tasks[task] = attempt
        self.running_at[deployment] = self.running_at.get(deployment, 0) + 1
        task.add_done_callback(self._ended)
        return task

    @property
    def attempts(self) -> Collection[AttemptT]:
        """The attempts whose tasks run."""
        return self._tasks.values()

    @property
    def number(self) -> int:
        """The number of running tasks."""
        return len(self._tasks)

    def in_flight(self, deployment: str) -> int:
        """Return the number of running attempts at ``deployment`` in this process."""
        return self.running_at.get(deployment, 0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        deployment = self._tasks.pop(task).deployment.name
        if (left := self.running_at[deployment] - 1) > 0:
            self.running_at[deployment] = left
        else:
            del self.running_at[deployment]
        if task.cancelled():
            retrieve(task)  # an exception that nobody retrieves would keep its frames

    async def close(self) -> None:
        """Cancel and await every task."""
        running = set(self._tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


class Outbox:
    """A queue of events for recorders, in the order in which the events happened.

    Bookkeeping must not delay the first bytes to a client. An attempt reads its first token, bids and writes in one
    step of its task, so the next turn of the loop is late enough. The queue is drained earlier if something depends on
    what it holds: the next plan, launch or record of any call, a reader of estimates, the gateway's end.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # checked by callers
        self._loop: asyncio.AbstractEventLoop | None = None  # each ``get_running_loop`` may take a system call
        self._is_due = False  # the drain in the next turn is scheduled

    def add(self, tell: Callable[..., None], *args: Any) -> None:
        """Call ``tell`` with ``args`` later. ``tell`` must use the time of the event, not of the call."""
        self.waiting.append((tell, args))
        if not self._is_due:
            loop = self._loop
            if loop is None:
                loop = self._loop = asyncio.get_running_loop()
            loop.call_soon(self._turn)
            self._is_due = True

    def drain(self) -> None:
        """Report all waiting events now. An exception of one recorder is logged; the others are called all the same."""
        waiting = self.waiting
        while waiting:
            tell, args = waiting.popleft()
            try:
                tell(*args)
            except Exception:  # noqa: BLE001 - a defect of a recorder must not end a call, nor hide what others did
                # Event call.recorder_failed: One of those that keep figures of calls (steering, metrics, live view,
                # traces) failed. The call is not affected.
                # Do: It is a bug: report it with the trace.
                get_logger().exception("call.recorder_failed")

    def _turn(self) -> None:
        self._is_due = False
        self.drain()


MOST_RESCUES = 10.0  # in a row, after a long time without any


class RescueBudget:
    """A budget of rescues of slow streams: each streamed answer that could be rescued adds a share of one rescue.

    Clients share the budget: each may use what its own streams added, and what other clients leave.
    """

    __slots__ = ("_credit", "_shares")

    def __init__(self) -> None:
        self._credit = MOST_RESCUES
        self._shares = Shares(MOST_RESCUES)

    def earn(self, share: float, client: str | None = None, now_s: float = 0.0) -> None:
        """Add the share of one stream."""
        self._credit = min(MOST_RESCUES, self._credit + share)
        self._shares.earn(client, share, now_s)

    def spend(self, client: str | None = None) -> bool:
        """Use up one rescue; return whether there was one."""
        if self._credit < 1.0 or not self._shares.takes(client, self._credit):
            return False
        self._credit -= 1.0
        return True


# Reasoning that is encrypted or signed. Only the organisation whose key made the reasoning can read it.

MOST_MAKERS = 100_000  # pieces of reasoning, of some 200 bytes each
MOST_ASKED = 200  # pieces of a conversation whose makers the other replicas are asked for: the newest
HEARD = 10_000  # an API that rarely has such reasoning is listened to for so many answers after the last with some


class SharedNames(Protocol):
    """Names, each with a value, that all replicas know for a while."""

    def wants(self, maker: Maker) -> bool:
        """Return whether the replicas are told what ``maker`` has made."""

    async def share(self, name: str, value: str) -> None:
        """Tell the other replicas; do nothing if no replica can be reached."""

    async def ask(self, name: str) -> str | None:
        """Return the value that a replica has shared; None if there is none, or the store cannot be read now."""


class Makers:
    """Who made each piece of reasoning that only its maker can read, by hash. No ``shared``: of this process only."""

    def __init__(
        self, shared: SharedNames | None = None, start: Callable[[Coroutine[Any, Any, None]], object] | None = None
    ) -> None:
        """``start`` runs, in the background, the task that tells the other replicas."""
        self._known: dict[bytes, Maker] = {}  # the newest last
        # Reasoning by an unknown maker that was refused → the providers that cannot read this reasoning.
        self._refused: dict[bytes, frozenset[str]] = {}
        # How many answers in APIs that rarely have such reasoning are to be looked in, as some has been refused.
        self.hears_all = 0
        self._shared = shared
        self._start = start

    def remember(self, reasoning: bytes, maker: Maker) -> None:
        """Remember that ``maker`` made the ``reasoning``, or could read it."""
        is_new, shared = self._keep(reasoning, maker), self._shared
        if is_new and shared is not None and self._start is not None and shared.wants(maker):
            self._start(shared.share(reasoning.hex(), msgspec.json.encode(maker).decode()))

    def note_refused(self, reasoning: Sequence[bytes], provider: str) -> None:
        """Remember that ``provider`` refused a request with this ``reasoning``: for all whose maker is not known."""
        for each in reasoning:
            if each not in self._known:
                self._refused[each] = self._refused.pop(each, frozenset()) | {provider}
                self.hears_all = HEARD
        while len(self._refused) > MOST_MAKERS:
            del self._refused[next(iter(self._refused))]

    def refused(self, reasoning: Sequence[bytes]) -> Mapping[bytes, frozenset[str]]:
        """Return the providers that have refused each piece whose maker was not known then."""
        return {each: self._refused[each] for each in reasoning if each in self._refused} if self._refused else {}

    def watched(
        self,
        exchange: Exchange,
        request: Request,
        maker: Maker,
        learnt: LearntFacts | None,
        *,
        bound: Sequence[bytes],
        told: Callable[[Sequence[UnshownThought]], object] | None,
        refuses: bool = True,
    ) -> Exchange:
        """Remember that ``maker`` could read the reasoning of ``request``, and made what comes by ``exchange``.

        ``learnt``: about the provider's models, some of which may have refused reasoning that others made. ``bound``:
        the hashes of the request's reasoning, as ``bound_reasoning`` finds them. ``told``: is called with reasoning
        that the model was not shown. ``refuses``: the model refuses reasoning that it cannot read. Other models drop
        such reasoning in silence: their answers do not show who could read it.
        """
        if request.apart is not None and request.sendings.key_name in request.apart.keys:
            bound = ()  # the request was sent without reasoning
        takes_any = maker_of(maker.model) == "open"
        refuses = refuses and not takes_any
        for each in bound:
            before = self._known.get(each)
            if before is not None and refuses:
                read_after_all(before, learnt, request)
            if not takes_any if before is None else refuses and not _is_surely(before, maker):
                self.remember(each, maker)
        own_maker = msgspec.structs.replace(maker, made=True)
        remember, read_told = partial(self.remember, maker=own_maker), request.dialect.answers.unshown
        if not request.dialect.answers.binds:
            self.hears_all -= 1
            remember = partial(self._remember_rare, maker=own_maker)
        if read_told is None or told is None:
            return BoundReasoningExchange(exchange, remember)

        def hear(unshown: Sequence[UnshownThought]) -> None:
            told(unshown)
            if any(each.check == OF_AN_ACCOUNT for each in unshown):
                self._told_apart(bound, maker, learnt, request)

        return BoundReasoningExchange(exchange, remember, read_told, hear)

    def _remember_rare(self, reasoning: bytes, maker: Maker) -> None:
        self.hears_all = HEARD
        self.remember(reasoning, maker)

    def _told_apart(self, bound: Sequence[bytes], by: Maker, learnt: LearntFacts | None, request: Request) -> None:
        """Note that the account of ``by`` cannot read some of the reasoning (``bound``) that it was sent.

        A client may send reasoning from elsewhere. So the gateway concludes that there are two accounts only if one
        other key was seen to make all of the reasoning.
        """
        known = {each: self._known.get(each) for each in bound}
        makers = {maker for maker in known.values() if maker != msgspec.structs.replace(by, made=True)}
        for each, maker in known.items():
            if maker == by:  # the gateway had taken this account for one that could read the piece
                del self._known[each]
        if len(makers) == 1 and (other := makers.pop()) is not None and other.made:
            told_apart(other, by, learnt, request)

    async def find(self, reasoning: Sequence[bytes]) -> Maker | None:
        """Return the maker of the newest (last) piece whose maker is known; None if no maker is known."""
        newest = next((maker for each in reversed(reasoning) if (maker := self._known.get(each)) is not None), None)
        if newest is not None or self._shared is None or not reasoning:
            return newest
        newest = await self._asked(reasoning[-1], self._shared)
        if newest is not None:  # if the newest is unknown, so are the older: those were shared before it
            await asyncio.gather(*(self._asked(each, self._shared) for each in reasoning[-MOST_ASKED:-1]))
        return newest

    async def _asked(self, reasoning: bytes, shared: SharedNames) -> Maker | None:
        """Return the maker that another replica or an earlier process has shared, and keep it here."""
        shared_maker = await shared.ask(reasoning.hex())
        try:
            maker = None if shared_maker is None else msgspec.json.decode(shared_maker, type=Maker)
        except UNREADABLE:  # Redis has other writers
            return None
        if maker is not None:
            self._keep(reasoning, maker)
        return maker

    def of_each(self, reasoning: Sequence[bytes]) -> Mapping[bytes, Maker]:
        """Return the maker of each piece whose maker this process knows."""
        return {each: maker for each in reasoning if (maker := self._known.get(each)) is not None}

    def _keep(self, reasoning: bytes, maker: Maker) -> bool:
        """Keep the maker of ``reasoning`` as the newest; return whether the maker was unknown."""
        makers = self._known
        if reasoning in self._refused:  # a provider that reads it after all, as with another of its keys
            self._refused[reasoning] -= {maker.deployment.partition("/")[0]}
        is_new = makers.pop(reasoning, None) != maker
        makers[reasoning] = maker
        if len(makers) > MOST_MAKERS:
            del makers[next(iter(makers))]
        return is_new


def _is_surely(before: Maker, reader: Maker) -> bool:
    """Whether ``before`` surely made the reasoning that ``reader`` has taken.

    ``before`` was seen to make it, and ``reader`` is the same account, or asks for models of another maker.
    """
    return before.made and (
        maker_of(before.model) != maker_of(reader.model) or before == msgspec.structs.replace(reader, made=True)
    )


_DAY_S = 86_400.0
_MOST_TIERS, _MOST_DEPLOYMENTS = 8, 4_096  # a provider may name any word, and clients any deployment


class ServedTiers:
    """Deployment → the tiers that answers to requests without a tier have named in the last day."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.named: dict[str, dict[str, float]] = {}  # when each was named last, in this order

    def saw(self, deployment: str, tier: str) -> None:
        """Note the tier of an answer."""
        tiers = self.named.get(deployment)
        if tiers is None:
            if len(self.named) >= _MOST_DEPLOYMENTS:
                del self.named[next(iter(self.named))]
            tiers = self.named[deployment] = {}
        tiers.pop(tier, None)
        tiers[tier] = self._clock()
        if len(tiers) > _MOST_TIERS:
            del tiers[next(iter(tiers))]

    def of(self, deployment: str) -> tuple[str, ...]:
        """Return the tiers named in the last day, the last at the end."""
        since = self._clock() - _DAY_S
        return tuple(tier for tier, at in self.named.get(deployment, {}).items() if at > since)


class Services(msgspec.Struct, frozen=True):
    """The recorder, the owners of tasks and seats, and the sources of time and ids."""

    recorder: Recorder
    tasks: AttemptTasks[Any]  # of ``Attempt``, whose module imports this one
    seats: Seats
    clock: Callable[[], float]  # monotonic seconds, with a finer resolution than the loop's
    new_id: Callable[[], str]
    utc_now: Callable[[], datetime]
    paces: Paces = msgspec.field(default_factory=Paces)  # the usual decode speeds of deployments
    pauses: PausesByDeployment = msgspec.field(default_factory=PausesByDeployment)  # within deployments' streams
    thoughts: HabitsByDeployment = msgspec.field(default_factory=HabitsByDeployment)  # within deployments' texts
    outbox: Outbox = msgspec.field(default_factory=Outbox)
    rescues: RescueBudget = msgspec.field(default_factory=RescueBudget)
    makers: Makers = msgspec.field(default_factory=Makers)
    tiers: ServedTiers | None = None  # tiers that answers named; None: no tier is remembered
    forms: OtherForms = msgspec.field(default_factory=OtherForms)  # in which deployments are asked after a refusal
