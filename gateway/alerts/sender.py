"""Sends one message to one webhook, over HTTP."""

import errno
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gateway.alerts.alert import Alert, Delivery, Event, Message, Scope, Severity, signed_headers, unsigned_headers
from gateway.core.terminal_text import visible
from gateway.settings import Format, WebhookSettings, key_of
from providers import redact

# Messages as JSON, and as Slack's incoming webhooks take them.

MOST_TEXT = 2800  # characters of a block of Slack's, which takes 3000
_ALONE = "The database is away, so each process says this by itself: the message may come several times."


def body(message: Message, form: Format) -> bytes:
    """Return the body of a message."""
    return msgspec.json.encode(_slack(message) if form is Format.SLACK else _json(message))


def _json(message: Message) -> dict[str, Any]:
    alert = message.alert
    return {
        "type": message.event,
        "timestamp": _instant(message.created_at),
        "data": {
            "id": alert.id,
            "key": alert.key,
            "kind": alert.kind,
            "subject": alert.subject,
            "severity": alert.severity,
            "summary": alert.summary,
            "figures": dict(alert.figures),
            "opened_at": _instant(alert.opened_at),
            "resolved_at": None if alert.resolved_at is None else _instant(alert.resolved_at),
            "replica": alert.replica,
            "scope": alert.scope,
            "sql": alert.sql,
        },
    }


def _slack(message: Message) -> dict[str, Any]:
    """Return a text for notifications, and blocks for the channel."""
    alert = message.alert
    head = f"{_sign(message)} {_escaped(alert.summary)}"
    facts = f"{alert.severity} · {alert.kind} · opened {alert.opened_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if alert.resolved_at is not None:
        facts += f" · lasted {_lasted(alert, alert.resolved_at)}"
    if alert.scope is Scope.PROCESS:
        facts += f"\n{_ALONE}"
    return {
        "text": head[:MOST_TEXT],
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": head[:MOST_TEXT]}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": _escaped(facts)[:MOST_TEXT]}]},
            {"type": "section", "text": {"type": "mrkdwn", "text": f"```{_escaped(alert.sql)[:MOST_TEXT]}```"}},
        ],
    }


def _sign(message: Message) -> str:
    if message.event is Event.TEST:
        return "*Test:*"
    if message.event is Event.RESOLVED:
        return "*Resolved:*"
    return "*Look now:*" if message.alert.severity is Severity.PAGE else "*Look today:*"


def _lasted(alert: Alert, until: datetime) -> str:
    minutes = max(0, round((until - alert.opened_at).total_seconds() / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004 - an hour


def _escaped(text: str) -> str:
    """Return text in which Slack sees no mention or link: a name from outside must not call everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("```", "'''")


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


TIMEOUT_S = 10.0  # of an attempt, from the name's look-up to the answer
_SHOWN_BYTES = 500  # of an answer
_GONE = 410  # "do not send any more", as the specification has it
_OK, _REDIRECTS = range(200, 300), range(300, 400)

# Where clouds give credentials to programs on a machine. No receiver of alerts has such an address, but the name of one
# whose owner has changed might lead there.
_METADATA = tuple(
    map(
        ip_network,
        (
            *("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"),
            *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")  # in its last four bytes is an address of IPv4


class MetadataAddressError(OSError):
    """The address of a receiver is one where a cloud gives credentials away."""


# In this order: some are kinds of others.
_CAUSES: Mapping[type[Exception], str] = {
    aiohttp.ClientConnectorDNSError: "the name of its host is not known",
    aiohttp.ClientConnectorCertificateError: "its certificate is not trusted",
    aiohttp.ClientSSLError: "no TLS connection",
    ssl.SSLError: "no TLS connection",
    aiohttp.InvalidURL: "its URL has no host that can be used",
    aiohttp.ServerDisconnectedError: "the connection was closed without an answer",
    ConnectionError: "the connection was closed without an answer",
}


class Sender:
    """Sends messages. Redirects are not followed: an address that was checked must not name another receiver."""

    def __init__(self, *, unix_clock: Callable[[], float], user_agent: str, timeout_s: float = TIMEOUT_S) -> None:
        self._unix_clock = unix_clock
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def send(self, webhook: WebhookSettings, message: Message) -> "Answered":
        """Try once; never raises but when cancelled."""
        content = body(message, webhook.format)
        headers = {
            **self._identity(webhook, message, content),
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": self._user_agent,
        }
        session = self._session = self._session or self._connecting()
        try:
            async with session.post(
                webhook.url.get_secret_value(), data=content, headers=headers, allow_redirects=False
            ) as response:
                said = b""
                with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):  # its status has said it
                    said = await response.content.read(_SHOWN_BYTES)
                return _answered(response.status, said, webhook)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Answered(Delivery(ok=False, answer=self._cause(error)))

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _identity(self, webhook: WebhookSettings, message: Message, content: bytes) -> Mapping[str, str]:
        now_s = int(self._unix_clock())
        if webhook.secret is None:
            return unsigned_headers(message.id, now_s)
        return signed_headers(key_of(webhook.secret), message.id, now_s, content)

    def _connecting(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # what it says is of no matter
            # One for each message, of which there are only so many at once: who hangs must not keep others waiting.
            connector=aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=_socket),
        )

    def _cause(self, error: Exception) -> str:
        """Return what went wrong, without the address, which may be a secret."""
        if isinstance(getattr(error, "os_error", error), MetadataAddressError):
            return "not sent: its host is an address of this machine's network or of the cloud's metadata"
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        for kind, words in _CAUSES.items():
            if isinstance(error, kind):
                return words
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"no connection: {errno.errorcode.get(error.errno or 0, 'failed')}"
        return f"not sent: {type(error).__name__}"


class Answered(msgspec.Struct, frozen=True):
    """What became of an attempt, and the beginning of what the receiver said: shown to who tests it, never stored."""

    delivery: Delivery
    said: str = ""


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket for one address that a name stands for, however it was written.

    Raises:
        MetadataAddressError: no alert is sent there.

    """
    family, kind, protocol, _, (host, *_) = address
    if _is_metadata(host):
        raise MetadataAddressError(errno.EPERM, "no alerts are sent to this address")
    return socket.socket(family, kind, protocol)


def _is_metadata(host: str) -> bool:
    found = ip_address(host.partition("%")[0])
    if isinstance(found, IPv6Address):
        packed = ip_address(found.packed[-4:]) if found in _NAT64 else found.sixtofour
        found = found.ipv4_mapped or packed or found
    return any(found in network for network in _METADATA if network.version == found.version)


def _answered(status: int, said: bytes, webhook: WebhookSettings) -> Answered:
    address = webhook.url.get_secret_value()
    parts = urlsplit(address)
    secrets = [address, f"{parts.path}?{parts.query}", parts.path, parts.query]  # a page may say what was not found
    if webhook.secret is not None:
        secrets.append(webhook.secret.get_secret_value())
    words = visible(redact(said.decode("utf-8", "replace"), secrets))
    answer = f"{status}, a redirect, which is not followed" if status in _REDIRECTS else str(status)
    return Answered(Delivery(ok=status in _OK, answer=answer, final=status == _GONE), words)
