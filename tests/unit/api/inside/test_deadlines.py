"""When a request wants its first token, and how fast the later ones: what its headers say."""

import pytest

from gateway.api import RaceOverride
from gateway.api.overrides import NOTHING, read_deadlines, tightened
from gateway.api.preferences import Preferences
from gateway.core.calls import Mode
from gateway.core.errors import InvalidRequest

OURS, TTFT, TPOT = "x-holeshot-deadline-ms", "x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms"


@pytest.mark.parametrize(
    ("headers", "race"),
    [
        ({OURS: "800"}, RaceOverride(ttft_ms=800)),
        ({OURS: " 800.5 "}, RaceOverride(ttft_ms=800.5)),
        ({TTFT: "300"}, RaceOverride(ttft_ms=300)),
        ({TPOT: "20"}, RaceOverride(min_tok_s=50)),
        ({OURS: "800", TTFT: "300"}, RaceOverride(ttft_ms=300)),
        ({OURS: "200", TTFT: "300", TPOT: "10"}, RaceOverride(ttft_ms=200, min_tok_s=100)),
    ],
)
def test_headers_say_when_the_first_token_is_wanted_and_how_fast_the_rest(
    headers: dict[str, str], race: RaceOverride
) -> None:
    assert read_deadlines(headers) == race


def test_without_headers_nothing_is_asked() -> None:
    assert read_deadlines({"x-holeshot-tags": "a=b"}) is NOTHING
    assert tightened(RaceOverride(width=3), NOTHING) == RaceOverride(width=3)
    assert tightened(Preferences(ttft_ms=900, only=("a",)), RaceOverride(ttft_ms=400)) == Preferences(
        ttft_ms=400, only=("a",)
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (OURS, "soon", "number of milliseconds"),
        (OURS, "", "number of milliseconds"),
        (OURS, "-5", "number of milliseconds"),
        (OURS, "nan", "number of milliseconds"),
        (OURS, "1e9", "number of milliseconds"),
        (OURS, "1_000", "number of milliseconds"),
        (OURS, "٣٠٠", "number of milliseconds"),
        (OURS, "9.9", "at least 10, not 9.9"),
        (TTFT, "0", "at least 10, not 0"),
        (TPOT, "0.1", "at least 0.2, not 0.1"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_headers_name(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_deadlines({name: value})
    assert refused.value.param == name
    assert words in refused.value.message


def test_of_a_header_and_the_body_the_stricter_holds() -> None:
    asked = RaceOverride(mode=Mode.HEDGE, ttft_ms=500, min_tok_s=60)
    assert tightened(asked, RaceOverride(ttft_ms=800, min_tok_s=50)) == asked
    stricter = RaceOverride(mode=Mode.HEDGE, ttft_ms=200, min_tok_s=90)
    assert tightened(asked, RaceOverride(ttft_ms=200, min_tok_s=90)) == stricter
    assert tightened(RaceOverride(), RaceOverride(ttft_ms=200)) == RaceOverride(ttft_ms=200)
