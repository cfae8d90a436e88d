"""Made calls: races, audits, failures, clients that left, held first tokens, late attempts, calls without one."""

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from gateway.core.attempts import AnswerKind, AttemptRecord, Flaw, Narrowed, Outcome, Role, TokensSource, WinOn
from gateway.core.calls import TENANT, CallRecord, Mode, Objective
from gateway.core.ids import uuid7
from gateway.ledger import Finished
from gateway.ledger.entries import Audited, Shippable

EDGES_HOURS = (0, 1, 12, 24, 7 * 24, 14 * 24)
MODELS = ("model-0", "model-1", "model-2", "model-3")
KINDS = ("timeout", "server_error", "rate_limited", "bad_request")
ENDPOINTS = ("chat.completions", "messages", "responses", "embeddings")


def made(number: int, until: datetime, days: float) -> Iterator[Shippable]:
    """Yield the entries of ``number`` calls, spread evenly over the ``days`` before ``until``.

    None is so old that it may leave a window, or a question's range, while the two are asked one after the other.
    """
    draw = random.Random(5)
    for at in range(number):
        age = timedelta(days=days) * (1 - at / number)
        if not any(abs(age - timedelta(hours=edge)) < timedelta(minutes=40) for edge in EDGES_HOURS):
            yield from _call(draw, until - age)
            if at % 100 == 0:
                yield _refused(draw, until - age, "never" if at % 200 else "model-1")


def lately(number: int, until: datetime, minutes: float) -> Iterator[Shippable]:
    """Yield the entries of ``number`` calls of the last ``minutes``, most of one model so that it has many audits."""
    draw = random.Random(7)
    for at in range(number):
        models = ("model-0",) if at % 8 else ("model-1", "model-2", "model-3")
        yield from _call(draw, until - timedelta(minutes=minutes) * (1 - at / number), models)


def _refused(draw: random.Random, at: datetime, model: str) -> Finished:
    """Return a call for which no attempt was launched."""
    record = CallRecord(
        id=uuid7(int(at.timestamp() * 1000), draw.getrandbits(74)),
        started_at=at,
        client=None,
        model=model,
        endpoint="chat.completions",
        api="chat.completions",
        streamed=False,
        mode=Mode.SINGLE,
        objective=Objective.FIRST_TOKEN,
        prompt_class=0,
        size_class=0,
        win_on=WinOn.ANY,
        replica="r1",
        region=None,
        tags={},
        request_id=None,
        status_code=503,
        total_ms=0.5,
        overhead_ms=0.5,
        error_kind="no_deployment",
        ttft_ms=None,
        prompt_tokens=None,
        launched=0,
        winner_attempt_id=None,
        attempts=(),
    )
    return Finished(record)


