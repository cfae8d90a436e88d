"""Entries as rows."""

import json
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord
from gateway.core.columns import Column, Sql
from gateway.core.records import RefusalRecord
from gateway.ledger import ATTEMPT_COLUMNS, CALL_COLUMNS, Finished, attempt_rows, call_rows
from gateway.ledger.entries import (
    REFUSAL_COLUMNS,
    Audited,
    Columns,
    Entry,
    RefusedRequests,
    Started,
    decode,
    encode,
    refusal_rows,
)
from gateway.ledger.tables import attempts, calls, refusals
from tests.unit.ledger.records import NOON, lost, raced_call, refusal, start_of


class Rows:
    def __init__(self, entry: Entry) -> None:
        self.calls, self.attempts = list(call_rows([entry])), list(attempt_rows([entry]))
        self.refusals = list(refusal_rows([entry]))


def test_every_column_is_a_field_of_the_record_and_what_a_provider_asked_for_is_none() -> None:
    assert set(CALL_COLUMNS) == {column.name for column in calls.columns}
    assert set(ATTEMPT_COLUMNS) == {column.name for column in attempts.columns}
    assert set(REFUSAL_COLUMNS) == {column.name for column in refusals.columns} == {*RefusalRecord.__struct_fields__}
    assert set(CallRecord.__struct_fields__) - set(CALL_COLUMNS) == {"attempts", "kind", "trace"}
    others = set(AttemptRecord.__struct_fields__) - set(ATTEMPT_COLUMNS)
    assert others == {
        *(
            "asked_tokens",
            "headroom",
            "is_certain",
            "is_restricted",
            "sent_by",
            "learnt_as",
            "limit_usd",
            "other_units",
            "retry_after_s",
            "stated_usd",
            "tier",
            "usual_high_usd",
            "weight",
        ),
    }


JSON_COLUMNS = ("dropped", "tags", "price", "itl", "units", "thoughts_dropped")


def marked(record: CallRecord | AttemptRecord) -> Any:
    """Return ``record`` with a value in each field that no other field has."""
    others: dict[str, Any] = {
        name: f"the {name}" for name in record.__struct_fields__ if name not in {"attempts", *JSON_COLUMNS}
    }
    others["status_code"] = 503  # whether a call failed follows from it
    jsons = {name: {name: 1} for name in record.__struct_fields__ if name in JSON_COLUMNS}
    return msgspec.structs.replace(record, **others, **jsons)


def test_each_column_has_what_the_field_of_its_name_has() -> None:
    record = raced_call()
    call, attempt = marked(record), marked(record.attempts[0])
    rows = Rows(Finished(msgspec.structs.replace(call, attempts=(attempt,))))
    for columns, row, marks in ((CALL_COLUMNS, rows.calls[0], call), (ATTEMPT_COLUMNS, rows.attempts[0], attempt)):
        for name, value in zip(columns, row, strict=True):
            assert (json.loads(value) if name in JSON_COLUMNS else value) == getattr(marks, name)


@pytest.mark.parametrize("where", range(6), ids="before the {}th field".format)
def test_a_new_field_shifts_no_column(where: int) -> None:
    fields = ["id", "tags", "model", "memo", "ttft_ms"]
    fields.insert(where, "new")
    values = {name: f"the {name}" for name in fields}
    for left_out in (frozenset({"memo"}), frozenset({"memo", "new"})):
        sql = {name: Sql.JSONB if name == "tags" else None for name in fields}
        types: dict[str, Any] = {
            name: str if name in left_out else Annotated[str, Column(name, sql=sql[name])] for name in fields
        }
        record = msgspec.defstruct("Record", types.items())
        columns = Columns(record)
        stored = dict(zip(columns.names[:-1], columns.plain(record(**values)), strict=True))
        assert stored == {name: values[name] for name in fields if name not in {"tags", *left_out}}
        assert columns.names[-1] == "tags"


