"""Steering as a whole: what attempts teach, and what the next plan makes of it."""

from collections import Counter
from random import Random

import pytest
from structlog.testing import capture_logs

from gateway.core.attempts import Outcome, Role
from gateway.core.calls import Mode, Objective
from gateway.core.prompt_classes import MeasuredApi, PromptClass, answer_class
from gateway.settings import RaceSettings
from gateway.steering import BURST_TOKENS, Launch, Leaderboard, Plan, Row, Terms
from gateway.steering.budget import Budget
from providers import ErrorKind
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

VECTORS = PromptClass(MeasuredApi.EMBEDDINGS, 0)


def primary(plan: Plan) -> str:
    return plan.launches[0].deployment


def row_of(board: Leaderboard, deployment: str) -> Row:
    return next(row for row in board.deployments if row.deployment == deployment)


def test_later_calls_go_to_whoever_proved_faster() -> None:
    replica = VirtualReplica()
    replica.warm_up(a=1.2, b=0.2, c=1.5)
    assert [primary(replica.plan()) for _ in range(20)] == ["b"] * 20
    replica.now_s += 300
    replica.warm_up(wins=60, a=0.2, b=3.0, c=3.0)
    assert [primary(replica.plan()) for _ in range(20)] == ["a"] * 20


def test_standings_are_read_from_a_snapshot_at_most_a_second_old() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=1.0)
    replica.plan()
    for _ in range(500):
        replica.win("a", 5.0)
    assert primary(replica.plan()) == "a"
    replica.now_s += 1.0
    assert primary(replica.plan()) == "b"


def test_a_loser_that_is_always_cut_young_is_not_taken_for_slow_nor_for_broken() -> None:
    """The trap: a breaker that counted lost races would open healthy deployments."""
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.5, b=0.5)
    for _ in range(200):
        winner = replica.win("b", 0.3, Role.RACE)
        loser = replica.lose("a", 0.3)
        replica.finish(winner, loser)
    assert replica.state("a") == "ok"


def test_a_primary_overtaken_when_it_was_long_due_gets_a_strike() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(wins=200, a=0.3, b=0.3)
    for calls in range(1, 5):
        assert replica.state("a") == "ok", calls
        replica.finish(replica.win("b", 0.3, Role.HEDGE), replica.lose("a", 0.6))
    assert replica.state("a") == "open"


@pytest.mark.parametrize(("ttft_s", "state"), [(0.06, "ok"), (0.3, "open")])
def test_a_first_token_that_nobody_finds_late_is_no_fault(ttft_s: float, state: str) -> None:
    """A busy machine delays a first token by tens of milliseconds: many times the q95 of a server next door."""
    replica = VirtualReplica(("a", "b"))
    for _ in range(20):  # it is remembered beyond the ten minutes of the board
        replica.warm_up(wins=50, a=0.005, b=0.1)
        replica.now_s += 60.0
    for _ in range(4):
        replica.win("a", ttft_s)
    assert replica.state("a") == state


def test_a_probe_of_a_very_fast_deployment_has_time_to_answer() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(wins=200, a=0.005, b=0.1)
    for _ in range(4):
        replica.fail("a")
    replica.now_s += 5.0
    replica.win("a", 0.06, Role.PROBE)
    assert replica.state("a") == "ok"


def test_a_hedge_or_racer_that_loses_late_gets_no_strike() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.3)
    for _ in range(10):
        replica.finish(replica.win("a", 2.0), replica.lose("b", 2.0, Role.RACE))
    assert replica.state("b") == "ok"


def test_a_client_that_leaves_strikes_nobody_and_censors_the_age() -> None:
    replica = VirtualReplica(("a",))
    for _ in range(10):
        start = replica.launch("a")
        replica.finish(replica._end(start, Outcome.CLIENT_GONE, censored_at_ms=9000.0))
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert (row.state, row.n, row.n_first_token, row.n_censored) == ("ok", 0, 0, 10)


