"""The wheel, where others have packages of the same names, and without litellm: from installing to a raced answer."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.first_race import asked, serving

CHECKOUT = Path(__file__).parents[3]
STRANGER = "raise SystemExit('this is somebody else')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout, with what is installed."""
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--wheel-dir", str(folder), str(CHECKOUT)], check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it where packages ``gateway`` and ``providers`` of others are, beside the dependencies but litellm."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    for name in ("gateway", "providers"):
        (site / f"{name}.py").write_text(STRANGER)
    without = "import sys; sys.modules['litellm'] = None"  # a line of a .pth that begins so is run at the start
    (site / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    (site / "without.pth").write_text(f"{without}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(home / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    return home / "bin" / "holeshot"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Return a folder in which somebody has files of our packages' names."""
    for name in ("gateway.py", "providers.py", "holeshot.py"):
        (tmp_path / name).write_text(STRANGER)
    return tmp_path


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(folder), "PATH": os.environ["PATH"], **more}


def test_it_takes_no_name_but_its_own(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"holeshot"}
    assert {"holeshot/_lib/gateway/app/gateway.py", "holeshot/_lib/gateway/migrations/env.py"} < set(names)
    assert {"holeshot/_lib/providers/vendors/vendors.toml", "holeshot/_lib/providers/models/models.json"} < set(names)
    assert "holeshot/_lib/gateway/cli/import_litellm/fields.toml" in names
    assert not [name for name in names if "tests/" in name or name.endswith((".pyc", ".db"))]


def test_its_types_can_be_read(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    adapters = {f"holeshot/{name}.py" for name in ("langchain", "livekit", "pipecat", "pydantic_ai")}
    assert {"holeshot/py.typed", "holeshot/__init__.py", *adapters} < names


def test_a_program_with_packages_of_the_same_names_is_told(installed: Path, elsewhere: Path) -> None:
    python, program = str(installed.parent / "python"), "import holeshot; holeshot.Racer"
    said = subprocess.run([python, "-P", "-c", program], env=environment(elsewhere), capture_output=True, check=False)
    assert b"ImportError: holeshot.Racer needs its own package 'gateway'" in said.stderr


def test_a_program_without_them_races_with_what_is_in_the_wheel(installed: Path, elsewhere: Path) -> None:
    program = """
import sys, holeshot
sys.path = [each for each in sys.path if each != sys.argv[1]]  # where the packages of others are
import holeshot
holeshot.Racer
import gateway
print(gateway.__file__)
"""
    site = next(installed.parents[1].glob("lib/python*/site-packages"))
    command = [str(installed.parent / "python"), "-P", "-c", program, str(site)]
    said = subprocess.run(command, env=environment(elsewhere), capture_output=True, check=False, text=True)
    assert said.stdout.strip() == str(site / "holeshot" / "_lib" / "gateway" / "__init__.py"), said.stderr


def test_it_is_not_somebody_elses(installed: Path, elsewhere: Path) -> None:
    for command in ([str(installed), "version"], [str(installed.parent / "python"), "-P", "-m", "holeshot", "version"]):
        said = subprocess.run(command, cwd=elsewhere, env=environment(elsewhere), capture_output=True, check=False)
        assert said.stdout.startswith(b"holeshot "), said


def test_the_example_ships(installed: Path, elsewhere: Path) -> None:
    subprocess.run([str(installed), "init", "--example"], cwd=elsewhere, env=environment(elsewhere), check=True)
    written = (elsewhere / "config" / "gateway.example.yaml").read_text()
    assert written.endswith((CHECKOUT / "config" / "gateway.example.yaml").read_text())


def test_what_needs_litellm_says_what_to_type(installed: Path, elsewhere: Path) -> None:
    (elsewhere / "gateway.yaml").write_text("models: {m: {deployments: [bedrock/x]}}\n")
    command = [str(installed), "check", "--config", "gateway.yaml"]
    said = subprocess.run(command, cwd=elsewhere, env=environment(elsewhere), capture_output=True, check=False)
    assert said.returncode == 1
    told = (said.stdout + said.stderr).decode()
    assert "-m pip install 'litellm>=" in told
    assert "install holeshot" not in told


def test_it_knows_prices_without_litellm(installed: Path, elsewhere: Path) -> None:
    (elsewhere / "gateway.yaml").write_text("models: {m: {deployments: [openai/gpt-4o]}}\n")
    command = [str(installed), "check", "--config", "gateway.yaml", "--json"]
    environ = environment(elsewhere, OPENAI_API_KEY="sk-made-up-for-this-test")
    said = subprocess.run(command, cwd=elsewhere, env=environ, capture_output=True, check=True)
    [deployment] = json.loads(said.stdout)["deployments"]
    assert deployment["input_usd"] > 0


def test_the_first_raced_answer(installed: Path, elsewhere: Path) -> None:
    with serving(installed, elsewhere, environment(elsewhere)) as port:
        answer, told = asked(port)
        _, streamed = asked(port, stream=True)
    assert answer.status == 200, told
    assert int(answer.headers["x-holeshot-launched"]) >= 2
    assert json.loads(told)["choices"][0]["message"]["content"]
    assert streamed.endswith(b"data: [DONE]\n\n")
    sql = [str(installed), "sql", "select status_code from calls"]
    rows = subprocess.run(sql, cwd=elsewhere, env=environment(elsewhere), capture_output=True, check=True).stdout
    assert rows.split() == [b"status_code", b"200", b"200"]
