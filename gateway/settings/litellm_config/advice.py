"""Remarks on LiteLLM's settings that have no counterpart here: data."""

from collections.abc import Mapping

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
