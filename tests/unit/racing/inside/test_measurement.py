import random
from collections import Counter
from math import inf
from typing import Any

import pytest

from gateway.core.attempts import TokensSource
from gateway.racing import MOST_TOKENS, SURPLUS_TOKENS, Measurement
from gateway.racing.measurement import Gaps
from gateway.racing.plausibility import MOST_ANSWER_TOKENS, MostTokens, most_tokens, plausible
from gateway.steering import edge_s
from gateway.steering.counts import bucket
from providers import Capabilities, Usage
from providers.dialects import read_event
from tests.unit.racing.track import ROLE, delta, event, usage


def measured(*timetable: tuple[float, bytes]) -> Measurement:
    """Return the measurement of an attempt launched at second 10 whose events came so many seconds later."""
    measurement = Measurement(10.0)
    for at, data in timetable:
        measurement.event(read_event(data.removeprefix(b"data: ").strip()), 10.0 + at)
    return measurement


def tps(measurement: Measurement) -> float | None:
    return measurement.decode_tps(measurement.tokens())


def test_ttft_is_the_first_meaningful_delta_from_the_launch() -> None:
    measurement = measured((0.1, ROLE), (0.5, delta("a")), (0.7, delta("b")))
    assert measurement.since_start_ms(measurement.first_event_at) == 100
    assert measurement.since_start_ms(measurement.first_at) == 500
    assert measurement.since_start_ms(measurement.last_at) == 700


def test_the_answers_ttft_leaves_reasoning_out() -> None:
    measurement = measured((0.2, delta(reasoning_content="hm")), (0.9, delta("so")))
    assert measurement.since_start_ms(measurement.first_at) == 200
    assert measurement.since_start_ms(measurement.answer_at) == 900


def test_decode_speed_is_the_tokens_after_the_first_over_the_time_between_first_and_last() -> None:
    measurement = measured((0.5, delta("a")), (1.5, delta("b")), (2.5, delta("c")), (2.6, usage(completion=60)))
    assert tps(measurement) == pytest.approx(20)
    assert measurement.e2e_tps(measurement.tokens()) == pytest.approx(60 / 2.5)


@pytest.mark.parametrize(
    ("why", "timetable"),
    [
        ("one token", [(0.5, delta("a")), (1.5, delta("b")), (1.5, usage(completion=1))]),
        ("one chunk, as of fake streaming", [(0.5, delta("all of it")), (0.5, usage(completion=100))]),
        ("all within 20 ms", [(0.5, delta("a")), (0.519, delta("b")), (0.6, usage(completion=50))]),
        ("faster than any provider", [(0.5, delta("a")), (0.6, delta("b")), (0.7, usage(completion=1200))]),
        ("no token at all", [(0.5, ROLE)]),
    ],
)
def test_decode_speed_is_unknown_when_it_would_say_nothing(why: str, timetable: list[tuple[float, bytes]]) -> None:
    assert tps(measured(*timetable)) is None, why


@pytest.mark.parametrize(
    ("window", "longest", "answers", "most"),
    [
        (None, None, 1, MOST_ANSWER_TOKENS),
        (128_000, None, 1, 128_000),
        (128_000, 16_384, 1, 144_384),
        (128_000, 16_384, 20, 20 * 16_384),  # all of them together
        (None, None, 10**6, MOST_TOKENS),
    ],
)
def test_more_tokens_than_can_be_are_bounded_and_marked(
    window: int | None, longest: int | None, answers: int, most: int
) -> None:
    known = Capabilities(context_tokens=window, max_output_tokens=longest)
    measurement = Measurement(10.0, most_tokens(known, answers))
    for data in (delta("a"), delta("b"), usage(completion=2_000_000_000)):
        measurement.event(read_event(data.removeprefix(b"data: ").strip()), 10.5)
    tokens = measurement.tokens()
    assert tokens is not None
    assert (tokens.completion_tokens, tokens.source) == (most, TokensSource.IMPLAUSIBLE)
    assert measurement.reported.usage is not None
    assert measurement.reported.usage.completion_tokens == 2_000_000_000


