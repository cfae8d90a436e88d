"""Errors of requests to providers: one exception with a kind.

UpstreamError
└── its ``kind``
    ├── connect_error, connect_timeout       no connection (DNS, TCP, TLS)
    ├── local_resources                      this machine has no more file descriptors, ports or memory
    ├── disconnected                         the connection broke
    ├── ttft_timeout, stall_timeout, total_timeout   a clock of the gateway ran out
    ├── provider_auth (401, 402, 403 but a page), not_found (404)    the operator has to correct the configuration
    ├── no_such_api (404 of a path)          the provider does not have this API
    ├── rate_limited (429)
    ├── key_refused                          a key is limited or refused, and another one is asked instead
    ├── form_refused                         the form of the request is refused, and it is sent in another one
    ├── bad_request (400, 413, 422)          the client's own fault
    ├── server_error (5xx, and everything else)
    ├── invalid_response                     HTML, broken JSON, not an event stream
    ├── stream_error                         an error of no known kind inside a stream that began well
    ├── upstream_empty, upstream_truncated   the answer is empty, or incomplete
    ├── no_place                             a picture or sound, for which the client's API has no place
    └── invalid_answer                       the answer is not in the requested form (win_on: valid)
"""

import errno
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, Self

import msgspec

from providers.refusals.content import is_refused_by_filter
from providers.refusals.too_long import counts_too_many, is_too_long
from providers.refusals.vendor_limits import Limit, is_of_model, lack_of, limit_of

# Decoding JSON that others wrote may raise these: no JSON or another type, a string that is not UTF-8, nesting deeper
# than the decoder's stack.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Reading decoded JSON of no type may raise these as well, where fields are looked up.
SURPRISES: Final = (*UNREADABLE, AttributeError, TypeError, KeyError, ValueError)
# Finish reasons of a server that failed: OpenRouter's, vLLM's, Z.ai's and DeepSeek's
# (github.com/vllm-project/vllm/issues/57082, github.com/BerriAI/litellm/pull/24373, read on 2026-11-27).
FAILED: Final = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})


class About(StrEnum):
    """Whom an error is about: what the error counts against, and who can do something."""

    REQUEST = "request"  # the client's request: counts against no deployment
    STEP = "step"  # a key, or a form of the request; another is sent at once: counts against nobody
    LIMIT = "limit"  # the key or account, which may do no more for a while: no error of the deployment
    API = "api"  # an API that the deployment lacks: its other APIs work
    OPERATOR = "operator"  # the configuration: the error lasts until somebody corrects that
    GATEWAY = "gateway"
    DEPLOYMENT = "deployment"


class Clock(StrEnum):
    """The clock that ran out."""

    CONNECT = "connect"
    TTFT = "ttft"
    STALL = "stall"
    TOTAL = "total"


class RefusalScope(StrEnum):
    """How far the refusal of a request goes: who else may take the same request.

    Each row ends with those who are asked next, in three parts: the provider's other keys, or none; the model's other
    deployments (``Others`` in ``gateway/racing/ladder.py``); fallbacks with this cause (``cause_of`` in
    ``gateway/api``), or none. For example, after 400 "prompt is too long: 210000 tokens > 200000 maximum" no other key,
    deployments with a longer context, and fallbacks for ``context``.
    """

    MINUTE = "minute"  # more tokens than this key may use in a minute: other keys; all; failed
    MAKER = "maker"  # reasoning that only its maker's key can read: other keys; all; none
    TERMS = "terms"  # how the request is to be served (a tier, a choice of vendors): none; all; failed
    SIZE = "size"  # more than this vendor takes, but not of tokens (tools, pictures, bytes): none; all; failed
    LENGTH = "length"  # a prompt that is too long: none; those with a longer context; context
    CONTENT = "content"  # a filter: none; one of another provider; content_filter
    MODEL = "model"  # something that this model, or the place where it runs, cannot do: none; all; failed
    REQUEST = "request"  # the request may be wrong everywhere: none; one; none


OF_ONE_KEY: Final = frozenset({RefusalScope.MINUTE, RefusalScope.MAKER})
OF_SIZE: Final = frozenset({RefusalScope.LENGTH, RefusalScope.SIZE})
OF_ONE_DEPLOYMENT: Final = OF_ONE_KEY | OF_SIZE | {RefusalScope.TERMS}


class KindFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from an error of one kind: for health, SQL, money, the next attempt, and what clients read."""

    words: str  # why the attempt failed; the page's (gateway/page/assets/lib/words.js) are the same
    about: About = About.DEPLOYMENT
    clock: Clock | None = None
    status: int | None = None  # HTTP's, if the provider is not at fault
    is_sent: bool = True  # something of the request may have reached the provider
    is_billed: bool = True  # something may have been generated
    may_be_whole: bool = False  # after a finish reason the answer is whole all the same
    is_final: bool = False  # another provider would not continue the answer any better
    is_of_nobody: bool = False  # the message says nothing about a request, so everybody may read it
    is_absence: bool = False  # what was asked for is not there
    may_refuse: bool = False  # the words may name what is refused: "Unsupported parameter: 'verbosity'"
    may_refuse_within: bool = False  # the same, if the error came within an answer
    may_be_elsewhere: bool = False  # perhaps sent by something else than the API, such as a proxy


class ErrorKind(StrEnum):
    """Why an upstream request failed. The values appear in SQL, metrics and messages.

    Each kind is a row: ``KindFacts`` says what follows from the kind, and sets of kinds are made from the facts.
    """

    facts: KindFacts

    def __new__(cls, value: str, facts: KindFacts = KindFacts(words="")) -> Self:  # noqa: B008 - a value
        """Return the kind of this value, with its ``facts``."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.facts = facts
        return kind

    @property
    def status(self) -> int | None:
        """The kind's HTTP status, by which APIs find their own word; None: the gateway or the provider is at fault."""
        return HTTPStatus.GATEWAY_TIMEOUT if self.facts.clock is not None else self.facts.status

    @property
    def lasts(self) -> bool:
        """Whether errors of this kind last until the operator corrects something."""
        return self.facts.about in {About.OPERATOR, About.API}

    # Means: No connection to the provider: its name was not found, the port is closed, or TLS failed.
    # Do: Check `base_url`, DNS, firewall and proxy from this machine. For a private authority set `SSL_CERT_FILE`.
    CONNECT_ERROR = "connect_error", KindFacts(words="no connection", is_sent=False, is_billed=False)
    # Means: No connection within `connect_timeout_s`.
    # Do: Check firewall and route. Raise the time-out only for a provider that is far away.
    CONNECT_TIMEOUT = (
        "connect_timeout",
        KindFacts(
            words="no connection in time", clock=Clock.CONNECT, is_sent=False, is_billed=False, is_of_nobody=True
        ),
    )
    # Means: This machine had no file descriptor, port or memory for the request.
    # Do: Raise the limit of open files (`ulimit -n`, `LimitNOFILE=`).
    LOCAL_RESOURCES = (
        "local_resources",
        KindFacts(
            words="the gateway ran out of local resources",
            about=About.GATEWAY,
            is_sent=False,
            is_billed=False,
            is_final=True,
        ),
    )
    # Means: The connection broke before the answer was complete.
    # Do: If this happens often, ask the provider, and name the `attempts.provider_request_id`.
    DISCONNECTED = "disconnected", KindFacts(words="the connection was lost", may_be_whole=True)
    # Means: No first token within `ttft_timeout_s`.
    # Do: Compare with the deployment's usual time in `/leaderboard`. Raise the time-out for models that think for long.
    TTFT_TIMEOUT = "ttft_timeout", KindFacts(words="no first token in time", clock=Clock.TTFT)
    # Means: The stream stood still: for `stall_timeout_s`, after text for 60 s or half of `stall_timeout_s`; longer
    # where the model may have been writing a call of a tool.
    # Do: Raise the time-out for models that pause; else ask the provider.
    STALL_TIMEOUT = "stall_timeout", KindFacts(words="silent for too long", clock=Clock.STALL, may_be_whole=True)
    # Means: The whole answer took longer than `total_timeout_s`.
    # Do: Raise `total_timeout_s`, or leave it out: by default there is none.
    TOTAL_TIMEOUT = (
        "total_timeout",
        KindFacts(words="not done in time", clock=Clock.TOTAL, may_be_whole=True, is_final=True),
    )
    # Means: The provider refuses the key (401 or 403; some providers answer 400), or wants to be paid first (402; some
    # answer 429, `insufficient_quota`). A refusal of one request alone is `bad_request` or `server_error`.
    # Do: Set a valid key and reload, or pay. Until then the deployment is tried once a minute.
    PROVIDER_AUTH = (
        "provider_auth",
        KindFacts(words="the provider refused the key", about=About.OPERATOR, is_billed=False, is_of_nobody=True),
    )
    # Means: The provider does not know the model, or the path (404; for a model some answer 400).
    # Do: Correct the deployment's model name or `base_url`. `holeshot models --live` lists the names.
    NOT_FOUND = (
        "not_found",
        KindFacts(
            words="the provider does not know the model",
            about=About.OPERATOR,
            is_billed=False,
            is_of_nobody=True,
            is_absence=True,
            may_be_elsewhere=True,
        ),
    )
    # Means: The provider does not have this API, or not for this model. From now on another API of the provider is
    # asked.
    # Do: Nothing; or list the provider's APIs in `apis`, so that this one is not tried.
    NO_SUCH_API = (
        "no_such_api",
        KindFacts(
            words="the provider has no such API",
            about=About.API,
            is_billed=False,
            is_absence=True,
            may_be_elsewhere=True,
        ),
    )
    # Means: The provider answers 429, though the account is not spent. It gets no calls for as long as it says.
    # Do: If this happens often, add a key (`api_keys`) or a provider, or buy a higher limit.
    RATE_LIMITED = (
        "rate_limited",
        KindFacts(words="rate limited", about=About.LIMIT, status=429, is_billed=False, is_of_nobody=True),
    )
    # Means: The provider limits or refuses one of several keys (`attempts.status_code` says which). The next key was
    # asked at once, as another attempt with the role `key`; not if the refused attempt was a loser that was only
    # watched.
    # Do: Nothing, if this happens now and then. If a key is always refused, see `key_name`, and correct or remove the
    # key.
    KEY_REFUSED = (
        "key_refused",
        KindFacts(words="one key was refused, and its provider has another", about=About.STEP, is_billed=False),
    )
    # Means: The provider refuses a field of the request, and names it. The request works without this field: it was
    # sent again at once without the field, or with another value, as another attempt with the role `form`. Later
    # requests are sent that way from the start. A loser that was only watched is not sent again.
    # Do: Nothing. `x-holeshot-dropped` tells the client which fields were left out.
    FORM_REFUSED = (
        "form_refused",
        KindFacts(words="one form of the request was refused, and there is another", about=About.STEP, is_billed=False),
    )
    # Means: The provider says that the request is wrong (400, 413, 422; 403 if the text was flagged; 404 of what the
    # request names), or has no room for its tier. One other provider is asked. All are asked if the request is too
    # large for a minute, too long for this provider, beyond a limit of its vendor (tools, pictures, bytes), or refused
    # for its tier or its choice of vendors.
    # Do: The caller corrects the request.
    BAD_REQUEST = (
        "bad_request",
        KindFacts(
            words="the provider refused the request",
            about=About.REQUEST,
            status=400,
            is_billed=False,
            is_final=True,
            may_refuse=True,
            may_refuse_within=True,
        ),
    )
    # Means: The provider is at fault (5xx, an unknown status, a firewall's page).
    # Do: If this goes on, see the provider's status page.
    SERVER_ERROR = (
        "server_error",
        KindFacts(words="the provider's server failed", may_refuse_within=True, may_be_elsewhere=True),
    )
    # Means: The answer is not what the API promises: HTML, broken JSON, or no event stream.
    # Do: Check `base_url`: a web page or a proxy may answer there.
    INVALID_RESPONSE = "invalid_response", KindFacts(words="the answer could not be read", may_be_elsewhere=True)
    # Means: The stream contained an error without a kind.
    # Do: Read `attempts.error_message`. If this happens often, ask the provider.
    STREAM_ERROR = (
        "stream_error",
        KindFacts(words="an error in the middle of the stream", may_refuse=True, may_refuse_within=True),
    )
    # Means: The answer ended without any content.
    # Do: Nothing.
    UPSTREAM_EMPTY = "upstream_empty", KindFacts(words="an empty answer")
    # Means: The stream ended without its last event, so the answer is incomplete.
    # Do: A proxy in between may cut long answers; else ask the provider.
    UPSTREAM_TRUNCATED = "upstream_truncated", KindFacts(words="the answer broke off")
    # Means: The answer has a picture or sound, for which the client's API has no place.
    # Do: Ask in an API that has one: chat completions, Gemini's, or for pictures Responses.
    NO_PLACE = (
        "no_place",
        KindFacts(
            words="a picture or sound, for which the client's API has no place", about=About.REQUEST, is_final=True
        ),
    )
    # Means: The answer does not fit the schema that was asked for (`win_on: valid`), or its provider could not read the
    # call or the JSON that its model wrote (Groq: `tool_use_failed`, `json_validate_failed`).
    # Do: If one deployment fails often, use another ([valid answers](../answers.md#first-valid-wins)).
    INVALID_ANSWER = "invalid_answer", KindFacts(words="the answer was not valid", is_final=True)


