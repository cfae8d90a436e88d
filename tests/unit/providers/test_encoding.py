"""Where there is no memory for a large result, it is an error: msgspec's ``encode`` would end the process."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from providers import encoded, packed, raw_json

# Runs each program that it is sent in a fork of itself, as what they import takes ten times as long as they do.
FORKING = """
import os, sys, traceback
import gateway.admin.keys, gateway.admin.queries, gateway.cli.terminal, gateway.racing, providers.exchange
for program in sys.stdin:
    if (child := os.fork()) == 0:
        try:
            exec(eval(program), {})
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
Said = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def said() -> Iterator[Said]:
    """Run a program, and return the lines that it prints and how it ended."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FORKING], stdin=pipe, stdout=pipe, text=True) as forking:

        def run(program: str) -> list[str]:
            assert forking.stdin is not None
            assert forking.stdout is not None
            forking.stdin.write(f"{program!r}\n")
            forking.stdin.flush()
            lines = []
            for line in forking.stdout:
                lines.append(line.strip())
                if line.startswith("ended with"):
                    break
            return lines

        yield run


NO_MEMORY = ["no memory", "ended with 0"]

# A process that may grow by 45 MB makes something of texts of 40 MB.
SHORT_OF_MEMORY = """
import resource
from providers import UpstreamError
{imports}

text = "a" * 40_000_000
raw = msgspec.Raw(b'"' + text.encode() + b'"')
turn = msgspec.Raw(b'[{{"role":"user","content":' + bytes(raw) + b'}}]')
{prepared}
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 30_000_000,) * 2)
try:
    {work}
except (MemoryError, UpstreamError):
    print("no memory")
"""
UPSTREAM = "from providers import Request\nfrom providers.vendors import Quirks\n"
SAYING = "from providers.dialects import DIALECTS, Habits, rendered\n"
PLACES: dict[str, tuple[str, str, str]] = {
    "JSON": ("from providers import encoded", "", "encoded([text])"),
    "raw JSON": ("from providers import raw_json", "", "raw_json([text])"),
    "MessagePack": ("from providers import packed", "", "packed([text])"),
    "an answer of the API of the page": (
        "from gateway.admin.queries import answer",
        "",
        "answer(None, [text])",
    ),
    "a list of keys": ("from gateway.admin.keys import uncached", "", "uncached([text])"),
    "what the command line prints": ("from gateway.cli.terminal import as_json", "", "as_json([text])"),
    "a conversation with a beginning": (
        "from providers.dialects.continuing import with_last",
        "",
        "with_last(turn, {'role': 'assistant', 'content': 'Hello'})",
    ),
    **{
        f"an answer that {name} continues": (
            "from providers.dialects import DIALECTS, continued",
            "",
            f"continued(DIALECTS['{name}'].continuing, {{'{field}': {value}}}, 'Hello', None, 1)",
        )
        for name, field, value in (
            ("chat", "messages", "turn"),
            ("completions", "prompt", "raw"),
            ("messages", "messages", "turn"),
            ("responses", "input", "raw"),
        )
    },
    "an answer with a key in it": (
        "from providers.bodies import masked_body",
        'data = b\'{"id": "secret-secret-secret", "text": \' + bytes(raw) + b\'}\'',
        "masked_body(data, ['secret-secret-secret'])",
    ),
    "a response as it was answered": (
        "from providers.dialects import DIALECTS; recalling = DIALECTS['responses'].recalling",
        "item = b'{\"content\": ' + bytes(raw) + b'}'",
        "recalling.answered_again(b'{}', [('m', item)])",
    ),
    "a request as it is sent": (
        UPSTREAM + "from providers.upstreams.http_upstream import streamed_body",
        "request = Request('m', {'messages': msgspec.Raw(b'[]'), 'user': raw})",
        "streamed_body(request, Quirks())",
    ),
    **{
        f"a chat request for {name}": (
            SAYING,
            (
                f"fields = {{'model': msgspec.Raw(b'\"m\"'), 'messages': turn}}; chat = DIALECTS['chat']; "
                f"other = DIALECTS['{name}']"
            ),
            "rendered(fields, chat, other, Habits())",
        )
        for name in ("messages", "responses", "gemini")
    },
    **{
        f"a request of {name} for chat": (
            SAYING,
            (
                f"fields = {{'model': msgspec.Raw(b'\"m\"'), {more}'{prompt}': {value}}}; chat = DIALECTS['chat']; "
                f"other = DIALECTS['{name}']"
            ),
            "rendered(fields, other, chat, Habits())",
        )
        for name, prompt, value, more in (
            ("messages", "messages", "turn", "'max_tokens': msgspec.Raw(b'9'), "),
            ("responses", "input", "turn", ""),
            ("gemini", "contents", "msgspec.Raw(b'[{\"parts\":[{\"text\":' + bytes(raw) + b'}]}]')", ""),
        )
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_a_large_result_for_which_there_is_no_memory_is_an_error(said: Said, place: str) -> None:
    imports, prepared, work = PLACES[place]
    program = SHORT_OF_MEMORY.format(imports=f"import msgspec\n{imports}", prepared=prepared, work=work)
    assert said(program) == NO_MEMORY


# What one large event of an answer takes until it is translated, in the memory that is left: some steps need several
# times its size. In each of these a check of three times the size passed, and the process ended.
TRANSLATING = """
import msgspec, resource
from providers import UpstreamError
from providers.dialects import DIALECTS, translations
from providers.exchange import TranslatedExchange

