"""Many calls at rings of three keys whose providers refuse at random: each request is a row, and no row shows two.

``SCHEDULES=10000`` runs so many of each kind. The seed is fixed, so a call that fails is found again by its number.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Outcome, Role
from gateway.core.errors import ApiError
from providers import MOST_OF_CALL, Exchange, Price, Request, Upstream
from providers.dialects import CHAT
from providers.exchange import FormRequest, adapted, taken
from providers.keys import KeyRing, RotatedKey
from providers.refusals import ErrorKind, LearntFacts, UpstreamError
from tests.unit.racing.server import limited
from tests.unit.racing.test_audits import to_the_end
from tests.unit.racing.track import DONE, FINISH, Step, Timetable, Track, delta
from tests.unit.racing.virtual_time import run

CALLS = int(os.environ.get("SCHEDULES", "80"))
FIELDS: Mapping[str, Any] = {"verbosity": "low", "temperature": 0.5, "top_p": 0.5}
PREFERENCES = (
    *(*FIELDS, "frequency_penalty", "presence_penalty", "seed", "logit_bias", "service_tier", "reasoning_effort"),
)
WELL, LIMITED, DEAD, WRONG, DOWN, FULL = "well", "limited", "dead", "wrong", "down", "full"
STEPS = {ErrorKind.KEY_REFUSED, ErrorKind.FORM_REFUSED}


class Weak(Timetable):
    """One key of a provider: what its next request meets is drawn, and how long that takes."""

    def __init__(self, name: str, dice: Random, meets: Callable[[], str], learnt: LearntFacts) -> None:
        super().__init__(name)
        self.learnt, self._meets = learnt, meets
        self.first_tokens: dict[int, float] = {}  # ms after the launch, by when that was: ms since the call came
        self._dice, self._refusing = dice, Random(98)
        self._steps: list[list[tuple[float, Step]]] = []

    async def stream(self, request: Request) -> Exchange:
        """Answer as drawn; a wrong request is refused for the first of its optional fields, if it has one."""
        asked = FormRequest(request, CHAT.name, CHAT.requests)

        async def answered(sent: Any) -> Exchange:
            self._steps.append(self._drawn(next((name for name in PREFERENCES if name in sent.fields), None)))
            self._timetables = tuple(self._steps)
            return await Timetable.stream(self, request)

        return await taken(self.learnt, asked, say=lambda facts: adapted(request.fields, facts, asked), ask=answered)

    def _drawn(self, named: str | None) -> list[tuple[float, Step]]:
        meets, at = self._meets(), self._refusing.uniform(0.05, 0.9)
        if meets == LIMITED:
            return [(at, UpstreamError(ErrorKind.RATE_LIMITED, "slow down", status=429, retry_after_s=30.0))]
        if meets == DEAD:
            return [(at, UpstreamError(ErrorKind.PROVIDER_AUTH, "no such key", status=401))]
        if meets == DOWN:
            return [(at, UpstreamError(ErrorKind.SERVER_ERROR, "down", status=503))]
        if meets == WRONG and named is not None:
            said = f"Unrecognized request argument supplied: {named}"
            return [(at, UpstreamError(ErrorKind.BAD_REQUEST, said, status=400))]
        at = self._dice.uniform(0.05, 0.9)
        since_ms = (asyncio.get_running_loop().time() - 1000) * 1000
        self.first_tokens[round(since_ms)] = at * 1000
        return [(at, delta("Hello")), (at + 0.1, FINISH), (at + 0.1, DONE), (at + 0.1, None)]


class Ring:
    """A deployment whose provider has three keys, of which some are being replaced by others."""

    def __init__(self, name: str, dice: Random, meets: Sequence[Callable[[], str]], *, rotated: float = 0.0) -> None:
        self.name, self.keys, learnt = name, list[Weak](), LearntFacts()

        def key(each: Callable[[], str]) -> Weak:
            self.keys.append(Weak(name, dice, each, learnt))
            return self.keys[-1]

        def place(each: Callable[[], str]) -> Upstream:
            if not rotated or dice.random() >= rotated:
                return key(each)
            return RotatedKey(["new", "former"], lambda _: key(each), tell=lambda _: None)

        places = {f"key-{number}": place(each) for number, each in enumerate(meets)}
        self.upstream = KeyRing(name, [*places], places.__getitem__, clock=lambda: 1000.0)

    @property
    def received(self) -> int:
        """The requests that its provider has counted."""
        return sum(len(key.requests) for key in self.keys)

    def first_token_of(self, row: AttemptRecord) -> float | None:
        """Return how long the first token took of the request that was sent when this attempt was launched."""
        found = (key.first_tokens.get(round(row.launch_offset_ms)) for key in self.keys)
        return next((ms for ms in found if ms is not None), None)


def track(*rings: Ring, rest: Sequence[Ring] = (), **options: Any) -> Track:
    every = (*rings, *rest)
    made = Track(
        *(Timetable(each.name) for each in every),
        launches=[(each.name, 0.0, Role.RACE if number else Role.PRIMARY) for number, each in enumerate(rings)],
        rest=[each.name for each in rest],
        price=Price(1e-6, 2e-6),
        **{"fields": FIELDS, **options},
    )
    deployments = {
        each.name: msgspec.structs.replace(made.model.deployments[each.name], upstream=each.upstream, drop_params=True)
        for each in every
    }
    made.model = msgspec.structs.replace(made.model, deployments=deployments)
    return made


def rows_of(made: Track) -> list[AttemptRecord]:
    try:
        run(to_the_end(made))
    except ApiError:
        assert made.recorder.records[0].winner_attempt_id is None
    return made.recorder.ended


ANY = (WELL, WELL, LIMITED, DEAD, WRONG, WRONG, DOWN)


@pytest.mark.parametrize("shape", ["alone", "raced", "audited", "failover"])
def test_each_request_that_providers_count_is_a_row_which_shows_no_other(shape: str) -> None:
    dice, most, roles = Random(98), 0, Counter[str]()
    for number in range(CALLS):
        first, other = (
            Ring(name, dice, [partial(dice.choice, dice.sample(ANY, k=3)) for _ in range(3)], rotated=0.3)
            for name in ("first", "other")
        )
        rings = [first] if shape == "alone" else [first, other]
        made = track(
            *(rings[:1] if shape == "failover" else rings),
            rest=rings[1:] if shape == "failover" else (),
            audited=["first", "other"] if shape == "audited" else (),
        )
        rows, [record] = rows_of(made), made.recorder.records
        assert sum(row.sends or 0 for row in rows) == sum(ring.received for ring in rings), number
        assert record.launched == len(rows) == len({row.id for row in rows}), number
        assert record.extras == sum(bool(row.is_extra) for row in rows) <= len(rings) - 1, number
        assert len(made.asked) <= len(rings) - 1, number  # a step draws no budget
        ids = {row.id: row for row in rows}
        for row in rows:
            ring = first if row.deployment == "first" else other
            if row.ttft_ms is not None:
                assert row.ttft_ms == pytest.approx(ring.first_token_of(row), abs=0.1), (number, row)
            if row.error_kind in STEPS:
                assert (row.outcome, row.ttft_ms, row.cost_high_usd or 0) == (Outcome.FAILED, None, 0), (number, row)
            if row.role in {Role.KEY, Role.FORM}:
                before = ids[row.replaces or ""]
                kind = ErrorKind.KEY_REFUSED if row.role is Role.KEY else ErrorKind.FORM_REFUSED
                assert (before.deployment, before.error_kind) == (row.deployment, kind), (number, row)
                assert (before.audited, before.is_extra or not row.is_extra) == (row.audited, True), (number, row)
        most = max(most, len(rows))
        roles.update(str(row.role) for row in rows)
    assert most <= MOST_OF_CALL
    assert {"primary", "key", "form"} <= {*roles}


@pytest.mark.parametrize("met", [(), (LIMITED,), (DEAD,), (WRONG,), (WRONG, LIMITED, WRONG)], ids=" ".join)
def test_a_deployment_that_refuses_first_is_as_fast_as_what_answers_then(met: Sequence[str]) -> None:
    """Its rows have the first tokens of the key or form that is taken, each counts as a primary, and none failed."""
    for number in range(CALLS):
        left = iter((*met, WELL))
        made = track(Ring("first", Random(number), [left.__next__] * 3))
        *refused, row = rows_of(made)
        assert [each.error_kind in STEPS for each in refused] == [True] * len(met)
        assert (row.counts_as or row.role, row.outcome) == (Role.PRIMARY, Outcome.WON)
        assert row.ttft_ms == pytest.approx(Random(number).uniform(0.05, 0.9) * 1000, abs=0.01)


def test_a_request_may_be_refused_for_one_field_after_the_other() -> None:
    fields = dict.fromkeys(PREFERENCES, 0.5)
    left = iter([WRONG] * len(fields) + [WELL])
    made = track(Ring("first", Random(1), [left.__next__]), fields=fields)
    *refused, row = rows_of(made)
    # Three by themselves; then all other preferences are left out at once, and musts one by one (``drop_params``).
    assert len(refused) == 3 + len(["seed", "logit_bias"])
    assert (row.role, row.outcome) == (Role.FORM, Outcome.WON)


@pytest.mark.parametrize("other", [(), (WELL,), (DOWN,), (FULL,)], ids=["alone", "well", "down", "full"])
def test_the_last_request_that_a_call_may_make_is_for_another_deployment(other: Sequence[str]) -> None:
    ring = Ring("first", Random(1), [lambda: LIMITED] * (MOST_OF_CALL + 9))
    rest, seats = [Ring("other", Random(2), [partial(next, iter(other))])] if other else [], limited(other=1)
    if is_full := other == (FULL,):
        seats.lines["other"].take()
    rows = rows_of(track(ring, rest=rest, seats=seats))
    asked = () if is_full else other
    assert len(rows) == MOST_OF_CALL == ring.received + len(asked)
    assert [(row.deployment, row.outcome == Outcome.WON) for row in rows[ring.received :]] == [
        ("other", met == WELL) for met in asked
    ]
    told = [row.error_message or "" for row in rows if "its max_requests" in (row.error_message or "")]
    assert len(told) == (0 if asked else 1)


def test_who_has_no_seat_free_does_not_keep_a_key_that_works_from_the_last_request() -> None:
    met = [lambda: LIMITED] * (MOST_OF_CALL - 1) + [lambda: WELL]
    ring, seats = Ring("first", Random(1), met), limited(other=1)
    seats.lines["other"].take()
    *_, row = rows_of(track(ring, rest=[Ring("other", Random(2), [lambda: WELL])], seats=seats))
    assert (row.deployment, row.outcome) == ("first", Outcome.WON)
