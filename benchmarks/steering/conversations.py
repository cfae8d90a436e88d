"""What prompt-cache affinity gains, and what it costs: conversations through one world, with it and without.

    python -m benchmarks.steering.conversations [--world calm] [--calls 4800] [--replicas 1] [--shared-kb 0]

A conversation begins with some 3,000 tokens and grows with each of its five turns or so, half a minute apart. A
provider that sent a first token of a turn has the whole prompt in its cache for five minutes, and reads it at a tenth
of the price. Whether that saves the time of prefilling too makes a difference: both are shown. A cut loser paid for its
prompt, and left nothing in the cache. Printed are the share of the winners' prompts that came from caches, what all
attempts paid for input, as a multiple of one attempt a call without caches, and the time to first token. With
``--shared-kb`` all conversations begin with the same system prompt, of which the gateway knows but no cache does: they
are all drawn to where others went, and nothing is gained by that. With ``--replicas`` each turn comes to any of so many
gateways, which know each other's leaderboard, but not where the turns before went.
"""

import argparse
from math import log
from random import Random
from statistics import fmean, quantiles

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.steering.fleet import Answer, Fleet
from benchmarks.steering.gateway_policy import GatewayPolicy
from benchmarks.steering.policy import MODEL
from benchmarks.steering.quiet import be_quiet
from benchmarks.steering.race import Race, Result
from benchmarks.steering.simulation import AFTER_S, boards_in_step
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import BYTES_PER_TOKEN, CLASS_BYTES, Request, luck
from benchmarks.steering.weather import Weather
from benchmarks.steering.worlds import WORLDS, World
from gateway.core.attempts import AttemptStart
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.core.prompt_classes import answer_class
from gateway.settings import RaceSettings
from gateway.steering.affinity import Prefix
from gateway.steering.board import Board
from gateway.steering.candidates import Terms
from gateway.steering.constants import PREFIX_BYTES
from gateway.steering.plans import Plan
from providers import Price

SEEDS = (11, 12, 13)
CALLS = 4800  # a quarter of an hour
WARM_UP_S = 60.0
TURNS = 8  # on average, but for those that become too long
OPENING_TOKENS, TURN_TOKENS, ANSWER_TOKENS, LONGEST_TOKENS = 3000.0, 500.0, 200.0, 16_000  # medians but for the longest
PAUSE_S = 30.0  # median
CACHE_S = 300.0
CACHED_PRICE = 0.1  # of the price of what is not cached
LEAST_TTFT_S = 0.02


class Kept(Struct, frozen=True):
    """What a provider's cache holds of a conversation."""

    until_s: float
    tokens: int


class CachingFleet(Fleet):
    """Providers with prompt caches."""

    def __init__(self, world: World, weather: Weather, run_s: float, seed: int, said_by: dict[int, int]) -> None:
        super().__init__(world, weather, run_s, seed)
        self.saves_time = True
        self.cached_tokens: dict[tuple[int, str], int] = {}  # by call and deployment
        self.paid_tokens = 0.0  # of input, at the full price
        self._said_by = said_by  # the conversation of each call
        self._kept: dict[tuple[int, str], Kept] = {}

    def ask(self, name: str, request: Request, earlier: int, now_s: float) -> Answer:
        """Launch an attempt, which pays for its prompt."""
        answer = super().ask(name, request, earlier, now_s)
        kept = self._kept.get((self._said_by[request.index], name))
        cached = min(kept.tokens, request.prompt_tokens) if kept is not None and now_s < kept.until_s else 0
        self.cached_tokens[request.index, name] = cached
        self.paid_tokens += request.prompt_tokens - cached * (1.0 - CACHED_PRICE)
        if answer.ttft_s is None or not self.saves_time:
            return answer
        number = self.number[name]
        spared_s = self.world.providers[number].prefill_s * cached / 1000 * self._weather.slow[number][int(now_s)]
        spared_s = min(spared_s, answer.ttft_s - LEAST_TTFT_S)
        return replace(answer, ttft_s=answer.ttft_s - spared_s, end_s=answer.end_s - spared_s)

    def read(self, name: str, request: Request, now_s: float) -> None:
        """Keep a prompt that was read to its end."""
        self._kept[self._said_by[request.index], name] = Kept(now_s + CACHE_S, request.prompt_tokens)


