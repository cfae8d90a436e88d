"""Where memory is short a large body is refused: msgspec would end the process."""

import subprocess
import sys

SHORT_OF_MEMORY = """
import resource
import msgspec
from providers import Request
from providers.catalog import Quirks
from providers.http_upstream import streamed_body

prompt = msgspec.Raw(b'[{"role":"user","content":"' + b"a" * 40_000_000 + b'"}]')
request = Request("m", {"messages": prompt})
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 45_000_000,) * 2)
try:
    streamed_body(request, Quirks())
except MemoryError:
    print("refused")
"""


def test_a_large_prompt_for_which_there_is_no_memory_is_an_error_and_not_the_end_of_the_process() -> None:
    ran = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "refused\n", "")
