"""The settings of traces: off unless wanted."""

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


def test_without_the_extra_the_problem_says_what_to_install(
    problems: Problems, loaded: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)  # as if it were not installed
    [problem] = problems("tracing: {enabled: true}\n")
    assert f"{how_to_install('otel')}, or set it to false" in problem
    assert not loaded("tracing: {enabled: false}\n").tracing.enabled
