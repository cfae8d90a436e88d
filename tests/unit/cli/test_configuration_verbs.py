"""init, check, serve and keys: the verbs a new user meets first."""

import hashlib
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
import trustme
import yaml
from typer.testing import Result

from gateway.cli.configuration import root_of
from gateway.cli.terminal import UNKNOWN
from gateway.settings import ClientRole, json_schema, load

Holeshot = Callable[..., Result]


def test_help_shows_the_first_steps_and_every_verb(holeshot: Holeshot) -> None:
    output = holeshot("--help").output

    for words in (
        "holeshot init",
        "holeshot check --live",
        "holeshot serve",
        "migrate",
        "leaderboard",
        "keys",
        "version",
    ):
        assert words in output


@pytest.mark.parametrize(
    "verb", ["serve", "check", "init", "providers", "models", "migrate", "sql", "leaderboard", "explain", "schema"]
)
def test_every_verb_has_an_example(holeshot: Holeshot, verb: str) -> None:
    result = holeshot(verb, "--help")

    assert result.exit_code == 0
    assert "Example:" in result.output


def test_init_writes_a_configuration_that_check_accepts(holeshot: Holeshot) -> None:
    assert holeshot("init", GROQ_API_KEY="gsk-1", CEREBRAS_API_KEY="csk-1").exit_code == 0

    checked = holeshot("check", GROQ_API_KEY="gsk-1", CEREBRAS_API_KEY="csk-1")

    assert checked.exit_code == 0, checked.output
    assert "config/gateway.yaml: ok" in checked.output
    assert "gsk-1" not in checked.output + Path("config/gateway.yaml").read_text()


def test_init_and_check_say_of_each_model_whether_it_can_race_and_why_not(holeshot: Holeshot) -> None:
    keys = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "ak-1", "GROQ_API_KEY": "gsk-1"}
    said = [
        "small can race: 3 deployments at openai, groq, anthropic; extra attempts per call: 0.1",
        "large can race: 2 deployments at openai, anthropic; extra attempts per call: 0.1",
        "gpt-6-luna cannot race: it has one deployment; where it fails or is late its fallback answers (small)",
    ]
    together = "gpt-6-luna, gpt-oss-120b, claude-haiku-5-5, claude-haiku-* each cannot race: it has one deployment; "

    made = holeshot("init", **keys)
    checked = holeshot("check", **keys)
    races = json.loads(holeshot("check", "--json", **keys).output)["races"]

    assert [line for line in made.output.splitlines() if line in said] == said
    assert [line for line in checked.output.splitlines() if line in said] == said[:2]
    assert f"{together}where it fails or is late its fallback answers (small)" in checked.output.splitlines()
    assert [line for line in checked.output.splitlines() if line.startswith(("note", "warning"))] == []
    assert races["small"] == {"races": True, "why": said[0].partition(": ")[2]}
    assert {name for name, can in races.items() if can["races"]} == {"small", "large"}


def test_init_without_a_key_writes_nothing_and_says_what_to_run(holeshot: Holeshot) -> None:
    told = holeshot("init")

    assert told.exit_code == 1
    assert not Path("config").exists()
    [command] = [line.strip() for line in told.stderr.splitlines() if line.startswith("  ")]
    assert command.startswith("GROQ_API_KEY=... CEREBRAS_API_KEY=... ")
    assert command.endswith("holeshot init --live")


def test_schema_prints_the_schema_of_the_configuration(holeshot: Holeshot) -> None:
    assert json.loads(holeshot("schema").output) == json_schema()


def test_init_names_the_schema_beside_what_it_writes(holeshot: Holeshot) -> None:
    holeshot("init", GROQ_API_KEY="gsk-1")
    holeshot("init", "elsewhere/mine.yaml", GROQ_API_KEY="gsk-1")

    for path in (Path("config/gateway.yaml"), Path("elsewhere/mine.yaml")):
        comment, _, name = path.read_text().partition("\n")[0].partition("$schema=")
        assert comment == "# yaml-language-server: "
        assert json.loads((path.parent / name).read_text()) == json_schema()


