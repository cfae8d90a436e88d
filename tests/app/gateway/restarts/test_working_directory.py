"""Started in a folder where a stranger has left Python files, the gateway and its children import none of them."""

import signal
import sys
from pathlib import Path

from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import configuration

TRAP = "open({mark!r}, 'a').write(__name__ + '\\n')\nraise SystemExit('this is the stranger')\n"
PACKAGES = ("gateway", "providers", "migrations", "alembic", "sqlalchemy")
MODULES = ("gateway", "yaml", "asyncio", "signal", "typing", "msgspec", "aiosqlite", "sitecustomize", "usercustomize")


def lay_traps(folder: Path) -> Path:
    """Put files into ``folder`` that leave a mark when they are imported; return where."""
    mark = folder.parent / "imported"
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(TRAP.format(mark=str(mark)))
    for name in MODULES:
        (folder / f"{name}.py").write_text(TRAP.format(mark=str(mark)))
    return mark


async def test_neither_the_migration_nor_the_demo_imports_from_the_working_directory(tmp_path: Path) -> None:
    where = tmp_path / "hostile"
    mark = lay_traps(where)
    config = configuration(tmp_path, {})
    del config["providers"], config["models"]
    command = (str(Path(sys.executable).with_name("holeshot")),)
    async with started(config, tmp_path, command=command, cwd=where) as gateway:
        assert (await gateway.event("gateway.started"))["providers"]
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0
    assert (tmp_path / "holeshot.db").exists()  # migrated
    assert not mark.exists(), mark.read_text()
