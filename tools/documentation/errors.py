"""Every error that a client can receive: its status and code, and what to do about it, from the code."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from gateway.core.errors import ApiError, InvalidRequest, NoDeploymentFits, NoKey
from gateway.core.race_failures import CODES_OF_OPERATORS, ProviderMisconfigured, RejectedByProvider
from gateway.ledger import INTERRUPTED, INTERRUPTED_STATUS
from gateway.server.connection import MALFORMED_BODY, MALFORMED_REQUEST
from providers import ErrorKind, Meaning
from providers.dialects import TELLINGS, RefusalWords
from tools.documentation import advice
from tools.documentation.tables import code, table

ROOT = Path(__file__).resolve().parents[2]
LATER = "after `retry-after`"
NEVER = "no"
NOTHING = "Nothing."
IMPLIED = frozenset({"Wait.", "Wait and try again."})  # what *Retry:* says as well
NOT_SENT = "not sent"  # the client is gone, or the process was
# Codes that an error is raised with instead of the code of its class.
GIVEN: Mapping[str, tuple[int, str, str]] = {
    "context_length_exceeded": (NoDeploymentFits.status, "context_length_exceeded", NoDeploymentFits.type),
    "MALFORMED_REQUEST": (InvalidRequest.status, MALFORMED_REQUEST, InvalidRequest.type),
    **{
        str(each): (ProviderMisconfigured.status, str(each), ProviderMisconfigured.type)
        for each in CODES_OF_OPERATORS.values()
    },
}
_HEAD = """# Errors

Every error of the gateway, and what to do about it.

- **Read the message first.** It names the field, the limit or the deployment.
- **Find it** by the status and the `code` in the body, which has the format of the API that was called; in OpenAI's
  it is `{"error": {"message", "type", "param", "code"}}`. Anthropic's has no code.
- **Retry** says when the same request can succeed if it is sent again: `later` is after the header `retry-after`.
  Where it is missing, another try is in vain. SDKs retry 408, 409, 429 and all statuses from 500 twice by themselves.
- A stream that has begun has the status 200. If it breaks, its last event is the error, and `[DONE]` does not come.
- SQL and the log ([`call.finished`](events.md)) have the code as `error_kind`.

"""
_MEANINGS = """## What a refusal means, in each API

Programs know a refusal by the code, type, status and words of their own API's vendor: then they shorten, wait, end, or
ask their user for another key or model. So what the gateway, or a provider of another API, has refused is told in
these: whole, over a WebSocket, and in a stream that has begun. It is told only if all that could have answered say the
same. Words of the client's own API pass as they are. [The table](../../providers/dialects/meanings.py) names the
programs that read each, and where.
"""
_MEANT: Mapping[Meaning, str] = {
    Meaning.TOO_LONG: "the prompt, or the answer beside it, is too long",
    Meaning.OVERLOADED: "every provider is overloaded",
    Meaning.RATE: "a limit that has room again soon",
    Meaning.DAY: "a limit of requests or tokens a day",
    Meaning.SPENT: "the client's, or the model's, limit in dollars",
    Meaning.UNPAID: "the operator's account is spent",
    Meaning.CONTENT: "a filter refuses the text",
    Meaning.KEY: "the client's key at the gateway",
    Meaning.GONE: "there is no such model, here or at the provider, or not for its account",
}
_REFUSALS = """## Words for refused requests

The table `refusals`, the event `request.refused` and the metrics have the code above as the `reason`, but for these:
"""
_KINDS = """## Why an attempt failed

