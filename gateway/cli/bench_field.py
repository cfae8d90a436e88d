"""The deployments that a bench compares: from the configuration, or from a running gateway."""

import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.api import ParsedRequest
from gateway.app import Fleets
from gateway.bench import (
    ALL,
    AT_ONCE,
    CLASSES,
    FEWEST_ROUNDS,
    FIXED,
    NOTICED,
    WARM_UP,
    BenchPace,
    BenchPlan,
    BenchPurse,
    BenchSample,
    BenchTurn,
    Cell,
    CheckOutcome,
    Contender,
    GateResult,
    Goal,
    GoalError,
    JournalContent,
    Key,
    Measured,
    Moments,
    OwnPrompts,
    Report,
    RequestCost,
    TokenLengths,
    Way,
    cost_of,
    expected_answer,
    kind_of,
    measure,
    measured,
    read_goal,
    request_for,
    shown,
    unfit_for,
)
from gateway.cli.configuration import read_settings, root_of
from gateway.cli.remote import GatewayError, get
from gateway.cli.terminal import FAILED, MISUSED, fail, prose, say, write_table
from gateway.core.errors import ApiError
from gateway.core.tasks import BackgroundTasks
from gateway.core.terminal_text import counted, visible
from gateway.fleet import Clocks, Deployment
from gateway.settings import ConfigurationError, Settings
from providers import Credentials, LiteLLM, Price, Setup, open_upstream

MOMENTS = Moments(time.monotonic, time.time)
_CLOCKS = Clocks(connect_s=5.0, ttft_s=300.0, stall_s=300.0, total_s=None)  # longer than a gateway's own time-outs


class FieldOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    config: Path | None
    model: str | None
    deployments: tuple[str, ...]
    url: str | None
    key: str | None
    kinds: tuple[str, ...]
    rounds: int
    concurrencies: tuple[int, ...]
    warm_up: int
    answer_tokens: int
    prompt_tokens: int
    goal: Goal | None
    seed: int
    ways: tuple[Way, ...] = ()  # the ways of one model; empty: deployments are compared
    most_tokens: int | None = None  # the longest answer
    pace: BenchPace = AT_ONCE
    prompts: OwnPrompts | None = None
    voice: bool = False  # the answers are spoken to a listener


class BenchField(Protocol):
    """What a bench compares."""

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        """The deployments that are asked, by name. They are open until the bench ends."""

    def plan(self, wanted: FieldOptions) -> BenchPlan:
        """Return the plan of a new bench."""

    def costs(self, plan: BenchPlan) -> dict[tuple[str, str], RequestCost]:
        """Return the cost of a request, by contender and class of prompts."""

    async def ask(
        self, request: ParsedRequest, contender: Contender, key: Key, *, sitting: int, in_flight: int
    ) -> Measured:
        """Send a request and measure it."""


class Field(msgspec.Struct, frozen=True):
    """The deployments to measure, by name, each with its model. They are open until the bench ends."""

    deployments: Mapping[str, Deployment]
    models: Mapping[str, str]
    is_demo: bool = False

    def plan(self, wanted: FieldOptions) -> BenchPlan:
        """Return the plan of a new bench."""
        plan = BenchPlan(
            seed=wanted.seed,
            contenders=tuple(self._contender(name) for name in self.deployments),
            kinds=wanted.kinds,
            concurrencies=wanted.concurrencies,
            rounds=wanted.rounds,
            warm_up=wanted.warm_up,
            lengths=TokenLengths(wanted.prompt_tokens, wanted.answer_tokens),
            goal=wanted.goal,
            url=None if wanted.url is None else shown_url(wanted.url),
            is_demo=self.is_demo,
            voice=wanted.voice,
        )
        fitted = tuple(msgspec.structs.replace(each, leaves_out=self._left_out(plan, each)) for each in plan.contenders)
        return msgspec.structs.replace(plan, contenders=fitted)

    def costs(self, plan: BenchPlan) -> dict[tuple[str, str], RequestCost]:
        """Return the cost of a request, by deployment and class."""
        costs = {}
        for contender in plan.contenders:
            price = self.deployments[contender.name].price
            for kind in plan.kinds_of(contender):
                request = request_for(plan, contender, _key(contender.name, kind), 0)
                answer = expected_answer(kind, plan.lengths)
                costs[contender.name, kind] = cost_of(price, request.needs.prompt_tokens, answer.about, answer.at_most)
        return costs

    async def ask(
        self, request: ParsedRequest, contender: Contender, key: Key, *, sitting: int, in_flight: int
    ) -> Measured:
        """Send a request to the deployment and measure it."""
        deployment = self.deployments[contender.name]
        return await measure(request, deployment, key, sitting=sitting, in_flight=in_flight, moments=MOMENTS)

    def _contender(self, name: str) -> Contender:
        deployment = self.deployments[name]
        price = deployment.price
        return Contender(
            name=name,
            model=self.models[name],
            input_usd=None if price is None else round(price.input_usd * 1e6, 6),
            output_usd=None if price is None else round(price.output_usd * 1e6, 6),
            region=deployment.region,
            hardware=deployment.hardware,
            quantization=deployment.quantization,
        )

    def _left_out(self, plan: BenchPlan, contender: Contender) -> dict[str, str]:
        reasons = {}
        for kind in plan.kinds:
            request = request_for(plan, contender, _key(contender.name, kind), 0)
            reason = unfit_for(request, self.deployments[contender.name])
            if reason is not None:
                reasons[kind] = reason
        return reasons


