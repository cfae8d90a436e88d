"""What every stand-in is: a vendor that answers or refuses a request, and remembers what it was asked and refused.

It knows no socket (``serving.py`` has those), so that its rules are tried in unit tests without one.
"""

import hashlib
import itertools
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, TextIO, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct, structs

from strict_vendors.script import Asked, Broken, Given, answered
from strict_vendors.shapes import Fault, Shape, faults

Json = dict[str, Any]
AModel = TypeVar("AModel", bound=Struct)
# Whether an answer breaks off in the middle, falls silent there, or ends there early.
Breaks = bool | Literal["silent", "early"]


class Request(Struct, frozen=True):
    """One request: ``path`` without its query, headers in lower case, ``body`` as it was read from JSON."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    body: Any = None
    named: Mapping[str, str] = {}  # what stands at the ``{names}`` of the route


class Reply(Struct, frozen=True):
    """What goes back: JSON, bytes, or the blocks of a stream; ``breaks`` closes the connection after half of them.

    Or it waits there, ``silent``, until who asked has left; or a stream ends there ``early``, without its last blocks.
    ``late_s``: so many seconds pass before it begins, and ``rest_s`` in the middle of a stream.
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    blocks: Sequence[bytes] | None = None
    breaks: Breaks = False
    content_type: str = ""
    late_s: float = 0.0
    rest_s: float = 0.0


class Refused(Exception):
    """The vendor refuses: status, words, code and the field as its errors have them.

    ``rule`` is a short name of the rule and ``page`` where it is written: for who reads ``vendor.refusals``.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        rule: str,
        page: str = "",
        kind: str | None = None,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.code, self.param = status, message, kind, code, param
        self.rule, self.page, self.headers = rule, page, headers or {}


class Refusal(Struct, frozen=True):
    """A request that was refused, as tests look at it."""

    request: Request
    status: int
    message: str
    rule: str
    page: str
    code: str | None = None
    param: str | None = None


Handler = Callable[[Request], Reply]
Route = tuple[str, str, Handler]


class Vendor:
    """A stand-in. A vendor's class says its name, where its API begins, its key, its routes and how it refuses."""

    name: ClassVar[str]
    base: ClassVar[str] = "/v1"  # what its base URL ends with
    key: str = "sk-strict-vendor"
    context: int = 0  # tokens that its models hold, prompt and answer; 0: as many as each really does
    pages: ClassVar[Sequence[str]] = ()  # where its rules come from

    def __init__(self, seed: str = "", account: str = "") -> None:
        """``seed`` makes its ids repeatable (without, no two give the same one); ``account`` opens what it seals."""
        self.seen: list[Request] = []
        self.refusals: list[Refusal] = []
        self.account = account
        self.ids = Ids(f"{self.name}{seed or secrets.token_hex(8)}")
        self.tells: TextIO | None = None  # where refusals are printed
        self.failures: dict[str, int] = {}  # how often it failed as a text asked it to
        self.late_s = self.rest_s = 0.0  # of the answer that is being made, as its text asks: see ``Reply``
        self._routes = [(method, _pattern(path), handler) for method, path, handler in self.routes()]

    @property
    def second_key(self) -> str:
        """The key of its second account."""
        return f"{self.key}-2"

    @cached_property
    def second_account(self) -> "Vendor":
        """Another account at this vendor: it opens nothing of the first one's; what it sees and refuses is seen here."""
        found = type(self)(account=f"{self.account}-2")
        found.key, found.tells, found.context = self.second_key, self.tells, self.context
        found.seen, found.refusals, found.failures = self.seen, self.refusals, self.failures
        return found

    def of_key(self, headers: Mapping[str, str]) -> "Vendor":
        """Return the account whose key a request has."""
        is_seconds = any(self.second_key in value for value in headers.values())
        return self.second_account if is_seconds else self

    def routes(self) -> Sequence[Route]:
        """Return method, path (``{name}`` for one step, ``{name*}`` for several) and handler."""
        raise NotImplementedError

    def admit(self, request: Request) -> None:
        """Refuse a request without the key."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if given != self.key:
            self.refuse_key(given)

    def sized(self, model: AModel) -> AModel:
        """Return a model (any that has a ``context``) with the context that this stand-in was given."""
        return structs.replace(model, context=self.context) if self.context else model

    def refuse_key(self, given: str) -> None:
        """Refuse a key that is wrong, or that is missing (``given`` is empty)."""
        raise Refused(401, f"Incorrect API key provided: {given}.", rule="key", code="invalid_api_key")

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, f"Invalid URL ({request.method} {request.path})", rule="path")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in the vendor's shape; OpenAI's, if nothing else is said."""
        error = {
            "message": refused.message,
            "type": refused.kind or "invalid_request_error",
            "param": refused.param,
            "code": refused.code,
        }
        return Reply({"error": error}, refused.status, refused.headers)

    def broken(self, broken: Broken) -> Refused:
        """Return the refusal of a failure that the text asked for (``fail: 500``)."""
        return Refused(broken.status, f"failed with {broken.status}, as asked for", rule="as asked for")

    def faults_in(self, shape: Shape, body: Any) -> Iterator[Fault]:
        """Yield what is wrong with a body. A stand-in of one's own may let some of it pass."""
        return faults(shape, body)

    def given(self, asked: Asked) -> Given:
        """Return what is answered to a request that is not refused. A stand-in of one's own may say something else.

        Raises:
            Broken: the text asks for a failure.

        """
        self.late_s, self.rest_s = (float(asked.said(word) or 0) for word in ("slow", "rest"))
        return answered(asked, self.failures)

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        """Answer a request, or refuse it; keeps it in ``seen``, and a refusal in ``refusals``."""
        split = urlsplit(url)
        path = unquote(split.path)
        request = Request(
            method, path, {name.lower(): value for name, value in headers.items()}, dict(parse_qsl(split.query))
        )
        self.late_s = self.rest_s = 0.0
        try:
            request = _with(request, body=self.parsed(body) if body else None)
            self.seen.append(request)
            self.admit(request)
            for verb, pattern, handler in self._routes:
                if verb == method and (found := pattern.fullmatch(path)):
                    reply = handler(_with(request, named=found.groupdict()))
                    return structs.replace(reply, late_s=self.late_s, rest_s=self.rest_s)
            return self.refuse_path(request)
        except Broken as broken:
            return self._refuse(request, self.broken(broken))
        except Refused as refused:
            return self._refuse(request, refused)

    def parsed(self, body: bytes) -> Any:
        """Return the JSON of a body."""
        try:
            return json.loads(body)
        except ValueError:
            raise Refused(
                400,
                "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP"
                " library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)",
                rule="json",
            ) from None

    def hears(self, _path: str) -> bool:
        """Say whether a WebSocket may be opened at an address."""
        return False

    def hear(self, message: Any, connection: dict[str, Any]) -> tuple[list[Json], Breaks]:
        """Return what answers a message of a WebSocket, and whether it breaks off in the middle."""
        raise NotImplementedError

    def _refuse(self, request: Request, refused: Refused) -> Reply:
        self.note(request, refused)
        return self.refusal(refused)

    def note(self, request: Request, refused: Refused) -> None:
        """Keep a refusal, and print it if that is wished."""
        self.refusals.append(
            Refusal(request, refused.status, refused.message, refused.rule, refused.page, refused.code, refused.param)
        )
        if self.tells is not None:
            page = f" ({refused.page})" if refused.page else ""
            print(f"{self.name} {request.path}: {refused.status} {refused.message}{page}", file=self.tells, flush=True)