def test_init_leaves_another_schema_alone_unless_forced(holeshot: Holeshot) -> None:
    Path("gateway.schema.json").write_text("{}")

    kept = holeshot("init", "mine.yaml", GROQ_API_KEY="gsk-1")

    assert "note: gateway.schema.json already exists and was not changed" in kept.output
    assert Path("gateway.schema.json").read_text() == "{}"
    assert "note" not in holeshot("init", "mine.yaml", "--force", GROQ_API_KEY="gsk-1").output
    assert json.loads(Path("gateway.schema.json").read_text()) == json_schema()
    assert "note" not in holeshot("init", "another.yaml", GROQ_API_KEY="gsk-1").output  # it is this version's


def test_init_leaves_alone_what_it_cannot_read_in_the_place_of_the_schema(holeshot: Holeshot) -> None:
    Path("config/gateway.schema.json").mkdir(parents=True)
    made = holeshot("init", GROQ_API_KEY="gsk-1")
    assert made.exit_code == 0
    assert "gateway.schema.json already exists and was not changed" in made.output


def test_init_writes_the_example_of_every_setting(holeshot: Holeshot) -> None:
    written = holeshot("init", "--example")

    assert written.output.startswith("wrote config/gateway.example.yaml\n")
    text = Path("config/gateway.example.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=gateway.schema.json\n# Every setting of Holeshot")
    assert holeshot("init", "--example").exit_code == 1
    assert holeshot("init", "--example", "--live").exit_code == 2


def test_init_overwrites_nothing_unless_forced(holeshot: Holeshot) -> None:
    Path("mine.yaml").write_text("port: 1\n")

    refused = holeshot("init", "mine.yaml")

    assert refused.exit_code == 1
    assert refused.stderr == "holeshot: mine.yaml already exists; --force overwrites it\n"
    assert Path("mine.yaml").read_text() == "port: 1\n"
    assert holeshot("init", "mine.yaml", "--force", GROQ_API_KEY="gsk-1").exit_code == 0
    assert Path("mine.yaml").read_text() != "port: 1\n"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("folder", "folder is a folder: name a file in it"),
        ("file/gateway.yaml", "the folder {here}/file cannot be made: File exists; name a file in another one"),
        ("x" * 300, f"{'x' * 300} cannot be written: File name too long"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--force",)])
def test_init_says_why_a_file_cannot_be_where_it_should_be(
    holeshot: Holeshot, path: str, told: str, options: tuple[str, ...]
) -> None:
    Path("folder").mkdir()
    Path("file").write_text("")

    result = holeshot("init", path, *options, GROQ_API_KEY="gsk-1")

    assert (result.exit_code, result.stderr) == (1, f"holeshot: {told.format(here=Path.cwd())}\n")


def test_check_prints_every_problem_and_ends_with_1(holeshot: Holeshot) -> None:
    Path("bad.yaml").write_text("prot: 1\nproviders: { groq: { api_key: ${GROQ_API_KEY} } }\n")

    result = holeshot("check", "--config", "bad.yaml")

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "holeshot: the configuration has 2 problems",
        "  bad.yaml:1: prot: unknown key; did you mean 'port'?",
        "  bad.yaml:2: providers.groq.api_key: GROQ_API_KEY is not set; set it or remove provider 'groq'",
    ]


def test_check_says_that_a_usual_key_is_not_sent_to_an_address_of_ones_own(holeshot: Holeshot) -> None:
    mine = "groq: { base_url: 'http://10.0.0.5/v1' }"
    told = "your own base_url: write api_key: ${GROQ_API_KEY} if this key is for that address"
    for providers, is_noted in ((mine, True), (mine.replace(" }", ", api_key: x }"), False), ("groq: {}", False)):
        Path("own.yaml").write_text(f"providers: {{ {providers} }}\n")
        result = holeshot("check", "--config", "own.yaml", GROQ_API_KEY="gsk-1")
        assert result.exit_code == 0
        assert (told in " ".join(result.output.split())) is is_noted


def test_check_tells_machines_file_and_line(holeshot: Holeshot) -> None:
    Path("bad.yaml").write_text("prot: 1\n")

    result = holeshot("check", "--json", HOLESHOT_CONFIG="bad.yaml")

    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["ok"] is False
    assert told["problems"] == [{"message": "prot: unknown key; did you mean 'port'?", "file": "bad.yaml", "line": 1}]