def _key(deployment: str, kind: str) -> Key:
    return Key(0, 1, deployment, kind, 0)


@asynccontextmanager
async def open_field(wanted: FieldOptions, past: BenchPlan | None) -> AsyncIterator[Field]:
    """Open the deployments that ``wanted`` names, or those of the plan ``past``, and close them at the end."""
    url = wanted.url if past is None else past.url
    async with AsyncExitStack() as stack:
        if url is not None:
            field = _through_gateway(url, wanted, past, stack)
        else:
            field = await _from_configuration(wanted, past, stack)
        if not field.deployments:
            fail("no deployment is left to measure", MISUSED)
        if past is not None:
            missing = [each.name for each in past.contenders if each.name not in field.deployments]
            if missing:
                fail(f"the journal's {', '.join(missing)} cannot be measured any more: it is not configured", MISUSED)
        yield field


async def _from_configuration(wanted: FieldOptions, past: BenchPlan | None, stack: AsyncExitStack) -> Field:
    settings, _ = read_settings(wanted.config)
    settings, is_demo = await with_providers(settings, wanted.seed if past is None else past.seed, stack)
    tasks = BackgroundTasks()
    fleets = Fleets(None, tasks)
    try:
        fleet = fleets.build(settings, None)
    except ConfigurationError as error:
        fail(str(error))
    stack.push_async_callback(fleets.aclose)
    stack.push_async_callback(fleet.aclose)
    stack.push_async_callback(tasks.close)
    names = list(dict.fromkeys(each.model for each in past.contenders)) if past is not None else [wanted.model]
    deployments: dict[str, Deployment] = {}
    models: dict[str, str] = {}
    for requested in names:
        name = requested or next(iter(fleet.models), None)
        if name is None:
            fail("no model is configured; name deployments: holeshot bench provider/model,provider/model", MISUSED)
        try:
            model = fleet.find(name, adhoc=True)
        except ApiError as error:
            fail(str(error), MISUSED)
        for each in model.deployments.values():
            deployments.setdefault(each.name, each)
            models.setdefault(each.name, name)
    fleets.warm_up(fleet)
    chosen = _chosen(list(deployments), wanted, past)
    return Field({name: deployments[name] for name in chosen}, models, is_demo)


async def with_providers(settings: Settings, seed: int, stack: AsyncExitStack) -> tuple[Settings, bool]:
    """Return the settings, with simulated providers if there are none."""
    if settings.providers:
        return settings, False
    from gateway.server import DemoFailedError, simulated_fleet, with_demo  # noqa: PLC0415 - only for users without a key

    say("no provider keys were found: measuring simulated providers", err=True)
    try:
        return with_demo(settings, await stack.enter_async_context(simulated_fleet(seed))), True
    except DemoFailedError as error:
        fail(str(error))


