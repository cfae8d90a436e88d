"""What is measured in a closed loop, as data; its measuring, by turns; and the rows of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

import msgspec

from benchmarks.harness.machine import metered
from benchmarks.harness.report import Row, quantile, row, skipped
from tests.support.measured import gateways, load
from tests.support.measured.answers import MESSAGES
from tests.support.measured.gateways import MeasuredServers, over
from tests.support.measured.load import Order, Question
from tests.support.measured.nginx import Missing
from tests.support.measured.servers import Server, count

WARM_UP_SHARE = 0.2
ROUNDS, QUICK_ROUNDS = 9, 3
QUICK_SHARE = 0.3  # of the calls


class Subject(msgspec.Struct, frozen=True):
    """One measured server, asked in one way."""

    name: str
    server: str
    path: str
    model: str = "benchmark-model"
    launched: int | None = None  # attempts the gateway must say it started
    more: tuple[tuple[str, int], ...] = ()  # of the request

    def question(self, server: Server, *, streamed: bool = True) -> Question:
        """Return what the load generator is to ask."""
        return Question(
            port=server.port,
            path=self.path,
            model=self.model,
            streamed=streamed,
            headers=server.headers,
            launched=self.launched,
            more=dict(self.more),
        )


class Comparison(msgspec.Struct, frozen=True):
    """A row of the table: CPU of ``subject`` divided by that of ``baseline``, both by name; without one, in ms."""

    title: str
    subject: str
    baseline: str | None = None
    at_most: float | None = None  # what was promised; None: for information


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Calls made to each of ``subjects`` in turn, round after round.

    CPU is given per ``units_per_call``-th of a call; with ``concurrency`` 1 the time to the first token is of interest
    too, as what each subject adds to that of the first one.
    """

    name: str
    unit: str = "call"
    units_per_call: int = 1
    streamed: bool = True
    prompt_bytes: int | None = None
    calls: int
    concurrency: int
    subjects: tuple[Subject, ...]
    comparisons: tuple[Comparison, ...] = ()


class Limit(msgspec.Struct, frozen=True):
    """What may be added to the first token, in ms."""

    p50_ms: float
    p99_ms: float


def passthrough(behaviour: str) -> Subject:
    """Return the baseline in front of an upstream that behaves so."""
    return Subject("pass-through", "pass-through", f"/{behaviour}{gateways.PATH}")


def nginx(behaviour: str) -> Subject:
    """Return nginx in front of an upstream that behaves so."""
    return Subject("nginx", "nginx", f"/{behaviour}{gateways.PATH}")


def gateway(name: str, model: str, server: str = "gateway") -> Subject:
    """Return the gateway, asked for a model of ``gateways.RACES``."""
    launched = len(gateways.RACES[model.partition("-tls-")[0]])
    return Subject(name, server, gateways.PATH, model, launched)


def _messages(name: str = "single", server: str = "gateway", path: str = "/v1/messages") -> Subject:
    """Return who is asked in Anthropic's API."""
    model, launched = (f"{MESSAGES}-single", 1) if server == "gateway" else ("benchmark-model", None)
    return Subject(name, server, path, model, launched, (("max_tokens", 200),))


def tls(name: str, model: str, version: str) -> Subject:
    """Return the gateway, asked for a model whose providers are reached over TLS."""
    return gateway(name, model + over(version), "gateway over TLS")


