"""One leaderboard: the ledger's rows played through the board, the SQL view, and the board rebuilt from SQL."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AnswerKind, AttemptRecord, AttemptStart, Flaw, Outcome, Role, TokensSource, WinOn
from gateway.core.calls import TENANT, CallRecord
from gateway.core.old_names import old_names
from gateway.core.prompt_classes import decoded_class
from gateway.core.records import OutageRecord
from gateway.ledger import Ledger, counts_since, queries
from gateway.steering import SLOT_S, SLOTS_KEPT, WINDOW_S, MemoryBoard, Row, Steering, of_counts, slot_of
from tests.unit.ledger.records import attempt, call, failed, new_id

# Not in this view, but in answer_quality.
INTERVAL = {"flaw_low_rate", "flaw_high_rate"}
# In docs/answers.md#voice-the-first-sentence-wins are the columns to ask.
SENTENCES = {"n_sentence", "sentence_p50_ms", "sentence_p95_ms", "is_sentence_biased"}
_OLD = {old for old, new in old_names(Row).items() if new in INTERVAL | SENTENCES}
# What only a running gateway knows is not in SQL.
ALIKE = tuple(
    set(Row.__struct_fields__)
    - {"state", "reason", "headroom", "score", "in_flight", "probed_s_ago", "refuses", "held"}
    - INTERVAL
    - SENTENCES
    - _OLD
)
SPEEDS = {"groq/x": 300.0, "slow/x": 35.0, "fake/x": None, "rare/x": 80.0}


def traffic(random: Random, now: datetime, calls: int, *, raced: float) -> list[CallRecord]:
    """Calls of the last ten minutes: raced or not, audited, cut, failed, limited, out of a buffer, of two models.

    Half of those that failed were answered by the other model.
    """
    records = []
    for number in range(calls):
        at = now - timedelta(seconds=random.uniform(0.0, SLOT_S * (SLOTS_KEPT - 2)))  # the next may begin under way
        call_id, model = new_id(), random.choice(["llama", "qwen"])
        win_on = WinOn.ANSWER if model == "qwen" else random.choice([WinOn.ANY, WinOn.SENTENCE])
        audited = random.random() < 0.4
        names = random.sample(["groq/x", "slow/x", "fake/x"], 2) if number % 40 else ["rare/x", "groq/x"]
        fate = random.random()
        if fate < 0.06:
            kind = random.choice(["server_error", "rate_limited", "bad_request", "no_such_api", "ttft_timeout"])
            tried = [failed(call_id, error_kind=kind, started_at=at, deployment=names[0], provider=names[0][:4])]
            other = None
            if random.random() < 0.5:
                other = "qwen" if model == "llama" else "llama"
                answer = _racer(random, call_id, 2, name=names[1], ttft_ms=300.0, at=at, audited=False)
                tried.append(msgspec.structs.replace(answer, role=Role.PRIMARY, model=other))
            records.append(_call(*tried, model=model, answered_model=other, started_at=at, win_on=win_on))
            continue
        ttfts = [round(random.lognormvariate(5.5 + 0.4 * order, 0.6), 3) for order in range(2)]
        racers = [
            _racer(random, call_id, order + 1, name=names[order], ttft_ms=ttfts[order], at=at, audited=audited)
            for order in range(2)
        ]
        if random.random() > raced:
            racers = racers[:1]
        elif random.random() < 0.1:
            role = random.choice([Role.EXPLORE, Role.HEDGE])
            racers[1] = msgspec.structs.replace(racers[1], role=role)
        winner = min(range(len(racers)), key=lambda order: ttfts[order])
        for order in range(len(racers)):
            if order != winner:
                racers[order] = _lose(random, racers[order], ttfts[winner], ttfts[order])
        prompt_class = random.choice([0, 0, 0, 1, 2])
        records.append(_call(*racers, model=model, started_at=at, win_on=win_on, prompt_class=prompt_class))
    return records


def _call(*attempts: AttemptRecord, win_on: WinOn, **facts: Any) -> CallRecord:
    """A call whose attempts were compared by ``win_on``: a first clause is said 1.5 times as late as a first token."""
    told = []
    for each in attempts:
        more: dict[str, Any] = {"win_on": win_on}
        if win_on is WinOn.SENTENCE and each.ttft_ms is not None:
            more["sentence_ms"] = more["token_ms"] = each.ttft_ms * 1.5
        told.append(msgspec.structs.replace(each, **more))
    return call(*told, win_on=win_on, **facts)


def _racer(
    random: Random, call_id: str, number: int, *, name: str, ttft_ms: float, at: datetime, audited: bool
) -> AttemptRecord:
    tokens, speed = random.randint(1, 400), SPEEDS[name]
    span_ms = 3.0 if speed is None else round((tokens - 1) / speed * 1000, 3)
    return attempt(
        call_id, number, started_at=at, role=Role.PRIMARY if number == 1 else Role.RACE, deployment=name,
        provider=name[:4], audited=audited, ttft_ms=ttft_ms, ttft_answer_ms=ttft_ms, token_ms=ttft_ms,
        last_token_ms=ttft_ms + span_ms, completion_tokens=tokens,
        tokens_source=random.choice([TokensSource.REPORTED, TokensSource.ESTIMATED]),
        decode_tps=None if speed is None or tokens < 10 else speed, e2e_tps=40.0,
        itl_max_ms=random.choice([None, 20.0, 700.0, 5000.0]),
        judged_as=AnswerKind.PLAIN, flaw=None if tokens % 5 else Flaw.EMPTY,
    )  # fmt: skip


def _lose(random: Random, racer: AttemptRecord, claim_ms: float, own_ms: float) -> AttemptRecord:
    racer = msgspec.structs.replace(racer, judged_as=None, flaw=None)
    known: dict[str, Any] = {"is_overtaken": own_ms > claim_ms, "predicted_ms": random.choice([900.0, None])}
    if racer.audited and random.random() < 0.1:  # failed once overtaken, or had no token when the audit ended
        cut: dict[str, Any] = random.choice(
            [{"outcome": Outcome.FAILED}, {"outcome": Outcome.LOST, "censored_at_ms": 30_000.0}]
        )
        nothing = {"ttft_ms": None, "ttft_answer_ms": None, "token_ms": None, "last_token_ms": None, "decode_tps": None}
        return msgspec.structs.replace(racer, **(known | nothing | cut), tokens_source=None)
    if racer.audited:
        seen = {"outcome": Outcome.SUPERSEDED, "tokens_source": TokensSource.ESTIMATED}
        return msgspec.structs.replace(racer, **(known | seen))
    thought = random.random() < 0.2 and own_ms > claim_ms > 20  # reasoning had begun, the answer had not
    return attempt(
        racer.call_id, racer.number, started_at=racer.started_at, role=racer.role, deployment=racer.deployment,
        provider=racer.provider, outcome=random.choice([Outcome.LOST, Outcome.LOST, Outcome.CLIENT_GONE]),
        censored_at_ms=claim_ms, ttft_ms=None, is_overtaken=random.choice([True, None]),
        first_event_ms=10.0 if thought else None,
    )  # fmt: skip


def replayed(records: list[CallRecord], now_s: float) -> Steering:
    """A board that heard of every attempt when it was launched, had its first token, and ended."""
    moment = {"s": now_s}
    steering = Steering(MemoryBoard(), clock=lambda: moment["s"], unix_clock=lambda: moment["s"], random=Random(1))
    for record in sorted(records, key=lambda record: record.started_at):
        for each in record.attempts:
            model = each.model or record.model
            moment["s"] = each.started_at.timestamp()
            start = AttemptStart(
                each.id, each.number, each.started_at, each.role, each.provider, each.deployment, 0.0, each.audited
            )
            steering.attempt_started(model, start)
            moment["s"] = now_s  # the longest answers end in another slot than they began in
            token_ms = {WinOn.ANSWER: each.ttft_answer_ms, WinOn.SENTENCE: each.sentence_ms}.get(
                record.win_on, each.ttft_ms
            )
            if token_ms is not None:
                steering.first_token(model, decoded_class(record.prompt_class), start, token_ms / 1000)
            steering.attempt_ended(model, decoded_class(record.prompt_class), each)
    moment["s"] = now_s
    return steering


async def stored(url: str, folder: Path, records: list[CallRecord]) -> None:
    ledger = Ledger(url, folder / "spool", "board")
    for record in records:
        ledger.call_finished(record)
    await ledger.flush()
    await ledger.close()


def stalls_s(slots: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """The seconds of stalling that each deployment's slots hold."""
    fields = {field for counts in slots.values() for field in counts if field.endswith("|stall")}
    return {field: sum(counts.get(field, 0.0) for counts in slots.values()) for field in fields}


