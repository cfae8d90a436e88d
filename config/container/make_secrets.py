"""Makes what `docker compose up` needs and nobody has given: Postgres's passwords and the owner's key to the gateway.

Run once at each start, as ``make_secrets.py FOLDER``; what is there stays. The variables POSTGRES_PASSWORD and
OWNER_KEY_SHA256 go before what was made. The files are postgres_password (of the role that owns the tables),
database_url, reader_password and reader_url (of a role that only reads), admin_password (of Postgres's superuser),
owner_key (unless the owner has their own), owner_key_sha256, prometheus_key, prometheus_key_sha256, grafana_password.
"""

import hashlib
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

OURS = 0o600
OTHERS_TOO = 0o644  # the containers of Postgres, Prometheus and Grafana have other users; nobody else has this volume


def make(folder: Path, given: Mapping[str, str]) -> bool:
    """Write the files that are missing or whose value has changed; return whether a key was made for the owner."""
    password = given.get("POSTGRES_PASSWORD") or _kept(folder / "postgres_password") or secrets.token_hex(24)
    _write(folder / "postgres_password", password, OTHERS_TOO)
    _write(folder / "database_url", f"postgresql://holeshot:{quote(password, safe='')}@postgres:5432/holeshot", OURS)
    reader = _kept(folder / "reader_password") or secrets.token_hex(24)
    _write(folder / "reader_password", reader, OTHERS_TOO)
    _write(folder / "reader_url", f"postgresql://holeshot_reader:{reader}@postgres:5432/holeshot", OURS)
    _write(folder / "admin_password", _kept(folder / "admin_password") or secrets.token_hex(24), OTHERS_TOO)
    digest = given.get("OWNER_KEY_SHA256")
    key = _kept(folder / "owner_key")
    is_new = not digest and not key
    if is_new:
        key = f"hs-{secrets.token_urlsafe(32)}"
        _write(folder / "owner_key", key, OURS)
    _write(folder / "owner_key_sha256", digest or hashlib.sha256(key.encode()).hexdigest(), OURS)
    scraper = _kept(folder / "prometheus_key") or f"hs-{secrets.token_urlsafe(32)}"
    _write(folder / "prometheus_key", scraper, OTHERS_TOO)
    _write(folder / "prometheus_key_sha256", hashlib.sha256(scraper.encode()).hexdigest(), OURS)
    _write(folder / "grafana_password", _kept(folder / "grafana_password") or secrets.token_hex(16), OTHERS_TOO)
    return is_new


def _kept(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(path: Path, content: str, mode: int) -> None:
    """Write a file that is there whole or not at all, and never readable for others in between."""
    if _kept(path) == content:
        return
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OURS), "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor
        opened.write(content)
    fresh.chmod(mode)
    fresh.rename(path)


if __name__ == "__main__":
    secrets_folder = Path(sys.argv[1])
    if make(secrets_folder, os.environ):
        print("A key was made for you. To see it: docker compose exec gateway cat", secrets_folder / "owner_key")  # noqa: T201 - what it is run for
