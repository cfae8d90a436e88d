"""The ways of one model that ``holeshot bench --ways`` compares: each is a model of a gateway in this process."""

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from gateway.api import ParsedRequest
from gateway.app import Gateway
from gateway.bench import (
    ALL,
    BenchPlan,
    BenchSample,
    Cell,
    Contender,
    Key,
    Measured,
    OwnPrompts,
    Report,
    RequestCost,
    TokenLengths,
    Way,
    cost_of,
    expected_answer,
    few_calls,
    read_way,
    request_for,
    saved_up,
    shown,
)
from gateway.cli.bench_field import HEARD, MOMENTS, FieldOptions, money, with_providers
from gateway.cli.configuration import read_settings
from gateway.cli.race_lanes import Lanes, PrintedLane
from gateway.cli.race_run import check_model, open_gateway, running_call
from gateway.cli.terminal import MISUSED, fail, prose, say, write_table
from gateway.core.errors import ApiError
from gateway.core.modes import Mode
from gateway.fleet import Deployment
from gateway.http import CHARS_PER_TOKEN
from gateway.ledger import LedgerError
from gateway.racing import SPOKEN_CHARS_S
from gateway.settings import (
    AlertSettings,
    ConfigurationError,
    ModelSettings,
    ProbeSettings,
    Profile,
    RaceSettings,
    Settings,
)

# A way has a name, estimates and a budget of its own, as if all calls of the model went that way: no way learns from
# the calls of another, or takes its budget. No other model has the name, so the calls are in the ledger, with their
# cost, but in no figure of the model itself, and a running gateway learns nothing from these calls. They have a tag,
# too.

_TAG = "holeshot bench"


def name_of(model: str, way: str) -> str:
    """Return a way's name as a model in the ledger: ``bench:chat:0.1``."""
    return f"bench:{model}:{way}"


def with_ways(settings: Settings, model: str, ways: Sequence[Way], *, voice: bool = False) -> Settings:
    """Return the settings with a model for each way, and without alerts and reports of its calls.

    ``voice``: the calls are spoken to a listener.
    """
    own = settings.models.get(model) or ModelSettings.model_validate({"deployments": model.split(",")})
    made = {name_of(model, way.name): own.model_copy(update=_changed(own, way, voice=voice)) for way in ways}
    quiet = {
        "alerts": AlertSettings(enabled=False),
        "slo": {},
        "probes": ProbeSettings(),
        "ledger": settings.ledger.model_copy(update={"slowdowns": False}),
    }
    return settings.model_copy(update={"models": {**settings.models, **made}, **quiet})


def _changed(own: ModelSettings, way: Way, *, voice: bool) -> dict[str, object]:
    race: dict[str, object] = {"mode": Mode.SINGLE, "budget": 0.0}
    if way.budget is not None:
        race = {"mode": Mode.AUTO, "budget": way.budget}
    if voice:  # alone as raced: an answer that breaks is finished, and the first clause is what counts
        said = {"mode": Mode.SINGLE} if way.budget is None else {}
        spoken = RaceSettings.model_validate({"profile": Profile.VOICE, "budget": way.budget or 0.0, **said})
        return {"race": spoken.model_copy(update={"audit_share": 0.0}), "fallbacks": ()}
    # No audits: audits cost, and the other ways show the same. No fallbacks: the figures are of one model alone.
    return {"race": own.race.model_copy(update={**race, "audit_share": 0.0}), "fallbacks": ()}


@asynccontextmanager
async def open_ways(wanted: FieldOptions, past: BenchPlan | None) -> AsyncIterator["WaysField"]:
    """Run a gateway with a model for each way that is ``wanted``, or those of the plan ``past``, until the end."""
    settings, _ = read_settings(wanted.config)
    ways = wanted.ways if past is None else tuple(read_way(each.name) for each in past.contenders)
    asked = wanted.model if past is None else past.contenders[0].model
    prompts = _read_again(past) if past is not None else () if wanted.prompts is None else _texts(wanted.prompts.path)
    async with AsyncExitStack() as stack:
        settings, is_demo = await with_providers(settings, wanted.seed if past is None else past.seed, stack)
        model = asked or next(iter(settings.models), None)
        if model is None:
            fail("no model is configured; name deployments: holeshot bench provider/model,provider/model", MISUSED)
        try:
            if model not in settings.models:
                await check_model(settings, model)
            settings = with_ways(settings, model, ways, voice=wanted.voice if past is None else past.voice)
        except ApiError as error:
            fail(str(error), MISUSED)
        number = len(settings.models[name_of(model, ways[0].name)].deployments)
        if number < 2:  # noqa: PLR2004 - a race needs two
            fail(
                f"{model} has one deployment, so all ways are the same: name a model with two or more, or deployments:"
                " provider/model,provider/model",
                MISUSED,
            )
        try:
            gateway = await stack.enter_async_context(open_gateway(settings, lambda: None))
        except (ConfigurationError, LedgerError, RuntimeError) as error:
            fail(str(error))
        await _recollect(gateway, model, ways)
        yield WaysField(gateway=gateway, model=model, ways=ways, prompts=prompts, is_demo=is_demo)


