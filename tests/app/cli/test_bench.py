"""holeshot bench, against scripted providers and a running gateway."""

import asyncio
import hashlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from gateway.bench import read_journal
from gateway.cli.main import application
from providers.simulator import (
    Delta,
    ErrorEvent,
    Hang,
    Status,
    answer,
)
from tests.app.cli.two_providers import ANSWER, ROOT, SAID, SECRET, Field, two_providers
from tests.app.gateway.running_gateway import serving
from tests.support import warm

RIGHT_KEY = "hs-the-right-key-of-a-client"


@pytest.fixture
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    async with two_providers(tmp_path) as built:
        yield built


QUICK = ("--classes", "short,json", "--rounds", "3", "--warm-up", "1", "--seed", "7")


async def test_every_deployment_is_asked_the_same_and_the_report_is_json(field: Field) -> None:
    code, out, err = await field.bench(*QUICK, "--json", "--html", "report.html", "--goal", "ttft<60s")

    assert (code, err.splitlines()[-1]) == (0, "the report with plots: report.html")
    told = json.loads(out)
    assert (told["requests"], told["is_whole"], told["rounds_whole"]) == (12, True, 3)
    [a, b] = [cell for cell in told["cells"] if cell["kind"] == "all"]
    assert (a["deployment"], b["deployment"], a["requests"], b["requests"]) == ("a/m", "b/m", 6, 6)
    assert a["figures"]["tokens_mean"]["value"] == 2
    assert a["figures"]["goodput"]["value"] == 1
    assert (a["figures"]["sentence_p50_ms"]["n"], a["figures"]["silence_p95_ms"]["value"]) == (3, None)
    for provider in (field.a, field.b):
        prompts = [each.body["messages"][0]["content"] for each in provider.received]
        assert len(prompts) == len(set(prompts)) == 7  # each with a salt of its own, one to warm up
        assert {each.body["max_tokens"] for each in provider.received} == {64, 320}
    assert not (field.folder / "never.db").exists()


async def test_neither_secrets_nor_texts_are_in_any_file(field: Field) -> None:
    _, out, err = await field.bench(*QUICK, "--json", "--html", "report.html", "--journal", "bench.jsonl")

    files = [path.read_text() for path in field.folder.iterdir() if path.name != "gateway.yaml"]
    assert len(files) == 2
    for text in (*files, out, err):
        assert SECRET not in text
        assert SAID not in text
        assert "rivers" not in text


async def test_a_killed_bench_goes_on_where_it_was(field: Field) -> None:
    for _ in range(4):
        field.a.once(ANSWER)
    field.a.script = [Hang()]
    process = await field.start(*QUICK, "--journal", "bench.jsonl", "--csv")
    await field.a.reach(requests=5)
    process.kill()
    await process.communicate()
    before = read_journal(field.folder / "bench.jsonl")
    field.a.script = ANSWER

    code, out, err = await field.bench("--resume", "bench.jsonl", "--json")

    assert code == 0, err
    told = json.loads(out)
    assert (told["requests"], told["is_whole"], told["sittings"]) == (12, True, 2)
    after = read_journal(field.folder / "bench.jsonl")
    assert after.samples[: len(before.samples)] == before.samples
    counted = Counter(sample.key for sample in after.samples if sample.key.round >= 0)
    assert len(counted) == 12
    assert set(counted.values()) == {1}
    assert len(field.a.received) + len(field.b.received) == 12 + 2 * 2 + 1  # warmed up twice, and one cut
    again = await field.bench("--resume", "bench.jsonl", "--json")
    assert again[0] == 0
    assert json.loads(again[1])["cells"] == told["cells"]


async def test_a_bench_may_get_more_rounds_later(field: Field) -> None:
    assert (await field.bench(*QUICK, "--journal", "bench.jsonl"))[0] == 0
    rounds = read_journal(field.folder / "bench.jsonl").plan.rounds
    code, _, err = await field.bench("--resume", "bench.jsonl", "--rounds", str(rounds))
    assert (code, f"bench.jsonl has {rounds} already" in " ".join(err.split())) == (2, True)
    code, out, err = await field.bench("--resume", "bench.jsonl", "--rounds", str(rounds + 2), "--json", "--yes")
    assert code == 0, err
    told, past = json.loads(out), read_journal(field.folder / "bench.jsonl")
    assert (told["is_whole"], told["plan"]["rounds"], past.plan.rounds) == (True, rounds + 2, rounds + 2)
    assert {sample.key.round for sample in past.samples if sample.key.round >= 0} == set(range(rounds + 2))