class Open:
    status, headers, connect_ms, secrets = 200, {{}}, None, ()

    def abort(self):
        pass

begun = {begun}
event = {event}
exchange = TranslatedExchange(Open(), translations(DIALECTS[{source!r}], DIALECTS[{target!r}], {{}}, ()))
exchange._translated(b"".join(b"data: " + msgspec.json.encode(each) + b"\\n\\n" for each in begun))
block = b"data: " + msgspec.json.encode(event) + b"\\n\\n"
del event
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {left_mb} * 1_000_000,) * 2)
try:
    exchange._translated_large(block)
except MemoryError:
    print("no memory")
"""
SAID = "'a' * 20_000_000"
EVENTS_OF: dict[str, tuple[str, str]] = {
    "messages": (
        (
            "[{'type': 'message_start', 'message': {'id': 'm', 'role': 'assistant', 'content': [], 'usage': {}}},"
            " {'type': 'content_block_start', 'index': 0, 'content_block': {'type': 'text', 'text': ''}}]"
        ),
        f"{{'type': 'content_block_delta', 'index': 0, 'delta': {{'type': 'text_delta', 'text': {SAID}}}}}",
    ),
    "responses": (
        "[{'type': 'response.created', 'response': {'id': 'r', 'status': 'in_progress', 'output': []}}]",
        f"{{'type': 'response.output_text.delta', 'output_index': 0, 'content_index': 0, 'delta': {SAID}}}",
    ),
    "gemini": ("[]", f"{{'candidates': [{{'content': {{'parts': [{{'text': {SAID}}}]}}, 'index': 0}}]}}"),
    "chat": ("[]", f"{{'id': 'c', 'model': 'm', 'choices': [{{'index': 0, 'delta': {{'content': {SAID}}}}}]}}"),
    "completions": ("[]", f"{{'id': 'c', 'model': 'm', 'choices': [{{'index': 0, 'text': {SAID}}}]}}"),
}


@pytest.mark.parametrize(
    ("source", "target", "left_mb"),
    [
        ("messages", "chat", 65),
        ("messages", "responses", 100),
        ("messages", "gemini", 70),
        ("responses", "chat", 65),
        ("responses", "messages", 110),
        ("responses", "gemini", 100),
        ("gemini", "chat", 65),
        ("gemini", "messages", 85),
        ("gemini", "responses", 105),
        ("chat", "messages", 70),
        ("chat", "responses", 65),
        ("chat", "gemini", 65),
        ("completions", "messages", 50),
    ],
)
def test_a_large_event_for_whose_translation_there_is_no_memory_is_an_error(
    said: Said, source: str, target: str, left_mb: int
) -> None:
    begun, event = EVENTS_OF[source]
    program = TRANSLATING.format(begun=begun, event=event, source=source, target=target, left_mb=left_mb)
    assert said(program) == NO_MEMORY


OF_WHOLE = """
import msgspec, resource
from providers.dialects import DIALECTS
from providers.exchange import HttpExchange