SCENARIOS = (
    Scenario(
        name="stream",
        calls=1000,
        concurrency=16,
        subjects=(
            passthrough("burst"),
            gateway("single", "burst-single"),
            gateway("race", "burst-race"),
            gateway("single with SQLite", "burst-single", "gateway with SQLite"),
        ),
        comparisons=(
            Comparison("100-token burst: single / pass-through", "single", "pass-through", 1.75),
            Comparison("100-token burst: race of two / pass-through of one", "race", "pass-through", 2.1),
            Comparison("100-token burst: single, rows in SQLite / pass-through", "single with SQLite", "pass-through"),
        ),
    ),
    Scenario(
        name="json",
        streamed=False,
        calls=1000,
        concurrency=16,
        subjects=(passthrough("burst"), gateway("single", "burst-single")),
        comparisons=(Comparison("non-streaming, 100 tokens: single / pass-through", "single", "pass-through", 2.8),),
    ),
    Scenario(
        name="messages",
        calls=1000,
        concurrency=16,
        subjects=(_messages("pass-through", "pass-through", f"/{MESSAGES}/v1/messages"), _messages()),
        comparisons=(Comparison("Messages, 100-token burst: single / pass-through", "single", "pass-through", 2.3),),
    ),
    Scenario(
        name="race",
        calls=1000,
        concurrency=16,
        subjects=(
            passthrough("soon"),
            gateway("single", "soon-single"),
            gateway("race", "soon-race"),
            gateway("tied race", "soon-tie"),
        ),
        comparisons=(
            Comparison("first token after 5 ms, loser still silent: race / single", "race", "single"),
            Comparison("first token after 5 ms, loser still silent: race / pass-through", "race", "pass-through"),
            Comparison("first token after 5 ms, both at once: race / single", "tied race", "single"),
        ),
    ),
    Scenario(
        name="paced",
        unit="token",
        units_per_call=100,
        calls=200,
        concurrency=50,
        subjects=(
            nginx("paced"),
            passthrough("paced"),
            gateway("single", "paced-single"),
            gateway("race", "paced-race"),
        ),
        comparisons=(
            Comparison("a token every 5 ms: single / nginx", "single", "nginx", 2.0),
            Comparison("a token every 5 ms: race / nginx", "race", "nginx", 2.0),
            Comparison("a token every 5 ms: pass-through / nginx", "pass-through", "nginx"),
        ),
    ),
    Scenario(
        name="tls",
        calls=500,
        concurrency=16,
        subjects=(
            gateway("plain single", "burst-single", "gateway over TLS"),
            tls("single over HTTP/2", "burst-single", "auto"),
            tls("race over HTTP/1.1", "burst-race", "1.1"),
            tls("race over HTTP/2", "burst-race", "auto"),
        ),
        comparisons=(
            Comparison("TLS, HTTP/2: race of two", "race over HTTP/2", at_most=0.35),
            Comparison("TLS, HTTP/2: race of two / single over plain HTTP", "race over HTTP/2", "plain single"),
            Comparison("TLS, HTTP/2: single / single over plain HTTP", "single over HTTP/2", "plain single"),
            Comparison("TLS, HTTP/1.1: race of two", "race over HTTP/1.1"),
            Comparison("TLS, HTTP/1.1: race of two / single over plain HTTP", "race over HTTP/1.1", "plain single"),
        ),
    ),
    Scenario(
        name="prompts",
        prompt_bytes=400_000,
        calls=150,
        concurrency=4,
        subjects=(
            gateway("once", "soon-single"),
            gateway("three times", "three"),
            tls("once over TLS", "soon-single", "auto"),
            tls("three times over TLS", "three", "auto"),
            tls("once over HTTP/2", "soon-single", "2"),
            tls("three times over HTTP/2", "three", "2"),
        ),
        comparisons=(
            Comparison("400 KB prompt: raced three ways / sent once", "three times", "once", 1.4),
            Comparison("400 KB prompt over TLS: three ways / sent once", "three times over TLS", "once over TLS", 1.7),
            Comparison("the same, always over HTTP/2", "three times over HTTP/2", "once over HTTP/2", 1.7),
        ),
    ),
    Scenario(
        name="workers",
        calls=1000,
        concurrency=16,
        subjects=(gateway("one", "burst-single", "gateway of one"), gateway("two", "burst-single", "gateway of two")),
        comparisons=(Comparison("100-token burst: two workers / one", "two", "one", 1.1),),
    ),
)

# One call at a time: what is between a client and its first token.
FIRST_TOKEN = Scenario(
    name="first token",
    calls=1000,
    concurrency=1,
    subjects=(
        Subject("direct", "upstream", f"/first{gateways.PATH}"),
        nginx("first"),
        passthrough("first"),
        gateway("single", "first-single"),
        gateway("race", "first-race"),
    ),
)
FIRST_TOKEN_LIMITS = {"single": Limit(0.4, 1.0), "race": Limit(0.6, 1.0)}


class Effort(msgspec.Struct, frozen=True):
    """How much is done for a figure, and whom to tell what is being done."""

    quick: bool
    say: Callable[[str], None]

    @property
    def rounds(self) -> int:
        """How often each subject takes its turn."""
        return QUICK_ROUNDS if self.quick else ROUNDS

    def calls(self, scenario: Scenario) -> int:
        """How many calls are made in a turn."""
        return max(scenario.concurrency, int(scenario.calls * QUICK_SHARE) if self.quick else scenario.calls)


class Sample(msgspec.Struct, frozen=True):
    """One subject in one round: CPU of the server's process tree per unit, and each call's latency.

    ``cut_share``: requests that the upstream saw cut before it had sent a byte, per call.
    """

    cpu_us: float
    latencies_ms: list[float]
    cut_share: float


