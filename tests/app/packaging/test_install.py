"""What a checkout installs: the demo without litellm, which comes when a provider needs it."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
LOCKS = CHECKOUT / "tools" / "requirements"
HELD_BACK = {"litellm", "botocore", "boto3", "openai", "tokenizers", "huggingface-hub", "google-auth"}
# Beside the script that installs, in place of pip: nothing is fetched, what is asked of it is told.
PIP = "import sys; print('pip', *sys.argv[1:])"


def entries(lock: str) -> dict[str, str]:
    """Return what a lock says of each package: its version, for whom it is, and its hashes."""
    text = (LOCKS / f"{lock}.lock").read_text()
    return {entry.partition("==")[0]: entry.strip() for entry in re.split(r"\n(?=\S)", text)}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the dependencies but litellm."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "pip.py").write_text(PIP)
    (site / "others.pth").write_text(f"{CHECKOUT}\n{sysconfig.get_paths()['purelib']}\n")
    (site / "without.pth").write_text("import sys; sys.modules['litellm'] = None\n")
    return home / "bin" / "python"


def needed(python: Path, folder: Path, **environ: str) -> str:
    """Do what `make run` does before it serves; return what it says."""
    command = [str(python), str(LOCKS / "install.py"), "--needed"]
    return subprocess.run(
        command, cwd=folder, env={"PATH": os.environ["PATH"], **environ}, capture_output=True, check=True, text=True
    ).stdout


def test_the_demo_comes_without_what_only_litellm_needs() -> None:
    assert HELD_BACK.isdisjoint(entries("runtime"))
    assert set(entries("litellm")) >= HELD_BACK


@pytest.mark.parametrize(("lock", "larger"), [("runtime", "litellm"), ("litellm", "dev")])
def test_a_larger_lock_has_all_of_a_smaller_one_as_it_is_there(lock: str, larger: str) -> None:
    assert entries(lock).items() <= entries(larger).items()


def test_run_looks_for_what_is_needed_before_it_serves() -> None:
    commands = subprocess.run(
        ["make", "--dry-run", "--silent", "run"], cwd=CHECKOUT, capture_output=True, check=True, text=True
    ).stdout.splitlines()
    assert commands[-2:] == [".venv/bin/python tools/requirements/install.py --needed", ".venv/bin/holeshot serve"]


@pytest.mark.parametrize(
    ("file", "environ", "why"),
    [
        ("models: {m: {deployments: [bedrock/x, vertex_ai/y]}}", {}, "bedrock, vertex_ai are called through litellm"),
        ("models: {m: {deployments: [{deployment: replicate/x}]}}", {}, "replicate is called through litellm"),
        ("providers: {mine: {preset: bedrock}}", {}, "mine is called through litellm"),
        ("providers: {watsonx: {kind: litellm, api_key: '${NOT_SET_YET}'}}", {}, "watsonx is called through litellm"),
        ("providers: {}", {"HOLESHOT_PROVIDERS__BEDROCK__KIND": "litellm"}, "bedrock is called through litellm"),
        ("log_format: json", {"AWS_BEARER_TOKEN_BEDROCK": "made-up"}, "bedrock is called through litellm"),
    ],
    ids=["deployments", "a deployment with settings", "a preset", "a kind", "a variable", "a key"],
)
def test_litellm_is_added_for_a_provider_that_needs_it(
    python: Path, tmp_path: Path, file: str, environ: dict[str, str], why: str
) -> None:
    (tmp_path / "gateway.yaml").write_text(file)
    said = needed(python, tmp_path, HOLESHOT_CONFIG="gateway.yaml", **environ)
    assert said.startswith(why)
    assert "Installing up to" in said


@pytest.mark.parametrize(
    "file",
    ["models: {m: {deployments: [groq/x]}}", "providers: {bedrock: {kind: openai_compatible}}", "providers: [", "x: 1"],
    ids=["another provider", "by another way", "no YAML", "a wrong key"],
)
def test_litellm_is_not_added_for_others(python: Path, tmp_path: Path, file: str) -> None:
    (tmp_path / "gateway.yaml").write_text(file)
    assert needed(python, tmp_path, HOLESHOT_CONFIG="gateway.yaml", GROQ_API_KEY="made-up") == ""


def test_without_a_file_and_a_key_nothing_is_added(python: Path, tmp_path: Path) -> None:
    assert needed(python, tmp_path) == ""


def test_pip_is_given_the_whole_lock_with_its_hashes(python: Path, tmp_path: Path) -> None:
    """What pip prints is hidden but for what of it is progress, so it is asked to fail."""
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / "pip.py").write_text("import sys; sys.exit(' '.join(sys.argv[1:]))")
    command = [str(python), str(LOCKS / "install.py"), "litellm"]
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    (site / "pip.py").write_text(PIP)
    assert failed.returncode == 1
    assert failed.stderr.split()[-3:] == ["--require-hashes", "-r", str(LOCKS / "litellm.lock")]
    assert "installed in" not in failed.stdout
