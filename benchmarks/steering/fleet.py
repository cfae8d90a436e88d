"""The simulated providers at work: what an attempt launched now will get, under weather, queues and rate limits."""

from random import Random

from msgspec import Struct

from benchmarks.steering.traffic import Request, luck
from benchmarks.steering.weather import Fault, Weather
from benchmarks.steering.worlds import CAPACITY_POWER, COLD_AFTER_S, QUEUE_MAX, TIMEOUT_S, Provider, World
from providers import ErrorKind

ACCOUNT_S = 10.0  # an account may use so many seconds' worth at once
REFUSAL_S = 0.05  # how long a 429 takes, or a refused connection
_MEAN_TOKENS = 310  # of an answer, for how long a server is busy with one


class Answer(Struct, frozen=True):
    """What an attempt gets. Seconds count from its launch."""

    ttft_s: float | None  # None: it fails
    end_s: float  # of the answer or of the failure
    tok_s: float | None = None  # None: the answer comes all at once
    error: ErrorKind | None = None
    retry_after_s: float | None = None
    headroom: float | None = None  # 0 to 1, what the account has left
    stall_s: float = 0.0  # of silence after the first token
    is_flawed: bool = False


class Fleet:
    """All providers of a world, shared by all replicas of the gateway."""

    def __init__(self, world: World, weather: Weather, run_s: float, seed: int) -> None:
        self.world = world
        self.number = {provider.name: number for number, provider in enumerate(world.providers)}
        self.in_flight = [0] * len(world.providers)
        self._weather = weather
        self._run_s = run_s
        self._seed = seed
        mean_units = world.mean_tokens if world.counts_tokens else 1.0
        self._accounts = [
            None
            if provider.account is None
            else (_Window if world.windows else _Account)(provider.account * world.calls_per_s * mean_units)
            for provider in world.providers
        ]
        self._asked_at_s = [0.0] * len(world.providers)

    def names(self, now_s: float) -> list[str]:
        """Return the deployments that are configured by now."""
        return [each.name for each in self.world.providers if each.joins * self._run_s <= now_s]

    def ask(self, name: str, request: Request, earlier: int, now_s: float) -> Answer:
        """Launch an attempt; ``earlier`` counts those of the same call at the same provider. Mind ``leave``."""
        number = self.number[name]
        account = self._accounts[number]
        headroom = None
        if account is not None:
            wait_s = account.take(self._units(request), now_s)
            headroom = account.headroom if self.world.tells else None
            if wait_s > 0:
                self.in_flight[number] += 1
                none = None if headroom is None else 0.0
                return Answer(None, REFUSAL_S, error=ErrorKind.RATE_LIMITED, retry_after_s=wait_s, headroom=none)
        answer = self._draw(number, request, earlier, now_s, headroom)
        self.in_flight[number] += 1
        self._asked_at_s[number] = now_s
        return answer

    def peek(self, name: str, request: Request, now_s: float) -> Answer:
        """Return what an attempt launched now would get, for the clairvoyant."""
        number = self.number[name]
        account = self._accounts[number]
        if account is not None and account.wait_s(self._units(request), now_s) > 0:
            return Answer(None, REFUSAL_S, error=ErrorKind.RATE_LIMITED)
        return self._draw(number, request, 0, now_s, None)

    def leave(self, name: str) -> None:
        """Take the end of an attempt, however it came."""
        self.in_flight[self.number[name]] -= 1

    def _units(self, request: Request) -> float:
        """Return what a request takes from an account, whether its answer is read or not."""
        return float(request.prompt_tokens + request.answer_tokens) if self.world.counts_tokens else 1.0

    def _draw(self, number: int, request: Request, earlier: int, now_s: float, headroom: float | None) -> Answer:
        provider = self.world.providers[number]
        drawn = request.luck[number]
        if earlier:
            again = Random(f"{self._seed}:{request.index}:{number}:{earlier}")
            drawn = luck(provider, request.prompt_tokens, request.effort, again)
        second = min(int(now_s), len(self._weather.slow[number]) - 1)
        fault = self._weather.fault[number][second]
        if fault is Fault.HANGS or self._drawn(provider.hang_share, number, request, earlier, "hang"):
            return Answer(None, TIMEOUT_S, error=ErrorKind.TTFT_TIMEOUT)
        if fault is Fault.REFUSES:
            return Answer(None, REFUSAL_S, error=ErrorKind.CONNECT_ERROR)
        errors = self._weather.error_share if fault is Fault.ERRS else provider.error_share
        if drawn.error < errors:
            return Answer(None, drawn.error_s, error=ErrorKind.SERVER_ERROR)
        crowding = 1.0 if provider.batch is None else 1.0 + self.in_flight[number] / provider.batch
        ttft_s = drawn.ttft_s * self._weather.slow[number][second] * self._queue(number, provider) * crowding
        if provider.servers is not None and self.in_flight[number] >= provider.servers:
            answer_s = provider.median_s + _MEAN_TOKENS / provider.tok_s
            ttft_s += (self.in_flight[number] + 1 - provider.servers) / provider.servers * answer_s
        if provider.cold_s and now_s - self._asked_at_s[number] > COLD_AFTER_S:
            ttft_s += provider.cold_s
        if ttft_s >= TIMEOUT_S:
            return Answer(None, TIMEOUT_S, error=ErrorKind.TTFT_TIMEOUT)
        tok_s = drawn.tok_s / crowding
        end_s = ttft_s + drawn.stall_s + (request.answer_tokens - 1) / tok_s
        is_flawed = self._drawn(provider.flawed_share, number, request, earlier, "flaw")
        if now_s >= provider.fakes_from * self._run_s:
            return Answer(end_s, end_s, headroom=headroom, is_flawed=is_flawed)
        return Answer(ttft_s, end_s, tok_s, headroom=headroom, stall_s=drawn.stall_s, is_flawed=is_flawed)

    def _drawn(self, share: float, number: int, request: Request, earlier: int, what: str) -> bool:
        """Draw from a source of its own, so that worlds without this fault stay as they were."""
        return share > 0 and Random(f"{self._seed}:{request.index}:{number}:{earlier}:{what}").random() < share

    def _queue(self, number: int, provider: Provider) -> float:
        if provider.seats is None:
            return 1.0
        return min(QUEUE_MAX, 1.0 + (self.in_flight[number] / provider.seats) ** CAPACITY_POWER)


class _Account:
    """A rate limit: a token bucket of requests, or of their tokens."""

    burst_s = ACCOUNT_S

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._most = self._left = max(1.0, per_s * self.burst_s)
        self._at_s = 0.0

    @property
    def headroom(self) -> float:
        return self._left / self._most

    def wait_s(self, units: float, now_s: float) -> float:
        """Return how long until a request of so many ``units`` is let through; one of more than all waits for all."""
        self._left = min(self._most, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return max(0.0, (min(units, self._most) - self._left) / self._per_s)

    def take(self, units: float, now_s: float) -> float:
        """Let a request through and return 0, or return how long it should wait, in whole seconds as providers say."""
        wait_s = self.wait_s(units, now_s)
        if wait_s > 0:
            return float(int(wait_s) + 1)
        self._left = max(0.0, self._left - units)
        return 0.0


class _Window(_Account):
    """A rate limit that counts by the minute, and starts again with the next."""

    burst_s = 60.0

    def wait_s(self, units: float, now_s: float) -> float:
        """Return how long until a request of so many ``units`` is let through."""
        if now_s // self.burst_s > self._at_s // self.burst_s:
            self._left = self._most
        self._at_s = now_s
        return 0.0 if self._left >= min(units, self._most) else self.burst_s - now_s % self.burst_s
