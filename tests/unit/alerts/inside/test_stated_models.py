"""A deployment that begins to state another model: what is a change, how long it is one, and what is no change."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from gateway.alerts import Severity, StatedModel, StatedModels, StatedModelSource
from gateway.alerts.alert import AlertCondition, SourceUnavailable
from gateway.alerts.stated_models import (
    FINGERPRINTS,
    HISTORY,
    LASTS,
    LEAST_ANSWERS,
    LEAST_BEFORE,
    LONGEST_LOOK,
    MOST_DEPLOYMENTS,
    MOST_MODELS,
    TAKES_OVER,
)
from gateway.core.reports import ReportsUnreachable, ReportTooSlow

START = datetime(2030, 1, 1, tzinfo=UTC)


class World:
    """One ledger, and replicas that each note the answers that they give, in virtual time."""

    def __init__(self, replicas: int = 1) -> None:
        self.now = START
        self.answers: list[tuple[str, str, datetime]] = []  # deployment, model, time
        self.error: Exception | None = None
        self.reads = 0
        self.replicas = [StatedModels(lambda: self.now) for _ in range(replicas)]
        self.sources = [StatedModelSource(each, self.read, utc_now=lambda: self.now) for each in self.replicas]

    async def read(self, sql: str) -> Sequence[StatedModel]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        [news] = [each for replica in self.replicas for each in replica.news if f"'{each.model}'" in sql][:1]
        since = self.now - HISTORY
        mine = [(model, at) for name, model, at in self.answers if name == news.deployment and at >= since]
        first_at = min((at for model, at in mine if model == news.model), default=None)
        found = []
        for model in dict.fromkeys(model for model, _ in mine):
            times = [at for each, at in mine if each == model]
            earlier = sum(first_at is not None and at < first_at for at in times)
            found.append(StatedModel(model, len(times), times[0], times[-1], earlier))
        return found

    def answer(self, model: str | None, times: int = 1, *, replica: int = 0, deployment: str = "a/chat") -> None:
        """Note answers, one a second, as calls do."""
        stated = self.replicas[replica]
        for _ in range(times):
            self.now += timedelta(seconds=1)
            if model is not None:
                self.answers.append((deployment, model, self.now))
            if model not in stated.known.get(deployment, ()):
                stated.add(deployment, model)

    def changes(self, replica: int = 0) -> list[str]:
        """Return the subjects of the conditions that hold now."""
        return [each.subject for each in asyncio.run(self.conditions(replica))]

    async def conditions(self, replica: int = 0) -> Sequence[AlertCondition]:
        return await self.sources[replica].conditions()


def test_another_model_is_one_change_that_names_both_and_ends() -> None:
    world = World()
    world.answer("m-1", LEAST_BEFORE)
    assert world.changes() == []
    world.answer("m-2", LEAST_ANSWERS)
    [condition] = asyncio.run(world.sources[0].conditions())
    assert (condition.subject, condition.severity) == ("a/chat", Severity.TICKET)
    assert condition.summary == (
        "Deployment a/chat states another model since 2030-01-01 00:00 UTC: 'm-2', before 'm-1'"
    )
    world.answer("m-2", 10)
    assert world.changes() == ["a/chat"]
    assert world.reads == 1
    world.now += LASTS
    assert world.changes() == []
    world.answer("m-2", 10)
    assert world.changes() == []


def test_what_a_deployment_states_at_first_is_no_change() -> None:
    world = World()
    world.answer(None, 3)
    world.answer("m-1", 10)
    world.answer(None, 3)
    assert world.changes() == []
    assert world.reads == 0


def test_a_few_answers_of_another_model_are_no_change() -> None:
    world = World()
    world.answer("m-1", LEAST_BEFORE)
    world.answer("m-2", LEAST_ANSWERS - 1)
    world.answer("m-1", 10)
    assert world.changes() == []


def test_two_models_in_turn_are_no_change_however_long() -> None:
    world = World()
    for _ in range(50):
        world.answer("m-1")
        world.answer("m-2")
        assert world.changes() == []


def test_a_deployment_that_goes_back_has_changed_once() -> None:
    world = World()
    world.answer("m-1", LEAST_BEFORE)
    world.answer("m-2", 10)
    assert world.changes() == ["a/chat"]
    world.now += LASTS
    world.answer("m-1", 10)
    world.answer("m-2", 10)
    assert world.changes() == []


def test_all_replicas_see_one_change_and_one_that_is_late_none() -> None:
    world = World(3)
    for replica in range(3):
        world.answer("m-1", LEAST_BEFORE, replica=replica)
    world.answer("m-2", LEAST_ANSWERS, replica=0)
    world.answer("m-2", LEAST_ANSWERS, replica=1)
    assert [world.changes(replica) for replica in range(3)] == [["a/chat"], ["a/chat"], []]
    world.now += LASTS
    world.answer("m-2", LEAST_ANSWERS, replica=2)
    assert [world.changes(replica) for replica in range(3)] == [[], [], []]


def test_rows_that_are_not_there_yet_delay_nothing() -> None:
    world = World()
    world.answer("m-1", LEAST_BEFORE)
    world.answer("m-2", LEAST_ANSWERS)
    world.answers = [each for each in world.answers if each[1] == "m-1"]
    assert world.changes() == ["a/chat"]


def test_while_the_database_is_away_nothing_is_said_and_nothing_forgotten() -> None:
    world = World()
    world.answer("m-1", LEAST_BEFORE)
    world.answer("m-2", LEAST_ANSWERS)
    world.error = ReportsUnreachable("away")
    with pytest.raises(SourceUnavailable):
        world.changes()
    world.error = None
    assert world.changes() == ["a/chat"]


def test_a_ledger_too_large_to_look_through_is_asked_once_and_hides_no_change() -> None:
    world = World()
    world.answer("m-1", LEAST_BEFORE)
    world.answer("m-2", LEAST_ANSWERS)
    world.error = ReportTooSlow("too slow")
    assert world.changes() == ["a/chat"]
    assert world.changes() == ["a/chat"]
    assert world.reads == 1


def test_each_deployment_changes_for_itself() -> None:
    world = World()
    for deployment in ("a/chat", "b/chat"):
        world.answer("m-1", LEAST_BEFORE, deployment=deployment)
    world.answer("m-2", LEAST_ANSWERS, deployment="b/chat")
    assert world.changes() == ["b/chat"]


def test_a_text_of_its_own_in_each_answer_is_no_change_and_takes_no_memory() -> None:
    world = World()
    world.answer("m-1", LEAST_BEFORE)
    for number in range(3 * MOST_DEPLOYMENTS):
        world.answer(f"m-{number}-of-its-own")
    for number in range(3 * MOST_MODELS):
        world.answer(f"m-{number}-thrice", LEAST_ANSWERS)
    stated = world.replicas[0]
    assert len(stated.known["a/chat"]) <= MOST_MODELS + 1
    assert len(stated.news) <= MOST_MODELS
    assert len(stated._new) <= MOST_DEPLOYMENTS
    for number in range(2 * MOST_DEPLOYMENTS):
        world.answer("m-1", deployment=f"of-clients/{number}")
    assert len(stated.known) <= MOST_DEPLOYMENTS


class Fingerprints:
    """A provider's answers of one model, one a second, and who follows its fingerprints, in virtual time."""

    def __init__(self) -> None:
        self.now = START
        self.answers: list[tuple[str, datetime]] = []
        self.stated = StatedModels(lambda: self.now)
        self.source = StatedModelSource(self.stated, self.read, utc_now=lambda: self.now)
        self.error: Exception | None = None
        self.reads = 0

    async def read(self, sql: str) -> Sequence[StatedModel]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        [own] = [each.fingerprint for each in self.stated.news if f"= '{each.fingerprint}'" in sql]
        rows = [(name, at) for name, at in self.answers if at >= self.now - FINGERPRINTS]
        first_at = min(at for name, at in rows if name == own)
        last_at = max((at for name, at in rows if name != own), default=START)
        found = []
        for name in dict.fromkeys(name for name, _ in rows):
            times = [at for each, at in rows if each == name]
            earlier, later = sum(at < first_at for at in times), sum(at > last_at for at in times)
            found.append(StatedModel(name, len(times), times[0], times[-1], earlier, later))
        return found

    def answer(self, *names: str, times: int = 1) -> None:
        for name in names * times:
            self.now += timedelta(seconds=1)
            self.answers.append((name, self.now))
            if name not in self.stated.fingerprints.known.get("a/chat", ()):
                self.stated.add_fingerprint("a/chat", name, "m-1")

    def changes(self) -> list[str]:
        return [each.summary for each in asyncio.run(self.source.conditions())]

    def later(self) -> list[str]:
        """Return the changes after the longest time until the next look."""
        self.now += LONGEST_LOOK
        return self.changes()