def _call(draw: random.Random, at: datetime, models: Sequence[str] = MODELS) -> Iterator[Shippable]:  # noqa: C901, PLR0915 - a call has as many facts
    call_id, first_id, second_id = (uuid7(int(at.timestamp() * 1000), draw.getrandbits(74)) for _ in range(3))
    model, client = draw.choice(models), draw.choice(["ann", "bob", "cid", None])
    api = draw.choices(ENDPOINTS, (6, 2, 2, 1))[0]
    slow, fast = draw.lognormvariate(5.8, 0.6), draw.lognormvariate(5.3, 0.5)
    both: dict[str, Any] = {
        "call_id": call_id,
        "started_at": at,
        "model": model,
        "client": client,
        "api": api,
        "size_class": draw.randrange(3),
        "win_on": draw.choices(tuple(WinOn), [20 if each is WinOn.ANY else 1 for each in WinOn])[0],
        "prompt_tokens": draw.randrange(50, 4000),
        "cached_tokens": draw.randrange(50),
        "launch_offset_ms": 0.5,
        "in_flight": draw.randrange(9),
        "status_code": 200,
        "key_name": TENANT if call_id.endswith("0") else "#1",
    }
    fate = draw.random()
    racing = draw.random() < 0.6
    places = draw.sample(range(5), 2)
    names: list[dict[str, Any]] = [{"provider": f"p{place}", "deployment": f"p{place}/{model}"} for place in places]
    primary, backup = names
    tokens = draw.randrange(5, 900)
    is_burst = draw.random() < (0.9 if primary["provider"] == "p4" else 0.1)
    answered: dict[str, Any] = {
        "outcome": Outcome.WON,
        "completion_tokens": tokens,
        "chars": tokens * 4,
        "cost_usd": draw.uniform(0, 0.01),
        "tokens_source": TokensSource.REPORTED if draw.random() < 0.9 else TokensSource.ESTIMATED,
        "decode_tps": None if is_burst else draw.uniform(20, 200),
        "last_token_ms": slow + (5 if is_burst else 10 * tokens),
        "judged_as": draw.choice([AnswerKind.PLAIN, None]),
        "e2e_tps": draw.uniform(10, 100),
        "is_overtaken": False,
    }
    answered["flaw"] = Flaw.TRUNCATED if answered["judged_as"] and draw.random() < 0.1 else None
    extra = draw.choice([Role.RACE, Role.RACE, Role.HEDGE, Role.EXPLORE, Role.FALLBACK])
    known: dict[str, Any] = {
        "id": call_id,
        "started_at": at,
        "client": client,
        "model": model,
        "endpoint": api,
        "api": api,
        "streamed": True,
        "win_on": both["win_on"],
        "mode": Mode.RACE if racing else Mode.SINGLE,
        "objective": Objective.FIRST_TOKEN,
        "prompt_class": 0,
        "replica": "r1",
        "region": None,
        "tags": {"variant": draw.choice("ab"), "caf\xe9": "\u2028\"'"},
        "request_id": f"order-{draw.randrange(9999)}",
        "status_code": 200,
        "total_ms": 2000 * draw.random(),
        "overhead_ms": 0.4,
        "error_kind": None,
        "ttft_ms": None,
        "prompt_tokens": both["prompt_tokens"],
        "launched": 1 + racing,
        "narrowed": None if racing else Narrowed.COOLING,
        "winner_attempt_id": first_id,
    }
    if draw.random() < 0.1:
        known |= {"deadline_ms": 500.0, "deadline_met": draw.random() < 0.8}
    attempts: list[AttemptRecord]
    late: list[AttemptRecord] = []
    if fate < 0.05:  # it failed
        kind = draw.choice(KINDS)
        status = {"rate_limited": 429, "bad_request": 400}.get(kind, 502)
        attempts = [
            AttemptRecord(
                id=first_id,
                number=1,
                role=Role.PRIMARY,
                outcome=draw.choice([Outcome.FAILED, Outcome.TIMEOUT]),
                error_kind=kind,
                error_message=f"{kind} {draw.randrange(1000)}",
                **primary,
                **both | {"status_code": status},
            )
        ]
        known |= {"launched": 1, "winner_attempt_id": None, "status_code": status, "error_kind": kind}
    elif fate < 0.08:  # its client left
        attempts = [
            AttemptRecord(
                id=first_id,
                number=1,
                role=Role.PRIMARY,
                outcome=Outcome.CLIENT_GONE,
                censored_at_ms=slow,
                **primary,
                **both,
            )
        ]
        known |= {
            "launched": 1,
            "winner_attempt_id": None,
            "status_code": 499,
            "error_kind": "client_gone",
            "abandoned_cost_low_usd": 0.001,
            "abandoned_cost_high_usd": 0.004,
        }
    elif not racing or slow <= fast + 80:  # the primary won
        attempts = [
            AttemptRecord(
                id=first_id,
                number=1,
                role=Role.PRIMARY,
                **_begun(slow),
                **_stated(answered, primary),
                **primary,
                **both,
            )
        ]
        if racing:
            attempts.append(
                AttemptRecord(
                    id=second_id,
                    number=2,
                    role=extra,
                    outcome=Outcome.LOST,
                    censored_at_ms=slow,
                    cost_usd=0.0005,
                    cost_low_usd=0.0002,
                    cost_high_usd=0.001,
                    **backup,
                    # no model: as in rows of older versions
                    **both | {"launch_offset_ms": 80.0, "model": model if draw.random() < 0.95 else None},
                )
            )
        known |= {"ttft_ms": slow, "alone_ms": slow, "completion_tokens": answered["completion_tokens"]}
        known |= {"duplicate_cost_usd": 0.0005} if racing else {}
        if draw.random() < 0.1:
            known |= {"held_ms": 12.5, "held_for": "speed"}
    else:  # it was overtaken: cut, or watched on, beyond the call's end perhaps
        audited = draw.random() < 0.25
        cut: dict[str, Any] = {"outcome": Outcome.SUPERSEDED, "overtaken_at_ms": fast + 80, "is_overtaken": True}
        predicted_ms = max(fast + 90, draw.lognormvariate(5.9, 0.2))
        if audited and draw.random() < 0.05:
            cut |= {"outcome": Outcome.FAILED, "error_kind": "server_error", "censored_at_ms": fast + 90}
        elif audited:
            cut |= _begun(slow)
        else:
            cut |= {"censored_at_ms": fast + 80}
        drawn = draw.random() < 0.9
        first = AttemptRecord(
            id=first_id,
            number=1,
            role=Role.PRIMARY,
            audited=audited,
            cost_usd=0.001,
            cost_low_usd=0.0005,
            cost_high_usd=0.002,
            predicted_ms=predicted_ms if drawn else None,
            cache_saved_usd=draw.choice([None, 0.0002, 0.003, 0.02]),
            **cut,
            **primary,
            **both | ({} if draw.random() < 0.5 else {"cached_tokens": None}),
        )
        second = AttemptRecord(
            id=second_id,
            number=2,
            role=extra,
            cache_saved_usd=draw.choice([None, 0.0001, 0.004]),
            **_begun(fast),
            **_stated(answered, backup),
            **backup,
            # now and then a client's own key for one of them
            **both | {"launch_offset_ms": 80.0} | ({"key_name": TENANT} if draw.random() < 0.1 else {}),
        )
        known |= {
            "winner_attempt_id": second_id,
            "ttft_ms": fast + 80,
            "alone_age_ms": fast + 80,
            "alone_predicted_ms": predicted_ms if drawn else None,
            "completion_tokens": answered["completion_tokens"],
        }
        attempts, late = ([second], [first]) if audited and draw.random() < 0.5 else ([first, second], [])
        known |= {} if late or "error_kind" in cut else {"duplicate_cost_usd": 0.001}
        if draw.random() < 0.1:  # another one went on with it, and is the call's winner
            heir_id = uuid7(int(at.timestamp() * 1000), draw.getrandbits(74))
            attempts.append(
                AttemptRecord(
                    id=heir_id,
                    number=3,
                    role=Role.TAKEOVER,
                    **_begun(fast),
                    **_stated(answered, primary),
                    **primary,
                    **both | {"launch_offset_ms": 900.0},
                )
            )
            added_usd = None if second.key_name == TENANT else second.cost_usd
            known |= {"winner_attempt_id": heir_id, "duplicate_cost_usd": added_usd}
    costs = [each.cost_usd for each in attempts if each.cost_usd is not None and each.key_name != TENANT]
    known |= {"cost_usd": sum(costs)} if costs else {}
    known |= {"duplicate_cost_usd": None} if both["key_name"] == TENANT else {}
    yield Finished(CallRecord(attempts=tuple(attempts), **known))
    if late:
        yield Audited(call_id, tuple(late))


def _begun(ms: float) -> dict[str, Any]:
    """Return when an answer had a first token, and each of what else may win a race."""
    return {"ttft_ms": ms, "token_ms": ms, "ttft_answer_ms": ms + 5, "sentence_ms": ms + 50, "valid_ms": ms + 9}


def _stated(answered: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of an answer as its provider states them: one counts tokens double."""
    return answered | {"completion_tokens": answered["completion_tokens"] * (2 if place["provider"] == "p0" else 1)}
