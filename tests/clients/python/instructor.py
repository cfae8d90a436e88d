"""instructor, in its modes for OpenAI and for Anthropic."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from collections.abc import Iterator
from typing import Any

import anthropic
import instructor
import openai
import pydantic
from instructor import Mode

from tests.clients.case import Feature, Suite, Target, equal, expect, raised

suite = Suite("instructor")


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int


ADA = Person(name="Ada", age=36)
ASKED: Any = [{"role": "user", "content": f"data: {ADA.model_dump_json()}"}]


def of_openai(target: Target, mode: Mode, key: str | None = None) -> Any:
    """Return OpenAI's client, patched."""
    client = openai.OpenAI(base_url=target.openai, api_key=key or target.key, max_retries=0)
    return instructor.from_openai(client, mode=mode)


def of_anthropic(target: Target, mode: Mode) -> Any:
    """Return Anthropic's client, patched."""
    client = anthropic.Anthropic(base_url=target.url, api_key=target.key, max_retries=0)
    return instructor.from_anthropic(client, mode=mode)


def clients(target: Target) -> Iterator[tuple[Mode, Any, dict[str, Any]]]:
    """Yield a client in every mode but plain JSON, and what it wants to be asked with."""
    for mode in (Mode.TOOLS, Mode.MD_JSON, Mode.JSON_SCHEMA):
        yield mode, of_openai(target, mode), {"model": target.chat}
    yield Mode.RESPONSES_TOOLS, of_openai(target, Mode.RESPONSES_TOOLS), {"model": target.responses}
    for mode in (Mode.ANTHROPIC_TOOLS, Mode.ANTHROPIC_JSON):
        yield mode, of_anthropic(target, mode), {"model": target.messages, "max_tokens": 500}


@suite.case(Feature.STRUCTURED)
def every_mode_gives_a_model(target: Target) -> None:
    for mode, client, fields in clients(target):
        person = client.create(response_model=Person, messages=ASKED, max_retries=1, **fields)
        equal((mode, person.model_dump()), (mode, ADA.model_dump()))


@suite.case(Feature.STRUCTURED, unsaid="response_format")
def the_mode_of_plain_json_gives_a_model(target: Target) -> None:
    client = of_openai(target, Mode.JSON)
    person = client.create(response_model=Person, messages=ASKED, max_retries=1, model=target.chat)
    equal(person.model_dump(), ADA.model_dump())


@suite.case(Feature.STRUCTURED)
def partial_models_are_streamed(target: Target) -> None:
    for client, fields in (
        (of_openai(target, Mode.TOOLS), {"model": target.chat}),
        (of_anthropic(target, Mode.ANTHROPIC_TOOLS), {"model": target.messages, "max_tokens": 500}),
    ):
        seen = list(client.create_partial(response_model=Person, messages=ASKED, **fields))
        expect(len(seen) > 1, seen)
        equal((seen[-1].name, seen[-1].age), ("Ada", 36))


@suite.case(Feature.STRUCTURED)
def several_models_come_from_one_answer(target: Target) -> None:
    messages = [{"role": "user", "content": 'data: {"tasks": [{"name": "Ada", "age": 36}, {"name": "Bo", "age": 1}]}'}]
    people = of_openai(target, Mode.TOOLS).create_iterable(response_model=Person, messages=messages, model=target.chat)
    equal([person.name for person in people], ["Ada", "Bo"])


@suite.case(Feature.ANSWERS)
def the_raw_answer_comes_with_the_model(target: Target) -> None:
    client = of_openai(target, Mode.TOOLS)
    person, raw = client.create_with_completion(response_model=Person, messages=ASKED, model=target.chat)
    equal(person.model_dump(), ADA.model_dump())
    expect(raw.usage.completion_tokens > 0, raw)


@suite.case(Feature.ERRORS)
def errors_are_raised(target: Target) -> None:
    client = of_openai(target, Mode.TOOLS, target.wrong_key)
    error = raised(
        Exception, lambda: client.create(response_model=Person, messages=ASKED, model=target.chat, max_retries=0)
    )
    expect("401" in str(error), error)


if __name__ == "__main__":
    suite.main()
