"""Races in virtual time in which a deployment refuses the API that it is asked in."""

from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Call
from gateway.core.errors import ApiError
from gateway.fleet import Deployment
from gateway.racing import OtherForms, RewordedRequest
from providers import ErrorKind, Fact, Kind, LearntFacts, UpstreamError
from providers.dialects import CHAT, RESPONSES, Dialect
from tests.unit.racing.track import DONE, FINISH, Timetable, Track, delta, usage
from tests.unit.racing.virtual_time import run

ANSWER = [(1.0, delta("by another API") + FINISH + usage() + DONE), (1.0, None)]


def refusal() -> UpstreamError:
    words = "This model is only supported in v1/responses and not in v1/chat/completions."
    return UpstreamError(ErrorKind.NOT_FOUND, words, status=404)


async def reworded(call: Call, _: Deployment, dialect: Dialect) -> RewordedRequest | None:
    """Return the request in chat's own words, as the timetables answer; a field says what was asked for."""
    return RewordedRequest(
        CHAT, {**call.request.fields, "asked_in": msgspec.Raw(b'"%b"' % dialect.name.encode())}, ("stop",)
    )


def track(*upstreams: Timetable, **options: Any) -> tuple[Track, LearntFacts]:
    once, learnt = Track(*upstreams, **options), LearntFacts()
    able = {
        name: msgspec.structs.replace(each, speaks=(CHAT, RESPONSES), learnt=learnt, may_have=())
        for name, each in once.model.deployments.items()
    }
    once.model = msgspec.structs.replace(once.model, deployments=able)
    return once, learnt


async def ran(once: Track) -> Any:
    race = once.race()
    services = race.open_call.services
    race.open_call.services = msgspec.structs.replace(services, forms=OtherForms(reworded))
    return await race.run()


def test_it_is_asked_again_at_once_in_its_seat_and_what_it_lacks_is_remembered() -> None:
    picky = Timetable("picky", [(0.2, refusal())], ANSWER)
    once, learnt = track(picky)
    record = run(ran(once))
    assert [(each.role, each.error_kind, each.launch_offset_ms) for each in record.attempts] == [
        (Role.PRIMARY, "no_such_api", 0.0),
        (Role.API, None, 200.0),
    ]
    assert bytes(picky.requests[1].fields["asked_in"]) == b'"responses"'
    assert (record.status_code, record.dropped, record.extras) == (200, ("stop",), 0)
    assert Fact(Kind.API, "chat", "chat") in learnt.of("picky-model")  # by the words of this test


def test_the_other_of_a_race_goes_on_and_may_win() -> None:
    picky = Timetable("picky", [(0.2, refusal())], [(5.0, delta("late")), (5.0, None)])
    beside = Timetable("beside", [(0.5, delta("beside") + FINISH + usage() + DONE), (0.5, None)])
    once, learnt = track(picky, beside)
    record = run(ran(once))
    assert {f"{each.deployment} {each.role}": each.outcome for each in record.attempts} == {
        "picky primary": "failed",
        "beside race": "won",
        "picky api": "lost",
    }
    assert len(beside.requests) == 1
    assert learnt.steers  # the next race asks it once


def test_a_race_without_other_apis_fails_as_before() -> None:
    once, _ = track(Timetable("picky", [(0.2, refusal())], ANSWER))
    with pytest.raises(ApiError):
        run(once.run())
    assert len(once.upstreams["picky"].requests) == 1
