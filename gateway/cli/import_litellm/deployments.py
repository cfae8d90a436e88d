"""Converts an entry of LiteLLM's ``model_list`` to a deployment, and separates the settings of its model."""

from collections.abc import Hashable, Iterator, Mapping
from math import inf, isfinite
from typing import Any

import msgspec

from gateway.cli.import_litellm.addresses import Address, Addresses, ResolvedModel, frozen, resolve
from gateway.cli.import_litellm.notes import Notes, Variables, is_reference, is_set, section
from gateway.settings import Catalog, Place

# Remarks on LiteLLM's settings that have no counterpart here: data.

_LIMITS = "no counterpart: limits are read from the providers' own answers (headers, 429 and retry-after)"
_RETRIES = "no counterpart: after a failed attempt the next deployment runs at once, then `fallbacks`"
_COOLING = "no counterpart: failures and retry-after decide how long a deployment cools down"
_CALLBACKS = "no counterpart: every attempt is a row in SQL (`holeshot sql`), and /metrics is there for Prometheus"
_CACHE = "no counterpart: answers are not cached; put a cache in front of the gateway"
_TAGS = "no counterpart: send x-holeshot-tags for the ledger, or restrict a client with models, only and ignore"
_SPEND = "no counterpart: spend is in the ledger; only the extra cost of races has a limit (race.usd_per_day)"
_KEYS = "no counterpart: keys are entries of `clients`, made with `holeshot keys new NAME`"
_FILES = "no counterpart: files, batches and fine-tuning are not routed; call the provider itself"
_BUILT_IN = "not needed: this is always so"
_NOT_HERE = "no counterpart: left out"

PARAMS: Mapping[str, str] = {
    "additional_drop_params": "no counterpart: the catalog has what a vendor rejects; else set drop_params",
    "allowed_openai_params": "not needed: unknown fields are passed on",
    "api_version": "no counterpart: only Azure has versions",
    "budget_duration": _SPEND,
    "configurable_clientside_auth_params": "no counterpart: clients never choose a provider's key or address",
    "cooldown_time": _COOLING,
    "default_api_key_rpm_limit": _LIMITS,
    "default_api_key_tpm_limit": _LIMITS,
    "input_cost_per_second": "no counterpart: prices are per token (price_per_mtok)",
    "itpm": _LIMITS,
    "max_budget": _SPEND,
    "max_retries": _RETRIES,
    "merge_reasoning_content_in_choices": "no counterpart: answers are passed on unchanged",
    "mock_response": "no counterpart: without any provider, `holeshot serve` starts simulated ones",
    "num_retries": _RETRIES,
    "otpm": _LIMITS,
    "output_cost_per_second": "no counterpart: prices are per token (price_per_mtok)",
    "rpm": _LIMITS,
    "tag_regex": _TAGS,
    "tags": _TAGS,
    "tpm": _LIMITS,
    "use_in_pass_through": "no counterpart: there are no pass-through endpoints",
    "use_litellm_proxy": "no counterpart: the provider is asked directly",
}

MODEL_INFO: Mapping[str, str] = {
    "access_groups": "no counterpart: list a client's models in clients.NAME.models",
    "base_model": "no counterpart: set price_per_mtok of the deployment to see its cost",
    "description": _NOT_HERE,
    "id": "no counterpart: deployments are named provider/model; give one another name with `as:`",
    "max_tokens": "not converted: set max_input_tokens and max_output_tokens as context_tokens and max_output_tokens",
    "team_id": _KEYS,
    "team_public_model_name": _KEYS,
    "version": _NOT_HERE,
}

ROUTER: Mapping[str, str] = {
    "alerting_config": _CALLBACKS,
    "allowed_fails": _COOLING,
    "allowed_fails_policy": _COOLING,
    "cache_kwargs": _CACHE,
    "cache_responses": _CACHE,
    "caching_groups": _CACHE,
    "client_ttl": _NOT_HERE,
    "cooldown_time": _COOLING,
    "debug_level": "no counterpart: set log_level",
    "default_max_parallel_requests": "no counterpart: set max_in_flight of each deployment",
    "disable_cooldowns": _COOLING,
    "enable_health_check_routing": _BUILT_IN + ": broken deployments are probed by one request at a time",
    "enable_pre_call_checks": _BUILT_IN + ": a deployment that cannot answer a request does not run",
    "enable_tag_filtering": _TAGS,
    "enable_weighted_failover": _BUILT_IN,
    "max_fallbacks": "no counterpart: each of a model's fallbacks is tried once",
    "model_group_retry_policy": _RETRIES,
    "num_retries": _RETRIES,
    "optional_pre_call_checks": "not needed: unfit deployments do not run; cache_affinity keeps conversations warm",
    "provider_budget_config": _SPEND,
    "retry_after": _COOLING,
    "retry_policy": _RETRIES,
    "routing_groups": "no counterpart: set `race` of each model",
    "routing_strategy_args": "no counterpart: docs/steering.md says how the leaderboard ranks",
    "set_verbose": "no counterpart: set log_level: debug",
    "tag_filtering_match_any": _TAGS,
}

