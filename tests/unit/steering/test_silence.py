"""A model that is asked and sends nothing is told as out long before time-outs end its attempts."""

from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

TTFT_S = {"a": 120.0, "b": 120.0}


def causes(replica: VirtualReplica) -> list[tuple[str, str | None]]:
    return [(each.deployment, each.cause) for each in replica.steering.silent(MODEL, TTFT_S)]


def test_a_model_of_which_no_deployment_sends_anything_is_silent_until_one_does() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.5)
    replica.now_s += 3600.0  # nobody asks
    assert causes(replica) == []
    running = [replica.launch("a"), replica.launch("b"), replica.launch("a")]
    replica.now_s += 29.0
    assert causes(replica) == []
    replica.now_s += 2.0
    words = "no first token for 31 s"
    assert causes(replica) == [("a", words), ("b", words)]
    replica.steering.first_token(MODEL, SHORT, running[1], 31.0)
    assert causes(replica) == []


def test_streams_that_run_for_long_and_one_long_thought_are_no_silence() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.5)
    for _ in range(3):
        replica.steering.first_token(MODEL, SHORT, replica.launch("a"), 0.3)
    replica.now_s += 1.0
    replica.launch("b")
    replica.launch("a")
    replica.now_s += 100.0
    assert causes(replica) == []
    replica.launch("a")
    assert len(causes(replica)) == 2


def test_a_model_that_usually_thinks_for_a_minute_is_not_silent_sooner() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=30.0, b=40.0)
    for name in "aab":
        replica.launch(name)
    replica.now_s += 90.0
    assert causes(replica) == []
    replica.now_s += 60.0
    assert len(causes(replica)) == 2
