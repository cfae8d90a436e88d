"""instructor: each turn is a model of pydantic whose first form is wrong, so that it asks once more by itself."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import json
from typing import Any

import anthropic
import instructor
import openai
import pydantic
from instructor import Mode

from tests.clients.case import Suite, Target
from tests.clients.conversation import Lost, Turns
from tests.clients.samples import PNG_BASE64, PNG_URL

suite = Suite("instructor")


class Person(pydantic.BaseModel):
    """Somebody, who is not too young."""

    name: str
    age: int = pydantic.Field(ge=18)


def talk(client: Any, turns: Turns, picture: Any, *, words: str = "text", **fields: Any) -> None:
    """Have the conversation: the first answer of a turn is not valid, the second is; ``words`` is a type of part."""
    said: list[Any] = []
    for turn in turns:
        young, ada = {"name": f"Ada {turn.number}", "age": 3}, {"name": f"Ada {turn.number}", "age": 36}
        text = f"Turn {turn.number}: who is it?\ndata: {json.dumps(young)}\nthen: Person {json.dumps(ada)}"
        content: Any = [{"type": words, "text": text}, picture] if turn.picture else text
        said.append({"role": "user", "content": content})
        person = client.create(response_model=Person, messages=said, max_retries=2, **fields)
        if person.name == young["name"] and person.age != ada["age"]:
            raise Lost(f"it says {person!r}")
        said.append({"role": "assistant", "content": person.model_dump_json()})


@suite.conversation("chat")
def chat_by_tools(target: Target, turns: Turns) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=target.openai, api_key=target.key))
    talk(client, turns, {"type": "image_url", "image_url": {"url": PNG_URL}}, model=target.chat)


@suite.conversation("responses")
def responses_by_tools(target: Target, turns: Turns) -> None:
    client = openai.OpenAI(base_url=target.openai, api_key=target.key)
    patched = instructor.from_openai(client, mode=Mode.RESPONSES_TOOLS)
    talk(patched, turns, instructor.Image.from_base64(PNG_URL), words="input_text", model=target.responses)


@suite.conversation("messages")
def messages_by_tools(target: Target, turns: Turns) -> None:
    client = instructor.from_anthropic(anthropic.Anthropic(base_url=target.url, api_key=target.key))
    source = {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}
    talk(client, turns, {"type": "image", "source": source}, model=target.messages, max_tokens=1000)


if __name__ == "__main__":
    suite.main()
