"""The Postgres these tests stand on: one that does not work is passed over."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support import servers


def test_a_postgres_that_does_not_start_is_passed_over_for_the_next() -> None:
    with TemporaryDirectory() as folder:
        lame = Path(folder)
        lame.chmod(0o755)  # root runs it as somebody else
        for name, script in (("initdb", "exit 0"), ("postgres", '[ "$1" = --version ]')):
            (lame / name).write_text(f"#!/bin/sh\n{script}\n")
            (lame / name).chmod(0o755)
        with pytest.raises(servers.ServerUnavailableError, match="did not start"), servers.postgres([lame]):
            pass
        with servers.postgres([lame, *servers.wheel_postgres_binaries()]) as url:
            assert url.startswith("postgresql://")
