"""Links from a page to files of the repository that are not pages of the site."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/holeshot/holeshot/blob/main"
_LINK = re.compile(r"\]\((?P<path>(?:\.\./)[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")


def to_repository(_app: object, name: str, source: list[str]) -> None:
    """Rewrite such links in ``source``, the text of a page, when Sphinx reads it.

    Raises:
        FileNotFoundError: a link goes to a file that does not exist.

    """
    folder = (ROOT / "docs" / name).parent

    def rewritten(match: re.Match[str]) -> str:
        target = (folder / match["path"]).resolve()
        if not target.exists():
            raise FileNotFoundError(f"docs/{name}.md links to {match['path']}, which does not exist")
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        return f"]({REPOSITORY}/{target.relative_to(ROOT).as_posix()}{match['anchor'] or ''})"

    source[0] = _LINK.sub(rewritten, source[0])
