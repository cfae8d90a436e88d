"""Measures one attempt while it streams, and computes its figures.

Definitions, and when a figure is null, are in gateway/steering/RULES.md#measurement. Times are monotonic seconds; one
timestamp is taken per read, so deltas that arrive together share it.
"""

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import ceil, inf

import msgspec

from gateway.core.attempts import Outcome, TokensSource, WinOn
from gateway.racing.plausibility import MOST_BYTES_PER_TOKEN, UNKNOWN_MOST, MostTokens, plausible, without_too_few
from gateway.steering import BUCKETS, ROUNDING, edge_s
from providers import Usage, completed
from providers.dialects import SAME_CALL, WHOLE_CALL, Arguments, Chunk, is_json, replaces

# The tool calls of one answer: their number, their tools, and whether their arguments are JSON.

MOST_CHARS = 256 * 1024  # of arguments; with more it is unknown whether the arguments are JSON
MOST_CALLS = 1024  # with more the number is unknown


class ToolCalls(msgspec.Struct):
    """The tool calls received so far, released with the attempt."""

    _calls: dict[int | str, Arguments] = {}  # by the call's index in the answer, or its id
    _latest: dict[int | str, str] = {}  # of several calls with one index, the key of the last
    _chars: int = 0
    _too_many: bool = False
    names: list[str] = []  # of the called tools, at most ``MOST_CALLS``

    def add(self, pieces: Iterable[tuple[int | str, str]], names: Sequence[str] = (), *, whole: bool = False) -> None:
        """Add pieces of arguments, each with its call's index or id, and the names that came with the pieces.

        ``whole`` arguments count only for a known call without any piece so far. Some servers give all parallel calls
        the index 0: arguments that come with a name, after complete arguments, then belong to another call.
        """
        for call_id, piece in pieces:
            place = next(reversed(self._calls), 0) if call_id == SAME_CALL else self._latest.get(call_id, call_id)
            arguments = self._calls.get(place)
            # Whether the piece replaces an empty object that was sent too early.
            is_instead = arguments is not None and not names and replaces(arguments.pieces, piece)
            if whole and (arguments is None or (arguments.pieces and not is_instead)):
                continue
            is_named = 0 < len(self.names) + len(names) - 1 < MOST_CALLS  # the call before, and perhaps this call
            if arguments is not None and names and is_named and arguments.pieces and arguments.is_whole():
                place = self._latest[call_id] = f"{call_id} {len(self._calls)}"
                arguments = None
                if not piece and self.names[-1:] == [names[-1]]:  # the name may only be repeated
                    continue
            if arguments is None:
                if len(self._calls) == MOST_CALLS:
                    self._too_many = True
                    continue
                arguments = self._calls[len(self._calls) if place == WHOLE_CALL else place] = Arguments()
            if is_instead:
                arguments = self._calls[place] = Arguments()
            self._chars += len(piece)
            if piece and self._chars <= MOST_CHARS:
                arguments.pieces.append(piece)

    def named(self, names: Iterable[str]) -> None:
        """Add names of called tools."""
        for name in names:
            if len(self.names) < MOST_CALLS:
                self.names.append(name)

    def number(self) -> int | None:
        """Return the number of calls; None if there are more than ``MOST_CALLS``."""
        return None if self._too_many else len(self._calls)

    def sizes(self) -> tuple[list[int], int]:
        """Return the number of pieces of each call, and the characters of all arguments."""
        return [len(call.pieces) for call in self._calls.values()], self._chars

    @property
    def is_too_long(self) -> bool:
        """Whether not all arguments were kept."""
        return self._too_many or self._chars > MOST_CHARS

    def arguments(self) -> list[str] | None:
        """Return the arguments of each call, in order; None if not all were kept."""
        if self.is_too_long:
            return None
        return ["".join(call.pieces) for call in self._calls.values()]

    def valid(self) -> bool | None:
        """Whether the arguments of all calls are JSON; None if unknown. Empty arguments are valid."""
        arguments = self.arguments()
        return None if arguments is None else all(is_json(text.strip() or "{}") for text in arguments)


# How long an audited loser is watched, and what is recorded about an overtaken one.