def published(rows: tuple[Row, ...]) -> dict[str, dict[str, Any]]:
    return {each.deployment: {name: getattr(each, name) for name in (*ALIKE, *SENTENCES)} for each in rows}


@pytest.mark.parametrize(("calls", "raced"), [(12, 0.5), (400, 0.0), (400, 0.2), (900, 0.9)])
async def test_view_board_and_the_board_rebuilt_from_sql_agree_row_by_row(
    ledger_url: str, tmp_path: Path, calls: int, raced: float
) -> None:
    now = datetime.now(UTC)
    records = traffic(Random(calls + int(10 * raced)), now, calls, raced=raced)
    heard = await all_agree(ledger_url, tmp_path, records, now)
    assert any(each.basis == "audited" for each in (*heard["llama"], *heard["qwen"])) == (calls > 400)
    assert any(each.sentence_p50_ms for each in heard["llama"])


async def test_a_loser_nobody_watched_that_waited_longer_than_all_others_breaks_no_view(
    ledger_url: str, tmp_path: Path
) -> None:
    """The watched stand for it, so where it was cut nobody is left to have a first token."""
    now = datetime.now(UTC)
    records = []
    for name in ("groq/x", "slow/x"):
        for number in range(40):
            call_id, is_watched = new_id(), number < 38
            won = _racer(Random(number), call_id, 1, name="fake/x", ttft_ms=90.0, at=now, audited=False)
            late = _racer(Random(number), call_id, 2, name=name, ttft_ms=100.0 + number, at=now, audited=is_watched)
            lost = _lose(Random(5), late, 90.0 if is_watched else 9000.0, 10_000.0)
            if is_watched and name == "slow/x":
                lost = failed(call_id, 2, started_at=now, deployment=name, provider="slow", role=Role.RACE)
                lost = msgspec.structs.replace(lost, audited=True, is_overtaken=True)
            records.append(_call(won, lost, model="llama", started_at=now, win_on=WinOn.ANY))
    await all_agree(ledger_url, tmp_path, records, now)


