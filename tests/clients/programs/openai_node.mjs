// OpenAI's own SDK for JavaScript: chat and responses, whole, streamed and chained.

import { forecast, load, Lost, PNG_URL, raised, Suite } from "../node/suite.mjs";

const { default: OpenAI, APIConnectionTimeoutError } = await load("openai");

const suite = new Suite("openai-node", ["openai"]);

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const WEATHER = { name: "weather", description: "Tell the weather in a city.", parameters };
const CHAT_TOOLS = [{ type: "function", function: WEATHER }];
const TOOLS = [{ type: "function", ...WEATHER }];
const HASTY = { timeout: 1000, maxRetries: 0 };

const sdk = (target) => new OpenAI({ baseURL: target.openai, apiKey: target.key });
const told = (json) => forecast(JSON.parse(json));
const isTooLong = (error) => error.code === "context_length_exceeded";

const chatMessage = ({ text, picture }) => ({
  role: "user",
  content: picture ? [{ type: "text", text }, { type: "image_url", image_url: { url: PNG_URL } }] : text,
});
const message = ({ text, picture }) => ({
  role: "user",
  content: picture ? [{ type: "input_text", text }, { type: "input_image", image_url: PNG_URL, detail: "auto" }] : text,
});

/** Read a stream up to its first words, and leave it. */
async function leave(stream, wordsOf) {
  for await (const event of stream) {
    if (wordsOf(event)) {
      return;
    }
  }
  throw new Error("the answer that was to be left had no words");
}

const isWords = (event) => event.type === "response.output_text.delta";

async function completed(stream) {
  let last;
  for await (const event of stream) {
    last = event;
  }
  if (!["response.completed", "response.incomplete"].includes(last?.type)) {
    throw new Lost(`the stream ends with ${JSON.stringify(last)}`);
  }
  return last.response;
}

const resultsOf = (output) =>
  output
    .filter((item) => item.type === "function_call")
    .map((item) => ({ type: "function_call_output", call_id: item.call_id, output: told(item.arguments) }));
const textOf = (output) =>
  output
    .filter((item) => item.type === "message")
    .flatMap((item) => item.content.map((part) => part.text))
    .join("");

suite.conversation("chat", "chat", async (target, turns) => {
  const completions = sdk(target).chat.completions;
  const fields = { model: target.models.chat, tools: CHAT_TOOLS };
  const messages = [{ role: "system", content: "Be brief." }];
  for (const turn of turns) {
    if (turn.cut) {
      const asked = [...messages, { role: "user", content: turn.cut }];
      await raised(APIConnectionTimeoutError, () => completions.create({ ...fields, messages: asked }, HASTY));
    }
    await turns.held(messages, async () => {
      messages.push(chatMessage(turn));
      for (;;) {
        const said = (await completions.create({ ...fields, messages })).choices[0].message;
        messages.push(said);
        if (!said.tool_calls?.length) {
          turn.endsWith(said.content);
          break;
        }
        for (const call of said.tool_calls) {
          messages.push({ role: "tool", tool_call_id: call.id, content: told(call.function.arguments) });
        }
      }
    }, isTooLong);
  }
});

suite.conversation("chat", "chat streamed", async (target, turns) => {
  const client = sdk(target);
  const fields = { model: target.models.chat, tools: CHAT_TOOLS };
  const messages = [{ role: "system", content: "Be brief." }];
  for (const turn of turns) {
    if (turn.cut) {
      const asked = [...messages, { role: "user", content: turn.cut }];
      const stream = await client.chat.completions.create({ ...fields, messages: asked, stream: true });
      await leave(stream, (chunk) => chunk.choices[0]?.delta.content);
    }
    await turns.held(messages, async () => {
      messages.push(chatMessage(turn));
      for (;;) {
        // OpenAI refuses the SDK's own field in a message that comes back.
        const { parsed: _, ...said } = await client.chat.completions.stream({ ...fields, messages }).finalMessage();
        messages.push(said);
        if (!said.tool_calls?.length) {
          turn.endsWith(said.content);
          break;
        }
        for (const call of said.tool_calls) {
          messages.push({ role: "tool", tool_call_id: call.id, content: told(call.function.arguments) });
        }
      }
    }, isTooLong);
  }
});

for (const [title, stream] of [
  ["runner of tools", false],
  ["runner of tools streamed", true],
]) {
  suite.conversation("chat", title, async (target, turns) => {
    const { completions } = sdk(target).chat;
    const tool = { type: "function", function: { ...WEATHER, parse: JSON.parse, function: forecast } };
    const messages = [{ role: "system", content: "Be brief." }];
    for (const turn of turns) {
      await turns.held(
        messages,
        async () => {
          messages.push(chatMessage(turn));
          const runner = completions.runTools({ model: target.models.chat, messages, tools: [tool], stream });
          const said = await runner.finalContent();
          messages.splice(0, Infinity, ...runner.messages.map(({ parsed: _, ...plain }) => plain));
          turn.endsWith(said);
        },
        isTooLong,
      );
    }
  });
}

suite.conversation("responses", "responses", async (target, turns) => {
  const { responses } = sdk(target);
  const fields = { model: target.models.responses, tools: TOOLS };
  const input = [];
  for (const turn of turns) {
    if (turn.cut) {
      const asked = [...input, { role: "user", content: turn.cut }];
      await raised(APIConnectionTimeoutError, () => responses.create({ ...fields, input: asked }, HASTY));
    }
    await turns.held(input, async () => {
      input.push(message(turn));
      for (;;) {
        const response = await responses.create({ ...fields, input });
        const results = resultsOf(response.output);
        input.push(...response.output, ...results);
        if (!results.length) {
          turn.endsWith(response.output_text);
          break;
        }
      }
    }, isTooLong);
  }
});

suite.conversation("responses", "responses streamed", async (target, turns) => {
  const { responses } = sdk(target);
  const fields = { model: target.models.responses, tools: TOOLS, stream: true };
  const input = [];
  for (const turn of turns) {
    if (turn.cut) {
      const asked = [...input, { role: "user", content: turn.cut }];
      await leave(await responses.create({ ...fields, input: asked }), isWords);
    }
    await turns.held(input, async () => {
      input.push(message(turn));
      for (;;) {
        const { output } = await completed(await responses.create({ ...fields, input }));
        const results = resultsOf(output);
        input.push(...output, ...results);
        if (!results.length) {
          turn.endsWith(textOf(output));
          break;
        }
      }
    }, isTooLong);
  }
});

suite.conversation("responses", "responses chained", async (target, turns) => {
  const { responses } = sdk(target);
  const fields = { model: target.models.responses, tools: TOOLS };
  const chain = []; // ids of answers
  for (const turn of turns) {
    if (turn.cut) {
      const asked = { ...fields, input: turn.cut, previous_response_id: chain.at(-1) };
      await raised(APIConnectionTimeoutError, () => responses.create(asked, HASTY));
    }
    await turns.held(chain, async () => {
      let input = [message(turn)];
      while (input.length) {
        const response = await responses.create({ ...fields, input, previous_response_id: chain.at(-1) });
        chain.push(response.id);
        input = resultsOf(response.output);
        if (!input.length) {
          turn.endsWith(response.output_text);
        }
      }
    }, isTooLong);
  }
});

await suite.main();
