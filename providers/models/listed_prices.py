"""Prices from a row of litellm's table, by its names for them.

A price is written ``{unit}[_above_1hr][_above_200k_tokens][_priority]``: with the life of a cache, the size of the
prompt and the tier. `read` makes a `Price` of a row; `leaves` tells of every number in it, so that none is overlooked.
One above N tokens is that of the whole prompt and its answer, at every vendor of the table: Google, Anthropic, OpenAI
and Alibaba say so of "requests" or "prompts" with more tokens, and litellm bills it so. xAI's begins at N.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from providers.models.usage import FAST, OF_TOKENS, OFF_PEAK, OWN, STANDARD, TIER_WORDS, WEEK_MIN, Card, Price

# By litellm's names, ours. The longest name that a field begins with is its unit.
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
            return Leaf(unit, OFF_PEAK if off_peak else TIER_WORDS.get(tier, tier), above_tokens, usd)
    return None


# What tokens cost if they are processed in a region, over the prices of the row. Anthropic: where ``inference_geo``
# asks for it (platform.claude.com/docs/en/manage-claude/data-residency); OpenAI: at addresses of regions
# (developers.openai.com/api/docs/guides/data-residency); Vertex AI: at any location but global.
UPLIFTS: Mapping[str, str] = {
    "provider_specific_entry.us": "us",
    "regional_processing_uplift_multiplier_us": "us",
    "regional_processing_uplift_multiplier_eu": "eu",
    "regional_endpoint_uplift_multiplier": "endpoint",
}


def uplifted(price: Price, factor: float) -> Price:
    """Return the same prices with those of tokens times ``factor``."""

    def times(usd: float | None) -> float | None:
        return None if usd is None else usd * factor

    return msgspec.structs.replace(
        price,
        input_usd=price.input_usd * factor,
        output_usd=price.output_usd * factor,
        cached_input_usd=times(price.cached_input_usd),
        cache_write_usd=times(price.cache_write_usd),
        reasoning_usd=times(price.reasoning_usd),
        units=tuple((unit, usd * factor if unit in OF_TOKENS else usd) for unit, usd in price.units),
        cards=tuple(
            Card(card.tier, card.above_tokens, None if card.price is None else uplifted(card.price, factor))
            for card in price.cards
        ),
    )


_SILENT = frozenset({"", "embedding", "moderation", "ocr", "rerank", "search"})  # modes whose answers have no tokens
_FROM_N = frozenset({"xai"})  # vendors whose prices above N tokens begin at N
_SEARCHES_ALWAYS = "perplexity"
_SEARCHES = frozenset({"web_search_low", "web_search", "web_search_high"})
SEARCH_BILLING = "web_search_billing_unit"  # of Google's searches: from Gemini 3 on each, before once a prompt
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
    base = listed.setdefault((STANDARD, -1), {})
    _complete(base, str(row.get("mode") or ""))
    whole = {key: each for key, each in listed.items() if key[0] == STANDARD or "input" in each}
    as_text = vendor.startswith(_ONE_PRICE_OF_INPUT) and "audio_input" not in base
    once = vendor.startswith(_ONE_PRICE_OF_INPUT) and row.get(SEARCH_BILLING) != "per_query"
    price = price_of(whole, times, as_text=as_text, once=once)
    if OFF_PEAK in price.tiers:
        price = msgspec.structs.replace(price, off_peak=tuple(_off_peak(row["off_peak_pricing"])))
    return msgspec.structs.replace(price, request_usd=_request_usd(base)) if vendor == _SEARCHES_ALWAYS else price


_DAY_MIN = 24 * 60


def _off_peak(given: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield the times of ``off_peak_pricing`` in minutes of a week: hours are UTC's, weekdays those of the vendor."""
    zone = ZoneInfo(given.get("weekday_timezone") or "UTC")
    ahead = (dt.datetime(2026, 1, 1, tzinfo=zone).utcoffset() or dt.timedelta()).seconds // 60
    for window in given.get("windows") or [given]:
        hours = window.get("hours_utc") or ()
        for written in [hours] if isinstance(hours, str) else hours:
            start, end = (int(at[:2]) * 60 + int(at[3:]) for at in written.split("-"))
            parts = [(start, end)] if start < end else [(start, _DAY_MIN), (0, end)]
            turn = _DAY_MIN - ahead  # from then on it is the next day there
            parts = [(max(a, x), min(b, y)) for a, b in parts for x, y in ((0, turn), (turn, _DAY_MIN))]
            for weekday in window.get("weekdays") or range(1, 8):
                for begins, ends in parts:
                    if begins < ends:
                        day = (weekday - 1 - (begins >= turn)) * _DAY_MIN % WEEK_MIN
                        yield day + begins, day + ends


def _request_usd(listed: Prices) -> float | None:
    """Return the most that a request costs at a vendor that always searches; None: research has no limit."""
    return (
        None if "citation" in listed else max((usd for unit, usd in listed.items() if unit in _SEARCHES), default=0.0)
    )


def price_of(
    listed: Mapping[tuple[str, int], Prices],
    times: Sequence[tuple[str, float]] = (),
    *,
    as_text: bool,
    once: bool = False,
) -> Price:
    """Return the prices that are ``listed`` by tier and size of the prompt; those at (STANDARD, -1) have to be.

    ``times``: tiers that cost a multiple of standard service, for tokens. ``as_text`` and ``once``: as in `Price`.
    """
    base = listed[STANDARD, -1]
    cards = {(STANDARD, -1): base}
    sizes = sorted({above for tier, above in listed if tier == STANDARD and above >= 0})
    for above in sizes:
        cards[STANDARD, above] = _last(cards, STANDARD) | listed[STANDARD, above]
    for tier in dict.fromkeys(tier for tier, _ in listed if tier != STANDARD):
        own = {above: given for (of, above), given in listed.items() if of == tier}
        for above in sorted({-1, *sizes, *own}):
            standard = cards.get((STANDARD, above), base)
            cards[tier, above] = standard | _last(cards, tier) | own[above] if above in own else {}
    for tier, factor in times:
        cards |= {
            (tier, above): {unit: usd * factor if unit in OF_TOKENS else usd for unit, usd in each.items()}
            for (of, above), each in list(cards.items())
            if of == STANDARD
        }
    price = _price(base, as_text=as_text, once=once)
    if len(cards) == 1:
        return price
    made = tuple(
        Card(tier, above, _price(each, as_text=as_text, once=once) if each else None)
        for (tier, above), each in cards.items()
    )
    return msgspec.structs.replace(price, cards=made)


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


def _price(listed: Prices, *, as_text: bool, once: bool) -> Price:
    return Price(
        input_usd=listed.get("input", 0.0),
        output_usd=listed.get("output", 0.0),
        cached_input_usd=listed.get("cached_input"),
        cache_write_usd=listed.get("cache_write"),
        reasoning_usd=listed.get("reasoning"),
        units=tuple((unit, usd) for unit, usd in listed.items() if unit not in OWN),
        unknown=tuple(unit for unit in ("input", "output") if unit not in listed),
        as_text=as_text,
        once=once,
    )