AUDIT_S = 30.0  # since its launch: the maximum wait for an audited loser's first token, within its own timeout
AUDIT_TOKENS = 32  # in an exploring race the loser is then watched for this many tokens, for its speed,
AUDIT_TOKENS_S = 10.0  # but no longer than this


class OvertakeTimes(msgspec.Struct, frozen=True):
    """When another attempt won before this one's first token, and when that token was predicted."""

    at: float
    expected_s: float | None = None  # since the launch; only for a primary


class HeardPart(msgspec.Struct, frozen=True):
    """What a listener has of an answer."""

    until: float  # when the voice has said all text that has come
    pause_s: float  # the longest silence: all text that had come was said already
    text_s: float  # how long a voice takes for the text that has come


class SpeechListener:
    """Hears a voice that says the text of an answer as it comes, from the first clause on."""

    __slots__ = ("_new_s", "_text_s", "pause_s", "until")

    def __init__(self) -> None:
        self.until, self.pause_s = 0.0, 0.0  # as of ``HeardPart``
        self._text_s = self._new_s = 0.0

    @property
    def heard(self) -> HeardPart:
        """What the listener has of the answer."""
        return HeardPart(self.until, self.pause_s, self._text_s)

    def add(self, seconds: float) -> None:
        """Add text for which a voice takes ``seconds``; it comes with the next ``hear``."""
        self._text_s += seconds
        self._new_s += seconds

    def restart(self) -> None:
        """Drop the text so far."""
        self._text_s = self._new_s = 0.0

    def hear(self, now: float) -> None:
        """Have the added text come ``now``."""
        if self._new_s:
            self.pause_s = max(self.pause_s, now - self.until)
            self.until = max(now, self.until) + self._new_s
            self._new_s = 0.0

    def go_on(self, now: float, heard: HeardPart, repeated_s: float) -> None:
        """Hear this answer go on ``now`` after the ``heard`` part: all its text but the first ``repeated_s`` of speech.

        The silence until ``now`` is one of this answer.
        """
        self.until, self.pause_s = heard.until, heard.pause_s
        self._new_s = max(0.0, self._text_s - repeated_s)
        self.hear(now)

    def cut(self, now: float) -> None:
        """End the answer ``now``, before it is whole; the silence until ``now`` counts, too."""
        self.pause_s = max(self.pause_s, now - self.until)


