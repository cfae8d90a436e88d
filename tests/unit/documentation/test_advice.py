"""Each error and each event has its advice, and no advice is for something that does not exist."""

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from gateway.core.errors import ApiError, KeyExpired, NoKey
from gateway.core.race_failures import AtCapacity
from gateway.limits import BudgetSpent
from gateway.server.connection import MALFORMED_BODY
from gateway.settings import Settings
from providers import ErrorKind
from tools.documentation import advice, commands, errors, events
from tools.documentation.events import GROUPS

ROOT = Path(__file__).resolve().parents[3]
# Read in the tests: every process collects all of them.
PAGES = {"errors": errors.page, "events": events.page}


@cache
def of_errors() -> Mapping[tuple[int, str], errors.Advice]:
    return errors.by_code()


@cache
def of_events() -> Mapping[str, Mapping[str, str]]:
    return {name: block.parts for name, block in advice.named("Event").items()}


def test_every_error_has_advice_and_every_advice_its_error() -> None:
    assert errors.codes().keys() == of_errors().keys()


def test_every_kind_of_failed_attempt_has_advice() -> None:
    assert errors.kinds().keys() == set(ErrorKind)


def test_words_for_refusals_are_those_of_the_code() -> None:
    assert errors.refusals().keys() == {NoKey("").kind, MALFORMED_BODY} == advice.named("Refusal").keys()


def test_errors_are_found_wherever_they_are_defined() -> None:
    found = set(errors.classes())
    assert {NoKey, KeyExpired, BudgetSpent, AtCapacity} <= found
    assert ApiError not in found


def test_a_code_that_is_given_to_an_error_later_is_known_to_the_page() -> None:
    """``error.code = …`` is no class, so the page has such codes from a table."""
    nodes = [
        node
        for path in (ROOT / "gateway").rglob("*.py")
        if ".code = " in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign)
    ]
    given = {
        ast.unparse(node.value).strip("'")
        for node in nodes
        if isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr == "code"
    }
    assert given == {"context_length_exceeded", "MALFORMED_REQUEST", "CODES_OF_OPERATORS[next(iter(kinds))]"}
    assert {"context_length_exceeded", "MALFORMED_REQUEST"} <= errors.GIVEN.keys()


def test_every_event_has_advice_and_every_advice_its_event() -> None:
    assert events.written().keys() == of_events().keys()
    assert {name.partition(".")[0] for name in of_events()} == GROUPS.keys()


def test_an_event_whose_name_cannot_be_read_is_known_to_the_page() -> None:
    """If this fails, a call of the log has a name that is no plain text: add its event to ``events.ELSEWHERE``."""
    assert events.unreadable() == {
        "gateway/api/refusals.py": 2,  # request.refused, request.crashed
        "gateway/keys/keys.py": 1,  # keys.created, changed, rotated, revoked
        "gateway/ledger/writer.py": 1,  # its callers of _say are read
        "gateway/watching/logs.py": 1,  # call.finished
    }


@pytest.mark.parametrize("name", sorted(events.ELSEWHERE))
def test_an_event_that_is_written_elsewhere_is_in_its_file(name: str) -> None:
    path, _, _ = events.ELSEWHERE[name]
    word = name.partition(".")[2] if name.startswith("keys.") else name
    assert f'"{word}"' in (ROOT / path).read_text(encoding="utf-8")


def test_an_advice_stands_in_the_file_that_writes_the_event() -> None:
    astray = {
        name
        for name, block in advice.named("Event").items()
        if name not in events.ELSEWHERE and f'"{name}"' not in block.path.read_text(encoding="utf-8")
    }
    assert astray == set()


def test_an_advice_has_the_parts_that_its_page_shows_and_no_others() -> None:
    named = {kind: advice.named(kind).values() for kind in ("Event", "Error", "Refusal")}
    assert {tuple(block.parts) for block in named["Event"]} == {("Means", "Do")}
    assert {tuple(block.parts) for block in named["Refusal"]} == {("Means",)}
    for_errors = [tuple(block.parts) for block in named["Error"]]
    for_errors += [tuple(parts) for each in errors.classes() if (parts := advice.of_class(each))]
    assert set(for_errors) <= {("Means", "Retry", "Caller"), ("Means", "Retry", "Caller", "Operator")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "# Event a.b: It is\n# long.\n# Do: Nothing.\nlog()",
            [("Event a.b", {"Means": "It is long.", "Do": "Nothing."}, 4)],
        ),
        (
            "# why\n# Event a.b: One.\n# Do: This.\n# Event a.c: Two.\n# Do: That.\nlog()",
            [
                ("Event a.b", {"Means": "One.", "Do": "This."}, 4),
                ("Event a.c", {"Means": "Two.", "Do": "That."}, 6),
            ],
        ),
        (
            "    # Means: Late.\n    # Do: Wait.\n    status = 1\n    # why",
            [("", {"Means": "Late.", "Do": "Wait."}, 3)],
        ),
    ],
)
def test_a_block_of_advice_is_read(text: str, expected: list[tuple[object, ...]], tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(text)
    assert [block[:3] for block in advice.blocks(path)] == expected


def test_every_advice_is_a_sentence() -> None:
    texts = [text for each in of_errors().values() for text in (each.means, each.caller, each.operator) if text]
    texts += [text for parts in of_events().values() for text in (parts["Means"], parts["Do"])]
    texts += [text for pair in errors.kinds().values() for text in pair]
    assert [text for text in texts if not re.fullmatch(r"[A-Z`].*[.)]", text, re.DOTALL)] == []


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_names_only_events_and_settings_that_there_are(name: str) -> None:
    groups = "|".join(sorted(GROUPS))
    named = set(re.findall(rf"`((?:{groups})\.[a-z_]+)`", PAGES[name]())) - of_events().keys()
    known = {f"{section}.{key}" for section in GROUPS.keys() & Settings.model_fields.keys() for key in _keys(section)}
    assert named <= known


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_names_only_commands_that_there_are(name: str) -> None:
    there_are = set(re.findall(r"^## `(holeshot .+)`$", commands.page(), re.MULTILINE))
    named = re.findall(r"`(holeshot [a-z]+(?: (?!NAME)[a-z]+)?)", PAGES[name]())
    assert named
    assert {each for each in named if each not in there_are} == set()


def _keys(section: str) -> Iterable[str]:
    return getattr(Settings.model_fields[section].annotation, "model_fields", {}).keys()
