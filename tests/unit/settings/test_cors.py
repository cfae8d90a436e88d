"""Origins of web pages, written as browsers write them."""

from pathlib import Path

import pytest

from gateway.settings import load

CLIENTS = "clients: { page: { key_sha256: '" + "0" * 64 + "' } }\n"


@pytest.mark.parametrize(
    "origin",
    [
        "https://chat.example.com",
        "http://localhost:5173",
        "http://127.0.0.1:3000",
        "http://[::1]:3000",
        "https://xn--bcher-kva.example",
        "chrome-extension://abcdefghijklmnop",
        "app://obsidian.md",
        "https://under_score.example",
    ],
)
def test_what_browsers_send_is_an_origin(tmp_path: Path, origin: str) -> None:
    (tmp_path / "gateway.yaml").write_text(f"{CLIENTS}cors: ['{origin}']\n")
    assert load(tmp_path / "gateway.yaml", {}).cors == (origin,)


def test_no_origin_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("cors:\n")
    assert load(tmp_path / "gateway.yaml", {}).cors == ()
