"""What holds of the code as a house: its rooms and imports, and the words of its docstrings."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.house import LIMITS, ROOT, House, doors_of, measure, modules_of


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    return measure().figures()


@pytest.mark.parametrize("name", LIMITS)
def test_the_house_keeps_within_its_limits(name: str, figures: dict[str, float]) -> None:
    assert figures[name] <= LIMITS[name]


def test_modules_that_import_each_other_are_a_circle_and_one_importer_is_counted() -> None:
    house = House({"a": 1, "b": 1, "c": 1}, {"a": frozenset({"b"}), "b": frozenset({"a", "c"}), "c": frozenset()})

    assert house.circles == [["a", "b"]]
    assert house.one_importer == ["a", "b", "c"]


_APART = {
    "benchmarks": re.compile(r"tests\.(?!support\b|patience\b)"),  # what both need is in tests/support
    "tests": re.compile(r"benchmarks\b"),
    "tests/support": re.compile(r"tests\.(?!support\b|patience\b)|tools\b"),
    "tools": re.compile(r"tests\.(?!support\b|patience\b)|benchmarks\b"),
    "strict_vendors": re.compile(r"(?:tests|benchmarks|tools|gateway|providers|holeshot|migrations)\b"),
    "gateway": re.compile(r"(?:tests|benchmarks|tools|strict_vendors)\b"),
    "providers": re.compile(r"(?:tests|benchmarks|tools|strict_vendors)\b"),
    "holeshot": re.compile(r"(?:tests|benchmarks|tools|strict_vendors)\b"),
    "migrations": re.compile(r"(?:tests|benchmarks|tools|strict_vendors)\b"),
}


@pytest.mark.parametrize("room", _APART)
def test_benchmarks_import_no_test_tests_no_benchmark_and_the_product_no_tool(room: str) -> None:
    apart = _APART[room]
    tops = "|".join(set(re.findall(r"[a-z_]{5,}", apart.pattern)))
    named = re.compile(rf"^\s*(?:from|import)\b.*\b(?:{tops})\b", re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / room).rglob("*.py"))
        if named.search(text := path.read_text(encoding="utf-8"))  # most need not be parsed
        for module in sorted(modules_of(ast.parse(text)))
        if apart.match(module)
    ]
    assert found == []


_LOOKS_BEHIND_DOORS = {
    "tests/app/alerts/test_delivery.py": "when a message is sent again",
    "tests/app/cli/test_serve.py": "a socket that is bound before the command",
    "tests/app/gateway/access/test_admin_keys.py": "how keys of the database are watched",
    "tests/app/gateway/access/test_admission.py": "how many wrong keys are answered at once",
    "tests/app/gateway/access/test_guessed_keys.py": "how many wrong keys are answered at once, and how many wait",
    "tests/app/gateway/access/test_own_calls.py": "which calls a sign-in must ask for again",
    "tests/app/gateway/apis/test_patterns.py": "how many names a pattern may have answered",
    "tests/app/gateway/connections/": "connections by their parts: sockets, framing, and the bounds of both",
    "tests/app/gateway/extending/": "a file of gateway/api, as it would be written",
    "tests/app/gateway/keys/test_tenants.py": "how many keys of one client are kept",
    "tests/app/gateway/races/test_probes.py": "when a probe is due",
    "tests/app/gateway/races/test_shapes.py": "how many shapes are kept",
    "tests/app/gateway/relayed/test_json.py": "each row of the table",
    "tests/app/gateway/responses/": "bounds of sockets, turns and bodies, and who looks after what was left running",
    "tests/app/gateway/restarts/": "sockets, reloads and workers, by their parts",
    "tests/app/gateway/running_gateway.py": "serves a gateway in the process of its test",
    "tests/app/gateway/watching/": "what is counted, drawn and described, by the names that it has there",
    "tests/app/http/": "the HTTP client by its parts, before scripted servers",
    "tests/browser/test_access.py": "the page's own address",
    "tests/clickhouse/": "the second store is told what the ledger's spool has",
    "tests/fuzz/": "what reads bytes is fed without a client around it",
    "tests/real_servers/watched.py": "counts what each connection does",
    "tests/schedules/": "a whole gateway whose stores are lists, and defects that are put into it",
    "tests/services/gateway/": "what gateways tell each other over Redis, key by key",
    "tests/services/ledger/": "the room with a real database",
    "tests/services/limits/": "the room with a real Redis",
    "tests/services/next_version.py": "a made-up migration, as it would be written",
    "tests/services/steering/": "the room with a real Redis",
    "tests/services/topology/": "limits and steering on each topology",
    "tests/support/replayed.py": "draws what a replay would",
    "tests/support/savings.py": "replays what the estimator makes of a log",
    "tests/support/slowed.py": "what the detector of slowdowns makes of a log",
    "tests/unit/cli/test_race_lanes.py": "lanes get what a race's reader makes",
    "tests/unit/cli/test_sql_output.py": "a module of the ledger's door",
    "tests/unit/cli/test_tailed.py": "the events that a gateway streams",
    "tests/unit/documentation/test_advice.py": "the names of malformed requests",
    "tests/unit/ledger/test_rows.py": "entries, columns and tables, each against the others",
    "tests/unit/page/test_vendored.py": "where the page's files lie",
    "tests/unit/providers/dialects/test_index.py": "what a linter must find, as a text",
    "tests/unit/providers/exchange/test_taken.py": "each who asks a provider",
    "tests/unit/racing/test_short_calls.py": "what a call may spend, and when it is hedged",
    "tests/unit/racing/test_whole.py": "for how long a fact holds",
    "tests/unit/racing/track.py": "says what the estimator says",
    "tests/unit/settings/test_clients.py": "a word of the table of keys",
    "tests/unit/settings/test_joint.py": "which models the fleet joins, and who pays",
    "tests/unit/settings/test_shared_limits.py": "what the fleet makes of limits",
    "tests/unit/test_compose.py": "which variables are no settings",
    "tests/unit/test_demo.py": "an attempt as a replay draws it",
    "tests/unit/test_kubernetes.py": "which variables are no settings, and the tables of all paths",
    "tests/unit/test_prompt_classes.py": "all that reads what an older version has written",
    "tests/unit/test_pythons.py": "the check at a start",
    "tests/unit/test_quick_enums.py": "the enums that the hot path compares",
    "tests/unit/test_systemd_unit.py": "which variables are no settings",
}


_IMPORT = re.compile(r"^ *from ((?:gateway|providers)[\w.]*) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


@pytest.fixture(scope="module")
def ours() -> dict[str, list[tuple[str, str]]]:
    """Module and name of each import of the product, by file: to parse all tests would take seconds."""
    return {
        str(path.relative_to(ROOT)): [
            (found[1], re.split(r" as |\s*#", part.strip())[0])
            for found in _IMPORT.finditer(path.read_text(encoding="utf-8"))
            for part in re.sub(r"#.*", "", found[2] or found[3]).split(",")
            if part.strip()
        ]
        for top in ("tests", "benchmarks")
        for path in sorted((ROOT / top).rglob("*.py"))
    }


def test_tests_import_through_doors_but_those_inside_a_room(ours: dict[str, list[tuple[str, str]]]) -> None:
    """A room's own tests that look behind its door lie in ``tests/unit/ROOM/inside/``, so that a file can be moved.

    ``lint-imports`` holds the same of the product.
    """
    doors = doors_of()
    behind = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(doors, key=len, reverse=True)))})\.")
    found = {
        name: deep
        for name, imports in ours.items()
        if name.startswith("tests/")
        and (
            deep := [
                f"{module} {what}"
                for module, what in imports
                if (behind.match(module) and module not in doors)
                or (module in doors and what not in doors[module] and f"{module}.{what}" not in doors)
            ]
        )
    }
    outside = {name: deep for name, deep in found.items() if "inside" not in Path(name).parts}
    assert {name: deep for name, deep in outside.items() if not name.startswith(tuple(_LOOKS_BEHIND_DOORS))} == {}
    assert [name for name in _LOOKS_BEHIND_DOORS if not any(each.startswith(name) for each in found)] == []


def test_the_strict_vendors_are_imported_by_their_door() -> None:
    """Whoever makes a stand-in of their own inherits from one of ``strict_vendors/known/``."""
    named = re.compile(r"^ *from strict_vendors((?:\.\w+)+) import|^ *import strict_vendors\.", re.MULTILINE)
    assert [
        f"{path.relative_to(ROOT)}: {found[0].strip()}"
        for top in ("tests", "benchmarks", "tools")
        for path in sorted((ROOT / top).rglob("*.py"))
        for found in named.finditer(path.read_text(encoding="utf-8"))
        if not (found[1] or "").startswith(".known")
    ] == []


def test_no_docstring_is_about_nobody_or_somebody_or_begins_with_take() -> None:
    """Such sentences hide who does what: name the client, the process, the viewer, or what the function returns."""
    root = Path(__file__).parents[2]
    riddles = re.compile(r"\b(?:nobody|somebody|whoever)\b|^Take\b", re.IGNORECASE | re.MULTILINE)
    has_one = re.compile(r'\b(?:nobody|somebody|whoever)\b|(?:^|""")\s*Take\b', re.IGNORECASE | re.MULTILINE)
    found = [
        f"{path.relative_to(root)}: {text.splitlines()[0]}"
        for room in ("gateway", "providers", "holeshot", "migrations")
        for path in sorted((root / room).rglob("*.py"))
        if has_one.search(code := path.read_text(encoding="utf-8"))  # most need not be parsed
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and riddles.search(text)
    ]
    assert found == []


