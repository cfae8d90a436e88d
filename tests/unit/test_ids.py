"""Identifiers."""

import subprocess
import sys
import uuid

from gateway.core.ids import new_id, uuid7

# Draws once, so that the generator's state is there to be inherited, and then again on both sides of a fork.
FORKING = """
import os
from gateway.core.ids import uuid7, new_id
new_id()
child = os.fork()
os.write(1, new_id().encode() + b"\\n")
if child:
    os.waitpid(child, 0)
"""


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_every_bit_of_time_and_randomness_has_its_place() -> None:
    ones = uuid7(2**48 - 1, 2**74 - 1)
    assert ones == "ffffffff-ffff-7fff-bfff-ffffffffffff"
    assert uuid7(0, 0) == "00000000-0000-7000-8000-000000000000"
    assert len({uuid7(0, 1 << bit) for bit in range(74)} | {uuid7(1 << bit, 0) for bit in range(48)}) == 74 + 48


def test_ids_sort_by_the_time_they_were_made() -> None:
    made = [uuid7(unix_ms, 2**74 - 1 - unix_ms) for unix_ms in (0, 1, 0xFFFF, 0x10000, 1_772_625_600_000)]
    assert sorted(made) == made


def test_ids_do_not_repeat() -> None:
    assert len({new_id() for _ in range(10_000)}) == 10_000


def test_a_forked_worker_draws_other_bits_than_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True, text=True)
    parents, childs = (uuid.UUID(line).int & (2**62 - 1) for line in done.stdout.split())
    assert parents != childs
