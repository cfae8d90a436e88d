"""What a person reads when the gateway has started: how to use it, ready to be pasted."""

from gateway.settings.model import Settings


def welcome(settings: Settings, url: str) -> str:
    """Return the lines to try, for the first model there is."""
    simulated = all(name.startswith("sim-") for name in settings.providers)
    model = next(iter(settings.models), "PROVIDER/MODEL")
    key = "$HOLESHOT_KEY" if settings.clients else "none"
    authorization = f" \\\n  -H 'authorization: Bearer {key}'" if settings.clients else ""
    if simulated:
        first = (
            f"No provider keys were found, so {len(settings.providers)} simulated ones race, over real HTTP\n"
            "on loopback. For real ones set, say, GROQ_API_KEY and CEREBRAS_API_KEY, then run `holeshot init`.\n"
        )
    else:
        first = f"Racing {len(settings.providers)} providers for {len(settings.models)} models.\n"
    return f"""
{first}
Try it:

  curl -N {url}/v1/chat/completions{authorization} \\
  -H 'content-type: application/json' \\
  -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Why race?"}}]}}'

  python - <<'PY'
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="{key}")
for chunk in client.chat.completions.create(
    model="{model}", stream=True, messages=[{{"role": "user", "content": "Why race?"}}]
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
PY

Then ask who was fast:

  holeshot sql "select * from throughput"
  holeshot leaderboard

"""  # noqa: S608 - text for people; the SQL in it is an example
