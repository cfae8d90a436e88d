"""Runs a bench: round by round, deployment by deployment, with the plan's concurrency."""

import asyncio
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from gateway.api import ParsedRequest
from gateway.bench.measuring import Measured, Moments, request_for
from gateway.bench.plan import BenchPlan, BenchSample, BenchTurn, Contender, Key, turns, warm_up
from gateway.core.race_failures import OPERATORS
from gateway.racing import MISCOUNT
from providers import ErrorKind, Price

# The journal of a bench: a file of JSON lines, one when a request is sent and one when it has finished. A line is one
# ``write``, so a bench that is killed loses only the running requests. The journal has that they were sent, so their
# cost counts against the cap, and they are sent again.

VERSION = 1
_LONGEST_LINE = 1_000_000


class JournalError(Exception):
    """The journal cannot be used; the message says why."""


class SentRequest(msgspec.Struct, frozen=True):
    """A request that was sent, and its maximum cost."""

    key: Key
    sitting: int
    most_usd: float


class JournalContent(msgspec.Struct):
    """The content of a journal."""

    plan: BenchPlan
    sittings: int = 0  # how often the bench was started
    sent: list[SentRequest] = []
    samples: list[BenchSample] = []


class JournalLine(msgspec.Struct, omit_defaults=True):
    """A line: one of its fields is set."""

    holeshot_bench: int | None = None
    plan: BenchPlan | None = None
    sitting: int | None = None
    sent: SentRequest | None = None
    done: BenchSample | None = None
    rounds: int | None = None  # more than the plan had until then


class Journal:
    """A journal that is open for writing."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._descriptor = descriptor

    def sitting(self, number: int) -> None:
        """Record a start of the bench."""
        self._write(JournalLine(sitting=number))

    def rounds(self, number: int) -> None:
        """Record a new total number of rounds."""
        self._write(JournalLine(rounds=number))

    def sent(self, key: Key, sitting: int, most_usd: float) -> None:
        """Record a request just before it is sent."""
        self._write(JournalLine(sent=SentRequest(key, sitting, most_usd)))

    def done(self, sample: BenchSample) -> None:
        """Record a finished request."""
        self._write(JournalLine(done=sample))

    def _write(self, line: JournalLine) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from None
        if written < len(data):
            raise JournalError(f"{self.path} cannot be written: no space left")


@contextmanager
def new_journal(path: Path, plan: BenchPlan) -> Iterator[Journal]:
    """Begin a journal.

    Raises:
        JournalError: the file exists, or cannot be written.

    """
    if path.is_dir():
        raise JournalError(f"{path} is a folder: name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    except FileExistsError:
        raise JournalError(f"{path} already exists; --resume {path} continues it") from None
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror}") from None
    with _owned(descriptor, path) as journal:
        journal._write(JournalLine(holeshot_bench=VERSION, plan=plan))  # noqa: SLF001 - the same module
        yield journal


@contextmanager
def continued_journal(path: Path) -> Iterator[tuple[Journal, JournalContent]]:
    """Open a journal to continue it. An incomplete last line is removed.

    Raises:
        JournalError: the file is no journal, cannot be written, or another process is writing it.

    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        raise JournalError(f"{path} cannot be continued: {error.strerror}") from None
    with _owned(descriptor, path) as journal:
        past, whole = _read(path)
        os.ftruncate(descriptor, whole)
        yield journal, past


def read_journal(path: Path) -> JournalContent:
    """Return the content of a journal, without changing it.

    Raises:
        JournalError: the file is no journal, or cannot be read.

    """
    return _read(path)[0]


@contextmanager
def _owned(descriptor: int, path: Path) -> Iterator[Journal]:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"{path} is being written by another bench") from None
        except OSError as error:
            raise JournalError(f"{path} cannot be locked: {error.strerror}; write it to a local disk") from None
        yield Journal(descriptor, path)
    finally:
        os.close(descriptor)


def _read(path: Path) -> tuple[JournalContent, int]:
    """Return the content of the journal, and the length of its complete lines in bytes."""
    past: JournalContent | None = None
    whole = 0
    decoder: Any = msgspec.json.Decoder(JournalLine)
    try:
        with path.open("rb") as file:
            while data := file.readline(_LONGEST_LINE):
                if not data.endswith(b"\n"):
                    break
                line: JournalLine = decoder.decode(data)
                if past is None:
                    past = JournalContent(_plan(line, path))
                else:
                    _learn(past, line)
                whole += len(data)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise JournalError(f"{path} is not the journal of a bench, or is damaged after byte {whole}") from None
    if past is None:
        raise JournalError(f"{path} is not the journal of a bench")
    return past, whole


def _learn(past: JournalContent, line: JournalLine) -> None:
    if line.sitting is not None:
        past.sittings = line.sitting + 1
    elif line.sent is not None:
        past.sent.append(line.sent)
    elif line.done is not None:
        past.samples.append(line.done)
    elif line.rounds is not None:
        past.plan = msgspec.structs.replace(past.plan, rounds=line.rounds)


