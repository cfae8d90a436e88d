"""Converts an entry of LiteLLM's ``model_list`` to a deployment, and separates the settings of its model."""

from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from math import inf, isfinite
from typing import Any

import msgspec

from gateway.cli.import_litellm.addresses import Address, Addresses, ResolvedModel, frozen, resolve
from gateway.cli.import_litellm.notes import Notes, Variables, is_reference, is_set, section
from gateway.settings import Catalog, Place


class Fields(msgspec.Struct, frozen=True):
    """The table of LiteLLM's fields, ``fields.toml``: what is remarked on each, by section, and what others become."""

    texts: dict[str, str]
    litellm_params: dict[str, str]
    model_info: dict[str, str]
    router_settings: dict[str, str]
    litellm_settings: dict[str, str]
    general_settings: dict[str, str]
    sections: dict[str, str]
    prices: dict[str, str]
    capabilities: dict[str, str]
    apis: dict[str, tuple[str, ...]]

    def remark(self, section: str, field: str) -> str | None:
        """Return the remark on a field of ``section``; None if the table does not have it."""
        said: str | None = getattr(self, section).get(field)
        return said if said is None else self.texts.get(said, said)


@cache
def fields() -> Fields:
    """Return the table."""
    text = files("gateway.cli.import_litellm").joinpath("fields.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=Fields)


UNKNOWN = "no counterpart known: left out"


_CREDENTIALS = ("aws_", "vertex_", "watsonx_", "azure_", "oci_", "sap_", "anthropic_")
_CREDENTIAL_NAMES = frozenset({"api_version", "client_id", "client_secret", "tenant_id", "bedrock_tags"})
_REGIONS = ("region_name", "aws_region_name", "vertex_location", "watsonx_region_name")
_OF_LITELLM = frozenset({"chat", "embeddings"})
_PER_MTOK_DIGITS = 6
# Prefixes of LiteLLM's own parameters among those of requests.
_LITELLMS_OWN = (
    "adaptive_router", "auto_router_", "cache", "complexity_router_", "fallbacks", "gcs_", "guardrails", "litellm_",
    "model_info", "prompt_", "provider_affinity", "s3_", "stream_timeout_by_", "timeout_by_",
)  # fmt: skip
_OF_REQUESTS = frozenset({
    "audio", "dimensions", "encoding_format", "enable_thinking", "frequency_penalty", "function_call", "functions",
    "include_reasoning", "input_type", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "metadata",
    "min_p", "min_tokens", "modalities", "model_kwargs", "n", "parallel_tool_calls", "plugins", "prediction",
    "presence_penalty", "prompt_cache_key", "provider", "reasoning", "reasoning_effort", "repetition_penalty",
    "response_format", "safety_identifier", "safety_settings", "seed", "service_tier", "size", "stop", "store",
    "stream", "stream_options", "temperature", "text", "thinking", "tool_choice", "tools", "top_a", "top_k",
    "top_logprobs", "top_p", "user", "verbosity", "voice", "web_search_options",
})  # fmt: skip


class Entry(msgspec.Struct, frozen=True):
    """An entry of ``model_list``. Values are as our file has them."""

    place: Place
    name: str  # the model's public name
    model: str  # the vendor's name
    address: Address
    key: str | None
    deployment: Mapping[str, Any]  # as in our file, without the deployment's name
    params: Mapping[str, Any]  # of requests: LiteLLM's defaults
    timeouts: Mapping[str, Any]
    weight: float | None
    rate: float | None  # rpm, else tpm: LiteLLM's weights if there are no others
    order: int
    keepalive_s: Any = None

    @property
    def same(self) -> Hashable:
        """A value that is equal for two entries if they are one deployment with two keys."""
        return frozen([self.name, self.model, self.deployment, self.params, self.timeouts, self.weight, self.order])


class Entries:
    """Reads the entries of ``model_list`` one by one."""

    def __init__(
        self,
        catalog: Catalog,
        variables: Variables,
        notes: Notes,
        addresses: Addresses,
        *,
        drop_params: bool,
    ) -> None:
        self._catalog = catalog
        self._variables = variables
        self._notes = notes
        self._addresses = addresses
        self._drop_params = drop_params

    def read(self, raw: Any, place: Place) -> Entry | None:
        """Return the entry; None, with a remark, if it names no provider."""
        entry = section(raw, place, self._notes)
        here = (*place, "litellm_params")
        params = {str(key): value for key, value in section(entry.get("litellm_params"), here, self._notes).items()}
        model, name = params.pop("model", None), entry.get("model_name")
        if not model or not name:
            self._notes.add(place, "has no model_name, or no litellm_params.model: left out")
            return None
        target = resolve(str(model), str(params.pop("custom_llm_provider", None) or ""), self._catalog)
        if target is None:
            self._notes.add((*here, "model"), "names an unknown vendor: left out; write provider/model under `models`")
            return None
        found = self._addresses.read(target, params, here)
        if found is None:
            return None
        address, key = found
        info = section(entry.get("model_info"), (*place, "model_info"), self._notes)
        if _is_through_litellm(address, target) and not {*_apis(target, info)} <= _OF_LITELLM:
            self._notes.add(
                place, "no counterpart: this vendor supports chat and embeddings only, so the entry is left out"
            )
            return None
        # LiteLLM also reads limits besides litellm_params.
        params |= {word: entry[word] for word in ("rpm", "tpm") if word in entry and word not in params}
        for word in entry.keys() - {"model_name", "litellm_params", "model_info", "rpm", "tpm", "blocked"}:
            self._notes.add((*place, word), UNKNOWN)
        deployment = self._deployment(target, address, params, info, place)
        if entry.get("blocked") or info.get("blocked"):
            deployment["enabled"] = False
        timeouts = self._timeouts(params, here)
        weight, rate, order = (
            self._number(params.pop(word, None), (*here, word)) for word in ("weight", "rpm", "order")
        )
        tokens = self._number(params.pop("tpm", None), (*here, "tpm"))
        for word in ("rpm", "tpm"):
            if (rate if word == "rpm" else tokens) is not None:
                self._notes.add((*here, word), fields().remark("litellm_params", word) or UNKNOWN)
        return Entry(
            place=place,
            name=str(name),
            model=target.model,
            address=address,
            key=key,
            deployment=deployment,
            timeouts=timeouts,
            weight=weight,
            rate=rate or tokens,
            order=int(order or 1),
            keepalive_s=self._variables.plain(params.pop("keepalive_seconds", None), (*here, "keepalive_seconds")),
            params=self._params(params, here),
        )

    def _deployment(
        self, target: ResolvedModel, address: Address, params: dict[str, Any], info: Mapping[str, Any], place: Place
    ) -> dict[str, Any]:
        """Read the deployment's settings from ``params``."""
        here = (*place, "litellm_params")
        take = self._variables.plain
        result: dict[str, Any] = {}
        if apis := _apis(target, info):
            result["apis"] = list(apis)
        if params.pop("use_chat_completions_api", None):
            result["apis"] = ["chat"]
        if params.pop("drop_params", self._drop_params) is True:
            result["drop_params"] = True
        if (parallel := params.pop("max_parallel_requests", None)) is not None:
            result["max_in_flight"] = take(parallel, (*here, "max_parallel_requests"))
        body = dict(section(params.pop("extra_body", None), (*here, "extra_body"), self._notes))
        body = {key: self._variables.named(key, value, (*here, "extra_body", key)) for key, value in body.items()}
        if region := next((params[word] for word in _REGIONS if isinstance(params.get(word), str)), None):
            result["region"] = take(region, here)
        body |= self._credentials(address, target, params, here)
        if body:
            result["extra_body"] = body
        if headers := self._headers(params, here):
            result["extra_headers"] = headers
        if price := self._price(params, info, place):
            result["price_per_mtok"] = price
        if capabilities := dict(self._capabilities(info, (*place, "model_info"))):
            result["capabilities"] = capabilities
        return result

    def _credentials(
        self, address: Address, target: ResolvedModel, params: dict[str, Any], here: Place
    ) -> dict[str, Any]:
        """Read from ``params`` the credentials that litellm needs for a vendor; they are sent in ``extra_body``."""
        through_litellm = _is_through_litellm(address, target)
        found: dict[str, Any] = {}
        for word in [name for name in params if name.startswith(_CREDENTIALS) or name in _CREDENTIAL_NAMES]:
            value = params.pop(word)
            if value is None:
                continue
            if through_litellm:
                text = msgspec.json.encode(value).decode() if isinstance(value, dict) else value
                secret = isinstance(value, dict) or word == "vertex_credentials"
                found[word] = (
                    self._variables.secret(text, (*here, word), word.upper())
                    if secret
                    else self._variables.named(word, text, (*here, word))
                )
            else:
                self._notes.add((*here, word), fields().remark("litellm_params", word) or UNKNOWN)
        if params.pop("region_name", None) is not None and through_litellm:
            self._notes.add(
                (*here, "region_name"), "became the region of the deployment only: set the vendor's own region too"
            )
        return found

    def _headers(self, params: dict[str, Any], here: Place) -> dict[str, str]:
        headers: dict[str, str] = {}
        for word in ("headers", "extra_headers"):
            given = section(params.pop(word, None), (*here, word), self._notes)
            headers |= {
                str(name): str(self._variables.named(str(name), str(value), (*here, word, str(name))))
                for name, value in given.items()
            }
        return headers

    def _price(self, params: dict[str, Any], info: Mapping[str, Any], place: Place) -> dict[str, float]:
        price: dict[str, float] = {}
        for word, ours in fields().prices.items():
            where = (*place, "litellm_params", word) if word in params else (*place, "model_info", word)
            value = self._number(params.pop(word, info.get(word)), where)
            if value is not None:
                price[ours] = round(value * 1e6, _PER_MTOK_DIGITS)
        if price and "input" not in price:
            self._notes.add(place, "has prices, but none for input tokens: left out")
            return {}
        if price and "output" not in price:
            self._notes.add(place, "has no price for output tokens: they count as free, as for embeddings")
            price["output"] = 0.0
        return price

    def _capabilities(self, info: Mapping[str, Any], place: Place) -> Iterator[tuple[str, Any]]:
        table = fields()
        for word, value in info.items():
            if word in table.capabilities and value is not None:
                yield table.capabilities[word], self._variables.plain(value, (*place, word))
            elif word not in table.prices and word not in ("mode", "blocked") and is_set(value):
                self._notes.add((*place, word), table.remark("model_info", word) or UNKNOWN)

    def _timeouts(self, params: dict[str, Any], here: Place) -> dict[str, Any]:
        """Read LiteLLM's two timeouts. Neither limits a whole answer: they limit the wait for the next bytes."""
        whole, stream = params.pop("timeout", None), params.pop("stream_timeout", None)
        said = stream if stream is not None else whole
        if said is None:
            return {}
        word = "timeout" if stream is None else "stream_timeout"
        clock = self._variables.plain(said, (*here, word))
        if not isinstance(clock, int | float) and not is_reference(clock):
            self._notes.add((*here, word), "is not a number of seconds: left out")
            return {}
        if whole is not None and stream is not None:
            self._notes.add((*here, "timeout"), "calls that do not stream have the same limit: stream_timeout is used")
        return {"ttft_timeout_s": clock, "stall_timeout_s": clock}

    def _params(self, params: dict[str, Any], here: Place) -> dict[str, Any]:
        """Return the rest: LiteLLM sends these with every request that does not set them."""
        kept = {}
        for word, value in params.items():
            if (remark := fields().remark("litellm_params", word)) is not None:
                if is_set(value):
                    self._notes.add((*here, word), remark)
            elif word.startswith(_LITELLMS_OWN) and word not in _OF_REQUESTS:
                if is_set(value):
                    self._notes.add((*here, word), UNKNOWN)
            elif value is not None:
                if word not in _OF_REQUESTS:
                    self._notes.add((*here, word), "unknown: used as a parameter of requests (`defaults`)")
                kept[word] = self._variables.named(word, value, (*here, word))
        return kept

    def _number(self, value: Any, place: Place) -> float | None:
        if value is None or isinstance(value, bool):
            return None
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = inf
        if not isfinite(number):
            self._notes.add(place, "must be a number here, not a variable: left out")
            return None
        return number


def _apis(target: ResolvedModel, info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the APIs that the entry is for; empty if it does not say."""
    return target.apis or fields().apis.get(str(info.get("mode")), ())


def _is_through_litellm(address: Address, target: ResolvedModel) -> bool:
    """Whether the litellm library is used for the vendor."""
    of_vendor = target.vendor is not None and target.vendor.kind == "litellm"
    return address.kind == "litellm" or target.prefix is not None or of_vendor
