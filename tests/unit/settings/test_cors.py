"""Origins of web pages: written as browsers write them, and only where clients have keys."""

from pathlib import Path

import pytest

from gateway.settings import ConfigurationError, load

CLIENTS = "clients: { page: { key_sha256: '" + "0" * 64 + "' } }\n"


def problem(folder: Path, text: str) -> str:
    (folder / "gateway.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(folder / "gateway.yaml", {})
    [found] = caught.value.problems
    return found.message


@pytest.mark.parametrize(
    "origin",
    [
        "https://chat.example.com",
        "http://localhost:5173",
        "http://127.0.0.1:3000",
        "http://[::1]:3000",
        "https://xn--bcher-kva.example",
        "chrome-extension://abcdefghijklmnop",
        "app://obsidian.md",
        "https://under_score.example",
    ],
)
def test_what_browsers_send_is_an_origin(tmp_path: Path, origin: str) -> None:
    (tmp_path / "gateway.yaml").write_text(f"{CLIENTS}cors: ['{origin}']\n")
    assert load(tmp_path / "gateway.yaml", {}).cors == (origin,)


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("https://chat.example.com/", "https://chat.example.com"),
        ("https://chat.example.com/app?x=1", "https://chat.example.com"),
        ("https://Chat.Example.com", "https://chat.example.com"),
        ("HTTPS://chat.example.com", "https://chat.example.com"),
        ("https://chat.example.com:443", "https://chat.example.com"),
        ("http://chat.example.com:80", "http://chat.example.com"),
        ("https://me:secret@chat.example.com", "https://chat.example.com"),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("chat.example.com", "https://chat.example.com"),
        ("localhost:5173", "http://localhost:5173"),
    ],
)
def test_what_browsers_never_send_is_an_error_with_the_right_spelling(tmp_path: Path, written: str, right: str) -> None:
    said = problem(tmp_path, f"{CLIENTS}cors: ['https://a.example', '{written}']\n")
    assert said == f"cors[1]: is not an origin as browsers write it: write {right}"
    assert "secret" not in said


@pytest.mark.parametrize("written", ["https://", "https://a b.example", "http://a.example:99999", "mailto:me", "..."])
def test_what_means_no_origin_is_an_error_with_an_example(tmp_path: Path, written: str) -> None:
    assert "like https://chat.example.com" in problem(tmp_path, f"{CLIENTS}cors: ['{written}']\n")


@pytest.mark.parametrize("written", ["*", "https://*.example.com"])
def test_no_wildcard_is_an_origin(tmp_path: Path, written: str) -> None:
    assert "any page that is opened" in problem(tmp_path, f"{CLIENTS}cors: ['{written}']\n")


def test_local_files_have_no_origin_to_list(tmp_path: Path) -> None:
    assert "local file" in problem(tmp_path, f"{CLIENTS}cors: ['null']\n")


def test_web_pages_are_let_in_only_where_they_need_a_key(tmp_path: Path) -> None:
    said = problem(tmp_path, "cors: ['https://chat.example.com']\n")
    assert "needs clients" in said
    assert "holeshot keys new" in said


def test_no_origin_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("cors:\n")
    assert load(tmp_path / "gateway.yaml", {}).cors == ()
