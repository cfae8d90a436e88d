"""What refusals say of the API that was asked, and of the one to use instead."""

import pytest

from providers import ErrorKind, MissingFeature, UpstreamError, lacking, offered

NO_CHAT = (
    "This is not a chat model and thus not supported in the v1/chat/completions endpoint."
    " Did you mean to use v1/completions?"
)
NO_COMPLETIONS = (
    "This is a chat model and not supported in the v1/completions endpoint. Did you mean to use v1/chat/completions?"
)
NO_TOOLS = "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions."


def refusal(message: str, status: int = 404, *names: str, kind: ErrorKind | None = None) -> UpstreamError:
    usual = ErrorKind.NOT_FOUND if status == 404 else ErrorKind.BAD_REQUEST
    return UpstreamError(kind or usual, message, status=status, names=names)


@pytest.mark.parametrize(
    ("message", "status", "instead"),
    [
        ("This model is only supported in v1/responses and not in v1/chat/completions.", 404, "responses"),
        ("This model only supports Interactions API.", 400, "interactions"),
        (
            NO_CHAT,
            404,
            "completions",
        ),
        (
            NO_COMPLETIONS,
            404,
            "chat",
        ),
        ("The requested model 'gpt-4o-search-preview' is not supported with the Responses API.", 400, None),
        ("model gemini-3.1-pro-preview does not support Responses API.", 400, None),
        ('model "gpt-5.3-codex" is not accessible via the /chat/completions endpoint', 400, None),
        ("The chatCompletion operation does not work with the specified model, gpt-5.1-codex-max.", 400, None),
        ("The requested operation is unsupported.", 400, None),
        ("The model 'openai.gpt-5.6-terra' does not support the '/v1/chat/completions' API", 400, None),
    ],
)
def test_a_model_that_is_not_in_an_api_is_known_by_the_vendors_words(
    message: str, status: int, instead: str | None
) -> None:
    assert lacking(refusal(message, status)) is MissingFeature.MODEL
    assert offered(message) == instead


@pytest.mark.parametrize(
    "message",
    [
        f"{NO_TOOLS} Please use /v1/responses instead.",
        f"{NO_TOOLS} To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
    ],
)
def test_tools_that_are_not_in_an_api_are_known(message: str) -> None:
    assert lacking(refusal(message, 400)) is MissingFeature.TOOLS
    assert offered(message) == "responses"


@pytest.mark.parametrize(
    "message",
    ["404 page not found", "Not Found", "File Not Found", "a web page: 404 Not Found", "Invalid URL (POST /v1/x)"],
)
def test_a_path_that_is_missing_is_known_in_every_api(message: str) -> None:
    assert lacking(refusal(message)) is MissingFeature.PATH
    assert lacking(refusal(message, kind=ErrorKind.NO_SUCH_API)) is MissingFeature.PATH


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ("The model `m` does not exist or you do not have access to it.", 404, "model_not_found"),
        ("model 'llama' not found, try pulling it first", 404, "not_found_error"),
        ("Unsupported parameter: 'temperature' is not supported with this model.", 400, "unsupported_parameter"),
        ("tools are not supported by this model", 400, "invalid_request_error"),
        ("Unsupported value: 'reasoning_effort' does not support 'none'", 400, "unsupported_value"),
        ("busy", 404, "overloaded"),
    ],
)
def test_other_refusals_are_not_about_the_api(message: str, status: int, code: str) -> None:
    assert lacking(refusal(message, status, code)) is None