text = {{"type": "output_text", "text": {said}, "annotations": []}}
item = {{"id": "m", "type": "message", "status": "completed", "role": "assistant", "content": [text]}}
body = msgspec.json.encode({{"id": "r", "object": "response", "status": "completed", "output": [item]}})
del text, item
exchange = HttpExchange.__new__(HttpExchange)
exchange.secrets, exchange._events_of_answer = (), DIALECTS["responses"].answers.events_of_answer
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {left_mb} * 1_000_000,) * 2)
try:
    exchange._events_of_large(body)
except MemoryError:
    print("no memory")
"""


@pytest.mark.parametrize("left_mb", [75, 140])
def test_a_large_whole_answer_for_whose_events_there_is_no_memory_is_an_error(said: Said, left_mb: int) -> None:
    program = OF_WHOLE.format(said=SAID, left_mb=left_mb)
    assert said(program) == NO_MEMORY


GATHERED = """
import asyncio, msgspec, resource
from gateway.racing import GatheringSink
from providers.dialects import DIALECTS

dialect = DIALECTS[{name!r}]
sink = GatheringSink(dialect)
asyncio.run(sink.begin(None))
for each in {begun} + [{event}] + {ended}:
    sink._gathering.take(dialect.answers.read_event(msgspec.json.encode(each), ()))
sink.size = 20_000_000
del each
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {left_mb} * 1_000_000,) * 2)
try:
    sink.body()
except MemoryError:
    print("no memory")