@pytest.mark.parametrize(
    "kind",
    [
        ErrorKind.SERVER_ERROR,
        ErrorKind.CONNECT_ERROR,
        ErrorKind.CONNECT_TIMEOUT,
        ErrorKind.TTFT_TIMEOUT,
        ErrorKind.DISCONNECTED,
        ErrorKind.STREAM_ERROR,
        ErrorKind.UPSTREAM_EMPTY,
        ErrorKind.INVALID_RESPONSE,
    ],
)
def test_failures_before_the_first_token_are_errors_and_strikes(kind: ErrorKind) -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(4):
        replica.fail("a", kind)
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert (row.n, row.error_rate, row.n_first_token, row.state) == (4, 1.0, 0, "open")


def test_a_stream_that_breaks_after_its_first_token_is_an_error_and_no_strike() -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(8):
        start = replica.launch("a")
        replica.steering.first_token(MODEL, answer_class(0), start, 0.3)
        replica._end(start, Outcome.FAILED, error_kind=ErrorKind.UPSTREAM_TRUNCATED, ttft_ms=300.0)
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert (row.n, row.error_rate, row.n_first_token, row.state) == (8, 1.0, 8, "ok")


def test_an_answer_that_is_not_valid_is_an_error_and_no_strike_even_without_a_token() -> None:
    """A refusal by a filter, or an empty answer: the deployment works, whatever the prompt was."""
    replica = VirtualReplica(("a", "b"))
    for _ in range(8):
        replica.fail("a", ErrorKind.INVALID_ANSWER)
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert (row.n, row.error_rate, row.n_first_token, row.state) == (8, 1.0, 0, "ok")


def test_the_clients_own_fault_counts_nowhere() -> None:
    replica = VirtualReplica(("a",))
    replica.plan()
    for _ in range(10):
        replica.fail("a", ErrorKind.BAD_REQUEST)
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert (row.n, row.n_censored, row.error_rate, row.state) == (0, 0, None, "ok")


def test_a_429_cools_the_deployment_for_what_it_asked_and_is_neither_error_nor_event() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.9)
    replica.fail("a", ErrorKind.RATE_LIMITED, retry_after_s=5.0)
    assert [launch.deployment for launch in replica.plan().launches] == ["b"]
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert (row.n, row.error_rate, row.state) == (30, 0.0, "cooling 5.0 s")
    replica.now_s += 5.0
    assert primary(replica.plan()) == "a"


def test_when_every_deployment_cools_down_the_plan_says_when_to_come_back() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.fail("a", ErrorKind.RATE_LIMITED, retry_after_s=9.0)
    replica.fail("b", ErrorKind.RATE_LIMITED, retry_after_s=4.0)
    replica.now_s += 1.0
    plan = replica.plan()
    assert (plan.launches, plan.rest, plan.retry_after_s) == ((), (), 3.0)


def test_a_503_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.fail("a", ErrorKind.SERVER_ERROR, retry_after_s=2.0)
    assert replica.state("a") == "cooling 2.0 s"


@pytest.mark.parametrize("kind", [ErrorKind.PROVIDER_AUTH, ErrorKind.NOT_FOUND])
def test_a_refused_key_or_unknown_model_puts_the_deployment_out_loudly_and_once(kind: ErrorKind) -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.9)
    with capture_logs() as logs:
        replica.fail("a", kind)
        replica.fail("a", kind)
    assert [(log["event"], log["log_level"], log["deployment"]) for log in logs] == [("steering.out", "warning", "a")]
    assert replica.state("a") == "out"
    assert "a" not in {*(launch.deployment for launch in replica.plan().launches), *replica.plan().rest}


def test_who_is_not_asked_is_told_with_its_last_error_until_it_answers_again() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.fail("a", ErrorKind.PROVIDER_AUTH, status_code=401, message="bad key")
    replica.fail("b", ErrorKind.RATE_LIMITED, status_code=429, retry_after_s=5.0)
    out = replica.steering.not_asked(("a", "b", "c"), ())
    assert [(each.deployment, each.reason, each.for_good) for each in out] == [
        ("a", "out: provider_auth (401): bad key", True),
        ("b", "cooling 5.0 s: rate_limited (429)", False),
    ]
    assert [each.deployment for each in replica.steering.not_asked(("a", "b", "c"), {"a"})] == ["b"]
    replica.win("a")
    assert [each.deployment for each in replica.steering.not_asked(("a", "c"), ())] == []
    assert row_of(replica.steering.leaderboard(MODEL), "a").reason is None