class Conversing(GatewayPolicy):
    """The gateway's policy as the API asks it: with the beginnings of the prompt."""

    def __init__(
        self,
        timeline: Timeline,
        fleet: CachingFleet,
        race: RaceSettings,
        board: Board,
        *,
        random: Random,
        shared_bytes: int,
    ) -> None:
        super().__init__(board, timeline, random, race=race, objective=Objective.FIRST_TOKEN, world=fleet.world)
        self._timeline, self._fleet, self._asked, self._shared_bytes = timeline, fleet, race, shared_bytes
        self._begins: dict[str, Prefix] = {}  # by call
        self._lower = {
            each.name: Price(each.usd_per_mtok / 1e6, 0.0, CACHED_PRICE * each.usd_per_mtok / 1e6)
            for each in fleet.world.providers
        }

    def plan_turn(self, request: Request, names: list[str], conversation: int) -> Plan:
        """Plan one turn of a conversation."""
        size = request.prompt_tokens * BYTES_PER_TOKEN
        spoken_by = ((end, conversation if end > self._shared_bytes else None) for end in PREFIX_BYTES if end < size)
        digests = tuple(map(hash, spoken_by))
        begins_like = conversation if self._shared_bytes < PREFIX_BYTES[0] else 0
        prefix = Prefix(digests, begins_like.to_bytes(8, "big") if digests else None)
        self._begins[str(request.index)] = prefix
        terms = Terms(Objective.FIRST_TOKEN, request.prompt_tokens, prices=self._lower, prefix=prefix)
        return self._steering.plan(MODEL, names, self._asked, terms, request.prompt_class)

    def first_token(self, request: Request, start: AttemptStart, ttft_s: float) -> None:
        """Tell steering; and by now the provider has read the prompt."""
        super().first_token(request, start, ttft_s)
        self._fleet.read(start.deployment, request, self._timeline.now_s)

    def call_finished(self, record: CallRecord) -> None:
        """Tell steering who served."""
        super().call_finished(record)
        prefix = self._begins.pop(record.id)
        for attempt in record.attempts:
            if attempt.id == record.winner_attempt_id:
                cached_tokens = self._fleet.cached_tokens[int(record.id), attempt.deployment]
                self._steering.served(MODEL, prefix, attempt.deployment, cached_tokens)


class Figures(Struct, frozen=True):
    """What came of one run."""

    cached_share: float
    paid: float
    attempts: float
    ttft_s: list[float]


def conversations(world: World, calls: int, seed: int) -> tuple[list[Request], dict[int, int]]:
    """Return the calls in the order of their arrival, and which conversation each belongs to."""
    random, replicas = Random(f"{seed}:conversations"), Random(f"{seed}:replicas")
    spoken: list[tuple[float, int, int, int]] = []
    at_s, number = 0.0, 0
    while len(spoken) < 2 * calls:  # the last ones go on beyond the end
        at_s += random.expovariate(world.calls_per_s / TURNS)
        number += 1
        turn_s, tokens = at_s, random.lognormvariate(log(OPENING_TOKENS), 0.6)
        while tokens < LONGEST_TOKENS:
            answer_tokens = max(2, round(random.lognormvariate(log(ANSWER_TOKENS), 0.6)))
            spoken.append((turn_s, number, round(tokens), answer_tokens))
            if random.random() < 1 / TURNS:
                break
            tokens += answer_tokens + random.lognormvariate(log(TURN_TOKENS), 0.6)
            turn_s += random.lognormvariate(log(PAUSE_S), 0.8)
    spoken.sort()
    requests = []
    for index, (turn_s, _, tokens, answer_tokens) in enumerate(spoken[:calls]):
        effort = random.gauss(0.0, world.request_sd)
        requests.append(
            Request(
                index=index,
                at_s=turn_s,
                replica=replicas.randrange(world.replicas),
                prompt_tokens=tokens,
                answer_tokens=answer_tokens,
                prompt_class=answer_class(sum(tokens * BYTES_PER_TOKEN > limit for limit in CLASS_BYTES)),
                effort=effort,
                luck=tuple(luck(provider, tokens, effort, random) for provider in world.providers),
            )
        )
    return requests, {index: each[1] for index, each in enumerate(spoken[:calls])}


