"""Holds the messages that arrived against the incidents that were injected."""

from collections.abc import Sequence

import msgspec

from benchmarks.alerts.incidents import Incident
from benchmarks.alerts.world import START
from gateway.alerts.alert import Event, Message

AFTER_S = 7200.0  # an alert may still come so long after its incident: the windows of targets are long


class Finding(msgspec.Struct, frozen=True):
    """An injected incident and an alert that was expected of it ("" if none was)."""

    incident: Incident
    expected: str
    fired_after_s: float | None
    resolved_after_s: float | None  # after the incident's end
    duplicates: int


class Findings(msgspec.Struct, frozen=True):
    """All of the month; ``false_alarms`` are the keys of messages that nothing explains."""

    findings: list[Finding]
    false_alarms: list[str]

    @property
    def missed(self) -> list[str]:
        """What should have fired and did not, or did not end."""
        return [
            f"{each.incident.name}: {each.expected}"
            for each in self.findings
            if each.expected and (each.fired_after_s is None or each.resolved_after_s is None)
        ]

    @property
    def duplicates(self) -> int:
        """Messages that said again what was said."""
        return sum(each.duplicates for each in self.findings)


def compare(incidents: Sequence[Incident], delivered: Sequence[tuple[float, Message]]) -> Findings:
    """Return what became of each incident."""
    opened = [(at_s, each) for at_s, each in delivered if each.event is Event.OPENED]
    resolved = [(at_s, each) for at_s, each in delivered if each.event is Event.RESOLVED]
    used: set[str] = set()
    findings = []
    for incident in incidents:
        for expected in incident.expected or ("",):
            mine = [
                (at_s, each) for at_s, each in opened if expected and _is_of(each, expected) and _is_in(each, incident)
            ]
            used.update(each.id for _, each in mine)
            ends = [at_s for at_s, each in resolved if any(each.alert.id == other.alert.id for _, other in mine)]
            findings.append(
                Finding(
                    incident,
                    expected,
                    mine[0][0] - incident.start_s if mine else None,
                    max(ends) - incident.end_s if ends else None,
                    max(0, len(mine) - 1),
                )
            )
    return Findings(findings, [each.alert.key for _, each in opened if each.id not in used])


def _is_of(message: Message, expected: str) -> bool:
    """Whether a message is about ``expected``; the keys of spending have their day at the end."""
    key = message.alert.key
    return key == expected or (expected.startswith("spending:") and key.startswith(f"{expected}/"))


def _is_in(message: Message, incident: Incident) -> bool:
    opened_s = (message.alert.opened_at - START).total_seconds()
    return incident.start_s <= opened_s <= incident.end_s + AFTER_S
