"""LangChain: ``ChatRaced`` is its chat model for OpenAI, raced in this process. Needs the extra ``langchain``."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from langchain_openai.chat_models.base import BaseChatOpenAI
from pydantic import Field, model_validator

from holeshot.clients import openai_client


class ChatRaced(BaseChatOpenAI):  # type: ignore[misc] # mypy does not look into langchain_openai
    """The chat model of a chain or a graph, on a Racer: tools, structured output, usage, errors as in ``ChatOpenAI``.

    ``ChatRaced(racer=racer, model="chat")``, with the options of ``ChatOpenAI``. ``invoke`` and ``stream`` work in
    every thread but that of the Racer's event loop: there, use ``ainvoke`` and ``astream``.
    """

    racer: Any = Field(exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _ask_the_racer(cls, values: dict[str, Any]) -> dict[str, Any]:
        # ChatOpenAI takes the time-out by both names; without one, the client's own counts.
        wait_s = values.get("timeout", values.get("request_timeout"))
        client = openai_client(values["racer"], **({} if wait_s is None else {"timeout": wait_s}))
        completions = client.chat.completions
        # Also as the synchronous client: without one, LangChain would make a client that asks OpenAI.
        clients = {
            "root_async_client": client,
            "async_client": completions,
            "root_client": client,
            "client": completions,
        }
        return {"stream_usage": True, **values, **clients}

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        del run_manager  # the manager belongs to this thread, and the answer is made in another
        return self._wait_for(self._agenerate(messages, stop, None, **kwargs))

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        chunks = self._astream(messages, stop, None, **kwargs)

        async def following() -> Any:
            return await anext(chunks, None)

        try:
            while (chunk := self._wait_for(following())) is not None:
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk
        finally:
            self._wait_for(chunks.aclose())

    def _wait_for(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the Racer's event loop, and return its result.

        Raises:
            RuntimeError: this is the thread of that loop, which cannot wait for itself; or the Racer is not entered.

        """
        loop = self.racer.loop
        if loop is None or _running_loop() is loop:
            answer.close()
            raise RuntimeError("inside of `async with Racer(...)` use `ainvoke` and `astream`, or another thread")
        future = asyncio.run_coroutine_threadsafe(answer, loop)
        try:
            return future.result()
        finally:
            future.cancel()  # Ctrl-C ends the wait: the call ends with it


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
