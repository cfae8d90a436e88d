"""What is said of prompts and answers that are longer or shorter than in the week before."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.alerts import AlertKind, LengthSource, ModelHour
from gateway.alerts.alert import AlertCondition, SourceUnavailable
from gateway.alerts.stated_models import LEAST_ANSWERED
from gateway.core.reports import ReportsUnreachable

NOW = datetime(2026, 3, 12, 9, 40, tzinfo=UTC)
WHOLE = NOW.replace(minute=0)


def day(days_ago: int, **sums: Any) -> list[ModelHour]:
    """Return two hours of a day: the first and the last one that belong to it."""
    usual: dict[str, Any] = {
        "model": "llama", "answered": 1000, "prompt_tokens": 800_000, "completion_tokens": 200_000, "sized": 1000,
        "over_4k": 300, "over_32k": 20,
    }  # fmt: skip
    end = WHOLE - timedelta(days=days_ago)
    return [ModelHour(**(usual | sums), hour_at=end - timedelta(hours=ago)) for ago in (1, 24)]


def week(**sums: Any) -> list[ModelHour]:
    return [hour for days_ago in range(1, 8) for hour in day(days_ago, **sums)]


async def found(*hours: ModelHour) -> Sequence[AlertCondition]:
    async def read(_: str) -> Sequence[ModelHour]:
        return hours

    return await LengthSource(read, utc_now=lambda: NOW).conditions()


async def test_days_that_are_alike_are_no_news() -> None:
    assert await found(*day(0), *week()) == []


async def test_longer_prompts_are_told_with_what_was_usual() -> None:
    before = [*week(), *day(3, prompt_tokens=1_000_000)]
    [condition] = await found(*day(0, prompt_tokens=2_000_000), *before)
    assert (condition.kind, condition.subject, condition.opens) == (AlertKind.LENGTHS_CHANGED, "llama", True)
    assert condition.summary == (
        "llama: in the last 24 h a prompt had 2,000 tokens on average, 800 to 900, on each day of the week before"
    )
    assert condition.figures == {
        "prompt_tokens": 2000.0, "prompt_tokens_low_before": 800.0, "prompt_tokens_high_before": 900.0,
    }  # fmt: skip
    assert "'llama'" in condition.sql


async def test_shorter_answers_and_another_mixture_of_prompts_are_told() -> None:
    [condition] = await found(*day(0, completion_tokens=90_000, over_4k=700, over_32k=500), *week())
    assert "an answer had 90 tokens on average, 200 to 200" in condition.summary
    assert "70% of prompts were over 4 KB, 30% to 30%" in condition.summary
    assert "50% of prompts were over 32 KB, 2% to 2%" in condition.summary


async def test_what_is_a_little_outside_only_keeps_an_alert_open() -> None:
    [condition] = await found(*day(0, prompt_tokens=1_100_000), *week())
    assert not condition.opens
    assert await found(*day(0, prompt_tokens=990_000), *week()) == []


async def test_a_new_length_is_usual_once_a_day_before_has_it() -> None:
    new = 2_000_000
    assert await found(*day(0, prompt_tokens=new), *day(1, prompt_tokens=new), *week()[2:]) == []


@pytest.mark.parametrize(
    "few", [{"answered": LEAST_ANSWERED // 2 - 1, "sized": LEAST_ANSWERED // 2 - 1}, {"answered": 0}]
)
async def test_few_calls_say_nothing(few: dict[str, int]) -> None:
    assert await found(*day(0, prompt_tokens=2_000_000, **few), *week()) == []
    assert await found(*day(0, prompt_tokens=2_000_000), *week(**few)) == []


async def test_two_days_are_no_week() -> None:
    assert await found(*day(0, prompt_tokens=2_000_000), *day(1), *day(2)) == []
    assert len(await found(*day(0, prompt_tokens=2_000_000), *day(1), *day(2), *day(5))) == 1


async def test_models_without_answers_in_tokens_have_only_prompts() -> None:
    [condition] = await found(*day(0, prompt_tokens=2_000_000, completion_tokens=None), *week(completion_tokens=None))
    assert next(iter(condition.figures)) == "prompt_tokens"
    assert "answer" not in condition.summary


async def test_each_model_is_compared_with_itself() -> None:
    other = [*day(0, model="embed"), *week(model="embed")]
    [condition] = await found(*day(0, prompt_tokens=2_000_000), *week(), *other)
    assert condition.subject == "llama"


async def test_without_the_database_nothing_is_known() -> None:
    async def read(_: str) -> Sequence[ModelHour]:
        raise ReportsUnreachable("away")

    with pytest.raises(SourceUnavailable):
        await LengthSource(read, utc_now=lambda: NOW).conditions()