async def all_agree(url: str, folder: Path, records: list[CallRecord], now: datetime) -> dict[str, tuple[Row, ...]]:
    """Assert that the view, the board, and the board made again from SQL have the same rows; return the board's."""
    await stored(url, folder, records)
    result = await queries.run(url, "select * from leaderboard order by model, rank")
    seen = [dict(zip(result.columns, values, strict=True)) for values in result.rows]
    steering = replayed(records, now.timestamp())
    since = datetime.fromtimestamp((slot_of(now.timestamp()) - SLOTS_KEPT + 1) * SLOT_S, UTC)
    rebuilt = await counts_since(url, since)
    started = replayed([], now.timestamp())  # another gateway, which has the last minutes from the ledger alone
    started.recall(rebuilt)
    for model in {record.model for record in records}:
        assert published(started.leaderboard(model).deployments) == published(steering.leaderboard(model).deployments)
        assert stalls_s(rebuilt[model]) == pytest.approx(stalls_s(steering._board.slots(model, now.timestamp())))
        heard = published(steering.leaderboard(model).deployments)
        assert published(of_counts(model, rebuilt[model], WINDOW_S).deployments) == heard
        viewed = {figures["deployment"]: figures for figures in seen if figures["model"] == model}
        assert viewed.keys() == heard.keys()
        for name, figures in heard.items():
            for figure, value in figures.items():
                if figure in SENTENCES:
                    continue
                exact = not isinstance(value, float)
                close = (
                    0.000051 if figure in {"error_rate", "flaw_rate", "win_share"} else 0.051
                )  # as it is rounded in JSON
                assert viewed[name][figure] == (value if exact else pytest.approx(value, abs=close)), (name, figure)
    return {model: steering.leaderboard(model).deployments for model in rebuilt}


