"""The systemd unit, held against the gateway it runs, and against systemd's own check where that is installed."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from gateway.cli.main import application
from gateway.cli.terminal import MISUSED
from gateway.settings import Settings
from gateway.settings.loader import NOT_SETTINGS, PREFIX

UNIT_FILE = Path(__file__).parents[2] / "config" / "holeshot.service"
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 20  # of 100; what is left to grant is the network, and a way to read the system's own files


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read(UNIT_FILE, encoding="utf-8")
    return parser["Service"]


def test_it_runs_a_verb_of_the_command_line(service: configparser.SectionProxy) -> None:
    command, verb = service["ExecStart"].split()
    assert Path(command).name == "holeshot"
    assert verb in get_command(application()).commands  # type: ignore[attr-defined]  # the application is a group


def test_its_variables_are_ours(service: configparser.SectionProxy) -> None:
    names = [entry.partition("=")[0].removeprefix(PREFIX) for entry in service["Environment"].split()]
    assert names == ["CONFIG", "PYTHONDONTWRITEBYTECODE"]
    assert "CONFIG" in NOT_SETTINGS


def test_calls_may_end_and_rows_are_written_before_it_is_killed(service: configparser.SectionProxy) -> None:
    settings = Settings()
    assert float(service["TimeoutStopSec"]) >= settings.lame_duck_s + settings.shutdown_grace_s + 10
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")


def test_it_is_not_restarted_for_an_unusable_configuration(service: configparser.SectionProxy) -> None:
    assert int(service["RestartPreventExitStatus"]) == MISUSED


def test_what_it_keeps_lies_where_it_may_write(service: configparser.SectionProxy) -> None:
    assert service["WorkingDirectory"] == f"%S/{service['StateDirectory']}"
    settings = Settings()
    assert not Path(settings.spool_dir).is_absolute()
    assert settings.database_url.get_secret_value().endswith(":///var/holeshot.db")  # relative, too


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_takes_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT_FILE.name
    command = Path(sys.executable).resolve()  # it asks whether the command is there
    unit.write_text(UNIT_FILE.read_text(encoding="utf-8").replace("/opt/holeshot/bin/holeshot", str(command)))
    taken = subprocess.run([str(ANALYZE), "verify", str(unit)], check=False, capture_output=True, text=True)
    assert (taken.returncode, [line for line in taken.stderr.splitlines() if unit.name in line]) == (0, [])
    options = ["security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager"]
    exposed = subprocess.run([str(ANALYZE), *options, str(unit)], check=False, capture_output=True, text=True)
    assert exposed.returncode == 0, exposed.stdout