_RULES = {
    "what is broken": r"""["']failed["'], ["']timeout["'], ["']stalled["']""",
    "what is beaten": r"""["']lost["'], ["']superseded["']|["']superseded["'], ["']lost["']""",
    "what is raced": r"""["']completions["'], ["'](?:messages|responses)["']""",
    "what has failed": r"424, 429|429, 424",
    "what is no error": r"'rate_limited', 'bad_request'",
}
# Where a rule stands that Python does not write down as such, or not as SQL does.
_SAID_ELSEWHERE = {"what is raced", "what is no error"}


@pytest.mark.parametrize("rule", _RULES)
def test_a_rule_of_counting_is_stated_once(rule: str) -> None:
    """``gateway/core/rules.py`` has them; Python asks it, and the ledger makes SQL of it."""
    files = [*(ROOT / "gateway").rglob("*.py"), *(ROOT / "gateway").rglob("*.sql")]
    if rule == "what is no error":
        files += (ROOT / "migrations" / "views").glob("*.sql")  # of today: those of earlier revisions never change
    found = [
        str(path.relative_to(ROOT))
        for path in sorted(files)
        if re.search(_RULES[rule], path.read_text(encoding="utf-8"))
    ]
    assert found == (["gateway/core/rules.py"] if rule not in _SAID_ELSEWHERE else [])


