"""The memory that a process may use, and the calls it is enough for."""

import os
import resource
from pathlib import Path

import pytest

from gateway.overload import calls_in, connections_in, memory_limit
from gateway.overload.memory import FEWEST_CALLS, FEWEST_CONNECTIONS, UNKNOWN_MEMORY_BYTES

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MB = 10**6


def limited(folder: Path, cgroup: str, **files: str) -> int:
    """Return the limit of a process in ``cgroup``; ``files`` are by path, with underscores for slashes."""
    (folder / "cgroup").write_text(cgroup)
    for name, text in files.items():
        path = folder / "mount" / name.replace("__", ".").replace("_", "/").replace("limit/in/bytes", "limit_in_bytes")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return memory_limit(folder / "cgroup", folder / "mount")


def test_without_cgroups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "none", tmp_path / "none") == MACHINE


def test_where_the_machine_does_not_tell_a_limit_counts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr("os.sysconf", unknown)
    assert memory_limit(tmp_path / "none", tmp_path / "none") == UNKNOWN_MEMORY_BYTES
    assert limited(tmp_path, "0::/\n", memory__max=str(MACHINE + MB)) == MACHINE + MB


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_the_limit_that_a_shell_sets_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    limits = {kind: (400 * MB, resource.RLIM_INFINITY)}
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr("resource.getrlimit", lambda which: limits.get(which, unlimited))
    assert memory_limit(tmp_path / "none", tmp_path / "none") == 400 * MB


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    assert limited(tmp_path, "0::/\n", memory__max=str(500 * MB)) == 500 * MB


def test_the_limit_of_a_service_or_of_a_slice_above_it_counts(tmp_path: Path) -> None:
    own = limited(tmp_path, "0::/a/b\n", a_b_memory__max="max", a_memory__max=str(300 * MB))
    assert own == 300 * MB


def test_version_one_of_cgroups_counts_too(tmp_path: Path) -> None:
    cgroup = "5:cpu,cpuacct:/other\n4:memory:/docker/x\n0::/\n"
    assert limited(tmp_path, cgroup, memory_docker_x_memory__limit_in_bytes=str(200 * MB)) == 200 * MB


def test_no_limit_is_the_machines(tmp_path: Path) -> None:
    unlimited = {"memory__max": "max", "memory_memory__limit_in_bytes": "9223372036854771712"}
    assert limited(tmp_path, "4:memory:/\n0::/\n", **unlimited) == MACHINE


def test_half_of_the_memory_is_for_calls_and_workers_share_it() -> None:
    assert 1000 < calls_in(10**9) < 4000
    assert calls_in(8 * 10**9, workers=4) < calls_in(8 * 10**9) / 4
    assert calls_in(100 * MB) == FEWEST_CALLS


def test_idle_connections_take_a_quarter_of_the_memory() -> None:
    assert 5_000 < connections_in(10**9) < 10_000
    assert connections_in(8 * 10**9, workers=4) < connections_in(8 * 10**9) / 4
    assert connections_in(100 * MB) == FEWEST_CONNECTIONS