@pytest.mark.parametrize(("prompt", "bounded"), [(10**6, 3_000 + SURPLUS_TOKENS), (2 * 1_500 + SURPLUS_TOKENS, None)])
def test_a_prompt_of_text_has_no_more_tokens_than_its_bytes_can_make(prompt: int, bounded: int | None) -> None:
    measurement = Measurement(10.0, prompt_bytes=1_500)
    for data in (delta("a"), usage(prompt=prompt, completion=5)):
        measurement.event(read_event(data.removeprefix(b"data: ").strip()), 10.5)
    tokens = measurement.tokens()
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.completion_tokens) == (bounded or prompt, 5)
    assert tokens.source == (TokensSource.REPORTED if bounded is None else TokensSource.IMPLAUSIBLE)
    assert tokens.reported == (None if bounded is None else prompt)


@pytest.mark.parametrize(
    ("prompt", "completion", "counted", "reported"),
    [
        (0, 0, (None, 50, TokensSource.ESTIMATED), 0),
        (0, 50, (None, 50, TokensSource.ESTIMATED), 0),
        (500, 0, (500, 50, TokensSource.ESTIMATED), 0),
        (1, 1, (None, 50, TokensSource.ESTIMATED), 1),
        (500, 50, (500, 50, TokensSource.REPORTED), None),
        (50, 5, (50, 5, TokensSource.REPORTED), None),  # as few as in a text of spaces: not surely wrong
    ],
)
def test_no_tokens_for_many_words_are_as_unknown_as_without_a_report(
    prompt: int, completion: int, counted: tuple[Any, ...], reported: int | None
) -> None:
    measurement = Measurement(10.0, prompt_bytes=2_500)
    for data in (delta("word " * 40), usage(prompt=prompt, completion=completion)):
        measurement.event(read_event(data.removeprefix(b"data: ").strip()), 10.5)
    tokens = measurement.tokens()
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.completion_tokens, tokens.source) == counted
    assert tokens.reported == reported


def test_a_prompt_that_was_read_from_a_cache_is_counted_with_it() -> None:
    measurement = Measurement(10.0, prompt_bytes=2_500)
    details = {"cached_tokens": 480}
    told = {"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": details}
    for data in (delta("word "), event(choices=[], usage=told)):
        measurement.event(read_event(data.removeprefix(b"data: ").strip()), 10.5)
    tokens = measurement.tokens()
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.cached_tokens, tokens.source) == (2, 480, TokensSource.REPORTED)


@pytest.mark.parametrize("said", [2_000_000_000, 10**30])
def test_what_was_reported_stays_known_as_far_as_json_has_whole_numbers(said: int) -> None:
    measurement = Measurement(10.0)
    for data in (delta("a"), usage(prompt=7, completion=said)):
        measurement.event(read_event(data.removeprefix(b"data: ").strip()), 10.5)
    tokens = measurement.tokens()
    assert tokens is not None
    assert tokens.reported == min(said, 2**53 - 1)


def test_a_prompt_that_cannot_be_is_known_where_the_answer_was_only_estimated() -> None:
    measurement = Measurement(10.0)
    for data in (delta("abcdefgh"), event(choices=[], usage={"prompt_tokens": 2_000_000_000})):
        measurement.event(read_event(data.removeprefix(b"data: ").strip()), 10.5)
    tokens = measurement.tokens()
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.completion_tokens) == (MOST_TOKENS, 2)
    assert (tokens.source, tokens.reported) == (TokensSource.ESTIMATED, 2_000_000_000)


def test_more_searches_and_seconds_than_can_be_are_bounded_and_marked() -> None:
    said = {"web_search": 10**12, "second": 30, "audio_input": 10**12}
    usage, beyond = plausible(Usage(prompt_tokens=7, completion_tokens=2, units=said), MostTokens())
    assert usage.units == {"web_search": 1_000, "second": 30, "audio_input": MOST_TOKENS}
    assert beyond == 10**12
    few = Usage(prompt_tokens=7, completion_tokens=2, units={"web_search": 3})
    assert plausible(few, MostTokens()) == (few, None)


def with_reasoning(reasoning: int, completion: int) -> bytes:
    details = {"reasoning_tokens": reasoning}
    return event(
        choices=[], usage={"prompt_tokens": 1, "completion_tokens": completion, "completion_tokens_details": details}
    )


