"""Alerts of a whole gateway: a model that is out is said once, shown, counted and resolved."""

import asyncio
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.alerts import AlertEvent, AlertKind, DetectedSlowdown, Happened, Metric, SlowdownChange
from gateway.alerts.stated_models import FIRST_LOOK, LEAST_ANSWERS, LEAST_BEFORE, TAKES_OVER
from gateway.ledger import Reader, SqlSlowdownBook
from providers.simulator import Hang, Raw, Status, Step
from tests.app.alerts.receiver import Receiver
from tests.app.gateway.running_gateway import RunningGateway, Serve, serving
from tests.patience import PATIENCE_S, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def shown(running: RunningGateway) -> Any:
    async with running.get("/api/alerts") as response:
        assert response.status == 200
        return await response.json()


async def test_a_model_that_is_out_is_said_once_shown_and_counted(serve: Serve, logged: list[Any]) -> None:
    async with Receiver.running() as receiver:
        config = {
            "alerts": {"model_out_s": 0, "webhooks": {"ops": {"url": receiver.url, "secret": SECRET}}},
            "log_level": "info",
        }
        async with serve(alpha=[Status(401)], config=config) as running:
            async with running.chat() as response:
                assert response.status == 424
            alerts = running.gateway.operations.alerts
            await alerts.look()
            await alerts.look()
            async with asyncio.timeout(PATIENCE_S):
                await receiver.asked.wait()
            found = await shown(running)
            [row] = await running.rows("select key, summary, replica, scope from alerts")
            async with running.get("/metrics") as response:
                metrics = await response.text()
            async with running.get("/api/configuration") as response:
                configured = await response.text()
            messages = await running.rows("select * from alert_messages")
    assert (row["key"], row["replica"], row["scope"]) == ("model_out:llama", "here", "all")
    assert [each["key"] for each in found["open"]] == ["model_out:llama"]
    assert [each["kind"] for each in found["data"]] == ["model_out"]
    assert msgspec.json.decode(receiver.received[0][1])["type"] == AlertEvent.OPENED
    assert 'holeshot_alerts_total{kind="model_out"} 1' in metrics
    assert len(receiver.received) == len(messages) == 1
    seen = repr([found, row, messages, metrics, configured, logged, receiver.received[0][1]])
    assert not [word for word in (SECRET, SECRET.removeprefix("whsec_"), "T0P-S3CRET") if word in seen]


async def test_a_model_whose_providers_accept_calls_and_send_nothing_is_out_before_a_time_out(tmp_path: Path) -> None:
    ahead_s = 0.0

    def unix_clock() -> float:
        return time.time() + ahead_s

    async with (
        serving(
            tmp_path, {"alpha": [Hang()], "beta": [Hang()]}, unix_clock=unix_clock, alerts={"model_out_s": 0}
        ) as running,
        asyncio.TaskGroup() as group,
    ):
        calls = [group.create_task(running.answered_by()) for _ in range(3)]
        await until(lambda: running.requests >= 3)
        alerts = running.gateway.operations.alerts
        await alerts.look()
        assert (await shown(running))["open"] == []
        ahead_s = 60.0
        await alerts.look()
        await alerts.look()  # which reads what the first one has opened
        [found] = (await shown(running))["open"]
        for each in calls:
            each.cancel()
    assert found["key"] == "model_out:llama"
    assert re.search(r"None of its 2 deployments can answer: alpha/m: no first token for \d+ s", found["summary"])


async def test_what_builds_up_and_the_outages_of_the_day_are_shown_before_an_alert_opens(serve: Serve) -> None:
    async with serve(alpha=[Status(401)], beta=None) as running:
        found: dict[str, Any] = {"building": []}
        while not found["building"]:  # the other one may be faster than the refusal, which then is none
            async with running.chat() as response:
                assert response.status == 200
            await running.rows("select 1")  # what happened so far is stored
            await running.gateway.operations.alerts.look()
            found = await shown(running)
        [building] = found["building"]
        [outage] = found["outages"]
    assert found["open"] == []
    assert building["key"] == "deployment_out:alpha/m"
    assert re.fullmatch(
        r"alpha/m is out since \d\d:\d\d UTC: the provider refused the key \(401\).*\. One other answers\.",
        building["summary"],
    )
    assert (building["after_s"], building["severity"]) == (300.0, "ticket")
    assert 0 < building["opens_in_s"] <= 300
    assert (outage["deployment"], outage["reason"], outage["to"], outage["may_last"]) == (
        "alpha/m", "provider_auth", None, True,
    )  # fmt: skip