def run(given: tuple[World, int, int], race: RaceSettings, seed: int, *, saves_time: bool) -> Figures:
    """Run all conversations once; given are the world, the number of calls, and the bytes that all have in common."""
    (world, calls, shared_bytes), timeline = given, Timeline()
    requests, said_by = conversations(world, calls, seed)
    run_s = requests[-1].at_s
    fleet = CachingFleet(world, Weather(world, int(run_s) + AFTER_S, seed), run_s, seed, said_by)
    fleet.saves_time = saves_time
    boards = boards_in_step(world.replicas, timeline, run_s)
    policies = [
        Conversing(timeline, fleet, race, board, random=Random(seed + 1000 * number), shared_bytes=shared_bytes)
        for number, (board, _) in enumerate(boards)
    ]
    results: list[Result] = []

    def begin(request: Request) -> None:
        policy = policies[request.replica]
        plan = policy.plan_turn(request, fleet.names(timeline.now_s), said_by[request.index])
        Race(request, plan, policy, fleet, timeline, done=results.append, objective=Objective.FIRST_TOKEN).start()

    for request in requests:
        timeline.at(request.at_s, lambda request=request: begin(request))  # type: ignore[misc] # binds the loop's
    timeline.run()
    prompt_tokens = sum(each.prompt_tokens for each in requests)
    cached = sum(fleet.cached_tokens.get((each.index, each.deployment or ""), 0) for each in results)
    return Figures(
        cached / prompt_tokens,
        fleet.paid_tokens / prompt_tokens,
        len(fleet.cached_tokens) / len(requests),
        [each.ttft_s for each in results if each.ttft_s is not None and each.at_s >= WARM_UP_S],
    )


def main() -> None:
    """Print a table for the documentation."""
    parser = argparse.ArgumentParser(prog="benchmarks.steering.conversations")
    parser.add_argument("--world", choices=sorted(WORLDS), default="calm")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--shared-kb", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=1)
    options = parser.parse_args()
    be_quiet()
    world = WORLDS[options.world]
    given = replace(world, replicas=options.replicas), options.calls, 1024 * options.shared_kb
    print("| | affinity | cached | input paid | attempts | TTFT mean | p50 | p95 |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    modes: dict[str, dict[str, object]] = {
        "single": {"mode": Mode.SINGLE},
        "budget 0.1": {"budget": 0.1},
        "budget 1.0": {"budget": 1.0},
    }
    for saves_time in (True, False):
        for name, race in modes.items():
            for affinity in (False, True):
                settings = RaceSettings.model_validate(race | {"cache_affinity": affinity})
                runs = [run(given, settings, seed, saves_time=saves_time) for seed in SEEDS]
                ttft_ms = [1000 * seconds for each in runs for seconds in each.ttft_s]
                cuts = quantiles(ttft_ms, n=20)
                print(
                    f"| {name}{'' if saves_time else ', caches save money only'} | {'on' if affinity else 'off'} "
                    f"| {fmean(each.cached_share for each in runs):.0%} | {fmean(each.paid for each in runs):.2f} x "
                    f"| {fmean(each.attempts for each in runs):.2f} "
                    f"| {fmean(ttft_ms):.0f} ms | {cuts[9]:.0f} | {cuts[18]:.0f} |"
                )


if __name__ == "__main__":
    main()