The reason why an attempt (one request to one provider) failed is in the message of the errors 424, 429, 502 and 504, in
`attempts.error_kind`, and in `causes` of [`call.finished`](events.md). The call goes on while another deployment can be
asked. Where nothing is said of what to do, the error of the same name says it.
"""


class Advice(NamedTuple):
    """What an error means, and what to do. ``operator`` is empty if only the caller can do something."""

    means: str
    retry: str  # whether the same request may succeed if it is sent again
    caller: str
    operator: str = ""


@cache
def by_code() -> Mapping[tuple[int, str], Advice]:
    """Return the advice for each error by status and code, from its class or from a block that names both."""
    found: dict[tuple[int, str], Advice] = {}
    for name, block in advice.named("Error").items():
        status, _, code_ = name.partition(" ")
        found[int(status), code_] = _advice(block.parts)
    for each in classes():
        if parts := advice.of_class(each):
            status_, code_, _ = _of_class(each)
            assert (status_, code_) not in found, f"{code_} has advice in two places: one is {each.__name__}"
            found[status_, code_] = _advice(parts)
    return found


def kinds() -> Mapping[ErrorKind, tuple[str, str]]:
    """Return the meaning of each reason of a failed attempt, and what to do."""
    found = advice.of_constants(ROOT / "providers/refusals/errors.py")
    return {ErrorKind[name]: (parts["Means"], parts["Do"]) for name, parts in found.items()}


def refusals() -> Mapping[str, str]:
    """Return the meanings of those reasons of refused requests that are not error codes."""
    found = advice.named("Refusal")
    return {word: found[word].parts["Means"] for word in (NoKey("").kind, MALFORMED_BODY)}


def page() -> str:
    """Return the text of docs/reference/errors.md."""
    found, advised = codes(), by_code()
    lines = [_HEAD]
    for status, alike in groupby(found, key=lambda each: each[0]):
        names = [name for _, name in alike]
        types = {each for name in names for each in found[status, name]}
        shared = f" *Type:* {' or '.join(map(code, sorted(types)))}." if len(types) == 1 else ""
        lines += [f"## {status} {_phrase(status)}", "", *([shared.strip(), ""] if shared else [])]
        for name in names:
            lines += _entry(name, () if shared else found[status, name], advised[status, name])
    lines += [_MEANINGS, *table(("meaning", *next(iter(TELLINGS.values()))), map(_meaning, TELLINGS)), ""]
    lines += [_REFUSALS]
    for name, means in refusals().items():
        lines += [f"**{code(name)}**", f": {means}", ""]
    lines += [_KINDS]
    above = {name for _, name in found}
    for kind, (means, do) in kinds().items():
        is_said = do == NOTHING or str(kind) in above  # by the error of the same name
        lines += [f"**{code(str(kind))}**", f": {means}{'' if is_said else f' *Do:* {do}'}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _meaning(meaning: Meaning) -> tuple[str, ...]:
    return (_MEANT[meaning], *map(_told, TELLINGS[meaning].values()))


def _told(telling: RefusalWords) -> str:
    """Return how a vendor tells it: its code or type, what stands beside it, and its words."""
    details = telling.details(1.0)
    beside = [
        value
        for each in details
        for value in (
            each.get("reason"),
            each.get("error_code"),
            *(violation["quotaId"] for violation in each.get("violations", ())),
            "RetryInfo" if "retryDelay" in each else None,
        )
        if value is not None
    ]
    told = ", ".join(map(code, (telling.code or telling.type, *beside)))
    return f"{told}: “{telling.words}”" if telling.words else told


def codes() -> Mapping[tuple[int, str], tuple[str, ...]]:
    """Return the types of each error by its status and code, in the order of the page."""
    found: dict[tuple[int, str], set[str]] = {}
    for status, name, kind in (*map(_of_class, classes()), *GIVEN.values(), (INTERRUPTED_STATUS, INTERRUPTED, "")):
        found.setdefault((status, name), set()).add(kind)
    return {each: tuple(sorted(filter(None, found[each]))) for each in sorted(found)}


def classes() -> Iterator[type[ApiError]]:
    """Yield every subclass of ``ApiError``, found by the names of base classes in the gateway's files."""
    names, known = {"ApiError"}, 0
    files = {path: _bases(path) for path in sorted((ROOT / "gateway").rglob("*.py"))}
    while known != len(names):
        known = len(names)
        names |= {name for each in files.values() for name, bases in each.items() if names & bases}
    for path, bases in files.items():
        for name in bases:
            if name in names and name != "ApiError":
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield getattr(importlib.import_module(module), name)


@cache
def _bases(path: Path) -> Mapping[str, set[str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _of_class(each: type[ApiError]) -> tuple[int, str, str]:
    """Return status, code and type."""
    # The status of a rejection is the provider's: usually 400.
    status = InvalidRequest.status if each is RejectedByProvider else each.status
    return status, str(each.code or each.type), each.type


def _advice(parts: Mapping[str, str]) -> Advice:
    return Advice(parts["Means"], parts["Retry"].removesuffix("."), parts["Caller"], parts.get("Operator", ""))


def _entry(name: str, types: tuple[str, ...], guidance: Advice) -> list[str]:
    retry = {NEVER: "", LATER: " *Retry:* later.", NOT_SENT: " No client receives it."}
    means = f"{guidance.means}{retry.get(guidance.retry, f' *Retry:* {guidance.retry}.')}"
    means += f" *Type:* {' or '.join(map(code, types))}." if types and guidance.retry != NOT_SENT else ""
    lines = [f"### {code(name)}", "", means, ""]
    lines += [] if guidance.caller in IMPLIED else [f"**Caller:** {guidance.caller}", ""]
    return [*lines, f"**Operator:** {guidance.operator}", ""] if guidance.operator else lines


# 499 is nginx's, not HTTP's. The others have older names in Python before 3.13.
_PHRASES = {499: "Client left", 413: "Content Too Large", 414: "URI Too Long", 422: "Unprocessable Content"}


def _phrase(status: int) -> str:
    return _PHRASES.get(status) or HTTPStatus(status).phrase