def test_check_shows_no_password_that_an_address_holds(holeshot: Holeshot) -> None:
    Path("gateway.yaml").write_text(
        "providers: { mine: { base_url: 'https://me:s3cret@host.test:8443/v1?api-key=h1dden' } }\n"
    )

    for options in ((), ("--json",)):
        output = holeshot("check", "--config", "gateway.yaml", *options).output
        assert "https://host.test:8443/v1" in output
        assert not [word for word in ("s3cret", "h1dden") if word in output]


def test_check_says_what_is_unknown(holeshot: Holeshot) -> None:
    text = "providers: { mine: { base_url: 'http://box/v1' } }\nmodels: { m: { deployments: [mine/x] } }\n"
    Path("ok.yaml").write_text(text)

    told = json.loads(holeshot("check", "--config", "ok.yaml", "--json").stdout)

    assert told["ok"] is True
    assert told["providers"] == [
        {"provider": "mine", "kind": "openai_compatible", "base_url": "http://box/v1", "key": "not needed"}
    ]
    assert told["deployments"][0]["input_usd"] is None
    assert "price unknown" in told["warnings"][0]
    assert "mine/x" in told["warnings"][0]
    assert told["warnings"][0].endswith("set price_per_mtok in models.m.deployments[]")


def test_check_does_not_claim_apis_of_a_server_of_which_nothing_is_said(holeshot: Holeshot) -> None:
    servers = "{ mine: { base_url: 'http://box/v1' }, said: { base_url: 'http://box/v1', apis: [chat, embeddings] } }"
    Path("ok.yaml").write_text(f"providers: {servers}\nmodels: {{ m: {{ deployments: [mine/x, said/x] }} }}\n")

    shown = holeshot("check", "--config", "ok.yaml", "--verbose").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    told = json.loads(holeshot("check", "--config", "ok.yaml", "--json").stdout)

    assert "mine/x chat; others are tried when asked" in lines
    assert "said/x chat, embeddings" in lines
    assert [each["apis_known"] for each in told["deployments"]] == [False, True]


KEYS = """providers:
  a: { base_url: "http://127.0.0.1", api_key: sk-in-the-file }
  b: { base_url: "http://127.0.0.1", api_keys: ["${GIVEN}", sk-also-in-it] }
  c: { base_url: "http://127.0.0.1", headers: { authorization: Bearer sk-and-there, x-team: some-people } }
  d: { base_url: "http://127.0.0.1", api_key: none }
  e: { base_url: "http://127.0.0.1", api_key: os.environ/GIVEN }
"""


def test_check_notes_keys_that_are_in_the_file_and_shows_none(holeshot: Holeshot) -> None:
    Path("ok.yaml").write_text(KEYS)

    result = holeshot("check", "--config", "ok.yaml", "--json", GIVEN="sk-1")

    noted = [note for note in json.loads(result.stdout)["warnings"] if "in the file" in note]
    assert [note.partition(" is in the file itself")[0] for note in noted] == [
        "ok.yaml:2: providers.a.api_key",
        "ok.yaml:3: providers.b.api_keys[1]",
        "ok.yaml:4: providers.c.headers.authorization",
    ]
    assert all(note.endswith("write ${NAME}, or file:PATH") for note in noted)
    assert "sk-" not in result.output


def test_check_takes_a_price_from_the_configuration(holeshot: Holeshot) -> None:
    deployment = "{ deployment: ollama/x, price_per_mtok: { input: 0.1, output: 0.3 } }"
    Path("ok.yaml").write_text(f"models: {{ m: {{ deployments: [{deployment}] }} }}\n")

    told = json.loads(holeshot("check", "--config", "ok.yaml", "--json").stdout)

    assert (told["deployments"][0]["input_usd"], told["deployments"][0]["output_usd"]) == (0.1, 0.3)
    assert told["warnings"] == []


