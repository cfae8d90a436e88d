"""The purpose of each key of the configuration and the reason of its default, by its section's class, then by key.

Types, bounds and defaults come from the JSON Schema. A test fails if a key has no reason, or a reason no key.
"""

from collections.abc import Mapping

from gateway.core.modes import SAID

Reasons = Mapping[str, str]

_TIMEOUTS: Reasons = {
    "connect_timeout_s": "How long a connection to the provider may take: DNS, TCP and TLS.",
    "ttft_timeout_s": (
        "How long the first token may take, from the launch on. Long by default, for models that think first: the next"
        " deployment is started much sooner. Thoughts, and pieces of calls, also end this wait if the client's API does"
        " not show them."
    ),
    "stall_timeout_s": (
        "How long a stream may stand still; after text 60 s at most, or half of the setting if that is more. Comments,"
        " pings and events with nothing in them do not count."
    ),
    "total_timeout_s": "How long the whole answer may take. Off by default, as it cuts long answers.",
}
_LIMITS: Reasons = {
    "rpm": "Requests in a minute, of all replicas together.",
    "tpm": "Tokens in a minute: of prompts and answers, without those of losers.",
    "max_parallel": "Calls at the same time, of all replicas together.",
    "usd_per_day": "US dollars in a UTC day at list price, losers included.",
    "usd_per_month": "US dollars in a UTC month at list price, losers included.",
}

_PRICE_CHANGE: Reasons = {
    "input": "Tokens of prompts.",
    "output": "Tokens of answers.",
    "cached_input": "Tokens of prompts that were read from its prompt cache.",
    "cache_write": "Tokens of prompts that were written to its prompt cache.",
    "cache_write_1h": "Tokens of prompts that were written to its prompt cache for an hour.",
    "reasoning": "Tokens of thinking.",
    "audio_input": "Tokens of sound in prompts.",
    "audio_output": "Tokens of sound in answers.",
    "image_input": "Tokens of pictures in prompts.",
    "image_output": "Tokens of pictures in answers.",
}

