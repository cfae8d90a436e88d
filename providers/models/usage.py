"""What a call used, in the different forms of the vendors' reports, and what that costs.

A price is of a *unit*: a token of text, sound or pictures, in the prompt, the answer or the prompt cache; a search, a
second, a character. A price may change with the *size* of the prompt and with the *tier* that serves the call
(priority, flex). `Price` has the prices of standard service and short prompts. `Price.at` gives those of another tier
or size.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from providers.refusals import LARGE_BYTES, UNREADABLE

STANDARD = ""  # the tier of calls that name none
FAST = "fast"  # Anthropic's ``speed``
OFF_PEAK = "off_peak"  # not asked for: some hours of the day

_STANDARD_WORDS = frozenset(  # standard service in the words of requests and answers
    {"", "auto", "default", "on_demand", "on-demand", "standard", "standard_only"}
)
TIER_WORDS = {"batches": "batch", "on_demand_flex": "flex", "on_demand_priority": "priority"}

_TOKENS_USD = ("input_usd", "output_usd", "cached_input_usd", "cache_write_usd", "reasoning_usd")  # fields of Price


class Price(msgspec.Struct, frozen=True):
    """US dollars per token, and of other units."""

    input_usd: float
    output_usd: float
    cached_input_usd: float | None = None  # read from the prompt cache; None: unknown, input_usd is used
    cache_write_usd: float | None = None  # written to the prompt cache; None: input_usd
    reasoning_usd: float | None = None  # None: output_usd
    units: tuple[tuple[str, float], ...] = ()  # each of the other units
    cards: "tuple[Card, ...]" = ()  # of all tiers and sizes, a tier's shorter prompts first; (): there is one price
    unknown: tuple[str, ...] = ()  # of "input" and "output": those without a known price, 0 here
    # The highest price of each unit: of the model's family, if the family has one at this vendor, else of the vendor.
    dearest: tuple[tuple[str, float], ...] = ()
    dearest_of: str = ""  # that family, as "claude fable"; "": the prices are the vendor's
    as_text: bool = False  # tokens without a price of their own, such as sound, cost as much as text
    once: bool = False  # searches are billed once a prompt, however many there were
    request_usd: float | None = 0.0  # the most that a request costs besides tokens, if the request asks for no search
    off_peak: tuple[tuple[int, int], ...] = ()  # when that tier's prices hold: minutes of a week from Monday on, UTC
    is_configured: bool = False  # the operator's, whatever tier serves; only ``dearest`` is of the table

    def usd(self, unit: str) -> float | None:
        """Return the price of one ``unit``; None if unknown."""
        return next((usd for name, usd in self.units if name == unit), None)

    @property
    def is_zero(self) -> bool:
        """Whether the operator has set that calls cost nothing. The table says 0 of much that does cost something."""
        prices = (self, *(card.price for card in self.cards if card.price is not None))
        tokens = (getattr(price, name) or 0.0 for price in prices for name in _TOKENS_USD)
        others = (usd for price in prices for _, usd in price.units)
        return self.is_configured and not any(tokens) and not any(others)

    def at(self, tier: str, prompt_tokens: float) -> "Price | None":
        """Return the price in ``tier`` for a prompt of so many tokens; None if unknown.

        A price without tiers holds in all of them.
        """
        price = None if self.cards else self
        tiers = {tier} if self.tiers else {STANDARD}
        for card in self.cards:
            if card.tier in tiers and prompt_tokens > card.above_tokens:
                price = card.price
        return price

    def usually(self, tier: str) -> "Price":
        """Return the prices for a deployment that always asks for ``tier``: the result's own fields are that tier's."""
        price = self.at(tier, 0)
        whole = {name: getattr(self, name) for name in ("cards", "dearest", "off_peak", "is_configured")}
        return self if price is None else msgspec.structs.replace(price, **whole)

    @property
    def dearest_card(self) -> "Price":
        """The price in the dearest tier and for the longest prompts."""
        known = [card.price for card in self.cards if card.price is not None]
        return max(known, key=lambda price: price.input_usd + price.output_usd, default=self)

    def billed(self, unit: str, count: int) -> int:
        """Return how many of ``count`` units are billed."""
        return min(count, 1) if self.once and unit.startswith("web_search") else count

    def uncounted(self, units: Iterable[str] = ()) -> tuple[str, ...]:
        """Return which of input, output and ``units`` have no known price, neither here nor anywhere at this vendor."""
        known = {*OWN.difference(self.unknown), *dict(self.units), *dict(self.dearest)}
        as_text = OF_TOKENS if self.as_text else _SEEN
        found = dict.fromkeys((*self.unknown, *units))
        return tuple(unit for unit in found if unit not in known and unit not in as_text - OWN)

    @property
    def tiers(self) -> frozenset[str]:
        """The tiers with a known price, besides the standard one."""
        return frozenset(card.tier for card in self.cards) - {STANDARD}


class Card(msgspec.Struct, frozen=True):
    """The price in one tier for prompts of more than so many tokens."""

    tier: str
    above_tokens: int  # -1: any prompt
    price: Price | None  # without cards; None: unknown


def tier_asked_by(word: object) -> str | None:
    """Return the tier that a request names by ``word``; None if the request leaves the tier to the vendor."""
    return None if isinstance(word, str) and word.lower() == "auto" else tier_of(word)


def tier_of(word: object) -> str | None:
    """Return the tier that a request or an answer names by ``word``; None if the word names none."""
    if not isinstance(word, str) or not word:
        return None
    word = word.lower().removeprefix("service_tier_").removeprefix("traffic_type_")
    if word == "unspecified":
        return None
    return STANDARD if word in _STANDARD_WORDS else TIER_WORDS.get(word, word)[:MOST_CHARS]


MOST_CHARS = 32  # of a tier

# Tiers that are bought as capacity, by contract, so that tokens have no price there: Anthropic's commitments, OpenAI's
# Scale Tier, Google's Provisioned Throughput, Bedrock's Reserved tier, Groq's performance tier.
_BOUGHT: Mapping[str | None, frozenset[str]] = {
    "anthropic": frozenset({"priority"}),
    "openai": frozenset({"scale"}),
    "gemini": frozenset({"provisioned_throughput"}),
    "vertex_ai": frozenset({"provisioned_throughput"}),
    "vertex_openai": frozenset({"provisioned_throughput"}),
    "bedrock": frozenset({"reserved"}),
    "bedrock_openai": frozenset({"reserved"}),
    "bedrock_converse": frozenset({"reserved"}),
    "groq": frozenset({"performance"}),
}


def is_bought(vendor: str | None, tier: str, price: Price) -> bool:
    """Whether ``tier`` is capacity that was bought at ``vendor``: ``price``, of the table, has no price for it."""
    is_listed = bool(price.dearest) and not price.is_configured
    return is_listed and tier in _BOUGHT.get(vendor, ()) and tier not in price.tiers


# Tiers that serve nobody who does not ask for them: by another parameter, in another API, or at an hour.
_ASKED_ONLY = frozenset({FAST, OFF_PEAK, "batch", STANDARD})


WEEK_MIN = 7 * 24 * 60


def is_off_peak(price: Price, since: datetime, seconds: float) -> bool:
    """Whether the off-peak prices hold all the time from ``since`` on for so many seconds.

    False is no proof of peak prices: DeepSeek's peak leaves out China's public holidays, which are not listed.
    """
    begins = since.astimezone(UTC)
    monday = begins.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=begins.weekday())
    at = (begins - monday).total_seconds() / 60
    until = at + seconds / 60
    while at < until:
        moment = at % WEEK_MIN
        end = next((to for start, to in price.off_peak if start <= moment < to), None)
        if end is None:
            return False
        at += end - moment
    return True


# Vendors that serve a call as standard unless the call asks for another tier. At OpenAI and Azure a project or a
# deployment may have set another tier for all its calls.
_STANDARD_UNLESS_ASKED = frozenset(
    {"gemini", "vertex_ai", "vertex_openai", "bedrock", "bedrock_openai", "bedrock_converse", "groq", "anthropic"}
)


def dearest_unasked(vendor: str | None, price: Price, prompt_tokens: float) -> str:
    """Return the dearest tier in which ``vendor`` may serve a call that asks for none.

    A tier without a price for such long prompts does not serve them.
    """
    if vendor in _STANDARD_UNLESS_ASKED:
        return STANDARD
    known = {tier: card for tier in price.tiers - _ASKED_ONLY if (card := price.at(tier, prompt_tokens)) is not None}
    known = {STANDARD: price.at(STANDARD, prompt_tokens) or price} | known
    return max(known, key=lambda tier: known[tier].input_usd + known[tier].output_usd)


# The units of tokens besides those of `Price`'s own fields, each with the unit whose count includes it. Counts of
# prompts and answers include all of them.

_PROMPT: Mapping[str, str] = {
    "audio_input": "input",
    "image_input": "input",
    "video_input": "input",
    "cached_audio_input": "cached_input",
    "cached_image_input": "cached_input",
    "cached_video_input": "cached_input",
    "cache_write_1h": "cache_write",
    "cache_write_12h": "cache_write",
    "audio_cache_write": "cache_write",
}
OWN = frozenset({"input", "output", "cached_input", "cache_write", "reasoning"})  # the fields of `Price`
# Pictures and films in a prompt are billed as text if a price list has no price of their own.
_SEEN = frozenset({"image_input", "video_input", "cached_image_input", "cached_video_input"})
_ANSWER: Mapping[str, str] = {"audio_output": "output", "image_output": "output", "video_output": "output"}


OF_TOKENS = OWN.union(_PROMPT, _ANSWER)


def is_of_tokens(unit: str) -> bool:
    """Whether ``unit`` is a kind of token."""
    return unit in OF_TOKENS


def least_and_most(price: Price) -> tuple[float, float, float, float]:
    """Return the lowest and the highest price of a token of the prompt, then of one of the answer, of whatever kind."""
    prompt, answer = [price.input_usd], [price.output_usd]
    prompt += [usd for usd in (price.cached_input_usd, price.cache_write_usd) if usd is not None]
    answer += [price.reasoning_usd] if price.reasoning_usd is not None else []
    for unit, usd in price.units:
        if unit in _PROMPT:
            prompt.append(usd)
        elif unit in _ANSWER:
            answer.append(usd)
    return min(prompt), max(prompt), min(answer), max(answer)


def possible(price: Price, tiers: Sequence[str], low_tokens: float, high_tokens: float) -> tuple[Price | None, ...]:
    """Return the prices that may apply to a call in one of ``tiers``. None among them: an unknown price may apply.

    The prompt has between ``low_tokens`` and ``high_tokens``.
    """
    if STANDARD in tiers and OFF_PEAK in price.tiers:
        tiers = (*tiers, OFF_PEAK)
    return tuple(dict.fromkeys(price.at(tier, tokens) for tier in tiers for tokens in (low_tokens, high_tokens)))


# The cost of a call.


class Cost(msgspec.Struct, frozen=True):
    """The cost of a call, as far as prices are known. US dollars."""

    known_usd: float
    unknown: Mapping[str, int] = {}  # the counts of units without a known price


def cost(
    price: Price,
    prompt_tokens: float,
    completion_tokens: float,
    *,
    cached_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    reasoning_tokens: int | None = None,
    units: Mapping[str, int] | None = None,
) -> Cost:
    """Return the cost. ``units``: the counts of other units; tokens among these are parts of the other counts.

    ``cached_tokens`` and ``cache_write_tokens`` are parts of ``prompt_tokens``, ``reasoning_tokens`` of
    ``completion_tokens``, as in OpenAI's counts. A part that is larger than the whole is reduced to the whole.
    """
    usd = prompt_tokens * price.input_usd + completion_tokens * price.output_usd
    cached = 0.0
    if cached_tokens and price.cached_input_usd is not None:
        cached = min(cached_tokens, prompt_tokens)
        usd += cached * (price.cached_input_usd - price.input_usd)
    if cache_write_tokens and price.cache_write_usd is not None:
        written = min(cache_write_tokens, prompt_tokens - cached)
        usd += written * (price.cache_write_usd - price.input_usd)
    if reasoning_tokens and price.reasoning_usd is not None:
        usd += min(reasoning_tokens, completion_tokens) * (price.reasoning_usd - price.output_usd)
    if not (units or price.unknown):
        return Cost(usd)
    left = {"input": prompt_tokens, "output": completion_tokens}
    left |= {"cached_input": cached_tokens or 0, "cache_write": cache_write_tokens or 0}
    general = {
        "input": price.input_usd,
        "output": price.output_usd,
        "cached_input": price.input_usd if price.cached_input_usd is None else price.cached_input_usd,
        "cache_write": price.input_usd if price.cache_write_usd is None else price.cache_write_usd,
    }
    unknown: dict[str, int] = {}
    for unit, given in (units or {}).items():
        whole, own_usd = _PROMPT.get(unit) or _ANSWER.get(unit), price.usd(unit)
        if own_usd is None and (unit in _SEEN or (whole is not None and price.as_text)):
            continue
        count = price.billed(unit, given) if whole is None else min(given, int(left[whole]))
        if whole is not None:
            left[whole] -= count
            usd -= count * general[whole]
        if own_usd is not None:
            usd += count * own_usd
        elif count:
            unknown[unit] = count
    unknown |= {unit: int(left[unit]) for unit in price.unknown if left[unit]}
    return Cost(usd, unknown)


def cost_usd(
    price: Price | None,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    *,
    cached_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    reasoning_tokens: int | None = None,
    units: Mapping[str, int] | None = None,
) -> float | None:
    """Return the cost in US dollars; None if the price of one part, or the number of tokens, is unknown.

    Parts are as in `cost`.
    """
    if price is None or prompt_tokens is None or completion_tokens is None:
        return None
    found = cost(
        price,
        prompt_tokens,
        completion_tokens,
        cached_tokens=cached_tokens,
        cache_write_tokens=cache_write_tokens,
        reasoning_tokens=reasoning_tokens,
        units=units,
    )
    return None if found.unknown else found.known_usd


def cache_saved_usd(price: Price | None, prompt_tokens: int | None, cached_tokens: int | None) -> float | None:
    """Return how much reading ``cached_tokens`` from the prompt cache saved, in US dollars; None if unknown.

    What writing these tokens to the cache cost is not subtracted: another call paid for that.
    """
    if price is None or price.cached_input_usd is None or cached_tokens is None:
        return None
    cached = cached_tokens if prompt_tokens is None else min(cached_tokens, prompt_tokens)
    return cached * (price.input_usd - price.cached_input_usd)


# The counts that providers report.


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as reported; ``None`` if not reported."""

    prompt_tokens: int | None = None  # tokens that were read from the cache or written to it are included
    completion_tokens: int | None = None  # includes reasoning
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None  # read from the prompt cache
    cache_write_tokens: int | None = None  # written to the prompt cache
    tier: str | None = None  # the tier that served the call, as the answer says; "": standard service
    units: Mapping[str, int] | None = None  # counts of other billed units, by `Price.units`, none of them 0
    stated_usd: float | None = None  # the cost that the answer states