async def test_attempts_launched_more_than_ten_minutes_ago_are_on_no_leaderboard(
    ledger_url: str, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    old = traffic(Random(1), now - timedelta(seconds=SLOT_S * SLOTS_KEPT), 30, raced=1.0)
    await stored(ledger_url, tmp_path, old)
    assert (await queries.run(ledger_url, "select count(*) from leaderboard")).rows == [(0,)]
    assert (await counts_since(ledger_url, now - timedelta(hours=1))).keys() == {"llama", "qwen"}
    assert replayed(old, now.timestamp()).leaderboard("llama").deployments == ()


async def test_a_deployment_that_is_out_comes_last_until_it_has_a_first_token(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    began_at = now - timedelta(minutes=3)

    def answers(name: str, at: datetime, ttft_ms: float) -> list[CallRecord]:
        racers = [_racer(Random(1), new_id(), 1, name=name, ttft_ms=ttft_ms, at=at, audited=False) for _ in range(5)]
        return [_call(each, model="llama", started_at=at, win_on=WinOn.ANY) for each in racers]

    outage = OutageRecord(
        id=new_id(), deployment="groq/x", model="llama", began_at=began_at, reason="connect_error", replica="r"
    )
    ledger = Ledger(ledger_url, tmp_path / "spool", "out")
    for record in [*answers("groq/x", now - timedelta(minutes=5), 50.0), *answers("slow/x", now, 900.0)]:
        ledger.call_finished(record)
    ledger.outage(outage)
    await ledger.flush()
    asked = "select deployment, rank, state, open_since from leaderboard order by rank"
    rows = (await queries.run(ledger_url, asked)).rows
    assert [row[:3] for row in rows] == [("slow/x", 1, "ok"), ("groq/x", 2, "out")]
    assert str(rows[1][3])[:16] == f"{began_at:%Y-%m-%d %H:%M}"
    for record in answers("groq/x", now, 50.0):  # with keys of a client's own: they say nothing of the operator's
        theirs = [msgspec.structs.replace(each, key_name=TENANT) for each in record.attempts]
        ledger.call_finished(msgspec.structs.replace(record, attempts=theirs))
    await ledger.flush()
    assert [row[:3] for row in (await queries.run(ledger_url, asked)).rows] == [row[:3] for row in rows]
    for record in answers("groq/x", now, 50.0):
        ledger.call_finished(record)
    await ledger.flush()
    await ledger.close()
    rows = (await queries.run(ledger_url, asked)).rows
    assert rows == [("groq/x", 1, "ok", None), ("slow/x", 2, "ok", None)]


async def test_an_outage_that_a_killed_process_left_open_is_over_once_its_replica_has_seen_the_end_of_another(
    ledger_url: str, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    racer = _racer(Random(1), new_id(), 1, name="groq/x", ttft_ms=50.0, at=now - timedelta(minutes=5), audited=False)
    ledger = Ledger(ledger_url, tmp_path / "spool", "killed")
    ledger.call_finished(
        _call(racer, model="llama", started_at=now - timedelta(minutes=5), win_on=WinOn.ANY),
    )
    left_open = OutageRecord(
        id=new_id(),
        deployment="groq/x",
        model="llama",
        began_at=now - timedelta(minutes=3),
        reason="hangs",
        replica="r",
    )
    later = msgspec.structs.replace(
        left_open, id=new_id(), began_at=now - timedelta(minutes=2), ended_at=now - timedelta(minutes=1)
    )
    elsewhere = msgspec.structs.replace(later, id=new_id(), replica="stopped")
    states = []
    for outage in (left_open, elsewhere, later):
        ledger.outage(outage)
        await ledger.flush()
        states += [row[0] for row in (await queries.run(ledger_url, "select state from leaderboard")).rows]
    await ledger.close()
    assert states == ["out", "out", "ok"]