@pytest.mark.parametrize("room", ["access", "api", "app", "admin", "bench", "cli", "http", "live", "replay", "server"])
def test_nobody_outside_steering_and_racing_makes_or_changes_a_launch(room: str) -> None:
    """A call's plan is made once: what it demands is an input of the planner (``gateway/steering/demands.py``)."""
    made = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in sorted((ROOT / "gateway" / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func) in {"Launch", "Start"}
            or any(keyword.arg in {"launches", "rest", "rescue_s"} for keyword in node.keywords)
        )
    ]
    assert made == []


_OF_ERRORS = re.compile(r"error|refus|fail|broken|last|told|original|trouble")
_READING = {"endswith", "findall", "finditer", "find", "fullmatch", "match", "search", "split", "startswith"}
_RULES_OF_WORDS = {"blames_request", "is_spent", "is_too_long", "kind_of_404", "offered", "read", "stated_limit"}


def _words_read(function: ast.AST) -> Iterator[str]:
    """Yield where the message of an error is searched, compared or handed to a rule, also by another name."""
    whole: set[str] = set()  # names of messages

    def is_whole(node: ast.AST) -> bool:
        return any(
            (isinstance(each, ast.Name) and each.id in whole)
            or (
                isinstance(each, ast.Attribute)
                and each.attr in {"message", "words", "caller"}
                and _OF_ERRORS.search(ast.unparse(each.value)) is not None
            )
            for each in ast.walk(node)
        )

    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not isinstance(node.value, ast.Call) and is_whole(node.value):
                whole |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _READING | _RULES_OF_WORDS:
                of = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
                if any(map(is_whole, of)):
                    yield ast.unparse(node)
            case ast.Compare(ops=[ast.In() | ast.NotIn()]) if is_whole(node.comparators[0]):  # codespell:ignore notin
                yield ast.unparse(node)


