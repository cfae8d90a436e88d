"""What is tried: each limit in each situation, for a client of its own, and the calls that ask for more of it."""

import math
from collections.abc import Mapping, Sequence
from random import Random

import msgspec

HALF_WAY = 1 / 2  # of a phase: before the limits are reached, at two thirds
AT_THE_LIMIT = 3 / 4  # after it
RATE_PER_S = 500.0  # of all trials of a situation together
REACHED_AT = 2 / 3  # of a phase: by then the calls have asked for the whole limit
MAX_PARALLEL = 12.0  # calls; about 32 would run without it
PROMPT_TOKENS = 100
MEAN_TOKENS, SIGMA = 100.0, 0.6  # of answers: a lognormal distribution
LEAST_TOKENS, MOST_TOKENS = 8, 600
USD_PER_MTOK = {"input": 10.0, "output": 40.0}
UNLIMITED = "none"
OF_MODEL = "model's usd_per_day"
LIMITS = ("rpm", "tpm", "max_parallel", "usd_per_day", "usd_per_month", OF_MODEL, UNLIMITED)
PARALLEL = "max_parallel"
PLAIN_MODEL = "plain"


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What happens, and at which shares of a phase. ``is_brief``: also part of a quick run."""

    name: str
    fault: str | None = None  # "kill", "hang" or "flush"
    begin: float = HALF_WAY
    end: float = HALF_WAY
    is_brief: bool = True


SITUATIONS = (
    Situation(name="calm"),
    Situation(name="killed", fault="kill", end=1.0),
    Situation(name="hung", fault="hang", end=0.78),
    Situation(name="flushed", fault="flush"),
    Situation(name="hung before", fault="hang", begin=0.35, end=0.55, is_brief=False),
    Situation(name="flushed after", fault="flush", begin=AT_THE_LIMIT, end=AT_THE_LIMIT, is_brief=False),
)


class Use(msgspec.Struct, frozen=True):
    """What a call uses, by its prompt and answer."""

    prompt_tokens: int
    answer_tokens: int

    def of(self, limit: str) -> float:
        """Return how much of a limit that is: requests, tokens or US dollars at list price."""
        if limit in {"rpm", PARALLEL, UNLIMITED}:
            return 1.0
        if limit == "tpm":
            return float(self.prompt_tokens + self.answer_tokens)
        return (self.prompt_tokens * USD_PER_MTOK["input"] + self.answer_tokens * USD_PER_MTOK["output"]) / 1e6


class Job(msgspec.Struct, frozen=True):
    """A call to be made, seconds after the beginning of its phase. ``draw``, 0 to 1, chooses its replica."""

    number: int
    limit: str
    due_s: float
    answer_tokens: int
    draw: float

    @property
    def use(self) -> Use:
        return Use(PROMPT_TOKENS, self.answer_tokens)


class Trial(msgspec.Struct, frozen=True):
    """One limit in one situation."""

    situation: Situation
    limit: str
    amount: float | None  # None: unlimited

    @property
    def client(self) -> str:
        return f"{self.situation.name}, {self.limit}"

    @property
    def key(self) -> str:
        return f"hs-{self.client}".replace(", ", "-").replace(" ", "-").replace("'", "")

    @property
    def model(self) -> str:
        """The model that its client asks."""
        return f"limited when {self.situation.name}" if self.limit == OF_MODEL else PLAIN_MODEL

    @property
    def client_limits(self) -> dict[str, float]:
        """The limits of its client, as they are configured."""
        return {} if self.amount is None or self.limit == OF_MODEL else {self.limit: self.amount}


def drawn(situation: Situation, first: int, length_s: float, seed: int) -> list[Job]:
    """Draw the calls of a phase, a Poisson process, numbered from ``first``."""
    random = Random(f"{seed} {situation.name}")
    mu = math.log(MEAN_TOKENS) - SIGMA**2 / 2
    jobs: list[Job] = []
    due_s = random.expovariate(RATE_PER_S)
    while due_s < length_s:
        tokens = min(MOST_TOKENS, max(LEAST_TOKENS, round(random.lognormvariate(mu, SIGMA))))
        jobs.append(Job(first + len(jobs), random.choice(LIMITS), due_s, tokens, random.random()))
        due_s += random.expovariate(RATE_PER_S)
    return jobs


def trials(situation: Situation, jobs: Sequence[Job], length_s: float) -> list[Trial]:
    """Return a trial for each limit, of such an amount that it is used up at ``REACHED_AT`` of the phase."""
    return [Trial(situation, limit, _amount(limit, jobs, length_s)) for limit in LIMITS]


def _amount(limit: str, jobs: Sequence[Job], length_s: float) -> float | None:
    if limit == UNLIMITED:
        return None
    if limit == PARALLEL:
        return MAX_PARALLEL
    asked = sum(job.use.of(limit) for job in jobs if job.limit == limit and job.due_s < REACHED_AT * length_s)
    return float(round(asked)) if limit in {"rpm", "tpm"} else round(asked, 4)


def by_limit(tried: Sequence[Trial]) -> Mapping[str, Trial]:
    """Return the trials of one situation by their limit."""
    return {trial.limit: trial for trial in tried}