async def test_ctrl_c_says_how_to_go_on(field: Field) -> None:
    field.b.script = [Hang()]
    process = await field.start(*QUICK, "--journal", "bench.jsonl")
    await field.b.requested.wait()

    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert (process.returncode, out) == (130, b"")
    assert b"stopped; `holeshot bench --resume bench.jsonl` goes on" in err
    await field.b.reach(disconnects=1)


async def test_no_round_begins_that_the_cap_might_not_pay(field: Field) -> None:
    field.price(100)
    # A short request is at most 64 tokens of answer and some 200 of prompt: about 0.03 dollars for each of two.
    code, out, err = await field.bench(
        *QUICK, "--classes", "short", "--rounds", "50", "--max-usd", "0.2", "--yes", "--json"
    )

    assert code == 0
    told = json.loads(out)
    assert 0 < told["requests"] < 100
    assert told["requests"] % 2 == 0
    assert told["at_most_usd"] <= 0.2
    assert "the next round could cost more than is left of $0.20" in err
    assert told["spent_usd"] == pytest.approx((told["requests"] + 2) * 22 * 100e-6)


async def test_money_is_not_spent_without_consent(field: Field) -> None:
    field.price(1)
    code, _, err = await field.bench(*QUICK)
    assert code == 2
    assert "12 requests to 2 deployments: about $0." in err
    assert "this costs money: add --yes to agree" in err
    assert not field.a.received
    assert not list(field.folder.glob("*.jsonl"))


async def test_a_cap_that_pays_no_round_is_refused(field: Field) -> None:
    field.price(100)
    code, _, err = await field.bench(*QUICK, "--yes", "--max-usd", "0.01")
    assert code == 2
    assert "--max-usd 0.01 does not pay for one round: it may cost $0." in err
    assert not field.a.received


async def test_an_unknown_price_needs_consent(field: Field) -> None:
    field.price(None)
    code, _, err = await field.bench(*QUICK, "--yes")
    assert code == 2
    assert "the price of a/m, b/m is unknown, so --max-usd cannot hold" in err
    code, out, _ = await field.bench(*QUICK, "--yes", "--unpriced", "--json")
    assert code == 0
    assert json.loads(out)["spent_usd"] is None


async def test_a_wrong_key_ends_it_with_a_sentence(field: Field) -> None:
    field.b.script = [Status(401)]
    code, out, err = await field.bench(*QUICK)
    assert (code, out) == (1, "")
    assert "holeshot: b/m cannot be asked: " in err
    assert "Traceback" not in err


async def test_errors_are_samples_and_told_once(field: Field) -> None:
    field.b.once(ANSWER)
    field.b.script = [Status(503)]
    code, out, err = await field.bench(*QUICK, "--json")
    assert code == 0
    [b] = [cell for cell in json.loads(out)["cells"] if cell["kind"] == "all" and cell["deployment"] == "b/m"]
    assert b["error_kinds"] == {"server_error": 6}
    assert b["figures"]["errors"]["value"] == 1
    assert "ttft_p50_ms" not in b["figures"]
    assert err.count("note: b/m: server_error") == 1


async def test_a_key_that_an_event_refuses_is_not_used_again(field: Field) -> None:
    path = field.folder / "gateway.yaml"
    config = yaml.safe_load(path.read_text())
    del config["providers"]["a"]["api_key"]
    config["providers"]["a"]["api_keys"] = [f"{SECRET}-one", f"{SECRET}-two"]
    path.write_text(yaml.safe_dump(config))
    field.a.once(ANSWER)
    field.a.once([ErrorEvent("this key has expired", 401)])

    code, _, err = await field.bench(*QUICK)

    assert code == 0, err
    first, refused, *others = [each.headers["authorization"] for each in field.a.received]
    assert refused != first
    assert others == [first] * 5


