// The Vercel AI SDK, with its providers for OpenAI (responses and chat), for whoever is like OpenAI, and for Anthropic.

import { collected, equal, expect, load, PNG_URL, raised, Suite } from "./suite.mjs";

const { embedMany, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { z } = await load("zod");

globalThis.AI_SDK_LOG_WARNINGS = false;

const suite = new Suite("ai-sdk", ["ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic"]);

const ADA = { name: "Ada", age: 36 };
const Person = z.object({ name: z.string(), age: z.number() });
const weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});

const like = (target, key) =>
  createOpenAICompatible({
    name: "holeshot",
    baseURL: target.openai,
    apiKey: key ?? target.key,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });

const MODELS = {
  responses: (target, key) =>
    createOpenAI({ baseURL: target.openai, apiKey: key ?? target.key })(target.models.responses),
  chat: (target, key) => createOpenAI({ baseURL: target.openai, apiKey: key ?? target.key }).chat(target.models.chat),
  compatible: (target, key) => like(target, key)(target.models.chat),
  messages: (target, key) =>
    createAnthropic({ baseURL: target.openai, apiKey: key ?? target.key })(target.models.messages),
};

for (const [name, model] of Object.entries(MODELS)) {
  const call = (target, fields, key) => ({ model: model(target, key), maxRetries: 0, ...fields });

  suite.case("answers", `${name}: generateText answers`, async (target) => {
    const result = await generateText(call(target, { instructions: "Be brief.", prompt: "say: hello you" }));
    equal([result.text, result.finishReason, result.usage.outputTokens], ["hello you", "stop", 2]);
  });

  suite.case("streaming", `${name}: streamText streams`, async (target) => {
    const result = streamText(call(target, { prompt: "say: one two three", onError: () => {} }));
    const words = await collected(result.textStream);
    equal([words.join(""), await result.finishReason], ["one two three", "stop"]);
    expect(words.length >= 3, words);
    equal((await result.usage).outputTokens, 3);
  });

  suite.case("tools", `${name}: generateText uses tools`, async (target) => {
    const prompt = 'call: weather {"city": "Oslo"}\ncall: weather {"city": "Rome"}';
    const result = await generateText(call(target, { prompt, tools: { weather }, stopWhen: stepCountIs(3) }));
    equal([result.text, result.steps.length], ["The tool said: rain in Oslo, rain in Rome", 2]);
  });

  suite.case("tools", `${name}: streamText uses tools`, async (target) => {
    const prompt = 'call: weather {"city": "Oslo"}';
    const result = streamText(
      call(target, { prompt, tools: { weather }, stopWhen: stepCountIs(3), onError: () => {} }),
    );
    equal((await collected(result.textStream)).join(""), "The tool said: rain in Oslo");
  });

  suite.case("structured output", `${name}: generateObject keeps the schema`, async (target) => {
    const prompt = `data: ${JSON.stringify(ADA)}`;
    equal((await generateObject(call(target, { prompt, schema: Person }))).object, ADA);
  });

  suite.case("structured output", `${name}: streamText keeps the schema of its output`, async (target) => {
    const prompt = `data: ${JSON.stringify(ADA)}`;
    const output = Output.object({ schema: Person });
    const result = streamText(call(target, { prompt, output, onError: () => {} }));
    equal((await collected(result.partialOutputStream)).at(-1), ADA);
  });

  suite.case("structured output", `${name}: streamObject keeps the schema`, async (target) => {
    const prompt = `data: ${JSON.stringify(ADA)}`;
    const result = streamObject(call(target, { prompt, schema: Person, onError: () => {} }));
    equal((await collected(result.partialObjectStream)).at(-1), ADA);
  });

  suite.case("pictures and sound", `${name}: a picture is seen`, async (target) => {
    const image = Buffer.from(PNG_URL.split(",")[1], "base64");
    const content = [
      { type: "text", text: "What is it?" },
      { type: "file", data: image, mediaType: "image/png" },
    ];
    const result = await generateText(call(target, { messages: [{ role: "user", content }] }));
    equal(result.text, "I was shown a PNG of 3x2.");
  });

  suite.case("errors", `${name}: a wrong key raises`, async (target) => {
    const error = await raised(Error, () => generateText(call(target, { prompt: "say: hi" }, target.wrong_key)));
    equal(error.statusCode, 401);
  });
}

suite.case("reasoning", "compatible: thoughts are streamed", async (target) => {
  const result = streamText({
    model: MODELS.compatible(target),
    prompt: "think: hm well\nsay: yes",
    providerOptions: { holeshot: { reasoningEffort: "low" } },
    onError: () => {},
  });
  // Behind chat is Responses there: thoughts are told where their summary is asked for.
  const thoughts = target.name === "translated twice" ? undefined : "hm well";
  equal([(await result.text).trim(), (await result.reasoningText)?.trim()], ["yes", thoughts]);
});

suite.case(
  "reasoning",
  "messages: thoughts are streamed",
  async (target) => {
    const result = streamText({
      model: MODELS.messages(target),
      prompt: "think: hm well\nsay: yes",
      providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
      maxRetries: 0,
      onError: () => {},
    });
    const parts = await collected(result.fullStream);
    const failed = parts.find((part) => part.type === "error");
    if (failed) {
      throw failed.error;
    }
    equal([(await result.text).trim(), (await result.reasoningText).trim()], ["yes", "hm well"]);
  },
  { unsaid: ["thinking"] },
);

suite.case("other endpoints", "embeddings embed", async (target) => {
  const model = like(target).embeddingModel(target.models.embeddings);
  const { embeddings } = await embedMany({ model, values: ["one", "two"] });
  equal(embeddings.map((vector) => vector.length), [8, 8]);
});

await suite.main();
