"""The requests of one run with their luck: what each provider would draw for each, the same whatever the policy."""

from collections.abc import Iterator
from math import exp, log
from random import Random

from msgspec import Struct

from benchmarks.steering.worlds import SIZE_SIGMA, STALL_S, Kind, Provider, World
from gateway.core import calls as records
from gateway.core.prompt_classes import PromptClass, answer_class

TAIL = (log(6.0), 0.5)  # a slow tail is x lognormal(6, .5)
SPEED_SIGMA = 0.15
ERROR_S = 0.15  # median time an error takes to come
BYTES_PER_TOKEN = 4
CLASS_BYTES = (4096, 32_768)


class Luck(Struct, frozen=True):
    """What one provider would do with one request, weather and congestion apart."""

    ttft_s: float
    tok_s: float
    error: float  # uniform; below the share of errors of the moment it fails
    error_s: float
    stall_s: float = 0.0  # of silence after the first token


class Request(Struct, frozen=True):
    """One call of the run."""

    index: int
    at_s: float
    replica: int
    prompt_tokens: int
    answer_tokens: int
    prompt_class: PromptClass
    effort: float  # its own share of log TTFT, at all providers
    luck: tuple[Luck, ...]  # by provider
    kind: records.CallKind | None = None  # as the gateway sees it


def requests(world: World, calls: int, seed: int) -> list[Request]:
    """Return ``calls`` requests in the order of their arrival."""
    random = Random(f"{seed}:{world.name}:traffic")
    return [
        _request(world, index, at_s, random)
        for index, at_s in zip(range(calls), _arrivals(world, random), strict=False)
    ]


def luck(provider: Provider, prompt_tokens: int, effort: float, random: Random) -> Luck:
    """Draw the luck of one attempt; ``effort`` is the request's own share of log TTFT."""
    slow = random.lognormvariate(*TAIL) if random.random() < provider.tail_share else 1.0
    if provider.slow_mode is not None and random.random() < provider.slow_mode[0]:
        slow *= provider.slow_mode[1]
    if provider.pareto is None:
        drawn_s = provider.median_s * exp(provider.sigma * random.gauss(0.0, 1.0) + effort)
    else:  # its median is the same
        drawn_s = provider.median_s * random.paretovariate(provider.pareto) / 2 ** (1 / provider.pareto) * exp(effort)
    return Luck(
        ttft_s=drawn_s * slow + provider.prefill_s * prompt_tokens / 1000,
        tok_s=provider.tok_s * random.lognormvariate(0.0, SPEED_SIGMA),
        error=random.random(),
        error_s=random.lognormvariate(log(ERROR_S), 0.5),
        stall_s=STALL_S if provider.stalls and random.random() < provider.stalls else 0.0,
    )


def _request(world: World, index: int, at_s: float, random: Random) -> Request:
    kind = random.choices(world.kinds, [each.share for each in world.kinds])[0]
    prompt_tokens = round(random.lognormvariate(log(kind.prompt_tokens), SIZE_SIGMA))
    effort = random.gauss(0.0, world.request_sd) + log(kind.thinks)
    replica = random.randrange(world.replicas)
    answer_tokens = max(2, round(random.lognormvariate(log(kind.answer_tokens), SIZE_SIGMA)))
    return Request(
        index=index,
        at_s=at_s,
        replica=replica,
        prompt_tokens=prompt_tokens,
        answer_tokens=min(answer_tokens, kind.max_tokens or answer_tokens),
        prompt_class=answer_class(sum(prompt_tokens * BYTES_PER_TOKEN > limit for limit in CLASS_BYTES), kind.effort),
        effort=effort,
        luck=tuple(luck(provider, prompt_tokens, effort, random) for provider in world.providers),
        kind=_as_seen(kind, index, prompt_tokens),
    )


def _as_seen(kind: Kind, index: int, prompt_tokens: int) -> records.CallKind:
    """Return what a request of this kind says. Each has an id of its own among its tags, which tells nothing."""
    tags = {"trace": str(index)} if kind.task is None else {"trace": str(index), "task": kind.task}
    return records.CallKind(
        endpoint=kind.endpoint,
        structured=kind.structured,
        max_tokens=kind.max_tokens,
        client=kind.client,
        tags=tags,
        prompt_tokens=prompt_tokens,
    )


def _arrivals(world: World, random: Random) -> Iterator[float]:
    """Yield a Poisson process; with bursts, ten seconds of each minute are busier, and the mean stays."""
    quiet = world.calls_per_s * 6.0 / (5.0 + world.burst)
    at_s = 0.0
    while True:
        before_s, at_s = at_s, at_s + random.expovariate(1.0) / (quiet * (world.burst if at_s % 60.0 >= 50.0 else 1.0))
        if world.together and at_s // 60.0 > before_s // 60.0:
            yield from [at_s // 60.0 * 60.0] * world.together
        yield at_s