def _plan(line: JournalLine, path: Path) -> BenchPlan:
    if line.plan is None or line.holeshot_bench is None:
        raise JournalError(f"{path} is not the journal of a bench")
    if line.holeshot_bench != VERSION:
        raise JournalError(f"{path} was written by another version of holeshot ({line.holeshot_bench}, not {VERSION})")
    return line.plan


# The cost of a bench: an estimate before it starts, and a cap while it runs. The maximum cost of a request is its
# prompt at the highest input price (our estimate of its tokens may be too low by half), plus an answer of
# ``max_tokens``. A round begins only if the maximum cost of its requests is left. The cost of a killed request is
# unknown, so its maximum counts.

_FRAME_TOKENS = 64  # added to a prompt by the chat template
_LONGER = 1.25  # if an answer has cost more than its maximum, the next maximum is this many times its cost


class RequestCost(msgspec.Struct, frozen=True):
    """The cost of a request, expected and at most, in US dollars."""

    about_usd: float
    most_usd: float


def cost_of(price: Price | None, prompt_tokens: int, about_tokens: int, most_tokens: int) -> RequestCost:
    """Return the cost of a request; an unknown price counts as 0."""
    if price is None:
        return RequestCost(0.0, 0.0)
    about = prompt_tokens * price.input_usd + about_tokens * price.output_usd
    highest_input = max(price.input_usd, price.cache_write_usd or 0.0)
    highest_output = max(price.output_usd, price.reasoning_usd or 0.0)
    prompt = prompt_tokens * MISCOUNT + _FRAME_TOKENS
    return RequestCost(about, prompt * highest_input + most_tokens * highest_output)


class BenchPurse:
    """Counts the cost of requests against a cap."""

    def __init__(self, cap_usd: float | None, costs: Mapping[tuple[str, str], RequestCost]) -> None:
        """``costs``: the cost of a request, by deployment and class. ``cap_usd`` None: no cap."""
        self.cap_usd = cap_usd
        self.spent_usd = 0.0  # upper bound
        self._costs = dict(costs)
        self._open: dict[tuple[Key, int], float] = {}

    def most_usd(self, key: Key) -> float:
        """Return the maximum cost of a request."""
        return self._costs[key.deployment, key.kind].most_usd

    def pays(self, keys: Iterable[Key]) -> bool:
        """Whether these requests stay within the cap, even if they and the running ones cost their maximum."""
        if self.cap_usd is None:
            return True
        return self.committed_usd + sum(map(self.most_usd, keys)) <= self.cap_usd

    @property
    def committed_usd(self) -> float:
        """The upper bound of the cost so far, plus the maximum cost of running requests."""
        return self.spent_usd + sum(self._open.values())

    def sent(self, key: Key, sitting: int, most_usd: float) -> None:
        """Reserve the maximum cost of a request."""
        self._open[key, sitting] = most_usd

    def done(self, sample: BenchSample) -> None:
        """Replace the reservation by the upper bound of the request's cost."""
        reserved = self._open.pop((sample.key, sample.sitting), 0.0)
        paid = sample.cost_high_usd if sample.cost_high_usd is not None else reserved
        self.spent_usd += paid
        place = sample.key.deployment, sample.key.kind
        if paid > reserved and place in self._costs:
            known = self._costs[place]
            self._costs[place] = RequestCost(known.about_usd, max(known.most_usd, paid * _LONGER))


_LONGEST_WAIT_S = 60.0  # after a rate limit
_PERMANENT = OPERATORS | {ErrorKind.CONNECT_ERROR, ErrorKind.DISCONNECTED}


class BenchError(Exception):
    """The bench cannot go on; the message says why."""


class Watcher(Protocol):
    """Receives the events of a running bench."""

    def turn(self, turn: BenchTurn) -> None:
        """The turn of a deployment begins."""

    def measured(self, measured: Measured, spent_usd: float) -> None:
        """A request has finished."""

    def waits(self, deployment: str, seconds: float) -> None:
        """A deployment is rate-limited, so the bench waits."""


class Ask(Protocol):
    """Sends a request to a deployment, or one way, and measures it."""

    async def __call__(
        self, request: ParsedRequest, contender: Contender, key: Key, *, sitting: int, in_flight: int
    ) -> Measured:
        """Return the request's sample, also after an error. ``in_flight`` counts this request, too."""


class BenchPace(NamedTuple):
    """How fast turns follow each other, and until when rounds begin."""

    every_s: float = 0.0  # from the beginning of one turn to that of the next, at least
    for_s: float | None = None  # since this start of the bench


AT_ONCE = BenchPace()