# The tokens, among the details of prompts and answers, that may have a price of their own.
_OF_PROMPT = (("audio_tokens", "audio_input"), ("image_tokens", "image_input"), ("video_tokens", "video_input"))
_OF_ANSWER = (("audio_tokens", "audio_output"), ("image_tokens", "image_output"), ("video_tokens", "video_output"))
_OF_LIFE = (("ephemeral_1h_input_tokens", "cache_write_1h"), ("ephemeral_12h_input_tokens", "cache_write_12h"))


def usage_of(reported: Mapping[str, Any], tier: object = None) -> Usage:
    """Read a ``usage`` object. ``tier``: the answer's ``service_tier``.

    OpenAI includes reasoning in ``completion_tokens``. xAI does not, and Gemini's OpenAI API does not even report
    reasoning. At these ``total_tokens`` decides: what exceeds prompt and completion is reasoning, if the excess equals
    the reported reasoning, or if neither reasoning nor cached tokens are reported.
    """
    prompt = _count(reported.get("prompt_tokens", reported.get("input_tokens")))  # some servers have Responses' names
    completion = _count(reported.get("completion_tokens", reported.get("output_tokens")))
    total = _count(reported.get("total_tokens"))
    reasoning = cached = written = units = None
    if isinstance(details := reported.get("completion_tokens_details"), dict):
        reasoning = _count(details.get("reasoning_tokens"))
        units = _apart(details, _OF_ANSWER)
    if reasoning is None:
        reasoning = _count(reported.get("reasoning_tokens"))
    if isinstance(details := reported.get("prompt_tokens_details"), dict):
        cached = _count(details.get("cached_tokens"))
        written = _first(details, _WRITTEN)
        units = _together(units, _apart(details, _OF_PROMPT))
        if isinstance(lives := details.get("cache_creation"), dict):
            units = _together(units, _apart(lives, _OF_LIFE))
    cached = _first(reported, _CACHED) if cached is None else cached
    written = _first(reported, _WRITTEN) if written is None else written
    if not reported.keys().isdisjoint(_OF_TOOLS):
        units = _together(units, _of_tools(reported))
        is_research = "citation_tokens" in reported  # of Perplexity: thoughts are counted beside the answer
        completion = completion + (reasoning or 0) if is_research and completion is not None else completion
    if prompt is not None and completion is not None and total is not None:
        beyond = total - prompt - completion
        if beyond > 0 and (beyond == reasoning or not (reasoning or cached or written)):
            completion += beyond
            reasoning = beyond
    usd = None if reported.keys().isdisjoint(_COSTS) else stated_usd(reported)
    return Usage(prompt, completion, reasoning, cached, written, None if tier is None else tier_of(tier), units, usd)


