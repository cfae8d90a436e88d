"""The plan of a bench: prompts, deployments, rounds, and their order, which follows from the seed also when resumed."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from random import Random
from typing import Any, TypeVar

import msgspec

# One request of a bench and its measurements: a line of the journal. Neither prompts nor answers are stored.


class Key(msgspec.Struct, frozen=True, order=True):
    """The position of a request in the plan."""

    round: int  # 0, 1, …; -1: warm-up
    concurrency: int
    deployment: str
    kind: str  # the class of the prompt
    number: int  # 0, 1, … of those of its class in the round


class BenchSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished request. Milliseconds since it was sent; the figures are those of the ledger's ``attempts``."""

    key: Key
    sitting: int  # 0 for the first start of the bench, 1 after it was resumed once
    began_s: float  # Unix time
    total_ms: float | None = None  # the last token; None if there was none
    ended_ms: float  # the end of the exchange, also of a failed one
    connect_ms: float | None = None  # None: an open connection was used
    ttft_ms: float | None = None
    ttft_answer_ms: float | None = None
    sentence_ms: float | None = None  # the first clause that can be spoken
    speech_pause_ms: float | None = None  # the longest silence of a voice after that
    spoken_s: float | None = None  # how long a voice takes to say the answer
    decode_tps: float | None = None
    e2e_tps: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_max_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    tokens_source: str | None = None
    finish_reason: str | None = None
    in_flight: int = 1  # requests of this bench at this deployment when it was sent, itself included
    launched: int | None = None  # of a way: requests to providers for this call
    failed_at: dict[str, int] = {}  # of a way: how many of them failed, by deployment, also where another answered
    as_asked: bool | None = None  # JSON that parses, a tool call with valid arguments; None: not asked for, or cut off
    cost_usd: float | None = None
    cost_high_usd: float | None = None  # at most
    error_kind: str | None = None
    status_code: int | None = None


# Goals, which an answer must meet to count for goodput: ``ttft<500ms,tps>45``.

_PART = re.compile(r"\s*([a-z][a-z0-9]*)\s*([<>])\s*([0-9]+(?:\.[0-9]+)?)\s*+(ms|s|)\s*")
_MS = {"ms": 1.0, "s": 1000.0}

# The name in a goal, the figure it is about, whether less is better.
_FIGURES: Mapping[str, tuple[Callable[[BenchSample], float | None], bool]] = {
    "ttft": (lambda sample: sample.ttft_ms, True),
    "answer": (lambda sample: sample.ttft_answer_ms, True),
    "clause": (lambda sample: sample.sentence_ms, True),
    "silence": (lambda sample: sample.speech_pause_ms, True),
    "total": (lambda sample: sample.total_ms, True),
    "gap": (lambda sample: sample.itl_max_ms, True),
    "itl": (lambda sample: sample.itl_p95_ms, True),
    "tps": (lambda sample: sample.decode_tps, False),
    "e2e": (lambda sample: sample.e2e_tps, False),
}
EXAMPLE = "ttft<500ms,tps>45"


class GoalError(ValueError):
    """The goal is not understood; the message says what is possible."""


class Threshold(msgspec.Struct, frozen=True):
    """One condition; ``limit`` in milliseconds, or in tokens per second."""

    name: str
    limit: float


class Goal(msgspec.Struct, frozen=True):
    """A goal: an answer must meet all its conditions."""

    text: str
    parts: tuple[Threshold, ...]

    def met(self, sample: BenchSample) -> bool | None:
        """Whether ``sample`` met the goal. An error never does; None if a figure it needs is unknown."""
        if sample.error_kind is not None:
            return False
        known = True
        for part in self.parts:
            figure, less = _FIGURES[part.name]
            value = figure(sample)
            if value is None:
                known = False
            elif not (value < part.limit if less else value > part.limit):
                return False
        return True if known else None


