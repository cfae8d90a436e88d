"""``curl -N``: what was sent is what arrives, byte by byte, and the response ends as it should."""

import json
import re
import shutil
import subprocess
from typing import Any

from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.samples import WAV
from tests.clients.upstream.vendors import KEY

_STATUS = re.compile(r"^HTTP/1.1 (\d+)", re.MULTILINE)


def version() -> str:
    """Return curl's version."""
    return subprocess.run(["curl", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]


suite = Suite("curl", version=version)


def curl(url: str, key: str, path: str, body: Any = None, *options: str) -> tuple[int, str, bytes]:
    """Ask and return the status, the headers in small letters, and the body; curl itself must be content.

    An incomplete chunked body makes curl end with 18, so a response that does not end properly raises here.
    """
    program = shutil.which("curl")
    assert program is not None
    given = [] if body is None else ["-H", "content-type: application/json", "--data-binary", "@-"]
    headers = ["-H", f"authorization: Bearer {key}"]
    if path.startswith("/v1/messages"):
        headers = ["-H", f"x-api-key: {key}", "-H", "anthropic-version: 2023-06-01"]
    done = subprocess.run(
        [program, "-sS", "-N", "-D", "/dev/stderr", *headers, *given, *options, f"{url}{path}"],
        input=None if body is None else json.dumps(body).encode(),
        check=True,
        capture_output=True,
    )
    head = done.stderr.decode()
    return int(_STATUS.findall(head)[-1]), head.lower(), done.stdout


def untouched(target: Target, path: str, body: Any) -> tuple[bytes, list[bytes]]:
    """Return what arrives, and what each upstream sends to the same request."""
    status, _, seen = curl(target.url, target.key, path, body)
    equal(status, 200)
    return seen, [curl(url, KEY, path, body)[2] for url in target.upstreams]


def without_usage_chunk(stream: bytes) -> bytes:
    """Drop the chunk that carries nothing but the usage."""
    return b"".join(block for block in stream.splitlines(keepends=True) if b'"choices":[],"usage":{' not in block)


def data_of(stream: bytes) -> list[Any]:
    """Return the data of each event but [DONE]."""
    lines = [line.removeprefix(b"data: ") for line in stream.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def chat(target: Target, text: str, **fields: Any) -> Any:
    """Return the body of a chat completion."""
    return {"model": target.chat, "messages": [{"role": "user", "content": text}], **fields}


@suite.case(Feature.BYTES)
def a_chat_stream_with_usage_is_untouched(target: Target) -> None:
    body = chat(target, "say: one, zwölf, 三 🐎", stream=True, stream_options={"include_usage": True})
    seen, sent = untouched(target, "/v1/chat/completions", body)
    expect(target.translates or seen in sent, seen)
    expect(seen.endswith(b"data: [DONE]\n\n"), seen[-40:])
    equal(data_of(seen)[-1]["usage"]["completion_tokens"], 4)


@suite.case(Feature.BYTES)
def a_chat_stream_is_untouched_but_for_the_usage_nobody_asked_for(target: Target) -> None:
    body = chat(target, "say: one two three", stream=True)
    status, head, seen = curl(target.url, target.key, "/v1/chat/completions", body)
    equal(status, 200)
    expect("content-type: text/event-stream" in head, head)
    with_usage = {**body, "stream_options": {"include_usage": True}}
    sent = [curl(url, KEY, "/v1/chat/completions", with_usage)[2] for url in target.upstreams]
    sent_without = [curl(url, KEY, "/v1/chat/completions", body)[2] for url in target.upstreams]
    allowed = [_squeezed(without_usage_chunk(stream)) for stream in sent] + [_squeezed(item) for item in sent_without]
    expect(target.translates or _squeezed(seen) in allowed, seen)
    equal([item for item in data_of(seen) if item.get("usage")], [])


@suite.case(Feature.BYTES)
def a_chat_stream_of_tools_is_untouched(target: Target) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    text = 'call: f {"a": "\\u00e9\\n"}\ncall: f {}'
    seen, sent = untouched(
        target,
        "/v1/chat/completions",
        chat(target, text, tools=[tool], stream=True, stream_options={"include_usage": True}),
    )
    expect(target.translates or seen in sent, seen)


@suite.case(Feature.BYTES)
def a_stream_of_completions_is_untouched(target: Target) -> None:
    body = {"model": target.models["completions"], "prompt": "say: one two", "stream": True}
    if target.translates:  # a raw prompt is refused, which openai-python looks at
        return
    seen, sent = untouched(target, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
    expect(seen in sent, seen)
    expect(seen.endswith(b"data: [DONE]\n\n"), seen[-40:])


@suite.case(Feature.BYTES)
def a_stream_of_responses_is_untouched(target: Target) -> None:
    body = {"model": target.responses, "input": "say: one two", "stream": True, "store": False}
    seen, sent = untouched(target, "/v1/responses", body)
    expect(target.translates or seen in sent, seen)
    equal(data_of(seen)[-1]["type"], "response.completed")
    for event, data in zip(re.findall(rb"^event: (.*)$", seen, re.MULTILINE), data_of(seen), strict=True):
        equal(event.decode(), data["type"])


@suite.case(Feature.BYTES)
def a_stream_of_messages_is_untouched(target: Target) -> None:
    body = {
        "model": target.messages,
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "say: one two"}],
        "stream": True,
    }
    if target.translates:
        del body["thinking"]
    seen, sent = untouched(target, "/v1/messages", body)
    expect(target.translates or seen in sent, seen)
    for event, data in zip(re.findall(rb"^event: (.*)$", seen, re.MULTILINE), data_of(seen), strict=True):
        equal(event.decode(), data["type"])
    equal(data_of(seen)[-1]["type"], "message_stop")


@suite.case(Feature.BYTES)
def whole_answers_say_the_same(target: Target) -> None:
    """A gateway may put a whole answer together from a stream: the same JSON, if not the same bytes."""
    message = {"role": "user", "content": "say: one two"}
    for path, body in (
        ("/v1/chat/completions", chat(target, "say: one two")),
        ("/v1/completions", {"model": target.models["completions"], "prompt": "say: one two"}),
        ("/v1/responses", {"model": target.responses, "input": "say: one two", "store": False}),
        ("/v1/messages", {"model": target.messages, "max_tokens": 90, "messages": [message]}),
    ):
        if target.translates and path == "/v1/completions":
            continue
        seen, sent = untouched(target, path, body)
        if not target.translates:
            expect(_plain(json.loads(seen)) in [_plain(json.loads(item)) for item in sent], (path, seen))


@suite.case(Feature.BYTES)
def a_body_arrives_as_it_was_sent(target: Target) -> None:
    body = chat(target, "echo: body", x_of_the_future=[1.50, None, {"z": 1, "a": "é"}], seed=2**60)
    if target.translates:
        return
    _, _, seen = curl(target.url, target.key, "/v1/chat/completions", body)
    echoed = json.loads(json.loads(seen)["choices"][0]["message"]["content"])
    equal({name: echoed[name] for name in body if name != "stream"}, body)


@suite.case(Feature.ERRORS)
def errors_have_the_shape_of_their_vendor(target: Target) -> None:
    for path, body in (
        ("/v1/chat/completions", chat(target, "say: hi")),
        ("/v1/responses", {"model": target.responses, "input": "say: hi"}),
        ("/v1/messages", {"model": target.messages, "max_tokens": 90, "messages": []}),
    ):
        status, head, seen = curl(target.url, target.wrong_key, path, body)
        equal(status, 401)
        expect("content-type: application/json" in head, head)
        error = json.loads(seen)
        expect(error["error"]["message"], error)
        equal(error.get("type"), "error" if path == "/v1/messages" else None)


@suite.case(Feature.ERRORS)
def what_is_no_json_is_refused(target: Target) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"):
        status, _, seen = curl(
            target.url, target.key, path, None, "-H", "content-type: application/json", "-d", '{"model": '
        )
        equal((path, status), (path, 400))
        expect(json.loads(seen)["error"]["message"], seen)


@suite.case(Feature.ERRORS)
def a_stream_that_breaks_does_not_look_whole(target: Target) -> None:
    body = chat(target, f"cut: now\nsay: {'word ' * 40}", stream=True, model=target.troubled_model("chat"))
    try:
        _, _, seen = curl(target.url, target.key, "/v1/chat/completions", body)
    except subprocess.CalledProcessError as error:
        seen = error.stdout
    expect(b"[DONE]" not in seen, seen[-200:])
    expect(b"word" in seen, seen)


@suite.case(Feature.OTHERS)
def documents_are_ranked(target: Target) -> None:
    body = {"model": target.models["rerank"], "query": "a fast horse", "documents": ["a cow", "fast horse", "no"]}
    status, _, seen = curl(target.url, target.key, "/v1/rerank", {**body, "top_n": 2})
    equal((status, [item["index"] for item in json.loads(seen)["results"]]), (200, [1, 0]))


@suite.case(Feature.OTHERS)
def a_form_with_a_file_arrives(target: Target) -> None:
    options = ("-F", f"model={target.models['transcriptions']}", "-F", "file=@-;filename=a.wav", "-F", "language=en")
    program = shutil.which("curl")
    assert program is not None
    done = subprocess.run(
        [
            program,
            "-sS",
            "-H",
            f"authorization: Bearer {target.key}",
            *options,
            f"{target.url}/v1/audio/transcriptions",
        ],
        input=WAV,
        check=True,
        capture_output=True,
    )
    equal(json.loads(done.stdout).get("text"), f"{len(WAV)} bytes of a.wav for {target.models['transcriptions']}")


def _squeezed(stream: bytes) -> bytes:
    """Leave out null usages: asking for usage puts them there, and a gateway asks."""
    return stream.replace(b',"usage":null', b"")


def _plain(answer: Any) -> Any:
    """Leave out what says nothing: nulls and empty lists."""
    if isinstance(answer, dict):
        return {name: plain for name, value in answer.items() if (plain := _plain(value)) not in (None, [], {})}
    if isinstance(answer, list):
        return [_plain(item) for item in answer]
    return answer


if __name__ == "__main__":
    suite.main()