def test_hidden_reasoning_does_not_count_as_decoded() -> None:
    measurement = measured((5.0, delta("a")), (6.0, delta("b")), (6.0, with_reasoning(900, 940)))
    assert tps(measurement) == pytest.approx(20)


def test_streamed_reasoning_counts_as_decoded() -> None:
    thought = delta(reasoning="x" * 200)
    measurement = measured((1.0, thought), (2.0, delta("b" * 200)), (2.0, with_reasoning(50, 100)))
    assert tps(measurement) == pytest.approx(50)


def test_summarised_thinking_makes_the_speed_unknown() -> None:
    measurement = measured((1.0, delta(reasoning="in short")), (2.0, delta("b")), (2.0, with_reasoning(500, 600)))
    assert tps(measurement) is None


def test_tokens_are_estimated_from_characters_when_nobody_reports_them() -> None:
    tokens = measured((0.5, delta("four")), (0.6, delta("fours"))).tokens()
    assert tokens is not None
    assert (tokens.completion_tokens, tokens.source) == (3, TokensSource.ESTIMATED)


def test_reported_tokens_are_taken_as_they_are() -> None:
    tokens = measured((0.5, delta("four")), (0.6, usage(prompt=7, completion=9))).tokens()
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.completion_tokens, tokens.source) == (7, 9, TokensSource.REPORTED)


def test_gaps_are_those_between_meaningful_chunks() -> None:
    measurement = measured((0.5, delta("a")), (0.6, ROLE), (0.7, delta("b")), (1.2, delta("c")))
    gaps = measurement.gaps.figures()
    assert gaps is not None
    assert (gaps.p50_ms, gaps.p95_ms, gaps.max_ms) == (pytest.approx(200), pytest.approx(500), pytest.approx(500))
    assert measured((0.5, delta("a"))).gaps.figures() is None


def test_tokens_read_from_a_cache_and_written_to_it_are_kept_apart() -> None:
    details = {"cached_tokens": 6, "cache_write_tokens": 3}
    counts = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": details}
    reported = event(choices=[], usage=counts)
    tokens = measured((0.5, delta("a")), (0.6, reported)).tokens()
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.cached_tokens, tokens.cache_write_tokens) == (9, 6, 3)


WORDS = (" a", " the", " to", " racing", " first", " provider", ".", "ing", " o", " leaderboard")


@pytest.mark.parametrize("per_chunk", [1, 2, 8, 32])
@pytest.mark.parametrize("seed", range(3))
def test_decode_speed_is_the_models_however_many_tokens_come_in_a_chunk(per_chunk: int, seed: int) -> None:
    chance = random.Random(seed)
    off = []
    for _ in range(60):
        speed, n = chance.uniform(20, 200), chance.randrange(2 * per_chunk + 20, 600)
        words = [chance.choice(WORDS) for _ in range(n)]
        chunks = [
            (0.3 + min(n, at + per_chunk) / speed, delta("".join(words[at : at + per_chunk])))
            for at in range(0, n, per_chunk)
        ]
        found = tps(measured(*chunks, (chunks[-1][0], usage(completion=n))))
        assert found is not None
        off.append(abs(found / speed - 1))
    off.sort()
    assert off[30] < 0.03
    assert off[57] < 0.10


def test_what_comes_with_the_first_delta_is_not_decoded_after_it() -> None:
    together = [(0.5, delta("four")), (0.5, delta("four")), (0.5, delta("four"))]
    measurement = measured(*together, (1.5, delta("four")), (1.5, usage(completion=40)))
    assert tps(measurement) == pytest.approx(10)
    assert (measurement.chars, measurement.first_chars, measurement.first_chunks) == (16, 12, 3)


def test_sounds_have_no_characters_and_only_their_first_chunk_is_taken_off() -> None:
    sound = delta(audio={"data": "aGk="})
    measurement = measured((0.5, sound), (1.5, sound), (1.5, usage(completion=41)))
    assert tps(measurement) == pytest.approx(40)


def counted(*gaps_s: float) -> dict[str, int]:
    """Return how an answer's gaps are counted that are so long."""
    gaps = Gaps()
    for gap_s in gaps_s:
        gaps.add(gap_s)
    figures = gaps.figures()
    assert figures is not None
    return figures.counts