def read_goal(text: str) -> Goal:
    """Return the goal that ``text`` states.

    Raises:
        GoalError: it is not understood.

    """
    parts = []
    for piece in text.split(","):
        found = _PART.fullmatch(piece)
        if found is None:
            raise GoalError(f"the goal {piece.strip()!r} is not understood; write it like {EXAMPLE}")
        name, sign, number, unit = found.groups()
        if name not in _FIGURES:
            raise GoalError(f"a goal cannot be about {name!r}; it can be about {', '.join(_FIGURES)}")
        less = _FIGURES[name][1]
        if (sign == "<") is not less:
            right = f"{name}{'<' if less else '>'}{number}{unit}"
            raise GoalError(f"the goal {piece.strip()!r} wants slow answers; did you mean {right}?")
        if less and not unit:
            raise GoalError(f"the goal {piece.strip()!r} needs a unit: {name}<{number}ms or {name}<{number}s")
        if not less and unit:
            raise GoalError(f"the goal {piece.strip()!r} is in tokens per second: {name}>{number}")
        parts.append(Threshold(name, float(number) * _MS.get(unit, 1.0)))
    return Goal(text.replace(" ", ""), tuple(parts))


# Ways to run the calls of one model, which are compared like deployments: ``single,0.1,1.0``.

_MOST_BUDGET = 7.0  # of ``race.budget``
_BUDGET = re.compile(r"[0-9]+(?:\.[0-9]+)?")
SINGLE = "single"


class WayError(ValueError):
    """The ways are not understood; the message says what is possible."""


class Way(msgspec.Struct, frozen=True):
    """One way: a budget of extra attempts per call in mode ``auto``, or None for one provider at a time."""

    name: str  # as the user wrote it
    budget: float | None

    @property
    def meaning(self) -> str:
        """What it does, in words."""
        if self.budget is None:
            return "one provider at a time, another if it fails"
        return f"raced by the policy, on a budget of {self.budget:g} extra requests per call"


def read_way(text: str) -> Way:
    """Return the way that ``text`` names.

    Raises:
        WayError: it names none.

    """
    if text == SINGLE:
        return Way(text, None)
    if _BUDGET.fullmatch(text) is None or float(text) > _MOST_BUDGET:
        raise WayError(
            f"there is no way {text!r}: write single, or a budget of extra requests per call from 0 to"
            f" {_MOST_BUDGET:g}, as in single,0.1,1.0"
        )
    return Way(text, float(text))


def read_ways(text: str) -> tuple[Way, ...]:
    """Return the ways in a comma list.

    Raises:
        WayError: one is not understood, or there are not two different ones.

    """
    ways = {way.budget: way for way in map(read_way, (part.strip() for part in text.split(",")))}
    if len(ways) < 2:  # noqa: PLR2004 - one has nothing to be compared with
        raise WayError(f"--ways compares at least two, as in single,0.1,1.0; not {text!r}")
    return tuple(ways.values())


# The prompts of a bench: five classes, with fixed texts; a salt in front defeats prompt caches, unless it is disabled.


class PromptKind(StrEnum):
    """The classes of prompts."""

    SHORT = "short"  # a question that is answered in a sentence
    LONG_ANSWER = "long_answer"  # an essay, cut off at the limit
    LONG_PROMPT = "long_prompt"  # a long text, and a question about it
    TOOL_CALL = "tool_call"  # a tool must be called
    JSON = "json"  # an answer in JSON
    OWN = "own"  # the user's own, of a file


CLASSES = tuple(kind for kind in PromptKind if kind is not PromptKind.OWN)
FIXED = ":fixed"  # after the name of a class: its prompt has no salt, so it may be cached


class TokenLengths(msgspec.Struct, frozen=True):
    """How long prompts and answers are, in tokens."""

    long_prompt: int = 4000  # about
    long_answer: int = 512  # at most
    most: int | None = None  # of any answer; None: as its class says


class ExpectedTokens(msgspec.Struct, frozen=True):
    """The number of tokens in an answer, to estimate its cost: expected, and at most (``max_tokens``)."""

    about: int
    at_most: int


_NOTHING_MORE: Mapping[str, Any] = {}
_QUESTION = "Which are the three longest rivers of Europe? Answer in one sentence."
_ESSAY = "Write an essay of two thousand words on the history of the bicycle. Do not stop early."
_ABOUT_TEXT = "The text above is a ship's log. Say in one sentence what it is about."
_WEATHER = "What is the weather in Oslo now, in degrees Celsius? Call the tool."
_COUNTRIES = (
    'Return a JSON object with one key, "countries": a list of five countries of Africa, each an object with the keys'
    ' "name", "capital" and "population". Return JSON and nothing else.'
)
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the present weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "The place, as in 'Bergen, Norway'."},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["place", "unit"],
        },
    },
}
_CHARS_PER_TOKEN = 4.5  # of the log's words, with common tokenizers


