"""Keeps names invented by clients under patterns out of the ledger: rows have the pattern's name instead."""

from collections.abc import Callable, Collection

import msgspec

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord, CallStart
from gateway.core.records import OutageRecord
from gateway.fleet import Fleet


class NamedRows:
    """Gives rows the names to keep: all but those under a pattern that have never answered here."""

    def __init__(self, fleet: Callable[[], Fleet], *, patterns: Callable[[], Collection[str]]) -> None:
        """``patterns`` returns the fleet's patterns. Without any, no row needs other names."""
        self._fleet = fleet
        self.patterns = patterns

    def start(self, start: CallStart) -> CallStart:
        """Return the row of a call that begins."""
        fleet, model = self._fleet(), start.model
        attempts = tuple(
            msgspec.structs.replace(
                each,
                deployment=fleet.kept_deployment(each.model or model, each.deployment),
                model=None if each.model is None else fleet.kept_name(each.model),
            )
            for each in start.attempts
        )
        return msgspec.structs.replace(start, model=fleet.kept_name(model), attempts=attempts)

    def call(self, record: CallRecord) -> CallRecord:
        """Return the row of a call that has ended. Names with an answer in this call are kept from now on."""
        fleet = self._fleet()
        for each in record.attempts:
            if each.ttft_ms is not None or each.id == record.winner_attempt_id:
                fleet.has_answered(each.model or record.model)
        attempts = tuple(self.attempt(record.model, each) for each in record.attempts)
        answered, held_for = record.answered_model, record.held_for
        return msgspec.structs.replace(
            record,
            model=fleet.kept_name(record.model),
            answered_model=None if answered is None else fleet.kept_name(answered),
            held_for=None if held_for is None else fleet.kept_deployment(record.model, held_for),
            attempts=attempts,
        )

    def attempt(self, asked: str, attempt: AttemptRecord) -> AttemptRecord:
        """Return the row of an attempt of a call for the model ``asked``."""
        fleet, model = self._fleet(), attempt.model
        return msgspec.structs.replace(
            attempt,
            deployment=fleet.kept_deployment(model or asked, attempt.deployment),
            model=None if model is None else fleet.kept_name(model),
        )

    def outage(self, outage: OutageRecord) -> OutageRecord:
        """Return the row of an outage."""
        fleet, model = self._fleet(), outage.model
        if model is None:
            return outage
        return msgspec.structs.replace(
            outage, deployment=fleet.kept_deployment(model, outage.deployment), model=fleet.kept_name(model)
        )
