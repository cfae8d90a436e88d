"""What the page shows is what the database has."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.visit import Visit
from tests.support.browser.installation import MODEL, Installation

if TYPE_CHECKING:
    from playwright.sync_api import Route

MADE = 4  # calls while the page looks
UNENDED = "select id from calls where launched > (select count(*) from attempts where call_id = calls.id)"
PICTURE = "() => document.querySelector('main canvas').toDataURL()"
TEN_FRAMES = """() => new Promise(done => {
  let left = 10;
  const painted = () => ((left -= 1) ? requestAnimationFrame(painted) : done());
  requestAnimationFrame(painted);
})"""
ROWS = "least => document.querySelectorAll('main tbody tr a').length >= least"
SENT = "least => Number(document.querySelector('.demo p')?.textContent.match(/\\d+/)) >= least"  # calls of the demo
IDS = "all => all.map(each => each.hash.split('/').pop())"
# Keeps what is written on a canvas, with where it ends.
WRITTEN = """window.written = new Map();
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  if (this.textAlign === "left") written.set(text, x + this.measureText(text).width);
  return write.call(this, text, x, y);
};"""
# Forty races, of which every fourth has a loser that is watched for 9 s: [track, first and last ms] of each call, as
# the lanes have them while these races run.
WATCHED = """async () => {
  const { Races } = await import("./page/lib/races.js");
  const { Lanes } = await import("./page/lib/lanes.js");
  const races = new Races();
  races.apply("hello", { scope: "process", replica: "r", now_ms: Date.now(), running: [] });
  const begun = races.now();
  const canvas = document.createElement("canvas");
  canvas.style = "display: block; width: 900px; height: 600px";
  document.body.append(canvas);
  const lanes = new Lanes(canvas, races, { window_ms: 15000, shown: () => true });
  const events = [];
  for (let number = 0; number < 40; number += 1) {
    const [call, at_ms, lasts] = [`c${number}`, begun + number * 250, number % 4 ? 500 : 9000];
    const facts = { id: call, at_ms, model: "m", mode: "race" };
    const lane = (attempt) => ({ call, attempt: call + attempt, deployment: `p${attempt}/m`, offset_ms: 0 });
    const end = (attempt, outcome, ms) => ({ call, attempt: call + attempt, outcome, ms, tokens: 9, error: null });
    events.push([at_ms, "call", facts], [at_ms, "launch", lane("a")], [at_ms, "launch", lane("b")],
      [at_ms + 400, "first", { call, attempt: call + "a", ttft_ms: 400 }], [at_ms + 700, "end", end("a", "won", 700)],
      [at_ms + 700, "done", { id: call, status: 200, winner: call + "a", ttft_ms: 400, total_ms: 700 }],
      [at_ms + lasts, "end", end("b", "lost", lasts)]);
  }
  events.sort(([one], [other]) => one - other);
  const drawn = new Map();
  for (const [at_ms, kind, data] of events) {
    races.apply(kind, data);
    lanes.stopped_ms = at_ms;
    lanes.draw();
    for (const call of lanes.visible) drawn.set(call.id, [lanes.placed.get(call.id), Number(call.id.slice(1)) % 4]);
  }
  lanes.close();
  return [...drawn].map(([id, [track, rest]]) => {
    const from = Number(id.slice(1)) * 250;
    return [track, from, from + (rest ? 700 : 9000)];
  });
}"""
# Whether the list of calls has so many that are not among the known ones.
NEW_ROWS = """([known, least]) => {
  const listed = [...document.querySelectorAll("main tbody tr a")].map(each => each.hash.split("/").pop());
  return listed.filter(each => !known.includes(each)).length >= least;
}"""


def sums(n_audits: int, *, saved: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Return what a row of race value says was saved, in all."""
    return {"n_audited": n_audits, "saved_ms": saved, "saved_low_ms": low, "saved_high_ms": high}


