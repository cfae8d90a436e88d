"""holeshot bench --ways: one model's calls alone and raced, through the engine, against scripted providers."""

import json
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from gateway.bench import WARM_UP, read_journal
from providers.simulator import Hang, Pause, Status
from tests.app.cli.beside import run_beside
from tests.app.cli.two_providers import ANSWER, SAID, SECRET, Field, two_providers
from tests.support.ledgers import lay, migrated

WAYS = ("--ways", "single,0.1,1.0", "--warm-up", "1", "--seed", "7")
QUICK = (*WAYS, "--calls", "6")
WITH_INTERVALS = (*WAYS, "--calls", "8")  # each of which takes a second to reckon


@pytest.fixture
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    lay(migrated(), tmp_path / "never.db")
    async with two_providers(tmp_path) as built:
        yield built


def asked(field: Field) -> int:
    return len(field.a.received) + len(field.b.received)


async def test_each_way_makes_the_same_calls_and_the_report_has_its_figures(field: Field) -> None:
    code, out, err = await field.bench(*QUICK, "--json", "--max-tokens", "48")

    assert code == 0, err
    told = json.loads(out)
    assert (told["requests"], told["is_whole"], told["plan"]["raced"]) == (18, True, ["a/m", "b/m"])
    cells = {cell["deployment"]: cell for cell in told["cells"] if cell["kind"] == "all"}
    assert {name: cell["requests"] for name, cell in cells.items()} == {"single": 6, "0.1": 6, "1.0": 6}
    figures = {name: cell["figures"] for name, cell in cells.items()}
    assert figures["single"]["requests_per_call"]["value"] == 1
    assert 1 < figures["1.0"]["requests_per_call"]["value"] <= 2
    assert all(each["errors"]["value"] == 0 for each in figures.values())
    launched = sum(sample["launched"] for sample in told["samples"])
    assert launched <= asked(field) <= launched + 2 * 3  # each way is warmed up with a call
    received = [*field.a.received, *field.b.received]
    assert {each.body["max_tokens"] for each in received} == {48}
    for provider in (field.a, field.b):
        prompts = [each.body["messages"][0]["content"] for each in provider.received]
        assert len(prompts) == len(set(prompts))  # no prompt cache knows one


async def test_for_a_voice_all_ways_are_raced_as_for_a_listener_and_told_so(field: Field) -> None:
    code, out, err = await field.bench("--ways", "single,1.0", "--warm-up", "0", "--calls", "4", "--voice", "--json")

    assert code == 0, err
    told = json.loads(out)
    assert (told["plan"]["voice"], told["plan"]["kinds"]) == (True, ["long_answer"])
    for sample in told["samples"]:
        assert sample["sentence_ms"] == sample["ttft_ms"]
        assert sample["speech_pause_ms"] >= 0
        assert sample["spoken_s"] > 0
    rows = sqlite3.connect(field.folder / "never.db").execute("select distinct win_on, profile from calls").fetchall()
    assert rows == [("sentence", "voice")]


async def test_its_calls_are_rows_that_can_be_left_out_and_no_model_of_the_gateway_has_them(field: Field) -> None:
    code, _, err = await field.bench(*QUICK)

    assert code == 0, err
    rows = sqlite3.connect(field.folder / "never.db").execute("select model, tags from calls").fetchall()
    assert Counter(model for model, _ in rows) == {f"bench:chat:{way}": 7 for way in ("single", "0.1", "1.0")}
    assert all(json.loads(tags) == {"from": "holeshot bench", "way": model.split(":")[2]} for model, tags in rows)


async def test_neither_secrets_nor_texts_are_in_what_it_writes(field: Field) -> None:
    (field.folder / "prompts.txt").write_text("Why do rivers meander?\n\nWho was Ada Lovelace?\n")
    files = ("--journal", "bench.jsonl", "--markdown", "ways.md", "--html", "ways.html")
    code, out, err = await field.bench(*QUICK, *files, "--prompts", "prompts.txt")

    assert code == 0, err
    asked_for = Counter(each.body["messages"][0]["content"].splitlines()[1] for each in field.a.received)
    assert set(asked_for) == {"Why do rivers meander?", "Who was Ada Lovelace?"}
    texts = [(field.folder / name).read_text() for name in ("bench.jsonl", "ways.md", "ways.html")]
    for text in (*texts, out, err):
        assert SECRET not in text
        assert SAID not in text
        assert "rivers" not in text


