"""What is measured in a closed loop, as data: who is called how, and which figures are held against which."""

import msgspec

from benchmarks.harness import gateways
from benchmarks.harness.gateways import over


class Subject(msgspec.Struct, frozen=True):
    """One measured server, asked in one way."""

    name: str
    server: str
    path: str
    model: str = "benchmark-model"
    launched: int | None = None  # attempts the gateway must say it started


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
            Comparison("100-token burst: single / pass-through", "single", "pass-through", 1.3),
            Comparison("100-token burst: race of two / pass-through of one", "race", "pass-through", 1.9),
            Comparison("100-token burst: single, rows in SQLite / pass-through", "single with SQLite", "pass-through"),
        ),
    ),
    Scenario(
        name="json",
        streamed=False,
        calls=1000,
        concurrency=16,
        subjects=(passthrough("burst"), gateway("single", "burst-single")),
        comparisons=(Comparison("non-streaming, 100 tokens: single / pass-through", "single", "pass-through", 2.1),),
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
FIRST_TOKEN_LIMITS = {"single": Limit(0.3, 1.0), "race": Limit(0.3, 1.0)}