REASONS: Mapping[str, Reasons] = {
    "Settings": {
        "host": (
            "The address to listen on. By default only programs on this machine reach the gateway, as everyone who"
            " does can spend your providers' keys: another address, such as `0.0.0.0`, needs `clients`."
        ),
        "port": "The TCP port to listen on. 0 takes any free one, which the log names.",
        "workers": (
            "Processes that share the port. One uses about one core. Several need `redis_url`, to share the"
            " leaderboard, and Postgres, as SQLite has one writer."
        ),
        "replica": "The name of this gateway in the ledger. Set it where host names change with each start.",
        "region": "Where this gateway runs, for the ledger: a text of your own, to compare regions in SQL.",
        "database_url": (
            "The database of the ledger. SQLite needs no server; in production use"
            " `postgresql://user:${PGPASSWORD}@host:5432/holeshot`."
        ),
        "reports_database_url": (
            "A streaming replica of `database_url`, for what only reads for people: the page, `/api` and the commands"
            " `sql`, `replay`, `slowdowns` and `leaderboard --since`. All that steers calls, and alerts, stay"
            " at `database_url`. While it is away, these reports get 503: nothing else reads the primary instead."
        ),
        "redis_url": (
            "A Redis that shares leaderboard and limits between workers and replicas. Without it each has its own."
            " One Redis or Valkey (`redis://`, `rediss://` with TLS, `unix://`), a Cluster (found by asking, or"
            " `redis+cluster://host1,host2`), or the master that Sentinels name"
            " (`redis+sentinel://host1,host2,host3/service`; their password is `?sentinel_password=`). With TLS:"
            " `rediss+cluster://`, `rediss+sentinel://`. [Replicas](../guides/replicas.md#redis) says what each keeps."
        ),
        "spool_dir": (
            "The folder of rows that are not in the database yet. They survive a crash, so it must be on a disk that"
            " does."
        ),
        "max_body_mb": (
            "The largest body of a request in MiB, after decompression. Pictures and long prompts need tens."
        ),
        "trusted_proxies": (
            "Addresses (CIDR) of your own proxies, whose header `x-forwarded-for` names the client. By default"
            " nobody's is believed, as anybody can send it."
        ),
        "lame_duck_s": (
            "After SIGTERM, how long calls are still answered while `/health/ready` says 503, so that load balancers"
            " notice before the port closes. After SIGINT it is 0."
        ),
        "shutdown_grace_s": "How long running calls may go on after the port has closed. Then they are cut.",
        "log_level": "The least level of lines that are written. Above `info` there is no line for each call.",
        "log_format": "`console` is for people, `json` for programs. `auto` is `console` on a terminal, else `json`.",
        "queue_timeout_s": (
            "How long a call waits, in all, when every deployment has `max_in_flight` requests; then it gets 429. Time"
            " for a short answer to end, but less than any client's time-out. 0: no wait."
        ),
        "tags_from_metadata": (
            "Keys of a request's `metadata` whose texts become tags of its call, unless `x-holeshot-tags` has them. All"
            " of `metadata` is forwarded as it is. By default none, as clients may write anything there."
        ),
        "responses_store": (
            "The value of `store` for requests to `/v1/responses` that do not set it. The API's own default is true,"
            " but a stored answer cannot be raced."
        ),
        "response_ids_ttl_s": (
            "How long the gateway remembers which provider has a stored response, so that it can be continued: 30 days."
        ),
        "provider_state": (
            "What clients may name that a provider stores under your key: files, conversations, prompts, containers,"
            " items. `own`: what answers to the same client gave it, known for `response_ids_ttl_s`; `any`: also what"
            " you or other clients have there; `none`: nothing. Without clients, `own` checks responses only."
        ),
        "mcp_hosts": (
            "MCP servers that a provider may call for clients, by host (`mcp.example.com`, `*.example.com`, `*`), and"
            " connectors, by their id (`connector_gmail`). By default none; while there are no clients, all."
        ),
        "keys": (
            "Where clients' keys are. `database`: also in the ledger's database, where `holeshot keys` and"
            " `/admin/keys` make, change and revoke them at run time. Every call needs a key then. On equal names the"
            " file wins."
        ),
        "cors": (
            "Origins of web pages that may call `/v1` from a browser, each with a key of its own. By default none may,"
            " as whoever opens a page can read its key."
        ),
    },
    "TlsSettings": {
        "certificate": "The PEM file of the certificate, with its chain. It is read again when it changes.",
        "key": "The PEM file of its key, without a passphrase. It is read again when it changes.",
        "min_version": "The oldest version of TLS that is accepted. 1.0 and 1.1 are insecure.",
    },
    "LedgerSettings": {
        "keep_calls_days": "Older rows of `calls` are deleted each hour. By default all are kept.",
        "keep_attempts_days": (
            "Older rows of `attempts` are deleted each hour. They are more and larger than calls: begin with these."
        ),
        "keep_rollups_days": (
            "Older sums by hour and day are deleted each hour. They are small, and the views of a month read them. "
            "Those that limits in dollars go on from are kept for 31 days at least."
        ),
        "keep_refusals_days": (
            "Older rows of `refusals` are deleted each hour. Not kept for ever by default, as strangers can make them."
        ),
        "keep_outages_days": "Older rows of `outages` and `slowdowns` are deleted each hour. There are few.",
        "slowdowns": (
            "Whether the gateway looks for deployments that got slower than usual"
            " ([detector](../monitoring.md#when-a-provider-gets-slower))."
        ),
        "required": (
            "Whether a call is refused with 503 `ledger_unavailable` while neither the database nor the disk takes its"
            " row. Else it is answered, and its row is lost if the process ends first. `ledger: required` alone means"
            " the same."
        ),
        "keep_probes_days": (
            "Older rows of `probes` are deleted each hour. More than 1, as the day's spending is counted from them."
        ),
    },
    "RefusalSettings": {
        "addresses": "Whether the ledger and the log have the addresses that refused requests came from.",
    },
    "ClickHouseSettings": {
        "url": "The server, its user and its database: `https://user:password@host:8443/database`.",
        "keep_days": "For how many days calls and attempts are kept there. Default: for ever.",
        "max_spool_gb": (
            "How many gigabytes of rows wait on this machine's disk while ClickHouse is away. Beyond that the oldest"
            " are not sent to it, and the log says how many: SQL has them."
        ),
    },
    "AlertSettings": {
        "enabled": "Whether anything is looked for. If not, there are no new alerts in log, database and messages.",
        "model_out_s": "Alert when no deployment of a model can answer for so long.",
        "deployment_out_s": (
            "Alert when one deployment is out for so long. Others answer meanwhile, so it may wait longer."
        ),
        "ledger_behind_s": "Alert when a row waits for the database for so long.",
        "spending_share": "Alert when a client has spent this share of its `usd_per_day` or `usd_per_month`.",
        "usd_per_day": "Alert when all clients together have spent so much in a UTC day. It stops nobody.",
        "usd_per_month": "Alert when all clients together have spent so much in a UTC month. It stops nobody.",
        "burn_least_bad": (
            "How many bad calls there must be before a target's burn rate opens an alert, so that the few calls of a"
            " night do not."
        ),
        "resolve_after_s": (
            "An alert ends when its cause was not seen for so long. What returns sooner is one incident."
        ),
    },
    "WebhookSettings": {
        "url": "Where messages are sent by POST. It is kept secret, as the address of a chat is a key.",
        "secret": (
            "Signs each message, so that the receiver knows who sends it: `echo whsec_$(openssl rand -base64 32)`."
            " Needed with `format: json`; Slack checks no signature."
        ),
        "format": "How a message is written: `json` for programs, `slack` for Slack, Mattermost or Rocket.Chat.",
        "tickets": "Whether it also gets alerts that can wait until tomorrow. False: only what needs somebody now.",
    },
    "BodyLimits": {
        "max_values": (
            "The most JSON values (objects, arrays, strings, numbers) of a request that must be built: translated to"
            " another API, or read here. More get 400 `too_many_values`. What passes to a provider with the client's"
            " own API has no such limit. The largest requests of agents (200 tools, 1,000 messages) have 21,000 to"
            " 35,000; each takes up to 400 bytes and 20 µs in a thread while it is translated."
        ),
    },
    "ConnectionSettings": {
        "max": "Most connections without an admitted request, for each worker. Each costs about 20 kB.",
        "max_per_address": (
            "Most such connections from one address (for IPv6: one /64). Clients behind one proxy or NAT share an"
            " address."
        ),
        "headers_timeout_s": "How long TLS and the headers of a request may take together.",
    },
    "OverloadSettings": {
        "max_in_flight": "Most calls at once, for each worker. By default what memory and file descriptors allow.",
        "loop_delay_ms": (
            "While turns of the event loop, in which everything that is ready runs once, take longer than this, fewer"
            " calls are let in. A first token is late by some turns; but short ones cost more. 0: off."
        ),
        "queue": "How many calls may wait for room, ordered by their client's `priority`. 0: none waits.",
        "queue_timeout_s": "How long they may wait. Then they get 503. 0: not at all.",
    },
    "TracingSettings": {
        "enabled": (
            "Whether spans are sent. Off by default, as it needs a collector and `pip install 'holeshot[otel]'`."
        ),
        "endpoint": (
            "URL of the collector, without `/v1/traces`. Not set: `OTEL_EXPORTER_OTLP_ENDPOINT`, else"
            " `http://localhost:4318`."
        ),
        "headers": "Sent with each export, for example the collector's key. Not set: `OTEL_EXPORTER_OTLP_HEADERS`.",
        "timeout_s": (
            "How long one export may take, with its retries. Not set: `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10 s."
        ),
        "sample_ratio": "The share of traces that begin here. A call with a `traceparent` follows the flag in it.",
        "propagate": "Whether providers are sent `traceparent` and `tracestate`.",
        "service_name": "The name of the service in traces. Not set: `OTEL_SERVICE_NAME`, else `holeshot`.",
        "resource_attributes": "More attributes of all spans. They win over those in `OTEL_RESOURCE_ATTRIBUTES`.",
    },
    "DefaultTimeouts": _TIMEOUTS,
    "Timeouts": _TIMEOUTS,
    "ClientTimeouts": {
        "body_timeout_s": "How long the body of a request may take. Then it gets 408.",
        "body_kib_per_s": (
            "And one second more for every so many KiB received: large bodies over a slow network are let in, a client"
            " that sends one byte a second is not."
        ),
        "write_timeout_s": (
            "A client that reads no byte of its answer for so long is cut, and its call is cancelled at the provider."
        ),
    },
    "ProviderSettings": {
        "preset": (
            "The vendor of the catalog to start from, for a second key of one vendor. Not set: the provider's own name."
        ),
        "kind": (
            "How it is spoken to: not set, as the catalog says, else `openai_compatible`. `litellm` is for other APIs."
        ),
        "apis": "Which APIs it has. Not set: what the catalog says. A deployment is not asked in an API that it lacks.",
        "base_url": (
            "Its URL, mostly with `/v1` at the end. Needed for a server of your own; the catalog has the vendors'."
        ),
        "api_key": (
            "Your key there, best as `${VARIABLE}`. Not set: the vendor's usual variable, such as `GROQ_API_KEY`,"
            " unless `base_url` is changed."
        ),
        "api_keys": (
            "Several keys instead of one: each request uses the one with the most room. A list, or names for the"
            " ledger with their keys."
        ),
        "organization": "Sent as `openai-organization`.",
        "headers": "Sent with every request. Their values are treated as secrets.",
        "query": (
            "Parameters of every URL, such as Azure's `api-version`. No place for secrets, as URLs are logged"
            " elsewhere."
        ),
        "omits_finish_reason": (
            "Its streams of chat and completions end with `[DONE]` and no finish reason. They count as whole then, and"
            " get `stop` (`tool_calls` after a tool call); of other providers they count as broken off."
            " `holeshot check --live` sees which servers need it."
        ),
        "http_version": "`auto` is HTTP/2 where TLS negotiates it, else 1.1. `2` without TLS is with prior knowledge.",
    },
    "HistorySettings": {
        "assistant_fields": "The fields of assistant messages that it takes; others are left out. Default: all.",
        "call_fields": "The fields of tool calls that it takes; others are left out. Default: all.",
        "missing_reasoning": "It demands `reasoning_content` beside tool calls: this text is sent where there is none.",
        "user_after_tool": "`false`: a user's text goes to the end of the tool's result before it.",
        "one_system": "Instructions at the beginning become one system message; later ones become the user's text.",
        "alternating": "Messages of the user, or of the assistant, in a row become one.",
    },
    "CallIdsSettings": {
        "longest": "Characters of the longest id that it takes, at least 9.",
        "shortest": "Characters of the shortest.",
        "letters": "`alphanumeric` are letters and digits, `word` also `_` and `-`.",
    },
    "ModelSettings": {
        "usd_per_day": "What all its calls may cost in a UTC day. Then its fallbacks answer, else 429.",
        "fallback_after": (
            "When its fallbacks are asked beside it, if it has no first token; the first token of either wins. `auto`:"
            " after three times what nine of ten of its first tokens take, 10 s while fewer than ten are known, and"
            " twice as late for a fallback that costs over ten times as much. Or seconds, from 0.05. `failure`: only"
            " when all of its deployments have failed. Calls that change something at a provider have no two models."
        ),
        "keepalive_s": (
            "Sends comments this often until the first token, for proxies that cut idle connections. Off by default:"
            " the status is then sent early, so errors come inside the stream."
        ),
        "defaults": "Parameters for requests that do not set them, such as `{temperature: 0.2}`.",
        "maximums": "The largest values that requests may use, such as `{max_tokens: 8000}`.",
        "probes": "Whether its quiet deployments are probed. Not set: as `probes.enabled` says.",
        "system_prefix": "Put before the system prompt of each request.",
    },
    "DeploymentSettings": {
        "deployment": "`provider/model`: a provider of the file or the catalog, and the model's name there.",
        "as": "Its name in the ledger and on the leaderboard. Needed where `provider/model` is listed twice.",
        "enabled": "False: no new calls; running ones end normally.",
        "weight": "Its chance against others that are about as fast: with 2 it is chosen twice as often as one with 1.",
        "canary": "It gets this share of calls and no others, whatever its speed, to try it. Not set: raced like all.",
        "apis": "Which APIs it has. Not set: its provider's.",
        "drop_params": (
            "Whether parameters that it does not support are left out, and listed in the header `x-holeshot-dropped`."
            " By default it is not asked, so that no request is changed in silence."
        ),
        "zdr": (
            "Zero data retention: whether it stores no prompts and answers. Clients may require it. Not set: unknown."
        ),
        "region": "Where it runs. Clients may require a region. Not set: unknown.",
        "same_as": "The model that it is, where its own name does not tell: embeddings are made by one model only, as "
        "vectors of several cannot be compared. Write the name that another deployment of the model has.",
        "quantization": "How its weights are stored, such as `fp8`. Clients may require one. Not set: unknown.",
        "extra_body": "Fields added to each request to it. They win over the client's.",
        "extra_headers": "Headers added to each request to it.",
        "upstream_stream": "False: it cannot stream, so it is raced on its whole answer.",
        "bills_after_disconnect": (
            "Whether a cancelled loser costs a whole answer there. Not set: as the catalog says, else unknown, and"
            " then `cost_low_usd` and `cost_high_usd` in the ledger differ much."
        ),
        "continues": (
            "How it is asked to finish an answer that another one began ([takeover](../answers.md#takeover)): `prefix`"
            " is a last message with `prefix: true`, `repeated_prefix` the same with an answer that repeats it,"
            " `final_message` `continue_final_message`, `prefill` a last message of the assistant, `in_progress` a"
            " last item with this status. Not set: as the catalog says, else no."
        ),
        "max_in_flight": (
            "Most requests to it at a time from this replica, of all models together; workers share it. For servers of"
            " your own. Not set: no limit."
        ),
        "max_in_flight_fleet": (
            "Most requests to it at a time from all replicas together, which lease them from Redis"
            " ([how](../overload.md#one-limit-for-all-replicas)). Without `redis_url` each replica has so many. Not"
            " set: no limit, and nothing is shared."
        ),
    },
    "CapabilitySettings": {
        "tools": "Whether it gets requests with tools.",
        "json_schema": "Whether it gets requests with a JSON schema (`response_format`).",
        "vision": "Whether it gets requests with pictures.",
        "audio": "Whether it gets requests with sound.",
        "documents": "Whether it gets requests with PDF files.",
        "reasoning": (
            "Whether the model thinks. False: `reasoning_effort` is left out of requests that are translated for it."
        ),
        "context_tokens": "The longest prompt in tokens. Longer ones are not sent to it.",
        "max_output_tokens": "The longest answer in tokens. Requests that ask for more are not sent to it.",
        "max_documents": "The most documents of a rerank. Requests with more are not sent to it.",
        "max_dimensions": "The longest vectors. Embeddings with more `dimensions` are not asked of it.",
    },
    "Price": {
        "input": "Tokens of prompts.",
        "output": "Tokens of answers.",
        "cached_input": "Tokens of prompts that were read from its prompt cache. Not set: as `input`.",
        "cache_write": "Tokens of prompts that were written to its prompt cache. Not set: as `input`.",
        "cache_write_1h": "Tokens that were written to its prompt cache for an hour. Not set: as `cache_write`.",
        "reasoning": "Tokens of thinking. Not set: as `output`.",
        "audio_input": "Tokens of sound in prompts. Not set: as `input`.",
        "audio_output": "Tokens of sound in answers. Not set: as `output`.",
        "image_input": "Tokens of pictures in prompts. Not set: as `input`.",
        "image_output": "Tokens of pictures in answers. Not set: as `output`.",
        "web_search": "Each search by the vendor's own tool, in dollars. Not set: unknown, as is then the call's cost.",
    },
    "PriceChange": _PRICE_CHANGE,
    "TierPrice": _PRICE_CHANGE,
    "RaceSettings": {
        "profile": (
            "A preset for a kind of call; settings beside it win. `chat`: objective reading, `min_tok_s` 30. `voice`:"
            " reading at 100 tok/s, `min_tok_s` 100, a race of two, time-outs of 10 s. `agent`: completion. `batch`:"
            " cost, budget 0, `ttft_ms` 30000, time-outs of 600 s."
        ),
        "objective": (
            "What to optimize: `first_token`, `reading` (nobody who reads along waits), `completion` (the whole answer"
            " soonest), `cost` (the cheapest that is fast enough). `auto` is reading for streamed chat, completion for"
            " whole answers, tools and JSON."
        ),
        "ttft_ms": "The deadline of the first token: who keeps it is asked first, and hedges start in time for it.",
        "reading_tok_s": "With objective reading: how fast answers are read. About 100 where they are spoken.",
        "min_tok_s": "A deployment that is slower after its first token is a last resort.",
        "mode": f"{', '.join(f'`{mode}` ({said.about})' for mode, said in SAID.items())}.",
        "width": "With mode race: how many attempts start at once.",
        "hedge_delay_s": (
            "With mode hedge: when the second attempt starts. Not set: when the first is later than usual."
        ),
        "budget": "Extra attempts per call, on average: 1.0 races the best two, 0.1 is economical, 0 has none.",
        "usd_per_day": (
            "Limit for the cost of extra attempts in a UTC day at list price, of all replicas. In mode auto it is spent"
            " where it saves most, over the whole day ([how](../policy.md#what-a-second-is-worth))."
        ),
        "extra_usd_per_call": (
            "US dollars that each call saves up for extra attempts, at most those of 20 calls. It limits them in"
            " addition to `budget`."
        ),
        "value_usd_per_s": (
            "What a second is worth, in US dollars. With mode auto an extra attempt is then planned only if the time"
            " that it should save is worth more than it should cost ([how](../policy.md#what-a-second-is-worth)). The"
            " limits above stay limits. Not set: the budget alone decides, and with `usd_per_day` the value at which"
            " that lasts all day, if it would not otherwise. 0: the budget alone decides."
        ),
        "worth_ms": (
            "With mode auto and without such a value, a further attempt starts with its call only where it should save"
            " so many milliseconds, and at least 1 % of the time to first token (a fifth of that for held answers);"
            " else it is a hedge. So a model whose rivals never win is not raced, whatever its budget. 0: the budget"
            " alone decides. A request may set a higher one, not a lower one."
        ),
        "win_on": (
            "What wins: `any` first token, `answer` (thinking alone does not win), `sentence` (a clause that can be"
            " spoken), `valid` (a tool call or JSON that is complete and fits its schema)."
        ),
        "hold": (
            "Whether a first token may wait for an attempt that should give the answer sooner. Not set: of a stream"
            " only if `objective: reading` or `completion` is written, here or in the request (`auto` and profiles do"
            " not count); of a whole answer always. `false` always wins."
        ),
        "keep_rival": (
            "For answers that are not streamed: the second attempt runs on, and answers if the winner breaks. It costs"
            " two whole answers, so it is off by default."
        ),
        "invalid": (
            "With `win_on: valid`, if no answer is valid: `error` (502), or `best`, the one with the least flaw."
        ),
        "sentence_words": "With `win_on: sentence`: so many words can be spoken, even if their sentence has not ended.",
        "max_prompt_tokens": "Longer prompts are hedged instead of raced, as every attempt pays for the prompt.",
        "audit_share": (
            "Share of calls whose losers run on until their first token. It measures what racing saves, and costs as"
            " much as these losers."
        ),
        "cache_affinity": (
            "Whether a conversation prefers, among equally fast deployments, one that has it in its prompt cache."
        ),
    },
    "TakeoverSettings": {
        "when": "For which calls: `never`, `asked` (requests that ask for it), `always` (all that do not refuse it).",
        "within_s": "How long the client waits for more text before it is told of the error.",
    },
    "SlowSettings": {
        "below_tps": (
            "Tokens per second: a stream that is faster is never rescued, nor one that has a fifth of the usual speed,"
            " or a quarter of its own deployment's."
        ),
        "budget": "Rescues per streamed answer that could be rescued; at most ten are saved up.",
    },
    "FallbackSettings": {
        "model": "The name of another model of the file.",
        "causes": (
            "For which causes: `failed` (no deployment answered), `context` (the prompt is too long), `content_filter`"
            " (its providers refuse the content)."
        ),
        "fallback_after": "When it is asked beside the model whose first token is late. Not set: as the model says.",
    },
    "ClientSettings": {
        **_LIMITS,
        "key_sha256": (
            "The SHA-256 of its key, which `holeshot keys new NAME` prints; never the key itself. Several while a key"
            " is replaced. Not set: no key, only tokens name the client (`issuers`)."
        ),
        "admin": "The older word for `role: admin`.",
        "role": (
            "`client` makes calls. `viewer` reads the page, `/metrics`, `/leaderboard` and the list of keys, and makes"
            " no calls. `operator` does both. `admin` may do all of that, and change keys."
        ),
        "expires": (
            "When its keys end: a date (its beginning, UTC) or an instant like `2030-01-31T18:00:00Z`. Not set: never."
        ),
        "adhoc": "Whether it may name `provider/model`, and lists of them, instead of a model of the file.",
        "max_width": (
            "The widest race that its requests may ask for. With 1, one that asks for `race` has the model's own mode."
        ),
        "profile": "How its calls are raced. It wins over the models' settings.",
        "override": "Whether its requests may set how they are raced (the field `race`, the header `x-holeshot-race`).",
        "models": "The models that it may use. Not set: all.",
        "only": "The providers that may get its prompts. Not set: all.",
        "ignore": "The providers that never get its prompts.",
        "team": "The team whose limits count its calls too: one of `teams`.",
        "end_user": "The end user of all its calls, whatever its requests say. Not set: each request may name one.",
        "priority": (
            "When the gateway has too many calls, those of a higher priority are served first and refused last."
        ),
        "provider_keys": (
            "Its own keys of providers, by the provider's name. Its calls use these providers only, and cost you"
            " nothing ([keys that clients bring](../keys.md#keys-that-clients-bring)). Not for clients in the database."
        ),
        "unpriced": (
            "What happens if a limit in dollars applies and a unit that a deployment bills has no known price, not even"
            " at its vendor. `refuse`: that deployment gets none of its calls. `count_known`: it does, and what is"
            " known counts. Not set: speech is refused, all else counts as far as it is known."
        ),
    },
    "DataPolicy": {
        "zdr": "True: only deployments with `zdr: true` (no storing of prompts and answers) get its prompts.",
        "regions": "Only deployments with one of these regions get its prompts.",
        "quantizations": "Only deployments with one of these quantizations get its prompts.",
    },
    "IssuerSettings": {
        "issuer": "The token's `iss`, to the letter. Its discovery document is looked for below this address.",
        "audience": "What must be in the token's `aud`: a name for this gateway. Of several, one must.",
        "algorithms": "The algorithms with which its tokens may be signed, whatever a token says. None is symmetric.",
        "jwks_url": "Where its public keys are. Not set: where its discovery document says.",
        "typ": (
            "The `typ` of its tokens' header: `at+jwt` (RFC 9068), or `JWT` for issuers that write this or none; then"
            " what marks an ID token is refused."
        ),
        "claim": "The claim whose value names the client. Of a list, any item may.",
        "clients": (
            "Which client a value of the claim stands for; the first that the token has. Not set: the value is the name"
            " of a client, which must have the role `client`."
        ),
        "requires": "Other claims, and a value that each must be or contain. Of `scope` and `scp`: one of the words.",
        "deny": "Tokens whose `sub` or `jti` is one of these are refused. What runs with them is cut at the reload.",
        "leeway_s": "How far the clock of the issuer may be from the gateway's.",
    },
    "SignInSettings": {
        "issuer": "The provider's `issuer`, to the letter. Its discovery document is looked for below this address.",
        "client_id": "The name under which the page is registered at the provider.",
        "client_secret": "The secret of that registration. Not set: a public client, which PKCE alone protects.",
        "algorithms": "The algorithms with which ID tokens may be signed, whatever a token says.",
        "scopes": "What is asked for. `openid` must be there; some providers send groups only for one of their own.",
        "groups": "The claim with a person's groups, in the ID token or at the provider's userinfo address.",
        "viewers": "Groups whose people are viewers.",
        "operators": "Groups whose people are operators: they also make calls in the playground.",
        "admins": "Groups whose people are admins, whatever other groups they are in.",
    },
    "PageSettings": {
        "public_url": (
            "Where browsers find the gateway, with the prefix of a proxy if there is one. Providers send people back to"
            " `api/signed-in` below it."
        ),
        "signing_key": (
            "Signs the page's cookies, so that nobody who can read hashes of keys can make one. The same in all"
            " replicas ([security](../security.md))."
        ),
    },
    "TrustedHeader": {
        "name": "The header, such as `x-forwarded-email`. The proxy must replace it in every request.",
        "from": "The proxy's own addresses (CIDR). Only it may reach the gateway from there.",
        "role": "The role of everybody who comes that way.",
    },
    "TargetSettings": {
        "model": "Calls of this model, as clients name it. Not set: of all.",
        "client": "Calls of this client. Not set: of all.",
        "profile": "Calls that were raced under this profile; its speeds count, if none are set. Not set: all calls.",
        "preset": (
            "The profile whose speeds a good call has: `chat` 30 tok/s, `voice` 100 tok/s, `batch` `ttft_ms` 30000."
        ),
        "objective": "The share of calls that is to be good. What is left of 1 is the error budget.",
        "days": "Over how many days.",
        "ttft_ms": "A good call has its first token sooner than this. Not set: it does not matter.",
        "tok_s": "A good call has at least so many tokens per second after the first. Not set: it does not matter.",
        "gap_ms": "A good call has no two chunks further apart. Not set: it does not matter.",
    },
    "ProbeSettings": {
        "enabled": (
            "Whether quiet deployments are probed, unless their model says otherwise. Off by default: it costs money."
        ),
        "quiet_s": "A deployment without any attempt for so long is probed.",
        "usd_per_day": "The most that probes cost in a UTC day, of all replicas together.",
        "max_per_day": "The most probes in a UTC day, of all replicas together.",
        "prompt": "The prompt, after a few random characters, so that no provider has it in a cache.",
        "max_tokens": "The longest answer: enough for a first token and some speed.",
        "usd_if_unknown": "What a probe counts as where no price is known. Not set: such deployments are not probed.",
    },
    "SecretSettings": {
        "exec": (
            "Whether `${exec:command}` may run programs, as the gateway's user. Who can write the file can then do what"
            " that user may."
        ),
        "exec_every_s": "Each command runs again so often, in every worker.",
        "exec_timeout_s": "Then it is killed, with what it started.",
    },
    "TenantKeySettings": {
        "header": (
            "Whether requests may bring keys of providers, in `x-holeshot-provider-keys`. If not, one that does is"
            " refused with 400."
        ),
        "mixed": (
            "Whether calls that bring keys may also use the other providers of their model, with your keys. Your limits"
            " in dollars then apply to them as to other calls, and count what your keys cost."
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
    "teams.NAME": "What all keys of a team may use together; `team` of a client names its own.",
    "teams.NAME.end_users": "What each end user of the team may use. Not set: as `end_users` says.",
    "end_users.named.NAME": "Other limits, instead of these, for an end user whom clients call so.",
    "end_users": (
        "What each end user of a client may use, unless its team says otherwise. Who it is, requests say: this protects"
        " against accidents, not against a client that names whomever it likes."
    ),
    "anonymous": "What all programs on this machine may use together, while there are no clients.",
    "tls": (
        "TLS on the gateway's port. Without it the port speaks plain HTTP, for this machine or for a proxy in front."
    ),
    "timeouts": (
        "The time limits of an attempt. A provider may set its own under the same name, and so may a model and a"
        " deployment; the closest one wins. Each has its own error kind ([errors](errors.md#why-an-attempt-failed))."
    ),
    "providers.NAME.timeouts": "As [`timeouts`](#timeouts), for this provider. What is not set comes from there.",
    "models.NAME.timeouts": "As [`timeouts`](#timeouts), for this model. What is not set comes from the provider.",
    "models.NAME.deployments[].timeouts": (
        "As [`timeouts`](#timeouts), for this deployment. What is not set comes from the model."
    ),
    "models.NAME.deployments[].price_per_mtok": (
        "US dollars per million tokens, instead of the price table's (`holeshot providers` shows it)."
    ),
    "models.NAME.deployments[].price_per_mtok.above_tokens.NAME": (
        "By number of tokens: the prices of calls whose prompt has more, for the whole call."
    ),
    "models.NAME.deployments[].price_per_mtok.tiers.NAME": (
        "By `service_tier`, as `priority` or `flex`: the prices of calls that it served. Without any, all tiers cost"
        " the same; with some, the cost of another one is unknown."
    ),
    "models.NAME.deployments[].price_per_mtok.tiers.NAME.above_tokens.NAME": (
        "As `above_tokens` of the price, in this tier. Without it the price of such prompts is unknown in this tier."
    ),
    "clients.NAME": (
        "Who may call, known by the SHA-256 of a key. Without clients the gateway listens on this machine only."
        " [Limits](../limits.md) are those of all its keys and all replicas; not set: no limit."
    ),
    "clients.NAME.require": "Only deployments like this get its prompts. By default there is no condition.",
    "slo.NAME": (
        "A target: which share of calls is to be how fast ([targets](../monitoring.md#targets)). Its calls are those of"
        " `model`, `client` and `profile`, as far as these are set."
    ),
    "page.trusted_header": (
        "A header in which a proxy names the person who has signed in there. The proxy must replace what browsers send."
    ),
    "alerts": (
        "When there is an alert ([alerts](../monitoring.md#alerts-and-targets)). Each is a line of the log, a row, and"
        " a message."
    ),
    "alerts.webhooks.NAME": "Where messages about alerts are sent. `holeshot alerts test` tries them.",
    "overload": (
        "How many calls a worker takes on; the others wait a moment, then get 503 ([overload](../overload.md))."
    ),
    "secrets": (
        "How values are read that the file does not hold itself ([secrets](../keys.md#secrets)). Files named by"
        " `file:` are read again when they change."
    ),
    "tracing": (
        "OpenTelemetry over OTLP/HTTP ([tracing](../monitoring.md#traces)). What is not set is taken from"
        " `OTEL_…` variables."
    ),
    "probes": "The gateway's own small calls to deployments that nobody calls ([probes](../monitoring.md#probes)).",
    "ledger": "For how many days rows are kept. By default for ever, but for refusals.",
    "models.NAME.deployments[]": (
        "One model at one provider. In the file it is a plain text, `provider/model`, if it has no other settings."
    ),
    "models.NAME.takeover.slow": (
        "Whether another deployment also goes on with a stream that nearly stops"
        " ([takeover](../answers.md#a-stream-that-nearly-stops)). `true` means all defaults."
    ),
    "models.NAME.takeover": (
        "Whether an answer that breaks is finished by another deployment ([takeover](../answers.md#takeover)). In the"
        " file `true` means `when: always`."
    ),
    "models.NAME.fallbacks[]": (
        "A model that is tried, in this order, when this one cannot answer. In the file only its name, if it is for"
        " every cause."
    ),
    "models.NAME.race": "How calls of the model are raced ([steering](../steering.md)).",
}
