"""Every fault by its name, and what is seen of it: by the client, in the ledger, by the operator.

``python -m tests.schedules.faults`` writes docs/reference/faults.md: each line of its tables is what a whole gateway
did in virtual time, not what somebody remembers.
"""

import re
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tests.schedules.checks import wrong
from tests.schedules.scenario import PROVIDERS, Ask, Client, Scenario
from tests.schedules.simulation import Evidence, run
from tests.support.behaviour import NEVER_S, Behaviour

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"
WELL = Behaviour(opens_s=0.01, first_s=0.05, gap_s=0.02, tokens=4)
FIRST, *OTHERS = PROVIDERS  # the one that is asked first, as it is known to be fastest
STREAM, WHOLE = Ask(), Ask(stream=False)
WARNINGS = frozenset({"warning", "error", "critical"})
PASSED = re.compile(r"<([a-z]+)\d+:\d+>")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, and where it strikes."""

    first: Behaviour = WELL  # of the provider that is asked first
    others: Behaviour = WELL
    ask: Ask = STREAM
    client: Callable[[Client], Client] = lambda client: client
    whole: Callable[[Scenario], Scenario] = lambda scenario: scenario

    def scenario(self) -> Scenario:
        """Return it as one call."""
        return self.whole(
            Scenario(
                seed=1,
                race={"mode": "single"},
                behaviours={FIRST: (self.first,), **dict.fromkeys(OTHERS, (self.others,))},
                remembered={FIRST: (0.02, 100.0), **dict.fromkeys(OTHERS, (0.5, 30.0))},
                clients=(self.client(Client(at_s=0.1, asks=(self.ask,))),),
            )
        )


def refuses(kind: str, **more: object) -> Behaviour:
    """Return a provider that refuses a request."""
    return replace(WELL, refusal=kind, **more)


def everybody(behaviour: Behaviour, **more: object) -> Fault:
    """Return a fault of all providers."""
    return Fault(first=behaviour, others=behaviour, **more)  # type: ignore[arg-type] # fields of a fault


HANGS, SILENT = replace(WELL, opens_s=NEVER_S), replace(WELL, stalls_at=0)
RESETS, STALLS, GARBLES = replace(WELL, breaks_at=3), replace(WELL, stalls_at=3), replace(WELL, lie="garbage")
LEAVES_EARLY = Fault(client=lambda client: replace(client, leaves_s=0.02))

FAULTS: Mapping[str, Mapping[str, Fault]] = {
    "Before the first token": {
        "a provider refuses the connection": Fault(first=refuses("connect_error")),
        "a provider cannot be reached in time": Fault(first=refuses("connect_timeout")),
        "a provider answers 500": Fault(first=refuses("server_error")),
        "a provider answers 429 with retry-after": Fault(first=refuses("rate_limited", retry_after_s=5.0)),
        "a provider refuses the key": Fault(first=refuses("provider_auth")),
        "a provider does not know the model": Fault(first=refuses("not_found")),
        "a provider calls the request wrong": Fault(first=refuses("bad_request")),
        "all providers call the request wrong": everybody(refuses("bad_request")),
        "a provider accepts the request and sends nothing": Fault(first=HANGS),
        "a provider sends headers and nothing else": Fault(first=SILENT),
        "a provider answers with HTML": Fault(first=replace(WELL, lie="html")),
        "a provider answers with nothing": Fault(first=replace(WELL, lie="empty")),
        "a provider sends an error as its first event": Fault(first=replace(WELL, lie="error_event")),
        "a connection breaks before the first token": Fault(first=replace(WELL, breaks_at=1)),
        "this machine is short of descriptors": everybody(refuses("local_resources")),
    },
    "After the first token": {
        "a streamed answer breaks off": Fault(first=RESETS),
        "a streamed answer stalls": Fault(first=STALLS),
        "a streamed answer holds what is no JSON": Fault(first=GARBLES),
        "an answer that is not streamed breaks off": Fault(first=RESETS, ask=WHOLE),
        "an answer that is not streamed stalls": Fault(first=STALLS, ask=WHOLE),
        "an answer ends without a finish reason": Fault(first=replace(WELL, lie="no_finish", done=False)),
        "an answer ends with [DONE] and no finish reason": Fault(first=replace(WELL, lie="no_finish")),
        "an answer ends without its end": Fault(first=replace(WELL, done=False)),
        "an answer reports no usage": Fault(first=replace(WELL, usage=False)),
    },
    "Everywhere at once": {
        "every provider answers 500": everybody(refuses("server_error")),
        "every provider answers 429": everybody(refuses("rate_limited", retry_after_s=5.0)),
        "every provider refuses the key": everybody(refuses("provider_auth")),
        "every provider hangs": everybody(HANGS),
        "every provider fails, and another model may answer": Fault(
            first=refuses("server_error"),
            ask=Ask(model="other", fallback="spare"),
            whole=lambda scenario: replace(
                scenario, behaviours={**scenario.behaviours, OTHERS[0]: (refuses("server_error"),)}
            ),
        ),
        "every place under max_in_flight is taken": Fault(
            whole=lambda scenario: replace(
                scenario,
                max_in_flight=dict.fromkeys(PROVIDERS, 1),
                queue_timeout_s=0.05,
                behaviours={name: (replace(WELL, gap_s=0.2),) for name in PROVIDERS},
                clients=(*[Client(at_s=0.05, asks=(STREAM,))] * len(PROVIDERS), *scenario.clients),
            )
        ),
        "the gateway has as many calls as it takes on": Fault(
            whole=lambda scenario: replace(
                scenario,
                most_calls=1,
                queue=0,
                behaviours={name: (replace(WELL, gap_s=0.2),) for name in PROVIDERS},
                clients=(Client(at_s=0.05, asks=(STREAM,)), *scenario.clients),
            )
        ),
    },
    "At the client": {
        "a client leaves before the first token": LEAVES_EARLY,
        "a client leaves in the middle of its answer": Fault(client=lambda client: replace(client, leaves_s=0.1)),
        "a client reads nothing any more": Fault(
            first=replace(WELL, tokens=1000, gap_s=0.005, per_read=10),
            client=lambda client: replace(client, stops_reading_s=0.0, buffer_bytes=0),
        ),
        "a client sends half a request and leaves": Fault(
            ask=Ask(pieces=5), client=lambda client: replace(client, leaves_s=0.001)
        ),
    },
    "In the gateway": {
        "the gateway stops, and the answer ends in time": Fault(
            whole=lambda scenario: replace(scenario, shutdown_s=0.15, grace_s=1.0)
        ),
        "the gateway stops, and the time is up": Fault(
            first=STALLS, whole=lambda scenario: replace(scenario, shutdown_s=0.25, grace_s=0.05)
        ),
        "the configuration is replaced in the middle of an answer": Fault(
            whole=lambda scenario: replace(scenario, reloads=(0.18,))
        ),
        "the budget of extra attempts is used up": Fault(
            first=replace(WELL, first_s=1.0),
            ask=Ask(race="hedge"),
            whole=lambda scenario: replace(scenario, race={"mode": "hedge", "budget": 0.0, "hedge_delay_s": 0.02}),
        ),
    },
}


class Sight(msgspec.Struct, frozen=True):
    """What is seen of a fault."""

    client: str
    ledger: str
    operator: str


def seen(fault: Fault) -> Sight:
    """Have a fault happen, and return what is seen of it.

    Raises:
        AssertionError: something does not add up.

    """
    evidence = run(fault.scenario())
    problems = wrong(evidence)
    assert not problems, problems
    return Sight(_client(evidence), _ledger(evidence), _operator(evidence))


def _client(evidence: Evidence) -> str:
    seen = evidence.clients[-1].seen[0]
    if seen.status is None:
        return "nothing: it has gone" if seen.gave_up else "its connection is closed"
    error = re.search(rb'"code": ?"([a-z_]+)"', seen.body)
    tokens = PASSED.findall(seen.body.decode())
    name = seen.headers.get("x-holeshot-provider")
    what = []
    if tokens:
        wanted = max(asked.behaviour.tokens for asked in evidence.providers[tokens[0]].asked)
        is_all = len(tokens) == wanted and error is None
        what.append(f"{'all' if is_all else f'{len(tokens)} tokens of {wanted}'} of {_place(name)}")
    if error is not None:
        what.append(f"{'an error event' if tokens else 'an error'} `{error[1].decode()}`")
    if not seen.is_whole:
        what.append("it has gone" if seen.gave_up else "then its connection is cut")
    if "retry-after" in seen.headers:
        what.append(f"`retry-after: {seen.headers['retry-after']}`")
    return f"{seen.status}, {', '.join(what)}"


def _ledger(evidence: Evidence) -> str:
    name = evidence.clients[-1].seen[0].name
    call = next((each for each in evidence.store.calls.values() if each.request_id == name), None)
    if call is None:
        return "no row: there was no call"
    attempts = sorted(
        (each for each in evidence.store.attempts.values() if each.call_id == call.id), key=lambda each: each.number
    )
    ends = [
        (
            _place(each.provider),
            f"`{each.error_kind}`"
            if each.outcome == "failed"
            else each.outcome + (f" (`{each.error_kind}`)" if each.error_kind else ""),
        )
        for each in attempts
    ]
    told = []
    for (place, end), alike in groupby(ends):
        number = len(list(alike))
        told.append(f"{place if number == 1 else f'{number} others'} {end}")
    kind = f" `{call.error_kind}`" if call.error_kind else ""
    return f"{call.status_code}{kind}; {', '.join(told) or 'no attempts'}"


def _operator(evidence: Evidence) -> str:
    told = [f"state `{evidence.state}`"] if evidence.state != "ok" else []
    told += [f"log `{event}`" for event in dict.fromkeys(evidence.warnings)]
    counted = re.findall(r'holeshot_attempt_errors_total\{deployment="([^"]+)",kind="([^"]+)"\} 1', evidence.metrics)
    rows = {each.error_kind for each in evidence.store.attempts.values() if each.error_kind}
    kinds = {kind for _, kind in counted}
    assert kinds == rows, "the page says that each failed attempt is counted by its kind"
    told += [
        f"`shed_calls_total{shed}`" for shed in re.findall(r"holeshot_shed_calls_total(\{.+\}) ", evidence.metrics)
    ]
    return ", ".join(told)


def _place(provider: str | None) -> str:
    return "the first" if provider == FIRST else "another"


HEAD = """# Faults