async def test_the_prompts_of_a_bench_that_goes_on_are_those_it_began_with(field: Field) -> None:
    prompts = field.folder / "prompts.jsonl"
    prompts.write_text('"Why?"\n{"prompt": "Two\\nlines"}\n')
    assert (await field.bench(*WAYS, "--calls", "2", "--prompts", prompts.name, "--journal", "b.jsonl"))[0] == 0
    assert any(each.body["messages"][0]["content"].endswith("\nTwo\nlines") for each in field.a.received)

    assert (await field.bench("--resume", "b.jsonl", "--calls", "3"))[0] == 0
    prompts.write_text('"How?"\n')
    code, _, err = await field.bench("--resume", "b.jsonl", "--calls", "4")
    assert (code, "prompts.jsonl has changed since the bench began" in err) == (1, True)
    prompts.write_text("no JSON\n")
    code, _, err = await field.bench(*WAYS, "--prompts", prompts.name)
    assert (code, 'prompts.jsonl, line 1: write a JSON string, or an object like {"prompt": "..."}' in err) == (2, True)


async def test_ctrl_c_shows_what_is_known_and_the_journal_goes_on(field: Field) -> None:
    for provider in (field.a, field.b):
        for _ in range(6):
            provider.once(ANSWER)
        provider.script = [Hang()]
    process = await field.start(*WITH_INTERVALS, "--journal", "bench.jsonl")
    await field.a.reach(requests=7)
    await field.b.reach(requests=7)
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert process.returncode == 130, err
    assert b"what it took" in out
    assert b"stopped; `holeshot bench --resume bench.jsonl` goes on" in err
    before = read_journal(field.folder / "bench.jsonl")
    received = asked(field)
    known = await field.bench("--resume", "bench.jsonl", "--for", "0s")
    assert (known[0], known[1], asked(field)) == (0, out.decode(), received)
    field.a.script = field.b.script = ANSWER
    code, out_, err_ = await field.bench("--resume", "bench.jsonl", "--json")

    assert code == 0, err_
    told = json.loads(out_)
    assert (told["requests"], told["is_whole"], told["sittings"]) == (24, True, 2)
    after = read_journal(field.folder / "bench.jsonl")
    assert after.samples[: len(before.samples)] == before.samples
    counted = Counter(sample.key for sample in after.samples if sample.key.round != WARM_UP)
    assert set(counted.values()) == {1}


async def test_the_cap_counts_losers_and_cut_calls_and_is_never_exceeded(field: Field) -> None:
    field.price(100)
    code, out, err = await field.bench(
        *WAYS, "--classes", "short", "--calls", "250", "--max-usd", "0.8", "--yes", "--json"
    )

    assert code == 0, err
    told = json.loads(out)
    assert 0 < told["requests"] < 750
    assert told["requests"] % 3 == 0
    assert told["spent_usd"] <= told["at_most_usd"] <= 0.8
    assert "the next round could cost more than is left of $0.80" in err
    [(usd,)] = sqlite3.connect(field.folder / "never.db").execute("select sum(cost_high_usd) from calls")
    assert told["at_most_usd"] == pytest.approx(usd)
    assert asked(field) > told["requests"]  # raced


async def test_a_provider_that_fails_is_counted_and_the_calls_are_answered(field: Field) -> None:
    field.a.script, field.b.script = [Pause(0.1), *ANSWER], [Status(503)]  # who has lost before it fails is not counted
    code, out, err = await field.bench(*WITH_INTERVALS)

    assert code == 0, err
    assert "note: requests that failed at providers, also where another answered the call: b/m " in out
    assert out.count("0% (0% to ") == 3


