"""Where there is no memory for a large result, it is an error: msgspec's ``encode`` would end the process."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from providers import encoded, packed, raw_json

# A process that may grow by 45 MB makes something of texts of 40 MB.
SHORT_OF_MEMORY = """
import resource
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
except MemoryError:
    print("no memory")
"""
UPSTREAM = "from providers import Request\nfrom providers.catalog import Quirks\n"
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
    "a request as it is sent": (
        UPSTREAM + "from providers.http_upstream import streamed_body",
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
def test_a_large_result_for_which_there_is_no_memory_is_an_error(place: str) -> None:
    imports, prepared, work = PLACES[place]
    program = SHORT_OF_MEMORY.format(imports=f"import msgspec\n{imports}", prepared=prepared, work=work)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "no memory\n"), ran.stderr


# What one large event of an answer takes until it is translated, in the memory that is left: some steps need several
# times its size. In each of these a check of three times the size passed, and the process ended.
TRANSLATING = """
import msgspec, resource
from providers import UpstreamError
from providers.dialects import DIALECTS, translations
from providers.http_exchange import TranslatedExchange

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
}


@pytest.mark.parametrize(
    ("source", "target", "left_mb"),
    [
        ("messages", "chat", 65),
        ("messages", "gemini", 70),
        ("responses", "chat", 65),
        ("gemini", "messages", 85),
        ("gemini", "responses", 105),
    ],
)
def test_a_large_event_for_whose_translation_there_is_no_memory_is_an_error(
    source: str, target: str, left_mb: int
) -> None:
    begun, event = EVENTS_OF[source]
    program = TRANSLATING.format(begun=begun, event=event, source=source, target=target, left_mb=left_mb)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "no memory\n"), ran.stderr


OF_WHOLE = """
import msgspec, resource
from providers.dialects import DIALECTS
from providers.http_exchange import HttpExchange

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
def test_a_large_whole_answer_for_whose_events_there_is_no_memory_is_an_error(left_mb: int) -> None:
    program = OF_WHOLE.format(said=SAID, left_mb=left_mb)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "no memory\n"), ran.stderr


# Where msgspec's own ``encode`` may be used: what it makes there is short, or its room was looked for before. Whoever
# adds a place looks which it is: ``encoded``, ``raw_json`` and ``packed`` are for what may be large.
ENCODES = re.compile(r"json\.encode\(|json\.format\(|Encoder\([^)]*\)\.encode\b|_ENCODER\.encode\(|msgpack\.encode\(")
SHORT_ELSEWHERE = ("gateway/cli/", "gateway/bench/", "providers/simulator/")  # processes without clients
SHORT = {  # of our own words, the operator's, or a field with a bound
    "gateway/admin/operations.py": 2, "gateway/admin/routes.py": 2, "gateway/admin/sign_in.py": 1,
    "gateway/admin/visitors.py": 1, "gateway/alerts/sender.py": 1, "gateway/api/context.py": 2,
    "gateway/api/responses_socket.py": 1, "gateway/api/vectors.py": 1, "gateway/app/prober.py": 1,
    "gateway/app/shared_facts.py": 1, "gateway/core/errors.py": 1, "gateway/core/targets.py": 1,
    "gateway/fleet/fleet.py": 1, "gateway/fleet/models.py": 2, "gateway/keys/stored.py": 1,
    "gateway/ledger/clickhouse/sink.py": 1, "gateway/ledger/entries.py": 2, "gateway/ledger/reports/reader.py": 2,
    "gateway/ledger/reports/reports.py": 1, "gateway/live/events.py": 1, "gateway/memory/sealed.py": 1,
    "gateway/racing/services.py": 1, "gateway/steering/board.py": 1, "gateway/steering/redis_board.py": 1,
    "gateway/watching/logs.py": 2, "gateway/watching/series.py": 1, "providers/catalog.py": 1,
    "providers/error_bodies.py": 4, "providers/http_upstream.py": 1, "providers/dialects/messages/events.py": 1,
}  # fmt: skip
CHECKED = {  # parts of an answer: each large block, whole answer and gathered one is checked before it is read
    "providers/dialects/chat/answers.py": 4, "providers/dialects/chat/continuing.py": 4,
    "providers/dialects/chat/deltas.py": 3,
    "providers/dialects/completions/dialect.py": 2, "providers/dialects/converse/answers.py": 7,
    "providers/dialects/gemini/events.py": 3, "providers/dialects/gemini/streams.py": 2,
    "providers/dialects/messages/answers.py": 6, "providers/dialects/messages/continuing.py": 1,
    "providers/dialects/messages/streams.py": 5, "providers/dialects/responses/continuing.py": 1,
    "providers/dialects/responses/events.py": 1, "providers/dialects/responses/fields.py": 4,
    "providers/dialects/responses/stream_to_chat.py": 1,
}  # fmt: skip


def test_every_place_that_makes_json_without_looking_for_room_is_known() -> None:
    files = (file for room in ("gateway", "providers", "holeshot") for file in Path(room).rglob("*.py"))
    found = {str(file): len(ENCODES.findall(file.read_text())) for file in files}
    places = {name: number for name, number in found.items() if number and not name.startswith(SHORT_ELSEWHERE)}
    assert places == SHORT | CHECKED


@pytest.mark.parametrize("value", [None, "é", [1, {"a": msgspec.Raw(b"[2]")}], {"x": "y" * 5000}])
def test_what_is_made_is_what_msgspec_makes(value: object) -> None:
    assert encoded(value) == bytes(raw_json(value)) == msgspec.json.encode(value)
    if "Raw" not in repr(value):
        assert packed(value) == msgspec.msgpack.encode(value)
