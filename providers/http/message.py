"""A request as bytes of either protocol. The part that is the same for every call to a provider is built only once."""

from collections.abc import Mapping, Sequence

from providers.http.response import Field
from providers.sendings import Sendings

_NAMES_WITH_MEANING = frozenset({"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding"})


class Head:
    """The constant part of a request: method, target and the provider's own header fields.

    ``fields`` have lower-case names. ``http1`` is the request line and the fields, without the empty line at the end;
    ``http2`` is the beginning of the header block.
    """

    __slots__ = ("authority", "fields", "http1", "http2", "method", "scheme", "target")

    def __init__(
        self, method: str, scheme: str, authority: str, target: str, headers: Mapping[str, str], *, absolute: bool
    ) -> None:
        """Build it; ``absolute``: with the whole URL as target, which a proxy needs.

        Raises:
            ValueError: a method, target or field that could split the message.

        """
        if not (_is_token(method) and target.startswith("/") and _is_visible(target)):
            raise ValueError(f"{method!r} {target!r} cannot be sent as a request line")
        self.method = method
        self.scheme = scheme
        self.authority = authority
        self.target = target
        self.fields = checked(headers)
        where = f"{scheme}://{authority}{target}" if absolute else target
        line = f"{method} {where} HTTP/1.1\r\nhost: {authority}\r\n".encode("latin-1")
        self.http1 = line + rendered(self.fields)
        self.http2: bytes | None = None  # set by the first HTTP/2 connection that needs it


class Request:
    """One request: a head, further header fields of this call, and the body."""

    __slots__ = ("body", "extra", "head", "once", "sendings")

    def __init__(
        self,
        head: Head,
        extra: Sequence[Field],
        body: bytes | None,
        *,
        once: bool = False,
        sendings: Sendings | None = None,
    ) -> None:
        self.head = head
        self.extra = extra
        self.body = body  # None: no body, and no content-length
        self.once = once  # it has side effects at the server, so it must not be sent again
        self.sendings = Sendings() if sendings is None else sendings


def checked(headers: Mapping[str, str]) -> tuple[Field, ...]:
    """Return header fields with lower-case names.

    Raises:
        ValueError: one is not valid: it has control characters, or only the connection may set it.

    """
    fields = []
    for name, value in headers.items():
        lower = name.lower()
        if not (_is_token(lower) and value.isprintable()) or lower in _NAMES_WITH_MEANING:
            raise ValueError(f"{name!r} cannot be sent as a header field")
        fields.append((lower.encode("ascii"), value.strip().encode("utf-8")))
    return tuple(fields)


def rendered(fields: Sequence[Field]) -> bytes:
    """Return fields in the format of HTTP/1.1."""
    return b"".join(name + b": " + value + b"\r\n" for name, value in fields)


def _is_visible(text: str) -> bool:
    """Whether all characters are visible ASCII."""
    return text.isascii() and text.isprintable() and " " not in text


def _is_token(name: str) -> bool:
    return bool(name) and name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum()
