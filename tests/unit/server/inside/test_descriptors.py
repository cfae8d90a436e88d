"""Open files: as many as the system allows, and some of them not for clients."""

import subprocess
import sys

import pytest

from gateway.server.listener import MOST, descriptor_budget

RAISING = """
import resource
from gateway.server.listener import raise_limit

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, min(hard, 4096)))
print(raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_becomes_the_hard_one() -> None:
    done = subprocess.run([sys.executable, "-c", RAISING], capture_output=True, check=True, text=True)
    raised, soft, hard = map(int, done.stdout.split())
    assert raised == soft == hard
    assert raised > 256


@pytest.mark.parametrize("limit", [256, 1024, 4096, 20_000, MOST])
def test_a_race_of_two_for_every_client_leaves_descriptors_for_the_stores(limit: int) -> None:
    clients = descriptor_budget(limit)
    assert clients > 0
    assert 3 * clients + 100 <= limit


def test_a_tiny_limit_lets_some_clients_in() -> None:
    assert descriptor_budget(64) > 0