@pytest.mark.parametrize(
    ("usd", "after", "is_noted"), [(4.1, "auto", True), (3.9, "auto", False), (9, "2", False), (9, "failure", False)]
)
def test_check_notes_a_fallback_that_is_so_dear_that_it_waits(
    holeshot: Holeshot, usd: float, after: str, is_noted: bool
) -> None:
    cheap, dear = "{ input: 0.1, output: 0.3 }", f"{{ input: {usd / 2}, output: {usd / 2} }}"
    Path("ok.yaml").write_text(f"""models:
  m:
    deployments: [{{ deployment: ollama/x, price_per_mtok: {cheap} }}]
    fallbacks: [{{ model: n, fallback_after: {after} }}]
  n: {{ deployments: [{{ deployment: ollama/y, price_per_mtok: {dear} }}] }}
""")

    warnings = json.loads(holeshot("check", "--config", "ok.yaml", "--json").stdout)["warnings"]

    assert [each.startswith("model 'm': its fallback 'n' costs over 10 times as much") for each in warnings] == (
        [True] if is_noted else []
    )


def test_check_tells_prices_apart_and_what_a_deployment_can_do(holeshot: Holeshot) -> None:
    price = "{ input: 1, output: 2, cached_input: 0.1, cache_write: 1.25, reasoning: 3 }"
    own = (
        f"{{ deployment: ollama/x, price_per_mtok: {price}, capabilities: {{ vision: false, context_tokens: 8192 }} }}"
    )
    listed = "{ deployment: openai/gpt-4o, capabilities: { vision: false } }"
    Path("ok.yaml").write_text(f"models: {{ m: {{ deployments: [{own}, {listed}] }} }}\n")

    told = json.loads(holeshot("check", "--config", "ok.yaml", "--json", OPENAI_API_KEY="sk-1").stdout)
    shown = holeshot("check", "--config", "ok.yaml", "--verbose", OPENAI_API_KEY="sk-1").stdout

    ours, theirs = told["deployments"]
    assert (ours["cached_input_usd"], ours["cache_write_usd"], ours["reasoning_usd"]) == (0.1, 1.25, 3)
    known = {name: value for name, value in ours["capabilities"].items() if value is not None}
    assert known == {"vision": False, "context_tokens": 8192}
    assert theirs["cached_input_usd"] < theirs["input_usd"]
    assert (theirs["capabilities"]["tools"], theirs["capabilities"]["vision"]) == (True, False)
    (row,) = [line.split() for line in shown.splitlines() if "8,192" in line]
    assert row == ["ollama/x", "8,192", *[UNKNOWN] * 3, "no", UNKNOWN, UNKNOWN]  # of sound nothing is known at all


def test_check_shows_what_is_tiered_and_names_unit_by_unit_what_has_no_price(holeshot: Holeshot) -> None:
    names = ("openai/gpt-5.4", "openai/gpt-image-1", "openai/whisper-1", "openai/gpt-audio")
    Path("ok.yaml").write_text(f"models: {{ m: {{ deployments: [{', '.join(names)}] }} }}\n")

    told = json.loads(holeshot("check", "--config", "ok.yaml", "--json", OPENAI_API_KEY="sk-1").stdout)
    shown = holeshot("check", "--config", "ok.yaml", "--verbose", OPENAI_API_KEY="sk-1").stdout

    text, picture, sound, voice = told["deployments"]
    tiers = {(card["tier"], card["above_tokens"]): card for card in text["tiers"]}
    assert tiers["priority", 0]["input_usd"] == 2 * text["input_usd"] == tiers["standard", 272_000]["input_usd"]
    assert tiers["priority", 272_000]["input_usd"] is None
    assert (picture["output_usd"], picture["units"]["image_output"]) == (40, 40)
    assert (sound["input_usd"], sound["output_usd"], sound["unpriced"]) == (None, None, ["input", "output"])
    assert (voice["units"]["audio_input"], voice["units"]["audio_output"], voice["unpriced"]) == (32, 64, [])
    assert any(note.startswith("openai/whisper-1: no price is known of input, output") for note in told["warnings"])
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "openai/gpt-5.4 standard over 272,000 tokens 5 22.5 0.5" in lines
    assert "openai/gpt-audio audio_output 64 million tokens" in lines


