"""Calls of ``holeshot tail``, out of the events that the gateway itself makes."""

from typing import Any

import msgspec

from gateway.cli.tail import TailedCall, ended_calls
from gateway.live.events import (
    Began,
    CallDone,
    Ended,
    Event,
    First,
    Gap,
    Hello,
    Launched,
    RunningAttempt,
    RunningCall,
    Tokens,
)

BEGAN: dict[str, Any] = {
    "at_ms": 1_700_000_000_000, "client": "app", "model": "chat", "endpoint": "chat", "streamed": True, "mode": "race",
    "objective": "latency", "replica": "r", "worker": "w",
}  # fmt: skip


def told(*events: Event) -> list[tuple[str, Any]]:
    return [(each.kind, msgspec.to_builtins(each)) for each in events]


def began(call: str, **changed: Any) -> Began:
    return Began(id=call, **(BEGAN | changed))


def launched(call: str, attempt: str, deployment: str) -> Launched:
    return Launched(
        call=call,
        attempt=attempt,
        number=1,
        deployment=deployment,
        provider="p",
        role="primary",
        at_ms=1,
        offset_ms=0.0,
    )


def race(call: str) -> list[tuple[str, Any]]:
    """A race that groq wins after 120 ms, in which fireworks is cut."""
    return told(
        began(call),
        launched(call, f"{call}1", "groq/x"),
        launched(call, f"{call}2", "fireworks/x"),
        First(call=call, attempt=f"{call}1", ttft_ms=120.0),
        Ended(call=call, attempt=f"{call}2", outcome="lost", ms=121.0, tokens=None, error=None),
        Tokens(v=((f"{call}1", 3),)),
        Ended(call=call, attempt=f"{call}1", outcome="won", ms=900.0, tokens=40, error=None),
        CallDone(
            id=call,
            status=200,
            winner=f"{call}1",
            ttft_ms=121.0,
            total_ms=1900.0,
            completion_tokens=40,
            cost_usd=0.0004,
        ),
    )


def test_a_call_is_a_line_with_its_attempts_once_it_has_ended() -> None:
    (call,) = ended_calls(race("a"))
    assert isinstance(call, TailedCall)
    line = call.line().plain
    assert " 200 chat app  121 ms first, 1.90 s in all, 40 tok, $0.0004  | " in line
    assert line.endswith("groq/x won 120 ms, fireworks/x cancelled 121 ms")
    assert not call.failed
    as_dict = call.as_dict()
    assert (as_dict["id"], as_dict["model"], as_dict["status"]) == ("a", "chat", 200)
    assert [(each["deployment"], each["outcome"]) for each in as_dict["attempts"]] == [
        ("groq/x", "won"),
        ("fireworks/x", "lost"),
    ]


def test_a_failed_call_says_why_and_what_comes_from_outside_cannot_command_the_terminal() -> None:
    (call,) = ended_calls(
        told(
            began("b", client="\x1b[2J"),
            launched("b", "b1", "groq/x"),
            Ended(call="b", attempt="b1", outcome="failed", ms=40.0, tokens=None, error="server_error"),
            CallDone(id="b", status=502, error="all_providers_failed", total_ms=41.0),
        )
    )
    assert isinstance(call, TailedCall)
    assert call.failed
    assert "\x1b" not in call.line().plain
    assert call.line().plain.endswith(
        " first, 41 ms in all  all_providers_failed  | groq/x failed 40 ms (server_error)"
    )


def test_calls_that_run_at_the_start_are_shown_with_what_they_had() -> None:
    attempt = RunningAttempt(**msgspec.structs.asdict(launched("c", "c1", "groq/x")), ttft_ms=80.0, tokens=2)
    running = RunningCall(id="c", **BEGAN, attempts=(attempt,))
    hello = Hello(scope="process", replica="r", worker="w", now_ms=1, running=(running,))
    (call,) = ended_calls(told(hello, CallDone(id="c", status=200)))
    assert isinstance(call, TailedCall)
    assert call.line().plain.endswith("groq/x running 80 ms")


def test_dropped_events_are_told_and_calls_that_ended_meanwhile_are_forgotten() -> None:
    events = [
        *told(began("d"), began("e"), Gap(dropped=7, running=("e",))),
        *told(CallDone(id="d"), CallDone(id="e", status=200)),
    ]
    words, call = ended_calls(events)
    assert words == "7 events were dropped: calls end faster than they are read"
    assert isinstance(call, TailedCall)
    assert call.done["id"] == "e"


def test_after_a_lost_connection_nothing_old_is_shown() -> None:
    events = [*told(began("f")), ("lost", "the gateway has closed the stream"), *told(CallDone(id="f")), *race("g")]
    words, call = ended_calls(events)
    assert words == "the gateway has closed the stream; trying again"
    assert isinstance(call, TailedCall)
    assert call.done["id"] == "g"
