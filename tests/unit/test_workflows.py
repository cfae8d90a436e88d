"""The forge's workflow files, held against its schema and against what they call."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NAMES = [path.stem for path in FILES]
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
MOVING_TAG = re.compile(r"[\w.-]+/[\w./-]+@(v\d+(\.\d+)*|release/v\d+|[0-9a-f]{40})|\./\.github/workflows/\w+\.yml")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    return found


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def test_the_workflows_are_valid() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *map(str, FILES),
    ]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_a_workflow_with_a_misspelt_key_is_not_valid(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yml"
    path.write_text(FILES[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:"), encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_pinned_to_a_major_version_at_least(name: str) -> None:
    workflow = read(name)
    used = [each["uses"] for each in [*steps(workflow), *workflow["jobs"].values()] if "uses" in each]
    assert [action for action in used if not MOVING_TAG.fullmatch(action)] == []
    local = [ROOT / action for action in used if action.startswith("./")]
    assert all(path.is_file() for path in local)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_may_write_only_what_it_publishes(name: str) -> None:
    workflow = read(name)
    assert workflow["permissions"] == {"contents": "read"}
    granted = {
        job: {what for what, how in content.get("permissions", {}).items() if how == "write"}
        for job, content in workflow["jobs"].items()
    }
    assert {job: scopes for job, scopes in granted.items() if scopes} == (
        {"publish": {"id-token"}} if name == "release" else {"publish": {"packages"}} if name == "image" else {}
    )


def test_nothing_is_published_untested() -> None:
    release, image = read("release")["jobs"], read("image")["jobs"]
    assert (release["publish"]["needs"], release["build"]["needs"]) == ("build", "test")
    assert image["publish"]["needs"] == ["start", "test"]
    assert {jobs["test"]["uses"] for jobs in (release, image)} == {"./.github/workflows/tests.yml"}


def test_every_python_that_is_promised_is_tested_and_races_before_a_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [entry.rpartition(" ")[2] for entry in project["classifiers"] if "Python :: 3." in entry]
    jobs = read("tests")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [promised[0], promised[-1]]
    assert jobs["between"]["strategy"]["matrix"]["python"] == promised[1:-1]
    assert jobs["between"]["if"] == "github.ref_type == 'tag'"  # as those of a release
    (setup,) = (step["with"] for step in steps(read("release")) if "setup-python" in step.get("uses", ""))
    assert sorted(setup["python-version"].split()) == promised


@pytest.mark.parametrize("name", NAMES)
def test_what_is_made_is_a_verb_of_the_makefile(name: str) -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    made = {
        verb for step in steps(read(name)) for verb in re.findall(r"^make ([a-z-]+)", step.get("run", ""), re.MULTILINE)
    }
    assert made <= verbs


@pytest.mark.parametrize(("seed", "drawn"), [("7", "7"), ("", r"20\d{6}")], ids=["given", "of the day"])
def test_each_night_all_is_searched_and_a_find_fails_and_is_kept(tmp_path: Path, seed: str, drawn: str) -> None:
    workflow = read("search")
    assert next(iter(workflow.values()))
    (job,) = workflow["jobs"].values()
    assert job["strategy"]["matrix"]["what"] == ["all", "search"]
    run, kept = job["steps"][-2:]
    assert (kept["if"], kept["with"]["path"]) == ("${{ !success() }}", "found.txt")
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "made $*"\nexit 2\n', encoding="utf-8")
    make.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "WHAT": "search", "SEED": seed, "GITHUB_SHA": "abc"}
    assert job["defaults"] == {"run": {"shell": "bash"}}
    command = [
        "bash",
        "--noprofile",
        "--norc",
        "-eo",
        "pipefail",
        "-c",
        run["run"],
    ]  # as the forge's page on shells says
    ended = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True)
    assert ended.returncode == 2
    again, made = (tmp_path / "found.txt").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(f"git checkout abc && make test WHAT=search SEED={drawn} SECONDS=3600", again)
    assert made == again.partition("&& ")[2].replace("make", "made", 1)


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_an_action_is_valid_and_pins_what_it_uses(path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", str(path)]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    run = yaml.safe_load(path.read_text(encoding="utf-8"))["runs"]["steps"]
    assert [step["uses"] for step in run if "uses" in step and not MOVING_TAG.fullmatch(step["uses"])] == []


def test_an_action_with_a_misspelt_key_is_not_valid(tmp_path: Path) -> None:
    path = tmp_path / "action.yml"
    path.write_text(ACTIONS[0].read_text(encoding="utf-8").replace("using:", "use:"), encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", str(path)]
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_every_input_of_an_action_is_a_variable_of_its_script_and_no_part_of_a_command(path: Path) -> None:
    """An input inside ``run`` would be read as a command."""
    action = yaml.safe_load(path.read_text(encoding="utf-8"))
    run = action["runs"]["steps"]
    assert all("${{" not in step.get("run", "") for step in run)
    given = {name: value for step in run for name, value in step.get("env", {}).items()}
    assert {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]} <= set(given.values())
    script = "".join(each.read_text(encoding="utf-8") for each in path.parent.glob("*.sh")) + str(run)
    assert [name for name in given if f"${name}" not in script and f"${{{name}" not in script] == []
    requirements = re.findall(r"tools/requirements/[\w.]+", str(run))
    assert requirements
    assert all((ROOT / each).is_file() for each in requirements)