def test_gaps_are_counted_by_the_ledgers_buckets() -> None:
    times = [0.5, 0.5, 0.505, 0.525, 0.545, 1.545, 1000.0]
    measurement = measured(*((at, delta("a")) for at in times))
    measurement.plain(3, 9, 1010.0)
    gaps = measurement.gaps.figures()
    assert gaps is not None
    assert gaps.counts == {"-56": 4, "-8": 1, str(bucket(0.02)): 2, str(bucket(1.0)): 1, "111": 1}


def test_gaps_of_ten_milliseconds_and_more_are_counted_in_the_leaderboards_buckets() -> None:
    chance = random.Random(1)
    gaps_s = [0.01 * 2 ** chance.uniform(0, 16) for _ in range(2000)] + [edge_s(number) for number in range(112)]
    assert counted(*gaps_s) == Counter(str(bucket(gap_s)) for gap_s in gaps_s)


def test_a_shorter_gap_is_counted_in_the_bucket_that_it_lies_in() -> None:
    for number in range(-56, 0):
        assert counted(edge_s(number), edge_s(number + 0.99)) == {str(number): 2}


@pytest.mark.parametrize("gap_s", [0.0, 1e-9, 0.00005, 0.01 * 2**-7])
def test_what_is_too_short_to_tell_apart_is_counted_in_the_lowest_bucket(gap_s: float) -> None:
    assert counted(gap_s) == {"-56": 1}


def test_of_short_gaps_the_quantiles_of_an_answer_are_exact() -> None:
    gaps = Gaps()
    for gap_s in (0.001, 0.0021, 0.0034):
        gaps.add(gap_s)
    figures = gaps.figures()
    assert figures is not None
    assert (figures.p50_ms, figures.p95_ms, figures.max_ms) == (2.1, 3.4, 3.4)


CALLED = delta(tool_calls=[{"index": 0, "id": "t", "function": {"name": "weather", "arguments": "{}"}}])


@pytest.mark.parametrize(
    ("timetable", "gap_s"),
    [
        ([(0.5, ROLE), (0.6, delta("a")), (0.7, delta("b")), (2.0, delta("c")), (2.1, delta("d"))], 1.3),
        ([(0.5, delta(reasoning_content="hm")), (40.5, delta("a")), (40.6, delta("b"))], 0.1),
        ([(0.5, delta("a")), (0.7, delta("b")), (9.0, delta(reasoning_content="hm")), (20.0, delta("c"))], 0.2),
        ([(0.5, delta("a")), (0.7, delta("b")), (9.0, CALLED), (20.0, delta("c"))], 0.2),
        ([(0.5, delta("a")), (0.6, ROLE), (0.9, delta("b")), (0.9, delta("c"))], 0.4),
        ([(0.5, delta("a")), (9.0, usage())], None),
        ([(0.5, delta("a")), (9.0, CALLED)], None),
    ],
)
def test_the_longest_gap_of_the_text_leaves_out_what_lies_beside_thinking_and_tools(
    timetable: list[tuple[float, bytes]], gap_s: float | None
) -> None:
    found = measured(*timetable).text_gap_s
    assert found == (-inf if gap_s is None else pytest.approx(gap_s))


def test_text_that_is_not_parsed_event_by_event_is_text_too() -> None:
    measurement = measured((0.5, delta("a")), (0.7, delta("b")))
    measurement.plain(5, 20, 13.2)
    measurement.event(read_event(delta("c").removeprefix(b"data: ").strip()), 13.3)
    assert measurement.text_gap_s == pytest.approx(2.5)


def test_the_time_in_which_the_client_did_not_read_is_no_gap_of_the_text() -> None:
    measurement = measured((0.5, delta("a")), (1.0, delta("b")))
    measurement.blocked(30.0)
    measurement.event(read_event(delta("c").removeprefix(b"data: ").strip()), 41.3)
    assert measurement.text_gap_s == pytest.approx(0.5)
    measurement.event(read_event(delta("d").removeprefix(b"data: ").strip()), 43.3)
    assert measurement.text_gap_s == pytest.approx(2.0)
