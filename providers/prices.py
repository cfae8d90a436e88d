"""What vendors bill: one grammar of prices, and the cost of a call.

A price is of a *unit*: a token of text, sound or pictures, in the prompt, the answer or the prompt cache; a search, a
second, a character. It may change with the *size* of the prompt and with the *tier* that serves the call (priority,
flex). `Price` has those of standard service and short prompts, `Price.at` gives those of another tier or size.

litellm's table writes them as ``{unit}[_above_1hr][_above_200k_tokens][_priority]``: the life of a cache, the size of
the prompt, the tier. `read` makes a `Price` of a row, and `leaves` tells of every number in it, so that no price is
overlooked (requirements/extract_datasheets.py).

A price above N tokens is that of the whole prompt and its answer, at every vendor of the table: Google, Anthropic,
OpenAI and Alibaba say so of "requests" or "prompts" with more tokens, and litellm bills it so. xAI's begins at N.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

STANDARD = ""  # the tier of calls that ask for none
FAST = "fast"  # Anthropic's ``speed``

_STANDARD_WORDS = frozenset(  # standard service in the words of requests and answers
    {"", "auto", "default", "on_demand", "on-demand", "standard", "standard_only", "unspecified"}
)
_TIER_WORDS = {"batches": "batch", "on_demand_flex": "flex", "on_demand_priority": "priority"}


class Price(msgspec.Struct, frozen=True):
    """US dollars per token, and of other units."""

    input_usd: float
    output_usd: float
    cached_input_usd: float | None = None  # read from the prompt cache; None: unknown, input_usd is used
    cache_write_usd: float | None = None  # written to the prompt cache; None: input_usd
    reasoning_usd: float | None = None  # None: output_usd
    units: tuple[tuple[str, float], ...] = ()  # each of the other units
    cards: "tuple[Card, ...]" = ()  # of all tiers and sizes, the shorter prompts of a tier first; (): it has only one
    unknown: tuple[str, ...] = ()  # of "input" and "output": those without a known price, 0 here
    dearest: tuple[tuple[str, float], ...] = ()  # of each unit, the highest price at this vendor
    as_text: bool = False  # tokens without a price of their own, as of sound, cost what text does

    def usd(self, unit: str) -> float | None:
        """Return the price of one ``unit``; None if it is unknown."""
        return next((usd for name, usd in self.units if name == unit), None)

    def at(self, tier: str, prompt_tokens: float) -> "Price | None":
        """Return the price in ``tier`` for a prompt of so many tokens; None if it is unknown.

        A price without any tiers holds in all of them.
        """
        price = None if self.cards else self
        tiers = {tier} if self.tiers else {STANDARD}
        for card in self.cards:
            if card.tier in tiers and prompt_tokens > card.above_tokens:
                price = card.price
        return price

    @property
    def dearest_card(self) -> "Price":
        """The price in the dearest tier and for the longest prompts."""
        known = [card.price for card in self.cards if card.price is not None]
        return max(known, key=lambda price: price.input_usd + price.output_usd, default=self)

    @property
    def tiers(self) -> frozenset[str]:
        """The tiers other than the standard one whose price is known."""
        return frozenset(card.tier for card in self.cards) - {STANDARD}


class Card(msgspec.Struct, frozen=True):
    """The price in one tier for prompts of more than so many tokens."""

    tier: str
    above_tokens: int  # -1: any prompt
    price: Price | None  # without cards; None: unknown


def tier_of(word: object) -> str | None:
    """Return the tier that a request or an answer names by ``word``; None if it names none."""
    if not isinstance(word, str) or not word:
        return None
    word = word.lower().removeprefix("service_tier_")
    return STANDARD if word in _STANDARD_WORDS else _TIER_WORDS.get(word, word)[:MOST_CHARS]


MOST_CHARS = 32  # of a tier

# The units of tokens besides those of `Price`'s own fields, each with the one that it is counted among. Counts of
# prompts and answers include them.

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
# Pictures and films in a prompt are billed as text where a price list does not have them apart.
_SEEN = frozenset({"image_input", "video_input", "cached_image_input", "cached_video_input"})
_ANSWER: Mapping[str, str] = {"audio_output": "output", "image_output": "output", "video_output": "output"}


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


def possible(
    price: Price, served: str | None, asked: str | None, low_tokens: float, high_tokens: float
) -> tuple[Price | None, ...]:
    """Return the prices that may apply to a call; None among them: one that is unknown.

    ``served`` is the tier that the answer names; without one, that is the ``asked`` tier or, if the vendor had no room
    there, the standard one. The prompt has between ``low_tokens`` and ``high_tokens``.
    """
    tiers = [STANDARD, asked or STANDARD] if served is None else [served]
    if STANDARD in tiers and OFF_PEAK in price.tiers:
        tiers.append(OFF_PEAK)
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
    """Return the cost; ``units`` has the counts of other units. Tokens among them are parts of the other counts.

    ``cached_tokens`` and ``cache_write_tokens`` are parts of ``prompt_tokens``, ``reasoning_tokens`` of
    ``completion_tokens``, as in OpenAI's counts. A part that is larger than the whole is reduced to that.
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
        count = given if whole is None else min(given, int(left[whole]))
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

    The cost of writing them to the cache is not subtracted: another call paid it.
    """
    if price is None or price.cached_input_usd is None or cached_tokens is None:
        return None
    cached = cached_tokens if prompt_tokens is None else min(cached_tokens, prompt_tokens)
    return cached * (price.input_usd - price.cached_input_usd)


# litellm's names of prices, in ours. The longest name that a field begins with is its unit.

_UNITS: Mapping[str, str] = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "input_cost_per_token_cache_hit": "cached_input",  # the older name, used for DeepSeek
    "cache_creation_input_token_cost": "cache_write",
    "output_cost_per_reasoning_token": "reasoning",
    "input_cost_per_audio_token": "audio_input",
    "input_cost_per_image_token": "image_input",
    "input_cost_per_video_token": "video_input",
    "cache_read_input_audio_token_cost": "cached_audio_input",
    "cache_read_input_image_token_cost": "cached_image_input",
    "cache_creation_input_audio_token_cost": "audio_cache_write",
    "explicit_cache_read_input_token_cost": "explicit_cached_input",
    "output_cost_per_audio_token": "audio_output",
    "output_cost_per_image_token": "image_output",
    "output_cost_per_video_token": "video_output",
    "citation_cost_per_token": "citation",
    "input_cost_per_character": "character",
    "output_cost_per_character": "character_output",
    "input_cost_per_second": "second",
    "input_cost_per_audio_per_second": "audio_second",
    "input_cost_per_video_per_second": "video_second",
    "output_cost_per_second": "second_output",
    "output_cost_per_video_per_second": "video_second_output",
    "cost_per_second": "reserved_second",
    "input_cost_per_image": "picture",
    "input_cost_per_pixel": "pixel",
    "output_cost_per_image": "picture_output",
    "output_cost_per_pixel": "pixel_output",
    "input_cost_per_query": "query",
    "input_cost_per_request": "request",
    "input_cost_per_text_message": "message",
    "code_interpreter_cost_per_session": "session",
    "google_maps_grounding_cost_per_query": "maps_query",
    "ocr_cost_per_page": "page",
    "ocr_cost_per_credit": "credit",
    "annotation_cost_per_page": "annotated_page",
    "search_context_cost_per_query.search_context_size_low": "web_search_low",
    "search_context_cost_per_query.search_context_size_medium": "web_search",  # the size of those who name none
    "search_context_cost_per_query.search_context_size_high": "web_search_high",
    "guardrail_cost_per_unit.automatedReasoningPolicyUnits": "reasoning_policy",
    "guardrail_cost_per_unit.contentPolicyImageUnits": "content_policy_image",
    "guardrail_cost_per_unit.contentPolicyUnits": "content_policy",
    "guardrail_cost_per_unit.contextualGroundingPolicyUnits": "grounding_policy",
    "guardrail_cost_per_unit.sensitiveInformationPolicyFreeUnits": "free_information_policy",
    "guardrail_cost_per_unit.sensitiveInformationPolicyUnits": "information_policy",
    "guardrail_cost_per_unit.topicPolicyUnits": "topic_policy",
    "guardrail_cost_per_unit.wordPolicyUnits": "word_policy",
}
_NAMES = sorted(_UNITS, key=len, reverse=True)
_SUFFIXES = re.compile(
    r"(?:_above_(?P<life>1|12)hr)?"
    r"(?:_above_(?P<thousands>\d+)(?P<k>k?)_tokens)?"
    r"(?:_above_(?P<interval>\d+s)_interval)?"
    r"(?:_(?P<resolution>\d[\d.]*[a-zA-Z]?))?"
    r"(?:_(?P<tier>[a-z]+))?"
)
_TIERED = re.compile(r"tiered_pricing\[(\d+)\]\.")  # the prices of one range of prompts


class Leaf(msgspec.Struct, frozen=True):
    """A price in a row: of which unit, in which tier, for prompts of more than how many tokens."""

    unit: str
    tier: str
    above_tokens: int
    usd: float


def leaves(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield every number of a row with its path, as ``tiered_pricing[0].input_cost_per_token``."""
    yield from _numbers("", row)


