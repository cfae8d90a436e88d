// OpenAI's Agents SDK for JavaScript: responses as by default, whole and streamed, and chat.

import { forecast, load, PNG_URL, Suite } from "../node/suite.mjs";

const { Agent, OpenAIProvider, Runner, tool } = await load("@openai/agents");
const { z } = await load("zod");

const suite = new Suite("openai-agents-node", ["@openai/agents"]);

const weather = tool({
  name: "weather",
  description: "Tell the weather in a city.",
  parameters: z.object({ city: z.string() }),
  execute: forecast,
});

const message = ({ text, picture }) => ({
  role: "user",
  content: picture ? [{ type: "input_text", text }, { type: "input_image", image: PNG_URL }] : text,
});
const isTooLong = (error) => error.code === "context_length_exceeded";

for (const [api, title, useResponses, stream] of [
  ["responses", "responses", true, false],
  ["responses", "responses streamed", true, true],
  ["chat", "chat", false, false],
  ["chat", "chat streamed", false, true],
]) {
  suite.conversation(api, title, async (target, turns) => {
    const modelProvider = new OpenAIProvider({ apiKey: target.key, baseURL: target.openai, useResponses });
    const runner = new Runner({ modelProvider, tracingDisabled: true });
    const agent = new Agent({ name: "Guide", instructions: "Be brief.", model: target.models[api], tools: [weather] });
    const said = [];
    for (const turn of turns) {
      await turns.held(
        said,
        async () => {
          const result = await runner.run(agent, [...said, message(turn)], { stream });
          if (stream) {
            await result.completed;
          }
          said.splice(0, Infinity, ...result.history);
          turn.endsWith(result.finalOutput);
        },
        isTooLong,
      );
    }
  });
}

await suite.main();
