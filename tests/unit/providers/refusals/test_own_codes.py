"""Errors in a body with status 200 that have only their vendor's own code, or words: Baidu, Zhipu and others."""

from typing import Any

import pytest

from providers import blames_request_within, mark, meaning_of
from providers.bodies import complains
from providers.dialects import raw_json
from providers.exchange import VendorsWords
from providers.refusals import ErrorKind, Meaning, UpstreamError, decide_by_request, error_in, read_answer

KEY, RATE, GONE = ErrorKind.PROVIDER_AUTH, ErrorKind.RATE_LIMITED, ErrorKind.NOT_FOUND
WRONG, FAILED = ErrorKind.BAD_REQUEST, ErrorKind.SERVER_ERROR


def told(answer: dict[str, Any]) -> UpstreamError:
    """Return the error as an attempt reads it in a whole answer."""
    body = bytes(raw_json(answer))
    try:
        read_answer(body)
    except UpstreamError as found:
        error = found
    else:
        assert complains(body)
        error = error_in(body, (), otherwise=FAILED)
    mark(error, VendorsWords({"model": raw_json("m")}))
    decide_by_request(error, "m", {})
    if blames_request_within(error):
        error.turn_into(WRONG)
    return error


def baidu(code: int, said: str) -> dict[str, Any]:
    return {"error_code": code, "error_msg": said}


def minimax(code: int, said: str) -> dict[str, Any]:
    return {"base_resp": {"status_code": code, "status_msg": said}}


