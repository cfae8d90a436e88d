"""LlamaIndex, with its classes for OpenAI (chat and responses), for whoever is like OpenAI, and for embeddings."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from typing import Any

import pydantic
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike

from tests.clients.case import Feature, Suite, Target, equal, expect, raised
from tests.clients.samples import PNG

suite = Suite("llama-index", "llama-index-llms-openai")


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"rain in {city}"


def openai(target: Target, **options: Any) -> Any:
    """Return the class for OpenAI's chat completions."""
    return OpenAI(
        **{"model": target.chat, "api_base": target.openai, "api_key": target.key, "max_retries": 0, **options}
    )


def responses(target: Target, **options: Any) -> Any:
    """Return the class for OpenAI's responses."""
    return OpenAIResponses(
        **{"model": target.responses, "api_base": target.openai, "api_key": target.key, "max_retries": 0, **options}
    )


def like(target: Target, **options: Any) -> Any:
    """Return the class for servers like OpenAI's."""
    return OpenAILike(
        **{
            "model": target.chat,
            "api_base": target.openai,
            "api_key": target.key,
            "is_chat_model": True,
            "is_function_calling_model": True,
            "max_retries": 0,
            **options,
        }
    )


ALL = (openai, responses, like)


@suite.case(Feature.ANSWERS)
def all_classes_answer(target: Target) -> None:
    for model in ALL:
        equal((model.__name__, model(target).complete("say: hello you").text), (model.__name__, "hello you"))
        messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="say: hello")]
        equal(model(target).chat(messages).message.content, "hello")


@suite.case(Feature.ANSWERS, unsaid="raw prompt")
def raw_prompts_are_completed(target: Target) -> None:
    model = like(target, model=target.models["completions"], is_chat_model=False)
    equal(model.complete("say: once upon").text, "once upon")


@suite.case(Feature.STREAMING)
def all_classes_stream(target: Target) -> None:
    for model in ALL:
        pieces = [piece.delta for piece in model(target).stream_complete("say: one two three")]
        equal((model.__name__, "".join(filter(None, pieces))), (model.__name__, "one two three"))


@suite.case(Feature.STREAMING)
async def all_classes_stream_asynchronously(target: Target) -> None:
    for model in ALL:
        stream = await model(target).astream_chat([ChatMessage(role="user", content="say: one two three")])
        pieces = [piece.delta async for piece in stream]
        equal((model.__name__, "".join(filter(None, pieces))), (model.__name__, "one two three"))


@suite.case(Feature.TOOLS)
def all_classes_call_tools(target: Target) -> None:
    tool = FunctionTool.from_defaults(weather)
    for model in ALL:
        result = model(target).predict_and_call(
            [tool], 'call: weather {"city": "Oslo"}', allow_parallel_tool_calls=True
        )
        equal((model.__name__, str(result)), (model.__name__, "rain in Oslo"))


@suite.case(Feature.TOOLS)
def all_classes_stream_calls(target: Target) -> None:
    tool = FunctionTool.from_defaults(weather)
    for model in ALL:
        llm = model(target)
        last = list(llm.stream_chat_with_tools([tool], 'call: weather {"city": "Oslo"}'))[-1]
        (call,) = llm.get_tool_calls_from_response(last)
        equal((model.__name__, call.tool_name, call.tool_kwargs), (model.__name__, "weather", {"city": "Oslo"}))


@suite.case(Feature.STRUCTURED)
def all_classes_give_structured_answers(target: Target) -> None:
    prompt = PromptTemplate('data: {"name": "Ada", "age": 36}')
    for model in ALL:
        person = model(target).structured_predict(Person, prompt)
        equal((model.__name__, person), (model.__name__, Person(name="Ada", age=36)))


@suite.case(Feature.MEDIA)
def all_classes_see_a_picture(target: Target) -> None:
    blocks = [TextBlock(text="What is it?"), ImageBlock(image=PNG, image_mimetype="image/png")]
    for model in ALL:
        message = model(target).chat([ChatMessage(role="user", blocks=blocks)]).message
        equal((model.__name__, message.content), (model.__name__, "I was shown a PNG of 3x2."))


@suite.case(Feature.FIELDS, unsaid="logprobs")
def chat_tells_log_probabilities(target: Target) -> None:
    answer = openai(target, logprobs=True, top_logprobs=1).chat([ChatMessage(role="user", content="say: one two")])
    equal([entry[0].token for entry in answer.logprobs], ["one ", "two"])


@suite.case(Feature.ERRORS)
def errors_are_raised(target: Target) -> None:
    for model in ALL:
        error = raised(Exception, lambda: model(target, api_key=target.wrong_key).complete("say: hi"))  # noqa: B023 - called at once
        equal((model.__name__, getattr(error, "status_code", error)), (model.__name__, 401))


@suite.case(Feature.OTHERS)
def embeddings_embed(target: Target) -> None:
    model = OpenAIEmbedding(model=target.models["embeddings"], api_base=target.openai, api_key=target.key)
    vectors = model.get_text_embedding_batch(["one", "two"])
    equal([len(vector) for vector in vectors], [8, 8])
    expect(model.get_text_embedding("one") == vectors[0], "the vectors differ")


if __name__ == "__main__":
    suite.main()
