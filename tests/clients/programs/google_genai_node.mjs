// Google's own SDK for JavaScript: its chats, with functions that it calls by itself, whole and streamed.

import { forecast, load, Lost, PNG_URL, Suite } from "../node/suite.mjs";

const { GoogleGenAI } = await load("@google/genai");

const suite = new Suite("google-genai-node", ["@google/genai"]);

const parametersJsonSchema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const WEATHER = { name: "weather", description: "Tell the weather in a city.", parametersJsonSchema };
const TOOL = {
  tool: async () => ({ functionDeclarations: [WEATHER] }),
  callTool: async (calls) =>
    calls.map(({ id, name, args }) => ({ functionResponse: { id, name, response: { result: forecast(args) } } })),
};

const message = ({ text, picture }) => [
  { text },
  ...(picture ? [{ inlineData: { mimeType: "image/png", data: PNG_URL.split(",")[1] } }] : []),
];
const isTooLong = (error) => error.message.includes("exceeds the maximum number of tokens");

function wordsOf(answer) {
  if (answer.promptFeedback?.blockReason) {
    throw new Lost(JSON.stringify(answer.promptFeedback));
  }
  return (answer.candidates?.[0].content?.parts ?? []).map(({ text }) => text ?? "").join("");
}

async function whole(chat, said) {
  return wordsOf(await chat.sendMessage({ message: said }));
}

async function streamed(chat, said) {
  let words = "";
  for await (const chunk of await chat.sendMessageStream({ message: said })) {
    words += wordsOf(chunk);
  }
  return words;
}

for (const [title, say] of [
  ["chat whole", whole],
  ["chat streamed", streamed],
]) {
  suite.conversation("gemini", title, async (target, turns) => {
    const { chats } = new GoogleGenAI({ apiKey: target.key, httpOptions: { baseUrl: target.url } });
    const had = []; // after a prompt that is too long, another one is begun
    for (const turn of turns) {
      await turns.held(
        had,
        async () => {
          if (!had.length) {
            had.push(chats.create({ model: target.models.gemini, config: { tools: [TOOL] } }));
          }
          turn.endsWith(await say(had.at(-1), message(turn)));
        },
        isTooLong,
      );
    }
  });
}

await suite.main();
