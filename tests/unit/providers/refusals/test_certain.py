"""No request can have caused some failures: known by code or status, and never by words anywhere in a message."""

import pytest

from providers.refusals import error_of_response

CERTAIN = [
    (401, ""),
    (401, "Unauthorized"),
    (
        401,
        '{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}',
    ),
    (401, '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'),
    (401, '{"error":{"message":"User not found.","code":401}}'),
    (400, '{"error":{"code":400,"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}}'),
    (400, '{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***yz."}'),
    (402, '{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}'),
    (403, '{"error":{"message":"disabled","code":"api_key_disabled"}}'),
    (404, '{"error":{"message":"no such model","code":"model_not_found"}}'),
    (429, '{"error":{"message":"You exceeded ...","type":"insufficient_quota","code":"insufficient_quota"}}'),
    (429, '{"error":{"message":"Rate limit reached on RPM","code":"rate_limit_exceeded"}}'),
    (429, '{"type":"error","error":{"type":"rate_limit_error","message":"... of 20,000 input tokens per minute"}}'),
]
DOUBTED = [
    (401, '{"error":{"message":"the tool\'s server refuses","code":"mcp_server_error"}}'),
    (403, ""),
    (403, '{"code":"permission-denied","error":"Access to the chat endpoint is denied"}'),
    (403, '{"error":{"message":"your API key is invalid, it says","code":"guardrail"}}'),
    (404, ""),
    (404, '{"error":{"message":"No endpoints found for a/b.","code":404}}'),
    (429, ""),
    (429, '{"error":{"message":"the premium tier is full","code":"capacity"}}'),
    (429, '{"error":{"message":"top up: your balance is exhausted","code":"busy"}}'),
    (500, '{"error":{"message":"invalid_api_key"}}'),
]


@pytest.mark.parametrize(("status", "said"), CERTAIN)
def test_a_key_an_account_a_model_and_a_rate_are_known_by_their_code(status: int, said: str) -> None:
    assert error_of_response(status, {}, said.encode(), (), 0.0).findings.is_certain


def test_a_rate_that_headers_show_to_be_used_up_is_certain() -> None:
    headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0"}
    assert error_of_response(429, headers, b"", (), 0.0).findings.is_certain
    assert not error_of_response(
        429, headers | {"x-ratelimit-remaining-requests": "9"}, b"", (), 0.0
    ).findings.is_certain


@pytest.mark.parametrize(("status", "said"), DOUBTED)
def test_what_a_request_may_have_caused_is_not(status: int, said: str) -> None:
    assert not error_of_response(status, {}, said.encode(), (), 0.0).findings.is_certain
