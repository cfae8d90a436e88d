"""The log line of a call, and its order among the others."""

import asyncio
import io
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
import pytest
import structlog

from gateway.watching import logs
from gateway.watching.lines import HELD_BYTES, Lines
from tests.unit.ledger.records import call, failed, new_id, raced_call

Configured = Callable[[str, Literal["console", "json"]], io.TextIOWrapper]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Configured]:
    """Configures the log as a process does, to be put back; returns what is then its standard error."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def configure(level: str, style: Literal["console", "json"]) -> io.TextIOWrapper:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        monkeypatch.setattr(sys, "stderr", stream)
        logs.configure(level, style)
        return stream

    yield configure
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def written(stream: io.TextIOWrapper) -> list[dict[str, Any]]:
    assert isinstance(stream.buffer, io.BytesIO)
    return [msgspec.json.decode(line) for line in stream.buffer.getvalue().splitlines()]


def test_the_line_of_a_call_says_what_became_of_it(configured: Configured) -> None:
    stream = configured("info", "json")
    record = raced_call(completion_tokens=21)
    logs.CallLog().call_finished(record)
    [line] = written(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "id": record.id, "model": "llama", "status": 200, "mode": "auto", "launched": 2, "winner": "groq/llama",
        "ttft_ms": 200.0, "total_ms": 900.0, "decode_tps": 60.0, "tokens": 21, "client": "tests",
        "event": "call.finished", "level": "info",
    }  # fmt: skip


def test_a_call_that_failed_names_its_causes(configured: Configured) -> None:
    stream = configured("info", "json")
    logs.CallLog().call_finished(call(failed(new_id()), client=None))
    [line] = written(stream)
    assert (line["winner"], line["error_kind"], line["causes"]) == (None, "server_error", ["groq/llama:server_error"])
    assert "client" not in line


def test_where_people_read_the_line_looks_like_the_others_and_comes_at_once(configured: Configured) -> None:
    stream = configured("info", "console")
    record = raced_call()
    logs.CallLog().call_finished(record)
    assert isinstance(stream.buffer, io.BytesIO)
    text = stream.buffer.getvalue().decode()
    assert "call.finished" in text
    assert record.id in text
    assert text.count("\n") == 1


def test_a_log_that_is_to_be_quiet_has_no_lines_of_calls(configured: Configured) -> None:
    stream = configured("warning", "json")
    logs.CallLog().call_finished(raced_call())
    assert written(stream) == []


async def test_lines_keep_their_order_whoever_writes_them(configured: Configured) -> None:
    stream = configured("info", "json")
    log, calls = structlog.get_logger(), logs.CallLog()
    log.info("first")
    calls.call_finished(raced_call())
    calls.call_finished(raced_call())
    log.info("fourth")
    calls.call_finished(raced_call())
    logging.getLogger("foreign").warning("sixth")
    assert [line["event"] for line in written(stream)] == [
        "first", "call.finished", "call.finished", "fourth", "call.finished", "sixth",
    ]  # fmt: skip


async def test_the_end_of_the_process_writes_what_is_held(configured: Configured) -> None:
    stream = configured("info", "json")
    logs.CallLog().call_finished(raced_call())
    assert written(stream) == []
    logging.shutdown()
    assert len(written(stream)) == 1


async def test_a_line_on_its_own_is_written_soon() -> None:
    reading, writing = os.pipe()
    with open(writing, "w", encoding="utf-8") as stream, open(reading, "rb") as arrived:  # noqa: ASYNC230, PTH123 - a pipe
        Lines(stream).hold(b"alone\n")
        assert not select.select([arrived], [], [], 0)[0]
        assert await asyncio.to_thread(arrived.readline) == b"alone\n"


async def test_what_is_written_at_once_fits_into_a_pipe_whole() -> None:
    class Raw(io.RawIOBase):
        sizes: list[int] = []  # noqa: RUF012 - of this test alone

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.sizes.append(len(data))
            return len(data)

    lines = Lines(io.TextIOWrapper(io.BufferedWriter(Raw(), 1 << 20), encoding="utf-8"))
    for _ in range(1000):
        lines.hold(b"x" * 299 + b"\n")
    lines.flush()
    assert sum(Raw.sizes) == 300_000
    assert max(Raw.sizes) <= HELD_BYTES
    assert len(Raw.sizes) == -(-1000 // (HELD_BYTES // 300))


def test_without_a_loop_a_line_is_written_at_once() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Lines(stream).hold(b"{}\n")
    assert written(stream) == [{}]
