"""What came of all cases: text for a terminal, JSON, docs/reference/clients.md, and each case for RESULTS.md here."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

_NOT_RUN = "-"
_PASSED = "✓"
_MARKS = {"pass": _PASSED, "refused": "r", "fail": "✗"}


class Result(msgspec.Struct, frozen=True):
    """What came of one case at one target: pass, fail, or refused (a translation said what it cannot say)."""

    client: str
    version: str
    feature: str
    case: str
    target: str
    outcome: str
    why: str = ""
    seconds: float = 0.0


class Table:
    """Results, in the order in which they came."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = targets
        self._results: list[Result] = []
        self._crashes: list[tuple[str, str]] = []
        self._counts: Mapping[str, int] = {}
        self.skipped: list[tuple[str, str]] = []

    def add(self, results: Iterable[Result]) -> None:
        """Add what came of cases."""
        self._results += results

    def skip(self, client: str, why: str) -> None:
        """Note that a client was not run."""
        self.skipped.append((client, why))

    def crash(self, client: str, why: str) -> None:
        """Note that something went wrong beside the cases of a client."""
        self._crashes.append((client, why))

    def tell(self, counts: Mapping[str, int]) -> None:
        """Note what the upstreams counted."""
        self._counts = counts

    @property
    def broken(self) -> list[Result]:
        """Cases that fail at the upstream itself: the suite is at fault."""
        return [item for item in self._results if item.target == "directly" and item.outcome == "fail"]

    @property
    def failures(self) -> list[Result]:
        """Cases that fail at a gateway, and not at the upstream."""
        broken = {(item.client, item.case) for item in self.broken}
        return [
            item
            for item in self._results
            if item.target != "directly" and item.outcome == "fail" and (item.client, item.case) not in broken
        ]

    @property
    def failed(self) -> bool:
        """Is anything wrong?"""
        return bool(self.failures or self.broken or self._crashes)

    def as_json(self) -> object:
        """Return everything, for scripts."""
        return {
            "results": [msgspec.structs.asdict(item) for item in self._results],
            "crashes": self._crashes,
            "skipped": self.skipped,
            "upstreams": self._counts,
            "failed": self.failed,
        }

    def as_text(self) -> str:
        """Return what went wrong, and the score of each client."""
        lines = [
            *(f"BROKEN {item.client}: {item.case}: {item.why}" for item in self.broken),
            *(f"FAIL   {item.client}: {item.case} ({item.target}): {item.why}" for item in self.failures),
            *(f"CRASH  {client}: {why}" for client, why in self._crashes),
            *(f"skip   {client}: {why}" for client, why in self.skipped),
            "",
        ]
        width = max((len(client) for client in self._clients), default=0)
        for client in self._clients:
            scores = ", ".join(f"{target} {self._score(client, target)}" for target in self._targets)
            lines.append(f"{client:{width}}  {scores}")
        if self._counts:
            counted = ", ".join(f"{count} {word}" for word, count in self._counts.items())
            lines.append(f"requests at the two upstreams: {counted}")
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """Return the page."""
        return "\n".join((*_HEAD, *self._scores(), ""))

    def as_cases(self) -> str:
        """Return the raw tables of the page: every case."""
        return "\n".join((*_HEAD_OF_APPENDIX, *self._details()))

    @property
    def _clients(self) -> list[str]:
        return list(dict.fromkeys(item.client for item in self._results))

    def _of(self, **facts: str) -> list[Result]:
        return [item for item in self._results if all(getattr(item, name) == value for name, value in facts.items())]

    def _score(self, client: str, target: str) -> str:
        results = self._of(client=client, target=target)
        passed = sum(item.outcome == "pass" for item in results)
        refused = sum(item.outcome == "refused" for item in results)
        return f"{passed}{f'+{refused}r' if refused else ''}/{len(results)}" if results else _NOT_RUN

    def _scores(self) -> list[str]:
        lines = [_row("client", "version", *self._targets), _row(*["---"] * (2 + len(self._targets)))]
        for client in self._clients:
            version = self._of(client=client)[0].version
            lines.append(_row(client, version, *(self._score(client, target) for target in self._targets)))
        return lines

    def _details(self) -> list[str]:
        lines: list[str] = []
        for client in self._clients:
            lines += ["", f"## {client}", ""]
            cases: dict[str, list[str]] = {}
            for feature, case in dict.fromkeys((item.feature, item.case) for item in self._of(client=client)):
                found = {item.target: item.outcome for item in self._of(client=client, case=case)}
                marks = _short(_MARKS[found[each]] if each in found else _NOT_RUN for each in self._targets)
                cases.setdefault(feature, []).append(case if marks == _PASSED else f"{case} ({marks})")
            lines += [f"- **{feature}**: {', '.join(some)}" for feature, some in cases.items()]
        return [*lines, ""]


_HEAD = (
    "# Clients",
    "",
    "**Which SDKs, frameworks and coding agents work with the gateway?** Tried with the real programs: only base URL",
    "and key are changed. Each runs the same cases against four targets:",
    "",
    "- *directly*: the upstream itself. What fails there is not the gateway's fault.",
    "- *native*: through the gateway, which races two upstreams that speak the client's API.",
    "- *translated*: the upstreams speak another API: Messages for clients of chat, chat completions for all others.",
    "- *translated twice*: clients of Responses race Messages, by way of chat; all others race Responses.",
    "",
    "✓ passed · ✗ failed · r refused: no translation exists, and the error names the parameter · - not applicable",
    "",
    "*-raced* is a framework's class that [races in its own process](../using/python.md#in-a-framework), over the",
    "upstreams of that target; *directly* it is the framework's own class, at one of them.",
    "",
    "A score is the cases that passed, plus those that were refused (r), of all that apply. [Set a client",
    "up](../using/apis.md); [every case](../../tests/clients/RESULTS.md).",
    "",
)

_HEAD_OF_APPENDIX = (
    "# Raw tables: clients",
    "",
    "**Which cases has each client passed?** Those without marks everywhere. Others have four marks in brackets,",
    "which [clients](../../docs/reference/clients.md) explains.",
)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _short(marks: Iterable[str]) -> str:
    """Return the marks of all targets: one, if the case or feature passed everywhere."""
    whole = "".join(marks)
    return _PASSED if set(whole) == {_PASSED} else whole