def _through_gateway(url: str, wanted: FieldOptions, past: BenchPlan | None, stack: AsyncExitStack) -> Field:
    base = root_of(url)
    try:
        listed = _models(base, wanted.key)
        wanted_models = (
            list(dict.fromkeys(each.model for each in past.contenders)) if past is not None else [wanted.model]
        )
        upstream = open_upstream(
            Setup(name="gateway", base_url=f"{base}/v1"),
            Credentials(keys=[wanted.key] if wanted.key else []),
            litellm=LiteLLM(),
        )
        stack.push_async_callback(upstream.aclose)
        deployments: dict[str, Deployment] = {}
        models: dict[str, str] = {}
        for requested in wanted_models:
            model = _find(listed, requested)
            for name in _chosen(list(model.deployments), wanted, past):
                price = _priced(base, wanted.key, name) or model.price
                models[name] = model.id
                deployments[name] = Deployment(
                    name=name,
                    provider="gateway",
                    model=model.id,
                    upstream=upstream,
                    clocks=_CLOCKS,
                    price=price,
                    bills_after_disconnect=None,
                    extra_body={
                        "provider": msgspec.Raw(msgspec.json.encode({"only": [name], "allow_fallbacks": False})),
                        "race": msgspec.Raw(b'{"mode":"single"}'),
                    },
                    upstream_stream=True,
                )
    except GatewayError as error:
        fail(str(error))
    return Field(deployments, models)


class _Pricing(msgspec.Struct):
    prompt: str
    completion: str
    input_cache_read: str | None = None
    input_cache_write: str | None = None
    internal_reasoning: str | None = None


class _Listed(msgspec.Struct):
    id: str
    deployments: list[str] = []
    pricing: _Pricing | None = None

    @property
    def price(self) -> Price | None:
        """The price of the model's most expensive deployment."""
        if self.pricing is None:
            return None
        pricing = self.pricing

        def usd(text: str | None) -> float | None:
            return None if text is None else float(text)

        return Price(
            input_usd=float(pricing.prompt),
            output_usd=float(pricing.completion),
            cached_input_usd=usd(pricing.input_cache_read),
            cache_write_usd=usd(pricing.input_cache_write),
            reasoning_usd=usd(pricing.internal_reasoning),
        )


class _List(msgspec.Struct):
    data: list[_Listed]


def _models(base: str, key: str | None) -> list[_Listed]:
    """Return the models of a gateway.

    Raises:
        GatewayError: nothing answers, or no Holeshot gateway.

    """
    try:
        return msgspec.json.decode(get(f"{base}/v1/models", key, is_clients=True), type=_List).data
    except msgspec.DecodeError:
        raise GatewayError(f"{shown_url(base)} is no Holeshot gateway") from None


def _priced(base: str, key: str | None, deployment: str) -> Price | None:
    """Return the price of one deployment; None if it is unknown, or this key may not name the deployment."""
    address = f"{base}/v1/models/{quote(deployment)}"
    try:
        return msgspec.json.decode(get(address, key, is_clients=True), type=_Listed).price
    except (GatewayError, msgspec.DecodeError, ValueError):
        return None


def _find(listed: list[_Listed], name: str | None) -> _Listed:
    known = [model.id for model in listed]
    if not known:
        fail("the gateway has no model that this key may use", MISUSED)
    found = next((model for model in listed if name in (None, model.id)), None)
    if found is None:
        fail(f"the gateway has no model {name!r}; it has {', '.join(known)}", MISUSED)
    return found


def _chosen(names: list[str], wanted: FieldOptions, past: BenchPlan | None) -> list[str]:
    """Return the deployments that are measured."""
    requested = wanted.deployments if past is None else tuple(each.name for each in past.contenders)
    unknown = [name for name in requested if name not in names]
    if unknown and past is None:
        fail(f"there is no deployment {unknown[0]!r} here; there are {', '.join(names)}", MISUSED)
    return [name for name in names if not requested or name in requested]