"""
_WHOLE = f"{{'id': 'm', 'type': 'message', 'content': [{{'type': 'output_text', 'text': {SAID}, 'annotations': []}}]}}"
ENDED_BY = {
    "messages": "[{'type': 'content_block_stop', 'index': 0}, {'type': 'message_stop'}]",
    "responses": f"[{{'type': 'response.completed', 'response': {{'id': 'r', 'output': [{_WHOLE}]}}}}]",
}


@pytest.mark.parametrize("left_mb", [25, 45])
@pytest.mark.parametrize("name", EVENTS_OF)
def test_a_large_gathered_answer_for_which_there_is_no_memory_is_an_error(said: Said, name: str, left_mb: int) -> None:
    begun, event = EVENTS_OF[name]
    program = GATHERED.format(name=name, begun=begun, event=event, ended=ENDED_BY.get(name, "[]"), left_mb=left_mb)
    assert said(program) == NO_MEMORY


# Where msgspec's own ``encode`` may be used: what it makes there is short, or its room was looked for before. Whoever
# adds a place looks which it is: ``encoded``, ``raw_json`` and ``packed`` are for what may be large.
SHORT_ELSEWHERE = ("gateway/cli/", "gateway/bench/", "providers/simulator/")  # processes without clients
SHORT = {  # of our own words, the operator's, or a field with a bound
    "gateway/admin/facts.py": 1, "gateway/admin/operations.py": 3, "gateway/admin/routes.py": 2,
    "gateway/admin/sign_in.py": 1,
    "gateway/admin/visitors.py": 1, "gateway/alerts/sender.py": 1, "gateway/api/stored_responses.py": 3,
    "gateway/api/doors.py": 2,
    "gateway/api/responses_socket.py": 1, "gateway/api/told.py": 1, "gateway/api/turns.py": 1,
    "gateway/api/vectors.py": 1,
    "providers/dialects/messages/in_frames.py": 1,
    "gateway/app/prober.py": 1,
    "gateway/app/shared_facts.py": 2, "gateway/core/errors.py": 1, "gateway/core/targets.py": 1,
    "gateway/fleet/resolver.py": 1, "gateway/fleet/models.py": 2, "gateway/keys/stored.py": 1,
    "gateway/ledger/clickhouse/sink.py": 1, "gateway/ledger/entries.py": 2, "gateway/ledger/reports/reader.py": 2,
    "gateway/ledger/reports/reports.py": 1, "gateway/live/events.py": 1, "gateway/memory/sealed.py": 1,
    "gateway/racing/services.py": 1, "gateway/steering/board.py": 1, "gateway/steering/redis_board.py": 1,
    "gateway/watching/logs.py": 2, "gateway/watching/series.py": 1, "providers/vendors/catalog.py": 1,
    "providers/refusals/complaints.py": 1, "providers/refusals/error_bodies.py": 2,
    "providers/refusals/error_shapes.py": 1, "providers/upstreams/http_upstream.py": 1,
    "providers/dialects/messages/events.py": 1,
}  # fmt: skip
CHECKED = {  # parts of an answer: each large block, whole answer and gathered one is checked before it is read
    "providers/dialects/chat/answers.py": 6, "providers/dialects/chat/continuing.py": 4,
    "providers/dialects/chat/deltas.py": 3,
    "providers/dialects/completions/dialect.py": 2, "providers/dialects/converse/answers.py": 7,
    "providers/dialects/gemini/events.py": 3,
    "providers/dialects/messages/answers.py": 6, "providers/dialects/continuing.py": 1,
    "providers/dialects/messages/stream_to_chat.py": 4,
    "providers/dialects/responses/events.py": 1, "providers/dialects/responses/fields.py": 5,
    "providers/dialects/responses/stream_to_chat.py": 1,
}  # fmt: skip


def encodings(module: ast.Module) -> int:
    """Return in how many places a module takes msgspec's own ``encode`` or the like, under whatever name."""
    nodes = list(ast.walk(module))
    encoders = {"msgspec.json", "msgspec.msgpack"}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_encoder(node.value):
            encoders |= {
                ast.unparse(each) for each in (node.targets if isinstance(node, ast.Assign) else [node.target])
            }
    return sum(
        (
            isinstance(node, ast.Attribute)
            and node.attr in {"encode", "encode_lines", "format"}
            and (ast.unparse(node.value) in encoders or is_encoder(node.value))
        )
        or (
            isinstance(node, ast.ImportFrom)
            and (node.module in {"msgspec.json", "msgspec.msgpack"} or "json" in {each.name for each in node.names})
        )
        for node in nodes
    )


def is_encoder(made: ast.expr) -> bool:
    return (
        isinstance(made, ast.Call) and ast.unparse(made.func).startswith("msgspec.") and "Encoder" in ast.unparse(made)
    )


def test_an_encoder_is_found_under_whatever_name() -> None:
    for text in (
        "msgspec.json.encode(a)",
        "_write = msgspec.json.Encoder(enc_hook=dict).encode",
        "_plain = msgspec.msgpack.Encoder()\ndef f(a):\n    return _plain.encode(a)",
        "class A:\n    def f(self):\n        self._it = msgspec.json.Encoder()\n        self._it.encode_lines(1)",
        "from msgspec.json import encode",
    ):
        assert encodings(ast.parse(text)) == 1, text
    assert encodings(ast.parse("a.encode(); '{}'.format(1); msgspec.json.Encoder().encode_into(1, b)")) == 0


def test_every_place_that_makes_json_without_looking_for_room_is_known() -> None:
    files = (file for room in ("gateway", "providers", "holeshot") for file in Path(room).rglob("*.py"))
    found = {str(file): encodings(ast.parse(file.read_text())) for file in files}
    places = {name: number for name, number in found.items() if number and not name.startswith(SHORT_ELSEWHERE)}
    assert places == SHORT | CHECKED


@pytest.mark.parametrize("value", [None, "é", [1, {"a": msgspec.Raw(b"[2]")}], {"x": "y" * 5000}])
def test_what_is_made_is_what_msgspec_makes(value: object) -> None:
    assert encoded(value) == bytes(raw_json(value)) == msgspec.json.encode(value)
    if "Raw" not in repr(value):
        assert packed(value) == msgspec.msgpack.encode(value)
