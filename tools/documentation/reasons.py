"""The purpose of each key of the configuration and the reason of its default, by its section's class, then by key.

Types, bounds and defaults come from the JSON Schema. A test fails if a key has no reason, or a reason no key.
"""

from collections.abc import Mapping

from gateway.core.modes import SAID

Reasons = Mapping[str, str]

_TIMEOUTS: Reasons = {
    "connect_timeout_s": "How long a connection to the provider may take: DNS, TCP and TLS.",
    "ttft_timeout_s": (
        "How long the first token may take, from the launch on. Long, for models that think first: the next deployment"
        " is started much sooner. Where a provider may be holding back a tool call until the call is whole, the default"
        " is up to 600 s."
    ),
    "stall_timeout_s": (
        "How long a stream may send nothing; after its first text 60 s at most, or half of this setting if that is"
        " more. Comments, pings and empty events do not count as something, except while a tool call may be in the"
        " making ([calls that come whole](../answers.md#calls-that-come-whole))."
    ),
    "total_timeout_s": "How long the whole answer may take.",
}
_USE: Reasons = {
    "usd_per_hour": "US dollars in an hour of the clock of `limits_zone`, at list price, losers included.",
    "usd_per_day": "US dollars in a day of `limits_zone`, at list price, losers included.",
    "usd_per_week": "US dollars in a week of `limits_zone`, from Monday on (ISO 8601).",
    "usd_per_month": "US dollars in a calendar month of `limits_zone`.",
    "usd_total": "US dollars in all, for ever: a restart, and rows that are deleted, change nothing.",
    "tokens_per_hour": "Tokens of prompts and answers in an hour of the clock of `limits_zone`, without losers.",
    "tokens_per_day": "Tokens of prompts and answers in a day of `limits_zone`, without losers.",
    "tokens_per_week": "Tokens in a week of `limits_zone`, from Monday on.",
    "tokens_per_month": "Tokens in a calendar month of `limits_zone`.",
    "tokens_total": "Tokens in all, for ever.",
}
_LIMITS: Reasons = {
    "rpm": "Requests in a minute.",
    "tpm": "Tokens in a minute, of prompts and answers, without losers.",
    "max_parallel": "Calls at the same time.",
    **_USE,
}

_PRICE_CHANGE: Reasons = {
    "input": "Tokens of prompts.",
    "output": "Tokens of answers.",
    "cached_input": "Tokens of prompts read from the prompt cache.",
    "cache_write": "Tokens of prompts written to the prompt cache.",
    "cache_write_1h": "Tokens of prompts written to the prompt cache for an hour.",
    "reasoning": "Tokens of thinking.",
    "audio_input": "Tokens of sound in prompts.",
    "audio_output": "Tokens of sound in answers.",
    "image_input": "Tokens of pictures in prompts.",
    "image_output": "Tokens of pictures in answers.",
}

