from benchmarks.steering.timeline import Timeline


def test_a_simulated_time_calls_later_as_an_event_loop_does() -> None:
    timeline, called = Timeline(), list[tuple[float, str]]()

    def call(name: str) -> None:
        called.append((timeline.now_s, name))

    late = timeline.call_later(2.0, call, "late")
    timeline.call_later(1.0, call, "first of two")
    timeline.call_later(1.0, call, "second of two")
    timeline.call_later(-1.0, call, "overdue")
    timeline.call_later(1.5, late.cancel)
    assert late.when() == 2.0
    timeline.run()
    assert called == [(0.0, "overdue"), (1.0, "first of two"), (1.0, "second of two")]
    assert timeline.now_s == 1.5
