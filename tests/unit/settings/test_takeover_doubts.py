"""Takeover that can finish nothing is noted, with what to do."""

from collections.abc import Callable

import pytest

from gateway.settings import ConfigurationError, Settings, doubtful_takeovers
from tests.unit.settings.conftest import CATALOG

Load = Callable[..., Settings]
CHAT = "apis: [chat]"
BOTH = "apis: [chat, completions]"


def notes(loaded: Load, *deployments: str, takeover: str = "always") -> list[str]:
    rows = "".join(f"      - {{ {each} }}\n" for each in deployments)
    text = f"models:\n  m:\n    takeover: {takeover}\n    deployments:\n{rows}"
    return list(doubtful_takeovers(loaded(text), CATALOG))


@pytest.mark.parametrize("takeover", ["always", "asked"])
def test_nobody_is_known_to_continue(loaded: Load, takeover: str) -> None:
    (note,) = notes(loaded, f"deployment: ollama/x, {CHAT}", f"deployment: ollama/y, {CHAT}", takeover=takeover)

    assert note == (
        "model 'm': takeover finishes few answers, as none is known to continue those of chat:"
        " set `continues:` at deployments that do (the page 'What wins, and what if it breaks' of the documentation)"
    )


def test_one_alone_cannot_finish_its_own(loaded: Load) -> None:
    (note,) = notes(loaded, f"deployment: ollama/x, {CHAT}, continues: prefix", f"deployment: ollama/y, {CHAT}")

    assert note.startswith(
        "model 'm': only ollama/x is known to continue answers of chat; none of its own is: set `continues:`"
    )


def test_what_works_is_told_apart(loaded: Load) -> None:
    (note,) = notes(loaded, f"deployment: ollama/x, {BOTH}", f"deployment: ollama/y, {BOTH}, continues: no")

    assert "takeover finishes only answers of completions, as none is known to continue those of chat" in note


def test_a_model_with_one_deployment_has_nobody_else(loaded: Load) -> None:
    (note,) = notes(
        loaded, "deployment: ollama/x, continues: prefix", "deployment: ollama/y, continues: prefix, enabled: false"
    )

    assert note == "model 'm': takeover has no other deployment to finish an answer that breaks: add one"


@pytest.mark.parametrize(
    ("fallback", "other", "continues"),
    [
        ("spare", "", True),
        ("spare", "takeover: always", True),
        ("spare", "takeover: never", False),
        ("{ model: spare, causes: [context] }", "", False),
    ],
)
def test_a_fallback_finishes_the_answers_of_a_model_with_one_deployment(
    loaded: Load, fallback: str, other: str, continues: bool
) -> None:
    models = (
        f"models:\n  m:\n    takeover: always\n    fallbacks: [{fallback}]\n    deployments:\n"
        f"      - {{ deployment: ollama/x, {CHAT}, continues: prefix }}\n"
        f"  spare:\n    {other}\n    deployments:\n"
        f"      - {{ deployment: ollama/y, {CHAT}, continues: prefix }}\n"
    )
    noted = [note for note in doubtful_takeovers(loaded(models), CATALOG) if note.startswith("model 'm'")]
    assert noted == (
        [] if continues else ["model 'm': takeover has no other deployment to finish an answer that breaks: add one"]
    )


def test_two_that_continue_are_not_noted(loaded: Load) -> None:
    able = [f"deployment: ollama/{name}, {BOTH}, continues: final_message" for name in "xy"]

    assert notes(loaded, *able) == []


def test_without_takeover_nothing_is_noted(loaded: Load) -> None:
    assert notes(loaded, f"deployment: ollama/x, {CHAT}", takeover="never") == []


def test_a_vendor_that_is_known_to_continue_counts(loaded: Load) -> None:
    text = "providers:\n  own: { preset: ollama }\n" + "models:\n  m:\n    takeover: true\n    deployments:\n"
    text += "".join(f"      - {{ deployment: own/{name}, {CHAT} }}\n" for name in "xy")
    settings, vendor = loaded(text), CATALOG["ollama"]
    continuing = {**CATALOG, "ollama": type(vendor)(name="ollama", title="Ollama", continues=("prefix",))}

    assert list(doubtful_takeovers(settings, continuing)) == []


def test_slow_streams_are_rescued_only_where_takeover_is_on(loaded: Load) -> None:
    text = "models:\n  m:\n    takeover: {{ when: {}, slow: {} }}\n    deployments: [ollama/x]\n"
    assert loaded(text.format("asked", "false")).models["m"].takeover.slow is None
    assert loaded(text.format("never", "false")).models["m"].takeover.slow is None
    usual = loaded(text.format("always", "true")).models["m"].takeover.slow
    assert usual is not None
    assert (usual.below_tps, usual.budget) == (3.0, 0.02)
    other = loaded(text.format("always", "{ below_tps: 1.5 }")).models["m"].takeover.slow
    assert other is not None
    assert other.below_tps == 1.5
    with pytest.raises(ConfigurationError, match="slow: needs takeover: set `when: asked` or `when: always`"):
        loaded(text.format("never", "true"))
