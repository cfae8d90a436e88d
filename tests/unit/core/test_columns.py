"""A column follows from its field."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, get_type_hints

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Outcome
from gateway.core.calls import Call, CallHead, CallRecord
from gateway.core.columns import Column, Sql, columns_of, names_of, places_of
from gateway.core.records import OutageRecord, RefusalRecord


class Head(msgspec.Struct, kw_only=True):
    id: Annotated[str, Column("Which.", sql=Sql.UUID, listed=True)]
    at: Annotated[datetime, Column("When.")]


class Record(Head, kw_only=True):
    beside: str | None = None
    outcome: Annotated[Outcome | None, Column("How.", logged=True, listed=True)] = None
    ttft_ms: Annotated[float | None, Column("How soon.")] = None
    total_ms: Annotated[float, Column("How long.", may_be_null=True)]
    prices: Annotated[Mapping[str, float] | None, Column("For how much.")] = None

    @property
    def failed(self) -> Annotated[bool, Column("Whether.")]:
        return self.outcome is Outcome.FAILED

    @property
    def is_there(self) -> bool:
        return True


def test_its_type_and_whether_it_may_be_null_follow_from_the_fields_type() -> None:
    assert [(each.name, each.sql, each.is_nullable, each.is_json) for each in columns_of(Record)] == [
        ("id", Sql.UUID, False, False),
        ("at", Sql.INSTANT, False, False),
        ("outcome", Sql.TEXT, True, False),
        ("ttft_ms", Sql.DOUBLE, True, False),
        ("total_ms", Sql.DOUBLE, True, False),
        ("prices", Sql.JSON, True, True),
        ("failed", Sql.BOOLEAN, False, False),
    ]


def test_it_is_shown_where_it_says() -> None:
    assert [names_of(Record, where) for where in ("logged", "traced", "listed")] == [
        ("outcome",),
        (),
        ("id", "outcome"),
    ]


def test_a_record_that_is_made_by_places_has_one_for_each_column() -> None:
    with pytest.raises(ValueError, match=r"is declared for id, at of Head"):
        places_of(Head)


@pytest.mark.parametrize("place", places_of(CallHead))
def test_a_column_of_a_calls_start_is_taken_from_a_place_that_a_call_has(place: str) -> None:
    part: type = Call
    for name in place.split("."):
        assert name in get_type_hints(part) or isinstance(getattr(part, name), property)
        part = get_type_hints(part).get(name, int)


@pytest.mark.parametrize("record", [CallRecord, AttemptRecord, RefusalRecord, OutageRecord])
def test_each_says_what_it_means_in_a_sentence(record: type[msgspec.Struct]) -> None:
    assert [each.name for each in columns_of(record) if not each.about.says.endswith((".", ")."))] == [
        each.name for each in columns_of(record) if each.about.says.endswith("…")
    ]