Samples = Mapping[str, list[Sample]]  # by subject, one for each round; a subject that could not be had is not there


def measure(scenario: Scenario, measured: MeasuredServers, effort: Effort) -> Samples:
    """Measure every subject, after a warm-up."""
    effort.say(f"{scenario.name}: starting servers")
    found = {
        subject.name: server for subject in scenario.subjects if (server := _server(measured, subject)) is not None
    }
    subjects = [subject for subject in scenario.subjects if subject.name in found]
    calls = effort.calls(scenario)
    for subject in subjects:
        effort.say(f"{scenario.name}: warming up {subject.name}")
        load.run(order(scenario, subject, found[subject.name], max(scenario.concurrency, int(calls * WARM_UP_SHARE))))
    samples: dict[str, list[Sample]] = {name: [] for name in found}
    for number in range(1, effort.rounds + 1):
        for subject in subjects:
            effort.say(f"{scenario.name}: round {number} of {effort.rounds}, {subject.name}")
            samples[subject.name].append(_take(scenario, subject, found[subject.name], measured.upstream, calls))
    return samples


def order(scenario: Scenario, subject: Subject, server: Server, calls: int) -> Order:
    """Return what the load generator is to do."""
    question = subject.question(server, streamed=scenario.streamed)
    if scenario.prompt_bytes is not None:
        question = msgspec.structs.replace(question, prompt_bytes=scenario.prompt_bytes)
    return Order(question=question, calls=calls, concurrency=scenario.concurrency)


def _server(measured: MeasuredServers, subject: Subject) -> Server | None:
    try:
        return measured[subject.server]
    except Missing:
        return None


def _take(scenario: Scenario, subject: Subject, server: Server, upstream: Server, calls: int) -> Sample:
    cut_before = count(upstream, "cut_before_first_byte")
    with metered(server) as spent:
        outcome = load.run(order(scenario, subject, server, calls))
    cut = count(upstream, "cut_before_first_byte") - cut_before
    return Sample(spent.cpu_s / (calls * scenario.units_per_call) * 1e6, outcome.latencies_ms, cut / calls)


def cpu_rows(scenario: Scenario, samples: Samples) -> Iterator[Row]:
    """Yield the comparisons of a scenario: ratios of the same round, their median and extremes."""
    for comparison in scenario.comparisons:
        if not {comparison.subject, comparison.baseline or comparison.subject} <= samples.keys():
            yield skipped(comparison.title, "nginx")
        elif comparison.baseline is None:
            values = [sample.cpu_us / 1000 for sample in samples[comparison.subject]]
            detail = f"of CPU per {scenario.unit}{_cut(samples[comparison.subject])}"
            yield row(comparison.title, values, "ms", at_most=comparison.at_most, detail=detail)
        else:
            yield _ratio(scenario, comparison, samples[comparison.subject], samples[comparison.baseline])


def latency_rows(scenario: Scenario, samples: Samples, limits: dict[str, Limit]) -> Iterator[Row]:
    """Yield what each subject adds to the first one's time to the first token, at p50 and p99."""
    direct, *others = scenario.subjects
    for share in (0.5, 0.99):
        base = [quantile(sample.latencies_ms, share) for sample in samples[direct.name]]
        for subject in others:
            title = f"added time to first token, p{share * 100:.0f}: {subject.name}"
            if subject.name not in samples:
                yield skipped(title, "nginx")
                continue
            own = [quantile(sample.latencies_ms, share) for sample in samples[subject.name]]
            added = [each - least for each, least in zip(own, base, strict=True)]
            limit = limits.get(subject.name)
            at_most = None if limit is None else limit.p50_ms if share == 0.5 else limit.p99_ms
            detail = f"{median(own):.2f} ms, direct {median(base):.2f} ms"
            yield row(title, added, "ms", at_most=at_most, detail=detail)


def _ratio(scenario: Scenario, comparison: Comparison, own: Sequence[Sample], base: Sequence[Sample]) -> Row:
    ratios = [each.cpu_us / other.cpu_us for each, other in zip(own, base, strict=True)]
    own_us, base_us = (median(sample.cpu_us for sample in each) for each in (own, base))
    detail = f"{_us(own_us)} / {_us(base_us)} µs of CPU per {scenario.unit}{_cut(own)}"
    return row(comparison.title, ratios, "x", at_most=comparison.at_most, detail=detail)


def _cut(samples: Sequence[Sample]) -> str:
    share = median(sample.cut_share for sample in samples)
    return f"; requests cut before their first byte: {share:.2f} per call" if share else ""


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
