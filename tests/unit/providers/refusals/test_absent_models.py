"""A model that is gone is known by the name that was asked for, in words of no list; and what else a 404 says."""

import pytest

from providers import meaning_of
from providers.dialects import raw_json
from providers.refusals import ErrorKind, Meaning, UpstreamError, decide_by_request, error_of_response

MODEL = "qwen-3-8b"


def told(status: int, said: str, model: str = MODEL, **fields: str) -> UpstreamError:
    body = said.encode() if said.startswith("{") else bytes(raw_json({"error": {"message": said}}))
    error = error_of_response(status, {}, body, (), 0.0)
    decide_by_request(error, model, {name: raw_json(each) for name, each in fields.items()}, may_lack_path=True)
    return error


GONE = [
    '{"detail":"Not Found: qwen-3-8b"}',
    "qwen-3-8b: not found",
    "no such deployment",
    "Resource 'qwen-3-8b' does not exist",
    "The resource qwen-3-8b does not exist in this project",
    "Unknown deployment qwen-3-8b",
    "qwen-3-8b gibt es nicht",
    "qwen-3-8b is not deployed on this server",
    "qwen-3-8b is gone",
    "qwen-3-8b introuvable",
    "qwen-3-8b no existe",
    "qwen-3-8b не найден",
    "qwen-3-8b不存在",
    "qwen-3-8bが見つかりません",
    "qwen-3-8b: 찾을 수 없습니다",
]
OF_404_ALONE = ["Sorry, qwen-3-8b was retired on 2026-11-01. Try something newer."]


@pytest.mark.parametrize("said", [*GONE, *OF_404_ALONE])
def test_a_404_that_names_what_was_asked_for_is_of_the_model(said: str) -> None:
    error = told(404, said)
    assert (error.kind, meaning_of(error)) == (ErrorKind.NOT_FOUND, Meaning.GONE)
    assert meaning_of(error.again(ErrorKind.NOT_FOUND)) is Meaning.GONE


@pytest.mark.parametrize(
    "said",
    [
        *(each for each in GONE if "qwen" in each),
        "Publisher Model `projects/p/locations/eu/publishers/x/models/qwen-3-8b` is not servable in region eu.",
        "Publisher Model is not servable in region us-central1.",
        "The 'qwen-3-8b' model is not supported when using Codex with a ChatGPT account.",
    ],
)
def test_a_400_that_says_nothing_else_is_of_the_model(said: str) -> None:
    error = told(400, said)
    assert (error.kind, error.findings.is_certain, meaning_of(error)) == (ErrorKind.NOT_FOUND, True, Meaning.GONE)


@pytest.mark.parametrize(
    "said",
    [
        "Not Found",
        "POST /v1/engines/qwen-3-8b:generate not found",
        "The path /openai/deployments/qwen-3-8b/chat was not found",
        "Route of qwen-3-8b not found",
        "https://a.example/qwen-3-8b does not exist",
        "File not found for qwen-3-8b",
        "Not found: qwen-3-8b-instruct",
        "Not found: org/qwen-3-8b",
        "qwen-3-8b is here. The page does not exist.",
    ],
)
def test_a_404_of_another_thing_is_not_of_the_model(said: str) -> None:
    assert meaning_of(told(404, said)) is not Meaning.GONE


@pytest.mark.parametrize(
    "said",
    [
        *OF_404_ALONE,
        "qwen-3-8b: parameter seed does not exist",
        "Tool 'qwen-3-8b' not found",
        "qwen-3-8b does not exist as a role",
        "seed is unknown to qwen-3-8b",
        "Not found: qwen-3-8b-instruct",
        "no such deployment",
        "The 'other' model is not supported when using Codex with a ChatGPT account.",
    ],
)
def test_a_400_that_says_more_stays_the_requests(said: str) -> None:
    assert told(400, said).kind is ErrorKind.BAD_REQUEST


def test_a_name_that_the_client_has_given_as_well_says_nothing_of_the_model() -> None:
    assert told(400, "Not found: qwen-3-8b", previous_response_id=MODEL).kind is ErrorKind.BAD_REQUEST
    assert told(400, "Not found: qwen-3-8b", previous_response_id="resp_1").kind is ErrorKind.NOT_FOUND


def test_a_long_refusal_is_read_in_no_time() -> None:
    for filling in " ", "the ", "the qwen-3-8b ", "not found ", "qwen-3-8b not found ":
        for status in 400, 404:
            told(status, filling * (4096 // len(filling)))
            told(status, "qwen-3-8b " + filling * (280 // len(filling)) + "!x")


def test_without_a_name_nothing_is_said_of_a_model() -> None:
    assert meaning_of(told(404, "Not Found: ", model="")) is None


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    "said",
    [
        '{"error":{"message":"Project `p` does not have access to model `qwen-3-8b`","code":"model_not_found"}}',
        '{"error":{"message":"The model `qwen-3-8b` is blocked.","code":"model_permission_blocked_org"}}',
        '{"code":"Model.AccessDenied","message":"Model access denied."}',
        "You don't have access to the model with the specified model ID.",
        "Access to model denied. Please make sure you are eligible for using the model.",
        "User: u is not authorized to perform: bedrock:InvokeModel on resource: arn:aws:bedrock:r::foundation-model/m",
        "team not allowed to access model. This team can only access models=['a']",
        "You are not allowed to sample from this model",
        "Access to model qwen/qwen-3-8b is restricted and you are not in the authorized list.",
        "this model requires a subscription, upgrade for access: https://ollama.com/upgrade",
        "Model requires a Pro subscription; check out hf.co/pricing to learn more.",
        "该令牌无权使用模型:qwen-3-8b",
    ],
)
def test_a_key_that_may_not_ask_the_model_is_good_for_others(status: int, said: str) -> None:
    error = told(status, said)
    assert (error.kind, meaning_of(error)) == (ErrorKind.PROVIDER_AUTH, Meaning.GONE)


@pytest.mark.parametrize(
    "said",
    [
        "Incorrect API key: no access to models",
        "Access denied due to Virtual Network/Firewall rules.",
        "Your account is not authorized",
        "Unsupported country",
        "The caller does not have permission",
    ],
)
def test_a_key_that_is_refused_everywhere_is_not_about_the_model(said: str) -> None:
    assert meaning_of(told(403, said)) is None


def test_a_400_about_the_access_to_the_model_is_of_the_model() -> None:
    assert told(400, "Your key does not have access to model qwen-3-8b").kind is ErrorKind.NOT_FOUND
    assert told(400, "You do not have access to the file of qwen-3-8b").kind is ErrorKind.BAD_REQUEST
    assert told(400, "The model qwen-3-8b is not allowed to use tools").kind is ErrorKind.BAD_REQUEST
