"""Sends one message to one webhook, over HTTP."""

import errno
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gateway.alerts.alert import (
    Alert,
    AlertEvent,
    AlertMessage,
    AlertScope,
    DeliveryResult,
    Severity,
    signed_headers,
    unsigned_headers,
)
from gateway.core.terminal_text import visible
from gateway.settings import Format, WebhookSettings, key_of
from providers import redact
from providers.http import TlsContexts, proxy_of

# Messages as JSON, and in the format of Slack's incoming webhooks.

MOST_TEXT = 2800  # characters of a block of Slack's, which takes 3000
MOST_LINE = 240  # characters of the text for one of several messages
_ALONE = "The database is away, so each process says this by itself: the message may come several times."


def body(message: AlertMessage, form: Format, also: Sequence[AlertMessage] = ()) -> bytes:
    """Return the body of a message; in Slack's format with the messages of ``also``, which waited."""
    of_slack = _gathered if also else _slack
    return msgspec.json.encode(of_slack(message, *also) if form is Format.SLACK else _json(message))


def _json(message: AlertMessage) -> dict[str, Any]:
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


def _slack(message: AlertMessage) -> dict[str, Any]:
    """Return a text for notifications, and blocks for the channel."""
    alert = message.alert
    head = f"{_sign(message)} {_escaped(alert.summary)}"
    facts = f"{alert.severity} · {alert.kind} · opened {alert.opened_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if alert.resolved_at is not None:
        facts += f" · lasted {_lasted(alert, alert.resolved_at)}"
    if alert.scope is AlertScope.PROCESS:
        facts += f"\n{_ALONE}"
    return {
        "text": head[:MOST_TEXT],
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": head[:MOST_TEXT]}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": _escaped(facts)[:MOST_TEXT]}]},
            {"type": "section", "text": {"type": "mrkdwn", "text": f"```{_escaped(alert.sql)[:MOST_TEXT]}```"}},
        ],
    }


def _gathered(*messages: AlertMessage) -> dict[str, Any]:
    """Return one text for several messages: as many as a block holds, each shortened, and the number of the others."""
    text, named = f"{len(messages)} messages about alerts", 0
    for message in messages:
        line = f"\n{message.created_at.astimezone(UTC):%H:%M} {_sign(message)} {_escaped(message.alert.summary)}"
        line = line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]} …"
        if len(text) + len(line) > MOST_TEXT - MOST_LINE:
            break
        text, named = text + line, named + 1
    if named < len(messages):
        text += f"\n… and {len(messages) - named} more: `holeshot alerts` lists them"
    if any(each.alert.scope is AlertScope.PROCESS for each in messages):
        text += f"\n{_ALONE}"
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]}


def _sign(message: AlertMessage) -> str:
    if message.event is AlertEvent.TEST:
        return "*Test:*"
    if message.event is AlertEvent.RESOLVED:
        return "*Resolved.* At its start:"
    return "*Look now:*" if message.alert.severity is Severity.PAGE else "*Look today:*"


