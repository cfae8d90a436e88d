import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.racing import AttemptClocks, Measurement, Pauses
from gateway.racing.measurement import AnswerMetadata
from gateway.racing.reader import AnswerReader
from providers.dialects import CHAT, MESSAGES, Dialect
from tests.unit.racing.track import CLOCKS, DONE, FINISH, ROLE, delta, event, usage

PLAIN = st.text(min_size=1).map(delta)
ODD = st.sampled_from(
    [
        FINISH,
        ROLE,
        usage(),
        b": ping\n\n",
        delta(reasoning_content="hm"),
        delta("text", reasoning="hm"),
        delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}]),
        event(choices=[{"index": 0, "delta": {"content": "x"}}], usage={"completion_tokens": 3}),
        event(choices=[{"index": 0, "delta": {"content": "last"}, "finish_reason": "stop"}]),
        event(choices=[{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]),
        delta("x").replace(b"\n\n", b"\r\n\r\n"),
        delta(refusal="no"),
    ]
)


def read(reads: list[bytes], dialect: Dialect = CHAT) -> tuple[dict[str, Any], list[bool], bytes]:
    """Return what a reader makes of these reads: the measurement, which blocks were plain, what is forwarded."""

    async def main() -> tuple[dict[str, Any], list[bool], bytes]:
        task = asyncio.current_task()
        assert task is not None
        clocks = AttemptClocks(CLOCKS, task, lambda: 0.0, asyncio.get_running_loop(), Pauses())
        measurement = Measurement(0.0)
        reader = AnswerReader(measurement, clocks, answers=dialect.answers, drop_usage=True)
        reader.mask(())
        blocks = [reader.read(data, float(number)) for number, data in enumerate(reads, start=1)]
        clocks.stop()
        facts = {name: getattr(measurement, name) for name in Measurement.__slots__}
        reported = facts.pop("reported")
        facts |= {name: getattr(reported, name) for name in AnswerMetadata.__struct_fields__}
        facts["gaps"] = measurement.gaps.figures()
        facts |= {"finished": reader.finished, "done": reader.done}
        return (
            facts,
            [bool(block.parts) and all(part.chunks is None for part in block.parts) for block in blocks],
            b"".join(block.forward for block in blocks),
        )

    return asyncio.run(main())


def test_no_pattern_is_learnt_from_a_large_event_which_would_take_seconds() -> None:
    small = delta("a") * 20
    _, plain, _ = read([ROLE, delta("a"), small])
    assert plain[-1]
    _, plain, _ = read([ROLE, delta("a" * 100_000), small, small])
    assert plain[-2:] == [False, True]


@given(
    st.lists(st.one_of(PLAIN, ODD), max_size=6),
    st.lists(st.one_of(PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, ODD), max_size=40),
)
def test_a_block_is_understood_as_its_events_are_one_by_one(before: list[bytes], together: list[bytes]) -> None:
    first = [delta("first"), *before]
    as_one, _, forwarded = read([*first, b"".join(together)])
    # The same without the usual blank is never taken for plain, but parsed.
    unusual = [block.replace(b"data: ", b"data:") for block in [*first, b"".join(together)]]
    one_by_one, plain, as_parsed = read(unusual)
    assert not any(plain)
    assert as_parsed.replace(b"data:", b"data: ") == forwarded
    as_one["chars"] = one_by_one["chars"] = 0  # an estimate, see below
    assert as_one == one_by_one


def test_text_and_nothing_else_is_plain_in_either_style_of_json() -> None:
    assert read([delta("a"), delta("b") + delta("c")])[1] == [False, True]
    python_style = delta("b").replace(b'":', b'": ').replace(b',"', b', "')
    assert read([python_style, python_style * 3])[1] == [False, True]


def test_text_that_looks_like_fields_is_still_only_text() -> None:
    tricky = delta('"finish_reason":"stop" "usage":{ "content":""')
    facts, plain, _ = read([delta("a"), tricky])
    assert plain == [False, True]
    assert not facts["finished"]


def test_a_burst_that_holds_the_whole_answer_is_parsed_only_at_its_ends() -> None:
    burst = [ROLE, *(delta(f"text {number}") for number in range(100)), FINISH, usage(), DONE]
    facts, _, forwarded = read([b"".join(burst)])
    assert forwarded == b"".join([*burst[:-2], DONE])
    assert (facts["meaningful"], facts["finished"], facts["done"]) == (100, True, True)
    assert facts["usage"].completion_tokens == 5


