"""What a string of the configuration may refer to."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from gateway.settings import ConfigurationError, References, SecretSettings, load
from gateway.settings.references import resolve

NOWHERE = Path("nowhere")


def test_a_variable_may_stand_inside_a_text() -> None:
    resolved, complaints = resolve({"url": "http://${HOST}:${PORT:-80}/"}, {"HOST": "box"}, NOWHERE)

    assert resolved == {"url": "http://box:80/"}
    assert complaints == []


PASSWORD = "a@b:c/d?e#f[g]h%40i&j=k l\\m\"n'oö%zz+"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:${PW}@box:5432/ledger?sslmode=require",
        "redis://:${PW}@box:6379/0",
        "https://me:${PW}@box/v1",
        "clickhouse+https://me:x${PW}y@box:8443/ledger",
    ],
)
def test_a_password_of_any_characters_may_stand_in_an_address(url: str) -> None:
    resolved, complaints = resolve({"url": url}, {"PW": PASSWORD}, NOWHERE)
    parts = urlsplit(resolved["url"])

    assert complaints == []
    assert unquote(parts.password or "").strip("xy") == PASSWORD
    assert (parts.hostname, "@" in parts.path, parts.fragment) == ("box", False, "")


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("postgresql://me:p@ss@box/ledger", "p@ss"),
        ("postgresql://me:p/s@s#1?x@box:5432/ledger?sslmode=require", "p/s@s#1?x"),
        ("postgresql://me:a@b/c#d@box/ledger", "a@b/c#d"),
        ("redis://:p[1]@box", "p[1]"),
        ("https://me:p/ss@box/v1", "p/ss"),
        ("https://me:p%40ss@box/v1", "p@ss"),
    ],
)
def test_a_password_that_is_written_out_is_encoded_where_it_must_be(url: str, password: str) -> None:
    for data, environ in ((url, {}), ("${URL}", {"URL": url})):
        parts = urlsplit(resolve(data, environ, NOWHERE)[0])
        assert (unquote(parts.password or ""), parts.hostname) == (password, "box")


@pytest.mark.parametrize(
    "text",
    [
        "https://api.cloudflare.com/client/v4/accounts/x/ai/v1/@cf/model",
        "sqlite:////var/me@home/ledger.db",
        "redis+sentinel://me:pw@h1,h2:26379/main",
        "${A}@${B}",
    ],
)
def test_other_texts_with_an_at_sign_stay_as_they_are(text: str) -> None:
    assert resolve(text, {"A": "a/b", "B": "c"}, NOWHERE)[0] == text.replace("${A}", "a/b").replace("${B}", "c")


def test_os_environ_stands_for_a_whole_value() -> None:
    assert resolve("os.environ/KEY", {"KEY": "value"}, NOWHERE)[0] == "value"


def test_a_default_also_serves_for_an_empty_variable() -> None:
    assert resolve("${KEY:-other}", {"KEY": ""}, NOWHERE)[0] == "other"


def test_a_default_may_be_empty() -> None:
    assert resolve("a${KEY:-}b", {}, NOWHERE) == ("ab", [])


def test_two_dollars_make_a_literal_one() -> None:
    assert resolve("$${KEY} costs $5", {}, NOWHERE) == ("${KEY} costs $5", [])


def test_what_a_variable_brings_in_is_not_looked_into_again() -> None:
    assert resolve("${KEY}", {"KEY": "${OTHER}"}, NOWHERE) == ("${OTHER}", [])


@pytest.mark.parametrize("text", ["file:{folder}/key", "file:./key"])
def test_a_file_holds_a_secret(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text("gsk-1\n")

    assert resolve([text.format(folder=tmp_path)], {}, tmp_path) == (["gsk-1"], [])


def test_a_file_that_cannot_be_read_is_named() -> None:
    _, (complaint,) = resolve({"a": ["file:/nowhere/key"]}, {}, NOWHERE)

    assert complaint.place == ("a", 0)
    assert complaint.message == "/nowhere/key cannot be read (No such file or directory)"


def test_every_reference_that_leads_nowhere_is_complained_about() -> None:
    _, complaints = resolve({"region": "${A}", "clients": {"x": "os.environ/B"}}, {"B": ""}, NOWHERE)

    assert [complaint.message for complaint in complaints] == [
        "A is not set; set it, or write a default: ${NAME:-default}",
        "B is empty; set it or remove client 'x'",
    ]


@pytest.mark.parametrize("text", ["${}", "${a b}", "${unclosed"])
def test_what_looks_like_a_reference_and_is_none_is_refused(text: str) -> None:
    _, (complaint,) = resolve(text, {}, NOWHERE)

    assert "${NAME:-default}" in complaint.message


# Commands, which a setting must allow.


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def allowed(clock: Clock | None = None, **settings: float) -> References:
    references = References(clock or Clock())
    references.begin(SecretSettings(exec=True, **({"exec_timeout_s": 60.0} | settings)))
    return references


def test_a_command_stands_for_what_it_prints_anywhere_in_a_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n", encoding="utf-8")
    resolved, complaints = resolve("Bearer ${exec:cat key}", {}, tmp_path, allowed())
    assert (resolved, complaints) == ("Bearer secret", [])


def test_no_shell_reads_a_command_unless_it_is_written_there(tmp_path: Path) -> None:
    environ = {"WHO": "me"}
    assert resolve("${exec:echo '$WHO' ; id}", environ, tmp_path, allowed())[0] == "$WHO ; id"
    assert resolve("${exec:sh -c 'echo $WHO'}", environ, tmp_path, allowed())[0] == "me"


def test_no_command_runs_unless_a_setting_allows_it(tmp_path: Path) -> None:
    for references in (None, References()):
        resolved, [complaint] = resolve("${exec:touch ran}", {}, tmp_path, references)
        assert resolved == ""
        assert "secrets: { exec: true }" in complaint.message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("sh -c 'echo secret >&2; echo secret; exit 3'", "'sh' failed (exit code 3)"),
        ("./no-such-program secret", "'no-such-program' cannot be run (No such file or directory)"),
        ("sh -c 'echo secret; exec sleep 3600'", "'sh' did not end within 0.2 s (secrets.exec_timeout_s)"),
        ("sh -c 'exec >&-; echo secret >&2; exec sleep 3600'", "'sh' did not end within 0.2 s"),
        ("yes secret", "'yes' printed more than 64 KiB"),
        ("true secret", "'true' printed nothing"),
        (r"printf '\377secret'", "'printf' printed something that is not UTF-8"),
        ("echo 'secret", "a quotation mark that does not end"),
        ("", "names no program"),
    ],
)
def test_a_command_that_fails_is_named_without_its_arguments_and_words(
    tmp_path: Path, command: str, problem: str
) -> None:
    timeout_s = 0.2 if "0.2" in problem else 60.0
    resolved, [complaint] = resolve(f"${{exec:{command}}}", {}, tmp_path, allowed(exec_timeout_s=timeout_s))
    assert resolved == ""
    assert problem in complaint.message
    assert "secret" not in complaint.message.replace("secrets", "")


def test_a_command_runs_again_only_when_its_interval_is_over(tmp_path: Path) -> None:
    clock, key = Clock(), tmp_path / "key"
    references = allowed(clock, exec_every_s=60)

    def read() -> object:
        references.begin(SecretSettings(exec=True, exec_every_s=60, exec_timeout_s=60))
        value = resolve("${exec:cat key}", {}, tmp_path, references)
        references.end()
        return value, references.is_due()

    def pass_until(now_s: float) -> bool:
        clock.now_s = now_s
        return references.is_due()

    key.write_text("one", encoding="utf-8")
    assert read() == (("one", []), False)
    key.write_text("two", encoding="utf-8")
    assert not pass_until(59.0)
    assert read() == (("one", []), False)
    assert pass_until(60.0)
    assert read() == (("two", []), False)


def test_a_command_that_fails_later_keeps_its_value_and_runs_again_soon(tmp_path: Path) -> None:
    clock, key = Clock(), tmp_path / "key"
    key.write_text("one", encoding="utf-8")
    references = allowed(clock)
    assert resolve("${exec:cat key}", {}, tmp_path, references) == ("one", [])
    key.unlink()
    clock.now_s = 300.0
    assert resolve("${exec:cat key}", {}, tmp_path, references) == ("one", [])
    [failure] = references.failures
    assert "'cat' failed (exit code 1)" in failure
    assert not references.is_due()
    clock.now_s = 330.0
    assert references.is_due()


def test_a_command_of_a_file_that_cannot_be_read_is_not_due_at_every_look(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "gateway.yaml"
    references = References(clock)
    path.write_text(
        "secrets: { exec: true, exec_timeout_s: 60 }\n"
        "providers: { alpha: { base_url: 'http://127.0.0.1:1/v1', api_key: '${exec:echo key}' } }\n",
        encoding="utf-8",
    )
    load(path, {}, references=references)
    path.write_text("providers: {", encoding="utf-8")
    clock.now_s = 300.0
    assert references.is_due()
    with pytest.raises(ConfigurationError, match="invalid YAML"):
        load(path, {}, references=references)
    assert not references.is_due()
    clock.now_s = 330.0
    assert references.is_due()


def test_what_is_not_referred_to_any_more_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("one", encoding="utf-8")
    clock = Clock()
    references = allowed(clock)
    resolve(["file:./key", "${exec:cat key}"], {}, tmp_path, references)
    references.end()
    assert list(references.files) == [tmp_path / "key"]
    references.begin(SecretSettings(exec=True))
    references.end()
    clock.now_s = 1e6
    assert not references.files
    assert not references.is_due()


def test_the_settings_allow_commands_in_the_file_and_a_reference_cannot(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    text = "providers: { alpha: { base_url: 'http://127.0.0.1:1/v1', api_key: '${exec:echo secret-of-alpha}' } }\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"gateway\.yaml:1: .*exec: true"):
        load(path, {})
    path.write_text("secrets: { exec: '${exec:echo true}' }\n" + text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="exec: true"):
        load(path, {})
    path.write_text("secrets: { exec: true, exec_timeout_s: 60 }\n" + text, encoding="utf-8")
    settings = load(path, {})
    assert [key.get_secret_value() for key in settings.providers["alpha"].keys] == ["secret-of-alpha"]
    assert load(path, {"HOLESHOT_SECRETS__EXEC_EVERY_S": "7"}).secrets.exec_every_s == 7
