"""The ``llm`` command, told of the models by extra-openai-models.yaml."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.samples import PNG

suite = Suite("llm")

PROGRAM = Path(sys.executable).with_name("llm")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@contextmanager
def home(target: Target) -> Iterator[dict[str, str]]:
    """Yield the variables of a user with these models."""
    with tempfile.TemporaryDirectory() as folder:
        entry = {"api_base": target.openai, "api_key_name": "holeshot"}
        chat = {"model_id": "chat", "model_name": target.chat, "vision": True}
        models = [
            {**entry, **chat, "supports_tools": True, "supports_schema": True},
            {**entry, "model_id": "older", "model_name": target.models["completions"], "completion": True},
        ]
        Path(folder, "extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is YAML
        Path(folder, "keys.json").write_text(json.dumps({"holeshot": target.key}))
        Path(folder, "picture.png").write_bytes(PNG)
        yield {**os.environ, "LLM_USER_PATH": folder}


def llm(target: Target, *arguments: str) -> str:
    """Return what the command prints."""
    with home(target) as environ:
        done = subprocess.run(
            [str(PROGRAM), *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=environ,
            cwd=environ["LLM_USER_PATH"],
            stdin=subprocess.DEVNULL,
        )
    equal((done.returncode, done.stderr), (0, ""))
    return done.stdout.strip()


@suite.case(Feature.ANSWERS)
def a_prompt_is_answered(target: Target) -> None:
    equal(llm(target, "-m", "chat", "--no-stream", "say: hello you"), "hello you")


@suite.case(Feature.STREAMING)
def an_answer_is_streamed(target: Target) -> None:
    equal(llm(target, "-m", "chat", "-s", "Be brief.", "say: one two three"), "one two three")


@suite.case(Feature.ANSWERS, unsaid="raw prompt")
def a_raw_prompt_is_continued(target: Target) -> None:
    equal(llm(target, "-m", "older", "say: once upon"), "once upon")


@suite.case(Feature.TOOLS)
def a_tool_is_used(target: Target) -> None:
    code = 'def weather(city: str) -> str:\n    "Tell the weather."\n    return "rain in " + city'
    seen = llm(target, "-m", "chat", "--functions", code, 'call: weather {"city": "Oslo"}')
    equal(seen, "The tool said: rain in Oslo")


@suite.case(Feature.STRUCTURED)
def a_schema_is_kept(target: Target) -> None:
    seen = llm(target, "-m", "chat", "--schema", json.dumps(SCHEMA), 'data: {"name": "Ada"}')
    equal(json.loads(seen), {"name": "Ada"})


@suite.case(Feature.MEDIA)
def a_picture_is_seen(target: Target) -> None:
    equal(llm(target, "-m", "chat", "-a", "picture.png", "What is it?"), "I was shown a PNG of 3x2.")


@suite.case(Feature.FIELDS)
def options_are_passed_on(target: Target) -> None:
    body = json.loads(llm(target, "-m", "chat", "-o", "temperature", "0.5", "-o", "max_tokens", "900", "echo: body"))
    equal(body["temperature"], 0.5)
    expect(900 in body.values(), body)


if __name__ == "__main__":
    suite.main()