REASONS: Mapping[str, Reasons] = {
    "Settings": {
        "limits_zone": (
            "The zone in which hours, days, weeks and months of limits begin, by its name in the IANA database. When"
            " the zone is changed, what was used on a date still counts."
        ),
        "host": "The address to listen on. Any other than this machine's own, such as `0.0.0.0`, needs `clients`.",
        "port": "The TCP port. 0 takes any free one, which the log names.",
        "workers": "Processes that share the port; each uses about one core. Several need Postgres and `redis_url`.",
        "replica": "The name of this gateway in the ledger.",
        "region": "Where this gateway runs: a text of your own, to compare regions in SQL.",
        "database_url": (
            "The ledger's database. In production use `postgresql://user:${PGPASSWORD}@host:5432/holeshot`."
        ),
        "reports_database_url": (
            "A streaming replica of `database_url`, for what only reads for people: the page, `/api`, `sql`,"
            " `replay`, `slowdowns`, `leaderboard --since`. While it is away these get 503."
        ),
        "redis_prefix": "The beginning of all keys in Redis. Environments that share one Redis need one each.",
        "redis_url": (
            "Shares leaderboard and limits between workers and replicas: one Redis or Valkey, a Cluster, or the"
            " master that Sentinels name ([how to write it](../guides/replicas.md#redis))."
        ),
        "spool_dir": "The folder of rows that are not in the database yet: on a disk that survives a crash.",
        "max_body_mb": "The largest body of a request in MiB, unpacked.",
        "trusted_proxies": "Addresses (CIDR) of your own proxies, whose `x-forwarded-for` is believed.",
        "lame_duck_s": (
            "After SIGTERM, how long calls are still answered while `/health/ready` says 503, so that load balancers"
            " notice. After SIGINT 0."
        ),
        "shutdown_grace_s": "How long running calls may then go on.",
        "log_level": "The least level that is written. Above `info` there is no line for each call.",
        "log_format": "`console` is for people, `json` for programs. `auto`: `console` on a terminal.",
        "queue_timeout_s": (
            "How long a call waits in all while every deployment has `max_in_flight` requests; then it gets 429."
        ),
        "max_requests": (
            "How many requests one call makes at most, whatever its deployments, keys, forms and fallbacks. Those that"
            " found no connection do not count. A ring of more keys than this is not tried to its end: the last request"
            " is another deployment's, where there is one. By default 15, or one more than the longest ring has keys,"
            " where that is more, but at most 25."
        ),
        "tags_from_metadata": (
            "Keys of a request's `metadata` that become tags of its call, unless `x-holeshot-tags` has them. All of"
            " it is forwarded."
        ),
        "responses_store": (
            "The value of `store` for requests to `/v1/responses` without one. The API's own default is true, but a"
            " stored answer cannot be raced."
        ),
        "response_ids_ttl_s": "How long the gateway remembers which provider has a stored response: 30 days. In Redis,"
        " else in the ledger, as hashes.",
        "provider_state": (
            "What clients may name that a provider stores under your key"
            " ([more](../security.md#what-lies-at-a-provider)). `own`: what answers to the same client gave it;"
            " `any`: also what others have there; `none`: nothing."
        ),
        "mcp_hosts": (
            "MCP servers that a provider may call for clients, by host (`mcp.example.com`, `*.example.com`, `*`),"
            " and connectors, by id (`connector_gmail`). Without clients, all."
        ),
        "keys": (
            "Where clients' keys are. `database`: also in the ledger's, where they can be changed at run time. Every"
            " call needs a key then. On equal names the file wins."
        ),
        "cors": (
            "Origins of web pages that may call `/v1` from a browser, each with a key of its own. Whoever opens a"
            " page can read its key."
        ),
    },
    "TlsSettings": {
        "certificate": "The PEM file of the certificate, with its chain; read again when it changes.",
        "key": "The PEM file of its key, without a passphrase; read again when it changes.",
        "min_version": "The oldest version of TLS.",
    },
    "LedgerSettings": {
        "keep_calls_days": "Older rows of `calls` are deleted each hour.",
        "keep_attempts_days": (
            "Older rows of `attempts` are deleted. There are more of them than of calls, and they are larger: shorten"
            " these first."
        ),
        "keep_rollups_days": (
            "Older sums by hour and day are deleted. Sums are small. Those that limits in dollars need are kept for 31"
            " days at least."
        ),
        "keep_refusals_days": "Older rows of `refusals` are deleted. Requests without a key make such rows.",
        "keep_outages_days": "Older rows of `outages` and `slowdowns` are deleted.",
        "slowdowns": (
            "Whether the gateway looks for deployments that got slower"
            " ([detector](../monitoring.md#when-a-provider-gets-slower))."
        ),
        "required": (
            "Whether a call is refused with 503 `ledger_unavailable` while neither the database nor the disk takes"
            " its row. `ledger: required` means the same."
        ),
        "keep_probes_days": "Older rows of `probes` are deleted.",
    },
    "RefusalSettings": {
        "addresses": "Whether ledger and log have the addresses that refused requests came from.",
    },
    "ClickHouseSettings": {
        "url": "The server, its user and its database: `https://user:password@host:8443/database`.",
        "keep_days": "For how many days rows are kept there. Not set: for ever.",
        "max_spool_gb": (
            "How many gigabytes of rows wait on disk while ClickHouse is away. Beyond that the oldest are not sent;"
            " SQL has them."
        ),
    },
    "AlertSettings": {
        "enabled": "Whether anything is looked for.",
        "model_out_s": "Alert when no deployment of a model can answer for so long.",
        "deployment_out_s": "Alert when one deployment is out for so long. Others answer meanwhile.",
        "ledger_behind_s": "Alert when a row waits for the database for so long.",
        "spending_share": "Alert when a client has spent this share of its `usd_per_day` or `usd_per_month`.",
        "usd_per_day": "Alert when all clients together have spent so much in a UTC day. It stops nobody.",
        "usd_per_month": "Alert when all clients together have spent so much in a UTC month.",
        "burn_least_bad": "How many bad calls a target's burn rate needs before it opens an alert.",
        "resolve_after_s": "An alert ends when its cause was not seen for so long.",
    },
    "WebhookSettings": {
        "url": "Where messages are sent by POST. It is kept secret.",
        "secret": (
            "Signs each message: `echo whsec_$(openssl rand -base64 32)`. Needed with `format: json`; Slack checks"
            " none."
        ),
        "format": "`json` for programs, `slack` for Slack, Mattermost or Rocket.Chat.",
        "tickets": "Whether this webhook also gets alerts that can wait until tomorrow.",
    },
    "BodyLimits": {
        "max_values": (
            "The most JSON values (objects, arrays, strings, numbers) of a request that must be translated, or read"
            " here. More get 400 `too_many_values`. The largest requests of agents have 21,000 to 35,000."
        ),
    },
    "ConnectionSettings": {
        "max": "Most connections without an admitted request, for each worker; about 20 kB each.",
        "max_per_address": (
            "Most such connections from one address (for IPv6: one /64), which clients behind one proxy or NAT share."
        ),
        "headers_timeout_s": "How long TLS and the headers of a request may take together.",
        "headers_max_kb": (
            "Most KB of a request's headers, and of each; then 431. nginx takes 32 KB in all, of each 8 KB"
            " (`large_client_header_buffers`). A path may have 8 KB."
        ),
    },
    "OverloadSettings": {
        "max_in_flight": "Most calls at once, for each worker. Not set: what memory and file descriptors allow.",
        "loop_delay_ms": (
            "A turn of the event loop runs once all that is ready, and a first token waits for some turns. While turns"
            " take longer than this, fewer calls are let in. From a quarter of this on, tokens are sent in batches, at"
            " most 50 ms apart. 0: neither."
        ),
        "queue": "How many calls may wait for room, ordered by their client's `priority`. 0: none waits.",
        "queue_timeout_s": "How long they may wait. Then they get 503. 0: not at all.",
    },
    "TracingSettings": {
        "enabled": "Whether spans are sent. It needs a collector and the extra [`otel`](../start.md#extras).",
        "endpoint": (
            "URL of the collector, without `/v1/traces`. Not set: `OTEL_EXPORTER_OTLP_ENDPOINT`, else"
            " `http://localhost:4318`."
        ),
        "headers": "Sent with each export, such as the collector's key. Not set: `OTEL_EXPORTER_OTLP_HEADERS`.",
        "timeout_s": "How long one export may take with its retries. Not set: `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10 s.",
        "sample_ratio": "The share of traces that begin here. A call with a `traceparent` follows the flag in it.",
        "propagate": "Whether providers are sent `traceparent` and `tracestate`.",
        "service_name": "The service's name in traces. Not set: `OTEL_SERVICE_NAME`, else `holeshot`.",
        "resource_attributes": "More attributes of all spans, before `OTEL_RESOURCE_ATTRIBUTES`.",
    },
    "DefaultTimeouts": _TIMEOUTS,
    "Timeouts": _TIMEOUTS,
    "ClientTimeouts": {
        "body_timeout_s": "How long the body of a request may take. A slower request gets 408.",
        "body_kib_per_s": (
            "For every so many KiB received, a body gets one second more: for large bodies over slow networks."
        ),
        "write_timeout_s": "A client that reads no byte of its answer for so long is disconnected.",
    },
    "ProviderSettings": {
        "preset": "The vendor of the catalog to start from, for a second key of one vendor. Not set: its own name.",
        "kind": "Not set: as the catalog says, else `openai_compatible`. `litellm` is for other APIs.",
        "apis": "Which APIs it has. Not set: as the catalog says.",
        "base_url": "Its URL, mostly with `/v1` at the end. Needed for a server of your own.",
        "paths": (
            "Where it has an API that is not below `base_url`: from the root of its host, `messages:"
            " /anthropic/v1/messages`. Name such an API in `apis`, too. Not set: as the catalog says of the vendor's"
            " own hosts."
        ),
        "api_key": (
            "Your key there, best as `${VARIABLE}`. Not set: the vendor's usual variable, such as `GROQ_API_KEY`,"
            " unless `base_url` is changed."
        ),
        "api_keys": (
            "Several keys: a request uses the key with the most room, and a conversation stays at the key that answered"
            " last. A list, or names for the ledger with their keys."
        ),
        "organization": "Sent as `openai-organization`.",
        "account": (
            "Providers with the same word here are one account at their vendor: its models read each other's encrypted"
            " thoughts. Not set: each provider is an account of its own, with all of its keys."
        ),
        "headers": "Sent with every request, and kept secret.",
        "query": "Parameters of every URL, such as Azure's `api-version`. No place for secrets.",
        "omits_finish_reason": (
            "Whether this server's streams of chat and completions end with `[DONE]` and no finish reason; such"
            " streams then count as whole. `holeshot check --live` sees which servers need it."
        ),
        "store": (
            "The value of `store` in requests of chat and generateContent that have none. Not set: requests to Google"
            " get `false` if they are in chat or translated; in generateContent they pass as they are ([what vendors"
            " keep](../security.md#what-vendors-keep))."
        ),
        "connection_age_s": (
            "Where a host name has several addresses: a connection of this age, or up to a quarter younger, is"
            " replaced by one to an address that has fewer, so that a server that was added later gets its share."
            " Running requests go on to their end. `null`: never."
        ),
        "http_version": "`auto` is HTTP/2 where TLS negotiates it, else 1.1. `2` without TLS is by prior knowledge.",
    },
    "HistorySettings": {
        "assistant_fields": "The fields of assistant messages that the server takes. Not set: all.",
        "call_fields": "The fields of tool calls that the server takes. Not set: all.",
        "refused_fields": (
            "Fields of messages and tool calls that other vendors' answers have and this server refuses. `thinking`:"
            " also thoughts among the parts of an answer, as Mistral has them."
        ),
        "missing_reasoning": (
            "The text sent as `reasoning_content` beside tool calls that have none, for a server that demands some."
        ),
        "user_after_tool": "`false`: a user's text after a tool's result is put at the end of that result.",
        "one_system": "`true`: instructions at the beginning become one system message, later ones a user's text.",
        "alternating": "`true`: several messages of one role in a row become one.",
        "plain_texts": "`true`: a list of texts becomes one text.",
    },
    "CallIdsSettings": {
        "longest": "Characters of the longest id that the server takes, at least 9.",
        "shortest": "Characters of the shortest id that the server takes.",
        "letters": "`alphanumeric` are letters and digits, `word` also `_` and `-`.",
    },
    "ModelSettings": {
        **_USE,
        "usd_per_day": (
            "US dollars that all calls of the model may cost in a day of `limits_zone`. When they are spent, its"
            " fallbacks answer; without any, calls get 429. The other limits in dollars and tokens work in the same"
            " way."
        ),
        "fallback_after": (
            "When its fallbacks are asked beside the model, if it has sent no first token"
            " ([how](../policy.md#a-late-model)). `auto`: after three times the 90th percentile of its time to first"
            " token; while fewer than ten are known, after 10 s, or less after calls that hung. A number: after so many"
            " seconds. `failure`: only when all of its deployments have failed."
        ),
        "keepalive_s": (
            "Sends a sign of life after each so many seconds of silence, before the first token and within the answer,"
            " for proxies that cut idle connections: a comment, Messages' `ping`, a ping of the WebSocket. Never within"
            " an event, and never in answers that do not stream. Before the first token it commits status 200, so"
            " errors then come inside the stream. Time limits go on as without it."
        ),
        "defaults": "Parameters for requests that do not set them, such as `{temperature: 0.2}`.",
        "maximums": "The largest values that requests may use, such as `{max_tokens: 8000}`.",
        "probes": "Whether its quiet deployments are probed. Not set: `probes.enabled`.",
        "cache_marks": (
            "`auto`: the gateway marks what is to be cached, in requests whose client marks nothing, for Claude at"
            " Anthropic's API and Bedrock's Converse, and for GPT from 5.6 to 6.1 ([when, and what it"
            " costs](../guides/coding-agents.md#cache-marks))."
        ),
        "system_prefix": "Put before the system prompt of each request.",
    },
    "DeploymentSettings": {
        "deployment": (
            "`provider/model`, as the provider names the model. A star stands for what the client's name has in place"
            " of the star of the model's name ([names that end in a star](../providers.md#names-that-end-in-a-star))."
        ),
        "as": "Its name in the ledger and on the leaderboard. Needed where `provider/model` is listed twice.",
        "enabled": "False: no new calls; running ones end normally.",
        "weight": "Its chance against others about as fast: 2 is chosen twice as often as 1.",
        "canary": "It gets this share of calls and no others, whatever its speed.",
        "apis": "Which APIs it has. Not set: its provider's.",
        "forced_tools": (
            "What happens to a request that forces a tool call (`tool_choice`) if the model takes no such choice, as"
            " Claude since Opus 5.5. `adapt`: the model is asked for JSON, which the client gets as the call, but only"
            " if no other deployment can be forced. `refuse`: the deployment is not asked."
        ),
        "drop_params": (
            "`true`: parameters that the model does not support are left out, and listed in `x-holeshot-dropped`."
            " `false`: the deployment does not get requests that have such parameters."
        ),
        "zdr": "Whether the deployment stores no prompts and answers. Clients may require it. Not set: unknown.",
        "region": "Where the deployment runs. Clients may require a region.",
        "same_as": (
            "Another deployment of the same model, where the names do not show that both are one model: embeddings are"
            " made by one model only."
        ),
        "hardware": "The hardware, such as `8 x H100`: a text of your own, which reports of `holeshot bench` have.",
        "quantization": "How the weights are stored, such as `fp8`. Clients may require one.",
        "extra_body": "Fields added to each request to the deployment. They win over the client's.",
        "extra_headers": "Headers added to each request to the deployment.",
        "upstream_stream": "False: the deployment cannot stream, and is raced on its whole answers.",
        "bills_after_disconnect": (
            "Whether a cancelled loser costs a whole answer there. Not set: as the catalog says, else unknown: then"
            " `cost_low_usd` and `cost_high_usd` differ much."
        ),
        "continues": (
            "How it is asked to finish an answer that another began ([each word](../answers.md#who-can-continue))."
            " Not set: as the catalog says, else not."
        ),
        "max_in_flight": "Most requests to it at a time from this replica, of all models. For servers of your own.",
        "max_in_flight_fleet": (
            "Most requests to it from all replicas together, which lease them from Redis"
            " ([how](../overload.md#one-limit-for-all-replicas)). Without `redis_url` this is the limit of each"
            " replica."
        ),
    },
    "CapabilitySettings": {
        "tools": "Whether it gets requests with tools.",
        "json_schema": "Whether it gets requests with a JSON schema (`response_format`).",
        "vision": "Whether it gets requests with pictures.",
        "audio": "Whether it gets requests with sound.",
        "documents": "Whether it gets requests with PDF files.",
        "reasoning": "Whether the model thinks. False: translated requests are sent without `reasoning_effort`.",
        "context_tokens": "The longest prompt in tokens.",
        "max_output_tokens": "The longest answer in tokens. Requests that ask for more are not sent to it.",
        "max_documents": "The most documents of a rerank.",
        "max_dimensions": "The longest vectors of embeddings.",
    },
    "PriceSettings": {
        **_PRICE_CHANGE,
        "web_search": (
            "US dollars for each search by the vendor's own tool. Not set: unknown, and then so is the cost of a call"
            " that searches."
        ),
    },
    "PriceChange": _PRICE_CHANGE,
    "TierPrice": _PRICE_CHANGE,
    "RaceSettings": {
        "profile": "A preset for a kind of call; settings beside it win ([what each sets](../concepts.md#profile)).",
        "objective": (
            "[What to optimize](../concepts.md#objective): `first_token`, `reading`, `completion`, `cost`. `auto`:"
            " reading for streamed chat, completion for whole answers, tools and JSON."
        ),
        "ttft_ms": (
            "The deadline of the first token: deployments that keep it are asked first, and hedges start in time for"
            " it."
        ),
        "reading_tok_s": "With objective reading: how fast answers are read; about 100 where they are spoken.",
        "min_tok_s": "A deployment that is slower after its first token is a last resort.",
        "mode": f"{', '.join(f'`{mode}` ({said.about})' for mode, said in SAID.items())}.",
        "width": "With mode race: how many attempts start at once.",
        "hedge_delay_s": "With mode hedge: when the second attempt starts. Not set: when the first is late.",
        "budget": (
            "Extra attempts per call, on average: 1.0 races the best two, 0.1 is economical, 0 asks a second only where"
            " the first fails or hangs."
        ),
        "usd_per_day": (
            "Limit for the cost of extra attempts in a UTC day at list price, of all replicas ([how it is"
            " spent](../policy.md#what-a-second-is-worth))."
        ),
        "extra_usd_per_call": "US dollars that each call saves up for extra attempts, at most those of 20 calls.",
        "value_usd_per_s": (
            "What a second is worth, in US dollars: with mode auto an extra attempt is planned only where it should"
            " save more than it costs ([how](../policy.md#what-a-second-is-worth)). Not set: the budget decides, and"
            " with `usd_per_day` the value at which that lasts all day. 0: the budget alone."
        ),
        "worth_ms": (
            "With mode auto, where `value_usd_per_s` does not decide, a further attempt starts with its call only if it"
            " should save so many milliseconds ([more](../policy.md#the-budget)); else it is a hedge. 0: the budget"
            " alone decides. A request can raise this value, not lower it."
        ),
        "win_on": (
            "What wins: `any` first token, `answer` (thinking alone does not win),"
            " [`sentence`](../answers.md#voice-the-first-sentence-wins) or [`valid`](../answers.md#first-valid-wins)."
        ),
        "hold": (
            "Whether a first token may wait for an attempt that should give the answer sooner. Not set: [as the"
            " objective is written](../policy.md#a-hold)."
        ),
        "keep_connected": (
            "Whether a connection to each of its deployments is open before a call needs it; an idle one is replaced"
            " every 25 s. It costs no tokens."
        ),
        "keep_rival": (
            "Whether the second attempt runs on behind the winner, and answers if the winner breaks. A whole answer's"
            " rival runs to its end, which costs two whole answers. A spoken stream's (`win_on: sentence`, with"
            " `takeover` on) runs while it says the same, and until the voice has 8 s of text. Not set: only for spoken"
            " streams under `profile: voice`."
        ),
        "third_request": (
            "With `profile: voice`, whether another deployment is asked as soon as all attempts of a call are late"
            " ([when](../answers.md#voice-the-first-sentence-wins)). Off: only when they hang, as under other profiles."
        ),
        "whole_sentences": (
            "With `profile: voice`, whether text goes out by whole sentences where no deployment could continue it"
            " ([more](../answers.md#a-stream-that-nearly-stops)). Off: as it comes."
        ),
        "invalid": (
            "With `win_on: valid`, if no answer is valid: `error` (502), or `best`, the one with the least flaw."
        ),
        "sentence_words": (
            "With `win_on: sentence`: after so many words an answer can be spoken, also without the end of a sentence."
        ),
        "max_prompt_tokens": "Longer prompts are hedged instead of raced, as every attempt pays for the prompt.",
        "audit_share": (
            "Share of calls whose losers run on until their first token, which may be billed, to measure what racing"
            " saves."
        ),
        "cache_affinity": "Whether a conversation prefers, among equally fast deployments, one that has it cached.",
    },
    "TakeoverSettings": {
        "when": "For which calls: `never`, `asked` (requests that ask for it), `always` (all but those that decline).",
        "within_s": "How long the client waits for more text before it is told of the error.",
    },
    "SlowSettings": {
        "below_tps": (
            "Tokens per second. A stream that is faster is never rescued, and neither is one that still has a fifth of"
            " the usual speed, or a quarter of its own deployment's."
        ),
        "budget": "Rescues per streamed answer that could be rescued; at most ten are saved up.",
    },
    "FallbackSettings": {
        "model": "The name of another model of the file.",
        "causes": (
            "For which: `failed` (no deployment answered), `context` (the prompt is too long), `content_filter` (its"
            " providers refuse the content)."
        ),
        "fallback_after": "When it is asked beside the late model. Not set: as the model says.",
    },
    "ClientSettings": {
        **_LIMITS,
        "key_sha256": (
            "The SHA-256 of its key, which `holeshot keys new NAME` prints. Several while a key is replaced. Not"
            " set: only tokens name the client (`issuers`)."
        ),
        "admin": "The older word for `role: admin`.",
        "role": (
            "`client` makes calls. `viewer` reads the page, `/metrics`, `/leaderboard` and the list of keys."
            " `operator` does both. `admin` also changes keys."
        ),
        "expires": "When its keys end: a date (its beginning, UTC) or an instant like `2030-01-31T18:00:00Z`.",
        "adhoc": "Whether it may name `provider/model`, and lists of them.",
        "max_width": "The widest race that its requests may ask for. With 1, `race` means the model's own mode.",
        "profile": "How its calls are raced, before the models' settings.",
        "override": "Whether its requests may set how they are raced (the field `race`, the header `x-holeshot-race`).",
        "models": "The models that it may use, also names with a star at the end (`claude-*`). Not set: all.",
        "only": "The providers that may get its prompts. Not set: all.",
        "ignore": "The providers that never get its prompts.",
        "limits_zone": (
            "The zone of its hours, days, weeks and months, as `Europe/Berlin`; by default `limits_zone` of all."
        ),
        "team": "One of `teams`, whose limits count its calls too.",
        "end_user": "The end user of all its calls. Not set: each request may name one.",
        "priority": "When there are too many calls, higher ones are served first and refused last.",
        "provider_keys": (
            "Its own keys of providers, by name. Its calls use these providers only, and cost you nothing"
            " ([more](../keys.md#keys-that-clients-bring)). Not for clients in the database."
        ),
        "unpriced": (
            "What happens if a limit in dollars applies and a deployment bills a unit whose price is not known."
            " `refuse`: it gets none of its calls. `count_known`: what is known counts. Not set: speech is refused."
        ),
    },
    "DataPolicy": {
        "zdr": "Only deployments with `zdr: true` get its prompts.",
        "regions": "Only deployments in these regions get its prompts.",
        "quantizations": "Only deployments with these quantizations get its prompts.",
    },
    "IssuerSettings": {
        "issuer": "The token's `iss`, to the letter. Its discovery document is below this address.",
        "audience": "What must be in the token's `aud`; of several, one.",
        "algorithms": "The algorithms with which its tokens may be signed.",
        "jwks_url": "Where its public keys are. Not set: as its discovery document says.",
        "typ": "The `typ` of its tokens' header: `at+jwt` (RFC 9068), or `JWT` for issuers that write this or none.",
        "claim": "The claim whose value names the client. If the value is a list, any item may name it.",
        "clients": (
            "Which client a value of the claim stands for. Not set: the value is the name of a client, which must"
            " have the role `client`."
        ),
        "client": (
            "Instead of both: the client that all valid tokens of this issuer are"
            " ([people of a company](../keys.md#people-of-a-company)). It must have the role `client`."
        ),
        "end_user": (
            "The claim that says who a token's person is: `sub`, `oid`, or `email`, which counts only where"
            " `email_verified` is true. Limits of end users then bind. Needs `client`."
        ),
        "teams": (
            "By claim: the team of each of its values, as `{ groups: { eng: platform } }`. The first that a token has"
            " counts. Needs `client`."
        ),
        "team": "The team of tokens to which `teams` gives none. Not set: such tokens are refused.",
        "requires": "Other claims, and a value that each must be or contain.",
        "company_only": (
            "Says that all who have an account at this issuer are of your company. Needed with `client` where the"
            " address does not show it, unless `requires` names the company."
        ),
        "deny": "Tokens whose `sub` or `jti` is one of these are refused, and their calls cancelled.",
        "leeway_s": "How far the issuer's clock may be from the gateway's.",
    },
    "LoginSettings": {
        "client_id": "The client id at the issuer with which laptops sign in. It is no secret.",
        "client_secret": (
            "For issuers where even public clients have one (Google). Every laptop gets it, so it must protect nothing"
            " else."
        ),
        "scopes": "What is asked for. `offline_access` renews the sign-in at most issuers.",
        "sends": (
            "Which token laptops send here. `id`: the ID token, of this client alone, where access tokens are no JWTs"
            " (Google)."
        ),
        "parameters": "More fields of the request that begins the device flow. Auth0 needs `audience`.",
    },
    "SignInSettings": {
        "issuer": "The provider's `issuer`, to the letter. Its discovery document is below this address.",
        "client_id": "The page's name at the provider.",
        "client_secret": "Not set: a public client, which PKCE alone protects.",
        "algorithms": "The algorithms with which ID tokens may be signed.",
        "scopes": "What is asked for. `openid` must be there.",
        "groups": "The claim with a person's groups.",
        "viewers": "Groups whose people are viewers.",
        "operators": "Groups whose people are operators.",
        "admins": "Groups whose people are admins, whatever other groups they are in.",
    },
    "PageSettings": {
        "public_url": "Where browsers find the gateway. Providers send people back to `api/signed-in` below it.",
        "people": (
            "Issuers (of `issuers`) whose people see their own calls: with a token, and on the page after `sign_in` at"
            " the same issuer. They need `client` and `end_user` ([keys](../keys.md#people-and-their-own-calls))."
        ),
        "signing_key": "Signs the page's cookies. The same in all replicas ([security](../security.md)).",
    },
    "TrustedHeader": {
        "name": "Such as `x-forwarded-email`. The proxy must replace it in every request.",
        "from": "The proxy's own addresses (CIDR).",
        "role": "The role of everybody who comes that way.",
    },
    "TargetSettings": {
        "model": "Calls of this model. Not set: of all.",
        "client": "Calls of this client. Not set: of all.",
        "profile": "Calls raced under this profile; its speeds count, if none are set.",
        "preset": (
            "The profile whose speeds a good call has: `chat` 30 tok/s, `voice` 100 tok/s, `batch` `ttft_ms` 30000."
        ),
        "objective": "The share of calls that is to be good.",
        "days": "Over how many days.",
        "ttft_ms": "A good call has its first token sooner.",
        "tok_s": "A good call has at least so many tokens per second after the first.",
        "gap_ms": "A good call has no two chunks further apart.",
    },
    "PriceTableSettings": {
        "file": (
            'A JSON file of rows in litellm\'s format, by model: `{"gpt-6.2-sol": {"litellm_provider": "openai",'
            ' "input_cost_per_token": 2e-6, "output_cost_per_token": 1e-5}}`. Its rows win over those of the release.'
            " Read at the start and at each reload; while there is none, nothing is added."
        ),
        "url": "Where `holeshot models --prices` looks for a newer table. A gateway never asks there by itself.",
    },
    "ResponsesMemorySettings": {
        "max_mb": (
            "How many megabytes are kept in each process. If that is full, the client that has most loses its oldest."
        ),
        "ttl_s": "How long each is kept after its last use.",
        "redis": "Whether other replicas find them in Redis, encrypted with the answer's id.",
    },
    "ProbeSettings": {
        "enabled": "Whether quiet deployments are probed, which costs money.",
        "quiet_s": "A deployment without any attempt for so long is probed.",
        "usd_per_day": "The most that probes of all replicas cost in a UTC day.",
        "max_per_day": "The most probes of all replicas in a UTC day.",
        "prompt": "The prompt, after a few random characters against caches.",
        "max_tokens": "The longest answer.",
        "usd_if_unknown": "What a probe counts as where no price is known. Not set: such deployments are not probed.",
    },
    "SecretSettings": {
        "exec": "Whether `${exec:command}` may run programs, as the gateway's user, for whoever can write the file.",
        "exec_every_s": "How often each command runs again.",
        "exec_timeout_s": "A command that takes longer is killed, with all processes that it started.",
    },
    "TenantKeySettings": {
        "header": (
            "Whether requests may bring keys of providers, in `x-holeshot-provider-keys`. Else such a request gets 400."
        ),
        "mixed": (
            "Whether calls that bring keys may also use the model's other providers, with your keys, within your"
            " limits in dollars."
        ),
    },
    "LimitSettings": _LIMITS,
    "TeamSettings": _LIMITS,
    "EndUserSettings": {
        **_LIMITS,
        "header": "The header that names the end user where the body does not, such as `x-end-user`.",
    },
}

