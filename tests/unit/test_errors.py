"""Which error stands for the failures of a call."""

import pytest

from gateway.core.race_failures import (
    AllProvidersFailed,
    ProviderMisconfigured,
    RaceFailed,
    SkippedDeployment,
    race_failed,
)
from providers import ErrorKind, UpstreamError

OUT = SkippedDeployment("b", "out: not_found (404): no model", for_good=True)
OPEN = SkippedDeployment("b", "open: server_error (503)", for_good=False)


def refused() -> list[tuple[str, UpstreamError]]:
    return [("a", UpstreamError(ErrorKind.PROVIDER_AUTH, "no", status=401))]


@pytest.mark.parametrize(("out", "expected"), [([OUT], ProviderMisconfigured), ([OPEN], AllProvidersFailed)])
def test_only_while_nobody_may_come_back_by_themselves_it_is_the_operators(
    out: list[SkippedDeployment], expected: type[RaceFailed]
) -> None:
    error = race_failed("llama", refused(), out=out)
    assert type(error) is expected
    assert f"a: provider_auth: no; b: not asked, {out[0].reason}" in error.message


def test_a_rate_limit_beside_a_deployment_that_is_out_is_worth_another_try() -> None:
    limited = UpstreamError(ErrorKind.RATE_LIMITED, "slow down", status=429, retry_after_s=2.0)
    error = race_failed("llama", [("a", limited)], out=[OUT])
    assert (error.status_code, error.headers["retry-after"]) == (429, "2")
    assert "b: not asked, out: not_found (404): no model" in error.message
