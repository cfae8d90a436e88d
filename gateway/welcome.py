"""The text shown when the gateway has started: commands to try it."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from gateway.settings.model import Settings
from gateway.terminal_text import counted
from providers.simulator.persona import are_demo


def welcome(settings: Settings, url: str) -> str:
    """Return the commands to try, for the first model."""
    model = next(iter(settings.models), "PROVIDER/MODEL")
    needs_key = bool(settings.clients) or settings.keys == "database"
    authorization = ' \\\n  -H "authorization: Bearer $HOLESHOT_KEY"' if needs_key else ""
    api_key = 'os.environ["HOLESHOT_KEY"]' if needs_key else '"none"'
    python, holeshot = _program("python"), _program("holeshot")
    return f"""
{_who_races(settings, url)}{_who_calls(settings)}
Try it:

  curl -N {url}/v1/chat/completions{authorization} \\
  -H 'content-type: application/json' \\
  -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Why race?"}}]}}'

{_installing(python)}  {python} - <<'PY'
import os
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key={api_key})
for chunk in client.chat.completions.create(
    model="{model}", stream=True, messages=[{{"role": "user", "content": "Why race?"}}]
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
PY

Then ask which provider was fast:

  {holeshot} leaderboard{f" --url {url}" if not (url.startswith("http:") and url.endswith(":4000")) else ""}
  {holeshot} sql "select * from throughput"

"""  # noqa: S608 - text for people; the SQL in it is an example


def _installing(python: str) -> str:
    """Return the command that installs OpenAI's SDK, if it is not there; the gateway does not need it."""
    return "" if find_spec("openai") else f"  {python} -m pip install openai\n"


def _who_races(settings: Settings, url: str) -> str:
    number = len(settings.providers)
    if are_demo(settings.providers):
        return (
            f"No provider keys were found, so {number} simulated providers race, over real HTTP on loopback.\n"
            "To use real providers, set for example GROQ_API_KEY and CEREBRAS_API_KEY, then run `holeshot init`.\n"
            f"To see what racing saves, open {url} and send calls for a minute: there is a button.\n"
        )
    if not settings.models:
        return f"{counted(number, 'provider')} and no model: name deployments directly, as provider/model.\n"
    verb = "answers" if number == 1 else "race"
    return f"{counted(number, 'provider')} {verb} for {counted(len(settings.models), 'model')}.\n"


def _who_calls(settings: Settings) -> str:
    if settings.keys == "file" or settings.clients:
        return ""
    return "Every call needs a key; `holeshot keys new NAME` makes one, also while the gateway runs.\n"


def _program(name: str) -> str:
    """Return the command for a program of this environment: only its name if the PATH finds it."""
    program = Path(sys.executable).parent / name
    found = shutil.which(name)
    if found is not None and Path(found).absolute() == program.absolute():
        return name
    return os.path.relpath(program) if program.exists() else name
