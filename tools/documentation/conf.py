"""How Sphinx makes the site from docs/: ``make docs``."""

from importlib import import_module
from typing import Any

from tools.documentation.links import to_repository

project = "Holeshot"
author = "the Holeshot developers"
copyright = "the Holeshot developers, Apache-2.0"  # noqa: A001 - Sphinx calls it so
html_title = "Holeshot"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
myst_enable_extensions = ["colon_fence", "deflist", "strikethrough"]
myst_heading_anchors = 4
myst_linkify_fuzzy_links = False
suppress_warnings = ["myst.strikethrough"]
nitpicky = True
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["numbers.js"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "none"
smartquotes = False  # they would turn the two hyphens of an option into a dash


def setup(app: Any) -> None:
    """Send links to files that are not pages to the repository, and let the search find numbers."""
    app.connect("source-read", to_repository)
    app.add_search_language(_with_numbers(import_module("sphinx.search.en").SearchEnglish))


def _with_numbers(english: Any) -> Any:
    """Return Sphinx's class for English, but with numbers in the index, such as "429". See static/numbers.js."""

    class WithNumbers(english):  # type: ignore[misc] # known when the site is made
        def word_filter(self, word: str) -> bool:
            return word.isdigit() or super().word_filter(word)

    return WithNumbers
