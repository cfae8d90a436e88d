"""Alerts and the messages about them, as they are stored."""

import base64
import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

# Conditions: problems that a source reports at one instant.

Figure = float | int | str | None


class Severity(StrEnum):
    """How soon a person should look."""

    PAGE = "page"  # now
    TICKET = "ticket"  # today


class AlertKind(StrEnum):
    """The kinds of alerts."""

    BURN_FAST = "burn_fast"  # a target's error budget is used up within days
    BURN_SLOW = "burn_slow"  # the budget is used up within the target's window
    MODEL_OUT = "model_out"  # no deployment of a model can answer
    DEPLOYMENT_OUT = "deployment_out"
    SPENDING = "spending"
    LEDGER_BEHIND = "ledger_behind"
    SPOOL = "spool"
    LEDGER_UNRECORDED = "ledger_unrecorded"  # rows can be neither stored nor spooled
    SUMS = "sums"  # rows are stored, and not added up
    WORKER_STOPPED = "worker_stopped"  # the event loop of a worker stood still
    SLOWER = "slower"  # a deployment got slower
    MODEL_CHANGED = "model_changed"  # a deployment's answers state another model than before
    LENGTHS_CHANGED = "lengths_changed"  # a model's prompts or answers are longer or shorter than in the week before


class AlertCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that exists now. ``key`` names the incident: the same key in every replica and after a restart."""

    kind: AlertKind
    subject: str  # the target, model, deployment, client or replica
    severity: Severity
    summary: str  # one sentence
    figures: Mapping[str, Figure]
    sql: str  # one statement that shows the evidence in ``holeshot sql``
    after_s: float = 0.0  # the condition opens an alert only if it lasts so long
    opens: bool = True  # False: the condition only keeps an open alert open
    # No alert is opened while an alert with this key is open, or was within ``covered_s``: both report the same.
    covered_by: str | None = None
    covered_s: float = 0.0

    @property
    def key(self) -> str:
        """The incident's name."""
        return key_of(self.kind, self.subject)


class PendingAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that opens an alert if it goes on for ``opens_in_s`` more seconds."""

    key: str
    kind: AlertKind
    subject: str
    severity: Severity
    summary: str
    sql: str
    since: datetime
    after_s: float  # from ``since`` until the alert opens
    opens_in_s: float


def key_of(kind: AlertKind, subject: str) -> str:
    """Return the name of an incident."""
    return f"{kind}:{subject}"


def kind_of(key: str) -> AlertKind:
    """Return the kind of an incident of this name."""
    return AlertKind(key.partition(":")[0])


class SourceUnavailable(Exception):
    """A source's conditions are unknown now: alerts of its kinds are neither opened nor resolved."""


class Source(Protocol):
    """A source of conditions."""

    @property
    def kinds(self) -> Collection[AlertKind]:
        """The kinds of conditions that this source reports completely."""

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the conditions that hold now.

        Raises:
            SourceUnavailable: the conditions are unknown now.

        """


class AlertScope(StrEnum):
    """The processes among which an incident has one alert."""

    ALL = "all"  # all replicas
    PROCESS = "process"  # this process: the database was away


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An incident: a row of ``alerts``. Of each key at most one alert is open at a time."""

    id: str
    kind: AlertKind
    subject: str
    severity: Severity
    summary: str
    figures: Mapping[str, Figure]
    sql: str
    opened_at: datetime
    seen_at: datetime  # when the alert's condition last held, in any process
    resolved_at: datetime | None = None
    replica: str  # the replica that opened the alert
    scope: AlertScope = AlertScope.ALL

    @property
    def key(self) -> str:
        """The incident's name."""
        return key_of(self.kind, self.subject)


class AlertEvent(StrEnum):
    """What a message reports."""

    OPENED = "alert.opened"
    RESOLVED = "alert.resolved"
    TEST = "alert.test"


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one webhook: a row of ``alert_messages``."""

    id: str  # the webhook-id, the same in every attempt
    alert: Alert
    webhook: str  # the webhook's name in the settings
    event: AlertEvent
    created_at: datetime
    tries: int = 0  # failed attempts so far


class DeliveryResult(msgspec.Struct, frozen=True):
    """The result of an attempt to deliver a message."""

    ok: bool
    answer: str  # in words: "200", "503", "no answer within 10 s", …
    final: bool = False  # the receiver wants no more attempts
    wait_s: float | None = None  # the receiver takes no more for so long, by its retry-after


# The signature of a message, by the Standard Webhooks specification: HMAC-SHA256 over its id, time and body.


def signed_headers(key: bytes, message_id: str, unix_s: int, body: bytes) -> Mapping[str, str]:
    """Return the headers that prove the sender and the time of ``body``."""
    signed = f"{message_id}.{unix_s}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {**unsigned_headers(message_id, unix_s), "webhook-signature": f"v1,{digest}"}


def unsigned_headers(message_id: str, unix_s: int) -> Mapping[str, str]:
    """Return the headers that identify a message; every attempt to deliver the message has the same id."""
    return {"webhook-id": message_id, "webhook-timestamp": str(unix_s)}


# The book of alerts decides which process opens an alert, and which messages are due. ``gateway.ledger.books`` is in
# SQL.


MESSAGES_AT_ONCE = 32  # returned by one ``take_due``; sending each takes up to ten seconds


class BookAway(Exception):
    """The book cannot be read or written now."""


class Book(Protocol):
    """The alerts and messages of all replicas. Every method raises ``BookAway`` if the book cannot be reached."""

    async def current(self, since: datetime) -> list[Alert]:
        """Return the alerts that are open, and alerts resolved after ``since``."""

    async def open(self, alert: Alert, webhooks: Collection[str]) -> bool:
        """Store an alert and its messages to ``webhooks``, together.

        Return False, and store nothing, if another alert with this key is open.
        """

    async def note_seen(self, ids: Collection[str], at: datetime) -> None:
        """Note that the conditions of these alerts held at ``at``."""

    async def resolve(self, alert: Alert, *, unseen_since: datetime, at: datetime, webhooks: Collection[str]) -> bool:
        """End an alert and store the messages to ``webhooks``, together.

        Return False, and change nothing, if the alert is not open, or its condition was seen after ``unseen_since``.
        """

    async def take_due(
        self, now: datetime, *, lease: timedelta, webhooks: Collection[str], most: int = MESSAGES_AT_ONCE
    ) -> list[AlertMessage]:
        """Return ``most`` of the messages that are due, or fewer, each to one caller within ``lease``.

        Messages of a process that died become due again. The message of an end is due only after that of the beginning.
        """

    async def settle(
        self, message: AlertMessage, delivery: DeliveryResult, *, at: datetime, retry_at: datetime | None
    ) -> None:
        """Store the result of an attempt; ``retry_at`` None: this was the last attempt."""

    async def aclose(self) -> None:
        """Close the connections."""
