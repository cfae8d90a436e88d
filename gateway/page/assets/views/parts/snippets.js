// The same call as a program would make it. A key is never among it: it is read from the environment.

/** The address that SDKs take as their base URL. */
export function baseUrl() {
  return new URL("v1", location.href).href;
}

/** `{curl, Python, Node}` for the body of a chat completion. `isKeyed`: the gateway asks for a key. */
export function snippets(body, isKeyed) {
  const base = baseUrl();
  return { curl: curl(base, body, isKeyed), Python: python(base, body, isKeyed), Node: node(base, body, isKeyed) };
}

function curl(base, body, isKeyed) {
  const json = JSON.stringify(body).replaceAll("'", "'\\''");
  return [
    `curl ${body.stream ? "-N " : ""}${base}/chat/completions \\`,
    "  -H 'content-type: application/json' \\",
    ...(isKeyed ? ['  -H "authorization: Bearer $HOLESHOT_KEY" \\'] : []),
    `  -d '${json}'`,
  ].join("\n");
}

function python(base, { model, messages, stream, race, ...more }, isKeyed) {
  const options = Object.entries(more).map(([name, value]) => `    ${name}=${literal(value)},\n`).join("");
  const extra = race ? `    extra_body=${literal({ race })},\n` : "";
  const call = `client.chat.completions.create(\n    model=${literal(model)},\n    messages=${literal(messages)},\n${options}${extra}${stream ? "    stream=True,\n" : ""})`;
  return [
    ...(isKeyed ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(base)}, api_key=${isKeyed ? 'os.environ["HOLESHOT_KEY"]' : '"none"'})`,
    ...(stream
      ? [`for chunk in ${call}:`, "    if chunk.choices:", '        print(chunk.choices[0].delta.content or "", end="", flush=True)']
      : [`answer = ${call}`, "print(answer.choices[0].message.content)"]),
  ].join("\n");
}

function node(base, body, isKeyed) {
  const asked = `await client.chat.completions.create(${JSON.stringify(body, null, 2)})`;
  return [
    'import OpenAI from "openai";',
    "",
    `const client = new OpenAI({ baseURL: ${JSON.stringify(base)}, apiKey: ${isKeyed ? "process.env.HOLESHOT_KEY" : '"none"'} });`,
    ...(body.stream
      ? [`for await (const chunk of ${asked}) {`, '  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");', "}"]
      : [`const answer = ${asked};`, "console.log(answer.choices[0].message.content);"]),
  ].join("\n");
}

/** JSON as Python writes it: only its three words differ. */
function literal(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