LITELLM: Mapping[str, str] = {
    "allowed_fails": _COOLING,
    "budget_duration": _SPEND,
    "cache": _CACHE,
    "cache_params": _CACHE,
    "callbacks": _CALLBACKS,
    "cooldown_time": _COOLING,
    "default_internal_user_params": _KEYS,
    "default_team_settings": _KEYS,
    "failure_callback": _CALLBACKS,
    "guardrails": "no counterpart: put a filter before the gateway",
    "langfuse_default_tags": _CALLBACKS,
    "max_budget": _SPEND,
    "max_end_user_budget": _SPEND,
    "max_internal_user_budget": _SPEND,
    "modify_params": "no counterpart: requests are passed on unchanged",
    "num_retries": _RETRIES,
    "num_retries_per_request": _RETRIES,
    "redact_messages_in_exceptions": _BUILT_IN,
    "redact_user_api_key_info": _BUILT_IN,
    "service_callback": _CALLBACKS,
    "service_callbacks": _CALLBACKS,
    "ssl_verify": "no counterpart: certificates are always checked; add yours to the system's, or set SSL_CERT_FILE",
    "success_callback": _CALLBACKS,
    "telemetry": "not needed: the gateway sends no telemetry",
    "turn_off_message_logging": _BUILT_IN + ": prompts and answers are not stored",
    "upperbound_key_generate_params": _KEYS,
}

GENERAL: Mapping[str, str] = {
    "alerting": _CALLBACKS,
    "alerting_threshold": _CALLBACKS,
    "allow_requests_on_db_unavailable": _BUILT_IN,
    "allow_user_auth": _KEYS,
    "allowed_routes": "no counterpart: left out",
    "background_health_checks": _BUILT_IN + ": broken deployments are probed by one request at a time",
    "cancel_on_disconnect": _BUILT_IN,
    "completion_model": "no counterpart: requests name their model",
    "custom_auth": _KEYS,
    "database_connection_pool_limit": _NOT_HERE,
    "database_connection_timeout": _NOT_HERE,
    "disable_spend_logs": "no counterpart: the ledger is always written; it holds no prompts",
    "enable_jwt_auth": _KEYS,
    "global_max_parallel_requests": "no counterpart: set max_in_flight of deployments",
    "health_check_interval": _BUILT_IN + ": broken deployments are probed by one request at a time",
    "infer_model_from_keys": "not needed: without `providers`, each one whose key is in the environment can be called",
    "key_management_settings": "no counterpart: let your platform put secrets into variables or files (file:/path)",
    "key_management_system": "no counterpart: let your platform put secrets into variables or files (file:/path)",
    "litellm_jwtauth": _KEYS,
    "max_parallel_requests": "no counterpart: set max_in_flight of deployments",
    "pass_through_endpoints": "no counterpart: there are no pass-through endpoints",
    "proxy_batch_write_at": _NOT_HERE,
    "proxy_budget_rescheduler_max_time": _SPEND,
    "proxy_budget_rescheduler_min_time": _SPEND,
    "salt_key": _NOT_HERE,
    "store_model_in_db": "models added in LiteLLM's UI are not in this file: add them under `models`",
    "store_prompts_in_spend_logs": "no counterpart: prompts and answers are not stored",
    "ui_access_mode": _NOT_HERE,
    "ui_password": _NOT_HERE,
    "ui_username": _NOT_HERE,
    "use_redis_transaction_buffer": _NOT_HERE,
}

SECTIONS: Mapping[str, str] = {
    "assistant_settings": _FILES,
    "callback_settings": _CALLBACKS,
    "files_settings": _FILES,
    "finetune_settings": _FILES,
    "guardrails": "no counterpart: put a filter before the gateway",
    "mcp_servers": "no counterpart: the client runs the tools",
    "mcp_tools": "no counterpart: the client runs the tools",
    "policies": "no counterpart: put a filter before the gateway",
    "prompts": "no counterpart: left out",
    "search_tools": "no counterpart: the client runs the tools",
    "vector_store_registry": _FILES,
}

UNKNOWN = "no counterpart known: left out"


_CREDENTIALS = ("aws_", "vertex_", "watsonx_", "azure_", "oci_", "sap_", "anthropic_")
_CREDENTIAL_NAMES = frozenset({"api_version", "client_id", "client_secret", "tenant_id", "bedrock_tags"})
_REGIONS = ("region_name", "aws_region_name", "vertex_location", "watsonx_region_name")
_PRICES: Mapping[str, str] = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_creation_input_token_cost": "cache_write",
    "output_cost_per_reasoning_token": "reasoning",
}
_CAPABILITIES: Mapping[str, str] = {
    "supports_function_calling": "tools",
    "supports_response_schema": "json_schema",
    "supports_vision": "vision",
    "supports_audio_input": "audio",
    "supports_pdf_input": "documents",
    "supports_reasoning": "reasoning",
    "max_input_tokens": "context_tokens",
    "max_output_tokens": "max_output_tokens",
}
_APIS: Mapping[str, tuple[str, ...]] = {
    "completion": ("completions",),
    "responses": ("responses",),
    "embedding": ("embeddings",),
    "moderation": ("moderations",),
    "rerank": ("rerank",),
    "image_generation": ("images",),
    "image_edit": ("images",),
    "audio_transcription": ("audio",),
    "audio_speech": ("audio",),
}
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
                self._notes.add((*here, word), PARAMS[word])
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
                self._notes.add((*here, word), PARAMS.get(word, UNKNOWN))
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
        for word, ours in _PRICES.items():
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
        for word, value in info.items():
            if word in _CAPABILITIES and value is not None:
                yield _CAPABILITIES[word], self._variables.plain(value, (*place, word))
            elif word not in _PRICES and word not in ("mode", "blocked") and is_set(value):
                self._notes.add((*place, word), MODEL_INFO.get(word, UNKNOWN))

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
            if word in PARAMS:
                if is_set(value):
                    self._notes.add((*here, word), PARAMS[word])
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
    return target.apis or _APIS.get(str(info.get("mode")), ())


def _is_through_litellm(address: Address, target: ResolvedModel) -> bool:
    """Whether the litellm library is used for the vendor."""
    of_vendor = target.vendor is not None and target.vendor.kind == "litellm"
    return address.kind == "litellm" or target.prefix is not None or of_vendor
