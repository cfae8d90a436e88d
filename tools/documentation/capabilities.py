"""The table of what each kind of question has: a capability is seen, or a few words say why not.

``tests/app/gateway/capabilities/`` tries each yes over HTTP.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tools.documentation.tables import table

# What clients ask for, in the two tables of the page.
TOKENS: Mapping[str, str] = {
    "streamed": "streamed tokens",
    "whole": "whole answers of tokens",
    "background": "a response in the background",
    "turn": "a turn of a WebSocket",
}
OTHERS: Mapping[str, str] = {
    "embeddings": "embeddings",
    "rerank": "rerank",
    "moderation": "moderation",
    "decisions": "decisions",
    "speech": "speech",
    "transcripts": "transcripts",
    "pictures": "pictures",
    "counting": "counting of tokens",
}
ASKED: Mapping[str, str] = {**TOKENS, **OTHERS}

HOLE = "not yet: "  # begins the reason of a cell that should be a yes
MOST_WORDS = 6  # of a reason

_ONCE = "started once, at one provider"
_DEAR = "dear: never asked twice"
_DIFFER = "numbers of two tokenizers may differ"
_NOT_RACED = {"background": _ONCE, "pictures": _DEAR, "counting": _DIFFER}
_FREE = "it costs nothing"


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """A row: what is seen of it, and why not by what is asked; all else is a yes."""

    title: str
    seen: str
    no: Mapping[str, str] = {}

    def cell(self, asked: str) -> str:
        """Return the text of a cell."""
        return self.no.get(asked, "yes")

    def is_hole(self, asked: str) -> bool:
        """Whether the cell should be a yes."""
        return self.cell(asked).startswith(HOLE)


def _all_but(reason: str, *but: str) -> dict[str, str]:
    return {asked: reason for asked in OTHERS if asked not in but}


CAPABILITIES: Mapping[str, Capability] = {
    "race": Capability(title="race", seen="two are asked at once, and the first answer is sent", no=_NOT_RACED),
    "hedge": Capability(title="hedge", seen="another is asked when the first is late", no=_NOT_RACED),
    "rescue": Capability(
        title="rescue", seen="another is asked beside one that hangs, also where the budget is 0", no=_NOT_RACED
    ),
    "failover": Capability(title="failover", seen="another deployment replaces one that fails"),
    "fallback": Capability(
        title="fallback after a failure",
        seen="the model's `fallbacks` answer when it fails",
        no={"background": _ONCE},
    ),
    "beside": Capability(
        title="fallback beside", seen="they are asked beside a model that is late, and may win", no=_NOT_RACED
    ),
    "probe": Capability(
        title="probe",
        seen="a broken deployment is tried beside a call that does not wait for it",
        no={**_all_but("short: the next call tries it"), **_NOT_RACED},
    ),
    "explore": Capability(
        title="explore",
        seen="one that was not asked for long is measured beside a call",
        no={**_all_but("its hedges measure the others"), **_NOT_RACED},
    ),
    "audit": Capability(
        title="audit", seen="in a share of the races the overtaken runs on to its first token", no=_NOT_RACED
    ),
    "saved": Capability(
        title="what racing saved", seen="`alone_ms` and its predictions are in the call's row", no=_NOT_RACED
    ),
    "narrowed": Capability(
        title="narrowed",
        seen="why fewer were asked is told",
        no={"pictures": _DEAR, "counting": _DIFFER},
    ),
    "deadline": Capability(
        title="deadline",
        seen="a first token's deadline is told as met or missed, and a hedge is asked to meet it",
        no={
            "background": "it is answered later anyway",
            "pictures": _DEAR,
            "counting": _DIFFER,
        },
    ),
    "stalls": Capability(
        title="learnt stalls",
        seen="a silence in an answer that is long for its deployment is noticed, and another goes on",
        no={
            **_all_but("the answer comes whole"),
            "background": "it may be silent for long",
            "speech": "begun sound cannot be continued",
        },
    ),
    "takeover": Capability(
        title="takeover",
        seen="another deployment finishes an answer that breaks",
        no={
            **_all_but("no text to continue"),
            "whole": "nothing delivered: another answers instead",
            "background": _ONCE,
        },
    ),
    "explain": Capability(
        title="explain",
        seen="`x-holeshot-plan: 1` is answered with the plan",
        no={"turn": "events have no headers"},
    ),
    "seats": Capability(title="seats", seen="`max_in_flight` of a deployment is never exceeded"),
    "rpm": Capability(title="`rpm`", seen="a key's requests a minute are counted"),
    "tpm": Capability(
        title="`tpm`",
        seen="a key's tokens a minute are counted",
        no={"speech": "paid by the character", "counting": _FREE},
    ),
    "max_parallel": Capability(title="`max_parallel`", seen="a key's calls at the same time are counted"),
    "usd": Capability(title="`usd_per_day` of a key", seen="its dollars of a day are counted", no={"counting": _FREE}),
    "model_usd": Capability(
        title="`usd_per_day` of a model", seen="its dollars of a day are counted", no={"counting": _FREE}
    ),
    "extra_usd": Capability(
        title="`race.usd_per_day`",
        seen="no extra attempt starts when its dollars are spent",
        no={**_NOT_RACED, "transcripts": "its length is known only afterwards", "counting": _FREE},
    ),
    "bounds": Capability(
        title="dollars' bounds",
        seen="what a loser may have cost is between two figures, and so is the call",
        no={**_NOT_RACED, "counting": _FREE},
    ),
    "live": Capability(title="live view", seen="the call is in `GET /api/live` while it runs"),
    "traces": Capability(title="traces", seen="a span of the call, and one of each attempt"),
}

_HEAD = """# Capabilities

Which capability is there for what is asked. Each *yes* is tried over HTTP by a test; elsewhere a few words say why not.

| | a yes means that |
|---|---|"""


def page() -> str:
    """Return the text of docs/reference/capabilities.md."""
    meanings = [f"| {each.title} | {each.seen} |" for each in CAPABILITIES.values()]
    parts = [_HEAD, *meanings, "", "## Tokens", "", *_rows(TOKENS), "", "## Other answers", "", *_rows(OTHERS), ""]
    return "\n".join(parts)


def _rows(asked: Mapping[str, str]) -> Sequence[str]:
    return table(("", *asked.values()), ((each.title, *map(each.cell, asked)) for each in CAPABILITIES.values()))