class Bench:
    """A running bench.

    ``stopped_at_cap`` is set when the cap does not allow the next round, ``stopped_in_time`` when the time was up.
    """

    def __init__(
        self,
        plan: BenchPlan,
        ask: Ask,
        journal: Journal,
        past: JournalContent,
        purse: BenchPurse,
        *,
        watcher: Watcher,
        moments: Moments,
        pace: BenchPace = AT_ONCE,
        prompts: Sequence[str] = (),
    ) -> None:
        """``past``: the journal's content; new samples are appended to it. ``prompts``: the user's own."""
        self.stopped_at_cap = False
        self.stopped_in_time = False
        self._plan = plan
        self._ask_it = ask
        self._pace = pace
        self._prompts = prompts
        self._not_before = moments.clock()  # the next turn, in monotonic seconds
        self._journal = journal
        self._past = past
        self._purse = purse
        self._watcher = watcher
        self._moments = moments
        self._sitting = past.sittings
        self._done = {sample.key for sample in past.samples}
        self._in_flight = {contender.name: 0 for contender in plan.contenders}
        for sent in past.sent:
            purse.sent(sent.key, sent.sitting, sent.most_usd)
        for sample in past.samples:
            purse.done(sample)

    async def run(self) -> Sequence[BenchSample]:
        """Run the rest of the plan; return all samples, with those of earlier starts.

        Raises:
            BenchError: a deployment cannot be reached, or refuses every request.
            JournalError: the journal cannot be written.

        """
        rounds = [round_ for round_ in range(self._plan.rounds) if self._left(turns(self._plan, round_))]
        if rounds:
            self._journal.sitting(self._sitting)
            await self._warm_up(rounds[0])
        clock, for_s = self._moments.clock, self._pace.for_s
        until = None if for_s is None else clock() + for_s
        for round_ in rounds:
            self.stopped_in_time = until is not None and clock() >= until
            if self.stopped_at_cap or self.stopped_in_time:
                break
            left = self._left(turns(self._plan, round_))
            if not self._purse.pays(key for turn in left for key in turn.keys):
                self.stopped_at_cap = True
                break
            for turn in left:
                await self._run_turn(turn)
        return self._past.samples

    async def _warm_up(self, first: int) -> None:
        """Warm up, and fail if a deployment answered nothing, for a reason that will not pass."""
        warming = list(warm_up(self._plan))
        needed = [key for turn in [*warming, *self._left(turns(self._plan, first))] for key in turn.keys]
        if not self._purse.pays(needed):
            self.stopped_at_cap = True
            return
        for turn in warming:
            measured = await self._run_turn(turn)
            errors = [each for each in measured if each.sample.error_kind is not None]
            if len(errors) == len(measured) and errors[-1].sample.error_kind in _PERMANENT:
                raise BenchError(f"{turn.contender.name} cannot be asked: {errors[-1].message}")

    async def _run_turn(self, turn: BenchTurn) -> list[Measured]:
        """Send the requests of a turn, ``concurrency`` at a time: the next one starts when one has ended."""
        clock = self._moments.clock
        self._watcher.turn(turn)
        if (early_s := self._not_before - clock()) > 0:
            await asyncio.sleep(early_s)
        self._not_before = clock() + self._pace.every_s
        waiting, results = list(reversed(turn.keys)), list[Measured]()

        async def work() -> None:
            while waiting:
                measured = await self._ask(turn.contender, waiting.pop())
                results.append(measured)
                if measured.retry_after_s is not None and waiting:
                    wait_s = min(measured.retry_after_s, _LONGEST_WAIT_S)
                    self._watcher.waits(turn.contender.name, wait_s)
                    await asyncio.sleep(wait_s)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(turn.concurrency, len(turn.keys))):
                    group.create_task(work())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        limited_s = max((each.retry_after_s or 0.0 for each in results), default=0.0)
        if limited_s and self._plan.raced:  # the next way asks the same providers
            wait_s = min(limited_s, _LONGEST_WAIT_S)
            self._watcher.waits(turn.contender.name, wait_s)
            self._not_before = max(self._not_before, clock() + wait_s)
        return results

    async def _ask(self, contender: Contender, key: Key) -> Measured:
        most_usd = self._purse.most_usd(key)
        self._purse.sent(key, self._sitting, most_usd)
        self._journal.sent(key, self._sitting, most_usd)
        request = request_for(self._plan, contender, key, self._sitting, self._prompts)
        self._in_flight[contender.name] += 1
        try:
            measured = await self._ask_it(
                request, contender, key, sitting=self._sitting, in_flight=self._in_flight[contender.name]
            )
        finally:
            self._in_flight[contender.name] -= 1
        self._journal.done(measured.sample)
        self._purse.done(measured.sample)
        self._past.samples.append(measured.sample)
        self._watcher.measured(measured, self._purse.committed_usd)
        return measured

    def _left(self, all_turns: Iterable[BenchTurn]) -> list[BenchTurn]:
        """Return the turns of a round without the requests that were answered before."""
        left = []
        for turn in all_turns:
            keys = tuple(key for key in turn.keys if key not in self._done)
            if keys:
                left.append(BenchTurn(turn.contender, turn.concurrency, keys))
        return left