class WatchEnd:
    """The end of a watch: a number of tokens, or a time."""

    __slots__ = ("timer", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.timer: asyncio.TimerHandle | None = None

    def cut_in(self, seconds: float, cut: Callable[[Outcome], None], loop: asyncio.AbstractEventLoop) -> None:
        """Cut the attempt after ``seconds``."""
        self.stop()
        self.timer = loop.call_later(seconds, cut, Outcome.LOST)

    def stop(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


# The figures of records are in milliseconds, to the microsecond.


def milliseconds(seconds: float) -> float:
    """Return ``seconds`` in milliseconds, to the microsecond; ``round`` to three digits takes four times as long."""
    return (seconds * 1_000_000 + 0.5) // 1 / 1000


# The gaps between an answer's meaningful chunks: recorded while it streams, and their figures at its end.

MOST_GAPS = 4096  # per answer: 32 kB
LEAST_BUCKET = -56  # the ledger's bucket from 0.078 ms on; shorter gaps, and gaps of 0, count here too

# Of the buckets from the first to the last: the upper end, and the number as JSON.
_UPPER_EDGES_S = (*(edge_s(number - ROUNDING) for number in range(LEAST_BUCKET + 1, BUCKETS)), inf)
_NAMES = tuple(str(number) for number in range(LEAST_BUCKET, BUCKETS))


class GapFigures(msgspec.Struct, frozen=True):
    """The gaps between an answer's meaningful chunks: two quantiles, the longest, and a histogram."""

    p50_ms: float
    p95_ms: float
    max_ms: float
    counts: dict[str, int]  # by number of the ledger's bucket


class Gaps(msgspec.Struct, eq=False):  # a struct, as are its neighbours, is made without a Python call
    """The gaps of one answer, in seconds."""

    together: int = 0  # number of gaps of 0: chunks that arrived with the one before
    _kept: "array[float]" = msgspec.field(default_factory=partial(array, "d"))  # type: ignore[arg-type]  # of floats
    _longest_s: float = 0.0  # of those no longer kept
    _blocked: list[tuple[int, float]] | None = None  # gaps with waits for the client, and the seconds

    def add(self, gap_s: float) -> None:
        """Record a gap. Of very long streams only a sample is kept, with more of the latest gaps."""
        self._kept.append(gap_s)
        if len(self._kept) > MOST_GAPS:
            self._longest_s = max(self._longest_s, *self._kept)
            self._kept, self.together = self._kept[::2], self.together // 2

    def blocked(self, seconds: float) -> None:
        """Record that the client did not read for so many seconds, during the next gap."""
        if self._blocked is None:
            self._blocked = []
        self._blocked.append((len(self._kept), seconds))

    def unblocked(self) -> list[float] | None:
        """Return the gaps in order, less the waits for the client; None without any, or if not all are kept."""
        if not self._kept or self._longest_s:
            return None
        gaps_s = self._kept.tolist()
        for number, seconds in self._blocked or ():
            if number < len(gaps_s):
                gaps_s[number] = max(0.0, gaps_s[number] - seconds)
        return gaps_s

    def figures(self) -> GapFigures | None:
        """Return the figures; None without any gap. Sorts them once."""
        if not self._kept:
            return None
        ordered, none = sorted(self._kept), self.together
        last = len(ordered) + none - 1
        middle, high = round(last * 0.5) - none, round(last * 0.95) - none
        p50_s, p95_s = ordered[middle] if middle >= 0 else 0.0, ordered[high] if high >= 0 else 0.0
        longest_s = max(ordered[-1], self._longest_s)
        return GapFigures(milliseconds(p50_s), milliseconds(p95_s), milliseconds(longest_s), _counts(ordered, none))


def _counts(ordered: list[float], together: int) -> dict[str, int]:
    """Return how many of the ``ordered`` gaps (seconds) fall into each bucket; ``together`` more have length 0.

    One binary search for each bucket in use, not for each gap.
    """
    at = bisect_left(ordered, _UPPER_EDGES_S[0])
    counts = {_NAMES[0]: at + together} if at + together else {}
    while at < len(ordered):
        number = bisect_right(_UPPER_EDGES_S, ordered[at])
        after = bisect_left(ordered, _UPPER_EDGES_S[number], at + 1)
        counts[_NAMES[number]] = after - at
        at = after
    return counts


CHARS_PER_TOKEN = 4  # rule of thumb, if the provider reports no usage
BURST_S = 0.020  # if all deltas arrive within this time, a server had buffered them: their speed is meaningless
BURST_TPS = 5000.0  # a higher speed is meaningless, too: no provider decodes faster
ONE_EACH = 0.1  # tolerated difference between the numbers of tokens and chunks, as a share, if each chunk is a token
SUMMARY_CHARS_PER_TOKEN = 2  # with fewer streamed characters per reasoning token, only a summary was streamed


def estimated_tokens(chars: int) -> int:
    """Return the estimated number of tokens of so many characters."""
    return -(-chars // CHARS_PER_TOKEN)


class CountedTokens(Usage, frozen=True, kw_only=True, gc=False):
    """The token counts of one attempt and their source."""

    source: TokensSource
    reported: int | None = None  # the largest count that the provider reported, if a count is impossibly high


class AnswerMetadata(msgspec.Struct, eq=False):
    """The data in an answer's events besides text: usage, model, finish reason, tool calls."""

    usage: Usage | None = None
    model_version: str | None = None  # the model and the answer's id, as reported by the provider
    answer_id: str | None = None
    fingerprint: str | None = None
    finish_reason: str | None = None
    tool_calls: ToolCalls | None = None
    refused: bool = False
    # Thoughts in the request that the vendor did not show to its model: the check that failed → number of thoughts.
    thoughts_dropped: Mapping[str, int] | None = None

    def note(self, chunk: Chunk) -> None:
        """Keep what one event reports."""
        if chunk.usage is not None:
            self.use(chunk.usage)
        if chunk.model and self.model_version is None:  # Azure's first chunk, about the prompt, has an empty one
            self.model_version, self.answer_id = chunk.model, chunk.id or None
        if chunk.fingerprint and self.fingerprint is None:
            self.fingerprint = chunk.fingerprint
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
        if (chunk.tools and not chunk.whole) or chunk.names or (chunk.tools and self.tool_calls is not None):
            if self.tool_calls is None:
                self.tool_calls = ToolCalls()
            self.tool_calls.add(chunk.tools, chunk.names, whole=chunk.whole)
            self.tool_calls.named(chunk.names)
        if chunk.refused:
            self.refused = True

    def use(self, usage: Usage) -> None:
        """Keep the latest ``usage``."""
        self.usage = usage if self.usage is None else completed(usage, self.usage)


class Measurement:
    """The measurement of one attempt, from its launch."""

    __slots__ = (
        "answer_at",
        "chars",
        "connect_ms",
        "first_at",
        "first_chars",
        "first_chunks",
        "first_event_at",
        "gaps",
        "headers_at",
        "last_at",
        "listener",
        "meaningful",
        "most_tokens",
        "prompt_bytes",
        "reasoning_chars",
        "reported",
        "spoken_at",
        "started",
        "text_at",
        "text_gap_s",
        "valid_at",
    )

    def __init__(self, started: float, most: MostTokens | None = None, prompt_bytes: int | None = None) -> None:
        """``most``: more tokens cannot be true (None: no window is known). ``prompt_bytes``: see ``plausible``."""
        self.started = started
        self.most_tokens = most or UNKNOWN_MOST
        self.prompt_bytes = prompt_bytes
        self.connect_ms: float | None = None
        self.headers_at: float | None = None
        self.first_event_at: float | None = None
        self.first_at: float | None = None  # first meaningful delta
        self.answer_at: float | None = None  # first delta that is not reasoning
        self.spoken_at: float | None = None  # end of the first clause; only looked for with win_on: sentence
        self.valid_at: float | None = None  # when the answer was known to be valid; only with win_on: valid
        self.listener: SpeechListener | None = None  # from the first clause on; only with win_on: sentence
        self.last_at: float | None = None
        self.text_at: float | None = None  # when the latest delta came, if that was text
        self.text_gap_s = -inf  # between two deltas of text, less the time in which the client did not read
        self.meaningful = 0  # chunks with a meaningful delta
        self.chars = 0
        self.first_chunks = 0  # those of ``meaningful`` that arrived together with the first
        self.first_chars = 0
        self.reasoning_chars = 0
        self.gaps = Gaps()
        self.reported = AnswerMetadata()

    def event(self, chunk: Chunk, now: float) -> None:
        """Record one event that arrived at ``now``."""
        if self.first_event_at is None:
            self.first_event_at = now
        self.reported.note(chunk)
        if not chunk.meaningful:
            return
        self.meaningful += 1
        self.chars += chunk.text_chars
        if chunk.reasoning:
            self.reasoning_chars += chunk.text_chars
        if chunk.answer and self.answer_at is None:
            self.answer_at = now
        if self.first_at is None:
            self.first_at = now
        else:
            self.gaps.add(now - (self.last_at or now))
        if now == self.first_at:
            self.first_chunks += 1
            self.first_chars += chunk.text_chars
        self.last_at = now
        is_text = chunk.answer and chunk.text_chars and not (chunk.reasoning or chunk.tools or chunk.names)
        if is_text and self.text_at is not None and now - self.text_at > self.text_gap_s:
            self.text_gap_s = now - self.text_at
        self.text_at = now if is_text else None

    def plain(self, number: int, chars: int, now: float) -> None:
        """Record ``number`` events with about ``chars`` of text in all that arrived together; not the first ones."""
        self.meaningful += number
        self.chars += chars
        if self.answer_at is None:
            self.answer_at = now
        if now == self.first_at:
            self.first_chunks += number
            self.first_chars += chars
        self.gaps.add(now - (self.last_at or now))
        self.gaps.together += number - 1
        self.last_at = now
        if self.text_at is not None and now - self.text_at > self.text_gap_s:
            self.text_gap_s = now - self.text_at
        if number > 1 and self.text_gap_s < 0.0:
            self.text_gap_s = 0.0  # between those that arrived together
        self.text_at = now

    def blocked(self, seconds: float) -> None:
        """Record that the client did not read for so many seconds, during the next gap."""
        self.gaps.blocked(seconds)
        if self.text_at is not None:
            self.text_at += seconds

    @property
    def heard(self) -> "HeardPart | None":
        """What a listener has of the answer; None before the first clause, and with another `win_on`."""
        return None if self.listener is None else self.listener.heard

    def claims_at(self, win_on: WinOn) -> float | None:
        """Return the time of the delta that the attempt can bid with, under ``win_on``; None before that delta."""
        match win_on:
            case WinOn.ANY:
                return self.first_at
            case WinOn.ANSWER:
                return self.answer_at
            case WinOn.SENTENCE:
                return self.spoken_at
            case WinOn.VALID:
                return self.valid_at

    def since_start_ms(self, instant: float | None) -> float | None:
        """Return ``instant`` as milliseconds from the launch."""
        return None if instant is None else ((instant - self.started) * 1_000_000 + 0.5) // 1 / 1000

    def times_ms(self) -> list[float | None]:
        """Return when headers, first event, first delta, first answering delta and last one came, since the launch.

        One call of Python, where ``since_start_ms`` would take five, and a comprehension one more.
        """
        started = self.started
        times_ms: list[float | None] = []
        for at in (self.headers_at, self.first_event_at, self.first_at, self.answer_at, self.last_at):
            times_ms.append(None if at is None else ((at - started) * 1_000_000 + 0.5) // 1 / 1000)  # noqa: PERF401 - as said
        return times_ms

    @property
    def tokens_so_far(self) -> int:
        """The number of tokens that have arrived: the estimate of ``tokens``, or the provider's higher count."""
        usage = self.reported.usage
        estimate = estimated_tokens(self.chars) or self.meaningful
        return estimate if usage is None else max(estimate, usage.completion_tokens or 0)

    def tokens(self) -> CountedTokens | None:
        """Return the token counts: the provider's, or an estimate from the characters; None if there is no answer."""
        usage = self.reported.usage
        if usage is not None and (
            (usage.completion_tokens or 0) * MOST_BYTES_PER_TOKEN < self.chars
            or (usage.prompt_tokens or 0) * MOST_BYTES_PER_TOKEN < (self.prompt_bytes or 0)
        ):
            believed, fewest = without_too_few(usage, self.prompt_bytes, self.chars)
            if fewest is not None:
                return self._estimated(believed, fewest)
        if usage is not None and usage.completion_tokens is not None:
            usage, reported = plausible(usage, self.most_tokens, self.prompt_bytes)
            source = TokensSource.REPORTED if reported is None else TokensSource.IMPLAUSIBLE
            return CountedTokens(*msgspec.structs.astuple(usage), source=source, reported=reported)
        if not self.meaningful:
            return None
        return self._estimated(usage or Usage(), None)

    def _estimated(self, usage: Usage, reported: int | None) -> CountedTokens:
        """Return the token counts of ``usage``; if the answer's is missing there, an estimate."""
        usage, beyond = plausible(usage, self.most_tokens, self.prompt_bytes)
        if usage.completion_tokens is None:
            estimate = estimated_tokens(self.chars) or self.meaningful
            usage = msgspec.structs.replace(usage, completion_tokens=estimate)
        reported = reported if beyond is None else beyond
        return CountedTokens(*msgspec.structs.astuple(usage), source=TokensSource.ESTIMATED, reported=reported)

    def decode_tps(self, tokens: CountedTokens | None) -> float | None:
        """Return (n - n_first) / (t_last - t_first), tokens per second; None if that figure would be meaningless.

        n_first is the number of tokens that arrived with the first: a chunk may contain many.
        """
        if tokens is None or tokens.completion_tokens is None or self.first_at is None or self.last_at is None:
            return None
        n = tokens.completion_tokens
        if tokens.reasoning_tokens:
            if not self.reasoning_chars:
                n -= tokens.reasoning_tokens  # without reasoning that was not streamed, but came before the first delta
            elif self.reasoning_chars < tokens.reasoning_tokens * SUMMARY_CHARS_PER_TOKEN:
                return None
        span_s = self.last_at - self.first_at
        if n <= 1 or self.meaningful < 2 or span_s < BURST_S:  # noqa: PLR2004 - a gap has two ends
            return None
        tps = (n - self._first_tokens(n)) / span_s
        return None if tps > BURST_TPS else round(tps, 3)

    def _first_tokens(self, n: int) -> float:
        """Return how many of ``n`` tokens arrived first: one per chunk if chunks are tokens, else by characters."""
        if abs(self.meaningful - n) <= n * ONE_EACH or not self.chars:
            return max(1, min(self.first_chunks, n))
        return n * self.first_chars / self.chars

    def e2e_tps(self, tokens: CountedTokens | None) -> float | None:
        """Return n / (t_last - t_start), tokens per second."""
        if tokens is None or not tokens.completion_tokens or self.last_at is None or self.last_at <= self.started:
            return None
        return round(tokens.completion_tokens / (self.last_at - self.started), 3)


# Whether a stream dribbled: was for seconds far slower than its deployment's slowest usual answers. Such streams are
# only counted, to learn whether acting would pay. The hot path does nothing for this count: a stream of at least
# ``FOR_S`` is checked once, at its end, by the gaps between its reads, less the time in which the client did not read.

FOR_S = 5.0  # the time for which a stream has to be slow
SHARE = 0.2  # of the speed that 95 of 100 answers of the deployment reach
LATEST, FEWEST = 256, 64  # answers in the quantile; with fewer than ``FEWEST`` the quantile is unknown
QUANTILE = 0.05
MOST_DEPLOYMENTS = 1000  # clients may name deployments of their own


class Dribble(msgspec.Struct, frozen=True):
    """Whether a stream dribbled (None: not known), and when the stream had for ``FOR_S``."""

    found: bool | None = None
    at: float | None = None  # by the gateway's clock


UNKNOWN, NONE = Dribble(), Dribble(found=False)


class Paces:
    """The decode speeds of each deployment's latest answers in this process."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[str, deque[float]] = {}

    def add(self, deployment: str, decode_tps: float) -> None:
        """Add the speed of a complete answer, tokens per second; 0, if the whole answer came at once, is ignored."""
        if decode_tps <= 0.0:
            return
        latest = self._latest.get(deployment)
        if latest is None:
            if len(self._latest) >= MOST_DEPLOYMENTS:
                return
            latest = self._latest[deployment] = deque(maxlen=LATEST)
        latest.append(decode_tps)

    def slowest_usual(self, deployment: str, fewest: int = FEWEST) -> float | None:
        """Return the speed that 95 % of answers reach, tokens per second; None for fewer than ``fewest`` answers."""
        return self._quantile(deployment, QUANTILE, fewest)

    def median(self, deployment: str, fewest: int = FEWEST) -> float | None:
        """Return the speed that half of the answers reach, tokens per second; None as for ``slowest_usual``."""
        return self._quantile(deployment, 0.5, fewest)

    def _quantile(self, deployment: str, share: float, fewest: int) -> float | None:
        latest = self._latest.get(deployment, ())
        return sorted(latest)[int(share * len(latest))] if len(latest) >= fewest else None

    def dribble(self, deployment: str, measurement: Measurement) -> Dribble:
        """Return whether the stream that ends now has dribbled."""
        first_at, last_at = measurement.first_at, measurement.last_at
        if first_at is None or last_at is None or last_at - first_at < FOR_S:
            return NONE
        usual_tps, tps = self.slowest_usual(deployment), measurement.decode_tps(measurement.tokens())
        gaps_s = measurement.gaps.unblocked()
        if usual_tps is None or tps is None or gaps_s is None:
            return UNKNOWN
        after_s = dribbled_after_s(gaps_s, tps * (last_at - first_at) / len(gaps_s), SHARE * usual_tps)
        return NONE if after_s is None else Dribble(found=True, at=first_at + after_s)


def dribbled_after_s(gaps_s: Sequence[float], tokens_per_gap: float, tps: float) -> float | None:
    """Return when the stream had been slower than ``tps`` for ``FOR_S``, in seconds since the first token; None: never.

    Each read counts as many tokens as any other. The gap of a read is the gap before the read.
    """
    most = ceil(tps * FOR_S / tokens_per_gap) - 1  # reads in FOR_S that are too few
    at_s = list(accumulate(gaps_s, initial=0.0))
    for number in range(1, len(at_s)):
        last_but = number - 1 - most  # FOR_S after this read, only ``most`` later ones have come
        slow_at = max(at_s[number - 1], at_s[max(0, last_but)] + FOR_S)
        if slow_at < at_s[number]:
            return slow_at
    return None