def test_events_without_a_blank_line_between_are_set_apart_also_within_a_burst() -> None:
    plain = [delta(f"text {number}") for number in range(40)]
    burst = [ROLE, *plain, FINISH, usage(), DONE]
    run_together = b"".join([ROLE, *plain[:20], plain[20][:-1], *plain[21:], FINISH[:-1], usage()[:-1], DONE])
    facts, _, forwarded = read([run_together])
    assert forwarded == b"".join([*burst[:-2], DONE])
    assert (facts["meaningful"], facts["finished"], facts["done"]) == (40, True, True)
    assert facts["usage"].completion_tokens == 5


@pytest.mark.parametrize("odd", [FINISH, usage(), DONE, b": ping\n\n", event(error={"message": "no"})])
def test_whatever_says_more_than_text_is_parsed(odd: bytes) -> None:
    assert read([delta("a"), delta("b") + odd])[1] == [False, False]


def test_characters_of_plain_blocks_are_counted_by_their_length() -> None:
    facts, plain, _ = read([delta("four"), delta("five5") + delta("sixsix")])
    assert plain == [False, True]
    assert facts["chars"] == 15


def test_chunks_of_plain_blocks_are_valid_json_all_the_same() -> None:
    _, _, forwarded = read([delta("a"), delta("b") + delta("c"), FINISH])
    assert [msgspec.json.decode(item[6:])["object"] for item in forwarded.split(b"\n\n") if item] == [
        "chat.completion.chunk"
    ] * 4


def test_half_a_character_at_the_end_of_a_text_is_told_before_the_next_plain_text() -> None:
    half, other = (delta("HALF").replace(b"HALF", each) for each in (rb"\ud83d", rb"\ude00"))

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        clocks = AttemptClocks(CLOCKS, task, lambda: 0.0, asyncio.get_running_loop(), Pauses())
        reader = AnswerReader(Measurement(0.0), clocks, answers=CHAT.answers, drop_usage=True)
        reader.mask(())
        for following, said in ((other, rb"\ud83d\ude00"), (delta("a"), rb"\ufffda")):
            reader.read(delta("first"), 1.0)
            assert reader.plain(delta("a")) is not None
            reader.read(half, 1.0)
            assert reader.plain(following) is None
            assert b'"%b"' % said in reader.read(following, 1.0).forward
        clocks.stop()

    asyncio.run(main())


@pytest.mark.parametrize("half", [b"event: message_stop\n", b"event: message_stop", b"event: ping\ndat", b"data:"])
def test_an_event_whose_data_did_not_come_is_not_passed_on(half: bytes) -> None:
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
    whole = b"event: message_delta\n" + event(**last)
    facts, _, forwarded = read([whole, half, b""], MESSAGES)
    assert forwarded == whole
    assert facts["finished"]


@pytest.mark.parametrize("rest", [b": bye", b"data: [DONE]", b"id: 7\n"])
def test_what_lacks_only_its_blank_line_is_passed_on(rest: bytes) -> None:
    assert read([FINISH, rest, b""])[2] == FINISH + rest.rstrip() + b"\n\n"


def test_messages_instead_of_deltas_are_passed_on_as_deltas_however_many_follow() -> None:
    texts = [f"text {number}" for number in range(100)]
    messages = [delta(text).replace(b'"delta"', b'"message"') for text in texts]
    facts, plain, forwarded = read([messages[0], messages[1], b"".join(messages[2:]), FINISH, DONE])
    assert forwarded == b"".join([*map(delta, texts), FINISH, DONE])
    assert not any(plain)
    assert (facts["meaningful"], facts["finished"]) == (100, True)


def test_sound_that_ends_without_a_finish_reason_is_whole_and_text_is_not() -> None:
    sound = [ROLE, delta(audio={"id": "a", "data": "AQID"}), delta(audio={"expires_at": 5}), usage()]
    facts, _, forwarded = read([*sound, DONE])
    assert (facts["finished"], facts["finish_reason"]) == (True, "stop")
    assert forwarded.endswith(DONE)
    facts, _, _ = read(sound)
    assert not facts["finished"]
    facts, _, forwarded = read([ROLE, delta("text"), DONE])
    assert not facts["finished"]
    assert DONE not in forwarded