def zhipu(code: str, said: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": said}}


def alibaba(code: str, said: str) -> dict[str, Any]:
    return {"code": code, "message": said, "request_id": "r"}


def tencent(code: str, said: str) -> dict[str, Any]:
    return {"Response": {"Error": {"Code": code, "Message": said}, "RequestId": "r"}}


@pytest.mark.parametrize(
    ("answer", "kind", "meaning"),
    [
        (baidu(110, "Access token invalid or no longer valid"), KEY, None),
        (baidu(14, "IAM Certification failed"), KEY, None),
        (baidu(6, "No permission to access data"), KEY, None),
        (baidu(17, "Open api daily request limit reached"), RATE, Meaning.DAY),
        (baidu(18, "Open api qps request limit reached"), RATE, Meaning.RATE),
        (baidu(336501, "Rate limit reached for RPM"), RATE, Meaning.RATE),
        (baidu(336100, "the server is busy, please try again"), FAILED, Meaning.OVERLOADED),
        (baidu(336007, "the max length of current question is 2000"), WRONG, Meaning.TOO_LONG),
        (baidu(336103, "Prompt tokens too long"), WRONG, Meaning.TOO_LONG),
        (baidu(336003, "the length of messages must be an odd number"), WRONG, None),
        (baidu(336000, "Internal error"), FAILED, None),
        (baidu(336008, "The model does not exist"), GONE, Meaning.GONE),
        (minimax(1004, "login fail: Please carry the API secret key"), KEY, None),
        (minimax(1008, "insufficient balance"), KEY, Meaning.UNPAID),
        (minimax(1026, "input new_sensitive"), WRONG, Meaning.CONTENT),
        (minimax(2013, "invalid params, context window exceeds limit"), WRONG, Meaning.TOO_LONG),
        (minimax(2061, "your current token plan not support model, m"), KEY, Meaning.GONE),
        (minimax(1000, "unknown error"), FAILED, None),
        (zhipu("1001", "Header中未收到Authorization参数,无法进行身份验证"), KEY, None),
        (zhipu("1004", "通过提供的Authorization Token的验证失败"), KEY, None),
        (zhipu("1113", "您的账户已欠费,请充值后重试"), KEY, Meaning.UNPAID),
        (zhipu("1210", "API 调用参数有误,请检查文档。"), WRONG, None),
        (zhipu("1211", "模型不存在,请检查模型代码。"), GONE, Meaning.GONE),
        (zhipu("1220", "您无权访问m。"), KEY, Meaning.GONE),
        (zhipu("1261", "Prompt 超长"), WRONG, Meaning.TOO_LONG),
        (zhipu("1301", "系统检测到输入或生成内容可能包含不安全或敏感内容"), WRONG, Meaning.CONTENT),
        (zhipu("1302", "您当前使用该API的并发数过高,请降低并发"), RATE, Meaning.RATE),
        (zhipu("1304", "该API已达今日调用次数限额"), RATE, Meaning.DAY),
        (zhipu("1305", "当前API请求过多,请稍后重试。"), RATE, Meaning.OVERLOADED),
        (zhipu("1310", "Weekly/Monthly Limit Exhausted."), RATE, Meaning.DAY),
        (zhipu("1234", "网络错误"), FAILED, None),
        ({"code": 1302, "msg": "并发数过高", "success": False}, RATE, Meaning.RATE),
        ({"code": 1002, "msg": "Authorization Token非法", "success": False}, KEY, None),
        (alibaba("InvalidApiKey", "Invalid API-key provided."), KEY, None),
        (alibaba("Throttling.RateQuota", "Requests rate limit exceeded, please try again later."), RATE, Meaning.RATE),
        (
            alibaba("Arrearage", "Access denied, please make sure your account is in good standing."),
            KEY,
            Meaning.UNPAID,
        ),
        (alibaba("InvalidParameter", "Range of input length should be [1, 6000]"), WRONG, Meaning.TOO_LONG),
        (alibaba("DataInspectionFailed", "Input data may contain inappropriate content."), WRONG, Meaning.CONTENT),
        (alibaba("ModelNotFound", "Model can not be found."), GONE, Meaning.GONE),
        (alibaba("Model.AccessDenied", "Model access denied."), KEY, Meaning.GONE),
        (alibaba("InternalError", "An internal error has occurred"), FAILED, None),
        (tencent("AuthFailure.SecretIdNotFound", "The SecretId is not found."), KEY, None),
        (tencent("AuthFailure.SignatureFailure", "The provided credentials could not be validated."), KEY, None),
        (tencent("RequestLimitExceeded", "Your current request times equals to 21 in a second"), RATE, Meaning.RATE),
        (tencent("ResourceUnavailable.InArrears", "账号已欠费"), KEY, Meaning.UNPAID),
        (tencent("InvalidParameterValue", "the prompt is too long"), WRONG, Meaning.TOO_LONG),
        (tencent("InvalidParameterValue.Model", "模型不存在"), GONE, Meaning.GONE),
        (tencent("InternalError", "try again"), FAILED, None),
        ({"code": 11202, "message": "appid qps limit", "sid": "s"}, RATE, Meaning.RATE),
        ({"code": 10013, "message": "InputAudit: input content audit failed", "sid": "s"}, WRONG, Meaning.CONTENT),
        ({"code": 11200, "message": "AppIdNoAuthError", "sid": "s"}, KEY, None),
        ({"code": 20012, "message": "Model does not exist. Please check it carefully."}, GONE, Meaning.GONE),
        ({"code": 30001, "message": "Sorry, your account balance is insufficient"}, KEY, Meaning.UNPAID),
        (
            {"code": 20015, "message": "length of prompt_tokens (40000) must be less than max_seq_len (32768)."},
            WRONG,
            Meaning.TOO_LONG,
        ),
    ],
)
def test_it_means_what_its_vendor_says(answer: dict[str, Any], kind: ErrorKind, meaning: Meaning | None) -> None:
    error = told(answer)
    assert (error.kind, meaning_of(error)) == (kind, meaning)


@pytest.mark.parametrize(
    "answer",
    [
        {"code": 0, "message": "Success", "sid": "s", "choices": [{"message": {"content": "well"}}]},
        {"error_code": 0, "error_msg": "", "choices": [{"message": {"content": "well"}}]},
        {"base_resp": {"status_code": 0, "status_msg": ""}, "choices": [{"message": {"content": "well"}}]},
    ],
)
def test_a_code_of_success_is_no_error(answer: dict[str, Any]) -> None:
    body = bytes(raw_json(answer))
    read_answer(body)
    assert not complains(body)
