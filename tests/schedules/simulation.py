"""One run of a scenario: a whole gateway in virtual time, between simulated clients and simulated providers.

Everything from the bytes of a request to the rows of the ledger is the gateway's own, composed as in production. Only
the wires, the providers and SQL are in memory; what is written to SQL went through the spool's encoding before.
"""

import asyncio
import gc
import hashlib
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import structlog
from msgspec import structs

from gateway.app import Gateway, Runtime
from gateway.core.attempts import AttemptRecord, AttemptStart, Narrowed
from gateway.core.calls import Call, CallRecord, CallStart, HourlySum, LimitUse, Recorder, Spent
from gateway.core.ids import uuid7
from gateway.core.prompt_classes import PromptClass
from gateway.core.records import StoredName
from gateway.ledger import Finished, Retention
from gateway.ledger.entries import Audited, Entry, OutageChange, RefusedRequests, Started, decode, encode
from gateway.ledger.folding import FoldResult
from gateway.ledger.used import OwnRows
from gateway.racing import Attempt, Race, Rescue
from gateway.racing.rescue import FEWEST
from gateway.server.connections import Connections
from gateway.server.listener import serving
from gateway.settings import ProviderSettings, RaceSettings, Settings, load
from gateway.steering import Launch, Plan
from gateway.steering.constants import FIRST_EDGE_S
from gateway.steering.counts import bucket
from providers import Upstream, Vendor, load_catalog
from tests.schedules.clients import SimulatedClient
from tests.schedules.loop import ShuffledLoop
from tests.schedules.providers import Simulated, SimulatedUpstream
from tests.schedules.scenario import (
    KEY,
    LONE_MODEL,
    MODEL,
    OTHER_MODEL,
    PROVIDERS,
    SPARE_MODEL,
    SPARE_VECTORS,
    SPARE_VOICE,
    VECTORS,
    VOICE,
    Scenario,
)
from tests.schedules.spectators import Look, Spectator

if TYPE_CHECKING:
    from gateway.core.records import OutageRecord
    from gateway.ledger import Store

FIRST_TPS = 10.0  # tok/s at which the buckets of speeds begin
UNIX_S = 1_800_000_000.0
WATCHED: tuple[type, ...] = (Race, Attempt, Rescue)  # none may outlive its call
IDLE_S = 40.0  # after the last call: audited losers end, rows are shipped


class MemoryStore:
    """SQL, as far as the ledger sees it: keeps the first of what has the same id."""

    def __init__(self, sums: list[HourlySum]) -> None:
        self.calls: dict[str, CallRecord] = {}
        self.attempts: dict[str, AttemptRecord] = {}
        self.refusals: dict[str, int] = {}  # how many, by the row's id
        self.outages: dict[str, OutageRecord] = {}  # as they were told of last
        self.twice: list[str] = []  # ids of rows that came more than once
        self.begun = 0  # calls that began and did not end
        self._sums = sums
        self.closed = False

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        for each in entries:
            entry = decode(encode(each))
            attempts: Sequence[AttemptRecord] = ()
            if isinstance(entry, Finished):
                self._note(self.calls, entry.call.id, entry.call)
                attempts = entry.call.attempts
            elif isinstance(entry, Audited):
                attempts = entry.attempts
            elif isinstance(entry, RefusedRequests):
                for refusal in entry.refusals:
                    self._note(self.refusals, refusal.id, refusal.n)
            elif isinstance(entry, OutageChange):
                self.outages[entry.outage.id] = entry.outage
            else:
                assert isinstance(entry, Started)
                self.begun += 1
            for attempt in attempts:
                self._note(self.attempts, attempt.id, attempt)
        await asyncio.sleep(0.001)
        return 0

    async def ping(self) -> None:
        await asyncio.sleep(0.001)

    async def now(self) -> datetime | None:
        return None

    async def others_are_right(self, replica: str) -> bool:
        return False

    async def prune(self, kept: Retention, *, jumped: bool = False) -> dict[str, int] | None:
        return None

    async def fold(self, since: int, rest_s: float) -> FoldResult:
        return FoldResult(0, since)

    async def fold_all(self) -> None:
        return

    async def remembered(self, now: datetime) -> list[HourlySum]:
        return self._sums

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        return []

    async def used(self, since_s: Sequence[float], until: datetime, own: OwnRows) -> list[LimitUse]:
        return []

    async def used_by_payers(self, since_s: Sequence[float], until: datetime) -> list[LimitUse]:
        return []

    async def lately(self, now: datetime, until: datetime) -> dict[str, dict[int, dict[str, float]]]:
        return {}

    async def text_gaps(self, now: datetime) -> dict[str, list[float]]:
        return {}

    async def kept_ends(self) -> tuple[dict[str, CallRecord], list[str], int]:
        return {}, [], 0

    async def forget_ends(self, names: Collection[str]) -> None: ...

    async def unended(self, now: datetime) -> list[StoredName]:
        return []

    async def aclose(self) -> None:
        self.closed = True

    def _note(self, table: dict[str, Any], row_id: str, row: object) -> None:
        if row_id in table:
            self.twice.append(row_id)
        table.setdefault(row_id, row)


