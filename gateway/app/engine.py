"""The engine: plans, races and learns, without a server. ``Gateway`` and ``holeshot.Racer`` are built on it."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.api import Rewording
from gateway.app.fleets import Fleets
from gateway.core.attempts import AttemptRecord, AttemptStart, Narrowed
from gateway.core.calls import Call, CallRecord, CallStart, Recorder
from gateway.core.ids import new_id
from gateway.core.log import get_logger
from gateway.core.prompt_classes import PromptClass
from gateway.core.records import ProbeBook
from gateway.core.tasks import BackgroundTasks
from gateway.fleet import Callers, Fleet, OpenUpstream
from gateway.limits import Leases, Limits, OwnShare
from gateway.racing import (
    Attempt,
    AttemptTasks,
    Makers,
    OtherForms,
    Outbox,
    Seats,
    ServedTiers,
    Services,
    SharedNames,
)
from gateway.settings import Settings
from gateway.steering import REFRESH_EVERY_S, MemoryBoard, Outages, Spending, Steering, Strikes
from providers.http import ALONE, Connecting, TlsContexts

if TYPE_CHECKING:
    from gateway.ledger import Ledger, Store
    from gateway.limits import LeaseTimes
    from gateway.steering import Lateness, RedisBoard

# An engine's dependencies: clocks, randomness, ids, and access to the outside: everything that depends neither on
# settings nor on input. So a test can run a whole gateway in virtual time with simulated providers, reproducibly.


class Peers(Protocol):
    """The other workers of this port, by their process ids."""

    @property
    def stopped(self) -> list[int]:
        """The workers with an event loop that stands still now."""

    @property
    def stopped_lately(self) -> list[int]:
        """The workers with an event loop that stood still within the last minute."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of an engine; by default, those of the process."""

    clock: Callable[[], float] = time.monotonic  # seconds
    unix_clock: Callable[[], float] = time.time  # seconds since 1970
    utc_now: Callable[[], datetime] = partial(datetime.now, UTC)
    random: Random = msgspec.field(default_factory=Random)  # for load balancing, not for security
    new_id: Callable[[], str] = new_id
    open_upstream: OpenUpstream | None = None  # None: over the network
    tls: TlsContexts = msgspec.field(default_factory=TlsContexts)  # of all connections over HTTP
    probe_book: ProbeBook | None = None  # None: the same database
    store: "Store | None" = None  # None: the database in the settings
    lease_times: "LeaseTimes | None" = None  # None: the usual ones
    prune_after_s: float = 0.0  # from the start to the first deletion of old rows
    peers: "Peers | None" = None  # None: this process has the port for itself


class UnrecordedEvents(msgspec.Struct, frozen=True):
    """Optional callbacks for the metrics of events without a record."""

    waited: Callable[[str, str, float], None] | None = None  # for a slot: model, how the wait ended, seconds
    refused: Callable[[str, str], None] | None = None  # an extra attempt: model, the limit


_AFTER_A_BUG_S = 10.0