def test_a_call_is_one_row_and_each_attempt_is_one() -> None:
    record = raced_call(tags={"a": "b"})
    rows = Rows(Finished(record))
    (call,) = (dict(zip(CALL_COLUMNS, row, strict=True)) for row in rows.calls)
    assert (call["id"], call["started_at"], call["tags"], call["mode"]) == (record.id, NOON, '{"a":"b"}', "auto")
    assert [row[ATTEMPT_COLUMNS.index("outcome")] for row in rows.attempts] == ["won", "lost"]


def test_tags_that_cannot_be_changed_are_json_like_any_others() -> None:
    rows = Rows(Finished(raced_call(tags=MappingProxyType({"a": "b"}))))
    assert rows.calls[0][CALL_COLUMNS.index("tags")] == '{"a":"b"}'


def test_what_a_call_dropped_is_a_json_list_and_null_when_nothing_was() -> None:
    where = CALL_COLUMNS.index("dropped")
    assert Rows(Finished(raced_call(dropped=("seed", 'tools[0]."x"')))).calls[0][where] == '["seed","tools[0].\\"x\\""]'
    assert Rows(Finished(raced_call())).calls[0][where] is None


def test_audited_attempts_come_without_their_call() -> None:
    rows = Rows(Audited("c", (lost("c"),)))
    assert (len(rows.calls), len(rows.attempts)) == (0, 1)


def test_refusals_are_rows_of_their_own_and_no_calls() -> None:
    known, unknown = refusal(client="search", n=3), refusal(address=None)
    rows = Rows(RefusedRequests((known, unknown)))
    assert (rows.calls, rows.attempts) == ([], [])
    stored = [dict(zip(REFUSAL_COLUMNS, row, strict=True)) for row in rows.refusals]
    assert stored == [msgspec.structs.asdict(known), msgspec.structs.asdict(unknown)]


def test_an_attempt_for_a_fallback_that_never_ended_is_the_fallbacks() -> None:
    start = start_of(raced_call())
    attempts = tuple(msgspec.structs.replace(one, model="small") for one in start.attempts)
    rows = Rows(Started(msgspec.structs.replace(start, attempts=attempts)))
    assert rows.calls[0][CALL_COLUMNS.index("model")] == "llama"
    assert [row[ATTEMPT_COLUMNS.index("model")] for row in rows.attempts] == ["small", "small"]


def test_an_interrupted_call_has_missed_its_deadline_if_it_had_one() -> None:
    for deadline_ms, met in ((None, None), (800.0, False)):
        start = msgspec.structs.replace(start_of(raced_call()), deadline_ms=deadline_ms)
        [row] = call_rows([Started(start)])
        call = dict(zip(CALL_COLUMNS, row, strict=True))
        assert (call["deadline_ms"], call["deadline_met"]) == (deadline_ms, met)


def test_a_call_that_never_ended_is_interrupted_and_so_are_its_attempts() -> None:
    start = start_of(raced_call(request_id="mine", dropped=("seed",)))
    rows = Rows(Started(start))
    call = dict(zip(CALL_COLUMNS, rows.calls[0], strict=True))
    assert (call["status_code"], call["error_kind"], call["launched"]) == (500, "interrupted", 2)
    assert call["extras"] == 1
    assert (call["total_ms"], call["winner_attempt_id"], call["cost_usd"]) == (None, None, None)
    assert (call["request_id"], call["answered_model"], call["dropped"]) == ("mine", None, None)
    assert (call["api"], call["size_class"]) == (start.endpoint, start.prompt_class % 10)
    first = dict(zip(ATTEMPT_COLUMNS, rows.attempts[0], strict=True))
    assert (first["call_id"], first["outcome"], first["censored_at_ms"]) == (start.id, "interrupted", None)


def test_a_line_of_a_version_that_counted_no_extra_attempts_is_a_row_without_them() -> None:
    line = msgspec.json.decode(encode(Finished(raced_call(extras=1))))
    del line["call"]["extras"]
    for each in line["call"]["attempts"]:
        for name in ("is_extra", "text_gap_max_ms"):  # what is not known is not written
            each.pop(name, None)
    rows = Rows(decode(msgspec.json.encode(line)))
    assert rows.calls[0][CALL_COLUMNS.index("extras")] is None
    assert {row[ATTEMPT_COLUMNS.index("is_extra")] for row in rows.attempts} == {None}
