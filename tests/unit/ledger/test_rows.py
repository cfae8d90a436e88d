"""Entries as rows."""

from gateway.calls import AttemptRecord, CallRecord
from gateway.ledger.entries import Audited, Finished, Started
from gateway.ledger.rows import ATTEMPT_COLUMNS, CALL_COLUMNS, rows_of
from tests.unit.ledger.records import NOON, lost, new_id, raced_call, start_of, won


def test_every_column_is_a_field_of_the_record_and_what_a_provider_asked_for_is_none() -> None:
    assert set(CallRecord.__struct_fields__) - set(CALL_COLUMNS) == {"attempts"}
    assert set(AttemptRecord.__struct_fields__) - set(ATTEMPT_COLUMNS) == {"headroom", "retry_after_s"}


def test_a_call_is_one_row_and_each_attempt_is_one() -> None:
    record = raced_call(tags={"a": "b"})
    rows = rows_of([Finished(record)])
    (call,) = (dict(zip(CALL_COLUMNS, row, strict=True)) for row in rows.calls)
    assert (call["id"], call["started_at"], call["tags"], call["mode"]) == (record.id, NOON, '{"a":"b"}', "auto")
    assert [row[ATTEMPT_COLUMNS.index("outcome")] for row in rows.attempts] == ["won", "lost"]


def test_audited_attempts_come_without_their_call() -> None:
    rows = rows_of([Audited("c", (lost("c"),))])
    assert (len(rows.calls), len(rows.attempts)) == (0, 1)


def test_nul_characters_are_dropped() -> None:
    call_id = new_id()
    record = raced_call(client="a\x00b", tags={"k\x00": "\x00v"}, attempts=(won(call_id, error_message="x\x00"),))
    rows = rows_of([Finished(record)])
    assert rows.calls[0][CALL_COLUMNS.index("client")] == "ab"
    assert rows.calls[0][CALL_COLUMNS.index("tags")] == '{"k":"v"}'
    assert rows.attempts[0][ATTEMPT_COLUMNS.index("error_message")] == "x"


def test_a_call_that_never_ended_is_interrupted_and_so_are_its_attempts() -> None:
    start = start_of(raced_call())
    rows = rows_of([Started(start)])
    call = dict(zip(CALL_COLUMNS, rows.calls[0], strict=True))
    assert (call["status_code"], call["error_kind"], call["launched"]) == (500, "interrupted", 2)
    assert (call["total_ms"], call["winner_attempt_id"], call["cost_usd"]) == (None, None, None)
    first = dict(zip(ATTEMPT_COLUMNS, rows.attempts[0], strict=True))
    assert (first["call_id"], first["outcome"], first["censored_at_ms"]) == (start.id, "interrupted", None)
