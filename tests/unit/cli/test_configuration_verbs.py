"""init, check, serve and keys: the verbs a new user meets first."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
import yaml
from typer.testing import Result

from gateway.cli.configuration import root_of
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
        "gpt-6-luna cannot race: it has one deployment; if it fails or is late, its fallback answers (small)",
    ]
    together = "gpt-6-luna, gpt-oss-120b, claude-haiku-5-5, claude-haiku-* each cannot race: it has one deployment; "

    made = holeshot("init", **keys)
    checked = holeshot("check", **keys)
    races = json.loads(holeshot("check", "--json", **keys).output)["races"]

    assert [line for line in made.output.splitlines() if line in said] == said
    assert [line for line in checked.output.splitlines() if line in said] == said[:2]
    assert f"{together}if it fails or is late, its fallback answers (small)" in checked.output.splitlines()
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


@pytest.mark.parametrize("verb", [(), ("keys",), ("alerts",), ("import",)])
def test_what_each_verb_does_is_said_in_a_whole_line_of_eighty_columns(
    holeshot: Holeshot, verb: tuple[str, ...]
) -> None:
    shown = holeshot(*verb, "--help", COLUMNS="80").output

    lines = shown.partition("Show this message and exit.")[2].splitlines()
    assert any(lines)
    assert not [line for line in lines if line.endswith("...")]
    assert max(map(len, shown.splitlines())) <= 80


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