# Defaults that are not in the schema: they are secrets, or depend on other keys.
DEFAULTS: Mapping[tuple[str, str], str] = {
    ("Settings", "database_url"): "`sqlite:///var/holeshot.db`",
    ("Settings", "replica"): "the host's name",
    ("PageSettings", "signing_key"): "the password in `database_url`, with SQLite a random key in a file beside it",
    ("RaceSettings", "budget"): "1.0, or `width` - 1 if that is more",
    ("ClientSettings", "role"): "`client`",
}

# The purpose of a section, where the description of its class does not fit its place.
SECTIONS: Mapping[str, str] = {
    "teams.NAME": "What all keys of a team may use together.",
    "teams.NAME.end_users": "What each end user of the team may use. Not set: as `end_users` says.",
    "teams.NAME.end_users.named.NAME": "Other limits, instead of these, for an end user whom requests call NAME.",
    "end_users.named.NAME": "Other limits, instead of these, for an end user whom requests call NAME.",
    "end_users": (
        "What each end user of a client may use, unless its team says otherwise. Requests say who it is: this"
        " protects against accidents, not against a client that lies."
    ),
    "anonymous": "What all programs on this machine may use together, while there are no clients.",
    "tls": "Without it the port speaks plain HTTP, for this machine or for a proxy in front.",
    "timeouts": (
        "The time limits of an attempt. Providers, models and deployments may set their own; the closest one wins."
        " Each has its own error kind ([errors](errors.md#why-an-attempt-failed))."
    ),
    "providers.NAME.timeouts": "For this provider, before [`timeouts`](#timeouts).",
    "models.NAME.timeouts": "For this model, before its providers'.",
    "models.NAME.deployments[].timeouts": "For this deployment, before its model's.",
    "models.NAME.deployments[].price_per_mtok": (
        "US dollars per million tokens, instead of the price table's (`holeshot providers` shows it). Not set: kinds"
        " of input cost as `input`, an hour's cache as `cache_write`, thinking and kinds of output as `output`."
    ),
    "models.NAME.deployments[].price_per_mtok.above_tokens.NAME": (
        "By number of tokens: the prices of calls whose prompt has more, for the whole call."
    ),
    "models.NAME.deployments[].price_per_mtok.tiers.NAME": (
        "Prices by `service_tier`, such as `priority` or `flex`. If none is listed, all tiers cost the same; if some"
        " are, the prices of the others are unknown."
    ),
    "models.NAME.deployments[].price_per_mtok.tiers.NAME.above_tokens.NAME": (
        "As `above_tokens` of the price, for calls in this tier. Not set: such prices are unknown."
    ),
    "clients.NAME": (
        "Who may call, known by the SHA-256 of a key. [Limits](../limits.md) are those of all its keys and all"
        " replicas; not set: no limit."
    ),
    "clients.NAME.require": "Only deployments like this get its prompts.",
    "slo.NAME": (
        "A target: which share of the calls of `model`, `client` and `profile` is to be how fast"
        " ([targets](../monitoring.md#targets))."
    ),
    "page.trusted_header": "A header in which a proxy names the person who has signed in there.",
    "alerts": "When there is an [alert](../monitoring.md#alerts-and-targets): a line of the log, a row, and a message.",
    "alerts.webhooks.NAME": "Where messages about alerts are sent. `holeshot alerts test` tries them.",
    "overload": (
        "How many calls a worker takes on; the others wait a moment, then get 503 ([overload](../overload.md))."
    ),
    "secrets": "How values are read that the file does not hold itself ([secrets](../keys.md#secrets)).",
    "tracing": "OpenTelemetry over OTLP/HTTP ([tracing](../monitoring.md#traces)).",
    "probes": "The gateway's own small calls to deployments that nobody calls ([probes](../monitoring.md#probes)).",
    "ledger": "For how many days rows are kept. Not set: for ever.",
    "models.NAME.deployments[]": "One model at one provider; without settings a plain text, `provider/model`.",
    "models.NAME.takeover.slow": (
        "Whether another deployment also goes on with a stream that nearly stops"
        " ([takeover](../answers.md#a-stream-that-nearly-stops)). `true` means all defaults."
    ),
    "models.NAME.takeover": (
        "Whether an answer that breaks is finished by another deployment ([takeover](../answers.md#takeover))."
        " `true` means `when: always`."
    ),
    "models.NAME.fallbacks[]": (
        "Models that are tried, in this order, when the model cannot answer. A name alone is for every cause."
    ),
    "models.NAME.race": "How calls of the model are raced ([steering](../steering.md)).",
}