class Witness:
    """Hears of calls like everybody, and remembers what it heard."""

    def __init__(self, recorder: Recorder, loop: ShuffledLoop, new_id: Callable[[], str]) -> None:
        self.started: dict[str, CallStart] = {}
        self.begun_by: dict[str, str] = {}  # the task that serves a call, by its id
        self.launched: list[tuple[float, AttemptStart]] = []
        self.asked: list[Call] = []  # as each attempt was launched for it
        self.tokens: list[tuple[str, float]] = []
        self.ended: list[AttemptRecord] = []
        self.finished: list[CallRecord] = []
        self.most_calls = 0  # at once
        self.audited: list[AttemptRecord] = []
        self._recorder = recorder
        self._loop = loop
        self._new_id = new_id
        self._drawn_by: dict[str, str] = {}  # the task that drew an id

    def new_id(self) -> str:
        """Draw an id. Whoever draws a call's serves it; it may be started by who gives it a seat."""
        drawn = self._new_id()
        self._drawn_by[drawn] = _task_name()
        return drawn

    def call_started(self, start: CallStart) -> None:
        self._loop.note("told", "call_started")
        self.started[start.id] = start
        self.most_calls = max(self.most_calls, len(self.started.keys() - {each.id for each in self.finished}))
        self.begun_by[start.id] = self._drawn_by[start.id]
        self._recorder.call_started(start)

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        self._loop.note("told", "attempt_started")
        self.launched.append((self._loop.time(), start))
        self.asked.append(call)
        self._recorder.attempt_started(call, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        self._loop.note("told", "first_token")
        self.tokens.append((start.id, ttft_s))
        self._recorder.first_token(model, prompt_class, start, ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        self._loop.note("told", "attempt_ended")
        self.ended.append(attempt)
        self._recorder.attempt_ended(model, prompt_class, attempt, ago_s)

    def call_finished(self, record: CallRecord) -> None:
        self._loop.note("told", "call_finished")
        self.finished.append(record)
        self._recorder.call_finished(record)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        self._loop.note("told", "attempt_audited")
        self.audited.append(attempt)
        self._recorder.attempt_audited(model, attempt, duplicate_usd)


class WitnessedSteering:
    """The gateway's steering, with a list of what it planned and permitted."""

    def __init__(self, steering: Any, *, defective: str | None, refuses: bool) -> None:
        """``defective``: the model whose plans fail, as by a bug; ``refuses``: it permits no launch."""
        self._defective = defective
        self._refuses = refuses
        self.plans: dict[str, list[tuple[str, Plan]]] = {}  # by the task that asked, with the model
        self.permits: list[tuple[str, Launch, bool]] = []
        self.budget: list[tuple[str, float, str | None, bool]] = []  # model, ratio, role of an extra launch, granted
        self._steering = steering

    def plan(self, model: str, deployments: Sequence[str], race: RaceSettings, *rest: Any, **options: Any) -> Plan:
        if model == self._defective:
            raise RuntimeError("a defect")
        plan: Plan = self._steering.plan(model, deployments, race, *rest, **options)
        if not _ASKING.get():  # the tasks that a call starts inherit it
            _ASKING.set(_task_name())
        self.plans.setdefault(_ASKING.get(), []).append((model, plan))
        self.budget.append((model, race.budget, None, True))
        return plan

    def draw_extra(self, model: str, launch: Launch, race: RaceSettings, **options: Any) -> Narrowed | None:
        drawn = self._steering.draw_extra
        limit: Narrowed | None = Narrowed.BUDGET if self._refuses else drawn(model, launch, race, **options)
        self.permits.append((model, launch, limit is None))
        self.budget.append((model, race.budget, launch.role, limit is None))
        return limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steering, name)


class Evidence:
    """What a run left."""

    def __init__(self, scenario: Scenario, loop: ShuffledLoop) -> None:
        self.scenario = scenario
        texts: dict[str, list[str]] = {}
        self.providers = {name: Simulated(name, scenario.behaviours.get(name, ()), loop, texts) for name in PROVIDERS}
        self.upstreams: list[SimulatedUpstream] = []
        self.clients = [SimulatedClient(number, plan, loop) for number, plan in enumerate(scenario.clients)]
        self.moments = loop.moments
        self.store = MemoryStore(remembered(scenario))
        self.look: Look | None = None  # how somebody watches
        self.spectators: list[Spectator] = []
        self.left: list[str] = []  # tasks, timers, files, objects that outlived the gateway
        self.crashes: list[str] = []
        self.gateway: Gateway
        self.witness: Witness
        self.steering: WitnessedSteering
        self.seats: dict[str, tuple[int, int]] = {}  # taken and waiting at the end, by deployment
        self.calls = (0, 0)  # in flight and waiting at the end
        self.board: dict[str, dict[str, dict[str, float]]] = {}  # what is published, by model and deployment
        self.budget_left: dict[str, float] = {}
        self.busy: list[str] = []  # what was still in use when all calls had ended, before the gateway was closed
        self.state = ""  # of the first provider's deployment, as the leaderboard has it at the end
        self.warnings: list[str] = []  # events of the log
        self.metrics = ""  # the page, at the end
        self.limits: list[dict[str, int]] = []  # max_in_flight of each configuration there was


def run(
    scenario: Scenario,
    *,
    collect: bool = False,
    look: Look | None = None,
    defective: str | None = None,
    refuses: bool = False,
    reloads_last: bool = False,
) -> Evidence:
    """Run a scenario to its end; ``look``: somebody watches its calls.

    ``collect`` also looks, by a full collection, for what only that would free. ``defective``: a model for which no
    plan can be made, by a bug; ``refuses``: no launch beside another is permitted; ``reloads_last``: it is given
    another configuration in the instant in which it is closed.
    """
    dice = Random(scenario.seed ^ 0x5EED)
    loop = ShuffledLoop(dice, scenario.shuffle)
    asyncio.set_event_loop(loop)
    evidence = Evidence(scenario, loop)
    evidence.look = look
    files = open_files()
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        watched() as alive,
        structlog.testing.capture_logs([_with_error]) as logs,
    ):
        loop.set_exception_handler(lambda _, context: evidence.crashes.append(described(context)))
        try:
            steering = partial(WitnessedSteering, defective=defective, refuses=refuses)
            life = _life(scenario, evidence, Path(folder), loop, dice, witnessed=steering, reloads_last=reloads_last)
            loop.run_until_complete(life)
        finally:
            tasks = asyncio.all_tasks(loop)
            evidence.left += [f"task {task.get_name()} {task.get_coro()}" for task in tasks]
            evidence.left += [f"timer {timer}" for timer in loop.pending_timers]
            for task in tasks:
                task.cancel()
            try:
                if tasks:
                    loop.run_until_complete(asyncio.wait(tasks, timeout=5))
            finally:  # also of a run without an end
                loop.close()
                asyncio.set_event_loop(None)
        if collect:
            gc.collect()
        evidence.left += [f"object {each!r}" for each in alive()]
        evidence.warnings = [entry["event"] for entry in logs if entry["log_level"] in {"warning", "error"}]
        evidence.crashes += [str(entry) for entry in logs if "exc_info" in entry or entry["event"] in CRASHES]
    if len(after := open_files()) > len(files):
        evidence.left.append(f"files {sorted(set(after) - set(files))}")
    return evidence


