"""An upstream whose answers are odd: the model's name says how, and its prompt when one hangs."""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from providers.simulator import (
    Delta,
    Done,
    Finish,
    Hang,
    Headers,
    JsonEvent,
    Pause,
    ScriptedProvider,
    Status,
    Step,
    ToolCall,
)

MARKUP = "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'> & \u202e"
ENDLESS = "endless"  # it begins, and then says nothing more until its client hangs up
BEGINNING = "Once upon a time"
APART_S: Mapping[str, float] = {"quick": 0.003, "slow": 0.03}  # between the tokens of models that answer at their speed
TOKENS = 30  # of these
HELD = "held"  # both race for it; a first token may wait for a faster answer
HANG = "hang"  # the prompt on which the quick model says nothing until its client hangs up


def _refusal(text: str) -> Step:
    choice = {"index": 0, "delta": {"refusal": text}, "finish_reason": None}
    return JsonEvent({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def _again(gap_s: float) -> Sequence[Step]:
    again: list[Step] = [Pause(gap_s), Delta("again ")]
    return (*again * TOKENS, Finish(), Done())


_SCRIPTS: Mapping[str, Sequence[Step]] = {
    "markup": (Delta(MARKUP), Finish(), Done()),
    "tools": (ToolCall(name="weather", id="c1"), ToolCall('{"city": "Oslo"}'), Finish("tool_calls"), Done()),
    "refusal": (_refusal("I would rather "), _refusal("not."), Finish(), Done()),
    "short": (Delta("Once upon a"), Finish("length"), Done()),
    ENDLESS: (Delta(BEGINNING), Hang()),
    **{name: _again(gap_s) for name, gap_s in APART_S.items()},
}


def _script(body: Any) -> Sequence[Step]:
    if body["model"] == "quick" and body["messages"][-1]["content"] == HANG:
        return (Headers(), Hang())
    return _SCRIPTS.get(body["model"], (Status(500, {"error": {"message": "out of order"}}),))


@contextmanager
def odd_upstream() -> Iterator[str]:
    """Serve it in a thread, as the browser has the loop of this one; yield its base URL. Other models are a 500."""
    loop, provider = asyncio.new_event_loop(), ScriptedProvider()
    provider.answers = _script
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(provider.__aenter__(), loop).result()
        yield provider.base_url
        asyncio.run_coroutine_threadsafe(provider.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def odd_fleet(url: str) -> dict[str, Any]:
    """Return the settings of a gateway that has all its models, at the provider ``odd`` and two with a speed."""
    odd = (*(name for name in _SCRIPTS if name not in APART_S), "down")
    models: dict[str, Any] = {name: {"deployments": [f"odd/{name}"]} for name in odd}
    race = {"mode": "race", "width": 2, "objective": "completion"}
    models[HELD] = {"deployments": [f"{name}/{name}" for name in APART_S], "race": race}
    return {"providers": {name: {"base_url": url, "api_key": "unused"} for name in ("odd", *APART_S)}, "models": models}
