"""LangChain, with its packages for OpenAI and for Anthropic."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import importlib.metadata
from typing import Any

import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from tests.clients.case import Feature, Suite, Target, equal, expect, raised
from tests.clients.samples import PNG_BASE64, PNG_URL


def version() -> str:
    """Return the versions of both packages."""
    packages = ("langchain-openai", "langchain-anthropic")
    return ", ".join(f"{name.partition('-')[2]} {importlib.metadata.version(name)}" for name in packages)


suite = Suite("langchain", version=version)


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int


ADA = 'data: {"name": "Ada", "age": 36}'


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"rain in {city}"


WEATHER = StructuredTool.from_function(weather)


def openai(target: Target, **options: Any) -> Any:
    """Return the model that speaks chat completions."""
    return ChatOpenAI(
        **{
            "model": target.chat,
            "base_url": target.openai,
            "api_key": target.key,
            "max_retries": 0,
            "stream_usage": True,
            **options,
        }
    )


def responses(target: Target, **options: Any) -> Any:
    """Return the model that speaks responses."""
    return openai(target, model=target.responses, use_responses_api=True, **options)


def anthropic(target: Target, **options: Any) -> Any:
    """Return the model that speaks messages."""
    return ChatAnthropic(
        **{
            "model": target.messages,
            "base_url": target.url,
            "api_key": target.key,
            "max_retries": 0,
            "max_tokens": 2000,
            **options,
        }
    )


ALL = (openai, responses, anthropic)


@suite.case(Feature.ANSWERS)
def all_models_answer(target: Target) -> None:
    for model in ALL:
        message = model(target).invoke([SystemMessage("Be brief."), HumanMessage("say: hello you")])
        equal((model.__name__, message.text), (model.__name__, "hello you"))
        equal(message.usage_metadata["output_tokens"], 2)


@suite.case(Feature.ANSWERS)
async def all_models_answer_asynchronously(target: Target) -> None:
    for model in ALL:
        messages = await model(target).abatch([f"say: number {number}" for number in range(4)])
        equal([message.text for message in messages], [f"number {number}" for number in range(4)])


@suite.case(Feature.ANSWERS, unsaid="raw prompt")
def completions_answer(target: Target) -> None:
    model: Any = OpenAI(model=target.models["completions"], base_url=target.openai, api_key=target.key, max_retries=0)
    equal(model.invoke("say: once upon"), "once upon")
    equal("".join(model.stream("say: once upon")), "once upon")


@suite.case(Feature.STREAMING)
def all_models_stream(target: Target) -> None:
    for model in ALL:
        chunks = list(model(target).stream("say: one two three"))
        equal((model.__name__, "".join(chunk.text for chunk in chunks)), (model.__name__, "one two three"))
        expect(sum(bool(chunk.text) for chunk in chunks) >= 3, chunks)
        total = sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata)
        expect(total >= 3, total)


@suite.case(Feature.STREAMING)
async def all_models_stream_asynchronously(target: Target) -> None:
    for model in ALL:
        words = [chunk.text async for chunk in model(target).astream("say: one two three")]
        equal("".join(words), "one two three")


@suite.case(Feature.TOOLS)
def all_models_call_a_tool_and_hear_its_result(target: Target) -> None:
    for model in ALL:
        bound = model(target).bind_tools([WEATHER])
        conversation: list[Any] = [HumanMessage('call: weather {"city": "Oslo"}')]
        first = bound.invoke(conversation)
        (call,) = first.tool_calls
        equal((call["name"], call["args"]), ("weather", {"city": "Oslo"}))
        conversation += [first, ToolMessage(WEATHER.invoke(call["args"]), tool_call_id=call["id"])]
        equal(bound.invoke(conversation).text, "The tool said: rain in Oslo")


@suite.case(Feature.TOOLS)
def all_models_stream_parallel_calls(target: Target) -> None:
    text = 'call: weather {"city": "Oslo"}\ncall: weather {"city": "Rome"}'
    for model in ALL:
        whole: Any = None
        for chunk in model(target).bind_tools([WEATHER]).stream(text):
            whole = chunk if whole is None else whole + chunk
        cities = [call["args"].get("city") for call in whole.tool_calls]
        equal((model.__name__, cities), (model.__name__, ["Oslo", "Rome"]))


@suite.case(Feature.STRUCTURED)
def all_models_give_structured_answers(target: Target) -> None:
    for model in ALL:
        for method in ("json_schema", "function_calling"):
            structured = model(target).with_structured_output(Person, method=method)
            equal(
                (model.__name__, method, structured.invoke(ADA)), (model.__name__, method, Person(name="Ada", age=36))
            )


@suite.case(Feature.MEDIA)
def all_models_see_a_picture(target: Target) -> None:
    words = {"type": "text", "text": "What is it?"}
    for model, picture in (
        (openai, {"type": "image_url", "image_url": {"url": PNG_URL}}),
        (responses, {"type": "image", "base64": PNG_BASE64, "mime_type": "image/png"}),
        (anthropic, {"type": "image", "base64": PNG_BASE64, "mime_type": "image/png"}),
    ):
        message = model(target).invoke([HumanMessage([words, picture])])
        equal((model.__name__, message.text), (model.__name__, "I was shown a PNG of 3x2."))


@suite.case(Feature.REASONING)
def responses_tell_their_thoughts(target: Target) -> None:
    message = responses(target, reasoning={"effort": "low", "summary": "auto"}).invoke("think: hm\nsay: yes")
    equal(message.text, "yes")
    expect("hm" in str(message.content_blocks), message)


@suite.case(Feature.REASONING, unsaid="thinking")
def anthropic_tells_its_thoughts(target: Target) -> None:
    message = anthropic(target, thinking={"type": "enabled", "budget_tokens": 1024}).invoke("think: hm\nsay: yes")
    equal(message.text, "yes")
    expect("hm" in str(message.content), message)


@suite.case(Feature.ERRORS)
def errors_are_raised(target: Target) -> None:
    for model in ALL:
        error = raised(Exception, lambda: model(target, api_key=target.wrong_key).invoke("say: hi"))  # noqa: B023 - called at once
        equal((model.__name__, error.status_code), (model.__name__, 401))
        error = raised(Exception, lambda: model(target, api_key=target.forbidden_key).invoke("say: hi"))  # noqa: B023 - likewise
        equal((model.__name__, error.status_code), (model.__name__, 403))


@suite.case(Feature.ANSWERS)
def a_conversation_is_continued(target: Target) -> None:
    for model in ALL:
        message = model(target).invoke([HumanMessage("say: one"), AIMessage("one"), HumanMessage("say: two")])
        equal(message.text, "two")


@suite.case(Feature.OTHERS)
def embeddings_embed(target: Target) -> None:
    model: Any = OpenAIEmbeddings(
        model=target.models["embeddings"],
        base_url=target.openai,
        api_key=target.key,
        check_embedding_ctx_length=False,  # it would fetch a tokenizer
    )
    vectors = model.embed_documents(["one", "two"])
    equal([len(vector) for vector in vectors], [8, 8])
    equal(model.embed_query("one"), vectors[0])


if __name__ == "__main__":
    suite.main()
