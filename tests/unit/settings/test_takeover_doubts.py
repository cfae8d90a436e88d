"""Takeover of vendors that are known to continue, and of slow streams; ``messages.txt`` has the notes on it."""

from collections.abc import Callable

from gateway.settings import Settings, doubtful_takeovers
from tests.unit.settings.conftest import CATALOG

Load = Callable[..., Settings]


def test_a_vendor_that_is_known_to_continue_counts(loaded: Load) -> None:
    text = "providers:\n  own: { preset: ollama }\n" + "models:\n  m:\n    takeover: true\n    deployments:\n"
    text += "".join(f"      - {{ deployment: own/{name}, apis: [chat] }}\n" for name in "xy")
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
