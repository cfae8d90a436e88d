"""What requests, forms and answers show of themselves in tracebacks, debuggers and logs."""

import msgspec
import pytest
from rich.pretty import pretty_repr

from providers import Credentials, Server, Setup, read_form
from providers.exchange import Request, UpstreamAnswer
from providers.http import proxy_of

SECRET = "sk-nobody-may-see"
PROMPT = "my diagnosis"
BODY = (
    f'--b\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n{PROMPT}\r\n'
    '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--b--\r\n'
).encode()
FORM = read_form("multipart/form-data; boundary=b", BODY)
REQUEST = Request(
    "llama-3.3-70b",
    {"messages": msgspec.Raw(f'[{{"role":"user","content":"{PROMPT}"}}]'.encode()), "stream": msgspec.Raw(b"true")},
    headers={"user-agent": f"app/1 {SECRET}"},
    own_headers=(("x-api-key", SECRET),),
    extra_body={"credentials": msgspec.Raw(f'"{SECRET}"'.encode())},
    form=FORM,
)
ANSWER = UpstreamAnswer(200, {"x-echo": SECRET}, f'{{"text":"{PROMPT}"}}'.encode(), None, 12.0, secrets=(SECRET,))
SERVER = Server("own", f"https://me:{SECRET}@host/v1", headers={"x-own": SECRET}, query={"key": SECRET})
SETUP = Setup(name="own", base_url=f"https://me:{SECRET}@host/v1", headers={"x-own": SECRET}, query={"key": SECRET})
CREDENTIALS = Credentials(keys=[SECRET], former=[[SECRET]], secrets=[SECRET])


@pytest.mark.parametrize("shown", [repr, str, pretty_repr], ids=["repr", "str", "rich"])
@pytest.mark.parametrize(
    "each",
    [REQUEST, FORM, ANSWER, SERVER, SETUP, CREDENTIALS],
    ids=["request", "form", "answer", "server", "setup", "credentials"],
)
def test_neither_a_secret_nor_the_prompt_is_shown(each: object, shown: type[str]) -> None:
    assert SECRET not in shown(each)
    assert PROMPT not in shown(each)
    assert PROMPT not in shown({"request": [each]})


def test_a_request_shows_what_it_asks_for_and_the_names_of_what_it_sends() -> None:
    shown = repr(REQUEST)
    for name in ("llama-3.3-70b", "chat", "messages", "stream", "user-agent", "x-api-key", "credentials", "2 parts"):
        assert name in shown


def test_an_answer_shows_its_status_and_its_size() -> None:
    assert repr(ANSWER) == "UpstreamAnswer(status=200, headers=['x-echo'], body='23 bytes', rest=False)"


def test_a_proxys_password_is_not_shown_by_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://user:{SECRET}@proxy.example:1")
    assert "authorization" not in pretty_repr(proxy_of("http", "api.example"))