async def test_the_results_are_a_block_of_markdown_and_a_picture(field: Field) -> None:
    code, _, err = await field.bench(*WITH_INTERVALS, "--markdown", "ways.md", "--picture", "my ways.svg")

    assert code == 0, err
    text = (field.folder / "ways.md").read_text()
    [head, rule, *rows] = [line for line in text.splitlines() if line.startswith("|")]
    assert [row.split(" | ")[0] for row in rows] == ["| single", "| 0.1", "| 1.0"]
    assert len({line.count(" | ") for line in (head, rule, *rows)}) == 1
    assert "![First tokens and whole answers of each way](my%20ways.svg)" in text
    assert "No p99 yet: of 8 answers of a way; it needs 368." in text
    assert "seed 7, with a/m, b/m; prompts: short, long_answer, answers of at most 256 tokens." in text
    drawn = ET.parse(field.folder / "my ways.svg").getroot()
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("single") == 6
    assert texts.count("too few calls") == 12
    assert "Bar: interval of 95 %. Ring: too few calls for an interval." in texts


async def test_where_all_providers_fail_the_failures_are_the_result(field: Field) -> None:
    field.a.script = field.b.script = [Status(503)]
    code, out, err = await field.bench(*QUICK, "--json")

    assert code == 0, err
    cells = [cell for cell in json.loads(out)["cells"] if cell["kind"] == "all"]
    assert [cell["figures"]["errors"]["value"] for cell in cells] == [1, 1, 1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--ways", "single"), "--ways compares at least two, as in single,0.1,1.0; not 'single'"),
        (("--ways", "single,fast"), "there is no way 'fast': write single, or a budget of extra requests per call"),
        (("--ways", "0.1,0.10"), "--ways compares at least two"),
        (("--ways", "single,9"), "from 0 to 7"),
        (("--ways", "single,1", "--url", "http://127.0.0.1:1"), "leave out --url"),
        (("--ways", "single,1", "-d", "a/m"), "name others as its model: provider/model,provider/model"),
        (("--ways", "single,1", "a/m"), "a/m has one deployment, so all ways are the same"),
        (("--ways", "single,1", "nobody"), "nobody"),
        (("--ways", "single,1", "--for", "soon"), "--for 'soon' is not a time; write 90s, 10m or 1h"),
        (("--ways", "single,1", "--prompts", "none.txt"), "none.txt cannot be read"),
        (("--prompts", "gateway.yaml"), "--prompts goes with --ways"),
        (("--resume", "x.jsonl", "--ways", "single,1"), "leave out --ways"),
    ],
)
async def test_what_cannot_be_compared_is_told_before_anything_is_sent(
    field: Field, options: tuple[str, ...], told: str
) -> None:
    code, _, err = await field.bench(*options)
    assert (code, told in " ".join(err.split()), asked(field)) == (2, True, 0), err


async def test_deployments_that_no_model_has_can_be_raced(field: Field) -> None:
    path = field.folder / "gateway.yaml"
    config = yaml.safe_load(path.read_text())
    config["models"]["chat"]["deployments"] = ["a/m"]
    path.write_text(yaml.safe_dump(config))
    code, out, err = await field.bench("a/m,b/n", *QUICK, "--unpriced", "--yes", "--json")
    assert code == 0, err
    assert json.loads(out)["plan"]["raced"] == ["a/m", "b/n"]


async def test_the_demo_can_be_measured_in_an_empty_folder(tmp_path: Path) -> None:
    code, out, err = await run_beside(
        tmp_path, ("bench", "--ways", "single,1.0", "--calls", "6", "--classes", "short", "--seed", "3"), {}
    )
    assert code == 0, err
    assert "measuring simulated providers" in err
    assert [line.split()[:2] for line in out.splitlines() if line.startswith((" single", " 1.0"))] == [
        ["single", "6"],
        ["1.0", "6"],
    ] * 3
    assert "note: no p99 yet: of 6 answers of a way; it needs 368" in out
