"""The composition: builds a gateway from settings. The only file with access to every room."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gateway.access import KeyAdmission
from gateway.admin import Operations
from gateway.alerts import StatedModels
from gateway.api import (
    MAKERS_PREFIX,
    Context,
    Payers,
    RedisNames,
    RefusalMinutes,
    Refusals,
    StoredResponses,
    VectorComparisons,
)
from gateway.app.added_limits import LastingLimit, lasting_limits
from gateway.app.background import alerts, prober, slowdown_watch, target_watch
from gateway.app.engine import Engine, Runtime, UnrecordedEvents
from gateway.app.gauges import add_budgets, add_gauges, add_health, readiness
from gateway.app.ledgers_on_redis import LedgersOnRedis
from gateway.app.left_running import LeftRunning
from gateway.app.makers_on_disk import KEPT_S as MAKERS_KEPT_S
from gateway.app.makers_on_disk import MakersOnDisk
from gateway.app.named_rows import NamedRows
from gateway.app.recorders import Recorders
from gateway.app.routes import application
from gateway.app.shared_facts import SharedFacts
from gateway.app.startup_history import SPOOL_WITHIN_S, StartupHistory
from gateway.app.stores import (
    StoreAddresses,
    client_keys,
    client_tokens,
    leases,
    live_sharing,
    redis_board,
    response_store,
)
from gateway.core.addresses import Address
from gateway.core.log import get_logger
from gateway.core.targets import Target
from gateway.ledger import (
    Database,
    Ledger,
    LedgerError,
    LedgerNames,
    LedgerPool,
    LedgerReports,
    Reader,
    ReplayRunner,
    Retention,
    is_sqlite,
    ledger_id,
    own_signing_key,
    parse_url,
)
from gateway.limits import Zones
from gateway.live import Live
from gateway.memory import AnswerMemory, SealedAnswers
from gateway.overload import Bodies, Intake, body_bytes_in, calls_in, memory_limit
from gateway.racing import Attempt, AttemptTasks, Outbox
from gateway.settings import ConfigurationError, Problem, Settings, brought, signing_secret, targets_of
from gateway.steering import Outages, Spending, Strikes
from gateway.topology import RedisUrlError
from gateway.tracing import Tracing
from gateway.watching import CallLog, Metrics, add_process_figures
from providers import load_catalog
from providers.http import Connecting

if TYPE_CHECKING:
    from gateway.admin import SignIn, Stores
    from gateway.ledger import ClickHouseSink


def _database(address: Address) -> Database:
    """Return the ledger's database; for Postgres, a pool shared by all its users."""
    return address.url if is_sqlite(parse_url(address.url)) else LedgerPool(address)


def _clickhouse(settings: Settings, runtime: Runtime, address: Address | None) -> "ClickHouseSink | None":
    """Return the ledger's second store; None without one."""
    if settings.ledger.clickhouse is None:
        return None
    from gateway.ledger import ClickHouseSink  # noqa: PLC0415 - an HTTP client, only where it is needed

    return ClickHouseSink(
        settings.ledger.clickhouse,
        Path(settings.spool_dir),
        address=address,
        clock=runtime.clock,
        unix_clock=runtime.unix_clock,
        tls=runtime.tls,
    )


_MODELS = attrgetter("context.fleet.configured")  # in C: metrics look at the models some times a call
_PATTERNS = attrgetter("context.fleet.patterns")  # likewise, for rows


