"""Each command on terminals of 80 and 130 columns: no line is wider, and no row of a table is in three lines."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from typer.testing import Result

from gateway.cli.main import COMMANDS
from tests.app.cli.conftest import Site
from tests.app.cli.test_leaderboard import FULL
from tests.app.cli.test_slowdowns import store as store_slowdown
from tests.support.ledgers import lay, migrated
from tests.support.replayed import WORLDS, Drawing, ledger, store

Holeshot = Callable[..., Result]

LONG = "together/meta-llama/Llama-3.3-70B-Instruct-Turbo"
WHY = "rescue: 95% of the primary's first tokens come within 1.24 s; it counts as hanging after 2 times that"
_LAUNCH = {"role": "failover", "extra": True, "why": WHY}
_PROSPECT = {
    "state": "cooling",
    "events": 47.7,
    "ttft_mean_s": 0.808,
    "ttft_p50_s": 0.721,
    "ttft_p95_s": 1.306,
    "error_rate": 0.001,
    "decode_tps": 97.5,
    "decode_s": 1.561,
    "stall_s": 0.1,
    "after_s": 0.078,
    "cost_usd": 0.000373456,
    "scarcity_s": 0.2,
    "headroom": 0.8,
    "crowding": 1.5,
    "in_flight": 3,
    "score_s": 0.887,
    "draw": 0.72,
    "weight": 3.0,
    "passed_over": None,
}
_EXPLAINED = {
    "model": "llama",
    "profile": None,
    "explanation": {
        "objective": "reading",
        "mode": "auto",
        "hold": False,
        "prompt_tokens": 700,
        "answer_tokens": 152.2,
        "reading_tok_s": 30,
        "budget": 0.1,
        "budget_tokens": 11.0,
        "value_usd_per_s": 0.000123456789,
        "cost_alone_usd": 0.000456789,
        "cost_expected_usd": 0.000912345,
        "notes": ["cold start"],
        "launches": [
            {**_LAUNCH, "deployment": LONG, "delay_s": 0.0},
            {**_LAUNCH, "deployment": "groq/llama-3.3-70b-versatile", "delay_s": 2.489},
        ],
        "deployments": [
            {**_PROSPECT, "deployment": LONG},
            {**_PROSPECT, "deployment": "groq/llama-3.3-70b-versatile"},
        ],
        "rest": ["cerebras/llama-3.3-70b"],
    },
}
_FACT = {
    "id": "0123456789abcdef",
    "deployment": LONG,
    "refuses": "reasoning_effort: sent without",
    "provider": "together",
    "model": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "for_all": False,
    "why": "400 invalid_request_error",
    "clients": ["ann"],
    "met_at": "2026-11-29T12:00:00Z",
    "until": "2026-11-30T12:00:00Z",
}
CONFIG = """\
database_url: sqlite:///ledger.db
providers:
  openai: { api_key: sk-1 }
  anthropic: { api_key: ak-1 }
  groq: { api_key: gsk-1 }
models:
  llama: { deployments: [groq/x, openai/gpt-6-luna, anthropic/claude-haiku-5-5], race: { budget: 0.1 } }
  claude-sonnet-5-5: { deployments: [anthropic/claude-sonnet-5-5], fallbacks: [llama] }
clients:
  somebody: { key_sha256: "KEY", models: [llama], rpm: 60, usd_per_day: 5 }
slo:
  fast: { model: llama, objective: 0.9, ttft_ms: 500 }
  up: { objective: 0.999 }
