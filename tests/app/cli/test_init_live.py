"""holeshot init --live: a configuration from what the providers say they sell, asked over real sockets."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import Result

from gateway.cli.init import write_configuration
from gateway.settings import Settings, load
from providers import Vendor

Holeshot = Callable[..., Result]
PATH = Path("gateway.yaml")
KEYS = {"GROQ_API_KEY": "k", "TOGETHER_API_KEY": "k", "MISTRAL_API_KEY": "k"}


@pytest.fixture
def catalog(holeshot: Holeshot, site: Any) -> Mapping[str, Vendor]:
    """Three vendors on loopback: two sell some of the same models, the third does not answer."""
    site.answers["/groq/models"] = {
        "data": [
            {"id": "llama-3.3-70b-versatile", "created": 1, "context_window": 131072},
            {"id": "openai/gpt-oss-120b", "created": 5},
            {"id": "qwen/qwen3-32b", "created": 3},
            {"id": "whisper-large-v3", "created": 9},
        ]
    }
    site.answers["/together/models"] = [
        {"id": "meta-llama/Llama-3.3-70B-Instruct-Turbo", "type": "chat"},
        {
            "id": "openai/gpt-oss-120b",
            "type": "chat",
            "context_length": 131072,
            "pricing": {"input": 0.15, "output": 0.6},
        },
        {"id": "openai/gpt-oss-120b-turbo", "type": "chat"},
        {"id": "Qwen/Qwen3-32B-FP8", "type": "chat"},
        {"id": "openai/whisper-large-v3", "type": "audio"},
    ]
    names = {"groq": "GROQ_API_KEY", "together": "TOGETHER_API_KEY", "mistral": "MISTRAL_API_KEY"}
    return {
        name: Vendor(name=name, title=name.title(), base_url=f"{site.url}/{name}", key_env=(variable,))
        for name, variable in names.items()
    }


def loaded(catalog: Mapping[str, Vendor], text: str | None = None) -> Settings:
    if text is not None:
        PATH.write_text(text)
    return load(PATH, KEYS, catalog=catalog)


def test_what_several_vendors_sell_is_raced_and_the_rest_is_a_comment(catalog: Mapping[str, Vendor]) -> None:
    write_configuration(PATH, KEYS, catalog, top=2)

    settings = loaded(catalog)
    assert list(settings.providers) == ["groq", "together", "mistral"]
    own = ["mistral-small-latest", "mistral-medium-latest"]  # of the vendor that did not list what it has
    assert list(settings.models) == ["small", "gpt-oss-120b", "qwen-3-32b", *own]  # by size, and the newest
    assert [item.deployment for item in settings.models["small"].deployments] == [
        "groq/openai/gpt-oss-120b",
        "together/openai/gpt-oss-120b",
        "mistral/mistral-small-latest",
    ]
    assert [item.deployment for item in settings.models["gpt-oss-120b"].deployments] == [
        "groq/openai/gpt-oss-120b",
        "together/openai/gpt-oss-120b",
    ]
    text = PATH.read_text()
    assert "# - together/openai/gpt-oss-120b-turbo" in text
    assert "context 131,072; $0.15 in, $0.6 out per million" in text
    assert "whisper" not in text


def test_quantization_is_set_where_it_is_told_and_pointed_out(catalog: Mapping[str, Vendor]) -> None:
    write_configuration(PATH, KEYS, catalog, top=2)

    groq, together = loaded(catalog).models["qwen-3-32b"].deployments
    assert (groq.quantization, together.quantization) == (None, "fp8")
    assert "# quantization is fp8 where known; unknown for groq" in PATH.read_text()


def test_what_is_commented_out_works_once_the_mark_is_gone(catalog: Mapping[str, Vendor]) -> None:
    write_configuration(PATH, KEYS, catalog, top=1)

    text = re.sub(r"^  # (?=[a-z0-9.-]+: \{ deployments)", "  ", PATH.read_text(), flags=re.MULTILINE)
    settings = loaded(catalog, text)
    assert {"qwen-3-32b", "llama-3.3-70b-instruct"} <= set(settings.models)
    assert settings.models["qwen-3-32b"].deployments[1].quantization == "fp8"


def test_a_vendor_that_does_not_answer_is_kept_and_says_why(
    catalog: Mapping[str, Vendor], capsys: pytest.CaptureFixture[str]
) -> None:
    write_configuration(PATH, KEYS, catalog, top=1)

    assert re.search(r'mistral: \{ api_key: "\$\{MISTRAL_API_KEY\}" \}  # did not list its models', PATH.read_text())
    told = capsys.readouterr().out
    assert "1 raced, 2 more in comments" in told
    assert "note: mistral: did not list its models" in told


def test_a_vendor_without_a_list_is_no_second_model_of_a_name(catalog: Mapping[str, Vendor]) -> None:
    silent = Vendor(name="nebius", title="Nebius", base_url="http://127.0.0.1:1", key_env=("NEBIUS_API_KEY",))
    known = {**catalog, "nebius": silent}
    environ = KEYS | {"NEBIUS_API_KEY": "k"}

    write_configuration(PATH, environ, known, top=1)  # what is known of nebius is that it sells gpt-oss-120b

    assert [item.deployment for item in load(PATH, environ, catalog=known).models["gpt-oss-120b"].deployments] == [
        "groq/openai/gpt-oss-120b",
        "together/openai/gpt-oss-120b",
    ]


def test_what_a_vendor_does_not_list_races_under_no_size(catalog: Mapping[str, Vendor], site: Any) -> None:
    site.answers["/mistral/models"] = {"data": [{"id": "mistral-nemo", "created": 1}]}

    write_configuration(PATH, KEYS, catalog, top=1)

    models = loaded(catalog).models
    assert not [name for name in models if name.startswith("mistral")]
    assert [item.deployment for item in models["small"].deployments] == [
        "groq/openai/gpt-oss-120b",
        "together/openai/gpt-oss-120b",
    ]


def test_no_key_is_written(catalog: Mapping[str, Vendor]) -> None:
    write_configuration(PATH, KEYS | {"GROQ_API_KEY": "gsk-secret"}, catalog, top=1)

    assert "gsk-secret" not in PATH.read_text()


def test_a_file_that_is_there_is_left_alone_and_nobody_is_asked(catalog: Mapping[str, Vendor], site: Any) -> None:
    PATH.write_text("mine")

    with pytest.raises(typer.Exit):
        write_configuration(PATH, KEYS, catalog, top=1)
    assert PATH.read_text() == "mine"
    assert site.asked == []


def test_force_overwrites(catalog: Mapping[str, Vendor]) -> None:
    PATH.write_text("mine")

    write_configuration(PATH, KEYS, catalog, force=True, top=1)

    assert "gpt-oss-120b" in loaded(catalog).models


def test_when_nobody_answers_nothing_is_written(
    catalog: Mapping[str, Vendor], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        write_configuration(PATH, {"MISTRAL_API_KEY": "k"}, catalog, top=1)

    assert not PATH.exists()
    assert "leave out --live to write a file without them" in capsys.readouterr().err


def test_what_a_list_says_cannot_become_anything_but_a_name_or_a_comment(
    catalog: Mapping[str, Vendor], site: Any
) -> None:
    hostile = [
        "x-1b}\nhost: 0.0.0.0",
        "x-2b: {",
        "x-3b # off",
        "${HOME}-4b",
        "x-5b, y",
        '"x-6b',
        "x-7b:latest-q4",
        "/${HOME}/x-8b",
    ]
    rows = [{"id": name, "quantization": "fp8 } host: evil #", "type": "chat"} for name in [*hostile, "acme/ok-9b:v2"]]
    site.answers["/groq/models"] = {"data": rows}
    site.answers["/together/models"] = {"data": rows}

    write_configuration(PATH, KEYS, catalog, top=20)

    settings = loaded(catalog)
    assert settings.host == "127.0.0.1"
    assert list(settings.models) == ["ok-9b-v2", "mistral-small-latest"]
    first, second = settings.models["ok-9b-v2"].deployments
    assert (first.deployment, second.deployment) == ("groq/acme/ok-9b:v2", "together/acme/ok-9b:v2")
    assert first.quantization == "fp8-host-evil-"


def test_live_without_a_key_says_what_to_do(holeshot: Holeshot) -> None:
    result = holeshot("init", "--live")

    assert result.exit_code == 1
    assert "no provider's key is in the environment, so nothing was written" in result.stderr
    assert not Path("config/gateway.yaml").exists()


def test_top_without_live_makes_no_sense(holeshot: Holeshot) -> None:
    assert holeshot("init", "--top", "3").exit_code == 2
