"""The settings of traces: off unless wanted, and what is wrong with them said in a sentence."""

import sys
from collections.abc import Callable

import pytest

from gateway.settings import Settings
from providers import how_to_install

Problems = Callable[..., list[str]]


def test_traces_are_off_by_default(loaded: Callable[..., Settings]) -> None:
    assert not loaded("").tracing.enabled


def test_a_key_of_the_collector_is_a_secret(loaded: Callable[..., Settings]) -> None:
    found = loaded("tracing: {headers: {x-key: collectors-own}}").tracing
    assert found.headers["x-key"].get_secret_value() == "collectors-own"
    assert "collectors-own" not in repr(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("enable: true", "did you mean 'enabled'?"),
        ("endpoint: localhost:4318", "tracing.endpoint"),
        ("endpoint: 'http://:x'", "tracing.endpoint: is not a URL"),
        ("endpoint: 'http://me:secret@collector:4318'", "put the key into tracing.headers"),
        ("endpoint: 'http://collector:4318/v1/traces'", "ends with /v1/traces, which is added"),
        ("endpoint: 'http://collector:4318?a=b'", "has a query or fragment"),
        ("headers: {'x key': a}", "tracing.headers.x key: cannot be sent"),
        ('headers: {x-key: "a\\nb"}', "cannot be sent as a header field"),
        ("sample_ratio: 1.5", "tracing.sample_ratio"),
        ("timeout_s: 0", "tracing.timeout_s"),
    ],
)
def test_what_is_wrong_is_said(problems: Problems, text: str, said: str) -> None:
    [problem] = problems(f"tracing: {{{text}}}\n")
    assert said in problem
    assert "secret@" not in problem


def test_without_the_extra_the_problem_says_what_to_install(
    problems: Problems, loaded: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)  # as if it were not installed
    [problem] = problems("tracing: {enabled: true}\n")
    assert f"{how_to_install('otel')}, or set it to false" in problem
    assert not loaded("tracing: {enabled: false}\n").tracing.enabled
