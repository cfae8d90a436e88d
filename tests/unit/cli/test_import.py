"""import: the verb for who comes from another gateway."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Holeshot = Callable[..., Result]

CONFIG = """
model_list:
  - { model_name: llama, litellm_params: { model: groq/llama-3.3-70b-versatile, api_key: os.environ/GROQ_API_KEY } }
  - { model_name: llama, litellm_params: { model: cerebras/llama-3.3-70b, api_key: csk-clear, rpm: 3 } }
"""


@pytest.fixture(autouse=True)
def _there_is_a_configuration(holeshot: Holeshot) -> None:
    Path("config.yaml").write_text(CONFIG)


def test_what_is_imported_is_what_check_accepts(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", GROQ_API_KEY="g", CEREBRAS_API_KEY="c")

    assert result.exit_code == 0, result.output
    assert "wrote config/gateway.yaml: 1 model at 2 providers, 2 remarks" in result.stdout
    assert "config.yaml:4: model_list[1].litellm_params.api_key: a secret in clear text" in result.stderr
    assert "before `holeshot serve`" not in result.stderr
    assert holeshot("check", GROQ_API_KEY="g", CEREBRAS_API_KEY="c").exit_code == 0


def test_what_is_still_missing_is_said(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", GROQ_API_KEY="g")

    assert result.exit_code == 0
    assert "providers.cerebras.api_key: CEREBRAS_API_KEY is not set" in result.stderr


def test_nothing_is_overwritten_unless_forced(holeshot: Holeshot) -> None:
    Path("mine.yaml").write_text("port: 1\n")

    refused = holeshot("import", "litellm", "config.yaml", "-o", "mine.yaml")

    assert refused.exit_code == 1
    assert "mine.yaml already exists; --force overwrites it" in refused.stderr
    assert Path("mine.yaml").read_text() == "port: 1\n"
    assert holeshot("import", "litellm", "config.yaml", "-o", "mine.yaml", "--force").exit_code == 0
    assert "llama" in Path("mine.yaml").read_text()


def test_a_dash_is_standard_output(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", "-o", "-")

    assert result.exit_code == 0
    assert result.stdout.startswith("# Holeshot's configuration, made from config.yaml")
    assert "csk-clear" not in result.output
    assert not Path("config").exists()


def test_machines_are_told_everything_in_one_object(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", "--json", GROQ_API_KEY="g")
    told = json.loads(result.stdout)

    assert (told["config"], told["text"]) == ("config/gateway.yaml", None)
    assert (told["providers"], told["models"]) == (["groq", "cerebras"], ["llama"])
    assert told["variables"] == ["GROQ_API_KEY", "CEREBRAS_API_KEY"]
    assert {(note["file"], note["line"]) for note in told["notes"]} == {("config.yaml", 4)}
    assert [problem["line"] for problem in told["problems"]] == [9]


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), ("model_list: [", "invalid YAML")])
def test_a_file_that_cannot_be_used_is_said_with_1(holeshot: Holeshot, content: str | None, words: str) -> None:
    if content is not None:
        Path("other.yaml").write_text(content)

    result = holeshot("import", "litellm", "other.yaml")

    assert result.exit_code == 1
    assert words in result.stderr
    assert not Path("config").exists()


def test_the_verb_has_an_example(holeshot: Holeshot) -> None:
    assert "litellm" in holeshot("import", "--help").output
    assert "Example:" in holeshot("import", "litellm", "--help").output
