"""What the views say beside what the fleet drew, and whether it may be that far off."""

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from benchmarks.harness.report import quantile
from benchmarks.truth.columns import losers
from benchmarks.truth.course import PATIENCE_S
from benchmarks.truth.facts import OK, Attempt, Called, Facts, Ledger, Row, bill, kind, left
from benchmarks.truth.modes import modes
from benchmarks.truth.rules import NEAR_MS, Figure, between, equal, within
from benchmarks.truth.units import units

SLO_MS = 500.0
ENOUGH = 200  # draws of a deployment
THOUSAND = 1000  # and such of which quantiles are less by chance
MANY = 5_000  # races


def figures(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    yield equal("rows that belong to nothing, and calls and requests without one", 0, facts.strays)
    yield from _savings(ledger, facts)
    yield from _curves(ledger, facts)
    yield from _speeds(facts)
    yield from _bills(ledger, facts)
    yield from _failures(ledger, facts)
    yield from _sorts(ledger, facts)
    yield from _patience(ledger, facts)
    yield from _takeovers(ledger, facts)
    yield from modes(facts)
    yield from units(facts)
    yield from _limits(ledger, facts)


def _of(rows: Sequence[Row], **wanted: str) -> Row:
    """Return the row of a view that is about something; one of nulls where there is none."""
    found = [row for row in rows if all(row[column] == value for column, value in wanted.items())]
    return found[0] if found else dict.fromkeys(rows[0] if rows else ())


def _savings(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare what racing saved with what each call's primary would have taken: its draw, which the fleet knows."""
    raced = [call for call in facts.calls if call.made.job.scenario.name == "race" and call.row["ttft_ms"] is not None]
    over_ms = _overhead_ms(facts, raced)
    alone = [_drawn_ms(facts, call, call.attempts[0].persona.name) + over_ms for call in raced]
    seen = [call.row["ttft_ms"] for call in raced]
    saved = sum(own - ttft for own, ttft in zip(alone, seen, strict=True)) / len(raced)
    value = _of(ledger.views["race_value"], model="race")
    yield equal("raced calls", len(raced), value["n"])
    overtaken = sum(call.attempts[0].row["is_overtaken"] is True for call in raced)
    yield within("calls whose primary was overtaken", overtaken, value["n_overtaken"], 0.02)
    is_long = len(raced) >= MANY
    yield within("saved by racing, ms a call", saved, value["saved_per_call_ms"], 0.10 if is_long else 0.30)
    low, high = value["saved_per_call_low_ms"], value["saved_per_call_high_ms"]
    yield from between("saved, 95 % interval", saved, low, high)
    middle = None if low is None or high is None else (low + high) / 2
    yield within("saved, the interval's middle", value["saved_per_call_ms"] or 0.0, middle, 0.05 if is_long else 0.10)
    yield within("first token with racing, mean ms", fmean(seen), value["ttft_mean_ms"], 0.01)
    yield within("first token without racing, mean ms", fmean(alone), value["alone_mean_ms"], 0.05)
    for q in (50, 95):
        yield within(f"first token with racing, p{q} ms", quantile(seen, q / 100), value[f"ttft_p{q}_ms"], 0.06)
        yield within(
            f"first token without racing, p{q} ms",
            quantile(alone, q / 100),
            value[f"alone_p{q}_ms"],
            0.05 if q == 50 and is_long else 0.10,
        )


def _drawn_ms(facts: Facts, call: Called, name: str) -> float:
    return facts.fleet.drawn(call.made.job.number, name).ttft_s * 1000


def _overhead_ms(facts: Facts, raced: Sequence[Called]) -> float:
    """Return what lies between a draw and the gateway's clock: timers that are late, and the network."""
    firsts = [(call, call.attempts[0]) for call in raced]
    late: list[float] = [
        first.row["token_ms"] + first.row["launch_offset_ms"] - _drawn_ms(facts, call, first.persona.name)
        for call, first in firsts
        if first.row["token_ms"] is not None
    ]
    return median(late)


def _curves(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare the leaderboard of the race with the draws of all who were launched in it."""
    over_ms = 2.5  # what the network adds to a draw
    ranked, reached = 0, 0
    for board in ledger.views["leaderboard"]:
        if board["model"] != "race":
            continue
        name = board["deployment"].partition("/")[0]
        calls = [call for call in facts.calls if call.made.job.scenario.name == "race"]
        draws = [_drawn_ms(facts, call, name) + over_ms for call in calls if name in call.asked]
        if len(draws) < ENOUGH:
            continue  # its quantiles would be chance
        ranked += 1
        reached += board["ttft_p95_ms"] is not None
        for q, share in ((50, 0.05), (95, 0.10)) if len(draws) >= THOUSAND else ((50, 0.10), (95, 0.20)):
            if q == 50 or board[f"ttft_p{q}_ms"] is not None:
                title = f"leaderboard, {name}, p{q} ms ({len(draws)} draws)"
                yield within(title, quantile(draws, q / 100), board[f"ttft_p{q}_ms"], share)
    yield Figure(f"leaderboard, deployments of {ENOUGH} draws", 1, ranked, "≥ 1", ranked >= 1)
    yield Figure("leaderboard, those whose p95 is said", 1, reached, "≥ 1", reached >= 1)


def _speeds(facts: Facts) -> Iterator[Figure]:
    """Compare decode speeds with the providers' own, by tokens a chunk."""
    names = [
        call.only for call in dict.fromkeys(one.job.scenario for one in facts.made) if call.name.startswith("alone")
    ]
    for name in filter(None, names):
        persona = facts.fleet.personas[name]
        rows = [
            one.row
            for one in facts.attempts
            if one.persona is persona and one.made.job.scenario.name == f"alone {name}"
        ]
        speeds = [row["decode_tps"] / persona.tps for row in rows if row["decode_tps"] is not None]
        if persona.overstates != 1:
            continue
        title = f"tok/s at {persona.per_chunk} a chunk"
        yield within(f"{title}, median of measured / true", 1.0, median(speeds) if speeds else None, 0.03)
        worst = quantile([abs(speed - 1) for speed in speeds], 0.95) if speeds else float("inf")
        yield Figure(f"{title}, p95 of the error", 0.0, worst, "≤ 0.10", worst <= 0.10)


def _bills(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare sums of money with the providers' own bills."""
    honest = [call for call in facts.calls if all(one.persona.overstates == 1 for one in call.attempts)]
    truth = sum(seen.cost_usd(one.persona) for call in honest for one in call.attempts for seen in one.requests)
    rows = [one.row for call in honest for one in call.attempts]
    low, high = (sum(row[f"cost_{side}_usd"] or 0.0 for row in rows) for side in ("low", "high"))
    yield from between("cost of all attempts, $", truth, low, high)
    yield equal(
        "duplicate cost of calls without a duplicate, $",
        0,
        sum(call.row["duplicate_cost_usd"] or 0.0 for call in facts.calls if call.row["launched"] == 1),
    )
    usage = [row for row in ledger.views["client_usage"] if row["model"] == "race"]
    raced = [call for call in facts.calls if call.made.job.scenario.name == "race"]
    tried = [one.row for call in raced for one in call.attempts]  # also audited ones that ended after their call
    beside = [one.row for call in raced for one in losers(call)]
    for column, rows, cost in (
        ("cost_usd", tried, "cost_usd"),
        ("cost_low_usd", tried, "cost_low_usd"),
        ("cost_high_usd", tried, "cost_high_usd"),
        ("duplicate_cost_usd", beside, "cost_usd"),
        ("prompt_tokens", [call.row for call in raced], "prompt_tokens"),
    ):
        due = sum(row[cost] or 0 for row in rows)
        yield within(f"client_usage, {column}", due, sum(row[column] or 0 for row in usage), 1e-6)
    gone = [
        one
        for call in (*facts.calls, *facts.others)
        if call.made.job.scenario.name == "slow" and left(call)
        for one in call.attempts
    ]
    value = _of(ledger.views["race_value"], model="slow")
    low, high = value["abandoned_cost_low_usd"], value["abandoned_cost_high_usd"]
    yield from between("cost of abandoned answers, $", bill(gone), low, high)
    for side, found in (("low", low), ("high", high)):
        due = sum(call.row[f"abandoned_cost_{side}_usd"] or 0.0 for call in facts.calls if call.row["model"] == "slow")
        due += sum(
            call.row[f"abandoned_cost_{side}_usd"] or 0.0 for call in facts.others if call.row["model"] == "slow"
        )
        yield within(f"race_value, {side} cost of abandoned answers, as rows have it, $", due, found, 1e-6)


def _failures(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare counts of calls that failed, also in the middle of a stream, with what clients saw; also by tags."""
    calls = [*facts.calls, *facts.others]
    failed = {call.made.job.number for call in calls if _has_failed(call)}
    yield Figure("calls that failed, some", 1, len(failed), "≥ 1", bool(failed))
    yield equal("client_usage, failed", len(failed), sum(row["n_failed"] for row in ledger.views["client_usage"]))
    for half in ("odd", "even"):
        tagged = [call for call in calls if call.made.job.tags.get("half") == half]
        row = _of(ledger.views["tag_values"], tag="half", value=half)
        yield equal(f"tag_values {half}, calls", len(tagged), row["n"])
        bad = sum(call.made.job.number in failed for call in tagged)
        yield equal(f"tag_values {half}, failed", bad, row["n_failed"])
        answered = [call for call in tagged if call.row["status_code"] == OK]
        waited = [_first_ms(call) for call in answered]
        mean = fmean([each for each in waited if each is not None])
        allowed = max(0.05, NEAR_MS / mean)  # the client reads it a little later than the gateway
        yield within(f"tag_values {half}, first token, mean ms", mean, row["ttft_mean_ms"], allowed)
        costs = [call.row["cost_usd"] for call in answered if call.row["cost_usd"] is not None]
        yield within(f"tag_values {half}, cost of a call, $", fmean(costs), row["cost_mean_usd"], 1e-6)


def _has_failed(call: Called) -> bool:
    """Whether the client had an error that was not its own fault, before the answer or in the middle of it."""
    status = call.made.status
    return status in {424, 429} or status >= 500 or (kind(call) in {"truncated", "orphan"} and not left(call))


def _first_ms(call: Called) -> float | None:
    """Return when the client had its first token; of an answer that was not streamed only the ledger knows it."""
    made = call.made
    if not made.job.scenario.streamed or made.first_at is None:
        return None if call.row["ttft_ms"] is None else float(call.row["ttft_ms"])
    return (made.first_at - made.sent_at) * 1000


def _sorts(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare counts of what went wrong, and who states tokens that are not there."""
    errors = ledger.views["provider_errors"]
    liars = {row["deployment"] for row in errors if row["error_kind"] == "usage_far_off"}
    yield equal("providers that overstate, found", 1, int("liar/m" in liars))
    yield equal("others that are taken for such", 0, len(liars - {"liar/m", "boaster/m"}))
    for status in (500, 429):
        due = sum(seen.status == status for requests in facts.fleet.seen.values() for seen in requests)
        yield equal(
            f"answers of {status}, counted", due, sum(row["n"] for row in errors if row["status_code"] == status)
        )
        yield Figure(f"answers of {status}, some", 1, due, "≥ 1", due >= 1)
    personas = [one.persona.name for call in (*facts.calls, *facts.others) for one in call.attempts]
    for name in ("steady", "chunky", "caching"):
        row = _of(ledger.views["throughput"], deployment=f"{name}/m")
        yield equal(f"throughput, attempts of {name}", personas.count(name), row["n"])
    value = [row for row in ledger.views["cache_value"] if row["deployment"] == "caching/m"]
    told = [one for one in facts.attempts if one.persona.name == "caching" and one.row["outcome"] == "won" and one.seen]
    cached = sum(one.seen.draw.cached for one in told if one.seen is not None)
    yield equal("cache_value, cached tokens", cached, sum(row["cached_tokens"] or 0 for row in value))
    saved = sum(one.seen.draw.cached for one in told if one.seen is not None) * (1e-6 - 1e-7)
    yield within("cache_value, saved $", saved, sum(row["cache_saved_usd"] or 0 for row in value), 1e-6)


def _patience(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare the share of calls within the objective with the truth: of those whose end is known."""
    good = bad = left = 0
    for made in facts.made:
        if made.job.scenario.name != "slow":
            continue
        due_ms = facts.fleet.drawn(made.job.number, "slow").ttft_s * 1000
        good += due_ms < SLO_MS
        waited_ms = made.job.patience_s * 1000
        bad += due_ms >= SLO_MS and waited_ms > SLO_MS
        left += due_ms >= waited_ms and waited_ms == PATIENCE_S * 1000
    row = _of(ledger.views["slo"], model="slow")
    yield within("calls within 500 ms though many give up, share", good / (good + bad), row["ttft_ok_share"], 0.10)
    yield within("calls whose client gave up after 500 ms", left, row["n_gave_up"], 0.1)


def _takeovers(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare answers that another deployment finished with what the client read, and with both providers' bills."""
    torn = [call for call in facts.others if call.made.job.scenario.model == "torn"]
    words = {call.made.job.number: facts.fleet.torn_words(call.made.job.number) for call in torn}
    whole = [call for call in torn if call.made.text == "".join(words[call.made.job.number])]
    finished = [call for call in torn if call.row["takeover"] == "finished"]
    yield Figure("answers that broke off, some", 1, len(torn), "≥ 1", bool(torn))
    due = sum(kind(call) == "torn" for call in torn)
    yield equal("answers that broke off and were read whole", due, len(whole))
    yield equal("takeovers, finished", len(whole), len(finished))
    failed = sum(call.row["takeover"] == "failed" for call in torn)
    yield equal("takeovers, failed", len(torn) - len(whole), failed)
    odd = [call for call in whole if not _is_handed_on(call)]
    yield equal("takeovers whose rows do not say who went on with what", 0, len(odd))
    read = sum(len(words[call.made.job.number]) for call in whole)
    yield equal("takeovers, tokens that were read", read, sum(call.row["completion_tokens"] for call in whole))
    told = sum((call.made.usage or {}).get("completion_tokens", 0) for call in whole)
    yield equal("takeovers, tokens that the client was told of", read, told)
    prompts = sum(call.attempts[0].seen.prompt_tokens for call in whole if call.attempts[0].seen)
    yield within("takeovers, tokens of prompts", prompts, sum(call.row["prompt_tokens"] for call in whole), 0.1)
    last = [call.attempts[1] for call in whole if len(call.attempts) > 1]
    yield equal("takeovers, bill of those that went on, $", bill(last), sum(one.row["cost_usd"] for one in last))
    tried = [one for call in torn for one in call.attempts]
    low, high = (sum(one.row[f"cost_{side}_usd"] or 0.0 for one in tried) for side in ("low", "high"))
    yield from between("takeovers, bill of all, $", bill(tried), low, high)
    usage = [row for row in ledger.views["client_usage"] if row["model"] == "torn"]
    cost = sum(one.row["cost_usd"] or 0.0 for one in tried)
    yield equal("client_usage, cost of takeovers, $", cost, sum(row["cost_usd"] for row in usage))


def _is_handed_on(call: Called) -> bool:
    """Whether the rows name both attempts and their ways."""
    if len(call.attempts) != 2:
        return False
    first, second = call.attempts
    names = (first.persona.name, second.persona.name, first.row["outcome"], second.row["outcome"])
    after = (second.row["role"], second.row["continues"], call.row["winner_attempt_id"], call.row["takeovers"])
    own = second.row["id"]
    return names == ("rip", "heir", "failed", "won") and after == ("takeover", first.row["id"], own, 1)


def _limits(ledger: Ledger, facts: Facts) -> Iterator[Figure]:
    """Compare what limits have counted with the calls of the client that has them, and with what was billed."""
    [counted], calls = ledger.views["limits"], [*facts.calls, *facts.others]
    own = [call for call in calls if call.made.job.client == "bob"]
    present = [call for call in own if call.made.sent.timestamp() // 60 == counted["minute"]]
    yield equal("limits, requests of the present minute", len(present), counted["rpm"])
    tokens = sum((call.row["prompt_tokens"] or 0) + (call.row["completion_tokens"] or 0) for call in present)
    yield equal("limits, tokens of the present minute", tokens, counted["tpm"])
    yield equal("limits, calls that still run", 0, counted["max_parallel"])
    for name, some in (("usd_per_day", own), ("usd_per_month", own), ("model", _of_race(calls))):
        tried = [one for call in some for one in call.attempts]
        yield equal(f"limits, {name}, as rows have it", sum(map(_counted_usd, tried)), counted[name])
        honest = [one for one in tried if one.persona.overstates == 1]
        lied = sum(one.row["cost_usd"] or 0.0 for one in tried) - sum(one.row["cost_usd"] or 0.0 for one in honest)
        low, high = (sum(one.row[f"cost_{side}_usd"] or 0.0 for one in honest) for side in ("low", "high"))
        yield within(f"limits, {name}, as billed", bill(honest), counted[name] - lied, (high - low) / bill(honest))


def _counted_usd(one: Attempt) -> float:
    """Return what limits count for an attempt: the most that it may have cost if its client has left."""
    usd = one.row["cost_usd"] or 0.0
    return max(usd, one.row["cost_high_usd"] or 0.0) if one.row["outcome"] == "client_gone" else usd


def _of_race(calls: Sequence[Called]) -> list[Called]:
    return [call for call in calls if call.made.job.scenario.model == "race"]
