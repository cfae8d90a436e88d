// Anthropic's own SDK for JavaScript, by its runner of tools: whole and streamed.

import { forecast, load, PNG_URL, Suite } from "../node/suite.mjs";

const { default: Anthropic } = await load("@anthropic-ai/sdk");

const suite = new Suite("anthropic-node", ["@anthropic-ai/sdk"]);

const WEATHER = {
  type: "custom",
  name: "weather",
  description: "Tell the weather in a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  run: forecast,
  parse: (input) => input,
};

const message = ({ text, picture }) => ({
  role: "user",
  content: picture
    ? [
        { type: "image", source: { type: "base64", media_type: "image/png", data: PNG_URL.split(",")[1] } },
        { type: "text", text },
      ]
    : text,
});
const textOf = ({ content }) => content.map((block) => block.text ?? "").join("");
const isTooLong = (error) => error.message.includes("prompt is too long");

for (const [title, stream] of [
  ["runner of tools", false],
  ["runner of tools streamed", true],
]) {
  suite.conversation("messages", title, async (target, turns) => {
    const { messages } = new Anthropic({ baseURL: target.url, apiKey: target.key }).beta;
    const fields = { model: target.models.messages, max_tokens: 16000, tools: [WEATHER], stream };
    const said = [];
    for (const turn of turns) {
      await turns.held(
        said,
        async () => {
          said.push(message(turn));
          const runner = messages.toolRunner({ ...fields, messages: said });
          const answer = await runner.runUntilDone();
          said.splice(0, Infinity, ...runner.params.messages);
          if (said.at(-1).role === "user") {
            said.push({ role: "assistant", content: answer.content });
          }
          turn.endsWith(textOf(answer));
        },
        isTooLong,
      );
    }
  });
}

await suite.main();
