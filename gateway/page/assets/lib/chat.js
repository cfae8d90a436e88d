// A chat completion through the page's own way in, api/playground, read as it comes.

import { address, asked, refusal } from "./api.js";

const HEADERS = { "content-type": "application/json" };

/**
 * Ask. `body` is that of v1/chat/completions. `begun(id, headers)` is called with the call's id and the answer's headers, `said(text)` with each piece of the
 * answer (a refusal too), `thought(text)` with each piece of reasoning, `called(at, name, text)` with each piece of a tool
 * call. Resolves to the finish reason when the answer is whole; throws an ApiError.
 */
export async function chat(body, { signal, begun = () => {}, said, thought = () => {}, called = () => {} }) {
  const response = await asked(address("playground"), { method: "POST", headers: HEADERS, body: JSON.stringify(body), signal });
  const id = response.headers.get("x-holeshot-call-id");
  if (id) begun(id, response.headers);
  if (!response.ok) throw await refusal(response);
  let reason = null;
  const take = (choice, delta) => {
    reason = choice?.finish_reason ?? reason;
    const reasoning = delta?.reasoning_content ?? delta?.reasoning;
    if (reasoning) thought(reasoning);
    if (delta?.content) said(delta.content);
    if (delta?.refusal) said(delta.refusal);
    delta?.tool_calls?.forEach((each, at) => called(each.index ?? at, each.function?.name ?? "", each.function?.arguments ?? ""));
  };
  if (!body.stream) {
    const [choice] = (await response.json()).choices ?? [];
    take(choice, choice?.message);
    return reason;
  }
  for await (const data of events(response.body)) {
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    const [choice] = event.choices ?? [];
    take(choice, choice?.delta);
  }
  return reason;
}

/** The `data:` of each server-sent event, until `[DONE]`. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      if (data) yield data;
    }
  }
}