class Engine:
    """Fleets, steering, slots, limits and the owners of tasks: ``start`` it, give its parts to calls, close it.

    Made in two steps, as recorders need its steering: ``services`` is the second.
    """

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        *,
        leases: Leases | None = None,
        attempts: AttemptTasks[Attempt] | None = None,
        outbox: Outbox | None = None,
        spending: Spending | None = None,
        strikes: Strikes | None = None,
        board: "RedisBoard | None" = None,
        lateness: "Lateness | None" = None,
        connecting: Connecting = ALONE,
        outages: Outages | None = None,
        watch: UnrecordedEvents | None = None,
        own_key: str = "",
    ) -> None:
        """Build the fleet of ``settings``. Parts that are not given are in memory, and of this engine alone.

        ``lateness`` measures the delay of the event loop; ``connecting`` says how to connect to providers. ``own_key``:
        the key for sealing if the settings have no secret.

        Raises:
            ConfigurationError: a provider cannot be opened.

        """
        watch, clock, unix_clock = watch or UnrecordedEvents(), runtime.clock, runtime.unix_clock
        self.leases = leases = leases or OwnShare(settings.workers, clock=clock, unix_clock=unix_clock)
        self.attempts = attempts or AttemptTasks[Attempt]()
        self.outbox = outbox = outbox or Outbox()
        self.tasks = BackgroundTasks()
        self.fleets = Fleets(runtime.open_upstream, self.tasks, connecting, own_key)
        self.steering = Steering(
            board or MemoryBoard(),
            clock=clock,
            unix_clock=leases.shared_clock or unix_clock,
            random=runtime.random,
            spending=spending,
            on_refused=watch.refused,
            strikes=strikes,
            lateness=lateness,
            outages=outages,
            catch_up=outbox.drain,
        )
        refused = watch.refused
        self.seats = Seats(
            on_waited=watch.waited,
            on_refused=None if refused is None else lambda model: refused(model, Narrowed.CAPACITY),
            leases=leases,
            clock=clock,
            on_elsewhere=self.steering.running_elsewhere,
        )
        self.limits = Limits(leases, unix_clock=unix_clock, clock=clock)
        self.fleet = self.fleets.build(settings, None)
        self._runtime = runtime
        self._rewording = Rewording(settings.limits.max_values)
        self._use(settings, self.fleet)

    def services(self, recorder: Recorder, makers: SharedNames | None = None) -> Services:
        """Return the services shared by all calls; ``recorder`` receives their events.

        ``makers``: the makers of reasoning known to all replicas.
        """
        runtime = self._runtime
        return Services(
            recorder=recorder,
            tasks=self.attempts,
            seats=self.seats,
            clock=runtime.clock,
            new_id=runtime.new_id,
            utc_now=runtime.utc_now,
            outbox=self.outbox,
            makers=Makers(makers, self.tasks.start),
            tiers=ServedTiers(runtime.clock),
            forms=OtherForms(self._rewording),
        )

    def start(self, callers: Callable[[], Callers] = tuple) -> None:
        """Import and fetch what providers need, keep the standings up to date, and keep connections open.

        ``callers``: the clients known now.
        """
        self.fleets.warm_up(self.fleet)
        self.tasks.start(self._keep_fresh())
        self.tasks.start(self.fleets.stay_connected(lambda: self.fleet, callers))

    def build(self, settings: Settings) -> Fleet:
        """Return the fleet of another configuration, for ``replace``.

        Raises:
            ConfigurationError: a provider cannot be opened.

        """
        return self.fleets.build(settings, self.fleet)

    def replace(self, settings: Settings, new: Fleet) -> None:
        """Use ``new`` for new calls; running calls keep their fleet."""
        old, self.fleet = self.fleet, new
        self._use(settings, new)
        self.fleets.retire(old, new)
        self.fleets.warm_up(new)

    def close_with(self, last_first: AsyncExitStack) -> None:
        """Push the closing of all parts on ``last_first``. Parts already there, as stores, are closed later."""
        last_first.push_async_callback(self.fleets.aclose)
        last_first.push_async_callback(self.fleet.aclose)
        last_first.push_async_callback(self.fleets.close_retired)
        last_first.push_async_callback(self.tasks.close)
        last_first.callback(self.outbox.drain)
        last_first.push_async_callback(self.attempts.close)  # early, as attempts read from upstreams

    def _use(self, settings: Settings, fleet: Fleet) -> None:
        self._rewording.most_values = settings.limits.max_values
        self.seats.limit(fleet.limits, settings.queue_timeout_s, self.steering.under_way, of_fleet=fleet.fleet_limits)
        self.steering.reset({name: list(model.deployments) for name, model in fleet.configured.items()})

    async def _keep_fresh(self) -> None:
        """Keep the standings up to date in the background."""
        while True:
            await asyncio.sleep(REFRESH_EVERY_S)
            try:
                self.steering.refresh()
                self.fleet.forget()
            except Exception:  # noqa: BLE001 - the next slice may succeed; without a ranking, calls compute their own
                # Event steering.not_refreshed: The ranking could not be computed in the background. Calls compute their
                # own.
                # Do: It is a bug: report it with the trace.
                get_logger().exception("steering.not_refreshed")
                await asyncio.sleep(_AFTER_A_BUG_S)


class EngineRecorder:
    """The minimal recorder: the ledger, if there is one, then limits and steering."""

    def __init__(self, engine: Engine, ledger: "Ledger | None" = None) -> None:
        self._limits, self._steering, self._ledger = engine.limits, engine.steering, ledger

    def call_started(self, start: CallStart) -> None:
        """Spool the start."""
        if self._ledger is not None:
            self._ledger.call_started(start)

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count the attempt as in flight."""
        self._steering.attempt_started(start.model or call.decision.model, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count the first token on the board."""
        self._steering.first_token(model, prompt_class, start, ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Update board and health."""
        self._steering.attempt_ended(model, prompt_class, attempt, ago_s)

    def call_finished(self, record: CallRecord) -> None:
        """Spool the record, and count the call's use."""
        if self._ledger is not None:
            self._ledger.call_finished(record)
        self._limits.call_finished(record)
        self._steering.call_finished(record)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Spool the row of a loser that was measured beyond its call."""
        del model, duplicate_usd
        self._limits.attempt_audited(attempt)
        if self._ledger is not None:
            self._ledger.attempts_ended(attempt.call_id, (attempt,))