async def _recollect(gateway: Gateway, model: str, ways: Sequence[Way]) -> None:
    """Give each way the ledger's figures of the model, as a gateway reads them when it starts."""
    with suppress(LedgerError):  # the ledger is away: all ways begin without its figures
        sums = [each for each in await gateway.ledger.remembered() if each.model == model]
        for way in ways:
            name = name_of(model, way.name)
            gateway.steering.recollect([msgspec.structs.replace(each, model=name) for each in sums])


class WaysField(msgspec.Struct, frozen=True):
    """The ways of a model, as models of a gateway that runs until the bench ends."""

    gateway: Gateway
    model: str
    ways: tuple[Way, ...]
    prompts: Sequence[str] = ()
    is_demo: bool = False

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        """The deployments of the model."""
        return self.gateway.context.fleet.find(name_of(self.model, self.ways[0].name), adhoc=False).deployments

    def plan(self, wanted: FieldOptions) -> BenchPlan:
        """Return the plan of a new bench."""
        return BenchPlan(
            seed=wanted.seed,
            contenders=tuple(Contender(name=way.name, model=self.model) for way in self.ways),
            kinds=wanted.kinds,
            concurrencies=wanted.concurrencies,
            rounds=wanted.rounds,
            warm_up=wanted.warm_up,
            lengths=TokenLengths(wanted.prompt_tokens, wanted.answer_tokens, wanted.most_tokens),
            goal=wanted.goal,
            is_demo=self.is_demo,
            prompts=wanted.prompts,
            voice=wanted.voice,
            raced=tuple(self.deployments),
        )

    def costs(self, plan: BenchPlan) -> dict[tuple[str, str], RequestCost]:
        """Return the cost of a call, by way and class of prompts: at most, every deployment is asked and answers."""
        costs = {}
        longest = tuple(sorted(self.prompts, key=len)[-1:])
        prices = [deployment.price for deployment in self.deployments.values()]
        for way, contender in zip(self.ways, plan.contenders, strict=True):
            for kind in plan.kinds:
                request = request_for(plan, contender, Key(0, 1, contender.name, kind, 0), 0, longest)
                answer = expected_answer(kind, plan.lengths)
                each = [cost_of(price, request.needs.prompt_tokens, answer.about, answer.at_most) for price in prices]
                about = sum(cost.about_usd for cost in each) / len(each) * (1.0 + (way.budget or 0.0))
                costs[contender.name, kind] = RequestCost(about, sum(cost.most_usd for cost in each))
        return costs

    async def ask(
        self, request: ParsedRequest, contender: Contender, key: Key, *, sitting: int, in_flight: int
    ) -> Measured:
        """Run a call the way ``contender`` and return its sample."""
        request = msgspec.structs.replace(request, model=name_of(self.model, contender.name))
        lanes = Lanes(self.gateway.context.services.clock, _Unshown(), self.gateway.context.services.outbox.drain)
        began_s, started = MOMENTS.unix_clock(), MOMENTS.clock()
        problem: ApiError | None = None
        try:
            async with running_call(self.gateway, request, lanes, {"from": _TAG, "way": contender.name}) as run:
                await run()
        except ApiError as error:
            problem = error
        self.gateway.context.services.outbox.drain()
        ended_ms = (MOMENTS.clock() - started) * 1000
        sample = _sample(key, lanes, problem, sitting=sitting, began_s=began_s, ended_ms=ended_ms, in_flight=in_flight)
        message = problem.message if problem is not None else lanes.error
        return Measured(sample, message, _retry_after_s(problem))


class _Unshown:
    """Receives the events of the lanes and shows none."""

    def changed(self, lane: PrintedLane, at_ms: float) -> None:
        """Show nothing."""

    def text_added(self, text: str) -> None:
        """Show nothing."""


def _sample(
    key: Key,
    lanes: Lanes,
    problem: ApiError | None,
    *,
    sitting: int,
    began_s: float,
    ended_ms: float,
    in_flight: int,
) -> BenchSample:
    """Return the call's sample; its figures are those of the ledger's ``calls``."""
    record, began_s = lanes.record, round(began_s, 3)
    if record is None:  # no deployment was asked
        kind = "internal_error" if problem is None else problem.kind
        return BenchSample(
            key=key,
            sitting=sitting,
            began_s=began_s,
            ended_ms=ended_ms,
            in_flight=in_flight,
            launched=0,
            cost_usd=0.0,
            cost_high_usd=0.0,
            error_kind=kind,
        )
    winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
    error_kind = record.error_kind
    if error_kind is None and (problem is not None or lanes.error is not None or winner is None):
        error_kind = "disconnected" if problem is None else problem.kind
    if error_kind is None and record.is_empty:
        error_kind = "empty"
    failed: dict[str, int] = {}
    for each in record.attempts:
        if each.error_kind is not None:
            failed[each.deployment] = failed.get(each.deployment, 0) + 1
    of_winner: dict[str, Any] = {}
    if winner is not None:
        of_winner = {name: getattr(winner, name) for name in _OF_WINNER}
        if winner.sentence_ms is not None:  # the attempt won by its clause, which was sent at once
            spoken_s = winner.completion_tokens and winner.completion_tokens * CHARS_PER_TOKEN / SPOKEN_CHARS_S
            of_winner |= {"sentence_ms": record.ttft_ms, "spoken_s": spoken_s}
    return BenchSample(
        key=key,
        sitting=sitting,
        began_s=began_s,
        ended_ms=record.total_ms,
        total_ms=record.total_ms if error_kind is None else None,
        ttft_ms=record.ttft_ms,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        reasoning_tokens=record.reasoning_tokens,
        cached_tokens=record.cached_tokens,
        tokens_source=record.tokens_source,
        finish_reason=record.finish_reason,
        in_flight=in_flight,
        launched=record.launched,
        failed_at=failed,
        cost_usd=record.cost_usd,
        cost_high_usd=record.cost_high_usd,
        error_kind=error_kind,
        status_code=record.status_code,
        **of_winner,
    )


