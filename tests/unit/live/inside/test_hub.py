"""What is known of calls while somebody looks: nothing of it outlives its call."""

import gc

from gateway.live.events import Began, CallDone, Ended, First, Launched
from gateway.live.hub import Hub, Lane, WatchedCall


def began(name: str) -> Began:
    return Began(
        id=name, at_ms=1, client=None, model="m", endpoint="chat.completions", streamed=True, mode="race",
        objective="reading", replica="r", worker="w",
    )  # fmt: skip


def launched(call: str, attempt: str) -> Launched:
    return Launched(
        call=call, attempt=attempt, number=1, deployment="a/m", provider="a", role="primary", at_ms=1, offset_ms=0.0
    )


def ended(call: str, attempt: str) -> Ended:
    return Ended(call=call, attempt=attempt, outcome="won", ms=1.0, tokens=1, error=None)


def known() -> int:
    return sum(isinstance(each, Lane | WatchedCall) for each in gc.get_objects())


def test_a_call_that_is_over_is_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        hub, before = Hub(), known()
        hub.began(began("c"))
        hub.launched(launched("c", "a"))
        hub.first(First(call="c", attempt="a", ttft_ms=1.0))
        hub.ended(ended("c", "a"))
        assert known() == before + 2
        hub.done(CallDone(id="c", status=200))
        assert len(hub) == 0
        assert known() == before
        hub.began(began("lost"))
        hub.launched(launched("lost", "b"))
        call = hub.call("lost")
        assert call is not None
        hub.lost(call)
        del call
        assert known() == before
    finally:
        gc.enable()


def test_an_audited_loser_keeps_its_call_known_until_it_ends() -> None:
    hub = Hub()
    hub.began(began("c"))
    for attempt in ("winner", "audited"):
        hub.launched(launched("c", attempt))
    hub.ended(ended("c", "winner"))
    hub.done(CallDone(id="c", status=200))
    assert len(hub) == 1
    hub.ended(ended("c", "audited"))
    assert len(hub) == 0
    hub.ended(ended("c", "audited"))  # of nobody who is known
