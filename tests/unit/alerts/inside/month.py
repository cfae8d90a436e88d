"""A month of calls, costs and faults, gateways' alerts that watch it in virtual time, and what became of incidents."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, count
from math import cos, pi
from random import Random

import msgspec

from gateway.alerts import (
    MESSAGES_AT_ONCE,
    Alert,
    AlertEvent,
    AlertMessage,
    BookAway,
    BurnSource,
    CachedSource,
    Delivery,
    LedgerSource,
    MemoryBook,
    OpenSlowdown,
    OutageSource,
    SendResult,
    SlowdownSource,
    Source,
    SpendingSource,
    Thresholds,
    Watch,
)
from gateway.alerts import DeliveryResult as Delivered
from gateway.alerts.alerts import LOOK_S
from gateway.core.race_failures import SkippedDeployment
from gateway.core.reports import ReportsUnreachable
from gateway.core.targets import Burn
from gateway.settings import AlertSettings, Format, WebhookSettings
from tests.unit.alerts.incidents import DAY_S, HOUR_S, Incident

START = datetime(2030, 1, 1, tzinfo=UTC)
REPLICAS = 2
MODELS: Mapping[str, Sequence[str]] = {"chat": ("a/chat", "b/chat"), "voice": ("c/voice",)}
USUAL_USD_PER_HOUR: Mapping[str, float] = {"app": 3.0, "team": 10.0}
LIMITS: Mapping[str | None, Mapping[str, float]] = {"app": {"usd_per_day": 200.0}, "team": {"rpm": 100.0}}
SETTINGS = AlertSettings(usd_per_day=800.0)
AFTER_S = 7200.0  # an alert may still come so long after its incident: the windows of targets are long


class Target(msgspec.Struct, frozen=True):
    """How many calls there are, and how many of them may be bad."""

    calls_per_minute: float  # by day; a third of it at night
    allowed: float
    usually_bad: float


TARGETS: Mapping[str, Target] = {"chat": Target(300.0, 0.005, 0.001), "voice": Target(4.0, 0.01, 0.002)}


class Month:
    """What happens in the month: everything is drawn at the start."""

    def __init__(self, random: Random, incidents: Sequence[Incident], days: float) -> None:
        self.incidents = incidents
        minutes = int(days * 1440)
        self._calls: dict[str, list[int]] = {}
        self._bad: dict[str, list[int]] = {}
        for name, target in TARGETS.items():
            calls, bad = [0], [0]
            for minute in range(minutes):
                daily = (2 - cos(2 * pi * minute / 1440)) / 3
                n = poisson(random, target.calls_per_minute * daily)
                share = max([target.usually_bad, *(each.bad.get(name, 0.0) for each in self._now(minute * 60.0))])
                calls.append(n)
                bad.append(min(n, poisson(random, n * share)))
            self._calls[name], self._bad[name] = list(accumulate(calls)), list(accumulate(bad))

    def burns(self, windows_s: Sequence[int], now_s: float) -> list[Burn]:
        """Return the burn of each target in each window, to the minute."""
        found = []
        now = int(now_s // 60)
        for name, target in TARGETS.items():
            for window_s in windows_s:
                since = max(0, now - window_s // 60)
                calls = self._calls[name][now] - self._calls[name][since]
                bad = self._bad[name][now] - self._bad[name][since]
                rate = bad / calls / target.allowed if calls else None
                found.append(Burn(name, window_s, calls, bad, rate, "select 1"))
        return found

    def spent(self, now_s: float) -> dict[str | None, tuple[float, float]]:
        """Return what clients have spent in this day and month, US dollars."""
        found: dict[str | None, tuple[float, float]] = {}
        midnight_s = now_s // DAY_S * DAY_S
        for client, usual in USUAL_USD_PER_HOUR.items():
            day, month = ((now_s - since_s) / HOUR_S * usual for since_s in (midnight_s, 0.0))
            for each in self.incidents:
                more = each.spends.get(client, 0.0) / HOUR_S
                until_s = min(now_s, each.end_s)
                day += more * max(0.0, until_s - max(midnight_s, each.start_s))
                month += more * max(0.0, until_s - each.start_s)
            found[client] = day, month
        return found

    def not_asked(self, deployments: Collection[str], now_s: float) -> list[SkippedDeployment]:
        """Return which deployments are broken."""
        return [
            SkippedDeployment(name, "open", for_good=False)
            for name in deployments
            if any(each.breaks(name, now_s) for each in self.incidents)
        ]

    def database(self, now_s: float) -> tuple[str | None, float]:
        """Return whether the database is slow or away, and for how long."""
        for each in self._now(now_s):
            if each.database is not None:
                return each.database, now_s - each.start_s
        return None, 0.0

    def has(self, fact: str, now_s: float) -> list[object]:
        """Return the values of a fact of the incidents that last."""
        return [value for each in self._now(now_s) if (value := getattr(each, fact)) not in {None, False}]

    def _now(self, now_s: float) -> list[Incident]:
        return [each for each in self.incidents if each.lasts(now_s)]


class Simulation:
    """Replicas that share a book, and a receiver; ``delivered`` has each message with the second it arrived."""

    def __init__(self, month: Month, seed: int) -> None:
        self.month = month
        self.now_s = 0.0
        self.delivered: list[tuple[float, AlertMessage]] = []
        self.attempts = 0
        self._random = Random(seed)
        self._ids = count(1)
        self._book = _SharedBook(self)
        self._webhooks = {"ops": WebhookSettings.model_validate({"url": "https://ops.example.com", "format": "slack"})}
        assert self._webhooks["ops"].format is Format.SLACK
        self._replicas: list[tuple[Watch, Delivery]] = []
        self.restart()

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return START + timedelta(seconds=self.now_s)

    def new_id(self) -> str:
        """Return an id."""
        return str(next(self._ids))

    def restart(self) -> None:
        """Start all replicas, without what they knew."""
        self._replicas = [self._replica(number) for number in range(REPLICAS)]

    async def step(self, seconds: float) -> None:
        """Let every replica look and deliver once."""
        self.now_s += seconds
        for watch, delivery in self._replicas:
            await watch.look()
            await delivery.deliver()

    async def send(
        self, webhook: WebhookSettings, message: AlertMessage, also: Sequence[AlertMessage] = ()
    ) -> SendResult:
        """Be the receiver."""
        self.attempts += 1
        if self.month.has("receiver_dead", self.now_s):
            return SendResult(Delivered(ok=False, answer="503"))
        self.delivered.append((self.now_s, message))
        return SendResult(Delivered(ok=True, answer="200"))

    def alert_opened(self, kind: str) -> None:
        """Nobody counts."""

    def alert_resolved(self, kind: str) -> None:
        """Nobody counts."""

    def alert_message(self, webhook: str, result: str) -> None:
        """Nobody counts."""

    def _replica(self, number: int) -> tuple[Watch, Delivery]:
        own = MemoryBook(self.new_id)
        watch = Watch(
            self._sources(number),
            book=self._book,
            own=own,
            webhooks=lambda _: self._webhooks,
            resolve_after_s=lambda: SETTINGS.resolve_after_s,
            clock=lambda: self.now_s,
            utc_now=lambda: self.now,
            new_id=self.new_id,
            replica=f"replica-{number}",
            listener=self,
        )
        delivery = Delivery(
            [self._book, own],
            self,
            webhooks=lambda: self._webhooks,
            utc_now=lambda: self.now,
            random=self._random,
            listener=self,
        )
        return watch, delivery

    def _sources(self, number: int) -> list[Source]:
        """Return the sources as gateway/app/background.py has them."""

        async def burns(windows_s: Sequence[int]) -> list[Burn]:
            self._check_database()
            return self.month.burns(windows_s, self.now_s)

        async def spent() -> dict[str | None, tuple[float, float]]:
            self._check_database()
            return self.month.spent(self.now_s)

        async def slowdowns() -> list[OpenSlowdown]:
            self._check_database()
            return [
                OpenSlowdown(
                    deployment=str(name), model="chat", metric="ttft", began_at=self.now, ratio=1.6, low=1.4, high=1.8,
                    n=500, evidence_sql="select 1",
                )
                for name in self.month.has("slower", self.now_s)
            ]  # fmt: skip

        def clock() -> float:
            return self.now_s

        return [
            OutageSource(
                lambda: {model: dict.fromkeys(names, 120.0) for model, names in MODELS.items()},
                lambda deployments: self.month.not_asked(deployments, self.now_s),
                lambda *_: (),
                model_out_s=lambda: SETTINGS.model_out_s,
                deployment_out_s=lambda: SETTINGS.deployment_out_s,
                utc_now=lambda: self.now,
            ),
            LedgerSource(
                _Ledger(self, number),
                replica=f"replica-{number}",
                behind_s=lambda: SETTINGS.ledger_behind_s,
                utc_now=lambda: self.now,
            ),
            CachedSource(
                SpendingSource(
                    spent,
                    limits=lambda: LIMITS,
                    thresholds=lambda: Thresholds(
                        SETTINGS.spending_share, SETTINGS.usd_per_day, SETTINGS.usd_per_month
                    ),
                    utc_now=lambda: self.now,
                ),
                every_s=60.0,
                clock=clock,
            ),
            CachedSource(SlowdownSource(slowdowns), every_s=60.0, clock=clock),
            CachedSource(BurnSource(burns, least_bad=lambda: SETTINGS.burn_least_bad), every_s=30.0, clock=clock),
        ]

    def _check_database(self) -> None:
        if self.month.database(self.now_s)[0] == "away":
            raise ReportsUnreachable("the database is away")


class _SharedBook(MemoryBook):
    """The book in the database: away when that is away. A slow one is only late with rows."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.new_id)
        self._simulation = simulation

    async def current(self, since: datetime) -> list[Alert]:
        self._check()
        return await super().current(since)

    async def take_due(
        self, now: datetime, *, lease: timedelta, webhooks: Collection[str], most: int = MESSAGES_AT_ONCE
    ) -> list[AlertMessage]:
        self._check()
        return await super().take_due(now, lease=lease, webhooks=webhooks, most=most)

    async def open(self, alert: Alert, webhooks: Collection[str]) -> bool:
        self._check()
        return await super().open(alert, webhooks)

    def _check(self) -> None:
        if self._simulation.month.database(self._simulation.now_s)[0] == "away":
            raise BookAway("the database is away")