def test_rules_read_what_a_vendor_says_without_what_its_client_wrote() -> None:
    """A message may quote the request: ``UpstreamError.said`` is without that (``providers/exchange/quotes.py``).

    The command line reads answers to its own requests.
    """
    found = [
        f"{path.relative_to(ROOT)}: {read}"
        for room in ("providers", "gateway")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "cli" not in path.parts
        if re.search(r"\.(?:message|words|caller)\b", code := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for read in _words_read(node)
    ]
    assert found == []


def test_the_kind_of_a_refusal_is_known_by_its_vendor_s_own_words() -> None:
    """Whoever reads a refusal says how these are told from its client's."""
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in sorted((ROOT / "providers").rglob("*.py"))
        if "error_of_response(" in (code := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "error_of_response"
        and not any(each.arg == "own" for each in node.keywords)
    ]
    assert found == []


def test_the_kind_of_an_error_is_changed_by_one_method() -> None:
    """``UpstreamError.turn_into``: whoever looks for it sees where an error becomes another."""
    changed = re.compile(r"\b(?!self\.)\w+\.kind\b(?:, [\w.]+)* =(?!=)")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in ("providers", "gateway")
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if changed.search(line)
    ]
    assert found == []


_SLEEPERS = {
    "tests/patience.py": "between two looks at what tells nobody",
    "tests/app/gateway/balancer.py": "a balancer asks its gateways ten times a second",
    "tests/browser/upstream.py": "a provider that is slow, as the page shows it",
    "tests/unit/providers/http/inside/h1_server.py": "in virtual time",
    "tests/unit/racing/track.py": "in virtual time",
}
_VIRTUAL = re.compile(r"virtual_time|virtual_replica|tests\.schedules|costly_process")  # there, sleeping takes no time


def test_no_test_sleeps_but_those_that_say_why() -> None:
    """Who waits for something asks ``tests/patience.py``; who waits for time to pass is marked ``wall``."""
    found = []
    for room in ("app", "browser", "schedules", "services", "unit"):
        for path in sorted((ROOT / "tests" / room).rglob("*.py")):
            text, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
            if name in _SLEEPERS or room == "schedules" or (room == "unit" and _VIRTUAL.search(text)):
                continue
            if "sleep" not in text:
                continue
            found += [f"{name}:{line}" for line in _sleeps(ast.parse(text))]
    assert found == []


def _sleeps(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that let time pass, outside of tests that are marked."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            "mark.wall" in ast.unparse(each) for each in node.decorator_list
        ):
            continue
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "sleep"
            and not (isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)  # a turn of the loop
        ):
            yield node.lineno
        yield from _sleeps(node)


def test_no_test_replaces_what_it_tests() -> None:
    """Constants, and what is not ours, may be: a test has a real seam for all else."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name != "mutations.py"  # defects on purpose
        if "setattr" in (text := path.read_text(encoding="utf-8"))
        for line in _replaced(ast.parse(text))
    ]
    assert found == []


_OURS = ("gateway", "providers", "holeshot", "migrations", "tests")


def _replaced(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that set something of ours that is no constant."""
    foreign = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0] not in _OURS
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setattr":  # whoever does it
            target, *rest = [
                str(each.value) if isinstance(each, ast.Constant) else ast.unparse(each) for each in node.args
            ]
            name = str(target) if len(rest) == 1 else f"{target}.{rest[0]}"
            is_ours = name.partition(".")[0] not in foreign | set(sys.stdlib_module_names) | {"shellingham"}
            last = name.rpartition(".")[2].strip("'")
            if is_ours and last != last.upper():
                yield node.lineno


def test_nobody_is_told_to_take_the_project_from_an_index_of_packages() -> None:
    # Until it is there, others may own the name; README says so.
    told = re.compile(r"install (?:-\S+ (?:python\S+ )?)*['\"]?holeshot(?:\[|['\"`\s]|$)(?!-)", re.MULTILINE)
    read = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "config").rglob("*.yaml")]
    read += [path for room in ("gateway", "providers", "holeshot", "tools") for path in (ROOT / room).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in read
        for match in told.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == ["README.md: install holeshot`"]  # where it says that this does not work yet


_SAID_TWICE = {
    "FromChat": "one a dialect: its translation from chat",
    "ToChat": "one a dialect: its translation into chat",
    "Answer": "the engine's, the answer of Racer that programs read, and an operation's in /openapi.json",
    "Attempt": "the engine's, and Racer's account of it",
    "Chunk": "a dialect's, and Racer's",
    "Stream": "of HTTP/2, and Racer's",
    # The words of /openapi.json, named as clients read them.
    "Candidate": "of the planner, and Google's",
    "Message": "of HTTP/1.1, and Anthropic's",
    "Response": "of HTTP, and OpenAI's",
    "Usage": "of an attempt, and the sums that the page shows",
}


def test_a_name_of_a_class_stands_once() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(path for room in ("gateway", "providers", "holeshot") for path in (ROOT / room).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in _SAID_TWICE} == {}
    assert twice.keys() == _SAID_TWICE.keys()
