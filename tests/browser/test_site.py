"""The site of the documentation: its search, with Sphinx from tools/requirements/docs.lock."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.visit import Visit
from tests.support.browser.installation import ROOT

PAGES = {
    "index": "# Start\n\n```{toctree}\nerrors\nother\n```\n",
    "errors": "# Errors\n\n## 429 too_many\n\nWait as long as `retry-after` says.\n",
    "other": "# Others\n\nPort 4000 is the usual one.\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site made of a few pages, as ``make docs`` makes ours."""
    source, made = tmp_path_factory.mktemp("docs"), tmp_path_factory.mktemp("site")
    for name, text in PAGES.items():
        (source / f"{name}.md").write_text(text, encoding="utf-8")
    settings = str(ROOT / "tools" / "documentation")
    command = [sys.executable, "-m", "sphinx", "--quiet", "-c", settings, str(source), str(made)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, check=True)
    return made


@pytest.mark.parametrize(
    ("words", "found"),
    [("429", "errors.html"), ("429 wait", "errors.html"), ("4000", "other.html"), ("usual", "other")],
)
def test_the_search_finds_words_and_numbers(site: Path, visit: Callable[..., Visit], words: str, found: str) -> None:
    page = visit(site.as_uri()).page
    page.goto(f"{site.as_uri()}/search.html?q={words}")
    page.wait_for_selector("#search-results .search-summary:not(:empty)")
    links = page.locator("#search-results li a").evaluate_all("all => all.map(each => each.href)")
    assert any(f"/{found}" in each for each in links)


def test_a_number_that_no_page_has_is_not_found(site: Path, visit: Callable[..., Visit]) -> None:
    page = visit(site.as_uri()).page
    page.goto(f"{site.as_uri()}/search.html?q=418")
    page.wait_for_selector("#search-results .search-summary:not(:empty)")
    assert page.locator("#search-results li").count() == 0