class _Ledger:
    """What a replica's ledger says of itself."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self._simulation = simulation
        self._number = number
        self.lost = 0
        self.sums_stand_still_s: float | None = None
        self.sums_problem = ""

    @property
    def oldest_pending_s(self) -> float | None:
        state, since_s = self._simulation.month.database(self._simulation.now_s)
        return 1.0 if state is None else since_s

    @property
    def pending(self) -> int:
        return int((self.oldest_pending_s or 0.0) * 5)

    @property
    def connected(self) -> bool:
        return self._simulation.month.database(self._simulation.now_s)[0] != "away"

    @property
    def spool_problem(self) -> str | None:
        full = self._simulation.month.has("spool", self._simulation.now_s)
        return "unwritable" if self._number in full else None


def poisson(random: Random, mean: float) -> int:
    """Return a draw from a Poisson distribution; a normal one where that is as good."""
    if mean > 50:
        return max(0, round(random.gauss(mean, mean**0.5)))
    product, number, limit = random.random(), 0, 2.718281828459045**-mean
    while product > limit:
        product *= random.random()
        number += 1
    return number


class Finding(msgspec.Struct, frozen=True):
    """An injected incident and an alert that was expected of it ("" if none was)."""

    incident: Incident
    expected: str
    fired_after_s: float | None
    resolved_after_s: float | None  # after the incident's end
    duplicates: int


class Findings(msgspec.Struct, frozen=True):
    """All of the month; ``false_alarms`` are the keys of messages that nothing explains."""

    findings: list[Finding]
    false_alarms: list[str]

    @property
    def missed(self) -> list[str]:
        """What should have fired and did not, or did not end."""
        return [
            f"{each.incident.name}: {each.expected}"
            for each in self.findings
            if each.expected and (each.fired_after_s is None or each.resolved_after_s is None)
        ]

    @property
    def duplicates(self) -> int:
        """Messages that said again what was said."""
        return sum(each.duplicates for each in self.findings)


def compare(incidents: Sequence[Incident], delivered: Sequence[tuple[float, AlertMessage]]) -> Findings:
    """Return what became of each incident."""
    opened = [(at_s, each) for at_s, each in delivered if each.event is AlertEvent.OPENED]
    resolved = [(at_s, each) for at_s, each in delivered if each.event is AlertEvent.RESOLVED]
    used: set[str] = set()
    findings = []
    for incident in incidents:
        for expected in incident.expected or ("",):
            mine = [
                (at_s, each) for at_s, each in opened if expected and _is_of(each, expected) and _is_in(each, incident)
            ]
            used.update(each.id for _, each in mine)
            ends = [at_s for at_s, each in resolved if any(each.alert.id == other.alert.id for _, other in mine)]
            findings.append(
                Finding(
                    incident,
                    expected,
                    mine[0][0] - incident.start_s if mine else None,
                    max(ends) - incident.end_s if ends else None,
                    max(0, len(mine) - 1),
                )
            )
    return Findings(findings, [each.alert.key for _, each in opened if each.id not in used])


def _is_of(message: AlertMessage, expected: str) -> bool:
    """Whether a message is about ``expected``; the keys of spending have their day at the end."""
    key = message.alert.key
    return key == expected or (expected.startswith("spending:") and key.startswith(f"{expected}/"))


def _is_in(message: AlertMessage, incident: Incident) -> bool:
    opened_s = (message.alert.opened_at - START).total_seconds()
    return incident.start_s <= opened_s <= incident.end_s + AFTER_S


async def simulate(happening: list[Incident], *, seed: int, days: float) -> Findings:
    """Return what became of the incidents."""
    month = Month(Random(seed), happening, days)
    simulation = Simulation(month, seed)
    restarts = sorted(each.start_s + after_s for each in happening for after_s in each.restarts)
    while simulation.now_s + LOOK_S <= days * 86_400:
        if restarts and simulation.now_s >= restarts[0]:
            restarts.pop(0)
            simulation.restart()
        await simulation.step(LOOK_S)
    return compare(happening, simulation.delivered)
