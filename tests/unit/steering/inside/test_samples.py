"""What one attempt adds to the board."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role, TokensSource
from gateway.core.prompt_classes import answer_class
from gateway.steering.counts import read_tallies
from gateway.steering.samples import of_end, of_token

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def ended(outcome: Outcome, *, number: int = 3, role: Role = Role.HEDGE, **facts: Any) -> dict[str, float]:
    record = AttemptRecord(
        id="1", call_id="c", number=number, started_at=NOON, role=role, provider="p", deployment="a",
        launch_offset_ms=0.0, outcome=outcome, **facts,
    )  # fmt: skip
    return of_end(record, answer_class(1))


def answered(**facts: Any) -> dict[str, float]:
    known = {"ttft_ms": 200.0, "last_token_ms": 2200.0, "completion_tokens": 101, "decode_tps": 50.0}
    return ended(Outcome.WON, **({"tokens_source": TokensSource.REPORTED} | known | facts))


def test_a_first_token_is_an_event() -> None:
    start = AttemptStart("1", 1, NOON, Role.PRIMARY, "p", "a", 0.0)
    assert of_token(start, answer_class(2), 0.020) == {"a|2|e8": 1.0}


def test_a_first_token_is_counted_to_the_microsecond_as_the_ledger_has_it() -> None:
    start = AttemptStart("1", 1, NOON, Role.PRIMARY, "p", "a", 0.0)
    assert of_token(start, answer_class(0), 0.0199999999) == {"a|0|e8": 1.0}


@pytest.mark.parametrize(("longest_ms", "stall_s"), [(None, None), (499.0, None), (500.0, None), (5500.0, 5.0)])
def test_a_winners_longest_silence_beyond_half_a_second_is_a_stall(
    longest_ms: float | None, stall_s: float | None
) -> None:
    assert answered(itl_max_ms=longest_ms).get("a|stall") == stall_s


def test_who_was_cut_is_no_sample_of_stalls() -> None:
    assert "a|stall" not in ended(Outcome.SUPERSEDED, ttft_ms=200.0, last_token_ms=2200.0, itl_max_ms=5000.0)


def test_an_attempt_cut_before_its_token_is_censored_and_counts_in_nothing_else() -> None:
    assert ended(Outcome.LOST, censored_at_ms=40.0) == {"a|1|c16": 1.0}
    assert ended(Outcome.CLIENT_GONE, censored_at_ms=40.0) == {"a|1|c16": 1.0}


def test_an_error_counts_a_429_is_kept_apart_and_the_clients_own_fault_is_nobodys() -> None:
    assert ended(Outcome.FAILED, error_kind="server_error") == {"a|n": 1.0, "a|err": 1.0}
    assert ended(Outcome.TIMEOUT, error_kind="ttft_timeout") == {"a|n": 1.0, "a|err": 1.0}
    assert ended(Outcome.FAILED, error_kind="rate_limited") == {"a|lim": 1.0}
    assert ended(Outcome.FAILED, error_kind="bad_request") == {}
    assert ended(Outcome.INTERRUPTED) == {}


def test_of_the_overtaken_the_audited_are_told_apart() -> None:
    overtaken: dict[str, Any] = {"number": 2, "role": Role.RACE, "is_overtaken": True}
    cut = ended(Outcome.LOST, censored_at_ms=40.0, **overtaken)
    assert cut == {"a|1|c16": 1.0, "a|over": 1.0}
    seen = ended(Outcome.SUPERSEDED, token_ms=80.0, audited=True, **overtaken)
    assert seen == {"a|over": 1.0, "a|aud": 1.0, "a|1|ae24": 1.0, "a|n": 1.0}
    broken = ended(Outcome.FAILED, error_kind="server_error", audited=True, **overtaken)
    assert broken == {"a|over": 1.0, "a|aud": 1.0, "a|n": 1.0, "a|err": 1.0}
    endless = ended(Outcome.LOST, censored_at_ms=40.0, audited=True, **overtaken)
    assert endless == {"a|1|c16": 1.0, "a|over": 1.0, "a|aud": 1.0, "a|1|ac16": 1.0}


def test_exploring_races_are_no_sample_of_the_others() -> None:
    seen = {"token_ms": 80.0, "audited": True, "is_overtaken": True}
    assert ended(Outcome.SUPERSEDED, number=2, role=Role.EXPLORE, **seen) == {"a|n": 1.0}
    assert ended(Outcome.SUPERSEDED, number=1, role=Role.PRIMARY, **seen) == {"a|n": 1.0}
    drawn = ended(Outcome.SUPERSEDED, number=1, role=Role.PRIMARY, predicted_ms=90.0, **seen)
    assert drawn == {"a|over": 1.0, "a|aud": 1.0, "a|1|ae24": 1.0, "a|n": 1.0}


def test_whose_client_left_is_cut_by_nobody_and_who_is_launched_late_is_told_apart() -> None:
    gone = ended(Outcome.CLIENT_GONE, number=2, role=Role.RACE, censored_at_ms=40.0, is_overtaken=False)
    assert gone == {"a|1|c16": 1.0, "a|1|g16": 1.0}
    assert ended(Outcome.WON, role=Role.HEDGE, token_ms=80.0) == {"a|1|l24": 1.0, "a|n": 1.0, "a|won": 1.0}
    assert ended(Outcome.WON, role=Role.PRIMARY, token_ms=80.0) == {"a|1|l24": 1.0, "a|n": 1.0, "a|won": 1.0}


def test_speeds_are_tokens_and_seconds_so_that_they_add_up() -> None:
    assert answered() == {
        "a|n": 1.0, "a|won": 1.0, "a|tok": 100.0, "a|sec": 2.0, "a|ans": 1.0, "a|etok": 101.0, "a|esec": 2.2,
    }  # fmt: skip


def test_tokens_the_provider_did_not_count_itself_are_guesses_and_kept_apart() -> None:
    guessed = {"a|n": 1.0, "a|won": 1.0, "a|gtok": 100.0, "a|gsec": 2.0}
    assert answered(tokens_source=TokensSource.ESTIMATED) == guessed


@pytest.mark.parametrize(
    ("facts", "timed", "burst"),
    [
        ({"last_token_ms": 215.0}, True, True),
        ({"last_token_ms": 225.0, "completion_tokens": 500}, True, True),
        ({"completion_tokens": 1, "last_token_ms": 200.0}, False, False),
        ({"completion_tokens": 40, "reasoning_tokens": 39, "last_token_ms": 200.0}, False, False),
        ({"reasoning_tokens": 60}, False, False),  # only a summary of the thinking was streamed
    ],
)
def test_an_answer_that_comes_at_once_is_a_burst_one_too_short_to_tell_is_none(
    facts: dict[str, float], timed: bool, burst: bool
) -> None:
    counts = answered(decode_tps=None, **facts)
    assert (counts.get("a|ans", 0) == 1, counts.get("a|burst", 0) == 1) == (timed, burst)


def test_a_tally_is_read_back_from_what_attempts_added() -> None:
    tally = read_tallies({**answered(), "a|1|ae8": 2.0, "a|1|ac9": 3.0, "a|lim": 4.0, "a|1|l7": 5.0, "a|1|g6": 6.0})[
        "a"
    ]
    assert (tally.n, tally.won, tally.lim, tally.etok, tally.esec) == (1.0, 1.0, 4.0, 101.0, 2.2)
    medium = answer_class(1)
    assert (tally.audited_events, tally.audited_censored, tally.events) == ({medium: {8: 2.0}}, {medium: {9: 3.0}}, {})
    assert (tally.late_events, tally.fair_censored) == ({medium: {7: 5.0}}, {medium: {6: 6.0}})


@pytest.mark.parametrize("step", [Role.KEY, Role.FORM])
def test_an_attempt_with_another_key_or_form_counts_as_the_one_that_was_refused(step: Role) -> None:
    late = {"a|1|l24": 1.0, "a|n": 1.0, "a|won": 1.0}
    assert ended(Outcome.WON, role=step, token_ms=80.0) == late
    for counts_as in (Role.PRIMARY, Role.RACE, Role.EXPLORE):
        overtaken: dict[str, Any] = {"is_overtaken": True, "censored_at_ms": 40.0}
        first = ended(Outcome.LOST, number=1, role=counts_as, **overtaken)
        assert ended(Outcome.LOST, number=2, role=step, counts_as=counts_as, **overtaken) == first
    assert ended(Outcome.WON, role=step, counts_as=Role.FAILOVER, token_ms=80.0) == late


@pytest.mark.parametrize(("step", "kind"), [(Role.KEY, "key_refused"), (Role.FORM, "form_refused")])
def test_a_refused_key_or_form_that_another_one_replaces_counts_nowhere(step: Role, kind: str) -> None:
    for role in (Role.PRIMARY, step, Role.HEDGE):
        assert ended(Outcome.FAILED, number=1, role=role, error_kind=kind) == {}
    watched: dict[str, Any] = {"is_overtaken": True, "audited": True, "error_kind": kind}
    assert ended(Outcome.FAILED, number=1, role=Role.PRIMARY, **watched) == {}
