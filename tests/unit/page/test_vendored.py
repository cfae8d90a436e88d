"""What the page has of others is what they published: bytes and licence."""

import hashlib
from pathlib import Path

import pytest

from gateway.admin.routes import FOLDER

_SUMS = sorted(FOLDER.glob("vendor/*/SHA256SUMS"))


def test_all_vendored_folders_have_sums_and_a_licence() -> None:
    folders = {path for path in (FOLDER / "vendor").iterdir() if path.is_dir()}

    assert {path.parent for path in _SUMS} == folders
    assert folders
    assert all((folder / "LICENSE.txt").is_file() for folder in folders)


@pytest.mark.parametrize("sums", _SUMS, ids=lambda path: path.parent.name)
def test_vendored_files_are_as_they_were_published(sums: Path) -> None:
    expected = {name: digest for digest, name in (line.split("  ") for line in sums.read_text().splitlines())}

    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sums.parent.iterdir()
        if path.name != sums.name
    }

    assert found == expected
