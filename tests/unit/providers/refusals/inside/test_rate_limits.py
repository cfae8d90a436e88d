"""How long to stay away, in each dialect it is told in. Capped at a minute."""

import pytest

from providers.refusals import headroom
from providers.refusals.rate_limits import parse_delay_s, retry_after_s

NOW_S = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "delay_s"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:30 GMT"}, 10),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "86400"}, 60),
        ({"x-ratelimit-reset-requests": "1m2s"}, 60),
        ({"x-ratelimit-reset-tokens": "7.66s"}, 7.66),
        ({"x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:50Z"}, 30),
        ({"x-ratelimit-reset": "1700000005"}, 5),
        ({"x-ratelimit-reset": "1700000005500"}, 5.5),
        ({"retry-after": "soon", "x-ratelimit-reset-tokens": "3s"}, 3),
    ],
)
def test_the_delay_is_read_in_every_dialect(headers: dict[str, str], delay_s: float) -> None:
    assert retry_after_s(headers, NOW_S) == pytest.approx(delay_s)


def test_the_exhausted_limit_is_the_one_that_counts() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "99",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "9s",
    }
    assert retry_after_s(headers, NOW_S) == 9
    assert retry_after_s(headers | {"x-ratelimit-remaining-tokens": "5"}, NOW_S) == 2


@pytest.mark.parametrize("told", ["", "soon", "nan", "Mon, 01 Jan 99999999999 00:00:00 GMT", None])
def test_nothing_said_is_none(told: str | None) -> None:
    assert retry_after_s({} if told is None else {"retry-after": told}, NOW_S) is None


def test_a_bare_duration_is_read() -> None:
    assert parse_delay_s("1h") == 60
    assert parse_delay_s("0.5s") == 0.5
    assert parse_delay_s("") is None
    assert parse_delay_s("later") is None


def _of_groq(left: int, reset: str) -> dict[str, str]:
    """Return Groq's headers: requests are of a day, tokens of a minute."""
    return {
        "x-ratelimit-limit-requests": "14400",
        "x-ratelimit-remaining-requests": str(left),
        "x-ratelimit-reset-requests": reset,
        "x-ratelimit-limit-tokens": "18000",
        "x-ratelimit-remaining-tokens": "9000",
        "x-ratelimit-reset-tokens": "30s",
    }


def _of_cerebras(left: int) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests-day": "1000",
        "x-ratelimit-remaining-requests-day": str(left),
        "x-ratelimit-reset-requests-day": "33011.382867",
        "x-ratelimit-limit-tokens-minute": "60000",
        "x-ratelimit-remaining-tokens-minute": "30000",
        "x-ratelimit-reset-tokens-minute": "11.382867",
    }


def _until(reset: str, left: str) -> dict[str, str]:
    sent = {"date": "Tue, 14 Nov 2023 22:13:20 GMT", "x-ratelimit-limit": "1000", "x-ratelimit-remaining": left}
    return {**sent, "x-ratelimit-reset": reset}


@pytest.mark.parametrize(
    ("headers", "share"),
    [
        ({"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "125"}, 0.25),
        ({"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "-1"}, None),
        (
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-limit-tokens": "30000",
                "x-ratelimit-remaining-tokens": "3000",
            },
            0.1,
        ),
        (
            {"anthropic-ratelimit-input-tokens-limit": "40000", "anthropic-ratelimit-input-tokens-remaining": "10000"},
            0.25,
        ),
        ({"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50"}, 0.5),
        ({"ratelimit-limit": "100, 100;w=86400", "ratelimit-remaining": "50"}, 1.0),
        pytest.param(_of_groq(2880, "19h12m"), 0.5, id="the day's requests do not count, the minute's tokens do"),
        pytest.param(_of_groq(72, "23h52m48s"), 0.1, id="little is left of the day's requests"),
        pytest.param(_of_groq(0, "24h"), 0.0, id="nothing is left of the day's requests"),
        pytest.param(_of_cerebras(300), 0.5, id="by name"),
        *(
            pytest.param(_until(reset, left), share, id=f"{left} until {reset}")
            for reset, is_long in (
                ("1700086400", True),
                ("1700086400000", True),
                ("2023-11-15T22:13:20Z", True),
                ("1700000060", False),
                ("1700000060000", False),
                ("2023-11-14T22:14:20Z", False),
            )
            for left, share in (("100", 1.0 if is_long else 0.1), ("10", 0.2 if is_long else 0.01))
        ),
        ({"x-ratelimit-limit": "50", "x-ratelimit-remaining": "25", "x-ratelimit-reset": "1700000005500"}, 0.5),
        ({"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "-5"}, 0.0),
        ({"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "105"}, 1.0),
        ({"x-ratelimit-remaining-tokens": "105"}, None),
        ({"x-ratelimit-limit-tokens": "0", "x-ratelimit-remaining-tokens": "0"}, None),
        ({"x-ratelimit-limit-tokens": "many", "x-ratelimit-remaining-tokens": "few"}, None),
        ({"content-type": "text/event-stream"}, None),
    ],
)
def test_headroom_is_what_the_scarcest_limit_leaves(headers: dict[str, str], share: float | None) -> None:
    assert headroom(headers) == pytest.approx(share)