_OF_WINNER = ("decode_tps", "itl_p50_ms", "itl_p95_ms", "itl_max_ms", "speech_pause_ms")


def _retry_after_s(problem: ApiError | None) -> float | None:
    """Return for how long all deployments ask to be left alone, if they do."""
    if problem is None:
        return None
    headers = {name.lower(): value for name, value in problem.headers.items()}
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None


# The user's own prompts: one on each line; in a file of JSON lines, each a string or an object with a "prompt".


def read_prompts(path: Path) -> OwnPrompts:
    """Return what the plan says of a file of prompts; exit if the file has no prompts."""
    texts = _texts(str(path))
    return OwnPrompts(str(path), _digest(texts), len(texts))


def _read_again(past: BenchPlan) -> Sequence[str]:
    """Return the prompts of a bench that goes on; exit if the prompts have changed."""
    if past.prompts is None:
        return ()
    texts = _texts(past.prompts.path)
    if _digest(texts) != past.prompts.digest:
        fail(f"{past.prompts.path} has changed since the bench began: begin a new one, so that its calls are alike")
    return texts


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256(msgspec.json.encode(texts)).hexdigest()


class _Line(msgspec.Struct):
    prompt: str


def _texts(path: str) -> Sequence[str]:
    is_json = path.endswith(".jsonl")
    decoder = msgspec.json.Decoder(str | _Line)
    texts: list[str] = []
    try:
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            if not is_json:
                texts.append(line)
                continue
            try:
                said = decoder.decode(line)
            except msgspec.DecodeError:
                fail(f'{path}, line {number}: write a JSON string, or an object like {{"prompt": "..."}}', MISUSED)
            texts.append(said if isinstance(said, str) else said.prompt)
    except OSError as error:
        fail(f"--prompts: {path} cannot be read: {error.strerror}", MISUSED)
    except UnicodeDecodeError:
        fail(f"--prompts: {path} is not UTF-8 text", MISUSED)
    if not texts:
        fail(f"--prompts: {path} has no prompt; write one a line", MISUSED)
    return tuple(texts)


# The report on a terminal.

_TABLES: Sequence[tuple[str, Mapping[str, str]]] = (
    ("first tokens, ms", {"ttft_p50_ms": "p50", "ttft_p95_ms": "p95", "ttft_p99_ms": "p99"}),
    ("whole answers, ms", {"total_p50_ms": "p50", "total_p95_ms": "p95", "total_p99_ms": "p99"}),
    (
        "what it took",
        {"errors": "failed calls", "requests_per_call": "requests a call", "cost_per_1000_usd": "$ per 1,000 calls"},
    ),
)


def write_ways(report: Report, journal: Path) -> None:
    """Print the figures of each way, what is sure, and what is not known yet."""
    plan = report.plan
    if not report.requests:
        say("nothing was measured")
        return
    for level in plan.concurrencies:
        of_level = [cell for cell in report.cells if cell.concurrency == level and cell.kind == ALL]
        at = f", {level} at a time" if len(plan.concurrencies) > 1 or level > 1 else ""
        for title, names in (("what a listener hears", HEARD), *_TABLES) if plan.voice else _TABLES:
            rows = [[cell.deployment, cell.requests, *_row(cell, names)] for cell in of_level]
            write_table(("way", "calls", *names.values()), rows, title=f"{title}{at}")
    sure = [verdict for verdict in report.verdicts if verdict.is_shown]
    for verdict in sure:
        prose(f"sure: {verdict.words}")
    if not sure:
        say("no difference is sure yet")
    elif len(sure) < len(report.verdicts):
        prose(f"not sure: {len(report.verdicts) - len(sure)} of {len(report.verdicts)} comparisons (--json lists them)")
    for words in (*few_calls(report), *saved_up(report)):
        prose(f"note: {words}")
    if not report.is_whole:
        prose(f"note: {report.requests} of {plan.requests} calls were made; holeshot bench --resume {journal} goes on")
    say(f"spent: {money(report)}")


def _row(cell: Cell, names: Iterable[str]) -> list[str]:
    return [shown(name, cell.figures.get(name)) for name in names]
