"""What a fact says of other requests: which it concerns, by fields and sizes without the prompt, and when it ends."""

import msgspec
import pytest

from providers import concerns
from providers.dialects import CHAT
from providers.exchange import FormRequest, Request, SentFields, learn
from providers.refusals import ErrorKind, Fact, Kind, LearntFacts, UpstreamError

ASKED = {
    "messages": msgspec.Raw(b'[{"role":"user","content":"reasoning_effort"}]'),
    "reasoning_effort": msgspec.Raw(b'"low"'),
    "max_tokens": msgspec.Raw(b"9000"),
    "reasoning": msgspec.Raw(b'{"effort":"low"}'),
}


@pytest.mark.parametrize(
    ("fact", "is_concerned"),
    [
        (Fact(Kind.FIELD, "reasoning_effort", dialect="chat"), True),
        (Fact(Kind.FIELD, "reasoning_effort", dialect="responses"), False),
        (Fact(Kind.FIELD, "verbosity", dialect="chat"), False),
        (Fact(Kind.FIELD, "reasoning.effort", dialect="chat"), True),
        (Fact(Kind.FIELD, "reasoning.summary", dialect="chat"), False),
        (Fact(Kind.VALUE, "reasoning_effort", '"high"', '"low"', "chat"), True),
        (Fact(Kind.VALUE, "reasoning_effort", '"high"', '"minimal"', "chat"), False),
        (Fact(Kind.NAME, "max_tokens", "max_completion_tokens", dialect="chat"), True),
        (Fact(Kind.LIMIT, "max_tokens", dialect="chat", tokens=8000), True),
        (Fact(Kind.LIMIT, "max_tokens", dialect="chat", tokens=9000), False),
        (Fact(Kind.LENGTH, tokens=100), True),
        (Fact(Kind.LENGTH, tokens=101), False),
        (Fact(Kind.API, "chat", "responses"), True),
        (Fact(Kind.API, "messages", "chat"), False),
        (Fact(Kind.TOOLS, "chat", "responses"), False),
        (Fact(Kind.HISTORY, dialect="chat"), False),
        (Fact(Kind.SCHEMAS, dialect="chat"), False),
        (Fact(Kind.STREAM, "chat"), False),
    ],
)
def test_a_fact_concerns_requests_that_have_what_was_refused(fact: Fact, is_concerned: bool) -> None:
    assert concerns(fact, ASKED, "chat", 100, tools=False) is is_concerned


def test_that_tools_are_refused_concerns_requests_with_tools() -> None:
    assert concerns(Fact(Kind.TOOLS, "chat", "responses"), ASKED, "chat", 100, tools=True)


def test_that_a_type_of_tools_is_refused_concerns_requests_with_such() -> None:
    fields = {"tools": msgspec.Raw(b'[{"type":"function"},{"type":"custom"}]')}
    facts = [Fact(Kind.TOOL, "chat", "responses", kind) for kind in ("custom", "web_search")]
    assert [concerns(fact, fields, "chat", 100, tools=True) for fact in facts] == [True, False]


# Of each kind: whether a fact ends once its model refuses the field by name all the same. What is not about a field, or
# is measured, ends in a day, or when it is measured anew.
ENDS = {Kind.FIELD, Kind.NAME, Kind.VALUE}
LASTS = {
    *(Kind.ACCOUNT, Kind.API, Kind.BETA, Kind.CALL, Kind.FORCED, Kind.HISTORY, Kind.LEAST, Kind.LENGTH, Kind.LIMIT),
    *(Kind.MUST, Kind.PREFILL, Kind.REASONING, Kind.ROOM, Kind.SCHEMAS, Kind.SIZE, Kind.STREAM, Kind.TOOL, Kind.TOOLS),
}


@pytest.mark.parametrize("kind", Kind)
def test_a_fact_about_a_field_ends_once_that_is_refused_all_the_same(kind: Kind) -> None:
    assert (kind in ENDS) is not (kind in LASTS), f"say above whether {kind} ends: _names of trying.py decides it"
    fact = Fact(kind, "verbosity", '"medium"', '"low"', "chat", 9000)
    learnt, sent = LearntFacts(), SentFields(ASKED)
    learnt.note("m", fact)
    assert learnt.of("m") == (fact,)
    refusal = UpstreamError(ErrorKind.BAD_REQUEST, "the verbosity is wrong", status=400)
    assert learn(learnt, FormRequest(Request("m", ASKED), "chat", CHAT.requests), refusal, lambda _: sent) == ()
    assert learnt.of("m") == (() if kind in ENDS else (fact,))