def test_a_broken_deployment_stays_so_while_nobody_calls_until_it_answers() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.plan()
    for _ in range(4):
        replica.fail("a")
    replica.now_s += 300.0  # a call may use it on trial now
    assert replica.state("a") == "half-open"
    assert [each.deployment for each in replica.steering.not_asked(("a", "b"), (), on_trial=True)] == ["a"]
    assert replica.steering.not_asked(("a", "b"), ()) == ()  # of a call
    replica.win("a")
    assert replica.state("a") == "ok"
    assert replica.steering.not_asked(("a", "b"), (), on_trial=True) == ()


def test_one_that_nobody_calls_for_long_is_no_more_said_to_be_broken() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.plan()
    for _ in range(4):
        replica.fail("a")  # whatever other replicas see of it since, this one will not
    replica.now_s += 900.0
    assert replica.state("a") == "ok"
    assert replica.steering.not_asked(("a", "b"), (), on_trial=True) == ()


def test_another_caller_is_not_told_words_that_may_quote_a_prompt() -> None:
    replica = VirtualReplica(("a",))
    replica.plan()
    for _ in range(4):
        replica.fail("a", status_code=500, message="cannot read: my secret prompt")
    [out] = replica.steering.not_asked(("a",), ())
    assert out.reason == "open: server_error (500)"
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert (row.state, row.reason) == ("open", "server_error (500): cannot read: my secret prompt")


def test_a_model_that_makes_no_vectors_is_asked_for_answers_all_the_same() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.9)
    for kind, status in ((ErrorKind.PROVIDER_AUTH, 403), (ErrorKind.NOT_FOUND, 404)):
        replica.fail("a", kind, status_code=status, prompt_class=VECTORS)
        assert replica.state("a") == "ok"
    replica.fail("a", ErrorKind.PROVIDER_AUTH, status_code=401, prompt_class=VECTORS)
    assert replica.state("a") == "out"


def test_a_model_that_makes_no_vectors_is_avoided_for_vectors_and_for_nothing_else() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.9)
    for _ in range(100):
        replica.fail("a", ErrorKind.NOT_FOUND, status_code=404, prompt_class=VECTORS)
    replica.now_s += 1.0
    plan = replica.plan(explain=True)
    assert primary(plan) == "a"
    assert plan.explanation is not None
    [rate] = [each.error_rate for each in plan.explanation.deployments if each.deployment == "a"]
    assert rate < 0.01
    for _ in range(5):
        assert primary(replica.plan(prompt_class=VECTORS)) == "b"


def test_a_model_that_fails_at_answers_is_not_avoided_for_vectors() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.2)
    for _ in range(100):
        replica.fail("a", ErrorKind.STALL_TIMEOUT, ttft_ms=200.0)
    replica.now_s += 1.0
    plan = replica.plan(prompt_class=VECTORS, explain=True)
    assert plan.explanation is not None
    assert {each.error_rate for each in plan.explanation.deployments} == {0.01}


def test_a_reload_gives_a_deployment_that_was_out_another_chance_and_keeps_what_was_learned() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.9)
    replica.fail("a", ErrorKind.PROVIDER_AUTH)
    replica.steering.reset({MODEL: ("a", "b")})
    assert replica.state("a") == "ok"
    assert primary(replica.plan()) == "a"


def test_a_tripped_deployment_is_probed_by_one_call_at_a_time_and_returns() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.2, b=0.5, c=0.9)
    for _ in range(4):
        replica.fail("a")
    assert primary(replica.plan()) == "b"
    replica.now_s += 5.0
    plans = [replica.plan(budget=0.1) for _ in range(10)]
    assert [primary(plan) for plan in plans] == ["b"] * 10
    probes = [launch for plan in plans for launch in plan.launches if launch.deployment == "a" and launch.delay_s == 0]
    assert [probe.role for probe in probes] == [Role.PROBE]
    with capture_logs() as logs:
        replica.win("a", 0.2, Role.PROBE)
    assert [log["event"] for log in logs] == ["steering.recovered"]
    assert primary(replica.plan()) == "a"