def _numbers(path: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _numbers(f"{path}.{name}" if path else name, each)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _numbers(f"{path}[{place}]", each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def parse(path: str, usd: float, row: Mapping[str, Any]) -> Leaf | None:
    """Return what a number at ``path`` of a row is the price of; None if it is no price that is known here."""
    above_tokens = -1
    if (tiered := _TIERED.match(path)) is not None:
        extent = row["tiered_pricing"][int(tiered[1])].get("range")
        if not extent:
            return None
        above_tokens = int(extent[0]) or -1
        path = path[tiered.end() :]
    off_peak = path.startswith("off_peak_pricing.")
    path = path.removeprefix("off_peak_pricing.")
    if path == "provider_specific_entry.fast":
        return Leaf("*", FAST, -1, usd)  # times each other price
    for name in _NAMES:
        if path.startswith(name) and (said := _SUFFIXES.fullmatch(path, len(name))) is not None:
            unit = _UNITS[name] + (f"_{said['life']}h" if said["life"] else "")
            if detail := said["interval"] or said["resolution"]:
                unit = f"{unit}_{detail.lower()}"
            if said["thousands"]:
                above_tokens = int(said["thousands"]) * (1000 if said["k"] else 1)
            tier = said["tier"] or ""
            return Leaf(unit, OFF_PEAK if off_peak else _TIER_WORDS.get(tier, tier), above_tokens, usd)
    return None


OFF_PEAK = "off_peak"  # not asked for: some hours of the day

_OWN = frozenset({"input", "output", "cached_input", "cache_write", "reasoning"})  # the fields of `Price`
_SILENT = frozenset({"", "embedding", "moderation", "ocr", "rerank", "search"})  # modes whose answers have no tokens
_FROM_N = frozenset({"xai"})  # vendors whose prices above N tokens begin at N
_ONE_PRICE_OF_INPUT = ("gemini", "vertex_ai")  # "text / image / video / audio" is one line of Google's price list

Prices = dict[str, float]  # by unit


def read(row: Mapping[str, Any]) -> Price | None:
    """Return the prices of a row of the table; None if it has none, or a price is no number.

    A price that a tier or a size does not list is that of the tier for shorter prompts, then that of standard service
    for such prompts: searches cost the same in each tier. If a tier has no price for long prompts although standard
    service has, it is unknown.
    """
    listed: dict[tuple[str, int], Prices] = {}
    vendor = str(row.get("litellm_provider", ""))
    times: list[tuple[str, float]] = []
    for path, usd in leaves(row):
        if (leaf := parse(path, usd, row)) is None:
            continue
        above = leaf.above_tokens - (vendor in _FROM_N and leaf.above_tokens > 0)
        if leaf.unit == "*":
            times.append((leaf.tier, usd))
        else:
            listed.setdefault((leaf.tier, above), {}).setdefault(leaf.unit, usd)
    if not listed:
        return None
    base = listed.pop((STANDARD, -1), {})
    _complete(base, str(row.get("mode") or ""))
    cards = {(STANDARD, -1): base}
    sizes = sorted({above for tier, above in listed if tier == STANDARD})
    for above in sizes:
        cards[STANDARD, above] = _last(cards, STANDARD) | listed[STANDARD, above]
    for tier in dict.fromkeys(tier for tier, _ in listed if tier != STANDARD):
        own = {above: given for (of, above), given in listed.items() if of == tier and "input" in given}
        for above in sorted({-1, *sizes, *own} if own else ()):
            standard = cards.get((STANDARD, above), base)
            cards[tier, above] = standard | _last(cards, tier) | own[above] if above in own else {}
    for tier, factor in times:
        cards |= {
            (tier, above): {unit: usd * factor if unit in _TOKENS else usd for unit, usd in each.items()}
            for (of, above), each in list(cards.items())
            if of == STANDARD
        }
    as_text = vendor.startswith(_ONE_PRICE_OF_INPUT) and "audio_input" not in base
    price = _price(base, as_text=as_text)
    if len(cards) == 1:
        return price
    made = tuple(
        Card(tier, above, _price(each, as_text=as_text) if each else None) for (tier, above), each in cards.items()
    )
    return msgspec.structs.replace(price, cards=made)


_TOKENS = _OWN.union(_PROMPT, _ANSWER)


def _last(cards: Mapping[tuple[str, int], Prices], tier: str) -> Prices:
    """Return the prices of ``tier`` that were listed last, for shorter prompts."""
    return next((each for (of, _), each in reversed([*cards.items()]) if of == tier), {})


def _complete(base: Prices, mode: str) -> None:
    """Add what a row means without saying so."""
    if not base.get("cache_write"):
        base.pop("cache_write", None)  # 0: the price of input applies
    if "output" not in base and "image_output" in base:
        base["output"] = base["image_output"]  # all it answers are pictures
    if "output" not in base and "input" in base and mode in _SILENT:
        base["output"] = 0.0  # embeddings have no output


def _price(listed: Prices, *, as_text: bool) -> Price:
    return Price(
        input_usd=listed.get("input", 0.0),
        output_usd=listed.get("output", 0.0),
        cached_input_usd=listed.get("cached_input"),
        cache_write_usd=listed.get("cache_write"),
        reasoning_usd=listed.get("reasoning"),
        units=tuple((unit, usd) for unit, usd in listed.items() if unit not in _OWN),
        unknown=tuple(unit for unit in ("input", "output") if unit not in listed),
        as_text=as_text,
    )
