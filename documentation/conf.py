"""How Sphinx makes the site from docs/: ``make docs``."""

from documentation.links import to_repository

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
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "none"
smartquotes = False  # they make one dash of the two of an option


def setup(app: object) -> None:
    """Let links to files of the repository that are no pages go to the repository."""
    app.connect("source-read", to_repository)  # type: ignore[attr-defined]