@pytest.mark.parametrize(
    ("unpriced", "told"),
    [
        ("refuse", "and it is refused to app (unpriced: refuse)"),
        ("count_known", "(unpriced: refuse at a client refuses it)"),
    ],
)
def test_check_says_what_limits_in_dollars_do_about_units_without_a_price(
    holeshot: Holeshot, unpriced: str, told: str
) -> None:
    Path("ok.yaml").write_text(
        "providers: { openai: {}, mine: { base_url: 'http://box/v1' } }\n"
        "models: { new: { deployments: [openai/newer-than-the-table] }, own: { deployments: [mine/x] } }\n"
        f"clients: {{ app: {{ key_sha256: '{'0' * 64}', usd_per_day: 5, unpriced: {unpriced} }} }}\n"
    )
    notes = json.loads(holeshot("check", "--config", "ok.yaml", "--json", OPENAI_API_KEY="sk-1").stdout)["warnings"]
    [new] = [note for note in notes if "openai/newer-than-the-table" in note]
    [own] = [note for note in notes if "mine/x" in note and "price" in note]
    assert "limits in dollars count the dearest known price of the vendor" in new
    assert "of input, output their vendor has none either" in own
    assert told in own


def test_check_says_as_what_limits_count_a_model_that_is_newer_than_the_table(holeshot: Holeshot) -> None:
    Path("ok.yaml").write_text(
        "models: { new: { deployments: [openai/gpt-6.99-astra] } }\n"
        f"clients: {{ app: {{ key_sha256: '{'0' * 64}', usd_per_day: 20 }} }}\n"
    )
    notes = json.loads(holeshot("check", "--config", "ok.yaml", "--json", OPENAI_API_KEY="sk-1").stdout)["warnings"]
    [said] = [note for note in notes if "openai/gpt-6.99-astra" in note]
    assert "limits in dollars count the dearest known price of its gpt astra models ($10 in, $50 out per Mtok)" in said


RULES = """
providers: { ollama: , mine: { base_url: "http://box/v1", apis: [chat] } }
models:
  big:
    deployments:
      - { deployment: ollama/x, weight: 3, zdr: true, region: eu, quantization: fp8 }
      - { deployment: mine/x, canary: 0.05, drop_params: true }
      - { deployment: mine/y, enabled: false }
    fallbacks: [small, { model: other, causes: [context] }]
  small: { deployments: [mine/y] }
  other: { deployments: [mine/z] }
clients:
  team: { key_sha256: AAAA, require: { zdr: true, regions: [eu] } }
  free: { key_sha256: BBBB }
""".replace("AAAA", "a" * 64).replace("BBBB", "b" * 64)


def test_check_shows_how_deployments_are_asked_and_who_stands_in(holeshot: Holeshot) -> None:
    Path("ok.yaml").write_text(RULES)

    shown = holeshot("check", "--config", "ok.yaml", "--verbose").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]

    assert "big auto auto 1 small, other (context)" in lines
    assert "small auto auto 1 none" in lines
    assert "big ollama/x chat, completions, responses, messages, embeddings weight 3, zdr, region eu, fp8" in lines
    assert "big mine/x chat canary 0.05, drop_params" in lines
    assert "big mine/y chat disabled" in lines
    assert "small mine/y chat" in lines
    assert "team yes eu any" in lines
    assert not [line for line in lines if line.startswith("free")]


def test_check_is_one_table_of_models_unless_something_is_wrong(holeshot: Holeshot) -> None:
    keys = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "ak-1", "GROQ_API_KEY": "gsk-1"}
    holeshot("init", **keys)

    shown = holeshot("check", COLUMNS="80", **keys).stdout
    lacking = holeshot("check", COLUMNS="80", **keys | {"GROQ_API_KEY": ""}).output
    verbose = holeshot("check", "-v", **keys).stdout

    assert shown.count("\n ─") == 1
    assert len(shown.splitlines()) < 35
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "small yes openai/gpt-6-luna 0.1 0.5 922,000" in lines
    assert "anthropic/claude-haiku-5-5 0.1 0.5 1,000,000" in lines  # of the same model
    assert "GROQ_API_KEY" in lacking
    assert verbose.count("\n ─") > 5


def test_check_tells_machines_how_deployments_are_asked(holeshot: Holeshot) -> None:
    Path("ok.yaml").write_text(RULES)

    told = json.loads(holeshot("check", "--config", "ok.yaml", "--json").stdout)

    first, second, third, *_ = told["deployments"]
    assert (first["weight"], first["zdr"], first["region"], first["quantization"]) == (3, True, "eu", "fp8")
    assert (second["apis"], second["canary"], second["drop_params"]) == (["chat"], 0.05, True)
    assert (first["enabled"], third["enabled"]) == (True, False)
    assert told["fallbacks"][1] == {"model": "big", "fallback": "other", "causes": ["context"]}
    assert told["prices"]["name"] == "litellm"
    assert date.fromisoformat(told["prices"]["date"]) >= date(2026, 11, 21)
    assert told["policies"] == [{"client": "team", "zdr": True, "regions": ["eu"], "quantizations": None}]


