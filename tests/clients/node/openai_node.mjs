// OpenAI's own SDK for JavaScript.

import { collected, equal, expect, load, PNG_URL, raised, Suite, unique } from "./suite.mjs";

const { default: OpenAI } = await load("openai");
const { zodResponseFormat, zodTextFormat } = await load("openai/helpers/zod");
const { z } = await load("zod");

const suite = new Suite("openai-node", ["openai"]);

const WEATHER = {
  name: "weather",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const TWO_CALLS = 'call: weather {"city": "Oslo"}\ncall: weather {"city": "São Paulo"}';
const ADA = { name: "Ada", age: 36 };
const Person = z.object({ name: z.string(), age: z.number() });

const sdk = (target, options = {}) =>
  new OpenAI({ baseURL: target.openai, apiKey: target.key, maxRetries: 0, ...options });
const user = (content) => [{ role: "user", content }];
const ask = (target, content, fields = {}) =>
  sdk(target).chat.completions.create({ model: target.models.chat, messages: user(content), ...fields });

suite.case("answers", "chat answers", async (target) => {
  const answer = await ask(target, "say: hello you");
  equal(answer.choices[0].message.content, "hello you");
  equal(answer.usage.completion_tokens, 2);
});

suite.case("answers", "chat gives the raw response", async (target) => {
  const call = ask(target, "say: raw");
  const { data, response } = await call.withResponse();
  equal([response.status, data.choices[0].message.content], [200, "raw"]);
});

suite.case("answers", "responses answer", async (target) => {
  const answer = await sdk(target).responses.create({ model: target.models.responses, input: "say: hello you" });
  equal([answer.output_text, answer.status, answer.usage.output_tokens], ["hello you", "completed", 2]);
});

suite.case(
  "answers",
  "completions answer",
  async (target) => {
    const answer = await sdk(target).completions.create({ model: target.models.completions, prompt: "say: once upon" });
    equal(answer.choices[0].text, "once upon");
  },
  { unsaid: ["raw prompt"] },
);

suite.case("streaming", "chat streams", async (target) => {
  const chunks = await collected(await ask(target, "say: one two three", { stream: true }));
  equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), "one two three");
});

suite.case("streaming", "chat streams through the helper", async (target) => {
  const stream = sdk(target).chat.completions.stream({
    model: target.models.chat,
    messages: user("say: one two three"),
    stream_options: { include_usage: true },
  });
  const words = [];
  stream.on("content", (word) => words.push(word));
  const final = await stream.finalChatCompletion();
  equal([words.join(""), final.choices[0].message.content], ["one two three", "one two three"]);
  equal(final.usage.completion_tokens, 3);
});

suite.case("streaming", "responses stream typed events", async (target) => {
  const events = await collected(
    await sdk(target).responses.create({ model: target.models.responses, input: "say: one two", stream: true }),
  );
  equal([events[0].type, events.at(-1).type], ["response.created", "response.completed"]);
  const words = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
  equal(words.join(""), "one two");
});

suite.case("streaming", "responses stream through the helper", async (target) => {
  const stream = sdk(target).responses.stream({ model: target.models.responses, input: "say: one two" });
  equal((await stream.finalResponse()).output_text, "one two");
});

suite.case("streaming", "a stream is aborted", async (target) => {
  const stream = await ask(target, `say: ${"word ".repeat(5000)}`, { stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) {
      break;
    }
  }
  equal((await ask(target, "say: still here")).choices[0].message.content, "still here");
});

suite.case("tools", "chat calls tools in parallel and hears their results", async (target) => {
  const tools = [{ type: "function", function: WEATHER }];
  const messages = user(TWO_CALLS);
  const { message } = (await ask(target, "", { messages, tools })).choices[0];
  const cities = message.tool_calls.map((call) => JSON.parse(call.function.arguments).city);
  equal(cities, ["Oslo", "São Paulo"]);
  messages.push(message, ...message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "rain" })));
  equal((await ask(target, "", { messages, tools })).choices[0].message.content, "The tool said: rain, rain");
});

suite.case("tools", "chat runs tools by itself", async (target) => {
  const runner = sdk(target).chat.completions.runTools({
    model: target.models.chat,
    messages: user('call: weather {"city": "Oslo"}'),
    tools: [
      { type: "function", function: { ...WEATHER, parse: JSON.parse, function: ({ city }) => `rain in ${city}` } },
    ],
    stream: true,
  });
  equal(await runner.finalContent(), "The tool said: rain in Oslo");
});

suite.case("tools", "responses call a tool and hear its result", async (target) => {
  const tools = [{ type: "function", strict: false, ...WEATHER }];
  const input = user('call: weather {"city": "Oslo"}');
  const first = await sdk(target).responses.create({ model: target.models.responses, input, tools });
  const call = first.output.find((item) => item.type === "function_call");
  equal(JSON.parse(call.arguments), { city: "Oslo" });
  input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: "rain" });
  const second = await sdk(target).responses.create({ model: target.models.responses, input, tools });
  equal(second.output_text, "The tool said: rain");
});