def test_a_tripped_deployment_is_probed_also_while_rate_limits_leave_no_room_for_extra_attempts() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.2)
    replica.fail("a", ErrorKind.RATE_LIMITED, retry_after_s=1.0)
    for _ in range(4):
        replica.fail("b")
    for _ in range(100):
        replica.plan()  # more calls than both have admitted
    replica.now_s += 5.0
    made = replica.plan()
    assert primary(made) == "a"
    assert any("rate limits leave room for 0.00" in reason for reason in made.reasons)
    assert [each.role for each in made.launches if each.deployment == "b" and not each.delay_s] == [Role.PROBE]


def test_a_hang_counts_at_the_claim_not_at_the_end_of_the_answer() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.5)
    for _ in range(4):
        replica.lose("a", 5.0)  # its call goes on: the winner is still streaming
    assert replica.state("a") == "open"
    assert [row.reason for row in replica.steering.leaderboard(MODEL).deployments] == [
        None,
        "hangs: no first token where others answered",
    ]
    [out] = replica.steering.not_asked(("a", "b"), ())
    assert (out.reason, out.cause) == ("open: hangs", "no first token where others answered")
    for _ in range(8):
        replica.lose("b", 5.0, Role.HEDGE)  # a hedge started late: its age says less
    assert replica.state("b") == "ok"


def test_a_hang_is_probed_seldom_and_costs_the_budget_nothing() -> None:
    """Four calls a second through fourteen minutes of a hang: each probe is watched until it has failed."""
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.2, b=0.5, c=0.9)
    for _ in range(4):
        replica.fail("a", ErrorKind.TTFT_TIMEOUT)
    watched: list[tuple[float, float]] = []  # when each probe under way is cut, and at which age
    probes = refused = 0
    for _ in range(14 * 60 * 4):
        replica.now_s += 0.25
        for each in [each for each in watched if each[0] <= replica.now_s]:
            watched.remove(each)
            replica.lose("a", each[1], Role.PROBE)
        plan = replica.plan(budget=0.1)
        assert primary(plan) != "a"
        for launch in plan.launches:
            if launch.role is Role.PROBE:
                assert launch.watch_s is not None
                assert launch.watch_s <= 30.0
                probes += 1
                refused += not replica.charge_extra(Role.PROBE, 0.1)
                watched.append((replica.now_s + launch.watch_s, launch.watch_s))
        replica.win(primary(plan), 0.5)
    assert (probes < 45, refused) == (True, 0), probes
    assert replica.state("a") != "ok"


def test_a_client_that_leaves_a_probe_says_nothing_of_it() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.5)
    for _ in range(4):
        replica.fail("a")
    replica.now_s += 5.0
    start = replica.launch("a", Role.PROBE)
    replica._end(start, Outcome.CLIENT_GONE, censored_at_ms=20_000.0)
    assert replica.state("a") == "half-open"
    replica.lose("a", 20.0, Role.PROBE)
    assert replica.state("a") == "open"


def test_what_is_in_flight_is_counted_here_and_now() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.plan()
    starts = [replica.launch("a") for _ in range(3)]
    assert row_of(replica.steering.leaderboard(MODEL), "a").in_flight == 3
    for start in starts:
        replica._end(start, Outcome.LOST, censored_at_ms=100.0)
    assert row_of(replica.steering.leaderboard(MODEL), "a").in_flight == 0


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.5, 2.0])
@pytest.mark.parametrize(("mode", "calls"), [(Mode.AUTO, 5000), (Mode.RACE, 1500), (Mode.HEDGE, 1500)])
def test_thousands_of_calls_start_no_more_extra_attempts_than_their_budget(
    mode: Mode, calls: int, budget: float
) -> None:
    """Four providers with slow tails, in virtual time. Extras may exceed the ratio by a burst, exploring by another."""
    replica = VirtualReplica("abcd", seed=3)
    world = Random(4)
    medians_s = {"a": 0.25, "b": 0.33, "c": 0.45, "d": 0.6}
    extras = 0
    for _ in range(calls):
        replica.now_s += world.expovariate(8.0)
        plan = replica.plan(mode=mode, budget=budget, width=3)
        running: list[tuple[float, str, Role, float]] = []
        for launch in plan.launches:
            if running and min(running)[0] <= launch.delay_s:
                break
            if not replica.charge_extra(launch.role, budget):
                continue
            extras += launch.role not in {Role.PRIMARY, Role.FAILOVER}
            tail = 6.0 if world.random() < 0.03 else 1.0
            ttft_s = medians_s[launch.deployment] * world.lognormvariate(0, 0.4) * tail
            running.append((launch.delay_s + ttft_s, launch.deployment, launch.role, launch.delay_s))
        ended_s, *_ = min(running)
        attempts = [
            replica.win(name, at_s - delay_s, role) if at_s == ended_s else replica.lose(name, ended_s - delay_s, role)
            for at_s, name, role, delay_s in running
        ]
        replica.finish(*attempts)
    assert extras <= (calls * budget + 20 if budget else 0)
    if mode is Mode.AUTO:
        assert extras >= 0.8 * calls * min(budget, 1.0)
    assert all(row.state == "ok" for row in replica.steering.leaderboard(MODEL).deployments)


