"""What a dialect knows lives with the dialect: hardly anything else mentions one of them by name."""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from gateway.api import ENDPOINTS
from providers.dialects import DIALECTS
from tools.house import doors_of

CHECKOUT = Path(__file__).parents[4]
HOMES = ("providers/dialects/", "gateway/api/endpoints/")

# Each is right whichever dialects there are.
EXCEPTIONS: Mapping[str, frozenset[str]] = {
    "it speaks chat, as a client or as a server": frozenset(
        {
            "gateway/cli/race_run.py",
            "gateway/cli/race_lanes.py",
            "gateway/admin/visitors.py",  # its playground
            "gateway/admin/leaderboard.py",
            "gateway/admin/openapi/page_api.py",
            "gateway/server/server.py",
            "providers/upstreams/bedrock.py",
            "providers/upstreams/litellm_upstream.py",
            "providers/vendors/catalog.py",
            "providers/simulator/simulated.py",
        }
    ),
    "it is the rest of a vendor's API: stored responses, counts of tokens, lists of models": frozenset(
        {
            "gateway/api/stored.py",
            "gateway/api/models.py",
            "gateway/api/relayed_apis.py",
            "gateway/api/routes.py",
        }
    ),
    "it is another seller's way to the same API": frozenset({"gateway/api/doors.py"}),
    "it knows where chat's messages may have a null that says nothing": frozenset({"gateway/api/nulls.py"}),
    "it asks for summaries as Responses do, which alone have them": frozenset({"gateway/api/compacting.py"}),
    "it is a protocol that Responses alone have": frozenset(
        {"gateway/api/responses_socket.py", "gateway/api/turns.py"}
    ),
    "later requests may name items of Responses, and not of interactions": frozenset(
        {"gateway/api/recall.py", "gateway/memory/answers.py"}
    ),
    "it reads chat in the shape of Responses or Messages": frozenset({"gateway/api/other_shapes.py"}),
    "it describes each path": frozenset({"gateway/admin/openapi/calls.py"}),
    "it says which APIs a kind of vendor has": frozenset({"providers/vendors/catalog.py"}),
    "it reads in which APIs a table, or a refusal, says that a model is": frozenset(
        {"providers/models/datasheets.py", "providers/refusals/wrong_api.py"}
    ),
    "it demands the field that chat and Messages both have, for their surfaces": frozenset({"gateway/api/request.py"}),
    "it writes requests of its own, and reads their answers": frozenset(
        {"gateway/bench/measuring.py", "gateway/bench/plan.py", "gateway/cli/live.py", "gateway/app/prober.py"}
    ),
    "it writes the file of a program, which says in which API that asks": frozenset({"gateway/cli/login/programs.py"}),
    "it says where each vendor's clients have their key": frozenset({"gateway/keys/keys.py"}),
    "it has OpenTelemetry's names for operations": frozenset({"gateway/tracing/naming.py"}),
    "the word means something else": frozenset(
        {  # OpenAPI calls an answer so, alerts are told in messages, the table of prices has modes, and it is a field
            "gateway/cli/alerts.py",
            "gateway/admin/openapi/document.py",
            "providers/exchange/members.py",
            "providers/models/datasheets.py",
            "providers/vendors/demands.py",
            "providers/simulator/wire.py",
        }
    ),
}


ROOM = "providers.dialects"
DOORS = doors_of()  # what is imported through a door is where it is defined


def words() -> frozenset[str]:
    """Return what a dialect is called anywhere; not ``chat`` and ``gemini``, as other things are called so too."""
    names = chain.from_iterable((each.name, each.path, each.endpoint) for each in DIALECTS.values())
    return frozenset(names) - {"chat", "gemini"}


def mentions(code: str) -> Iterator[str]:
    """Yield each import from the folder of one dialect, and each string that is one's name, path or route."""
    names, routes = words(), tuple(prefix for surface in ENDPOINTS.values() for prefix in surface.prefixes)
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.ImportFrom(module=str(module)):
                for alias in node.names:
                    behind = DOORS.get(module, {}).get(alias.name, module)
                    imported = "_".join((*behind.split("."), alias.name.lower()))
                    is_home = f"{behind.replace('.', '/')}.py".startswith(HOMES)
                    if is_home and not DIALECTS.keys().isdisjoint(imported.split("_")):
                        yield behind
            case ast.Constant(value=str(text)) if text in names or (text.startswith(routes) and " " not in text):
                yield text


def test_nothing_else_mentions_a_dialect_by_name() -> None:
    found, written = set(), "|".join(map(re.escape, words()))
    begun = "|".join(re.escape(prefix) for surface in ENDPOINTS.values() for prefix in surface.prefixes)
    may_mention = re.compile(rf"""{ROOM}|gateway\.api(?: import|\.endpoints)|["'](?:{written})["']|["'}}](?:{begun})""")
    for path in chain((CHECKOUT / "gateway").rglob("*.py"), (CHECKOUT / "providers").rglob("*.py")):
        name = path.relative_to(CHECKOUT).as_posix()
        code = path.read_text(encoding="utf-8")
        if not name.startswith(HOMES) and may_mention.search(code) and any(mentions(code)):  # most need not be parsed
            found.add(name)
    assert found == set(chain.from_iterable(EXCEPTIONS.values()))


def test_a_mention_is_found() -> None:
    code = """
from providers.dialects.chat.events import read_event
from gateway.api.endpoints.chat import CHAT_MEDIA
if api == "responses" or path == "/v1/chat/completions": ...
"""
    assert sorted(mentions(code)) == [
        "/v1/chat/completions",
        "gateway.api.endpoints.chat",
        "providers.dialects.chat.events",
        "responses",
    ]
    without = (
        "from providers.dialects.index import DIALECTS\nfrom gateway.api.endpoints.storing import X\nkind = 'chat'"
    )
    assert not [*mentions(without)]


def test_every_dialect_has_its_surface_and_the_names_that_rows_and_files_have() -> None:
    assert {each.name: (each.path, each.endpoint) for each in DIALECTS.values()} == {
        "chat": ("chat/completions", "chat.completions"),
        "completions": ("completions", "completions"),
        "responses": ("responses", "responses"),
        "messages": ("messages", "messages"),
        "gemini": ("models/{model}:streamGenerateContent", "generate_content"),
        "interactions": ("interactions", "interactions"),
    }
    assert set(ENDPOINTS) == set(DIALECTS.values())