@pytest.mark.parametrize("status", [401, 429])
async def test_a_first_key_that_is_refused_is_followed_by_the_next(field: Field, status: int) -> None:
    path = field.folder / "gateway.yaml"
    config = yaml.safe_load(path.read_text())
    del config["providers"]["a"]["api_key"]
    config["providers"]["a"]["api_keys"] = [f"{SECRET}-one", f"{SECRET}-two"]
    path.write_text(yaml.safe_dump(config))
    field.a.once([Status(status, headers={"retry-after": "60"})])

    code, out, err = await field.bench(*QUICK, "--json")

    assert code == 0, err
    [a] = [cell for cell in json.loads(out)["cells"] if cell["kind"] == "all" and cell["deployment"] == "a/m"]
    assert a["figures"]["errors"]["value"] == 0
    first, *others = [each.headers["authorization"] for each in field.a.received]
    assert first not in others


async def test_a_form_that_is_refused_is_followed_by_another(field: Field) -> None:
    refused = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    )
    field.a.once([Status(400, {"error": {"message": refused, "type": "invalid_request_error"}})])

    code, out, err = await field.bench(*QUICK, "--json")

    assert code == 0, err
    [a] = [cell for cell in json.loads(out)["cells"] if cell["kind"] == "all" and cell["deployment"] == "a/m"]
    assert a["figures"]["errors"]["value"] == 0
    first, *others = ["max_completion_tokens" in each.body for each in field.a.received]
    assert (first, {*others}) == (False, {True})


async def test_json_that_is_nested_too_deeply_to_be_read_is_not_as_asked(field: Field) -> None:
    field.a.script = [Delta("[" * 20_000), *ANSWER[2:]]

    code, out, err = await field.bench("--classes", "json", "--rounds", "2", "--warm-up", "1", "--json")

    assert code == 0, err
    [a, _] = [cell for cell in json.loads(out)["cells"] if cell["kind"] == "all"]
    assert (a["requests"], a["figures"]["as_asked"]["value"]) == (2, 0)


async def test_several_requests_run_at_a_time_at_one_deployment(field: Field) -> None:
    code, out, _ = await field.bench("--classes", "short", "--rounds", "2", "--concurrency", "4", "--json")
    assert code == 0
    assert field.a.counts.most_in_flight <= 4
    assert {cell["concurrency"] for cell in json.loads(out)["cells"]} == {4}
    assert len(field.a.received) == 2 * 4 + 2


async def test_through_a_gateway_each_call_goes_to_the_deployment_that_is_measured(tmp_path: Path) -> None:
    async with serving(tmp_path / "gateway", {"one": ANSWER, "two": ANSWER, "three": answer("no")}) as running:
        field = Field(running["one"], running["two"], tmp_path)
        price = ("--unpriced", "--yes")
        code, out, err = await field.bench(*QUICK, *price, "--url", running.url, "-d", "one/m", "-d", "two/m", "--json")
        assert code == 0, err
        told = json.loads(out)
        assert told["requests"] == 12
        assert told["plan"]["url"] == running.url
        assert all(not cell["error_kinds"] for cell in told["cells"])
        assert [len(running[name].received) for name in ("one", "two", "three")] == [7, 7, 0]

        code, _, err = await field.bench(*QUICK, *price, "--url", running.url, "-d", "four/m")
        assert code == 2
        assert "there is no deployment 'four/m' here; there are one/m, two/m, three/m" in err

        code, _, err = await field.bench("nothing", *QUICK, *price, "--url", running.url)
        assert (code, "the gateway has no model 'nothing'; it has" in err) == (2, True)


async def test_a_gateway_that_wants_a_key_says_so(tmp_path: Path) -> None:
    clients = {"me": {"key_sha256": hashlib.sha256(RIGHT_KEY.encode()).hexdigest()}}
    async with serving(tmp_path / "gateway", {"one": ANSWER}, clients=clients) as running:
        field = Field(running["one"], running["one"], tmp_path)
        code, _, err = await field.bench(*QUICK, "--url", running.url, "--yes", "--unpriced")
        assert code == 1
        assert "the key is missing or wrong: give a client's key" in err
        code, _, err = await field.bench(*QUICK, "--url", running.url, "--yes", "--unpriced", "--key", RIGHT_KEY)
        assert code == 0, err