def test_a_permit_is_drawn_when_an_attempt_starts_not_when_it_is_planned() -> None:
    replica = VirtualReplica()
    for _ in range(100):
        replica.plan(budget=0.1)
    granted = sum(replica.charge_extra(Role.HEDGE, 0.1) for _ in range(100))
    assert granted == 20


def test_exploring_may_overdraw_the_budget_by_a_burst_and_what_a_call_needs_is_free() -> None:
    replica = VirtualReplica()
    while replica.charge_extra(Role.RACE, 0.1):
        pass
    assert sum(replica.charge_extra(Role.EXPLORE, 0.1) for _ in range(100)) == 20
    assert not replica.charge_extra(Role.HEDGE, 0.1)
    assert all(replica.charge_extra(role, 0.1) for role in (Role.PRIMARY, Role.FAILOVER, Role.PROBE))


def test_a_model_that_is_seldom_called_keeps_its_budget_and_gets_no_full_one_each_time() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.steering.reset({MODEL: replica.deployments, "busy": replica.deployments})
    race, calls, started = RaceSettings(budget=0.1), 200, 0
    for _ in range(calls):
        replica.now_s += 11 * 60.0
        replica.steering.plan("busy", replica.deployments, race, Terms(Objective.FIRST_TOKEN, 100), SHORT)
        made = replica.plan(budget=0.1)  # each time so long after that nothing recent is known: with company
        extra = [each for each in made.launches if each.role in {Role.RACE, Role.HEDGE, Role.EXPLORE}]
        started += sum(replica.charge_extra(each.role, 0.1) for each in extra if not each.delay_s)
    assert started <= 0.1 * calls + 2 * BURST_TOKENS


def test_models_have_budgets_of_their_own() -> None:
    replica = VirtualReplica()
    while replica.charge_extra(Role.RACE, 0.1):
        pass
    assert replica.charge_extra(Role.RACE, 0.1, model="another")


def test_the_leaderboard_tells_each_deployments_figures() -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(6):
        replica.finish(replica.win("a", 0.4, speed_tps=80.0), replica.lose("b", 0.4, Role.RACE))
    replica.finish(replica.win("b", 0.3), replica.fail("a"))
    replica.plan()
    board = replica.steering.leaderboard(MODEL)
    assert [row.deployment for row in board.deployments] == ["a", "b"]
    a, b = board.deployments
    assert (a.n, a.n_first_token, a.n_censored, a.is_biased, a.in_flight) == (7, 6, 0, False, 0)
    assert a.ttft_p50_ms == pytest.approx(400, rel=0.1)
    assert a.ttft_p50_low_ms is not None
    assert a.ttft_p50_high_ms is not None
    assert a.ttft_p50_ms is not None
    assert a.ttft_p50_low_ms <= a.ttft_p50_ms <= a.ttft_p50_high_ms
    assert a.decode_mean_tps == 80.0
    assert a.error_rate == pytest.approx(1 / 7, abs=1e-4)
    assert a.win_share == pytest.approx(6 / 7, abs=1e-4)
    assert (b.n, b.n_first_token, b.n_censored, b.is_biased) == (1, 1, 6, True)
    assert b.ttft_p50_ms is b.ttft_p99_ms is None  # one first token says nothing