def _with_error(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep what was raised where an entry only says that something was."""
    if entry.get("exc_info") is True:
        entry["exc_info"] = sys.exc_info()[1]
    return entry


def virtual_runtime(
    loop: ShuffledLoop, dice: Random, open_upstream: Callable[..., Upstream], store: "Store", **more: Any
) -> Runtime:
    """Return what a gateway gets from outside, on the loop's clock, which stands at ``UNIX_S`` now."""
    began_s = loop.time()
    return Runtime(
        clock=loop.time,
        unix_clock=lambda: UNIX_S + loop.time() - began_s,
        utc_now=lambda: datetime.fromtimestamp(UNIX_S + loop.time() - began_s, UTC),
        random=dice,
        new_id=lambda: uuid7(int((UNIX_S + loop.time() - began_s) * 1000), dice.getrandbits(74)),
        open_upstream=open_upstream,
        store=store,
        **more,
    )


async def _life(
    scenario: Scenario,
    evidence: Evidence,
    folder: Path,
    loop: ShuffledLoop,
    dice: Random,
    *,
    witnessed: Callable[[Any], WitnessedSteering],
    reloads_last: bool,
) -> None:
    def open_upstream(
        name: str, settings: ProviderSettings, vendor: Vendor | None, secrets: tuple[str, ...] = ()
    ) -> SimulatedUpstream:
        upstream = evidence.providers[name].open()
        evidence.upstreams.append(upstream)
        return upstream

    runtime = virtual_runtime(loop, dice, open_upstream, evidence.store)
    settings = configured(scenario, folder, 0)
    evidence.limits.append(_limits(settings))
    gateway = evidence.gateway = Gateway(settings, runtime)
    context = gateway.context
    witness = evidence.witness = Witness(context.services.recorder, loop, runtime.new_id)
    context.services = structs.replace(context.services, recorder=witness, new_id=witness.new_id)
    evidence.steering = witnessed(context.steering)
    context.steering = cast("Any", evidence.steering)
    await gateway.start()
    for name, tps in scenario.usual_tps.items():
        for _ in range(FEWEST):
            context.services.paces.add(f"{name}/{MODEL}", tps)
    for name, streams in scenario.known_streams.items():
        context.services.pauses[f"{name}/{MODEL}"].streams += streams
    looking: list[asyncio.Task[None]] = []
    if evidence.look is not None:
        spectator = Spectator(gateway.live, evidence.look)
        evidence.spectators.append(spectator)
        looking.append(asyncio.create_task(spectator.run()))
    try:
        async with serving(gateway, scenario.grace_s) as connections:
            rest = await _play(scenario, evidence, folder, connections)
        await asyncio.gather(*rest, *looking)
    finally:
        if reloads_last:
            gateway.reload(configured(scenario, folder, 1))
        await gateway.close()
    evidence.metrics = (await gateway.metrics.render())[0].decode()
    evidence.calls = (context.intake.in_flight, context.intake.waiting)
    for name, line in context.services.seats.lines.items():
        evidence.seats[name] = (line.taken, len(line.waiting))
    for model in (MODEL, OTHER_MODEL, SPARE_MODEL):
        evidence.budget_left[model] = gateway.steering.extra_attempts_left(model)
        evidence.board[model] = {
            row.deployment: {
                name: getattr(row, name) for name in ("n", "n_first_token", "n_censored", "n_rate_limited")
            }
            for row in gateway.steering.leaderboard(model).deployments
        }
    rows = gateway.steering.leaderboard(MODEL).deployments
    evidence.state = next((row.state or "" for row in rows if row.deployment.startswith(PROVIDERS[0])), "")


async def _play(
    scenario: Scenario, evidence: Evidence, folder: Path, connections: Connections
) -> Sequence[asyncio.Task[None]]:
    """Have everything happen; return what is still under way when the gateway is stopped before the end."""
    gateway = evidence.gateway

    async def reload(number: int, at_s: float) -> None:
        await asyncio.sleep(at_s)
        settings = configured(scenario, folder, number)
        evidence.limits.append(_limits(settings))
        gateway.reload(settings)

    accepting = True

    def connect(client: SimulatedClient, host: str) -> None:
        if accepting:
            connections.take(cast("Any", client), host)
        else:
            client.close()

    reloads = [asyncio.create_task(reload(number, at_s)) for number, at_s in enumerate(scenario.reloads, start=1)]
    clients = [asyncio.create_task(client.run(connect)) for client in evidence.clients]
    if scenario.shutdown_s is not None:
        await asyncio.sleep(scenario.shutdown_s)
        accepting = False
        for each in reloads:
            each.cancel()
        await asyncio.wait(reloads) if reloads else None
        return clients
    await asyncio.gather(*reloads, *clients)
    await asyncio.sleep(IDLE_S)
    await gateway.ledger.flush()
    services, fleet, intake = gateway.context.services, gateway.context.fleet, gateway.context.intake
    if intake.in_flight or intake.waiting:
        evidence.busy.append(f"{intake.in_flight} calls are in flight, {intake.waiting} wait")
    for model in fleet.models.values():
        for name in model.deployments:
            if number := services.tasks.in_flight(name):
                evidence.busy.append(f"{number} attempts at {name} are counted in flight")
    evidence.busy += [f"{name}: a seat is taken" for name, line in services.seats.lines.items() if line.taken]
    try:
        await asyncio.wait_for(fleet.idle(), 0.001)
    except TimeoutError:
        evidence.busy.append("the configuration is still leased")
    evidence.busy += [
        f"an upstream of {each.provider.name}, which was replaced, is open"
        for each in evidence.upstreams
        if not each.closed and each not in fleet.upstreams.values()
    ]
    return ()


def configured(scenario: Scenario, folder: Path, version: int) -> Settings:
    """Return the configuration of a scenario; each further ``version`` differs from the one before."""
    providers = [name for name in PROVIDERS if version % 2 == 0 or name != PROVIDERS[version % len(PROVIDERS)]]
    price = {"input": 1.0, "output": 2.0}

    def deployments(names: Sequence[str], model: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for name in names:
            each: dict[str, Any] = {"deployment": f"{name}/{model}", "price_per_mtok": price}
            if scenario.takeover is not None:
                each["continues"] = scenario.continues
            if name in scenario.max_in_flight and model in {MODEL, LONE_MODEL}:
                each["max_in_flight"] = scenario.max_in_flight[name] + version % 2
            found.append(each)
        return found

    data: dict[str, Any] = {
        "database_url": "sqlite:////nowhere/holeshot.db",
        "spool_dir": str(folder / "spool"),
        "replica": "simulated",
        "log_level": "error",
        "queue_timeout_s": scenario.queue_timeout_s,
        "overload": {
            "max_in_flight": scenario.most_calls,
            "queue": scenario.queue,
            "queue_timeout_s": scenario.queue_wait_s,
        },
        "client_timeouts": {"write_timeout_s": 5.0},
        "clients": {"known": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest(), **scenario.limits}}
        if scenario.has_clients
        else {},
        "timeouts": {
            "ttft_timeout_s": scenario.ttft_s,
            "stall_timeout_s": scenario.stall_s,
            "total_timeout_s": scenario.total_s,
        },
        "providers": {
            name: {
                "base_url": f"http://{name}.test/v1",
                "api_key": f"key-of-{name}-{version if name == providers[0] else 0}",
                "apis": ["chat", "completions", "embeddings", "audio"]
                if name == "dot"
                else ["chat", "embeddings", "audio"],
            }
            for name in providers
        },
        "models": {
            MODEL: {
                "deployments": deployments(providers, MODEL),
                "race": scenario.race | {"width": min(scenario.race.get("width", 2), len(providers))},
                **({"keepalive_s": scenario.keepalive_s} if scenario.keepalive_s else {}),
                **({"takeover": scenario.takeover} if scenario.takeover else {}),
            },
            OTHER_MODEL: {"deployments": deployments(providers[:2], OTHER_MODEL), "fallbacks": [SPARE_MODEL]},
            LONE_MODEL: {"deployments": deployments(providers[:1], LONE_MODEL), "fallbacks": [SPARE_MODEL]},
            SPARE_MODEL: {"deployments": deployments(providers[2:], SPARE_MODEL), "race": {"mode": "single"}},
            VECTORS: {"deployments": deployments(providers, VECTORS)},
            VOICE: {"deployments": deployments(providers[:2], VOICE)},
            SPARE_VOICE: {"deployments": deployments(providers[2:], SPARE_VOICE)},
            SPARE_VECTORS: {"deployments": deployments(providers[2:], VECTORS)},
            **scenario.models,
        },
    }
    for name, settings in scenario.settings.items():
        model = data["models"][name]
        model |= settings
        if "width" in model.get("race", {}):
            model["race"] = {**model["race"], "width": min(model["race"]["width"], len(model["deployments"]))}
    return load(None, {}, data, catalog=catalog())


def _limits(settings: Settings) -> dict[str, int]:
    limits: dict[str, int] = {}
    for model in settings.models.values():
        for each in model.deployments:
            if each.max_in_flight is not None:
                limits[each.name] = each.max_in_flight
    return limits


def remembered(scenario: Scenario) -> list[HourlySum]:
    """Return what SQL knows of the hours before."""
    sums = []
    for provider, (ttft_s, tps) in scenario.remembered.items():
        for model in (MODEL, OTHER_MODEL):
            measured = {"ttft": bucket(ttft_s), "tps": bucket(tps / FIRST_TPS * FIRST_EDGE_S), "n": 0}
            sums += [
                HourlySum(model, f"{provider}/{model}", 0, UNIX_S - 5400, metric, number, 200.0)
                for metric, number in measured.items()
            ]
    return sums


_ASKING = ContextVar("_ASKING", default="")  # the task that serves the connection


def _task_name() -> str:
    task = asyncio.current_task()
    return "" if task is None else task.get_name()


@cache
def catalog() -> Mapping[str, Vendor]:
    """Return the vendors, read once."""
    return load_catalog()


@contextmanager
def watched() -> Iterator[Any]:
    """Note each race and attempt that is made; yield what says which of them are still there."""
    references: list[weakref.ref[Any]] = []
    originals: dict[type, Any] = {}
    for each in WATCHED:
        original = originals[each] = vars(each)["__init__"]

        def noted(self: Any, *args: Any, _original: Any = original, **options: Any) -> None:
            references.append(weakref.ref(self))
            _original(self, *args, **options)

        type.__setattr__(each, "__init__", noted)  # for as long as the scenario runs
    try:
        yield lambda: [found for reference in references if (found := reference()) is not None]
    finally:
        for each, original in originals.items():
            type.__setattr__(each, "__init__", original)


def open_files() -> list[str]:
    """Return the open descriptors of this process."""
    return [path.name for path in DESCRIPTORS.iterdir()] if DESCRIPTORS.exists() else []


def described(context: Mapping[str, Any]) -> str:
    """Return what a loop's exception handler is told."""
    return f"{context.get('message')}: {context.get('exception')!r}"


DESCRIPTORS = Path("/proc/self/fd")
FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
CRASHES = frozenset({"request.crashed", "ledger.task_failed", "audit.crashed", "steering.not_refreshed"})
