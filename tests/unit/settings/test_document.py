"""YAML as plain data that remembers its lines."""

from pathlib import Path

import pytest

from gateway.settings.document import Document, read_document


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
    path.write_bytes(b"region: \xff\xfe\n")

    (problem,) = read_document(path).problems
    assert problem.message == "is not UTF-8 text (byte 8)"


def test_a_control_character_is_a_problem(path: Path) -> None:
    (problem,) = read(path, "region: a\x00b\n").problems

    assert problem.message.startswith("invalid YAML: ")