PROXIED = "models: {m: {deployments: [groq/m]}}\nproviders: {groq: {api_key: gsk-0123456789}}\n"


@pytest.mark.parametrize("proxy", ['"http://proxy:3128"', "socks5://proxy:1080", "http://proxy:99999"])
def test_check_refuses_a_proxy_that_serve_refuses(holeshot: Holeshot, proxy: str) -> None:
    Path("gateway.yaml").write_text(PROXIED)
    refused = holeshot("check", "--config", "gateway.yaml", HTTPS_PROXY=proxy)
    assert refused.exit_code == 1
    assert "HTTPS_PROXY" in refused.output
    assert holeshot("check", "--config", "gateway.yaml", HTTPS_PROXY=proxy, NO_PROXY="*").exit_code == 0


def test_check_notes_that_one_proxy_for_all_is_not_used(holeshot: Holeshot) -> None:
    Path("gateway.yaml").write_text(PROXIED)
    unset = {"HTTPS_PROXY": "", "https_proxy": ""}
    assert (
        "ALL_PROXY is not used" in holeshot("check", "--config", "gateway.yaml", ALL_PROXY="http://p", **unset).output
    )
    usual = holeshot("check", "--config", "gateway.yaml", ALL_PROXY="http://p:1", HTTPS_PROXY="http://p:1")
    assert "ALL_PROXY" not in usual.output


def test_check_without_keys_says_what_serve_will_do(holeshot: Holeshot) -> None:
    result = holeshot("check")

    assert result.exit_code == 0
    assert "simulated" in result.output


def test_serve_refuses_a_broken_configuration_with_2_and_every_problem(holeshot: Holeshot) -> None:
    result = holeshot("serve", "--host", "0.0.0.0", "--workers", "2")

    assert result.exit_code == 2
    assert "--host: '0.0.0.0' lets others spend your keys" in result.stderr
    assert "--workers: several workers need a leaderboard" in result.stderr


def test_a_key_is_long_random_and_shown_with_the_entry_that_admits_it(holeshot: Holeshot) -> None:
    output = holeshot("keys", "new", "my-team", "--admin").output
    key = next(line.strip() for line in output.splitlines() if line.strip().startswith("hs-"))
    entry = output[output.index("clients:") :]

    Path("gateway.yaml").write_text(entry)
    client = load(Path("gateway.yaml"), {}).clients["my-team"]

    assert len(key) >= len("hs-") + 43
    assert client.key_sha256 == (hashlib.sha256(key.encode()).hexdigest(),)
    assert client.role is ClientRole.ADMIN
    assert yaml.safe_load(entry)["clients"]["my-team"].get("adhoc") is None


@pytest.mark.parametrize("entry", ['{ key_sha256: "..." }', '{ key_sha256: "${NOT_YET}" }', "{}"])
def test_a_key_is_made_where_the_file_waits_for_its_hash(holeshot: Holeshot, entry: str) -> None:
    Path("config").mkdir()
    Path("config/gateway.yaml").write_text(f"clients:\n  my-team: {entry}\n")

    made = holeshot("keys", "new", "my-team")

    assert made.exit_code == 0, made.output
    assert "hs-" in made.output


def test_no_two_keys_are_alike(holeshot: Holeshot) -> None:
    first, second = (json.loads(holeshot("keys", "new", "a", "--json").output) for _ in range(2))

    assert first["key"] != second["key"]
    assert first["key_sha256"] == hashlib.sha256(first["key"].encode()).hexdigest()


@pytest.mark.parametrize("rights", [[], ["--admin"], ["--adhoc"], ["--admin", "--adhoc"]])
def test_what_a_key_may_do_is_in_the_object_too(holeshot: Holeshot, rights: list[str]) -> None:
    told = json.loads(holeshot("keys", "new", "a", "--json", *rights).output)

    assert {f"--{name}" for name in ("admin", "adhoc") if told[name]} == set(rights)


