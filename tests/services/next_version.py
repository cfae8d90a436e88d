"""The version after this one, made up: a checkout whose migration does what migrations do.

It has a column that its gateways write, sums that the rows which are there already count in, a view, and one more
column in views that are there. So today's code is the version before.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gateway.ledger import head_revision
from tests.app.gateway.process import CHECKOUT, COMMAND

REVISION = "9999"
ROOMS = ("gateway", "providers", "holeshot", "migrations")
WRITTEN = "of the next version"  # in the column that its gateways write
MIGRATION = '''
"""Made up."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import VIEWS, Changes, views_of

revision = "{revision}"
down_revision = "{head}"
branch_labels = None
depends_on = None
only_adds = {only_adds}

SUMS = {{"n_made_up_calls": "rollup_calls", "n_made_up_races": "rollup_calls", "n_made_up": "rollup_attempts"}}
CHANGED = tuple(name for name in views_of("{revision}") if VIEWS[name][0] in {{"client_usage", "waste"}})


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.add_up_what_is_new()
    op.add_column("calls", sa.Column("made_up", sa.Text))
    for name, table in SUMS.items():
        op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    changes.add_sums_of_rows(*SUMS)
    changes.make_sums()
    changes.make_views("made_up", *CHANGED)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.drop_views("made_up")
    before.make_views_again(*CHANGED)
    before.make_sums()
    for name, table in SUMS.items():
        op.drop_column(table, name)
    op.drop_column("calls", "made_up")
'''
SUMS = """
CALLS["n_made_up_calls"] = _count("f.launched > 1")
RACES["n_made_up_races"] = _count("f.role <> 'primary'")
ATTEMPTS["n_made_up"] = _count("f.outcome = 'won'")
SINCE |= dict.fromkeys(("n_made_up_calls", "n_made_up_races", "n_made_up"), "{revision}")
"""
VIEW = """
VIEWS |= {{"made_up": ("made_up", "")}}
SINCE["made_up"] = "{revision}"
"""
MADE_UP = """
select cast(sum(r.n_made_up_calls) as bigint) as n_calls, cast(sum(r.n_made_up_races) as bigint) as n_races
from rollup_calls as r
where {windows}
"""
# What a view has now, and one more column.
LONGER = {
    "client_usage": ("as n_unpriced", "as n_unpriced,\n  cast(sum(r.n_made_up_calls) as bigint) as n_made_up"),
    "waste": ("as n_unpriced", "as n_unpriced,\n  cast(sum(r.n_made_up) as bigint) as n_made_up"),
}
FIELD = '    launched: Annotated[int, Column("Attempts started."'
NEW_FIELD = f'    made_up: Annotated[str, Column("Made up.")] = "{WRITTEN}"\n'


# Migrates what it is told, line by line: to import all that a migration needs takes ten times as long as it.
MIGRATOR = """
import asyncio, json, sys
from gateway.ledger import downgrade, migrate

async def run(url, revision, replicas):
    await asyncio.gather(*(downgrade(url, revision) if revision else migrate(url) for _ in range(replicas)))

for line in sys.stdin:
    asyncio.run(run(**json.loads(line)))
    print("done", flush=True)
"""


def write_checkout(folder: Path, *, only_adds: bool = True) -> None:
    """Write the next version's checkout, with what is compiled of it: to compile takes half as long as to import."""
    being_compiled = shutil.ignore_patterns("*.pyc.*")  # by another process
    for room in ROOMS:
        shutil.copytree(CHECKOUT / room, folder / room, ignore=being_compiled)
    migration = folder / "migrations" / "versions" / f"{REVISION}_made_up.py"
    made_up = MIGRATION.format(revision=REVISION, head=head_revision(), only_adds=only_adds)
    migration.write_text(made_up, encoding="utf-8")
    views = folder / "migrations" / "views"
    before = views / f"before_{REVISION}"
    before.mkdir()
    for name, (now, then) in LONGER.items():
        text = views / f"{name}.sql"
        shutil.copy(text, before)
        _replace(text, now, then)
    (views / "made_up.sql").write_text(MADE_UP, encoding="utf-8")
    for module, more in (("sums", SUMS), ("schema", VIEW)):
        with (folder / "gateway" / "ledger" / f"{module}.py").open("a", encoding="utf-8") as file:
            file.write(more.format(revision=REVISION))
    _replace(folder / "gateway" / "core" / "calls.py", FIELD, NEW_FIELD + FIELD)


class NextVersion:
    """The checkout in ``folder``, and a process that migrates as it does.

    ``only_adds``: its migration leaves all that the version before uses.
    """

    def __init__(self, folder: Path, *, only_adds: bool = True) -> None:
        self.folder = folder
        write_checkout(folder, only_adds=only_adds)
        self._migrator = subprocess.Popen(
            (sys.executable, "-P", "-c", MIGRATOR),
            cwd=folder,
            env=_environ(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def migrate(self, url: str, replicas: int = 1) -> None:
        """Migrate to its schema, as so many replicas at once."""
        await asyncio.to_thread(self._run, {"url": url, "revision": "", "replicas": replicas})

    async def downgrade(self, url: str) -> None:
        """Go back to the schema of today."""
        await asyncio.to_thread(self._run, {"url": url, "revision": head_revision(), "replicas": 1})

    def close(self) -> None:
        """End its process."""
        self._migrator.communicate()

    def _run(self, what: dict[str, Any]) -> None:
        assert self._migrator.stdin is not None
        assert self._migrator.stdout is not None
        self._migrator.stdin.write(f"{json.dumps(what)}\n")
        self._migrator.stdin.flush()
        assert self._migrator.stdout.readline() == "done\n"


async def migrated_by(checkout: Path, url: str) -> None:
    """Run the ``holeshot migrate`` of a checkout."""
    environ = {**_environ(checkout), "HOLESHOT_DATABASE_URL": url}
    process = await asyncio.create_subprocess_exec(*COMMAND, "migrate", cwd=checkout, env=environ)
    assert await process.wait() == 0


def _environ(checkout: Path) -> dict[str, str]:
    """Return our variables without settings, and where a checkout's code is."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
    return {**environ, "PYTHONPATH": str(checkout)}


def _replace(file: Path, now: str, then: str) -> None:
    written = file.read_text(encoding="utf-8")
    assert written.count(now) == 1, (file, now)
    file.write_text(written.replace(now, then), encoding="utf-8")