def test_a_quantile_that_the_samples_do_not_reach_is_unknown_not_infinite() -> None:
    replica = VirtualReplica(("a",))
    for _ in range(4):
        replica.win("a", 0.2)
    for _ in range(6):
        replica.lose("a", 0.5)
    row = row_of(replica.steering.leaderboard(MODEL), "a")
    assert row.ttft_p50_ms is None
    assert row.n_first_token == 4


def test_configured_models_are_listed_before_anybody_calls_them() -> None:
    replica = VirtualReplica()
    replica.steering.reset({"idle": ("x", "y")})
    board = replica.steering.leaderboard("idle")
    assert [(row.deployment, row.n, row.ttft_p50_ms, row.decode_mean_tps) for row in board.deployments] == [
        ("x", 0, None, None),
        ("y", 0, None, None),
    ]


def test_models_that_clients_named_once_are_forgotten() -> None:
    replica = VirtualReplica(("x",))
    replica.plan()
    replica.fail("x", ErrorKind.NOT_FOUND)
    replica.now_s += 700
    replica.steering.plan("other", ("y",), RaceSettings(), Terms(Objective.FIRST_TOKEN, 1), answer_class(0))
    replica.now_s += 30
    replica.steering.plan("other", ("y",), RaceSettings(), Terms(Objective.FIRST_TOKEN, 1), answer_class(0))
    assert set(replica.steering._planned) == {"other"}
    assert set(replica.steering._learning.healths) == {"y"}


def test_who_nothing_is_known_of_is_tried_soon() -> None:
    replica = VirtualReplica(("a", "b", "new"))
    replica.warm_up(a=0.2, b=0.3)
    tried = [launch.deployment for _ in range(100) for launch in replica.plan().launches if launch.role is Role.EXPLORE]
    assert 10 < tried.count("new") < 45
    replica.win("new", 0.4, Role.EXPLORE)
    replica.now_s += 1.0
    later = [launch.role for _ in range(100) for launch in replica.plan().launches]
    assert later.count(Role.EXPLORE) < 10


def test_rescues_without_a_budget_are_at_most_a_quarter_of_a_models_calls() -> None:
    budget = Budget()
    rescues = []
    for _ in range(1000):
        budget.accrue(0.0)
        rescues.append(sum(budget.draw(Role.FAILOVER, 0.0) for _ in range(2)))
    assert sum(rescues) == 250
    assert max(sum(rescues[since : since + 200]) for since in range(800)) == 50


def test_the_budget_pays_for_rescues_beyond_that() -> None:
    budget = Budget()
    for _ in range(50):
        budget.accrue(0.1)
        assert budget.draw(Role.FAILOVER, 0.1)
    assert budget.tokens == BURST_TOKENS
    assert sum(budget.draw(Role.FAILOVER, 0.1) for _ in range(100)) == BURST_TOKENS
    assert not budget.draw(Role.RACE, 0.1)
    for _ in range(200):
        budget.accrue(0.1)
    assert sum(budget.draw(Role.FAILOVER, 0.1) for _ in range(60)) == 60  # fifty are free again, ten are paid for


def test_dollars_never_refuse_a_call_s_first_rescue_but_its_second_one() -> None:
    replica = VirtualReplica()
    race = RaceSettings(budget=1.0, extra_usd_per_call=0.001)
    rescue = Launch("b", 0.6, Role.FAILOVER)
    assert replica.steering.draw_extra(MODEL, rescue, race, cost_usd=1.0, is_needed=True) is None
    assert replica.steering.draw_extra(MODEL, rescue, race, cost_usd=1.0) is not None
    raced = Launch("b", 0.0, Role.RACE)
    assert replica.steering.draw_extra(MODEL, raced, race, cost_usd=0.0001) is not None  # it is paid off first


@pytest.mark.parametrize("mode", [Mode.SINGLE, Mode.AUTO])
def test_a_thousand_calls_in_one_instant_spread_evenly_over_equal_deployments(mode: Mode) -> None:
    """What is in flight is read for each of them."""
    replica = VirtualReplica(("a", "b", "c", "d", "e"))
    replica.warm_up(a=0.3, b=0.3, c=0.3, d=0.3, e=0.3)
    primaries = Counter[str]()
    for _ in range(1000):
        primary = replica.plan(mode=mode).launches[0].deployment
        replica.launch(primary)
        primaries[primary] += 1
    assert max(primaries.values()) - min(primaries.values()) <= 20
