"""The certificate on the port: what can be used, what is said of the rest, and when it is read again."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
import trustme
from cryptography.hazmat.primitives import serialization

from gateway.server import TlsError, open_context
from gateway.server.tls import Certificate
from gateway.settings import TlsSettings

CA = trustme.CA()
PASSPHRASE = serialization.BestAvailableEncryption(b"secret")


def issue(folder: Path) -> TlsSettings:
    """Write a new pair, as whoever renews certificates does, and return where it is."""
    issued = CA.issue_cert("localhost")
    certificate, key = folder / "fullchain.pem", folder / "privkey.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return TlsSettings(certificate=str(certificate), key=str(key))


def lock(key: Path) -> None:
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(private.private_bytes(encoding, form, PASSPHRASE))


def swap(path: Path) -> None:
    path.write_bytes(CA.issue_cert("localhost").private_key_pem.bytes())


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("name", "breaking", "said"),
    [
        ("certificate", Path.unlink, "tls.certificate: there is no file"),
        ("certificate", cut_short, "tls.certificate: there is no usable PEM certificate"),
        ("certificate", Path.mkdir, "tls.certificate: cannot read"),
        ("key", Path.unlink, "tls.key: there is no file"),
        ("key", cut_short, "tls.key: there is no usable PEM key"),
        ("key", lock, "tls.key: the key has a passphrase"),
        ("key", swap, "does not belong to the certificate"),
    ],
)
def test_what_is_wrong_with_the_files_is_said(
    tmp_path: Path, name: str, breaking: Callable[[Path], None], said: str
) -> None:
    settings = issue(tmp_path)
    path = Path(getattr(settings, name))
    if breaking is Path.mkdir:
        path.unlink()
    breaking(path)
    with pytest.raises(TlsError, match=said):
        open_context(settings)


def test_the_least_version_is_the_settings(tmp_path: Path) -> None:
    settings = issue(tmp_path)
    assert open_context(settings).minimum_version is ssl.TLSVersion.TLSv1_2
    newer = settings.model_copy(update={"min_version": "1.3"})
    assert open_context(newer).minimum_version is ssl.TLSVersion.TLSv1_3


def test_yaml_makes_a_number_of_the_version() -> None:
    assert TlsSettings.model_validate({"certificate": "c", "key": "k", "min_version": 1.3}).min_version == "1.3"


def watched(settings: TlsSettings) -> tuple[Certificate, list[ssl.SSLContext]]:
    """Return the certificate, and the contexts that have been used since."""
    used: list[ssl.SSLContext] = []
    certificate = Certificate(settings)
    certificate.on_change = used.append
    return certificate, used


def test_a_changed_pair_is_used_once_nobody_writes_it_any_more(tmp_path: Path) -> None:
    settings = issue(tmp_path)
    certificate, used = watched(settings)
    issue(tmp_path)
    certificate.look(at_once=False)
    assert used == []
    certificate.look(at_once=False)
    certificate.look(at_once=False)
    assert used == [certificate.context]
    certificate.look(at_once=True)  # a signal
    assert len(used) == 2


def test_a_pair_that_cannot_be_used_leaves_the_old_one_in_use_and_is_told_of_once(tmp_path: Path) -> None:
    settings = issue(tmp_path)
    certificate, used = watched(settings)
    swap(Path(settings.key))
    with structlog.testing.capture_logs() as logged:
        for _ in range(5):
            certificate.look(at_once=False)
    assert [entry["event"] for entry in logged] == ["tls.invalid"]
    assert used == []
    issue(tmp_path)
    certificate.look(at_once=False)
    certificate.look(at_once=False)
    assert used == [certificate.context]