""".replace("KEY", "a" * 64)
ASKED: Sequence[Sequence[str]] = (
    ("check",),
    ("check", "--verbose"),
    ("models",),
    ("providers", "--offline"),
    ("keys", "list"),
    ("slo",),
    ("slo", "--explain"),
    ("slowdowns",),
    ("alerts",),
    ("replay",),
    ("prune",),
    ("migrate",),
    ("version",),
    ("leaderboard", "--url", "SITE"),
    ("leaderboard", "--since", "1h"),
    ("explain", "llama", "--url", "SITE"),
    ("init", "made.yaml"),
)
# They write no tables, or go on until they are stopped; what they print below a table is tried where they are.
ELSEWHERE = {"sql", "serve", "tail", "race", "bench", "costs", "facts", "schema", "import", "login", "token"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("widths")
    lay(migrated(), folder / "ledger.db")

    async def fill() -> None:
        rows = ledger(Drawing(WORLDS[0], 2).calls(200), 0.5, Random(1))
        await store(f"sqlite:///{folder}/ledger.db", folder / "spool", rows, model="llama", until=datetime.now(UTC))

    asyncio.run(fill())
    return folder / "ledger.db"


def tables(output: str) -> Iterator[list[str]]:
    """Yield the rows of each table, line by line: those below a rule, up to an empty line."""
    lines = output.splitlines()
    for place, line in enumerate(lines):
        if re.fullmatch(r"\s*─+\s*", line):
            below = lines[place + 1 :]
            end = next((number for number, each in enumerate(below) if not each.strip()), len(below))
            yield below[:end]


def cells(line: str) -> int:
    return len(re.split(r"\s{2,}", line.strip()))


def problems(output: str, width: int) -> list[str]:
    """Return what does not read well: lines that are too wide, colours, and rows of three lines."""
    found = [f"{len(line)} wide: {line}" for line in output.splitlines() if len(line) > width]
    found += ["a colour"] if "\x1b" in output else []
    found += ["something is cut"] if re.search(r"\w…", output) else []
    for rows in tables(output):
        most = max((cells(row) for row in rows), default=0)
        rests = [cells(row) <= most // 2 for row in rows]
        found += [
            f"three lines: {rows[place - 1 : place + 2]}"
            for place in range(1, len(rows) - 1)
            if rests[place] and rests[place + 1] and not rests[place - 1]
        ]
    return found


def test_each_command_is_tried_here_or_said_to_be_elsewhere() -> None:
    assert {words[0] for words in ASKED} | ELSEWHERE == set(COMMANDS)


@pytest.mark.parametrize("width", [80, 130])
@pytest.mark.parametrize("words", ASKED, ids=lambda words: " ".join(words)[:40])
def test_what_a_command_prints_fits_its_terminal(
    holeshot: Holeshot, site: Site, filled: Path, words: Sequence[str], width: int
) -> None:
    Path("config").mkdir()
    Path("config/gateway.yaml").write_text(CONFIG, encoding="utf-8")
    lay(filled, Path("ledger.db"))
    store_slowdown(LONG, ended=True)
    site.answers["/leaderboard"] = {"models": [FULL]}
    query = "explain=1&model=llama&prompt_tokens=700&stream=true"
    site.answers[f"/leaderboard?{query}"] = {"models": [_EXPLAINED]}
    arguments = [site.url if each == "SITE" else each for each in words]
    keys = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "ak-1", "GROQ_API_KEY": "gsk-1"}

    result = holeshot(*arguments, COLUMNS=str(width), **keys)

    assert result.exit_code == 0, result.output
    assert result.output.strip()
    assert problems(result.output, width) == []


@pytest.mark.parametrize("width", [80, 130])
@pytest.mark.parametrize("verb", ["", *COMMANDS])
def test_the_help_of_each_command_fits_its_terminal(holeshot: Holeshot, verb: str, width: int) -> None:
    result = holeshot(*([verb] if verb else []), "--help", COLUMNS=str(width))

    assert result.exit_code == 0
    assert problems(result.output, width) == []


@pytest.mark.parametrize("width", [80, 130])
def test_what_refusals_have_taught_fits_a_terminal(holeshot: Holeshot, site: Site, width: int) -> None:
    site.answers["/admin/facts"] = {"data": [_FACT, _FACT | {"for_all": True, "clients": ["ann", "bob"]}]}

    result = holeshot("facts", "--url", site.url, COLUMNS=str(width))

    assert result.exit_code == 0, result.output
    assert problems(result.output, width) == []


def test_dollars_have_no_more_digits_than_count(holeshot: Holeshot, site: Site) -> None:
    site.answers["/leaderboard?explain=1&model=llama&prompt_tokens=700&stream=true"] = {"models": [_EXPLAINED]}

    said = holeshot("explain", "llama", "--url", site.url, COLUMNS="200").stdout

    assert "a second is worth $0.00012" in said
    assert "expected cost: $0.00046 with the primary alone, at most $0.00091" in said
    assert not re.search(r"\d\.\d{7,}", said)
    assert json.dumps(_EXPLAINED)  # the JSON has all of them


def test_a_row_in_three_lines_and_a_wide_line_are_found() -> None:
    table = " a      b      c\n ────────────────\n one    two    three\n        more\n        and more\n\n"
    assert problems(table, 20)[0].startswith("three lines")
    assert problems("x" * 21, 20) == [f"21 wide: {'x' * 21}"]
