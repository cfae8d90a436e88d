"""holeshot alerts and holeshot alerts test, as their users run them."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from gateway.alerts import Alert, AlertKind, Severity
from gateway.core.ids import new_id
from gateway.ledger import SqlAlertBook, migrate
from tests.app.alerts.receiver import Receiver
from tests.app.alerts.verifying import verified
from tests.app.cli.conftest import Site, holeshot, site
from tests.patience import PATIENCE_S

Holeshot = Callable[..., Result]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
__all__ = ["holeshot", "site"]  # the fixtures


@contextmanager
def receiving(*codes: int) -> Iterator[Receiver]:
    """Run a receiver in a thread, as a command has its own event loop."""
    loop, started = asyncio.new_event_loop(), threading.Event()
    found: list[Receiver] = []
    over: list[asyncio.Event] = []

    async def serve() -> None:
        async with Receiver.running() as receiver:
            receiver.answer = receiver.status(*codes, body="thank you")
            found.append(receiver)
            over.append(asyncio.Event())
            started.set()
            await over[0].wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(PATIENCE_S)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over[0].set)
        thread.join()
        loop.close()


def configure(webhooks: str) -> None:
    Path("gateway.yaml").write_text(f"providers: {{}}\nalerts: {{ webhooks: {{ {webhooks} }} }}\n")


def stored(folder: Path, *, is_open: bool = True) -> dict[str, str]:
    """Store an alert of the past and, if ``is_open``, one that is open; return what names the ledger."""
    url = f"sqlite:///{folder}/ledger.db"

    async def fill() -> None:
        await migrate(url)
        book = SqlAlertBook(url, new_id=new_id)
        for number, subject in enumerate(("past", "now") if is_open else ("past",)):
            alert = Alert(
                id=new_id(), kind=AlertKind.MODEL_OUT, subject=subject, severity=Severity.PAGE,
                summary=f"{subject} is out",
                figures={"n": 2}, sql="select 1 as one", opened_at=NOW + timedelta(hours=number), replica="here",
                seen_at=NOW + timedelta(hours=number),
            )  # fmt: skip
            await book.open(alert, ["ops"])
            if subject == "past":
                await book.resolve(alert, unseen_since=NOW, at=NOW + timedelta(minutes=9), webhooks=["ops"])
        await book.aclose()

    asyncio.run(fill())
    return {"HOLESHOT_DATABASE_URL": url}


def test_a_test_message_is_signed_and_what_each_webhook_answers_is_shown(holeshot: Holeshot) -> None:
    with receiving(202) as good, receiving(500) as bad:
        configure(f"good: {{ url: '{good.url}', secret: {SECRET} }}, bad: {{ url: '{bad.url}', secret: {SECRET} }}")
        result = holeshot("alerts", "test", "--config", "gateway.yaml", "--json")
        [(headers, body)] = good.received
        assert json.loads(body)["type"] == "alert.test"
        assert verified(headers, body, SECRET, int(headers["webhook-timestamp"]))
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {"webhook": "good", "ok": True, "answer": "202", "said": "thank you"},
        {"webhook": "bad", "ok": False, "answer": "500", "said": "thank you"},
    ]
    assert "1 webhook did not take the message" in result.stderr
    assert "S3CRET" not in result.output
    assert SECRET not in result.output


def test_a_message_that_every_webhook_takes_is_a_success(holeshot: Holeshot) -> None:
    with receiving(200) as good:
        configure(f"good: {{ url: '{good.url}', format: slack }}")
        result = holeshot("alerts", "test", "--config", "gateway.yaml")
        assert json.loads(good.received[0][1])["text"].startswith("*Test:*")
    assert (result.exit_code, "thank you" in result.stdout) == (0, True)


def test_without_a_webhook_it_says_where_to_add_one(holeshot: Holeshot) -> None:
    configure("")
    result = holeshot("alerts", "test", "--config", "gateway.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "add one to alerts.webhooks" in result.stderr


def test_alerts_are_listed_the_open_ones_first(holeshot: Holeshot, tmp_path: Path) -> None:
    ledger = stored(tmp_path)
    result = holeshot("alerts", "--json", **ledger)
    listed = json.loads(result.stdout)
    assert [each["subject"] for each in listed] == ["now", "past"]
    assert (listed[0]["figures"], listed[0]["resolved_at"]) == ({"n": 2}, None)
    assert (listed[1]["messages_waiting"], listed[1]["messages_sent"]) == (2, 0)
    shown = holeshot("alerts", "--open", "--sql", **ledger)
    assert "now is out" in shown.stdout
    assert "select 1 as one" in shown.stdout
    assert "past is out" not in shown.stdout
    everything = " ".join(holeshot("alerts", **ledger).stdout.split())
    assert "over; at its start: past is out" in everything
    assert "at its start: now" not in everything


def building(site: Site, *, is_open: bool = False) -> None:
    """Have the site answer as a gateway before which a deployment is out, and whose database is away."""
    known = {
        "key": "deployment_out:a/x", "kind": "deployment_out", "subject": "a/x", "severity": "ticket",
        "summary": "a/x is out since 12:00 UTC: no connection.", "sql": "select 2 as two",
    }  # fmt: skip
    soon = {**known, "since": "2030-01-01T12:00:00Z", "after_s": 300.0, "opens_in_s": 60.4}
    lasting: dict[str, Any] = {
        **known,
        "id": "1",
        "opened_at": "2030-01-01T12:05:00Z",
        "resolved_at": None,
        "figures": {},
    }
    found: dict[str, list[Any]] = {"building": [], "open": [lasting]} if is_open else {"building": [soon], "open": []}
    site.answers["/api/alerts"] = {**found, "data": None}


def test_without_a_url_the_ledger_alone_is_read_and_how_to_see_more_is_said(
    holeshot: Holeshot, site: Site, tmp_path: Path
) -> None:
    building(site)
    ledger = {**stored(tmp_path, is_open=False), "HOLESHOT_PORT": site.url.rpartition(":")[2], "HOLESHOT_KEY": "k"}
    listed = holeshot("alerts", **ledger)
    last = "no alert is open (with --url GATEWAY also conditions that are not alerts yet)"
    assert (listed.exit_code, "past is out" in listed.stdout, listed.stdout.splitlines()[-1]) == (0, True, last)
    assert holeshot("alerts", "--open", **ledger).stdout == f"{last}\n"
    assert json.loads(holeshot("alerts", "--open", "--json", **ledger).stdout) == []
    assert site.asked == []


def test_what_becomes_an_alert_is_a_row_as_alerts_are_with_its_state(
    holeshot: Holeshot, site: Site, tmp_path: Path
) -> None:
    past = json.loads(holeshot("alerts", "--json", **stored(tmp_path)).stdout)
    building(site)
    site.answers["/api/alerts"]["data"] = [
        {name: value for name, value in row.items() if name not in {"state", "since", "after_s", "opens_in_s"}}
        for row in past
    ]
    rows = json.loads(holeshot("alerts", "--json", "--url", site.url).stdout)
    assert [row["state"] for row in rows] == ["building", "open", "resolved"]
    assert rows[1:] == past
    assert rows[0].keys() == past[0].keys()
    assert (rows[0]["opens_in_s"], rows[0]["id"], rows[0]["messages_sent"]) == (60.4, None, None)
    shown = holeshot("alerts", "--open", "--url", site.url).stdout
    lines = [line for line in shown.splitlines() if " is out" in line]
    assert [line.split()[0] for line in lines] == ["in", "2030-01-01"]
    assert "in 60 s, if it goes on" in lines[0]
    assert "a/x is out since 12:00 UTC" in lines[0]
    assert "no alert is open" not in shown


def test_a_gateway_is_asked_by_its_url_also_while_its_database_is_away(holeshot: Holeshot, site: Site) -> None:
    building(site, is_open=True)
    site.key = "k"
    result = holeshot("alerts", "--url", f"{site.url}/v1/", "--key", "k", "--sql")
    assert result.exit_code == 0, result.stderr
    assert "2030-01-01 12:05:00" in result.stdout
    assert "select 2 as two" in result.stdout
    refused = holeshot("alerts", HOLESHOT_URL=site.url)
    assert (refused.exit_code, "the key is missing or wrong" in refused.stderr) == (1, True)
    site.answers["/api/alerts"] = {"building": [], "open": [], "data": []}
    assert holeshot("alerts", "--open", "--url", site.url, "--key", "k").stdout == "no alert is open\n"
    site.answers["/api/alerts"] = ["another", "program"]
    other = holeshot("alerts", "--url", site.url, "--key", "k")
    assert (other.exit_code, "does not answer like a Holeshot gateway" in other.stderr) == (1, True)


def test_an_empty_ledger_has_no_alerts(holeshot: Holeshot, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    asyncio.run(migrate(url))
    result = holeshot("alerts", HOLESHOT_DATABASE_URL=url)
    assert result.exit_code == 0
    assert result.stdout == "no alert is open (with --url GATEWAY also conditions that are not alerts yet)\n"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:////nowhere/ledger.db", "there is no ledger"),
        ("postgresql://nobody@127.0.0.1:1/none", "cannot be used"),
    ],
)
def test_a_database_that_is_away_is_one_sentence(holeshot: Holeshot, url: str, words: str) -> None:
    result = holeshot("alerts", HOLESHOT_DATABASE_URL=url)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert words in result.stderr


def test_an_option_of_the_verb_given_before_it_is_a_wrong_use(holeshot: Holeshot) -> None:
    configure("")
    for options in (("--config", "gateway.yaml"), ("--json",)):
        result = holeshot("alerts", *options, "test")
        assert (result.exit_code, result.stdout, "after the verb" in result.stderr) == (2, "", True)


@pytest.mark.parametrize(
    ("webhook", "words"),
    [
        ("{ url: 'ftp://x', format: slack }", "must be a URL that begins with https://"),
        ("{ url: 'https://x' }", "needs a secret"),
        ("{ url: 'https://x', secret: whsec_c2hvcnQ= }", "must be 24 to 64 bytes in base64"),
        ("{ url: 'https://x', secret: 'not base64 at all!' }", "must be 24 to 64 bytes in base64"),
        ("{ url: 'https://x', formatt: slack, secret: ${NONE} }", "format"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused_without_its_secret(holeshot: Holeshot, webhook: str, words: str) -> None:
    configure(f"ops: {webhook}")
    result = holeshot("alerts", "test", "--config", "gateway.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "gateway.yaml:2" in result.stderr
    assert "not base64" not in result.stderr
    assert "c2hvcnQ" not in result.stderr