@pytest.mark.usefixtures("field", "holeshot")  # its file, in the folder that is the working directory
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--goal", "fast"], 2, "the goal 'fast' is not understood; write it like ttft<500ms,tps>45"),
        (["--classes", "short,poems"], 2, "there is no class of prompts 'poems': choose of short, long_answer"),
        (["--concurrency", "0"], 2, "--concurrency is a comma list of numbers from 1 to 256"),
        (["--json", "--csv"], 2, "give --json or --csv, not both"),
        (["--resume", "x", "--seed", "3"], 2, "with --resume the plan is the journal's: leave out --seed"),
        (["--resume", "missing.jsonl"], 1, "missing.jsonl cannot be read: No such file or directory"),
        (["-d", "c/m"], 2, "there is no deployment 'c/m' here; there are a/m, b/m"),
        (["chatt"], 2, "the model 'chatt' does not exist; did you mean 'chat'?"),
        (["--url", "http://127.0.0.1:9"], 1, "no gateway at http://127.0.0.1:9"),
        (["--url", "nowhere"], 1, "is no http:// or https:// address"),
        (["--journal", "/proc/none/x"], 1, "/proc/none/x cannot be written"),
        (["--fail-if", "ttft > 3"], 2, "there is no figure 'ttft'"),
        (["--fail-if", "c/m: errors > 0"], 2, "'c/m: errors > 0': c/m is not measured; did you mean"),
        (["--fail-if", "goodput < 90%"], 2, "'goodput < 90%' needs a --goal"),
        (["--against", "missing.jsonl"], 2, "missing.jsonl cannot be read: No such file or directory"),
        (["--classes", "written:3"], 2, "there is no class of prompts 'written:3'"),
        (["--junit", "x.xml"], 2, "--junit needs something to judge: add --fail-if or --against"),
    ],
)
def test_bad_input_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *, arguments: list[str], code: int, told: str
) -> None:
    monkeypatch.setenv("HOLESHOT_CONFIG", "gateway.yaml")
    with pytest.raises(SystemExit) as ended:  # and nothing that would be printed with a trace
        application()(["bench", *arguments])
    out, err = capfd.readouterr()
    assert (ended.value.code, out) == (code, "")
    assert told in err


async def test_an_address_that_is_no_gateway_is_told_apart(field: Field) -> None:
    code, _, err = await field.bench("--url", field.a.base_url.removesuffix("/v1"), "--yes")
    assert (code, "Traceback" in err) == (2, False)


EIGHT = ("--classes", "short", "--rounds", "8", "--warm-up", "0", "--seed", "7")


async def test_a_gate_ends_with_what_it_found(field: Field) -> None:
    field.b.script = [Status(503)]
    code, out, err = await field.bench(
        *EIGHT,
        "--journal",
        "bench.jsonl",
        "--fail-if",
        "errors > 50%",
        "--junit",
        "x.xml",
        "--markdown",
        "x.md",
        "--json",
    )
    assert code == 3, err
    assert [(each["deployment"], each["outcome"]) for each in json.loads(out)["gate"]["checks"]] == [
        ("a/m", "holds"),
        ("b/m", "broken"),
    ]
    assert '<failure message="errors &gt; 50%: 100% (' in (field.folder / "x.xml").read_text()
    assert "| b/m | 8 |" in (field.folder / "x.md").read_text()

    code, out, _ = await field.bench("--resume", "bench.jsonl", "--fail-if", "a/m: errors > 50%")
    assert (code, out.splitlines()[-1]) == (0, "gate: holds")
    code, out, _ = await field.bench("--resume", "bench.jsonl", "--fail-if", "b/m: ttft_p50_ms > 1", "--csv")
    assert (code, "gate:" in out) == (4, False)
    code, out, _ = await field.bench("--resume", "bench.jsonl", "--against", "bench.jsonl", "--fail-if", "errors > 50%")
    assert (code, out.splitlines()[-1]) == (3, "gate: BROKEN")


async def test_a_run_of_before_that_was_better_breaks_the_gate(field: Field) -> None:
    assert (await field.bench(*EIGHT, "--journal", "before.jsonl"))[0] == 0
    field.b.script = [Status(503)]
    code, out, err = await field.bench(*EIGHT, "-d", "b/m", "--against", "before.jsonl")
    assert code == 3, err
    assert "BROKEN: b/m: errors: 100 (" in out
    assert " points more errors than in before.jsonl" in out


ACTION = ROOT / ".github" / "actions" / "bench" / "bench.sh"