def test_a_fingerprint_that_takes_over_all_answers_is_one_change_and_ends() -> None:
    world = Fingerprints()
    world.answer("fp-1", times=LEAST_BEFORE)
    world.answer("fp-2", times=TAKES_OVER)
    expected = "Deployment a/chat states another fingerprint of m-1 since 2030-01-01 00:00 UTC: 'fp-2', before 'fp-1'"
    assert world.changes() == [expected]
    assert (world.reads, world.stated.news) == (1, ())
    world.now += LASTS
    assert world.changes() == []


def test_fingerprints_in_turn_are_no_change_however_long() -> None:
    world = Fingerprints()
    world.answer("fp-1", times=LEAST_BEFORE)
    for _ in range(60):
        world.answer("fp-1", "fp-2", "fp-3", times=10)
        assert world.later() == []
    assert world.stated.news == ()  # after a day they are what is usual
    asked = world.reads
    world.answer("fp-1", "fp-2", "fp-3", times=10)
    assert (world.later(), world.reads) == ([], asked)


def test_a_fingerprint_that_is_rolled_out_over_hours_is_a_change_when_all_have_it() -> None:
    world = Fingerprints()
    world.answer("fp-1", times=LEAST_BEFORE)
    for _ in range(6):
        world.answer("fp-1", "fp-2", times=10)
        assert world.later() == []
    world.answer("fp-2", times=TAKES_OVER)
    assert len(world.later()) == 1


def test_a_fingerprint_that_was_there_this_week_is_no_change() -> None:
    world = Fingerprints()
    world.answer("fp-1", times=LEAST_BEFORE)
    world.answer("fp-2", times=2)
    world.answer("fp-1")
    world.now += timedelta(days=2)
    world.answer("fp-2", times=TAKES_OVER)
    assert world.later() == []
    assert (world.reads, world.stated.news) == (1, ())


def test_a_deployment_of_few_answers_has_no_usual_fingerprint() -> None:
    world = Fingerprints()
    world.answer("fp-1", times=LEAST_BEFORE - 1)
    world.answer("fp-2", times=TAKES_OVER)
    assert world.later() == []


def test_a_fingerprint_is_looked_for_seldom_and_not_while_the_ledger_is_too_slow() -> None:
    world = Fingerprints()
    world.answer("fp-1", times=LEAST_BEFORE)
    world.answer("fp-2", times=LEAST_ANSWERS)
    for _ in range(5):
        assert world.changes() == []
    assert world.reads == 1
    world.error = ReportsUnreachable("away")
    with pytest.raises(SourceUnavailable):
        world.later()
    world.error = ReportTooSlow("too slow")
    assert world.later() == []
    assert world.stated.news == ()