def kind_of(name: str) -> PromptKind:
    """Return the class of a name with or without ``FIXED``.

    Raises:
        ValueError: there is no such class.

    """
    return PromptKind(name.removesuffix(FIXED))


def expected_answer(name: str, lengths: TokenLengths) -> ExpectedTokens:
    """Return the expected length of an answer to a class of prompts."""
    usual = _usual_answer(name, lengths)
    if lengths.most is None:
        return usual
    return ExpectedTokens(min(usual.about, lengths.most), min(usual.at_most, lengths.most))


def _usual_answer(name: str, lengths: TokenLengths) -> ExpectedTokens:
    match kind_of(name):
        case PromptKind.SHORT:
            return ExpectedTokens(40, 64)
        case PromptKind.LONG_ANSWER:
            return ExpectedTokens(lengths.long_answer, lengths.long_answer)
        case PromptKind.LONG_PROMPT:
            return ExpectedTokens(50, 96)
        case PromptKind.TOOL_CALL:
            return ExpectedTokens(40, 160)
        case PromptKind.JSON:
            return ExpectedTokens(160, 320)
        case PromptKind.OWN:
            return ExpectedTokens(lengths.long_answer // 2, lengths.long_answer)


def body(name: str, lengths: TokenLengths, salt: str, model: str, own: str | None = None) -> bytes:
    """Return the body of a streamed chat completion. ``salt`` begins the prompt, unless the class is a fixed one.

    ``own``: the user's own prompt, instead of that of the class.
    """
    text, more = _QUESTION, _NOTHING_MORE
    match kind_of(name):
        case PromptKind.SHORT:
            pass
        case PromptKind.OWN:
            assert own is not None
            text = own
        case PromptKind.LONG_ANSWER:
            text = _ESSAY
        case PromptKind.LONG_PROMPT:
            text = f"{ship_log(lengths.long_prompt)}\n\n{_ABOUT_TEXT}"
        case PromptKind.TOOL_CALL:
            text, more = _WEATHER, {"tools": [_TOOL]}
        case PromptKind.JSON:
            text, more = _COUNTRIES, {"response_format": {"type": "json_object"}}
    if not name.endswith(FIXED):
        text = f"(Request {salt}; this line means nothing.)\n{text}"
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": expected_answer(name, lengths).at_most,
        **more,
    }
    return msgspec.json.encode(asked)


@cache
def ship_log(tokens: int) -> str:
    """Return a text of about ``tokens`` tokens, always the same."""
    random = Random("a ship's log")  # noqa: S311 - a text
    lines: list[str] = []
    chars, day = 0, 0
    while chars < tokens * _CHARS_PER_TOKEN:
        day += 1
        said = (random.choice(part) for part in _PARTS)
        line = f"Day {day}. " + " ".join(said)
        lines.append(line)
        chars += len(line) + 1
    return "\n".join(lines)


_PARTS: Sequence[Sequence[str]] = (
    (
        "The wind came from the north-west and rose towards evening.",
        "A calm sea, and hardly any wind before noon.",
        "Fog lay on the water until the middle of the morning.",
        "Heavy rain all night, with a long swell from the south.",
    ),
    (
        "The crew mended the smaller sail.",
        "The cook found that two barrels of flour were wet.",
        "We passed a fishing boat, whose master greeted us.",
        "The carpenter looked at the rudder and was content.",
        "One of the boys saw whales on the port side.",
    ),
    (
        "We made ninety miles by the evening.",
        "By our reckoning we are still two weeks from the harbour.",
        "The coast was in sight for an hour, low and grey.",
        "All on board are well.",
    ),
)


WARM_UP = -1  # as a round

