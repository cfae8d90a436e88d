"""Where there is no memory for a large result, it is an error: msgspec's ``encode`` would end the process."""

import subprocess
import sys

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


@pytest.mark.parametrize("value", [None, "é", [1, {"a": msgspec.Raw(b"[2]")}], {"x": "y" * 5000}])
def test_what_is_made_is_what_msgspec_makes(value: object) -> None:
    assert encoded(value) == bytes(raw_json(value)) == msgspec.json.encode(value)
    if "Raw" not in repr(value):
        assert packed(value) == msgspec.msgpack.encode(value)
