"""Alerts and the messages about them, as they are stored."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from gateway.alerts.condition import Figure, Kind, Severity, key_of


class Scope(StrEnum):
    """Among whom an alert is said once."""

    ALL = "all"  # all replicas
    PROCESS = "process"  # this process: the database was away


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An incident: a row of ``alerts``. At most one with a key is open at a time."""

    id: str
    kind: Kind
    subject: str
    severity: Severity
    summary: str
    figures: Mapping[str, Figure]
    sql: str
    opened_at: datetime
    seen_at: datetime  # when its condition last held, in any process
    resolved_at: datetime | None = None
    replica: str  # which opened it
    scope: Scope = Scope.ALL

    @property
    def key(self) -> str:
        """The incident's name."""
        return key_of(self.kind, self.subject)


class Event(StrEnum):
    """What a message says."""

    OPENED = "alert.opened"
    RESOLVED = "alert.resolved"
    TEST = "alert.test"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one webhook: a row of ``alert_messages``."""

    id: str  # the webhook-id, the same in every attempt
    alert: Alert
    webhook: str  # its name in the settings
    event: Event
    created_at: datetime
    tries: int = 0  # so many have failed


class Delivery(msgspec.Struct, frozen=True):
    """What became of an attempt to deliver a message."""

    ok: bool
    answer: str  # in words: "200", "503", "no answer within 10 s", …
    final: bool = False  # the receiver wants no more attempts
