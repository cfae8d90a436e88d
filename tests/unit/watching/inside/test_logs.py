"""The log line of a call, and its order among the others."""

import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import structlog

from gateway.watching import LogLines, logs
from gateway.watching.logs import WAITING_BYTES
from tests.unit.ledger.records import call, failed, new_id, raced_call


class Written:
    """What a process that logs has on its standard error."""

    def __init__(self, lines: LogLines, path: Path) -> None:
        self.lines = lines
        self._path = path

    @property
    def text(self) -> str:
        assert self.lines.drain(limit_s=20)
        return self._path.read_text(encoding="utf-8")

    @property
    def events(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.text.splitlines()]


Configured = Callable[[str, Literal["console", "json"]], Written]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Configured]:
    """Configures the log as a process does, to be put back; returns what is then written to its standard error."""
    root = logging.getLogger()
    path = tmp_path / "stderr"

    def configure(level: str, style: Literal["console", "json"]) -> Written:
        monkeypatch.setattr(sys, "stderr", stream)
        lines = logs.configure(level, style)
        logs.take_standard_error(lines)
        return Written(lines, path)

    with path.open("w", encoding="utf-8") as stream:
        yield configure
        for handler in root.handlers:
            handler.flush()


def test_the_line_of_a_call_says_what_became_of_it(configured: Configured) -> None:
    written = configured("info", "json")
    record = raced_call(completion_tokens=21)
    logs.CallLog().call_finished(record)
    [line] = written.events
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "id": record.id, "model": "llama", "status": 200, "mode": "auto", "launched": 2, "winner": "groq/llama",
        "ttft_ms": 200.0, "total_ms": 900.0, "decode_tps": 60.0, "tokens": 21, "client": "tests",
        "event": "call.finished", "level": "info",
    }  # fmt: skip


def test_a_call_that_failed_names_its_causes(configured: Configured) -> None:
    written = configured("info", "json")
    logs.CallLog().call_finished(call(failed(new_id()), client=None))
    [line] = written.events
    assert (line["winner"], line["error_kind"], line["causes"]) == (None, "server_error", ["groq/llama:server_error"])
    assert "client" not in line


def test_where_people_read_the_line_looks_like_the_others_and_comes_at_once(configured: Configured) -> None:
    written = configured("info", "console")
    record = raced_call()
    logs.CallLog().call_finished(record)
    text = written.text
    assert "call.finished" in text
    assert record.id in text
    assert text.count("\n") == 1


def test_a_log_that_is_to_be_quiet_has_no_lines_of_calls(configured: Configured) -> None:
    written = configured("warning", "json")
    logs.CallLog().call_finished(raced_call())
    assert written.events == []


async def test_lines_keep_their_order_whoever_writes_them(configured: Configured) -> None:
    written = configured("info", "json")
    log, calls = structlog.get_logger(), logs.CallLog()
    log.info("first")
    calls.call_finished(raced_call())
    calls.call_finished(raced_call())
    log.info("fourth")
    calls.call_finished(raced_call())
    logging.getLogger("foreign").warning("sixth")
    assert [line["event"] for line in written.events] == [
        "first", "call.finished", "call.finished", "fourth", "call.finished", "sixth",
    ]  # fmt: skip


def test_the_end_of_the_process_waits_for_what_is_held(configured: Configured, tmp_path: Path) -> None:
    configured("info", "json")
    logs.CallLog().call_finished(raced_call())
    logging.shutdown()
    assert b"call.finished" in (tmp_path / "stderr").read_bytes()


def test_what_python_itself_says_goes_the_same_way_line_by_line_and_masked(configured: Configured) -> None:
    written = configured("info", "json")
    structlog.get_logger().info("first")
    sys.stderr.write("a key: hs-0123456789abcdef\nand \x1b[31mred")
    structlog.get_logger().info("second")
    sys.stderr.flush()
    assert [line for line in written.text.splitlines() if "event" not in line] == ["a key: ***", "and \\x1b[31mred"]
    assert written.text.splitlines()[1] == "a key: ***"


def test_what_is_dropped_is_announced_as_any_event_is(configured: Configured) -> None:
    written = configured("info", "json")
    log, calls = structlog.get_logger(), logs.CallLog()
    log.error("far too long", problem="x" * WAITING_BYTES)
    assert calls.dropped == 1
    log.info("next")
    first, second = written.events
    assert first["event"] == "next"
    assert second.pop("timestamp").endswith("Z")
    assert second == {
        "event": "log.lines_dropped", "level": "warning", "lines": 1, "effect": "no process read standard error",
    }  # fmt: skip


@pytest.mark.parametrize("style", ["console", "json"])
def test_what_others_say_cannot_steer_the_terminal_that_shows_the_log(
    configured: Configured, style: Literal["console", "json"]
) -> None:
    written = configured("info", style)
    evil = "\x1b[2J \x9b2J \u202eright to left \x7f"
    structlog.get_logger().info("theirs", problem=evil, list=[evil], error=ValueError(evil))
    logging.getLogger("foreign").warning("said %s", evil)
    structlog.get_logger().error("failed", exc_info=ValueError(evil))
    shown = re.sub(r"\x1b\[\d*m", "", written.text)  # colours are ours
    assert "theirs" in shown
    assert "right to left" in shown
    assert not set(shown) & set("\x1b\x9b\u202e\x7f")
    if style == "json":
        assert written.events[0]["problem"] == evil


def test_a_key_in_any_field_is_masked(configured: Configured) -> None:
    written = configured("info", "json")
    key = "hs-" + "aB3_" * 10
    structlog.get_logger().info("theirs", path=f"/v1/models/{key}", names=[key], facts={"key": key}, error=key)
    assert written.events[0]["path"] == "/v1/models/***"
    assert key not in written.text
