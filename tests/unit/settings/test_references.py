"""What a string of the configuration may refer to."""

from pathlib import Path

import pytest

from gateway.settings.loader import resolve

NOWHERE = Path("nowhere")


def test_a_variable_may_stand_inside_a_text() -> None:
    resolved, complaints = resolve({"url": "http://${HOST}:${PORT:-80}/"}, {"HOST": "box"}, NOWHERE)

    assert resolved == {"url": "http://box:80/"}
    assert complaints == []


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