def kinds(holds: Callable[[KindFacts], bool]) -> frozenset[ErrorKind]:
    """Return the kinds for which ``holds`` is true."""
    return frozenset(kind for kind in ErrorKind if holds(kind.facts))


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided of one error beside its kind: by status and body, then by the refused request, each once."""

    is_bound: bool = False  # reasoning that only the maker's key can read
    is_outsized: bool = False  # more tokens than this key may use in a minute: another key or provider may take them
    is_declined: bool = False  # how the request is to be served (a tier, a choice of vendors): another provider may
    is_certain: bool = False  # by its code no request can have caused the error; else the client that met it may have
    is_of_day: bool = False  # a rate limit of a day, by details that are not kept
    is_of_asked_model: bool = False  # there is no such model as the one asked for, which the error names
    prompt_bytes: int = 0  # of the refused request: may a number in the words be that of its tokens? 0: unknown


_NOTHING_FOUND = Findings()
CERTAIN: Final = Findings(is_certain=True)

NOT_KEPT = "its message is not kept"
MOST_KEPT = 200  # characters of a stored message
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:[_.\-][A-Za-z0-9]+)*|[0-9]{1,6}", re.ASCII)
_LONGEST_IDENTIFIER = 40  # characters


def identifier(said: object) -> str | None:
    """Return a code or type from a provider if it is a short identifier, no text; else None."""
    word = str(said) if isinstance(said, str | int) else ""
    return word if len(word) <= _LONGEST_IDENTIFIER and _IDENTIFIER.fullmatch(word) is not None else None


# Anthropic, of thoughts after text that a client has edited. The error names the first such thought; later thoughts
# fail as well (anomalyco/opencode/issues/48637, kirodotdev/KiroCrew/pull/11513, read on 2026-11-29).
_OF_AN_EDIT = re.compile(
    r"(?:messages\.(?P<turn>\d{1,6})\.content\.\d{1,6}: )?"
    r"(?:Invalid [^.\n]{1,80} block\. )?"
    r"(?:The|This|A) (?:[`'\"]?\w{1,20}[`'\"]? )?block (?:is|was) bound to a different conversation",
    re.IGNORECASE,
)


class UpstreamError(Exception):
    """A request to a provider failed. Secrets are removed from all texts.

    The texts:

    - ``message``: for the operator; may quote the request. ``note``: what the message adds to the provider's words.
    - ``caller``: for the caller, without the operator's hosts; may quote the request. None: as ``message``.
    - ``words``: the provider's own text.
    - ``kept``: may be stored, and shown to others. An error without words keeps the message. With words it keeps
      ``names`` (the provider's code and type) or ``brief``, until ``words.keep`` has removed from the words what the
      request contains.
    - ``body``: the provider's own JSON error object, for ``bad_request`` only, which returns it to the client.

    ``findings`` is what else is decided of the error, in one value; who decides more replaces it (``found``).

    An error within an answer:

    - ``meant``: the status that the error's code stands for; None: the status of the answer.
    - ``judge``: decides the kind once more, when the client's words are removed from the provider's; None: decided.
    - ``before``: the events that a translation has made of earlier bytes in the same read.
    - ``answer``: the event with status 200 that reports the error to clients of the vendor's own API.
    - ``deployment``: the deployment whose answer the error has broken off.

    The request: ``request_id`` is the provider's id of the refused request, for the provider's support. ``read_s`` is
    how many seconds before the error the response's headers came; None: no headers came, or the exchange was open.

    ``has_another_key``: the key was refused, and the upstream has chosen another for the same request
    (``step_by_step``). ``has_another_form``: the form was refused, and the upstream has chosen another form.
    """

    # Each lost attempt makes an error: rare fields belong to the class until they are set.
    note = ""
    before = b""
    answer = b""
    has_another_key = False
    has_another_form = False
    meant: int | None = None
    request_id: str | None = None
    read_s: float | None = None
    deployment: str | None = None
    judge: "Callable[[UpstreamError, Callable[[str], str]], object] | None" = None
    _said: str | None = None
    _kept: str | None = None

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        body: bytes | None = None,
        findings: Findings = _NOTHING_FOUND,
        caller: str | None = None,
        words: str | None = None,
        names: tuple[str, ...] = (),
        brief: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.body = body
        self.findings = findings
        self.caller = caller
        self.words = words
        self.names = names
        self.brief = brief

    @property
    def said(self) -> str:
        """The text that rules read: the message without the gateway's words and, once marked, the client's words."""
        return self.message.removesuffix(self.note) if self._said is None else self._said

    @said.setter
    def said(self, said: str) -> None:
        self._said = said

    @property
    def is_marked(self) -> bool:
        """Whether the client's own words are told from the provider's (``quotes.mark``)."""
        return self._said is not None

    @property
    def edited_from(self) -> int | None:
        """The turn from which on thoughts do not fit the text before them, 0 if unknown; None: they may fit."""
        if not self.findings.is_bound or (match := _OF_AN_EDIT.search(self.said)) is None:
            return None
        return int(match["turn"] or 0)

    @property
    def scope(self) -> RefusalScope | None:
        """Who else may take the request; None: the error is no refusal of the request."""
        if self.kind is not ErrorKind.BAD_REQUEST:
            return None
        return next((scope for scope, holds in _SCOPES if holds(self)), RefusalScope.REQUEST)

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt is too long for this deployment: another one with a longer context may take the prompt."""
        if self.kind is not ErrorKind.BAD_REQUEST or self.findings.is_outsized or self.findings.is_declined:
            return False
        if self.limit is not None:
            return False
        return is_too_long(self.said, self.names) or counts_too_many(self.said, self.findings.prompt_bytes)

    @property
    def limit(self) -> Limit | None:
        """The vendor's limit that the request exceeds, if not of tokens: other vendors may take more."""
        if self.kind is not ErrorKind.BAD_REQUEST or self.findings.is_outsized or self.findings.is_declined:
            return None
        return None if counts_too_many(self.said, self.findings.prompt_bytes) else limit_of(self.status, self.said)

    @property
    def lack(self) -> Limit | None:
        """What the model does not take at all, such as pictures at a model of texts; None: not said."""
        return lack_of(self.said) if self.scope in {RefusalScope.MODEL, RefusalScope.TERMS} else None

    @property
    def is_of_content(self) -> bool:
        """Whether a filter refuses what the request says: one other vendor is asked, as vendors' filters differ."""
        if self.kind is not ErrorKind.BAD_REQUEST or self.limit is not None:
            return False
        return is_refused_by_filter(self.status, {name.lower() for name in self.names}, self.said)

    @property
    def is_unpaid(self) -> bool:
        """Whether the provider itself says that the answer is not valid: no answer came, and none is paid."""
        return self.kind is ErrorKind.INVALID_ANSWER and self.words is not None

    @property
    def is_barred(self) -> bool:
        """Whether a firewall's page refused the key, our address or the text: another key may help."""
        return self.kind is ErrorKind.SERVER_ERROR and self.status == HTTPStatus.FORBIDDEN

    @property
    def kept(self) -> str:
        """What may be stored and shown to others, at most ``MOST_KEPT`` characters."""
        kept = self._kept
        if kept is None:
            names = self.brief or ", ".join(self.names) or NOT_KEPT
            kept = self.message.removesuffix(self.note) if self.words is None else names
        return shortened(kept, MOST_KEPT - len(self.note)) + self.note

    def keep(self, kept: str | None = None) -> None:
        """Decide what is stored: ``kept``, else what is known to be harmless. The first decision stands."""
        if self._kept is None:
            self._kept = self.kept.removesuffix(self.note) if kept is None else kept

    def again(self, kind: ErrorKind) -> "UpstreamError":
        """Return the error with another ``kind``: the deployment was asked again in vain."""
        same = UpstreamError(
            kind,
            self.message,
            status=self.status,
            retry_after_s=self.retry_after_s,
            body=self.body,
            findings=self.findings,
            caller=self.caller,
            words=self.words,
            names=self.names,
            brief=self.brief,
        )
        same.note, same.meant, same._said = self.note, self.meant, self._said
        same.answer = self.answer
        return same

    def found(self, **findings: Any) -> None:
        """Decide more, as the request shows it."""
        self.findings = msgspec.structs.replace(self.findings, **findings)

    def turn_into(self, kind: ErrorKind, *, without_body: bool = False) -> None:
        """Change the kind, as more is known of the request or the deployment than when the error was made.

        For example, 400 "Model Not Exist" becomes ``not_found``.

        ``without_body``: the provider's own error object says otherwise, so the client does not get it.
        """
        self.kind = kind
        if without_body:
            self.body = None

    def noted(self, note: str) -> None:
        """Add a ``note`` for the operator."""
        self.caller = self.caller or self.message
        self.message, self.note = self.message + note, self.note + note

    def after(self, said: Iterable[bytes]) -> "UpstreamError":
        """Note the events ``said`` before the error; return the error."""
        self.before = b"".join(said)
        return self

    def without_frames(self) -> "UpstreamError":
        """Remove traceback and causes, which would make reference cycles if the error is stored; return the error."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


_SCOPES: Final[tuple[tuple[RefusalScope, Callable[[UpstreamError], bool]], ...]] = (  # the first that holds
    (RefusalScope.MINUTE, lambda error: error.findings.is_outsized),
    (RefusalScope.MAKER, lambda error: error.findings.is_bound and error.edited_from is None),
    (RefusalScope.LENGTH, lambda error: error.is_too_long),
    (RefusalScope.CONTENT, lambda error: error.is_of_content),
    (RefusalScope.TERMS, lambda error: error.findings.is_declined),
    (RefusalScope.SIZE, lambda error: error.limit is not None),
    # The status blames the server, whose template for the model does not take the request; or the words say so.
    (RefusalScope.MODEL, lambda error: error.status == HTTPStatus.INTERNAL_SERVER_ERROR or is_of_model(error.said)),
)


def shortened(text: str, most: int) -> str:
    """Return ``text`` with at most ``most`` characters; the last one is … if some are missing."""
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def kind_of_status(status: int) -> ErrorKind:
    """Return the kind of error for an HTTP status, of a response or inside an error object."""
    match status:
        case 400 | 413 | 422:
            return ErrorKind.BAD_REQUEST
        case 401 | 402 | 403:
            return ErrorKind.PROVIDER_AUTH
        case 404 | 410:  # Hugging Face, of a model that a vendor has no longer
            return ErrorKind.NOT_FOUND
        case 429:
            return ErrorKind.RATE_LIMITED
        case _:
            return ErrorKind.SERVER_ERROR


# Detects a shortage of file descriptors, ports or memory on this machine, which is not the provider's failure.

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
# Errors of the network itself. Others may come from a resolver or OpenSSL that cannot open a file: "no such name", "not
# trusted", or a number that the C library's resolver has left behind (EBUSY, EINVAL).
_SAID_BY_NETWORK = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EACCES, errno.EPERM),
    }
)


def is_shortage(error: BaseException) -> bool:
    """Whether ``error``, which was just raised while connecting, is caused by this machine."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, OSError):
        return False
    is_numbered = not isinstance(error, socket.gaierror | ssl.SSLError)  # the numbers of these mean something else
    if is_numbered and error.errno in _LACKING:
        return True
    return not (is_numbered and error.errno in _SAID_BY_NETWORK) and out_of_descriptors()


def out_of_descriptors() -> bool:
    """Whether no file descriptor can be opened at this moment."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _LACKING
    return False
