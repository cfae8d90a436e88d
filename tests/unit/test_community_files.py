"""The forms of the forge against its schemas, and the links of the pages at the top of the checkout."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"
FORMS = sorted(path.name for path in TEMPLATES.glob("*.yml") if path.name != "config.yml")
PAGES = sorted(path.name for path in ROOT.glob("*.md"))
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
_OWN = re.compile(r"https://github\.com/holeshot/holeshot/blob/main/([^)#\s]+)")


def checked(schema: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_for_issues_is_valid(name: str) -> None:
    result = checked("github-issue-forms", TEMPLATES / name)
    assert result.returncode == 0, result.stdout


def test_a_form_with_a_misspelt_key_is_not_valid(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yml"
    path.write_text((TEMPLATES / "bug.yml").read_text(encoding="utf-8").replace("attributes:", "atributes:"))
    assert checked("github-issue-forms", path).returncode != 0


def test_the_choice_of_forms_is_valid() -> None:
    result = checked("github-issue-config", TEMPLATES / "config.yml")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_to_files_that_exist(page: str) -> None:
    linked = _LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_forms_link_to_files_that_exist() -> None:
    linked = [path for each in TEMPLATES.iterdir() for path in _OWN.findall(each.read_text(encoding="utf-8"))]
    assert len(linked) >= 2
    assert [path for path in linked if not (ROOT / path).exists()] == []
