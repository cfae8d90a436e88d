"""Each table of vendors' words beside prompts that have these words, and where a provider quotes them."""

from typing import Any

import msgspec
import pytest

from providers import ErrorKind, UpstreamError, lacking, offered
from providers.exchange import VendorsWords, mark
from providers.refusals import decide_by_request, error_of_response
from tests.unit.providers.exchange.inside.test_quotes import fields, mentions
from tests.unit.providers.refusals import test_wrong_api as wrong_api
from tests.unit.providers.refusals.inside import test_one_request as one_request
from tests.unit.providers.refusals.test_accounts import IN_WORDS, RATED, SPENT

ACCOUNTS = [(status, said) for table in (SPENT, IN_WORDS, RATED) for status, said in table.values() if status != 200]
QUOTES = ["Invalid value: '{}'", "{} is not a valid effort", "Input is wrong (got {})", "Invalid reasoning_effort: {}"]
APIS = [
    "This model is only supported in v1/responses and not in v1/chat/completions.",
    wrong_api.NO_CHAT,
    wrong_api.NO_COMPLETIONS,
    "The requested model 'gpt-4o-search-preview' is not supported with the Responses API.",
    'model "gpt-5.3-codex" is not accessible via the /chat/completions endpoint',
    "The chatCompletion operation does not work with the specified model, gpt-5.1-codex-max.",
    "The requested operation is unsupported.",
    f"{wrong_api.NO_TOOLS} Please use /v1/responses instead.",
]
OF_ONE = [said for name, said in vars(one_request).items() if name.isupper() and isinstance(said, str)]
ASKED = [one_request.NOTHING, one_request.FLEX, one_request.ONLY]


def answered(status: int, said: Any, asked: dict[str, Any] | None) -> UpstreamError:
    """Return a refusal, marked by the request for which somebody ``asked``."""
    sent = None if asked is None else fields(asked)
    body = said.encode() if isinstance(said, str) else msgspec.json.encode(said)
    error = error_of_response(status, {}, body, (), 0.0, own=None if sent is None else VendorsWords(sent))
    decide_by_request(error, "m", sent or {})
    return error


def meaning(error: UpstreamError) -> tuple[object, ...]:
    return (
        error.kind,
        error.findings.is_certain,
        error.findings.is_outsized,
        error.findings.is_declined,
        error.retry_after_s,
    )


@pytest.mark.parametrize(("status", "said"), ACCOUNTS)
def test_an_account_is_known_whatever_the_prompt_is_about(status: int, said: Any) -> None:
    plain = answered(status, said, None)
    for asked in mentions(plain.message):
        assert meaning(answered(status, said, asked)) == meaning(plain), asked


@pytest.mark.parametrize(("status", "said"), ACCOUNTS)
@pytest.mark.parametrize("quote", QUOTES)
def test_what_is_quoted_of_an_account_says_nothing_of_it(status: int, said: Any, quote: str) -> None:
    written = answered(status, said, None).message
    for refused_with in (400, 403, 404, 422, 429, 500, 503):
        expected, found = (
            answered(refused_with, {"error": {"message": quote.format(effort)}}, {"reasoning_effort": effort})
            for effort in ("some other text", written)
        )
        assert meaning(found) == meaning(expected), (refused_with, found.said)


@pytest.mark.parametrize("said", OF_ONE)
@pytest.mark.parametrize("status", [403, 404, 421, 429, 498, 500, 503])
@pytest.mark.parametrize("more", ASKED)
def test_what_is_of_one_request_is_known_whatever_its_prompt_is_about_and_a_quote_says_nothing(
    said: str, status: int, more: dict[str, object]
) -> None:
    plain = error_of_response(status, {}, said.encode(), (), 0.0)
    decide_by_request(plain, "m", fields(more))
    for asked in mentions(plain.message):
        assert meaning(answered(status, said, {**asked, **more})) == meaning(plain), asked
    for quote in QUOTES:
        expected, found = (
            answered(status, {"error": {"message": quote.format(effort)}}, {"reasoning_effort": effort, **more})
            for effort in ("some other text", plain.message)
        )
        assert meaning(found) == meaning(expected), found.said


@pytest.mark.parametrize("said", APIS)
def test_the_api_to_use_is_known_whatever_the_prompt_is_about_and_a_quote_says_nothing(said: str) -> None:
    for asked in mentions(said):
        error = wrong_api.refusal(said, 400)
        plain = lacking(error), offered(error.said)
        mark(error, VendorsWords(fields(asked)))
        assert plain[0] is not None
        assert (lacking(error), offered(error.said)) == plain, error.said
    for quote in QUOTES:
        for kind in (ErrorKind.BAD_REQUEST, ErrorKind.NOT_FOUND):
            error = wrong_api.refusal(quote.format(said), 400, kind=kind)
            mark(error, VendorsWords(fields({"reasoning_effort": said})))
            assert lacking(error) is None, error.said
            assert offered(error.said) is None, error.said