suite.case("structured output", "chat parses a structured answer", async (target) => {
  const answer = await sdk(target).chat.completions.parse({
    model: target.models.chat,
    messages: user(`data: ${JSON.stringify(ADA)}`),
    response_format: zodResponseFormat(Person, "person"),
  });
  equal(answer.choices[0].message.parsed, ADA);
});

suite.case("structured output", "responses parse a structured answer", async (target) => {
  const answer = await sdk(target).responses.parse({
    model: target.models.responses,
    input: `data: ${JSON.stringify(ADA)}`,
    text: { format: zodTextFormat(Person, "person") },
  });
  equal(answer.output_parsed, ADA);
});

suite.case("pictures and sound", "chat sees a picture", async (target) => {
  const answer = await ask(target, [
    { type: "text", text: "What is it?" },
    { type: "image_url", image_url: { url: PNG_URL } },
  ]);
  equal(answer.choices[0].message.content, "I was shown a PNG of 3x2.");
});

suite.case(
  "parameters and unknown fields",
  "unknown fields are passed on",
  async (target) => {
    const answer = await ask(target, "echo: body", { x_of_the_future: { a: [null] } });
    equal(JSON.parse(answer.choices[0].message.content).x_of_the_future, { a: [null] });
  },
  { unsaid: ["x_of_the_future"] },
);

suite.case("errors", "every error has its class", async (target) => {
  await raised(OpenAI.AuthenticationError, () =>
    sdk(target, { apiKey: target.wrong_key }).chat.completions.create({ model: "m", messages: user("say: hi") }),
  );
  await raised(OpenAI.PermissionDeniedError, () =>
    sdk(target, { apiKey: target.forbidden_key }).chat.completions.create({
      model: target.models.chat,
      messages: user("say: hi"),
    }),
  );
  await raised(OpenAI.NotFoundError, () => ask(target, "say: hi", { model: "missing-model" }));
  for (const [status, kind] of [
    [400, OpenAI.BadRequestError],
    [422, OpenAI.UnprocessableEntityError],
    [429, OpenAI.RateLimitError],
    [500, OpenAI.InternalServerError],
  ]) {
    await raised(kind, () => ask(target, `fail: ${status}`, { model: target.troubledModel("chat") }));
  }
});

suite.case("errors", "a stream that breaks raises", async (target) => {
  const text = `cut: now\nsay: ${"word ".repeat(40)}`;
  const model = target.troubledModel("chat");
  await raised(Error, async () => collected(await ask(target, text, { model, stream: true })));
});

suite.case("retries and time-outs", "a failure is retried", async (target) => {
  const answer = await sdk(target, { maxRetries: 2 }).chat.completions.create({
    model: target.troubledModel("chat"),
    messages: user(`say: at last\nfail: 500 times 1 ${unique("again")}`),
  });
  equal(answer.choices[0].message.content, "at last");
});

suite.case("retries and time-outs", "a slow answer times out", async (target) => {
  const messages = user("slow: 50");
  const model = target.troubledModel("chat");
  await raised(OpenAI.APIConnectionTimeoutError, () =>
    sdk(target, { timeout: 500 }).chat.completions.create({ model, messages }),
  );
});

suite.case("other endpoints", "embeddings come in base64 and as numbers", async (target) => {
  const body = { model: target.models.embeddings, input: "one" };
  const usual = await sdk(target).embeddings.create(body);
  const plain = await sdk(target).embeddings.create({ ...body, encoding_format: "float" });
  equal(usual.data[0].embedding, plain.data[0].embedding);
});

suite.case("other endpoints", "the tokens of an input are counted", async (target) => {
  const counted = await sdk(target).responses.inputTokens.count({
    model: target.models.responses,
    input: "say: hello you",
  });
  equal([counted.input_tokens, counted.object], [14, "response.input_tokens"]);
});

suite.case("other endpoints", "a long conversation is compacted", async (target) => {
  const input = [...user("say: one"), { role: "assistant", content: "one" }, ...user("say: two")];
  const compacted = await sdk(target).responses.compact({ model: target.models.responses, input });
  equal(
    compacted.output.map((item) => item.type),
    ["message", "message", "compaction"],
  );
});

if (new OpenAI({ apiKey: "none" }).decisions !== undefined) {
  // Since version 7.
  suite.case("other endpoints", "decisions are made", async (target) => {
    const questions = [
      { type: "predicate", name: "angry", instructions: "Say yes if the writer is angry." },
      { type: "choice", instructions: "Who handles it?", choices: [{ value: "post" }, { value: true }] },
    ];
    const { data, response } = await sdk(target)
      .decisions.create({ model: target.models.decisions, input: "The parcel never came.", questions })
      .withResponse();
    equal(
      data.answers.map((answer) => answer.probability ?? answer.choice),
      [0.9, "post"],
    );
    if (target.gateway) equal(response.headers.get("x-holeshot-launched"), "2");
  });
}

suite.case("other endpoints", "models are listed", async (target) => {
  const names = (await collected(sdk(target).models.list())).map((model) => model.id);
  expect(names.includes(target.models.chat), names);
});

await suite.main();
