"""A request that is refused for its form is sent in another one as an attempt of its own, in the place of the first."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Outcome, Role
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError
from gateway.fleet import Clocks
from gateway.racing import Seats
from providers import Exchange, Request, Upstream
from providers.dialects import CHAT
from providers.exchange import FormRequest, adapted, taken
from providers.refusals import ErrorKind, Fact, Kind, LearntFacts, UpstreamError
from tests.unit.racing.test_audits import to_the_end
from tests.unit.racing.test_keys import RING, limited, ring_of, shown, track
from tests.unit.racing.test_race import answers
from tests.unit.racing.track import Timetable, Track
from tests.unit.racing.virtual_time import run
from tests.unit.steering.inside.test_alone import known

REFUSED = "Unrecognized request argument supplied: verbosity"
VERBOSITY = Fact(Kind.FIELD, "verbosity", dialect="chat")


def teaches(at: float = 0.1, said: str = REFUSED) -> tuple[float, UpstreamError]:
    return at, UpstreamError(ErrorKind.BAD_REQUEST, said, status=400)


class Taught(Timetable):
    """A provider that refuses its first requests, and knows in which form the next one is sent."""

    def __init__(self, name: str, *timetables: Any) -> None:
        super().__init__(name, *timetables)
        self.learnt = LearntFacts()

    async def stream(self, request: Request) -> Exchange:
        """Return the answer to a request in the form that was found."""
        asked, answer = FormRequest(request, CHAT.name, CHAT.requests), super().stream
        return await taken(
            self.learnt, asked, say=lambda facts: adapted(request.fields, facts, asked), ask=lambda _: answer(request)
        )


def taught(*steps: Any, at: float = 0.1) -> Taught:
    return Taught("taught", [teaches(at)], *steps)


def answer(at: float) -> Any:
    return answers("good", at)._timetables[0]


def form(upstream: Upstream, *others: Timetable, **options: Any) -> Track:
    return track(upstream, *others, fields={"verbosity": "low"}, **options)


def test_it_is_a_row_with_its_own_first_token() -> None:
    raced = form(taught(answer(0.2), at=0.8))
    record = run(raced.run())
    assert shown(record.attempts) == [("primary", "failed", "form_refused", 400), ("form", "won", None, 200)]
    first, second = record.attempts
    assert (first.ttft_ms, first.headers_ms, first.sends, first.cost_high_usd) == (None, None, 1, 0)
    assert (second.launch_offset_ms, second.ttft_ms, second.sends) == (pytest.approx(800), pytest.approx(200), 1)
    assert (second.replaces, second.counts_as) == (first.id, Role.PRIMARY)
    assert (record.launched, record.extras, record.narrowed, record.alone_ms) == (2, 0, None, pytest.approx(1000))
    assert (record.duplicate_cost_usd, raced.asked, record.winner_attempt_id) == (0, [], second.id)


def test_beside_another_it_is_no_extra_attempt_and_draws_no_budget() -> None:
    raced = form(taught(answer(0.2)), answers("other", 1.0))
    record = run(raced.run())
    assert [each.role for each in record.attempts] == [Role.PRIMARY, Role.RACE, Role.FORM]
    assert [each.outcome for each in record.attempts] == [Outcome.FAILED, Outcome.LOST, Outcome.WON]
    assert [each.is_extra for each in record.attempts] == [False, True, False]
    assert (record.launched, record.extras, raced.asked) == (3, 1, [Role.RACE])


def test_an_overtaken_primary_is_the_one_in_its_last_form_and_audited_as_the_first_was() -> None:
    raced = form(taught(answer(1.0)), answers("quick", 0.4), audited=[RING, "quick"])
    raced.expects(known().of(RING))
    record = run(to_the_end(raced))
    assert record.alone_age_ms == pytest.approx(300)
    [audited] = raced.recorder.audited
    assert (audited.role, audited.audited, audited.outcome) == (Role.FORM, True, Outcome.SUPERSEDED)
    assert (audited.counts_as, audited.ttft_ms) == (Role.PRIMARY, pytest.approx(1000))


def test_one_that_another_is_held_for_may_be_sent_in_another_form() -> None:
    slow = answers("slow", 0.2, *"abcdefgh", gap=1.0)
    launches = [("slow", 0.0, Role.PRIMARY), (RING, 0.0, Role.RACE)]
    raced = form(taught(answer(0.5), at=0.5), slow, launches=launches, decode_s={"slow": 9.0, RING: 1.0})
    record = run(raced.run())
    assert (record.held_for, record.ttft_ms) == (RING, pytest.approx(1000))
    assert [each.role for each in record.attempts] == [Role.PRIMARY, Role.RACE, Role.FORM]


def test_all_forms_together_have_the_time_of_one_attempt_and_its_seat() -> None:
    clocks, seats = Clocks(connect_s=5.0, ttft_s=1.0, stall_s=5.0, total_s=None), Seats()
    seats.limit({RING: 1}, 0.0, lambda _: ())
    raced = form(taught([teaches(0.4, f"{REFUSED[:-9]}top_p")], answer(5.0), at=0.4), clocks=clocks, seats=seats)
    raced._fields["top_p"] = msgspec.Raw(b"0.5")
    with pytest.raises(ApiError):
        run(raced.run())
    [record] = raced.recorder.records
    assert record.total_ms == pytest.approx(1000)
    assert [each.error_kind for each in record.attempts] == ["form_refused", "form_refused", "ttft_timeout"]


def test_a_key_that_is_limited_meanwhile_is_followed_by_one_that_is_sent_the_same_form() -> None:
    first, second = taught([limited()._timetables[0][0]]), Taught("second", answer(0.2))
    second.learnt = first.learnt  # as the keys of a provider have it
    record = run(form(ring_of(first, second)).run())
    assert shown(record.attempts) == [
        ("primary", "failed", "form_refused", 400),
        ("form", "failed", "key_refused", 429),
        ("key", "won", None, 200),
    ]
    assert [each.counts_as for each in record.attempts] == [None, Role.PRIMARY, Role.PRIMARY]
    assert [len(each.requests) for each in (first, second)] == [2, 1]
    assert first.learnt.of(f"{RING}-model") == (VERBOSITY,)


def test_a_wrong_request_is_told_by_its_first_refusal_and_asked_nowhere_twice() -> None:
    provider = taught([teaches(0.1, "messages: too short")])
    raced = form(provider)
    with pytest.raises(ApiError, match="messages"):
        run(raced.run())
    [record] = raced.recorder.records
    assert [each.error_kind for each in record.attempts] == ["form_refused", "bad_request"]
    assert len(provider.requests) == 2


def test_what_a_refusal_taught_is_kept_though_its_client_leaves() -> None:
    provider = taught(answer(5.0))
    raced = form(provider)

    async def main() -> CallRecord:
        call = asyncio.ensure_future(raced.run())
        await asyncio.sleep(1.0)
        call.cancel()
        await asyncio.wait([call])
        return raced.recorder.records[0]

    assert shown(run(main()).attempts)[1] == ("form", "client_gone", None, 200)
    assert provider.learnt.of(f"{RING}-model") == (VERBOSITY,)


def test_a_call_makes_no_more_requests_than_it_may_and_its_error_tells_that() -> None:
    provider = taught(answer(0.2))
    raced = form(provider)

    async def main() -> None:
        race = raced.race()
        race.open_call.sent.most = 1
        await race.run()

    run(main())
    [failed] = raced.recorder.ended
    assert failed.error_kind == ErrorKind.BAD_REQUEST
    assert failed.error_message is not None
    assert failed.error_message.endswith("(another form was not sent: this call has made 1 requests, its max_requests)")
    assert len(provider.requests) == 1
    assert provider.learnt.of(f"{RING}-model") == (VERBOSITY,)
