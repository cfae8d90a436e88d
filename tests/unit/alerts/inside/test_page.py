"""docs/monitoring.md: what it shows of the signature is what the tests use."""

from pathlib import Path

from pydantic import SecretStr

from gateway.alerts.alert import signed_headers
from gateway.settings import key_of
from tests.app.alerts.verifying import verified

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
HEADERS = dict(signed_headers(key_of(SecretStr(SECRET)), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY))


def block(language: str) -> str:
    return PAGE.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_signature_is_that_of_the_specifications_own_example() -> None:
    assert HEADERS["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_python_on_the_page_is_what_the_tests_verify_with() -> None:
    used = (ROOT / "tests" / "app" / "alerts" / "verifying.py").read_text(encoding="utf-8")
    assert used.partition("# begin\n")[2].strip() == block("python").strip()


OTHER_VERSION = HEADERS["webhook-signature"].replace("v1", "v2")
CASES = [
    (HEADERS, BODY, SECRET, 1614265330, True),
    (HEADERS, BODY, SECRET, 1614265330 + 300, True),
    (HEADERS, BODY, SECRET, 1614265330 + 301, False),  # old
    (HEADERS, BODY + b" ", SECRET, 1614265330, False),
    ({**HEADERS, "webhook-id": "msg_other"}, BODY, SECRET, 1614265330, False),
    ({**HEADERS, "webhook-timestamp": "1614265331"}, BODY, SECRET, 1614265330, False),
    (HEADERS, BODY, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 1614265330, False),
    ({**HEADERS, "webhook-signature": "v1,AAAA " + HEADERS["webhook-signature"]}, BODY, SECRET, 1614265330, True),
    ({**HEADERS, "webhook-signature": OTHER_VERSION}, BODY, SECRET, 1614265330, False),
]  # fmt: skip


def test_python_takes_what_is_ours_and_nothing_else() -> None:
    assert [verified(headers, body, secret, now_s) for headers, body, secret, now_s, _ in CASES] == [
        each[-1] for each in CASES
    ]