def written_usage(usage: Usage) -> dict[str, Any]:
    """Return a usage in chat's fields, as ``usage_of`` reads them, with the known details only.

    The counts of prompt and answer must be present: 0 stands for unknown.
    """
    units = usage.units or {}
    known = (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)  # of the prompt, at least
    prompt, answer = known if usage.prompt_tokens is None else usage.prompt_tokens, usage.completion_tokens or 0
    lives = {name: units[unit] for name, unit in _OF_LIFE if unit in units}
    of_prompt = {
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        **{name: units.get(unit) for name, unit in _OF_PROMPT},
        "cache_creation": lives or None,
    }
    of_answer = {"reasoning_tokens": usage.reasoning_tokens, **{name: units.get(unit) for name, unit in _OF_ANSWER}}
    said = {
        "prompt_tokens_details": {name: count for name, count in of_prompt.items() if count is not None},
        "completion_tokens_details": {name: count for name, count in of_answer.items() if count is not None},
        "server_tool_use": {"web_search_requests": units["web_search"]} if "web_search" in units else None,
    }
    counts = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    told = counts | {name: value for name, value in said.items() if value}
    return told if usage.stated_usd is None else told | {"cost": usage.stated_usd}


# Beside the prompt's details, or in place of them: the name of DeepSeek; of Moonshot, Together and StepFun; of
# Anthropic, Alibaba and LiteLLM. LiteLLM has another name within the details.
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
_WRITTEN = ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")