async def run_action(field: Field, **inputs: str) -> tuple[int | None, str, dict[str, str]]:
    """Run the action's script as the forge does; return its exit code, what it printed and its outputs."""
    folder = field.folder / "bin"
    folder.mkdir(exist_ok=True)
    command = folder / "holeshot"
    command.write_text(f'#!/bin/sh\nexec {" ".join(warm.holeshot())} "$@"\n')
    command.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
    own = {
        "PATH": f"{folder}:{environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_OUTPUT": str(field.folder / "output"),
        "GITHUB_STEP_SUMMARY": str(field.folder / "summary"),
        "CONFIG": "gateway.yaml",
        "HOLESHOT_KEY": "",
    }
    process = await asyncio.create_subprocess_exec(
        "bash",
        str(ACTION),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=field.folder,
        env={**environ, **own, **inputs},
    )
    told, _ = await process.communicate()
    output = field.folder / "output"
    lines = output.read_text().splitlines() if output.exists() else []
    return process.returncode, told.decode(), dict(line.split("=", 1) for line in lines)


async def test_the_action_fails_the_job_if_a_goal_is_broken(field: Field) -> None:
    field.b.script = [Status(503)]
    inputs = {"CLASSES": "short", "ROUNDS": "8", "FAIL_IF": "errors > 50%\n\n  a/m: errors > 60%  \n"}
    code, told, outputs = await run_action(field, **inputs, AGAINST="before.jsonl", MODEL="chat", FOLDER="out put")

    assert code == 3, told
    assert outputs == {"outcome": "broken", "folder": "out put"}
    assert "::notice::there is no before.jsonl to compare with" in told
    assert "::error::holeshot bench: a goal is broken" in told
    assert {path.name for path in (field.folder / "out put").iterdir()} == {
        "bench.jsonl",
        "bench.json",
        "bench.md",
        "bench.xml",
    }
    assert "❌ broken" in (field.folder / "summary").read_text()
    assert len(json.loads((field.folder / "out put" / "bench.json").read_text())["gate"]["checks"]) == 3


async def test_the_action_runs_again_and_too_little_data_may_pass(field: Field) -> None:
    inputs = {"CLASSES": "short", "ROUNDS": "2", "FAIL_IF": "errors > 50%"}
    code, told, outputs = await run_action(field, **inputs)
    assert (code, outputs["outcome"]) == (4, "undecided"), told
    code, told, outputs = await run_action(field, **inputs, TOO_LITTLE_DATA="pass")
    assert (code, outputs["outcome"]) == (0, "undecided"), told
    code, told, outputs = await run_action(field, CLASSES="short", ROUNDS="1")
    assert (code, outputs["outcome"]) == (0, "measured"), told
    code, told, _ = await run_action(field, FAIL_IF="$(touch x) > 1", TOO_LITTLE_DATA="fail")
    assert (code, (field.folder / "x").exists()) == (2, False)
    assert "is not understood; write it like" in told


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"TOO_LITTLE_DATA": "maybe"}, "too-little-data is fail or pass, not maybe"),
        ({"ROUNDS": "many"}, "rounds is a whole number from 1, not many"),
        ({"ROUNDS": "0"}, "rounds is a whole number from 1, not 0"),
        ({"MAX_USD": "$5"}, "max-usd is a number of dollars as in 1.50, not $5"),
        ({"URL": "gateway:8000"}, "url begins with http:// or https://, not as gateway:8000"),
        ({"CONFIG": "100%.yaml"}, "config: there is no file 100%25.yaml"),
        ({"AGAINST": "."}, "against is a file, . is a folder: add /bench.jsonl"),
        ({"FOLDER": "out\noutcome=holds"}, "folder is one line, not out outcome=holds"),
        ({"FOLDER": "gateway.yaml/x"}, "folder: gateway.yaml/x cannot be made"),
    ],
)
async def test_the_action_says_which_input_is_wrong_before_anything_is_sent(
    field: Field, inputs: dict[str, str], told: str
) -> None:
    code, printed, outputs = await run_action(field, **inputs)
    assert (code, printed.splitlines()[-1], outputs) == (2, f"::error::{told}", {})


async def test_the_action_says_why_it_could_not_measure(field: Field) -> None:
    code, told, outputs = await run_action(field, CLASSES="short", MODEL="chat", FAIL_IF="erors > 1%")
    assert (code, outputs["outcome"]) == (2, "failed")
    assert "::error::holeshot bench could not measure (exit code 2): there is no figure 'erors'" in told
    assert not (field.folder / "holeshot-bench" / "errors.txt").exists()