def test_the_list_of_calls_has_every_call(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("calls")
    page.wait_for_selector("main tbody tr")
    links = page.locator("main tbody tr a").evaluate_all("all => all.map(each => each.hash.split('/').pop())")
    stored = {row[0] for row in demo.rows("select id from calls order by started_at desc limit 20")}
    assert stored
    assert {each.replace("-", "") for each in stored} <= {each.replace("-", "") for each in links}


def test_a_call_is_shown_with_all_its_attempts(demo: Installation, visit: Callable[..., Visit]) -> None:
    demo.await_no_rows(UNENDED)  # of a test before
    call_id, launched = demo.rows("select id, launched from calls order by launched desc limit 1")[0]
    deployments = [row[0] for row in demo.rows(f"select deployment from attempts where call_id = '{call_id}'")]
    page = visit(demo).open(f"calls/{call_id}")
    page.wait_for_selector("main section.card")
    said = page.locator("main").inner_text()
    assert len(deployments) == launched
    for deployment in deployments:
        assert deployment in said
    page.get_by_role("button", name="Copy SQL").first.click()
    sql = page.evaluate("() => navigator.clipboard.readText()")
    assert len(demo.rows(sql)) == launched


def test_the_leaderboard_has_every_deployment(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("leaderboard")
    page.wait_for_selector("main tbody tr")
    said = page.locator("main").inner_text()
    for (deployment,) in demo.rows("select distinct deployment from attempts"):
        assert deployment in said


def test_the_leaderboard_is_numbered_in_the_order_of_its_rows(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("leaderboard")
    board = page.locator("section.board").first
    board.locator("tbody .rank").first.wait_for()
    [first, *_] = demo.ask("/api/leaderboard")[1]["models"]
    numbers = board.locator("tbody .rank").all_inner_texts()
    assert numbers == [str(place) for place in range(1, len(first["deployments"]) + 1)]


def test_targets_have_the_calls_that_count_and_sql_that_says_so(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    page = visit(demo).open("targets")
    page.wait_for_selector("main section.card")
    cards = {each.locator("h2").inner_text(): each for each in page.locator("main section.card").all()}
    assert list(cards) == ["answered", "spoken", "strict"]
    assert "kept" in cards["answered"].inner_text()
    assert "No calls" in cards["spoken"].inner_text()
    strict = cards["strict"].inner_text()
    assert "missed" in strict
    assert "began too late" in strict
    cards["strict"].get_by_role("button", name="Copy SQL", exact=True).click()
    [(calls, bad, *_)] = demo.rows(page.evaluate("() => navigator.clipboard.readText()"))
    assert 0 < bad <= calls
    cards["strict"].get_by_role("button", name="Copy SQL of bad calls").click()
    assert 0 < len(demo.rows(page.evaluate("() => navigator.clipboard.readText()"))) <= calls


def test_a_canarys_share_has_the_digits_of_the_file(demo: Installation, visit: Callable[..., Visit]) -> None:
    def make_canary(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["models"][0]["deployments"][0]["canary"] = 0.07  # times 100: 7.000000000000001
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/configuration", make_canary)
    page = seen.open("configuration")
    seen.settle()
    assert page.locator("main td[data-label='In use']").first.inner_text() == "canary, 7.0 %"


def test_lanes_move_and_pause(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    page = seen.open("live")
    page.locator("canvas").wait_for(state="attached")  # hidden below the last race, when none moves
    before = [call["id"] for call in demo.ask("/api/calls")[1]["data"]]
    demo.calls(MADE)
    page.wait_for_function(NEW_ROWS, arg=[before, MADE])
    first = page.evaluate(PICTURE)
    page.wait_for_function(f"first => ({PICTURE})() !== first", arg=first)
    listed = page.locator("main tbody tr a").evaluate_all("all => all.map(each => each.hash.split('/').pop())")
    assert len(listed) == len(set(listed))
    demo.stored(listed)
    demo.await_no_rows(UNENDED)  # of a test before, or audited: what ends meanwhile is drawn
    page.get_by_role("button", name="Pause").click()
    page.evaluate(TEN_FRAMES)  # the next one draws the instant of the click
    still = page.evaluate(PICTURE)
    page.evaluate(TEN_FRAMES)
    assert page.evaluate(PICTURE) == still
    assert seen.complaints == []


def test_lanes_that_go_on_after_another_filter_say_so(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("live")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Go on").wait_for()
    page.get_by_label("Model").select_option(MODEL)
    page.get_by_role("button", name="Pause", pressed=False).wait_for()


def test_live_begins_with_the_calls_of_before(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    newest = [call["id"] for call in demo.ask("/api/calls?limit=12")[1]["data"]]
    page = seen.open("live")
    page.wait_for_function(ROWS, arg=12)
    assert page.locator("main tbody tr a").evaluate_all(IDS) == newest
    assert seen.complaints == []


def test_words_of_lanes_are_whole_on_a_phone_with_fifteen_races_at_once(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    def tell(route: "Route") -> None:
        began = datetime.now(UTC) - timedelta(seconds=20)
        route.fulfill(json={"data": [race(number, began) for number in range(15)], "next": None, "sql": ""})

    seen = visit(demo, width=390)
    seen.page.add_init_script(WRITTEN)
    seen.page.clock.set_fixed_time(datetime.now(UTC))
    seen.page.route("**/api/calls?*", tell)
    page = seen.open("live")
    page.get_by_role("button", name="1 min").click()
    page.wait_for_function("() => [...written.keys()].filter(text => /^1\\d\\d ms$/.test(text)).length === 15")
    width = page.evaluate("() => document.querySelector('canvas.lanes').clientWidth")
    assert max(page.evaluate("() => [...written.values()]")) <= width


def test_no_race_begins_on_a_track_where_a_loser_of_another_is_still_watched(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    page = visit(demo).open("live")
    tracks: dict[int, list[tuple[float, float]]] = {}
    for track, begun, ended in page.evaluate(WATCHED):
        tracks.setdefault(track, []).append((begun, ended))
    assert sum(map(len, tracks.values())) == 40
    assert -1 not in tracks
    for calls in tracks.values():
        assert all(one[1] < other[0] for one, other in pairwise(sorted(calls)))


def race(number: int, began: datetime) -> dict[str, Any]:
    """Return a call as /api/calls has it with its attempts: its winner's first token came after 1xx ms."""
    call_id, first = f"00000000-0000-7000-8000-{number:012}", 100.0 + number
    common: dict[str, Any] = {
        "call_id": call_id,
        "launch_offset_ms": 0.0,
        "error_kind": None,
        "first_event_ms": None,
        "provider": "p",
    }
    won: dict[str, Any] = {
        "outcome": "won",
        "ttft_ms": first,
        "token_ms": first,
        "last_token_ms": 9000.0,
        "censored_at_ms": None,
    }
    lost: dict[str, Any] = {
        "outcome": "lost",
        "ttft_ms": None,
        "token_ms": None,
        "last_token_ms": None,
        "censored_at_ms": first,
    }
    attempts = [
        {**common, **ended, "id": f"{call_id}-{at}", "number": at + 1, "deployment": f"p{at}/{MODEL}", "role": "race"}
        | {"completion_tokens": 9}
        for at, ended in enumerate((won, lost))
    ]
    call = {
        "id": call_id,
        "started_at": began.isoformat(),
        "model": MODEL,
        "client": None,
        "api": "chat",
        "mode": "race",
    }
    ended = {"status_code": 200, "error_kind": None, "ttft_ms": first, "total_ms": 9000.0, "completion_tokens": 9}
    return {**call, **ended, "streamed": True, "replica": "r", "cost_usd": None, "attempts": attempts}


AUDITED = {"n": 50, "n_compared": 50, "n_raced": 50, "basis": "audited", "verdict": "saved"}


@pytest.mark.parametrize(
    ("row", "tile", "lead"),
    [
        (
            AUDITED | sums(35, saved=6400, low=5000, high=8200),
            ("128 ms", "100 ms to 164 ms a call"),
            "Racing saved 128 ms",
        ),
        (
            AUDITED | {"verdict": "lost"} | sums(35, saved=-200, low=-300, high=-100),
            ("−4.0 ms", "−6.0 ms to −2.0 ms a call"),  # noqa: RUF001 - a true minus sign
            "Racing lost 4.0 ms",
        ),
        (
            AUDITED | {"verdict": "nothing worth its price", "extra_per_call": 1.0} | sums(3, saved=20, low=0, high=70),
            ("0.4 ms", "nothing worth its price here: at most 1.4 ms a call. Budget 0.1 would have done"),
            "Racing saved nothing worth its price here: at most 1.4 ms a call. Budget 0.1 would have done",
        ),
        (
            AUDITED | {"basis": "curve", "verdict": "not yet", "n_more": 57} | sums(5, saved=6400),
            ("–", "not yet, about 57 calls more"),  # noqa: RUF001 - nothing is known
            "cannot be told yet",
        ),
        (
            {"n": 1, "n_compared": 1, "basis": "seen", "verdict": "too few calls", "n_more": 29} | sums(0, saved=90),
            ("–", "too few calls, about 29 more"),  # noqa: RUF001 - nothing is known
            "cannot be told yet",
        ),
        (
            {"n": 5, "n_compared": 0, "n_raced": 0, "basis": None} | {"n_audited": None, "saved_ms": None},
            ("–", "no race yet"),  # noqa: RUF001 - nothing is known
            "None of 5 calls",
        ),
    ],
    ids=["saved", "lost", "nothing worth its price", "too few audits", "one call", "embeddings"],
)
def test_live_tells_what_racing_saved_as_the_view_of_its_worth_does_or_nothing(
    demo: Installation, visit: Callable[..., Visit], row: dict[str, Any], tile: tuple[str, str], lead: str
) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["data"] = [told["data"][0] | row]
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/race-value*", see)
    with seen.page.expect_request("**/api/race-value*") as asked:
        page = seen.open("live")
    assert "window=24h" in asked.value.url  # that of the view of racing's worth
    page.locator(".stat", has_text=tile[1]).wait_for()
    said = page.locator(".stat", has_text="Saved by racing").locator("dd")
    assert said.first.inner_text().replace("\u202f", " ") == tile[0]
    assert lead in seen.open("worth").locator("main p.lead").first.inner_text()


def test_models_are_not_added_up(demo: Installation, visit: Callable[..., Visit]) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        large = told["data"][0] | AUDITED | {"model": "large", "n": 60} | sums(35, saved=6400, low=5000, high=8200)
        small = large | {"model": "small", "n": 50} | sums(35, saved=1600, low=1000, high=2500)
        told["data"] = [small, large]
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/race-value*", see)
    page = seen.open("live")
    page.locator(".stat", has_text="100 ms to 164 ms a call of large").wait_for()
    page = seen.open("worth")
    seen.settle()
    leads = page.locator("main p.lead").all_inner_texts()
    assert [lead.partition(" per call")[0] for lead in leads] == ["Racing saved 128 ms", "Racing saved 32 ms"]
    assert ["for large" in leads[0], "for small" in leads[1]] == [True, True]


def test_a_client_with_few_calls_has_no_figure_and_one_with_few_audits_what_is_known(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    unknown = {f"{what}_{q}_ms": None for q in ("p50", "p95", "p99") for what in ("alone", "saved")}

    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        row = told["data"][0] | AUDITED | unknown
        many, few = {"n": 890, "n_compared": 890, "n_raced": 400}, {"n": 1, "n_compared": 1, "n_raced": 1}
        told["data"] = [
            {**row, "client": "busy", **many, "saved_per_call_ms": 128.0}
            | {"saved_per_call_low_ms": 100.0, "saved_per_call_high_ms": 164.0}
            | sums(12, saved=113920, low=89000, high=145960),
            {**row, "client": "unaudited", **many, "saved_per_call_ms": 90.0, "basis": "curve", "verdict": "not yet"}
            | {"n_more": 500, "saved_per_call_low_ms": None, "saved_per_call_high_ms": None}
            | sums(3, saved=80100),
            {**row, "client": "once", **few, "verdict": "too few calls", "n_more": 29, "saved_per_call_ms": None}
            | {"saved_per_call_low_ms": None, "saved_per_call_high_ms": None}
            | sums(0, saved=90),
        ]
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/race-value*by=client*", see)
    page = seen.open("worth")
    seen.settle()
    card = page.locator("section[aria-labelledby=worth-client]")
    told = card.inner_text().replace("\u202f", " ")
    assert "128 ms (100 ms to 164 ms)" in told
    assert "busy: too few audits, 12 of 30" in told
    assert "about 90 ms, estimated of 3 audits; not yet, about 500 calls more" in told
    assert "too few calls, about 29 more" in told
    assert "once: too few calls, 1 of 30" in told
    card.locator("summary").click()
    card.locator("tbody tr").first.wait_for()
    rows = card.locator("tbody tr").all_inner_texts()
    [once] = [row.replace("\u202f", " ") for row in rows if row.startswith("once")]
    assert " ms" not in once
    assert seen.complaints == []


def test_a_call_says_what_its_audited_first_choice_took_and_does_not_predict_it(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    [(call_id, offset_ms, token_ms)] = demo.rows(
        "select call_id, launch_offset_ms, token_ms from attempts "
        "where number = 1 and audited and is_overtaken and token_ms is not null limit 1"
    )
    page = visit(demo).open(f"calls/{call_id}")
    without = page.locator("main dt", has_text="Without racing").locator("xpath=following-sibling::dd[1]")
    said = without.first.inner_text().replace("\u202f", " ")
    assert said.endswith(", measured")
    took_ms = offset_ms + token_ms
    assert said.startswith(f"{took_ms:.0f} ms" if took_ms < 999.5 else f"{took_ms / 1000:.2f} s")


def test_no_audits_are_awaited_of_a_model_of_embeddings(demo: Installation, visit: Callable[..., Visit]) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        raced = told["data"][0] | AUDITED | sums(35, saved=6400, low=5000, high=8200)
        nothing = {"n_compared": 0, "n_raced": 0, "basis": None, "n_audited": None, "saved_ms": None}
        told["data"] = [raced, raced | {"model": "embeddings", "saved_low_ms": None, "saved_high_ms": None} | nothing]
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/race-value*by=model*", see)
    page = seen.open("worth")
    seen.settle()
    told = page.locator("main").inner_text()
    assert "Racing saved 128 ms" in told
    assert "not raced" in told
    assert "0 of 30" not in told


def test_the_share_of_wins_is_of_a_deployments_own_model(demo: Installation, visit: Callable[..., Visit]) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        one = told["series"][0] | {"n_won": [1 for _ in told["series"][0]["t"]]}
        told["series"] = [one, one | {"model": "another", "deployment": "alone/another"}]
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/history*", see)
    seen.page.goto(f"{demo.url}/#/history?model=all")
    wins = seen.page.locator("section[aria-labelledby=plot-wins]")
    wins.locator("summary").click()
    shares = wins.locator("tbody td:nth-child(2), tbody td:nth-child(3)").all_inner_texts()
    assert set(shares) - {"–"} == {"100 %"}  # noqa: RUF001 - as shown


def test_the_demo_offers_traffic_that_goes_on_in_other_views_and_stops(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(demo)
    page = seen.open("live")
    offer = page.get_by_role("group", name="Demo")
    assert "no provider key was found" in offer.inner_text()
    page.get_by_role("button", name="Send 3 calls a second").click()
    page.wait_for_function(SENT, arg=2)
    seen.open("configuration")
    seen.open("live")
    page.wait_for_function(SENT, arg=5)
    offer.get_by_role("button", name="Stop").click()
    offer.get_by_text("calls sent").wait_for()
    page.wait_for_function(ROWS, arg=5)
    assert seen.complaints == []


def test_the_leaderboard_has_first_sentences_once_somebody_was_measured_by_them(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(demo)
    page = seen.open("leaderboard")
    page.wait_for_selector("main tbody tr")
    titles = page.locator("main thead").first
    assert "Sentence" not in titles.inner_text()
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Why race?"}]}
    body["race"] = {"mode": "race", "win_on": "sentence"}
    with ThreadPoolExecutor(20) as pool:  # each answer takes seconds
        statuses = pool.map(lambda _: demo.ask("/v1/chat/completions", body=body)[0], range(20))
        assert list(statuses) == [200] * 20
    page.get_by_role("button", name="Sentence").first.wait_for()
    assert titles.inner_text().count("Sentence") == 2
    assert titles.inner_text().count("Silence") == 1
    page.get_by_text("the first sentence counts as the first token").first.wait_for()
    [(call_id, silence_ms)] = demo.rows(
        "select call_id, speech_pause_ms from attempts where outcome = 'won' and sentence_ms is not null limit 1"
    )
    seen.open(f"calls/{call_id}")
    page.get_by_text("Longest silence of a voice").wait_for()
    page.get_by_text("Everything about the attempts").click()
    told = page.locator("table", has_text="Longest silence").inner_text()
    assert told.count("Longest silence") == 1
    assert silence_ms is not None
    assert seen.complaints == []
