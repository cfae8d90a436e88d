"""The pages of reference are made from the code, so they must be made again when it changes."""

import pytest

from documentation import configuration
from documentation.__main__ import ROOT, pages
from documentation.links import to_repository
from gateway.settings.schema import json_schema


@pytest.mark.parametrize("path", sorted(pages()))
def test_a_page_is_current(path: str) -> None:
    """If not: ``python -m documentation``."""
    assert (ROOT / path).read_text(encoding="utf-8") == pages()[path]


def test_every_key_of_the_first_level_has_a_row_or_a_section() -> None:
    text = configuration.page()
    for name in json_schema()["properties"]:
        assert f"| `{name}` |" in text or f"## `{name}`" in text, name


def test_a_link_to_a_file_of_the_repository_goes_there_and_a_wrong_one_is_noticed() -> None:
    source = ["[one](../SECURITY.md#top) [two](sql.md)"]
    to_repository(None, "index", source)
    assert source == ["[one](https://github.com/holeshot/holeshot/blob/main/SECURITY.md#top) [two](sql.md)"]
    with pytest.raises(FileNotFoundError, match=r"nowhere\.md"):
        to_repository(None, "index", ["[three](../nowhere.md)"])