def test_no_dashboard_is_promised_before_there_is_one(holeshot: Holeshot) -> None:
    assert "dashboard" not in holeshot("keys", "new", "--help").output


def test_a_clients_name_must_be_a_word(holeshot: Holeshot) -> None:
    assert holeshot("keys", "new", "a b").exit_code == 2


def test_version_says_the_version(holeshot: Holeshot) -> None:
    assert holeshot("version").output.startswith("holeshot 0.")


def test_check_notes_what_may_not_be_meant_and_still_succeeds(holeshot: Holeshot) -> None:
    race = {"mode": "race", "width": 2, "budget": 0.1, "usd_per_day": 5}
    config = {
        "providers": {"mine": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": {"deployments": ["mine/x", "mine/y"], "race": race, "takeover": True}},
    }
    Path("doubtful.yaml").write_text(yaml.safe_dump(config))

    checked = holeshot("check", "-c", "doubtful.yaml")
    as_json = json.loads(holeshot("check", "-c", "doubtful.yaml", "--json").stdout)

    assert checked.exit_code == 0
    assert "note: model 'm': usd_per_day has no effect, because no price is known" in checked.stdout
    assert "note: model 'm': races of 2 start 1 extra attempts a call, the budget pays for 0.1" in checked.stdout
    assert "none is known to continue those of chat: set `continues:` at deployments that do" in checked.stdout
    assert as_json["ok"]
    assert any("usd_per_day" in note for note in as_json["warnings"])


@pytest.mark.parametrize(
    ("name", "store", "noted"),
    [("google", None, True), ("google", False, False), ("google", True, False), ("gemini", None, False)],
)
def test_check_notes_which_requests_google_may_keep(
    holeshot: Holeshot, name: str, store: bool | None, noted: bool
) -> None:
    said = {} if store is None else {"store": store}
    config = {
        "providers": {name: {"api_key": "k", **said}},
        "models": {"m": {"deployments": [f"{name}/gemini-3.8-flash"]}},
    }
    Path("own.yaml").write_text(yaml.safe_dump(config))

    assert (f"providers.{name}.store: false" in holeshot("check", "-c", "own.yaml").stdout) is noted


def test_check_notes_an_address_without_a_path_and_ends_with_its_verdict(holeshot: Holeshot) -> None:
    paths = (("mine", "", True), ("mine", "/", True), ("mine", "/v1", False), ("mine", "/api/openai", False))
    for name, path, noted in (*paths, ("azure", "", False)):  # of Azure the catalog knows the path
        config = {
            "providers": {name: {"base_url": f"http://127.0.0.1:1{path}", "api_key": "k"}},
            "models": {"m": {"deployments": [f"{name}/x"]}},
        }
        Path("own.yaml").write_text(yaml.safe_dump(config))

        said = holeshot("check", "-c", "own.yaml").stdout

        assert (f"note: providers.{name}.base_url has no path" in said) is noted, path
        assert said.rstrip().endswith("own.yaml: ok")


@pytest.mark.parametrize(
    ("second", "noted"),
    [("b/bge-m3", True), ("b/intfloat/e5-large", False), ({"deployment": "b/ours", "same_as": "e5-large"}, False)],
)
def test_check_notes_vectors_that_cannot_be_mixed(holeshot: Holeshot, second: object, *, noted: bool) -> None:
    providers = {name: {"base_url": f"http://127.0.0.1:1/{name}"} for name in ("a", "b")}
    config = {"providers": providers, "models": {"m": {"deployments": ["a/e5-large", second]}}}
    Path("own.yaml").write_text(yaml.safe_dump(config))

    said = holeshot("check", "-c", "own.yaml").stdout

    assert ("vectors of b/bge-m3 cannot be mixed with those of a/e5-large" in said) is noted


def test_serve_refuses_an_impossible_race_with_the_reason(holeshot: Holeshot) -> None:
    config = {
        "providers": {"mine": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": {"deployments": ["mine/x"], "race": {"profile": "batch"}}},
    }
    Path("gateway.yaml").write_text(yaml.safe_dump(config))

    refused = holeshot("serve", "-c", "gateway.yaml")

    assert refused.exit_code == 2
    assert "models.m.race.objective: cost needs a known price: set price_per_mtok" in refused.stderr


def test_check_reads_certificate_and_key(holeshot: Holeshot) -> None:
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path("cert.pem")
    Path("gateway.yaml").write_text("tls: { certificate: cert.pem, key: key.pem }\n")

    missing = holeshot("check", "--config", "gateway.yaml", GROQ_API_KEY="gsk-1")
    assert missing.exit_code == 1
    assert "tls.key: there is no file key.pem" in missing.stderr
    assert json.loads(holeshot("check", "--config", "gateway.yaml", "--json").stdout)["ok"] is False

    issued.private_key_pem.write_to_path("key.pem")
    assert holeshot("check", "--config", "gateway.yaml", GROQ_API_KEY="gsk-1").exit_code == 0


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite://", "name a file"),
        ("postgresql://db/holeshot?connect_timeout=3", "remove the parameter 'connect_timeout'"),
    ],
)
def test_check_refuses_a_database_url_with_which_no_gateway_starts(holeshot: Holeshot, url: str, problem: str) -> None:
    refused = holeshot("check", GROQ_API_KEY="gsk-1", HOLESHOT_DATABASE_URL=url)
    assert refused.exit_code == 1
    assert problem in refused.stderr


