"""Which requests a fact concerns that only another client has met: by their fields and sizes, without the prompt."""

import msgspec
import pytest

from providers.exchange.forms import concerns
from providers.refusals.learnt import Fact, Kind

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
