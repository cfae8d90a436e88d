import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.racing import AttemptClocks, Block, Measurement, Pauses
from gateway.racing.reader import LONG_BYTES, AnswerReader
from providers import UpstreamError, events
from providers.dialects import CHAT
from tests.unit.racing.track import CLOCKS, DONE, FINISH, delta, event, usage

TEXT = "long " * LONG_BYTES
LONG = delta(TEXT)
KEY = "sk-0123456789abcdef"
PLAIN = delta("a") + delta("b")
STREAMS = {
    "an answer": [LONG + FINISH + usage() + DONE],
    "a long event behind plain ones": [delta("a"), PLAIN, LONG, FINISH + DONE],
    "a long run of plain ones": [delta("a"), PLAIN * 2000, FINISH + DONE],
    "pieces": [LONG[:70_000], LONG[70_000:900_000], LONG[900_000:] + FINISH[:5], FINISH[5:] + DONE],
    "carriage returns": [LONG.replace(b"\n", b"\r\n") + FINISH, DONE],
    "comments and names": [b": hm\n\nevent: x\n" + LONG + FINISH + DONE],
    "more behind the end": [LONG + FINISH + DONE + delta("more")],
    "another's end": [LONG + FINISH + b"data:[DONE]\n\n"],
    "half a character": [delta("HALF").replace(b"HALF", rb"\ud83d") + LONG + FINISH + DONE],
    "a key beside the text": [LONG.replace(b'"id":"', b'"id":"%b' % KEY.encode(), 1) + FINISH + DONE],
    "an error behind it": [LONG + event(error={"message": "no", "code": 500}) + DONE],
    "no JSON behind it": [LONG + b"data: {\n\n" + DONE],
    "no end": [LONG, LONG.rstrip(b"\n"), b""],
}

Read = Callable[[AnswerReader, bytes, float], Awaitable[Block]]


async def at_once(reader: AnswerReader, data: bytes, now: float) -> Block:
    return reader.read(data, now)


async def aside(reader: AnswerReader, data: bytes, now: float) -> Block:
    return await reader.read_long(data, now)


async def told(reads: list[bytes], read: Read) -> tuple[object, ...]:
    """Return all that a reader tells of these reads."""
    task = asyncio.current_task()
    assert task is not None
    clocks = AttemptClocks(CLOCKS, task, lambda: 0.0, asyncio.get_running_loop(), Pauses())
    measurement = Measurement(0.0)
    reader = AnswerReader(measurement, clocks, answers=CHAT.answers, drop_usage=True)
    reader.mask((KEY,))
    blocks = [await read(reader, data, float(number)) for number, data in enumerate(reads)]
    clocks.stop()
    errors = [block.error and (block.error.kind, str(block.error)) for block in blocks]
    forwards = [(block.forward, b"".join(part.data for part in block.parts)) for block in blocks]
    facts = measurement.chars, measurement.meaningful, measurement.first_at, measurement.last_at, reader.finished
    return forwards, errors, facts, reader.done


@pytest.mark.parametrize("name", STREAMS)
def test_a_long_event_says_the_same_in_a_thread_as_at_once(name: str) -> None:
    async def main() -> None:
        assert await told(STREAMS[name], aside) == await told(STREAMS[name], at_once)

    asyncio.run(main())


def test_other_tasks_go_on_while_a_long_event_is_looked_at() -> None:
    async def main() -> None:
        turns = 0
        reading = asyncio.create_task(told([LONG * 8], aside))
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 2

    asyncio.run(main())


def test_a_long_event_of_too_many_values_is_an_error_of_its_stream() -> None:
    async def main() -> None:
        values = b'data: {"x":[%b1]}\n\n' % (b"1," * 1_000_001)
        with pytest.raises(UpstreamError, match="more than 1000000 values"):
            await told([values], aside)

    asyncio.run(main())


def test_the_events_of_a_long_block_are_those_of_a_short_one() -> None:
    for block in (LONG + FINISH + DONE, LONG + b": hm\n\n" + DONE, LONG + b"data: {}", b"event: x\n" + LONG):
        found = events(block)
        assert b"".join(each.raw for each in found) == block
        short = events(block.replace(TEXT.encode(), b"short"))
        assert [each.data.replace(TEXT.encode(), b"short") for each in found] == [each.data for each in short]
        assert [each.is_one_line for each in found] == [each.is_one_line for each in short]
