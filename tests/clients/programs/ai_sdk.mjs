// The Vercel AI SDK with what its providers do by default: OpenAI's is responses, stored, with items that are only named.

import { forecast, load, PNG_URL, Suite } from "../node/suite.mjs";

const { generateText, streamText, stepCountIs, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createGoogleGenerativeAI } = await load("@ai-sdk/google");
const { z } = await load("zod");

globalThis.AI_SDK_LOG_WARNINGS = false;

const suite = new Suite("ai-sdk", ["ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic", "@ai-sdk/google"]);

const weather = tool({
  description: "Tell the weather in a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async (input) => forecast(input),
});
const THINKING = { anthropic: { thinking: { type: "enabled", budgetTokens: 2048 } } };

const MODELS = {
  responses: (target) => createOpenAI({ baseURL: target.openai, apiKey: target.key })(target.models.responses),
  chat: (target) => createOpenAI({ baseURL: target.openai, apiKey: target.key }).chat(target.models.chat),
  compatible: (target) =>
    createOpenAICompatible({ name: "holeshot", baseURL: target.openai, apiKey: target.key })(target.models.chat),
  messages: (target) =>
    createAnthropic({ baseURL: `${target.url}/v1`, apiKey: target.key })(target.models.messages),
  gemini: (target) =>
    createGoogleGenerativeAI({ baseURL: `${target.url}/v1beta`, apiKey: target.key })(target.models.gemini),
};

// What the user's program looks for: each vendor has its own way to say it.
const isTooLong = (error) =>
  /context_length_exceeded|prompt is too long|exceeds the maximum number of tokens/.test(
    `${error.responseBody} ${error.message} ${JSON.stringify(error.data)}`,
  );

const message = ({ text, picture }) => ({
  role: "user",
  content: picture
    ? [
        { type: "text", text },
        { type: "file", data: Buffer.from(PNG_URL.split(",")[1], "base64"), mediaType: "image/png" },
      ]
    : text,
});

for (const [api, surface, options] of [
  ["responses", "responses", {}],
  ["chat", "chat", {}],
  ["chat", "compatible", {}],
  ["messages", "messages", {}],
  ["messages", "messages with thinking", { providerOptions: THINKING }],
  ["gemini", "gemini", {}],
]) {
  const model = MODELS[surface.split(" ")[0]];

  suite.conversation(api, surface, async (target, turns) => {
    const messages = [];
    const settings = { model: model(target), tools: { weather }, stopWhen: stepCountIs(5), ...options };
    for (const turn of turns) {
      if (turn.cut) {
        const told = [...messages, { role: "user", content: turn.cut }];
        await leftByTimer((abortSignal) => generateText({ ...settings, messages: told, abortSignal }));
      }
      await turns.held(
        messages,
        async () => {
          messages.push(message(turn));
          const result = await generateText({ ...settings, messages });
          messages.push(...result.responseMessages);
          turn.endsWith(result.text);
        },
        isTooLong,
      );
    }
  });

  suite.conversation(api, `${surface} streamed`, async (target, turns) => {
    const messages = [];
    const settings = { model: model(target), tools: { weather }, stopWhen: stepCountIs(5), ...options };
    for (const turn of turns) {
      if (turn.cut) {
        const leaving = new AbortController();
        const told = [...messages, { role: "user", content: turn.cut }];
        const result = streamText({ ...settings, messages: told, abortSignal: leaving.signal, onError: () => {} });
        for await (const words of result.textStream) {
          if (words) {
            leaving.abort();
            break;
          }
        }
      }
      await turns.held(
        messages,
        async () => {
          messages.push(message(turn));
          let failure;
          const result = streamText({
            ...settings,
            messages,
            onError: ({ error }) => {
              failure ??= error;
            },
          });
          await result.consumeStream();
          if (failure) {
            throw failure;
          }
          messages.push(...(await result.responseMessages));
          turn.endsWith(await result.text);
        },
        isTooLong,
      );
    }
  });
}

async function leftByTimer(call) {
  let answer;
  try {
    answer = await call(AbortSignal.timeout(1000));
  } catch {
    return;
  }
  throw new Error(`the answer that was to be left came at once: ${answer.text}`);
}

await suite.main();
