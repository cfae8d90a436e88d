"""What is measured, as data: who is called how, and which figures are held against which."""

import msgspec

GATEWAY_PATH = "/v1/chat/completions"


class Subject(msgspec.Struct, frozen=True):
    """One server, asked in one way."""

    name: str
    server: str
    path: str
    model: str = "benchmark-model"
    launched: int | None = None  # attempts the gateway must say it started


class Comparison(msgspec.Struct, frozen=True):
    """A row of the table: ``subject`` divided by ``baseline``, both by name."""

    title: str
    subject: str
    baseline: str
    at_most: float | None = None  # what was promised; None: for information


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Calls made to each of ``subjects`` in turn, round after round.

    CPU is given per ``units_per_call``-th of a call; with ``concurrency`` 1 the time to the first token is of interest
    too, as what each subject adds to that of the first one.
    """

    name: str
    unit: str = "call"
    units_per_call: int = 1
    streamed: bool
    calls: int
    concurrency: int
    subjects: tuple[Subject, ...]
    comparisons: tuple[Comparison, ...] = ()


def passthrough(behaviour: str) -> Subject:
    """Return the baseline in front of an upstream that behaves so."""
    return Subject("pass-through", "passthrough", f"/{behaviour}{GATEWAY_PATH}")


SINGLE = Subject("single", "gateway", GATEWAY_PATH, "single", 1)

SCENARIOS = (
    Scenario(
        name="stream",
        streamed=True,
        calls=1000,
        concurrency=16,
        subjects=(passthrough("burst"), SINGLE),
        comparisons=(Comparison("100-chunk stream: single / pass-through", "single", "pass-through", 2.0),),
    ),
    Scenario(
        name="json",
        streamed=False,
        calls=1000,
        concurrency=16,
        subjects=(passthrough("burst"), SINGLE),
        comparisons=(Comparison("non-streaming, 100 tokens: single / pass-through", "single", "pass-through", 3.0),),
    ),
    Scenario(
        name="race",
        streamed=True,
        calls=1000,
        concurrency=16,
        subjects=(
            passthrough("soon"),
            Subject("single", "gateway", GATEWAY_PATH, "soon-single", 1),
            Subject("race", "gateway", GATEWAY_PATH, "soon-race", 2),
            Subject("tied race", "gateway", GATEWAY_PATH, "soon-tie", 2),
        ),
        comparisons=(
            Comparison("race of two, loser still silent: race / single", "race", "single", 2.0),
            Comparison("race of two, both answer at once: race / single", "tied race", "single", 2.0),
            Comparison("race of two, loser still silent: race / pass-through", "race", "pass-through"),
        ),
    ),
    Scenario(
        name="paced",
        unit="token",
        units_per_call=100,
        streamed=True,
        calls=200,
        concurrency=50,
        subjects=(
            passthrough("paced"),
            Subject("single", "gateway", GATEWAY_PATH, "paced-single", 1),
            Subject("race", "gateway", GATEWAY_PATH, "paced-race", 2),
        ),
        comparisons=(
            Comparison("a token every 5 ms: single / pass-through", "single", "pass-through"),
            Comparison("a token every 5 ms: race / pass-through", "race", "pass-through"),
        ),
    ),
)

# One call at a time: what is between a client and its first token.
LATENCY = Scenario(
    name="first token",
    streamed=True,
    calls=1000,
    concurrency=1,
    subjects=(
        Subject("direct", "upstream", f"/burst{GATEWAY_PATH}"),
        passthrough("burst"),
        SINGLE,
        Subject("race", "gateway", GATEWAY_PATH, "burst-race", 2),
    ),
)