def shown_url(url: str) -> str:
    """Return ``url`` without user and password."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


# Parses the options of ``holeshot bench``; it exits with a message at invalid ones.

_MOST_AT_A_TIME = 256


def read_classes(text: str | None) -> tuple[str, ...]:
    """Return the classes of prompts in a comma list; all of them by default."""
    if text is None:
        return CLASSES
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        try:
            known = kind_of(name) in CLASSES
        except ValueError:
            known = False
        if not known:
            fail(
                f"there is no class of prompts {name!r}: choose of {', '.join(CLASSES)}, each also with {FIXED}",
                MISUSED,
            )
    return names


def read_levels(text: str | None) -> tuple[int, ...]:
    """Return the levels of concurrency in a comma list; 1 by default."""
    levels = [level.strip() for level in (text or "1").split(",")]
    if not all(level.isascii() and level.isdigit() and 1 <= int(level) <= _MOST_AT_A_TIME for level in levels):
        fail(
            f"--concurrency is a comma list of numbers from 1 to {_MOST_AT_A_TIME}, as in 1,4,16; not {text!r}", MISUSED
        )
    return tuple(dict.fromkeys(map(int, levels)))


def parse_goal(text: str | None) -> Goal | None:
    """Return the goal, if there is one."""
    try:
        return None if text is None else read_goal(text)
    except GoalError as error:
        fail(str(error), MISUSED)


# The progress of a bench, on standard error, if that is a terminal. Errors are printed in any case, each kind once.


@contextmanager
def shown_progress(plan: BenchPlan, done: Sequence[BenchSample]) -> Iterator["ProgressDisplay"]:
    """Show the progress until the block ends. ``done``: the samples of earlier starts."""
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[spent]}", markup=False),
        console=Console(stderr=True, markup=False, emoji=False),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with progress:
        task = progress.add_task("warming up", total=plan.requests, completed=len(measured(done)), spent="")
        yield ProgressDisplay(plan, progress, task)


class ProgressDisplay:
    """Shows the events of a running bench."""

    def __init__(self, plan: BenchPlan, progress: Progress, task: object) -> None:
        self._plan = plan
        self._progress = progress
        self._task = task
        self._printed: set[tuple[str, str]] = set()

    def turn(self, turn: BenchTurn) -> None:
        """Show which deployment is measured now."""
        round_ = turn.keys[0].round
        at = "warming up" if round_ == WARM_UP else f"round {round_ + 1} of {self._plan.rounds}"
        level = f" x {turn.concurrency}" if turn.concurrency > 1 else ""
        self._update(description=visible(f"{at}: {turn.contender.name}{level}"))

    def measured(self, measured: Measured, spent_usd: float) -> None:
        """Count a finished request; print the first error of each kind."""
        sample = measured.sample
        self._update(advance=0 if sample.key.round == WARM_UP else 1, spent=f"at most ${spent_usd:.4f}")
        place = sample.key.deployment, sample.error_kind or ""
        if sample.error_kind is not None and place not in self._printed:
            self._printed.add(place)
            self._print(f"note: {sample.key.deployment}: {sample.error_kind}: {measured.message}")

    def waits(self, deployment: str, seconds: float) -> None:
        """Show a wait for a rate limit."""
        self._update(description=visible(f"{deployment} is at its rate limit: waiting {seconds:.0f} s"))

    def _update(self, **changes: object) -> None:
        self._progress.update(self._task, **changes)  # type: ignore[arg-type] # rich's own ids and fields

    def _print(self, text: str) -> None:
        if self._progress.disable:
            say(text, err=True)
        else:
            self._progress.console.print(visible(text))


# The cost of a bench: printed before it starts, and confirmed by the user.


class AllowedSpending(NamedTuple):
    """The spending that the user allows."""

    cap_usd: float
    unpriced: bool
    yes: bool


def spent_at_most_usd(past: JournalContent) -> float:
    """Return the upper bound of what earlier starts have cost, in US dollars."""
    purse = BenchPurse(None, {})
    for sent in past.sent:
        purse.sent(sent.key, sent.sitting, sent.most_usd)
    for sample in past.samples:
        purse.done(sample)
    return purse.committed_usd


def unpriced_of(field: BenchField) -> list[str]:
    """Return the deployments whose price is unknown."""
    return [name for name, deployment in field.deployments.items() if deployment.price is None]


class _Estimate(NamedTuple):
    """US dollars: the expected and the maximum cost of a round, and the maximum cost of warming up."""

    about: float
    most: float
    warming: float


def confirm(
    plan: BenchPlan,
    field: BenchField,
    costs: Mapping[tuple[str, str], RequestCost],
    spending: AllowedSpending,
    past: JournalContent,
) -> None:
    """Print the expected cost, and ask for confirmation; exit without it."""
    unpriced = unpriced_of(field)
    if unpriced and not spending.unpriced:
        fail(
            f"the price of {', '.join(unpriced)} is unknown, so --max-usd cannot hold: set price_per_mtok for it"
            " (0 if it is yours), or add --unpriced",
            MISUSED,
        )
    _note_omissions(plan)
    round_ = _estimate(plan, costs)
    left_usd = spending.cap_usd - spent_at_most_usd(past)
    if not unpriced and round_.most + round_.warming > left_usd:
        what = f"--max-usd {spending.cap_usd:g} does not pay for one round"
        after = f" after the ${spent_at_most_usd(past):.4f} that are spent" if past.samples else ""
        fail(f"{what}{after}: it may cost ${round_.most + round_.warming:.4f}", MISUSED)
    requests = plan.requests - len(measured(past.samples))
    rounds = plan.rounds * requests / plan.requests
    what = f"{counted(requests, 'request')} to {counted(len(plan.contenders), 'deployment')}"
    if plan.raced:
        what = f"{counted(requests, 'call')} of {plan.contenders[0].model} in {len(plan.contenders)} ways"
    known = " of the deployments with a known price" if unpriced else ""
    cap = "no cap holds for the others" if unpriced else f"never more than ${spending.cap_usd:.2f}"
    most_usd = round_.most * rounds + round_.warming
    prose(f"{what}: about ${round_.about * rounds:.4f}{known}, at most ${most_usd:.4f}; {cap}", err=True)
    if not unpriced and round_.about * rounds > left_usd:
        lasts = counted(int(left_usd / round_.about), "round")
        say(f"note: the cap will probably end it after {lasts}", err=True)
    if spending.yes or plan.is_demo or (not most_usd and not unpriced):
        return
    if not sys.stdin.isatty():
        fail("this costs money: add --yes to agree", MISUSED)
    if not typer.confirm("Start?", err=True):
        raise typer.Exit(FAILED)


def _note_omissions(plan: BenchPlan) -> None:
    """Print which figures will be missing, and why."""
    for contender in plan.contenders:
        for kind, reason in contender.leaves_out.items():
            prose(f"note: {contender.name} is not asked {kind}: {reason}", err=True)
    if not plan.requests:
        fail("none of the deployments can be asked any of these classes of prompts", MISUSED)
    if plan.rounds < FEWEST_ROUNDS:
        say(f"note: intervals and verdicts need at least {FEWEST_ROUNDS} rounds", err=True)


def _estimate(plan: BenchPlan, costs: Mapping[tuple[str, str], RequestCost]) -> _Estimate:
    about = most = warming = 0.0
    for contender in plan.contenders:
        each = [costs[contender.name, kind] for kind in plan.kinds_of(contender)]
        rounds = len(each) if plan.raced else 1  # the rounds in which all classes are asked once
        about += sum(cost.about_usd for cost in each) * sum(plan.concurrencies) / rounds
        most += sum(cost.most_usd for cost in each) * sum(plan.concurrencies) / rounds
        warming += max((cost.most_usd for cost in each), default=0.0) * plan.warm_up
    return _Estimate(about, most, warming)


# The report of a bench on a terminal: verdicts, then tables.

_FIRST = ("ttft_p50_ms", "ttft_p95_ms", "decode_tps_p50", "e2e_tps_p50", "itl_p50_ms", "gap_p95_ms", "total_p50_ms")
_SECOND = ("errors", "goodput", "goodput_per_s", "as_asked", "tokens_mean", "tokens_per_s", "cost_per_1000_usd")

HEARD: Mapping[str, str] = {
    "sentence_p50_ms": "first clause, ms: p50",
    "sentence_p95_ms": "p95",
    "sentence_p99_ms": "p99",
    "silence_p95_ms": "longest silence, ms: p95",
    "cost_per_spoken_hour_usd": "$ per spoken hour",
}  # the figures of a spoken answer

_WORDS = {"ttft": "first tokens", "decode_tps": "decoding", "total": "whole answers", "cost": "cost"}
_BY_CLASS = ("ttft_p50_ms", "decode_tps_p50", "total_p50_ms", "errors")


def write_report(report: Report, journal: Path) -> None:
    """Print the report of the bench with this ``journal``."""
    plan, labels = report.plan, report.plan.labels
    if not report.requests:
        say("nothing was measured")
        return
    for level in plan.concurrencies:
        of_level = [cell for cell in report.cells if cell.concurrency == level and cell.kind == ALL]
        at = f", {level} at a time" if len(plan.concurrencies) > 1 or level > 1 else ""
        if plan.voice:
            rows = [[labels[cell.deployment], cell.requests, *_row(cell, list(HEARD))] for cell in of_level]
            write_table(("deployment", "requests", *HEARD.values()), rows, title=f"what a listener hears{at}")
        for names, title in ((_FIRST, f"all classes of prompts{at}"), (_SECOND, f"answers{at}")):
            known = [name for name in names if any(name in cell.figures for cell in of_level)]
            rows = [[labels[cell.deployment], cell.requests, *_row(cell, known)] for cell in of_level]
            write_table(("deployment", "requests", *known), rows, title=title)
    by_class = [cell for cell in report.cells if cell.kind != ALL]
    if by_class:
        known = [name for name in _BY_CLASS if any(name in cell.figures for cell in by_class)]
        rows = [[cell.kind, labels[cell.deployment], cell.concurrency, *_row(cell, known)] for cell in by_class]
        write_table(("class", "deployment", "at a time", *known), rows, title="by class of prompts")
    for verdict in report.verdicts:
        if verdict.is_shown:
            prose(verdict.words)
    silent = [verdict for verdict in report.verdicts if not verdict.is_shown]
    if silent:
        prose(
            f"no difference shown in {len(silent)} of {len(report.verdicts)} comparisons (--json and --html list them)"
        )
    _suggest_rounds(report, journal)
    if not report.is_whole:
        say(f"note: {report.requests} of {plan.requests} requests were sent")
    say(f"spent: {money(report)}")


def _suggest_rounds(report: Report, journal: Path) -> None:
    """Print how many rounds would probably show a difference, and how to run them."""
    needed: dict[str, int] = {}
    for verdict in report.verdicts:
        if not verdict.is_shown and verdict.rounds_needed is not None and verdict.rounds_needed > verdict.rounds:
            needed[verdict.aspect] = max(verdict.rounds_needed, needed.get(verdict.aspect, 0))
    if not needed:
        return
    words = ", ".join(f"{_WORDS[aspect]} {number}" for aspect, number in needed.items())
    prose(f"a difference of {100 * NOTICED:.0f} % is shown in four of five benches with about so many rounds: {words}")
    say(f"more rounds: holeshot bench --resume {journal} --rounds {min(needed.values())}")


def money(report: Report) -> str:
    """Return what a bench has cost, in words."""
    known = "unknown" if report.spent_usd is None else f"${report.spent_usd:.4f}"
    return (
        known
        if report.at_most_usd <= (report.spent_usd or 0.0) * 1.005
        else f"{known}, at most ${report.at_most_usd:.4f}"
    )


def _row(cell: Cell, names: list[str]) -> list[str]:
    return [shown(name, cell.figures.get(name)) for name in names]


_OUTCOMES = {CheckOutcome.HOLDS: "holds", CheckOutcome.BROKEN: "BROKEN", CheckOutcome.UNDECIDED: "too little data"}


def write_gate(gate: GateResult, *, err: bool = False) -> None:
    """Print each check, the broken ones last, and the gate's outcome; ``err``: on standard error."""
    order = (CheckOutcome.HOLDS, CheckOutcome.UNDECIDED, CheckOutcome.BROKEN)
    for check in sorted(gate.checks, key=lambda check: order.index(check.outcome)):
        at = f" ({check.concurrency} at a time)" if check.concurrency > 1 else ""
        prose(f"{_OUTCOMES[check.outcome]}: {check.deployment}{at}: {check.words}", err=err)
    for note in gate.notes:
        prose(f"note: {note}", err=err)
    if gate.checks:
        say(f"gate: {_OUTCOMES[gate.outcome]}", err=err)
