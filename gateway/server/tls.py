"""TLS: the certificate of the gateway's port, and the authorities that it trusts; read again when they change."""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from gateway.core.tasks import WatchedFiles
from gateway.settings import TlsSettings
from providers.http import authority_files

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsError(Exception):
    """The certificate or its key cannot be used; the message says which, why, and what to do."""


def open_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for client connections, with the current certificate and key.

    Raises:
        TlsError: they cannot be read, or do not belong together.

    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION  # it would cost us a handshake each time
    context.set_alpn_protocols(["http/1.1"])
    for name, path in (("certificate", settings.certificate), ("key", settings.key)):
        _check_is_readable(name, path)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        raise TlsError(_explained(error, settings)) from None
    except OSError as error:  # deleted since
        raise TlsError(f"tls: cannot read {error.filename or settings.certificate}: {error.strerror}") from None
    return context


class Certificate:
    """The certificate in use: ``context`` is for new connections; ``on_change`` is called for a new certificate."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files of ``settings``.

        Raises:
            TlsError: they cannot be used.

        """
        self.on_change: Callable[[ssl.SSLContext], None] = lambda _: None
        self._settings = settings
        self._files = WatchedFiles((Path(settings.certificate), Path(settings.key)))
        self._files.note()
        self.context = open_context(settings)
        self._log = structlog.get_logger()

    def look(self, *, at_once: bool) -> None:
        """Read certificate and key again if they have changed; if they cannot be used, the old ones stay.

        ``at_once``: also if they may still be in the process of being written.
        """
        if not (self._files.have_changed() or at_once):
            return
        try:
            self.context = open_context(self._settings)
        except TlsError as error:
            # Event tls.invalid: The changed certificate or key cannot be used (`problem`). The one in use stays.
            # Do: Correct the files.
            self._log.error("tls.invalid", problem=str(error), effect="the certificate in use stays")
            return
        self.on_change(self.context)
        # Event tls.reloaded: The changed certificate is used for new connections.
        # Do: Nothing.
        self._log.info("tls.reloaded", certificate=self._settings.certificate)


class Authorities:
    """The authorities that the gateway trusts: OpenSSL's own, or those in SSL_CERT_FILE and SSL_CERT_DIR."""

    def __init__(self, renew: Callable[[], None], environ: Mapping[str, str]) -> None:
        """``renew`` lets new connections trust the changed authorities. Earlier connections trust those of now."""
        self._renew = renew
        self._environ = environ
        self._files = WatchedFiles(tuple(authority_files(environ)))
        self._files.note()
        self._log = structlog.get_logger()

    def look(self, *, at_once: bool) -> None:
        """Read the authorities again if they have changed; if SSL_CERT_FILE cannot be used, the former stay trusted.

        ``at_once``: also if they may still be in the process of being written.
        """
        self._files.watch(tuple(authority_files(self._environ)))
        has_changed = self._files.have_changed()
        if not (has_changed or at_once):
            return
        if (problem := problem_of_authorities(self._environ)) is not None:
            # Event tls.authorities_invalid: The changed file in `SSL_CERT_FILE` cannot be used (`problem`). What was in
            # it before stays trusted.
            # Do: Correct the file.
            self._log.error("tls.authorities_invalid", problem=problem, effect="the authorities before stay trusted")
            return
        self._renew()
        if not has_changed:
            return
        # Event tls.authorities_reloaded: New connections to providers, receivers of alerts, issuers and ClickHouse
        # trust the authorities that are there now.
        # Do: Nothing.
        self._log.info("tls.authorities_reloaded")


def problem_of_authorities(environ: Mapping[str, str]) -> str | None:
    """Return why SSL_CERT_FILE cannot be used, which OpenSSL ignores silently; None: it can, or is not set."""
    path = environ.get("SSL_CERT_FILE")
    if not path:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:
        return f"SSL_CERT_FILE names {path}, which cannot be used: {error.strerror or 'it holds no certificate'}"
    return None


def _check_is_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except FileNotFoundError:
        raise TlsError(f"tls.{name}: there is no file {path}") from None
    except OSError as error:
        raise TlsError(f"tls.{name}: cannot read {path}: {error.strerror}; let the gateway's user read it") from None


def _refuse_passphrase() -> str:
    raise TlsError("tls.key: the key has a passphrase: use a key without one")


def _explained(error: ssl.SSLError, settings: TlsSettings) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"tls: the key in {settings.key} does not belong to the certificate in {settings.certificate}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(settings.certificate)
    except (OSError, ssl.SSLError):
        return f"tls.certificate: there is no usable PEM certificate in {settings.certificate}"
    if error.reason in (None, "NO_START_LINE", "PEM_LIB") or "PEM" in str(error):
        return f"tls.key: there is no usable PEM key in {settings.key}"
    return f"tls: {settings.certificate} and {settings.key} cannot be used: {error.reason}"