# Where vendors state the price they charge: OpenRouter and Perplexity; xAI in ten billionths of a dollar.
_TICKS = 10_000_000_000
_MOST_USD = 1_000  # no answer costs more
_COSTS = frozenset({"cost", "cost_in_usd_ticks"})


def stated_usd(reported: Mapping[str, Any]) -> float | None:
    """Return the cost that a usage states, in US dollars.

    With the user's own key of OpenRouter's provider, ``cost`` is only the fee, and the provider's bill stands beside.
    """
    if (usd := _usd(reported.get("cost_in_usd_ticks"), _TICKS)) is not None:
        return usd
    match reported:
        case {"cost": {"total_cost": total}}:
            return _usd(total)
        case {"cost": fee, "is_byok": True}:
            details = reported.get("cost_details")
            upstream_usd = _usd(details.get("upstream_inference_cost")) if isinstance(details, dict) else None
            fee_usd = _usd(fee)
            return None if fee_usd is None or upstream_usd is None else fee_usd + upstream_usd
    return _usd(reported.get("cost"))


def _usd(value: object, per_usd: int = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value / per_usd if 0 <= value <= _MOST_USD * per_usd else None


def _first(reported: Mapping[str, Any], names: Sequence[str]) -> int | None:
    if reported.keys().isdisjoint(names):  # the usual case
        return None
    return next((count for name in names if (count := _count(reported.get(name))) is not None), None)


def _apart(details: Mapping[str, Any], names: Sequence[tuple[str, str]]) -> dict[str, int] | None:
    """Return the counts of ``details`` by the names of units; None if there are none."""
    if details.keys().isdisjoint(_APART):
        return None
    return {unit: count for name, unit in names if (count := _count(details.get(name)))} or None


_APART = frozenset(name for names in (_OF_PROMPT, _OF_LIFE) for name, _ in names)


def _together(units: dict[str, int] | None, more: dict[str, int] | None) -> dict[str, int] | None:
    return more if units is None else units if more is None else units | more


# Where vendors report calls of their own tools: Anthropic, xAI; the other fields are Perplexity's.
_OF_TOOLS = frozenset(
    {
        "server_tool_use",
        "server_side_tool_usage_details",
        "search_context_size",
        "num_search_queries",
        "citation_tokens",
    }
)
_BILLED = {
    "server_tool_use": {"web_search_requests": "web_search"},
    "server_side_tool_usage_details": {  # a tool that is not listed costs tokens only
        f"{unit}_calls": unit
        for unit in ("web_search", "x_search", "code_interpreter", "file_search", "document_search")
    },
}
_SIZED = {"low": "web_search_low", "medium": "web_search", "high": "web_search_high"}


def _of_tools(reported: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the searches and other calls that a vendor's own tools made, and the tokens that these cite.

    Perplexity bills each request by the size of the search context, and research by the number of searches.
    """
    for name, billed in _BILLED.items():
        if isinstance(said := reported.get(name), dict):
            return {unit: count for field, unit in billed.items() if (count := _count(said.get(field)))} or None
    queries, cited = _count(reported.get("num_search_queries")), _count(reported.get("citation_tokens"))
    size = reported.get("search_context_size")
    is_research = cited is not None or not isinstance(size, str)
    counts = {_SIZED.get(str(size), "web_search_low"): queries if is_research else 1, "citation": cited}
    return {unit: count for unit, count in counts.items() if count} or None


def completed(usage: Usage, earlier: Usage | None) -> Usage:
    """Return ``usage`` with what only ``earlier`` reports have: Messages sends the prompt's tokens and the tier once.

    A last report may repeat a prompt's tokens without those of the cache, or an answer's without its cost, or say 0.
    """
    if earlier is None:
        return usage
    if not usage.completion_tokens and earlier.completion_tokens:
        thoughts = usage.reasoning_tokens or earlier.reasoning_tokens
        usage = msgspec.structs.replace(usage, completion_tokens=earlier.completion_tokens, reasoning_tokens=thoughts)
    prompt, whole = usage.prompt_tokens, earlier.prompt_tokens
    is_part = _tells_cache(earlier) and not _tells_cache(usage)
    if whole is not None and (not prompt or (is_part and prompt <= whole)):
        usage = msgspec.structs.replace(
            usage,
            prompt_tokens=whole,
            cached_tokens=earlier.cached_tokens,
            cache_write_tokens=earlier.cache_write_tokens,
        )
    if usage.tier is None and earlier.tier is not None:
        usage = msgspec.structs.replace(usage, tier=earlier.tier)
    if earlier.units is not None:
        usage = msgspec.structs.replace(usage, units={**earlier.units, **(usage.units or {})})
    if (
        usage.stated_usd is None
        and earlier.stated_usd is not None
        and usage.completion_tokens in {None, earlier.completion_tokens}  # else it was a part's cost
    ):
        usage = msgspec.structs.replace(usage, stated_usd=earlier.stated_usd)
    return usage


def _tells_cache(usage: Usage) -> bool:
    return usage.cached_tokens is not None or usage.cache_write_tokens is not None


def _count(value: object) -> int | None:
    if type(value) is int or type(value) is float:  # the types of JSON numbers; a bool is not one
        return int(value) if value >= 0 else None
    return None


# Reads the usage and the model of answers that are not raced: embeddings, transcriptions, images.


class ReportedUsage(msgspec.Struct, frozen=True):
    """What an answer reports; None: not reported."""

    usage: Usage | None = None
    model: str | None = None  # unchecked, from the provider


class _Answer(msgspec.Struct, frozen=True):
    usage: dict[str, Any] | None = None
    model: Any = None
    service_tier: Any = None


_answers = msgspec.json.Decoder(_Answer)  # skips vectors and images without decoding them


def outline(answer: bytes) -> bytes:
    """Return a large JSON answer without its list (of embeddings, say). Small answers and others are unchanged."""
    if len(answer) <= LARGE_BYTES:
        return answer
    begin, end = answer.find(b"["), answer.rfind(b"]")
    if begin < 0 or begin + len(answer) - end > LARGE_BYTES:
        return answer
    outlined = b"".join((answer[:begin], b"[", answer[end:]))
    try:
        return outlined if _answers.decode(outlined).usage else answer
    except UNREADABLE:
        return answer


def reported(answer: bytes) -> ReportedUsage:
    """Return what a JSON answer, or one event's data, reports: the usage and the model."""
    try:
        found = _answers.decode(outline(answer))
    except UNREADABLE:
        return NOTHING
    model = found.model if isinstance(found.model, str) and found.model else None
    return ReportedUsage(_usage(found.usage or {}, found.service_tier), model)


_NEWER = (
    ("prompt_tokens", "input_tokens"),
    ("completion_tokens", "output_tokens"),
    ("prompt_tokens_details", "input_tokens_details"),
    ("prompt_tokens_details", "input_token_details"),  # of transcriptions
    ("completion_tokens_details", "output_tokens_details"),
)


def _usage(said: dict[str, Any], tier: object) -> Usage | None:
    """Return the token counts. OpenAI's newer APIs have ``input_tokens``; a total without parts is of the input."""
    for name, newer in _NEWER:
        if name not in said and newer in said:
            said[name] = said[newer]
    if "prompt_tokens" not in said and "completion_tokens" not in said and "total_tokens" in said:
        said["prompt_tokens"] = said["total_tokens"]
    if said.get("type") == "duration" and (seconds := said.get("seconds")):  # of a transcription
        heard = _count(seconds)
        return None if heard is None else Usage(units={"second": heard})
    usage = usage_of(said, tier)
    is_empty = usage.prompt_tokens is None and usage.completion_tokens is None and usage.stated_usd is None
    return None if is_empty else usage


NOTHING = ReportedUsage()