def test_check_takes_a_password_with_an_at_sign_and_shows_none_of_it(holeshot: Holeshot) -> None:
    url = "postgresql://ann:se@cret@db/holeshot"
    taken = holeshot("check", GROQ_API_KEY="gsk-1", HOLESHOT_DATABASE_URL=url)
    assert taken.exit_code == 0
    assert "cret" not in taken.output


@pytest.mark.parametrize("verb", [(), ("keys",), ("alerts",), ("import",)])
def test_what_each_verb_does_is_said_in_a_whole_line_of_eighty_columns(
    holeshot: Holeshot, verb: tuple[str, ...]
) -> None:
    shown = holeshot(*verb, "--help", COLUMNS="80").output

    lines = shown.partition("Show this message and exit.")[2].splitlines()
    assert any(lines)
    assert not [line for line in lines if line.endswith("...")]
    assert max(map(len, shown.splitlines())) <= 80


def test_check_names_what_no_proxy_has_that_is_not_understood(holeshot: Holeshot) -> None:
    given = {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "10.0.0.0/8 10.1.*,http://user:secret@a.example"}

    output = holeshot("check", "--json", GROQ_API_KEY="gsk-1", **given).output

    notes = [each for each in json.loads(output)["warnings"] if each.startswith("NO_PROXY")]
    assert [each.partition(" is not")[0] for each in notes] == ["NO_PROXY: '10.1.*'", "NO_PROXY: '***'"]
    assert "secret" not in output


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://h:4000", "http://h:4000"),
        ("http://h:4000/", "http://h:4000"),
        ("http://h:4000/#/live", "http://h:4000"),
        ("http://h:4000?window=1h", "http://h:4000"),
        ("http://h:4000/api/alerts", "http://h:4000"),
        ("http://h:4000/leaderboard?explain=1&model=a@b", "http://h:4000"),
        ("http://h:4000/v1/chat/completions", "http://h:4000"),
        ("http://h:4000/v1/leaderboard", "http://h:4000"),
        ("http://h:4000/v1beta/models/gemini:generateContent", "http://h:4000"),
        ("http://h:4000/health/ready", "http://h:4000"),
        ("http://h:4000/metrics/", "http://h:4000"),
        ("https://h/holeshot/v1", "https://h/holeshot"),
        ("https://h/holeshot/#/alerts", "https://h/holeshot"),
        ("https://h/api/v1/", "https://h/api"),  # the prefix of a proxy
        ("https://h/api", "https://h/api"),
        ("https://h/v1-proxy", "https://h/v1-proxy"),
        ("http://api/v2/rerank", "http://api"),  # the name of a host is no path
        ("http://u:pa#ss@h/v1", "http://u:pa#ss@h/v1"),  # refused later: its beginning names another host
        ("http://[", "http://["),
        ("h:4000/v1", "h:4000/v1"),
    ],
)
def test_a_gateway_is_found_by_any_of_its_addresses(url: str, root: str) -> None:
    assert root_of(url) == root