Item = TypeVar("Item")


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that is compared with the others, or a way."""

    name: str  # of a way: as in ``read_way``
    model: str  # of the gateway, which it belongs to
    input_usd: float | None = None  # per million tokens; None: unknown
    output_usd: float | None = None
    leaves_out: dict[str, str] = {}  # the classes of prompts that it cannot answer, each with the reason
    region: str | None = None  # where it runs, on what and how precisely, as far as the configuration says
    hardware: str | None = None
    quantization: str | None = None

    @property
    def setting(self) -> str:
        """What the configuration says of where and how it runs, in words; empty: nothing."""
        known = (("region", self.region), ("hardware", self.hardware), ("precision", self.quantization))
        return ", ".join(f"{word} {value}" for word, value in known if value is not None)


class OwnPrompts(msgspec.Struct, frozen=True):
    """The file of the user's own prompts: its texts are not in the journal, but must be the same when it is resumed."""

    path: str
    digest: str  # SHA-256
    number: int


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A bench: the journal's first line, from which it is resumed."""

    seed: int
    contenders: tuple[Contender, ...]
    kinds: tuple[str, ...]
    concurrencies: tuple[int, ...]
    rounds: int
    warm_up: int  # requests to each deployment before the first round, which count for nothing
    lengths: TokenLengths
    goal: Goal | None = None
    url: str | None = None  # of the gateway it goes through; None: direct
    is_demo: bool = False  # the deployments are simulated
    prompts: OwnPrompts | None = None
    voice: bool = False  # somebody listens: ways are raced so, and the report begins with what is heard
    raced: tuple[str, ...] = ()  # the deployments of the model whose ways are compared; empty: deployments are compared

    def kinds_of(self, contender: Contender) -> list[str]:
        """Return the classes of prompts that ``contender`` is asked."""
        return [kind for kind in self.kinds if kind not in contender.leaves_out]

    def kinds_in(self, round_: int, contender: Contender) -> list[str]:
        """Return the classes of prompts that ``contender`` is asked in a round: of a way, one after the other.

        So the rounds, which are the smallest blocks in which ways take turns, are short.
        """
        kinds = self.kinds_of(contender)
        return [kinds[round_ % len(kinds)]] if self.raced else kinds

    @property
    def labels(self) -> dict[str, str]:
        """The names of deployments as they are shown: without the model's name if all have the same."""
        names = [contender.name for contender in self.contenders]
        models = {name.partition("/")[2] for name in names}
        short = {name: name.partition("/")[0] for name in names}
        is_clear = len(models) == 1 and len(set(short.values())) == len(names)
        return short if is_clear else {name: name for name in names}

    @property
    def requests(self) -> int:
        """The number of requests, without warming up."""
        classes = sum(len(self.kinds_in(0, contender)) for contender in self.contenders)
        return self.rounds * classes * sum(self.concurrencies)


class BenchTurn(msgspec.Struct, frozen=True):
    """The requests of one round to one deployment, of which ``concurrency`` run at a time."""

    contender: Contender
    concurrency: int
    keys: tuple[Key, ...]


def turns(plan: BenchPlan, round_: int) -> Iterator[BenchTurn]:
    """Yield the turns of a round: levels, deployments and requests each in a random order."""
    random = Random(f"turns/{plan.seed}/{round_}")  # noqa: S311 - an order
    for concurrency in _shuffled(random, plan.concurrencies):
        for contender in _shuffled(random, plan.contenders):
            keys = [
                Key(round_, concurrency, contender.name, kind, number)
                for kind in plan.kinds_in(round_, contender)
                for number in range(concurrency)
            ]
            yield BenchTurn(contender, concurrency, tuple(_shuffled(random, keys)))


def warm_up(plan: BenchPlan) -> Iterator[BenchTurn]:
    """Yield the requests that open connections and wake idle deployments."""
    for contender in plan.contenders:
        kinds = plan.kinds_of(contender)
        if kinds and plan.warm_up:
            keys = [
                Key(WARM_UP, 1, contender.name, kinds[number % len(kinds)], number) for number in range(plan.warm_up)
            ]
            yield BenchTurn(contender, 1, tuple(keys))


def salt(plan: BenchPlan, key: Key, sitting: int) -> str:
    """Return hexadecimal digits for ``key`` that differ in each start of the bench, so no prompt cache knows them."""
    return f"{Random(f'salt/{plan.seed}/{key}/{sitting}').getrandbits(64):016x}"  # noqa: S311 - no secret


def _shuffled(random: Random, items: Sequence[Item]) -> list[Item]:
    return random.sample(items, len(items))