class Ids:
    """Ids that look as the vendor's do: the same for the same sequence of requests, never twice."""

    def __init__(self, seed: str) -> None:
        self._seed, self._numbers = seed, itertools.count(1)

    def next(self, prefix: str, length: int = 24, alphabet: str = "0123456789abcdef") -> str:
        """Return a new id: ``prefix`` and ``length`` letters."""
        digest = b""
        number = next(self._numbers)
        for part in itertools.count():
            if len(digest) >= length:
                break
            digest += hashlib.sha256(f"{self._seed}/{number}/{part}".encode()).digest()
        return prefix + "".join(alphabet[byte % len(alphabet)] for byte in digest[:length])


LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def as_json(value: Any) -> bytes:
    """Return the shortest JSON of a value."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def as_data(events: Iterable[Json], end: bytes = b"data: [DONE]\n\n") -> list[bytes]:
    """Return the blocks of a stream that only has data, as chat's."""
    return [*(b"data: " + as_json(event) + b"\n\n" for event in events), *([end] if end else [])]


def as_named(events: Iterable[Json]) -> list[bytes]:
    """Return the blocks of a stream whose events have names, as Responses' and Messages'."""
    return [b"event: " + event["type"].encode() + b"\ndata: " + as_json(event) + b"\n\n" for event in events]


def _with(request: Request, **changed: Any) -> Request:
    return Request(**{name: changed.get(name, getattr(request, name)) for name in request.__struct_fields__})


def _pattern(path: str) -> re.Pattern[str]:
    several = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", path)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/:]+)", several))