def _lasted(alert: Alert, until: datetime) -> str:
    minutes = max(0, round((until - alert.opened_at).total_seconds() / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004 - an hour


def _escaped(text: str) -> str:
    """Return ``text`` without mentions and links for Slack: a name from outside must not notify a whole channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("```", "'''")


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


TIMEOUT_S = 10.0  # for an attempt, from the DNS lookup to the answer
_SHOWN_BYTES = 500  # of an answer
_GONE = 410  # by the specification: send no more
_OK, _REDIRECTS = range(200, 300), range(300, 400)
_BUSY = (429, 503)  # with these statuses retry-after says when the receiver takes more
MOST_WAIT_S = 3600.0
_LONGEST_DIGITS = 9

# Addresses at which clouds give credentials to programs on a machine. No receiver of alerts has such an address, but
# its DNS name may point there once the name's owner has changed.
_METADATA = tuple(
    map(
        ip_network,
        (
            *("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"),
            *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")  # the last four bytes are an IPv4 address


class MetadataAddressError(OSError):
    """A receiver's address is one at which a cloud gives out credentials."""


# In this order: some classes are subclasses of others.
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
    """Sends messages. Redirects are not followed: a checked address must not lead to another receiver."""

    def __init__(
        self,
        *,
        unix_clock: Callable[[], float],
        user_agent: str,
        timeout_s: float = TIMEOUT_S,
        tls: TlsContexts | None = None,
    ) -> None:
        """``tls``: contexts that others use, too; None: contexts of its own."""
        self._tls = tls or TlsContexts()
        self._unix_clock = unix_clock
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, webhook: WebhookSettings, message: AlertMessage, also: Sequence[AlertMessage] = ()
    ) -> "SendResult":
        """Try once and return the result; raises only when cancelled. For ``also`` see ``body``."""
        content = body(message, webhook.format, also)
        headers = {
            **self._identity(webhook, message, content),
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": self._user_agent,
        }
        session = self._session = self._session or self._connecting()
        url = webhook.url.get_secret_value()
        try:
            through = _through(url)
            async with session.post(
                url,
                data=content,
                headers=headers | through.headers,
                allow_redirects=False,
                ssl=self._tls.of(url),
                **through.options,
            ) as response:
                reply = b""
                with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):  # the status is enough
                    reply = await response.content.read(_SHOWN_BYTES)
                wait_s = _wait_s(response.headers.get("retry-after", ""), self._unix_clock())
                return _result(response.status, reply, webhook, wait_s if response.status in _BUSY else None)
        except _ProxyUnusable as error:
            return SendResult(DeliveryResult(ok=False, answer=f"not sent: {error}"))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return SendResult(DeliveryResult(ok=False, answer=self._cause(error)))

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _identity(self, webhook: WebhookSettings, message: AlertMessage, content: bytes) -> Mapping[str, str]:
        now_s = int(self._unix_clock())
        if webhook.secret is None:
            return unsigned_headers(message.id, now_s)
        return signed_headers(key_of(webhook.secret), message.id, now_s, content)

    def _connecting(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # the body is only shown
            # One connection for each message; their number is limited. A receiver that hangs must not delay others.
            connector=aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=_socket),
        )

    def _cause(self, error: Exception) -> str:
        """Return the cause in words, without the address, which may be a secret."""
        if isinstance(getattr(error, "os_error", error), MetadataAddressError):
            return "not sent: its host is an address of this machine's network or of the cloud's metadata"
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        for kind, words in _CAUSES.items():
            if isinstance(error, kind):
                return words
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"the proxy answered {error.status}"
        if isinstance(error, aiohttp.ClientConnectorError):
            to = " to the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
            return f"no connection{to}: {errno.errorcode.get(error.errno or 0, 'failed')}"
        return f"not sent: {type(error).__name__}"


class _ProxyUnusable(Exception):
    """The environment names a proxy that is not supported."""


class _Through(msgspec.Struct, frozen=True):
    """What a request needs to go through a proxy; empty if the request goes to its receiver directly."""

    headers: dict[str, str] = {}
    options: dict[str, Any] = {}


def _through(url: str) -> _Through:
    """Return the way to a receiver by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, the same as for providers.

    Raises:
        MetadataAddressError: the receiver is an address of a cloud's, which the proxy would look up.
        _ProxyUnusable: the proxy cannot be used.

    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        proxy = proxy_of(parts.scheme, host, parts.port)
    except ValueError as error:
        raise _ProxyUnusable(str(error)) from None
    if proxy is None:
        return _Through()
    address = _address(host)
    if address is not None and _is_metadata(address):
        raise MetadataAddressError(errno.EPERM, "no alerts are sent to this address")
    name = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
    options: dict[str, Any] = {"proxy": f"{proxy.scheme}://{name}:{proxy.port}"}
    known = {} if proxy.authorization is None else {"proxy-authorization": proxy.authorization}
    return _Through(known, options) if parts.scheme == "http" else _Through(options=options | {"proxy_headers": known})


def _address(host: str) -> str | None:
    """Return the IP address for which ``host`` stands, however it is written; None for a name."""
    try:
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        with suppress(OSError):
            return socket.inet_ntoa(socket.inet_aton(host))
    return None


class SendResult(msgspec.Struct, frozen=True):
    """The result of an attempt, and the beginning of the receiver's reply, which ``alerts test`` shows; not stored."""

    delivery: DeliveryResult
    reply: str = ""


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket for one of the addresses to which a host name resolves.

    Raises:
        MetadataAddressError: no alert is sent to this address.

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


def _wait_s(said: str, now_s: float) -> float | None:
    """Return the seconds that a retry-after asks for, at most an hour; None: it asks for nothing."""
    said = said.strip()
    if said.isascii() and said.isdigit():
        return min(float(said[:_LONGEST_DIGITS]), MOST_WAIT_S)
    try:
        return min(max(0.0, parsedate_to_datetime(said).timestamp() - now_s), MOST_WAIT_S)
    except (ValueError, OverflowError):
        return None


def _result(status: int, reply: bytes, webhook: WebhookSettings, wait_s: float | None) -> SendResult:
    address = webhook.url.get_secret_value()
    parts = urlsplit(address)
    secrets = [address, f"{parts.path}?{parts.query}", parts.path, parts.query]  # a page may say what was not found
    if webhook.secret is not None:
        secrets.append(webhook.secret.get_secret_value())
    words = visible(redact(reply.decode("utf-8", "replace"), secrets))
    answer = f"{status}, a redirect, which is not followed" if status in _REDIRECTS else str(status)
    return SendResult(DeliveryResult(ok=status in _OK, answer=answer, final=status == _GONE, wait_s=wait_s), words)
