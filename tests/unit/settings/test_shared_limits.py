"""What a limit on requests in flight is to each worker and to all replicas; ``messages.txt`` has the notes on it."""

from collections.abc import Callable

import pytest

from gateway.fleet.resolver import fleet_limits, limits
from gateway.settings import Settings

Load = Callable[..., Settings]
SHARED = "redis_url: redis://localhost\ndatabase_url: postgresql://localhost/x\n"


@pytest.mark.parametrize(("workers", "limit", "each"), [(1, 8, 8), (4, 8, 2), (4, 11, 2), (4, 3, 1)])
def test_workers_share_a_limit(loaded: Load, workers: int, limit: int, each: int) -> None:
    model = f"models: {{ m: {{ deployments: [{{ deployment: ollama/x, max_in_flight: {limit} }}] }} }}\n"
    assert limits(loaded(f"{SHARED}workers: {workers}\n{model}")) == {"ollama/x": each}


def test_a_server_that_two_models_limit_apart_has_the_smaller_limit_and_of_all_replicas_the_largest(
    loaded: Load,
) -> None:
    models = """models:
  m: { deployments: [{ deployment: ollama/x, max_in_flight: 5, max_in_flight_fleet: 4 }] }
  n: { deployments: [{ deployment: ollama/x, max_in_flight: 3 }] }
  o: { deployments: [ollama/x] }
"""
    settings = loaded(SHARED + models)
    assert (limits(settings), fleet_limits(settings)) == ({"ollama/x": 3}, {"ollama/x": 4})