async def test_alerts_that_are_off_open_nothing(serve: Serve) -> None:
    async with serve(alpha=[Status(401)], config={"alerts": {"enabled": False, "model_out_s": 0}}) as running:
        async with running.chat() as response:
            assert response.status == 424
        await running.gateway.operations.alerts.look()
        found = await shown(running)
    assert (found["enabled"], found["open"], found["data"]) == (False, [], [])


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_slowdown_is_said_only_where_somebody_looks_for_its_end(serve: Serve, *, is_on: bool) -> None:
    async with serve(
        alpha=stating("m"), config={"ledger": {"slowdowns": is_on}, "alerts": {"enabled": False}}
    ) as running:
        url = running.gateway.context.settings.database_url.get_secret_value()
        slowdowns = SqlSlowdownBook(url, Reader(url), "the one before")
        found = DetectedSlowdown(
            model="llama",
            deployment="alpha/m",
            metric=Metric.TTFT,
            began_s=1_800_000_000,
            noticed_s=1_800_000_900,
            ratio=1.6,
            low=1.4,
            high=1.8,
            n=300,
        )
        assert await slowdowns.store(SlowdownChange(Happened.BEGAN, found))
        await slowdowns.aclose()
        watch = running.gateway.operations.alerts.watch
        await watch.look()  # the only look, as alerts are off: what was read is kept for a minute
    assert watch.conditions[AlertKind.SLOWER] == is_on


def stating(model: str, fingerprint: str | None = None) -> Sequence[Step]:
    """Return an answer that states its model."""
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": model}
    chunk |= {} if fingerprint is None else {"system_fingerprint": fingerprint}
    told = [
        {**chunk, "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    events = [b"data: " + msgspec.json.encode(each) + b"\n\n" for each in told]
    return [Raw(b"".join(events) + b"data: [DONE]\n\n", token=True)]


async def ask(running: RunningGateway, times: int) -> None:
    for _ in range(times):
        async with running.chat() as response:
            assert response.status == 200, await response.text()


async def test_a_deployment_that_begins_to_state_another_model_is_said_once(serve: Serve) -> None:
    async with serve(alpha=stating("m-2026-05")) as running:
        await ask(running, LEAST_BEFORE)
        stated = await running.rows("select distinct model_version from attempts")
        assert stated == [{"model_version": "m-2026-05"}]
        running["alpha"].script = stating("m-2026-11")
        await ask(running, LEAST_ANSWERS)
        alerts = running.gateway.operations.alerts
        await alerts.look()
        await ask(running, LEAST_ANSWERS)
        await alerts.look()
        found = await shown(running)
        [row] = await running.rows("select key, summary, sql from alerts")
        evidence = await running.rows(row["sql"])
    assert row["key"] == "model_changed:alpha/m"
    assert row["summary"].endswith("UTC: 'm-2026-11', before 'm-2026-05'")
    assert [each["key"] for each in found["open"]] == ["model_changed:alpha/m"]
    assert [(each["model_version"], each["answers"]) for each in evidence] == [
        ("m-2026-05", LEAST_BEFORE),
        ("m-2026-11", 2 * LEAST_ANSWERS),
    ]


async def test_a_fingerprint_that_takes_over_under_the_same_model_is_said(serve: Serve) -> None:
    passed = timedelta(0)
    async with serve(alpha=stating("m", "fp_1"), config={"utc_now": lambda: datetime.now(UTC) + passed}) as running:
        await ask(running, LEAST_BEFORE)
        running["alpha"].script = stating("m", "fp_2")
        await ask(running, TAKES_OVER)
        await running.rows("select count(*) from attempts")
        passed = FIRST_LOOK  # the gateway's own look may have come before it had taken over
        await running.gateway.operations.alerts.look()
        [row] = await running.rows("select key, summary, sql from alerts")
        evidence = await running.rows(row["sql"])
    assert row["key"] == "model_changed:alpha/m"
    assert row["summary"].endswith("UTC: 'fp_2', before 'fp_1'")
    assert [(each["model_version"], each["answers"], each["earlier"], each["later"]) for each in evidence] == [
        ("fp_1", LEAST_BEFORE, LEAST_BEFORE, 0),
        ("fp_2", TAKES_OVER, 0, TAKES_OVER),
    ]