When something breaks, what does a client get, what do the tables say, and what does the operator see?

What breaks at one provider before the first token, or in an answer that is not streamed, the client does not notice. A
stream that breaks ends with an error, but with [takeover](../answers.md#takeover).

Of the {faults} faults below, {whole} end with the whole answer. [Errors](errors.md) explains each code. Each line is
what a whole gateway did between simulated clients and four providers, of which one attempt runs at a time
(`mode: single`): in a race the others answer meanwhile.

- *The first* is the provider that is asked first; *another* is one of three more.
- *The ledger*: the call's status and `error_kind`, then each attempt's `outcome` and
  `error_kind`; a kind alone: it failed.
- *Also*: what the operator sees beside the call's line in the log and its rows. *State* is the first's on the
  leaderboard.

Faults of the stores, and of the resolver, hold up no call ([production](../production.md#when-something-is-away)).
[More that was tried](../../benchmarks/failover/RESULTS.md): odd answers, full disks, no descriptors, wrong clocks.
"""


# What no simulated call shows: what is kept, lost and told, and the test that has it, below tests/.
RESTARTS = {
    "dollars spent by clients, teams, end users and models": (
        "all that the ledger has of this day and month; of end users the 50,000 that spent most",
        "what running calls had cost when a process was killed",
        "while the database does not tell: log `limits.not_recollected`, `limits.payers_not_recollected`",
        "app/gateway/restarts/test_restart.py, services/gateway/test_killed_at_any_moment.py",
    ),
    "the same, while the database is away": (
        "what the spool has of this day and month, until the database tells all",
        "until then, what is in the database alone",
        "log `limits.not_recollected`",
        "app/gateway/restarts/test_restart.py",
    ),
    "requests and tokens of this minute (`rpm`, `tpm`)": (
        "nothing",
        "all: a client may send a minute's worth again",
        "nothing",
        "",
    ),
    "what races have cost today (their budget)": (
        "all that the ledger has",
        "what running calls had cost when a process was killed",
        "as of clients' dollars",
        "app/gateway/watching/test_health_gauges.py",
    ),
    "the leaderboard, and how long streams pause": (
        "of the last day what the ledger has, with the last ten minutes",
        "what no row says",
        "log `steering.recollected`, or `steering.not_recollected`; `/health/ready`: `history`",
        "services/ledger/test_remembered.py, app/gateway/restarts/test_restart.py",
    ),
    "pauses after a 429, and breakers": (
        "nothing",
        "all: one call tries each again, and another answers it",
        "the attempt's row",
        "",
    ),
    "what refusals have taught of models (fields, forms, lengths)": (
        "nothing",
        "all: each is learnt again by one request, which is then sent as the model takes it",
        "as the first time: `x-holeshot-dropped`",
        "with Redis: services/gateway/test_shared_facts.py",
    ),
    "alerts that are open, and messages that wait": (
        "all, in the database",
        "nothing",
        "nothing: none is sent twice",
        "unit/alerts/test_watch.py",
    ),
    "sessions of the page": (
        "all, with `page.signing_key` or SQLite; with Postgres and its password as long as that stays",
        "nothing",
        "who is signed out signs in again",
        "app/gateway/access/test_session_attacks.py",
    ),
    "responses, conversations, containers, files that a provider stores": (
        "who may name them, by [hashes in the ledger](../security.md#names-of-what-lies-at-providers)",
        "nothing, after a `kill -9` neither",
        "while the database is away: 503, an error `stored_names_unreachable`, `retry-after: 1`",
        "app/gateway/responses/test_kept_over_restarts.py, services/gateway/test_killed_at_any_moment.py",
    ),
    "responses that run in the background": (
        "the same, and what limits count; the gateway asks until it sees the end, which is a row with the cost",
        "of more than 1,000 the oldest wait for their client's look; no end that was seen, after a `kill -9` neither",
        "log `responses.left_running`",
        "app/gateway/responses/test_kept_over_restarts.py",
    ),
    "who made thoughts that another account would drop in silence": (
        "the account, for 7 days, where the fleet has several; a conversation goes on at its maker",
        "nothing; while the database does not answer within half a second any account may be asked",
        "what an account is not sent: `x-holeshot-dropped`",
        "app/gateway/keys/test_bound_to_accounts.py",
    ),
    "conversations that only the gateway keeps (`responses_memory`)": (
        "nothing",
        "all",
        "400, an error `previous_response_not_found` that names `redis_url`",
        "app/gateway/responses/test_kept_over_restarts.py",
    ),
    "two ledgers use one Redis and `redis_prefix` (staging beside production)": (
        "all calls; each one's spending counts in the other's limits",
        "each one's own limits and standings",
        "log `ledger.two_on_redis`, once an hour; `/health/ready`: `redis.other_ledger`",
        "services/gateway/test_two_ledgers.py",
    ),
    "the ledger's database is dropped and made again, beside the same Redis": (
        "what Redis has: limits go on",
        "what only the database had",
        "log `ledger.former_on_redis`, once, three minutes after the start",
        "services/gateway/test_two_ledgers.py",
    ),
}
# Likewise, as tests/app/http/test_several_addresses.py has it.
NAMES = {
    "the resolver is away, or says nothing": (
        "open connections; new ones go to the addresses that it gave last, for an hour at most",
        "nothing in that hour",
        "log `names.resolver_away`, once; `holeshot_names_away`",
    ),
    "the resolver says that a name is gone": (
        "open connections",
        "calls that need a new one",
        "attempts `connect_error`: its name does not resolve",
    ),
    "one of a name's addresses fails": (
        "calls at the others: it comes after them for 30 s, then one connection tries it",
        "a quarter of a second of the calls whose connection tried it",
        "nothing, while another answers",
    ),
    "an address comes to a name": (
        "all connections",
        "nothing: new ones go to the address with the fewest; at `connection_age_s` old ones do, after their answers",
        "nothing",
    ),
}
OF_NAMES = """## Names and addresses

| what | is kept | is lost | is told |
|---|---|---|---|"""
OVER_A_RESTART = """## Over a restart

What only memory knows ends with its process, unless Redis has it. At a start without Redis, or after Redis lost its
data (with `redis_url` the names of what providers store, responses in the background and makers of thoughts are in
Redis and not in the ledger, so they are lost with its data):

| what | is kept | is lost | is told | tried by |
|---|---|---|---|---|"""


# Likewise, as test_rotated_passwords.py and test_renewed_certificates.py of tests/services/gateway, test_reload.py and
# test_renewed_trust.py of tests/app/gateway, and tests/services/ledger/test_blocked.py have it.
RENEWALS = {
    "a store's user or password in a file or a command's output": (
        "running calls and open connections; new ones have the new login",
        "nothing; rows wait while neither is let in",
        "log `configuration.logins_renewed`; refused, it is read again at once, every 10 s at most",
    ),
    "half of the clients or more, of four or more, go from the file": (
        "everything, until the same was read again 30 s later or SIGHUP asks for it; what it denies holds at once",
        "then the calls of clients that are gone",
        "log `configuration.waits`",
    ),
    "a provider or a model goes from the file": ("running calls", "nothing", "log `configuration.reloaded`"),
    "the authorities that are trusted (`SSL_CERT_FILE`, `SSL_CERT_DIR`)": (
        "open connections; new ones trust what is there now, or what was before where the file cannot be used",
        "nothing",
        "log `tls.authorities_reloaded`, `tls.authorities_invalid`",
    ),
    "the file of a Google service account, or of AWS's profiles": (
        "running calls; new ones have its credentials ten seconds later, or at once where the former are refused",
        "nothing; calls at that provider while neither holds",
        "attempts `provider_auth`",
    ),
    "the schema, while another transaction has a table (`holeshot migrate`)": (
        "calls, and all that is stored; it waits, for ten minutes at most (`--wait`)",
        "then the migration, with nothing changed",
        "on its standard error the process, its role and since when, after two seconds and then every ten",
    ),
}
# Likewise, as test_signs_of_life.py, test_malformed.py and test_api_reports.py of tests/app/gateway have it.
DEMANDS = {
    "a model is silent within its answer": (
        "the answer, up to `stall_timeout_s`; with `keepalive_s` a sign of life in each silence, in its API's own way",
        "without `keepalive_s`, answers that a proxy cuts before",
        "a cut answer's row: 499 `client_disconnected`",
    ),
    "a request's headers are longer than `connections.headers_max_kb`": (
        "all other requests",
        "that one, and its connection",
        "431, an error `headers_too_large` that names the limit; log `request.refused`",
    ),
    "pages and scrapes of 2,000 models are read": (
        "streams: these are made and sent in slices, between which calls go on",
        "nothing",
        "`holeshot_loop_longest_turn_seconds`, by what took it",
    ),
}
OF_DEMANDS = """## What clients, proxies and operators ask for

| what | is kept | is lost | is told |
|---|---|---|---|"""
WHILE_IT_RUNS = """## Changed while it runs

| what | goes on | ends | is told |
|---|---|---|---|"""


ALERTS = {
    "a provider goes out with many models": (
        "each model's state, on the page and in the log",
        "nothing",
        "one message, with the models' names, again at twice as many, and one at its end; a model alone at once",
    ),
    "a receiver of alerts takes few (429, `retry-after`)": (
        "all messages, for about 17 hours; for Slack gathered",
        "what was refused ten times, or waits beyond 500 messages while the database is away",
        "log `alerts.not_sent`, then `alerts.given_up`; `holeshot alerts` lists all",
    ),
    "a client, team, model or end user nears its dollars": (
        "its limit, which refuses it when it is reached",
        "nothing",
        "the alert `spending`; end users in one, again at twice as many",
    ),
    "the way out is a proxy alone (`HTTPS_PROXY`, `NO_PROXY`)": (
        "all messages, which go through it",
        "nothing",
        "log `alerts.not_sent`, with what the proxy answered",
    ),
}
OF_ALERTS = """## Alerts

| fault | is kept | is lost | is told |
|---|---|---|---|"""


def line(name: str, sight: Sight) -> str:
    """Return the line of the page about a fault."""
    also = f"; also {sight.operator}" if sight.operator else ""
    ledger = sight.ledger.removesuffix(", another won") if " all of another" in sight.client else sight.ledger
    return f"| {name} | {sight.client} | {ledger}{also} |"


def page() -> str:
    """Return docs/reference/faults.md."""
    sights = {name: seen(fault) for faults in FAULTS.values() for name, fault in faults.items()}
    whole = sum(" all of " in sight.client for sight in sights.values())
    lines = [HEAD.format(faults=len(sights), whole=whole)]
    for title, faults in FAULTS.items():
        lines += [
            f"## {title}",
            "",
            "| fault | the client gets | the ledger, and what else is seen |",
            "|---|---|---|",
        ]
        for name in faults:
            sight = sights[name]
            lines.append(line(name, sight))
        lines.append("")
    told = (
        (OF_NAMES, NAMES),
        (OVER_A_RESTART, RESTARTS),
        (WHILE_IT_RUNS, RENEWALS),
        (OF_DEMANDS, DEMANDS),
        (OF_ALERTS, ALERTS),
    )
    for title, rows in told:
        lines += [title, *(f"| {' | '.join((what, *said))} |" for what, said in rows.items()), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
