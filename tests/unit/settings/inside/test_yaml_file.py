"""YAML as plain data that remembers its lines."""

from pathlib import Path

import pytest

from gateway.settings import read_document
from gateway.settings.document import Document


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.yaml"


def read(path: Path, text: str) -> Document:
    path.write_text(text, encoding="utf-8")
    return read_document(path)


def test_lines_are_those_of_keys_and_list_items(path: Path) -> None:
    document = read(path, "# head\nmodels:\n  m:\n    deployments:\n      - a/b\n      - c/d\n")

    assert document.lines["models", "m"] == 3
    assert document.lines["models", "m", "deployments", 1] == 6


def test_a_reference_needs_no_quotes_inside_braces(path: Path) -> None:
    document = read(path, "groq: { api_key: ${GROQ_API_KEY}, base_url: http://${HOST:-localhost}/v1 }\n")

    assert document.data == {"groq": {"api_key": "${GROQ_API_KEY}", "base_url": "http://${HOST:-localhost}/v1"}}


def test_anchors_and_merge_keys_work_and_own_keys_are_stronger(path: Path) -> None:
    document = read(path, "a: &a { x: 1, y: 2 }\nb: &b { <<: *a, y: 3 }\nc: { <<: [*b, *a], z: 4 }\n")

    assert document.problems == ()
    assert document.data["b"] == {"x": 1, "y": 3}
    assert document.data["c"] == {"x": 1, "y": 3, "z": 4}


def test_the_line_of_an_own_key_is_its_own_wherever_others_are_merged(path: Path) -> None:
    document = read(path, "a: &a\n  x: 1\nb:\n  x: 2\n  <<: *a\n  x: 3\n")

    assert document.data["b"] == {"x": 2}
    assert document.lines["b", "x"] == 4
    (problem,) = document.problems
    assert (problem.line, problem.message) == (6, "b.x is set twice, first in line 4")


@pytest.mark.parametrize("value", ["!!bool 1", "!!int ''", "!!float ''", "!!timestamp soon", "2030-02-30"])
def test_a_value_that_is_not_of_its_type_is_a_problem_not_a_crash(path: Path, value: str) -> None:
    (problem,) = read(path, f"port: 1\nkey: {value}\n").problems

    assert (problem.line, problem.message) == (2, "key cannot be understood; put it in quotes")


@pytest.mark.parametrize("value", ["0600", "-07", "1:30", "190:20:30", "1:30.5"])
def test_a_number_that_yaml_reads_in_another_base_is_a_problem(path: Path, value: str) -> None:
    path.write_text(f"a: [1]\nrpm: {value}\n")
    document = read_document(path)
    (problem,) = document.problems
    assert (problem.line, "base" in problem.message) == (2, True)
    assert not problem.message.count(value)


def test_numbers_and_times_in_quotes_are_as_they_are_written(path: Path) -> None:
    path.write_text("a: ['0600', \"1:30\", 0, 0.5, 1_000, 0x10, 16:30-00:30, 2026-01-01T10:00:00Z, -0, 1e3]\n")
    assert not read_document(path).problems


def test_a_value_that_contains_itself_is_a_problem_not_a_crash(path: Path) -> None:
    (problem,) = read(path, "a: &a [*a]\n").problems

    assert problem.message == "a[0] contains itself"


def test_aliases_of_aliases_that_mean_more_than_memory_holds_are_a_problem(path: Path) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    (problem,) = read(path, bomb).problems

    assert problem.message == "is far too large when expanded: does it use aliases (*name) of aliases?"


def test_a_file_nested_too_deeply_is_a_problem_not_a_crash(path: Path) -> None:
    (problem,) = read(path, "a: " + "[" * 5000 + "]" * 5000).problems

    assert problem.message == "is nested too deeply"


def test_a_tag_is_a_problem_at_its_line(path: Path) -> None:
    (problem,) = read(path, "port: 1\nkey: !secret x\n").problems

    assert (problem.line, problem.message) == (2, "key cannot be understood; put it in quotes")


def test_a_second_document_is_a_problem(path: Path) -> None:
    (problem,) = read(path, "port: 1\n---\nport: 2\n").problems

    assert "a second document" in problem.message


def test_a_byte_order_mark_is_no_part_of_the_first_key(path: Path) -> None:
    assert read(path, "\ufeffport: 1\n").data == {"port": 1}


def test_what_is_not_utf_8_is_a_problem(path: Path) -> None:
    path.write_bytes(b"port: 1\nregion: \xff\xfe\n")

    (problem,) = read_document(path).problems
    assert (problem.line, problem.message) == (2, "is not UTF-8 text (byte 16): save it as UTF-8")


def test_a_control_character_is_a_problem(path: Path) -> None:
    (problem,) = read(path, "region: a\x00b\n").problems

    assert problem.message.startswith("invalid YAML: ")


FREE = "models:\n  m:\n    defaults:\n      x: {}\n"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2024-10-21", "2024-10-21"),
        ("2024-10-21 10:00:00", "2024-10-21 10:00:00"),
        ("1e3", 1000),
        ("1e-1", 0.1),
        ("2.5E+1", 25),
        ("'1e3'", "1e3"),
        ("1_000", 1000),
        (".5", 0.5),
        ("0x1f", 31),
        ("~", None),
        ("true", True),
        ("False", False),
        ("'no'", "no"),
        ('"080"', "080"),
        ("0", 0),
        ("0.25", 0.25),
        ("n", "n"),
    ],
)
def test_what_goes_into_requests_is_what_its_writer_means(path: Path, written: str, meant: object) -> None:
    document = read(path, FREE.format(written))

    assert document.problems == ()
    (model,) = document.data["models"].values()
    assert model["defaults"]["x"] == meant
    assert type(model["defaults"]["x"]) is type(meant)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        *((word, "write true or false, or put it in quotes") for word in ("yes", "no", "on", "Off", "NO")),
        *((word, "in quotes") for word in ("080", "0o17", "-09", ".nan", "-.inf", "1e999")),
        *((word, "write it in decimal, or in quotes") for word in ("010", "12:30")),
    ],
)
@pytest.mark.parametrize("within", ["{}", "[1, {}]", "{{ y: {} }}"])
def test_what_goes_into_requests_is_refused_where_its_meaning_is_unclear(
    path: Path, written: str, words: str, within: str
) -> None:
    (problem,) = read(path, FREE.format(within.format(written))).problems

    assert (problem.line, problem.message.startswith("models.m.defaults.x")) == (4, True)
    assert problem.message.endswith(words)


@pytest.mark.parametrize(("place", "written", "meant"), [("rpm", "1e3", 1000), ("usd_per_day", "25e-2", 0.25)])
def test_a_number_with_an_exponent_is_one_where_a_number_is_expected(
    path: Path, place: str, written: str, meant: float
) -> None:
    document = read(path, f"clients: {{ a: {{ {place}: {written}, team: {written} }} }}\n")

    assert document.data["clients"]["a"] == {place: meant, "team": written}
    assert type(document.data["clients"]["a"][place]) is type(meant)


@pytest.mark.parametrize("written", ["yes", "No", "on", "OFF", "true"])
def test_a_setting_that_is_true_or_false_may_have_all_words_of_yaml(path: Path, written: str) -> None:
    document = read(path, f"clients: {{ a: {{ adhoc: {written} }} }}\n")

    assert document.problems == ()
    assert document.data["clients"]["a"]["adhoc"] is (written in {"yes", "on", "true"})