class Gateway:
    """A gateway without its server: build it, ``start`` it, serve ``application``, ``close`` it."""

    _names_on_disk: Sequence[LedgerNames] = ()  # without Redis
    _lasting: frozenset[LastingLimit] | None = None  # the present limits, once the gateway runs
    _ledgers: LedgersOnRedis | None = None  # with Redis

    def __init__(self, settings: Settings, runtime: Runtime | None = None) -> None:
        """Compose a gateway. Nothing runs yet, but the spool is made and locked.

        Raises:
            DatabaseUrlError, SpoolError: the database URL is invalid, or the spool cannot be written.
            ConfigurationError: a provider cannot be opened.

        """
        runtime = self._runtime = runtime or Runtime()
        replica = settings.replica or socket.gethostname()
        self.metrics = Metrics(partial(_MODELS, self), lambda: self.context.fleet.shown_as)
        names = NamedRows(lambda: self.context.fleet, patterns=partial(_PATTERNS, self))
        tasks, outbox, memory = AttemptTasks[Attempt](), Outbox(), memory_limit()
        intake = Intake(
            settings.overload,
            default_most=calls_in(memory, settings.workers),
            clock=runtime.clock,
            is_busy=lambda: tasks.number > 0,
            on_shed=self.metrics.shed,
        )
        bodies = Bodies(body_bytes_in(memory, settings.workers), most_unfinished=lambda: intake.limit.most)
        self.addresses = addresses = StoreAddresses(settings)
        self.leases = leases(settings, runtime, addresses.redis)
        # Samples, dollars of a day and strikes go by Redis' clock, even if this machine's is off.
        steering_clock = self.leases.shared_clock or runtime.unix_clock
        spending, strikes = Spending(steering_clock), Strikes(steering_clock)
        self._response_store = response_store(settings, addresses.redis)
        self.redis_board = redis_board(settings, addresses.redis, steering_clock, spending, strikes)
        process_id = runtime.new_id()
        worker = f"{replica}-{process_id}"  # no other process may ever use the same spool
        self.live = Live(
            tasks,
            clock=runtime.clock,
            unix_clock=runtime.unix_clock,
            replica=replica,
            worker=process_id[-12:],
            catch_up=outbox.drain,
        )
        self.tracing = Tracing(settings, worker=worker, clock=runtime.clock)
        self.live_sharing = live_sharing(settings, addresses.redis, self.live, runtime)
        database = self._database = _database(addresses.database)
        self.ledger = Ledger(
            database,
            Path(settings.spool_dir),
            worker,
            replica=replica,
            retention=Retention.of(settings.ledger),
            prune_after_s=runtime.prune_after_s,
            clock=runtime.clock,
            utc_now=runtime.utc_now,
            store=runtime.store,
            clickhouse=_clickhouse(settings, runtime, addresses.clickhouse),
        )
        # Everything shared by replicas goes by the database's clock, even if this machine's is off.
        shared = msgspec.structs.replace(runtime, utc_now=self.ledger.clock.now, unix_clock=self.ledger.clock.unix_s)
        self.outages = Outages(
            lambda outage: self.ledger.outage(names.outage(outage)),
            utc_now=runtime.utc_now,
            new_id=runtime.new_id,
            replica=replica,
        )
        own_key = "" if runtime.store else own_signing_key(settings.database_url.get_secret_value())
        engine = self.engine = Engine(
            settings,
            runtime,
            leases=self.leases,
            attempts=tasks,
            outbox=outbox,
            spending=spending,
            strikes=strikes,
            board=self.redis_board,
            lateness=intake.delay,
            connecting=Connecting(tls=runtime.tls, batches=intake.batches),
            outages=self.outages,
            watch=UnrecordedEvents(self.metrics.call_waited, self.metrics.launch_refused),
            own_key=own_key,
        )
        self.steering, self.fleets, self._tasks = engine.steering, engine.fleets, engine.tasks
        self._reports = self._reports_of(addresses.database, Reader(database, heard_s_ago=self._heard_s_ago), shared)
        self._page_reports = self._reports_for_page(addresses.reports, shared)
        log = CallLog()
        self._history = StartupHistory(
            self.ledger,
            self.steering,
            self.leases,
            spending,
            teams=self._teams,
            payer_of=lambda: self.context.fleet.payer_of,
            zones=lambda: Zones(self.context.settings.limits_zone, self.context.admission.zones),
            has_answered=lambda: self.context.fleet.has_answered,
            unix_clock=shared.unix_clock,
            board_is_shared=self.redis_board is not None,
        )
        keys = client_keys(settings, shared, database)
        limits = engine.limits
        stated = StatedModels(runtime.utc_now)
        self.context = Context(
            settings=settings,
            fleet=engine.fleet,
            admission=KeyAdmission(
                keys, settings.anonymous, client_tokens(settings, runtime, keys), brought(settings, load_catalog())
            ),
            steering=self.steering,
            limits=limits,
            services=engine.services(
                Recorders(
                    self.ledger,
                    self.steering,
                    self.metrics,
                    log,
                    limits=limits,
                    live=self.live,
                    tracing=self.tracing,
                    stated=stated,
                    names=names,
                    clock=runtime.clock,
                ),
                self._makers(settings, own_key),
            ),
            intake=intake,
            bodies=bodies,
            tracing=self.tracing,
            responses=self._stored_responses(settings),
            memory=self._answer_memory(settings),
            refusals=Refusals(
                self.metrics.refused,
                RefusalMinutes(self.ledger.refused, utc_now=runtime.utc_now, new_id=runtime.new_id, replica=replica),
                lambda: self.context.settings.refusals.addresses,
            ),
            vectors=VectorComparisons(engine.tasks.start),
            replica=replica,
        )
        self._share_facts(shared.unix_clock)
        self._sign_in: SignIn | None = None
        self.context.is_unrecorded = lambda: self.ledger.is_unrecorded
        self.operations = Operations(
            reports=self._page_reports,
            live=self.live,
            alerts=alerts(
                lambda: self.context,
                replica=replica,
                runtime=shared,
                database=database,
                ledger=self.ledger,
                reports=self._reports,
                stated=stated,
                metrics=self.metrics,
            ),
            readiness=self._readiness,
            render_metrics=self.metrics.parts,
            signing_key=own_key,
            sign_in=self._signing_in,
        )
        add_gauges(
            self.metrics,
            ledger=self.ledger,
            board=self.redis_board,
            log=log,
            seats=engine.seats,
            wrong_keys=self.context.wrong_keys,
            leases=self.leases,
            keys=keys,
            intake=intake,
            bodies=bodies,
            live=self.live,
            live_sharing=self.live_sharing,
            tracing=self.tracing,
            turns=self.context.body_work.turns,
            names_away=lambda: engine.fleets.names_away,
        )
        add_health(
            self.metrics,
            peers=runtime.peers,
            steering=self.steering,
            ledger=self.ledger,
            board=self.redis_board,
            clock=runtime.clock,
        )
        add_budgets(
            self.metrics,
            steering=self.steering,
            spending=spending,
            limits=limits,
            fleet=lambda: self.context.fleet,
        )
        add_process_figures(self.metrics)
        self.metrics.on_render(outbox.drain)
        targets = target_watch(
            database,
            shared,
            clock=self.ledger.clock,
            reports=self._reports,
            metrics=self.metrics,
            targets=self._targets,
        )
        self._tasks.later(targets.run)
        if settings.ledger.slowdowns and runtime.store is None:
            slowdowns = slowdown_watch(database, self.ledger.clock, self.metrics, holder=worker)
            self._tasks.later(slowdowns.run)
        self.probes = prober(self.context, shared, database, self.ledger, self.metrics)
        self.application = application(self.context, self.operations)

    def trust_anew(self) -> None:
        """Let new connections trust the present certificate authorities."""
        self._runtime.tls.renew()

    async def start(self, *, database_answers: bool = True) -> None:
        """Start shipping rows and sharing the leaderboard; both stores may be away.

        If the database answers, the start waits for the figures of earlier calls, so that the first calls use them.
        """
        self.context.intake.delay.start()
        await self.ledger.start()
        self._tasks.start(self._history.load_figures())
        left = self._count_left()
        await self.context.admission.keys.start()
        if self.context.admission.tokens is not None:
            self.context.admission.tokens.fetch()
        settings = self.context.settings
        if settings.limits_of_payers:
            self._tasks.start(self._history.load_payers(settings.limits_of_payers))
        if settings.counts_use and not await self._history.load_spending():
            self._tasks.start(self._history.retry_spending())
            await asyncio.wait({self._tasks.start(self._history.count_spooled())}, timeout=SPOOL_WITHIN_S)
        elif settings.counts_use and left is not None:
            await left.counted()
        self._lasting = lasting_limits(settings, self.context.admission)
        self.context.admission.keys.on_changed = self._count_added
        await self.leases.start()
        if self.redis_board is not None:
            await self.redis_board.start()
        if self.live_sharing is not None:
            await self.live_sharing.start()
        self.tracing.start()
        self.engine.start(lambda: self.context.admission.callers)
        self.probes.start()
        self._tasks.start(self._history.load_pauses(self.context.services.pauses))
        self.operations.alerts.start()
        self._tasks.start_later_ones()
        if self.metrics.shared:
            self._tasks.start(self.metrics.keep_fresh())
        if database_answers:
            await self._history.tried()

    async def close(self) -> None:
        """Flush and close everything. No calls may be running."""
        self.context.refusals.close()
        self.context.memory.close()
        self.live.end()
        self.outages.close()
        async with AsyncExitStack() as last_first:  # whatever fails, the rest is closed, the ledger last
            if isinstance(self._database, LedgerPool):
                last_first.push_async_callback(self._database.aclose)
            last_first.push_async_callback(self.ledger.close)
            for names in self._names_on_disk:
                last_first.push_async_callback(names.aclose)
            last_first.push_async_callback(self.context.admission.keys.close)
            if self.context.admission.tokens is not None:
                last_first.push_async_callback(self.context.admission.tokens.close)
            if self._sign_in is not None:
                last_first.push_async_callback(self._sign_in.close)
            last_first.push_async_callback(self._reports.aclose)
            last_first.push_async_callback(self._page_reports.aclose)
            last_first.push_async_callback(self.tracing.close)
            if self.redis_board is not None:
                last_first.push_async_callback(self.redis_board.close)
            if self.live_sharing is not None:
                last_first.push_async_callback(self.live_sharing.close)
            if self._response_store is not None:
                last_first.push_async_callback(self._response_store.aclose)
            last_first.push_async_callback(self.leases.close)
            last_first.push_async_callback(self.operations.alerts.close)
            last_first.callback(self.context.intake.delay.close)
            self.engine.close_with(last_first)
            last_first.push_async_callback(self.probes.close)

    def _share_facts(self, unix_clock: Callable[[], float]) -> None:
        """Share over Redis, if there is one, the facts taught by refusals."""
        if self._response_store is not None:
            facts = SharedFacts(self._response_store, self.fleets.learnt, self._tasks.start, unix_clock=unix_clock)
            self.fleets.tell = facts.tell
            self._tasks.later(facts.run)
            if self._runtime.store is None:
                self._ledgers = LedgersOnRedis(
                    self._response_store, partial(ledger_id, self._database), unix_clock=unix_clock
                )
                self._tasks.later(self._ledgers.run)

    def _count_left(self) -> LeftRunning | None:
        """Count and ask for responses in the background from before this process, if the ledger knows them."""
        if not self._names_on_disk:
            return None
        self.context.responses.on_left = self._history.count_background
        left = LeftRunning(self.context, self._names_on_disk[1], clock=self._runtime.clock)
        self._tasks.start(left.run())
        return left

    def _signing_in(self) -> "SignIn":
        """Return the sign-in at a provider, made at its first use: few pages have one."""
        if self._sign_in is None:
            from gateway.admin import SignIn  # noqa: PLC0415 - memory: off by default

            self._sign_in = SignIn(
                clock=self._runtime.clock, unix_clock=self._runtime.unix_clock, tls=self._runtime.tls
            )
        return self._sign_in

    def _answer_memory(self, settings: Settings) -> AnswerMemory:
        """Return the memory of recent answers, which other replicas find in Redis."""
        store, clock, sealed = self._response_store, self._runtime.clock, None
        if store is not None:
            sealed = SealedAnswers(
                store,
                ttl_s=lambda: self.context.settings.responses_memory.ttl_s,
                most_bytes=lambda: self.context.settings.responses_memory.max_mb * 2**20,
                clock=clock,
            )
        return AnswerMemory(settings.responses_memory, clock=clock, start=self._tasks.start, sealed=sealed)

    def _open_names(self, settings: Settings, own_key: str) -> Sequence[LedgerNames]:
        """Return the ledger's names, responses in the background and makers of thoughts, kept over a restart.

        Only without Redis. The hashes there are not keyed by the database's password, which may change. Values to be
        read again are sealed with the password if there is no better secret.
        """
        if self._response_store is not None or self._runtime.store is not None:
            return ()
        secret = (settings.page.signing_key.get_secret_value() or own_key).encode()
        seal = secret or signing_secret(settings).encode()
        return [
            LedgerNames(self.ledger, self._database, secret, kind=kind, ttl_s=ttl_s, seal=seal)
            for kind, ttl_s in (
                ("name", self._kept_s),
                ("background", self._kept_s),
                ("maker", lambda: min(MAKERS_KEPT_S, self._kept_s())),
            )
        ]

    def _makers(self, settings: Settings, own_key: str) -> RedisNames | MakersOnDisk | None:
        """Return the store of the makers of reasoning, beside the memory of this process."""
        self._names_on_disk = self._open_names(settings, own_key)
        if self._response_store is not None:
            return RedisNames(self._response_store, MAKERS_PREFIX, self._kept_s)
        return MakersOnDisk(self._names_on_disk[2], lambda: self.context.fleet) if self._names_on_disk else None

    def _stored_responses(self, settings: Settings) -> StoredResponses:
        """Return the memory of things stored by providers, which others find in Redis, or the next start on disk."""
        on_disk, begun_on_disk, _ = self._names_on_disk or (None, None, None)
        return StoredResponses(
            settings.response_ids_ttl_s,
            clock=self._runtime.clock,
            store=self._response_store,
            on_disk=on_disk,
            begun_on_disk=begun_on_disk,
        )

    def _kept_s(self) -> float:
        return self.context.responses.ttl_s

    def reload(self, settings: Settings) -> None:
        """Use a new configuration for new calls, and for new connections to stores; running calls keep the former one.

        Raises:
            ConfigurationError: a provider cannot be opened, or a store's address is invalid; nothing is changed then

        """
        new = self.engine.build(settings)
        try:
            renewed = self.addresses.renew(settings)
        except (LedgerError, RedisUrlError) as error:
            raise ConfigurationError([Problem(str(error))]) from error
        if renewed:
            # Event configuration.logins_renewed: The user or the password in these `settings` has changed. New
            # connections to the stores are made with it; those that are open stay.
            # Do: Nothing.
            get_logger().info("configuration.logins_renewed", settings=renewed)
        self.tracing.configure(settings)
        self.context.settings = settings
        self.context.payers = Payers(settings)
        self.context.fleet = new
        self.context.intake.configure(settings.overload)
        self.context.responses.ttl_s = settings.response_ids_ttl_s
        self.context.memory.configure(settings.responses_memory)
        admission = self.context.admission
        tokens = client_tokens(settings, self._runtime, admission.keys, admission.tokens)
        providers = brought(settings, load_catalog())
        self.context.admission = admission.reloaded(settings.clients, settings.anonymous, tokens, providers)
        if tokens is not None:
            tokens.fetch()
        self._count_added()
        self.engine.replace(settings, new)

    def _count_added(self) -> None:
        """Have limits that are new, or of another zone, count their earlier use: after each change of the limits.

        The database's keys tell of their limits within seconds.
        """
        before, settings = self._lasting, self.context.settings
        if before is None:  # the start counts the present limits
            return
        self._lasting = lasting_limits(settings, self.context.admission)
        added = self._lasting - before
        if added:
            limits = self.context.limits
            used = limits.hand_over(
                [(each.owner, each.name) for each in added if not each.is_of_payers],
                {each.name for each in added if each.is_of_payers},
            )
            names = settings.limits_of_payers if any(each.is_of_payers for each in added) else ()
            self._history.hand_over(used)
            counted, until = limits.counted() - used.keys(), self.ledger.clock.utc_now()
            self._tasks.start(self._history.count_added(counted, names, until))

    def _reports_for_page(self, address: Address | None, runtime: Runtime) -> LedgerReports:
        """Return the reports for people, which may read a replica; reports for alerts and metrics read the primary."""
        if address is None:
            return self._reports
        return self._reports_of(address, Reader(address, is_replica=True), runtime)

    def _teams(self) -> dict[str, str]:
        """Return the team of each client, except for clients of people, who may be in other teams."""
        people = self.context.settings.clients_of_people
        return {client: team for client, team in self.context.admission.teams.items() if client not in people}

    def _reports_of(self, address: Address, reader: Reader, runtime: Runtime) -> LedgerReports:
        return LedgerReports(
            reader,
            replays=ReplayRunner(address, clock=runtime.clock),
            unshipped=self.ledger.unshipped,
            running=self.ledger.open_call,
            utc_now=runtime.utc_now,
            clock=runtime.clock,
            targets=self._targets,
        )

    def _targets(self) -> Sequence[Target]:
        return targets_of(self.context.settings.slo)

    def _heard_s_ago(self) -> float | None:
        """Return the seconds since the ledger's database last answered; for a while from now on, it is asked."""
        self.ledger.watch()
        answered_s_ago = self.ledger.answered_s_ago
        return inf if answered_s_ago is None and self.ledger.last_error is not None else answered_s_ago

    def _readiness(self) -> "Stores":
        context = self.context
        peers, models = self._runtime.peers, len(context.fleet.models)
        keys, remembered = context.admission.keys, self._history.attempts
        others = self._ledgers is not None and self._ledgers.has_others
        return readiness(
            self.ledger, self.redis_board, keys, peers, models=models, remembered=remembered, other_ledger=others
        )
