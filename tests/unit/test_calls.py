"""What a call shows of itself in tracebacks, debuggers and logs, and what the outcome of an attempt means."""

from datetime import UTC, datetime

import msgspec
import pytest
from rich.pretty import pretty_repr

from gateway.core.attempts import Outcome, WinOn
from gateway.core.calls import Mode, Objective, RenderedRequest
from gateway.core.prompt_classes import answer_class
from tests.support.calls import made_call

SECRET, PROMPT = "sk-nobody-may-see", "my diagnosis"


@pytest.mark.parametrize("shown", [repr, str, pretty_repr], ids=["repr", "str", "rich"])
def test_a_call_shows_the_names_of_what_is_sent_and_no_text(shown: type[str]) -> None:
    call = made_call(
        id="01",
        received_at=0.0,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        client="app",
        model="llama-3.3-70b",
        endpoint="chat.completions",
        stream=True,
        mode=Mode.RACE,
        objective=Objective.FIRST_TOKEN,
        win_on=WinOn.ANY,
        prompt_class=answer_class(0),
        prompt_tokens=10,
        wants_usage=False,
        fields={"messages": msgspec.Raw(f'"{PROMPT}"'.encode())},
        rendered={"groq": RenderedRequest({"messages": msgspec.Raw(f'"{PROMPT}"'.encode())})},
        headers={"x-goog-api-key": SECRET},
        tags={"team": PROMPT},
        replica="test",
        region=None,
    )
    assert SECRET not in shown(call)
    assert PROMPT not in shown([call])
    assert PROMPT not in shown([call.rendered])
    for name in ("llama-3.3-70b", "chat.completions", "messages", "x-goog-api-key", "app"):
        assert name in shown(call)


@pytest.mark.parametrize(
    ("outcome", "meanings"),
    [
        (Outcome.WON, {"was_sent"}),
        (Outcome.LOST, {"was_cancelled_by_race", "was_cut", "was_sent"}),
        (Outcome.SUPERSEDED, {"was_cancelled_by_race", "was_cut", "was_sent"}),
        (Outcome.CLIENT_GONE, {"client_left", "was_cut", "was_sent"}),
        (Outcome.FAILED, {"failed", "is_error"}),
        (Outcome.TIMEOUT, {"failed", "is_error"}),
        (Outcome.STALLED, {"failed", "is_error"}),
        (Outcome.INTERRUPTED, {"is_error"}),
    ],
)
def test_an_outcome_says_what_it_means(outcome: Outcome, meanings: set[str]) -> None:
    names = ("was_cancelled_by_race", "client_left", "was_cut", "failed", "is_error", "was_sent")
    assert {name for name in names if getattr(outcome, name)} == meanings
