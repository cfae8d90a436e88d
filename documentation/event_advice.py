"""What each event of the log means and what to do when one sees it; names, levels and fields come from the code."""

from collections.abc import Mapping
from typing import NamedTuple

NOTHING = "Nothing."
BUG = "It is a bug: report it with the trace."
DATABASE = "Make the database reachable. Nothing is lost meanwhile."
REDIS = "Make Redis reachable. Calls go on meanwhile."


class Advice(NamedTuple):
    """What an event means, and what an operator does about it."""

    means: str
    do: str


# What a first part of a name stands for.
GROUPS: Mapping[str, str] = {
    "alert": "Alerts",
    "alerts": "How alerts are kept and sent",
    "audit": "Audits of losers",
    "call": "Calls",
    "configuration": "Configuration",
    "connections": "Connections from clients",
    "demo": "The demo's simulated providers",
    "deployment": "Slowdowns of deployments",
    "detector": "The detector of slowdowns",
    "gateway": "The process",
    "keys": "Clients' keys",
    "ledger": "The ledger: rows, spool and database",
    "limits": "Limits of clients",
    "live": "Live streams",
    "log": "The log itself",
    "probe": "Probes",
    "probes": "Probes that were not made",
    "report": "Reports of the page and /api",
    "request": "Refused requests",
    "responses": "Stored responses",
    "steering": "Steering: which deployments run",
    "targets": "Targets (slo)",
    "tls": "Certificates",
    "tracing": "Traces",
    "usage": "What providers count",
    "worker": "Worker processes",
}

EVENTS: Mapping[str, Advice] = {
    "alert.opened": Advice(
        "Something is wrong that somebody should know. `summary` says what; `severity` is `page` (look now) or"
        " `ticket` (look today).",
        "Follow the row of its `kind` in [alerts](../alerts.md). `holeshot sql` runs the query in `sql`, which shows"
        " the rows behind it.",
    ),
    "alert.resolved": Advice("The condition of an alert was not seen for `alerts.resolve_after_s`.", NOTHING),
    "alerts.database_away": Advice(
        "The table of alerts cannot be reached. Each process now reports by itself, so a message may come several"
        " times.",
        DATABASE,
    ),
    "alerts.database_recovered": Advice("Alerts are shared by all replicas again.", NOTHING),
    "alerts.given_up": Advice(
        "A message did not reach its webhook: after ten tries in about 16 hours, or because the receiver answered 410.",
        "Correct the webhook's address or its receiver. `holeshot alerts test` sends a test message; `holeshot alerts`"
        " lists what was missed.",
    ),
    "alerts.messages_lost": Advice(
        "The process ended while the database was away, so messages in its memory were never sent.",
        "See `holeshot alerts` for what is open.",
    ),
    "alerts.not_sent": Advice(
        "One try to send a message failed; `answer` says why. It is tried again, later each time.",
        "Nothing at first. If it repeats, correct the webhook, and try it with `holeshot alerts test`.",
    ),
    "alerts.source_failed": Advice(
        "Alerts of these `kinds` could not be looked for this time. The other kinds were.", BUG
    ),
    "alerts.task_failed": Advice("One round of looking or sending failed. The next one follows in seconds.", BUG),
    "audit.crashed": Advice(
        "A loser that ran on after its call to be measured failed by a bug. The caller had its answer.", BUG
    ),
    "call.recorder_failed": Advice(
        "One of those that keep figures of calls (steering, metrics, live view, traces) failed on a first token or the"
        " end of an attempt. The call and what the others were told are not affected.",
        BUG,
    ),
    "call.finished": Advice(
        "The one line of each call: who answered (`winner`), how soon (`ttft_ms`, ms since the request arrived) and"
        " how fast (`decode_tps`, tokens per second). A failed call has `error_kind` and `causes`, with the reason of"
        " each attempt.",
        "Nothing. For a failed call see [errors](errors.md). It is not written with `log_level` above `info`.",
    ),
    "configuration.invalid": Advice(
        "The changed file is not accepted; `problem` has the line and what is wrong. The running configuration stays.",
        "Correct the file: it is read again when it changes. `holeshot check` tells before.",
    ),
    "configuration.needs_restart": Advice(
        "The file was read, but these `settings` are used only by a new process.",
        "Restart the gateway when it suits.",
    ),
    "configuration.old_connections_closed": Advice(
        "All calls of a configuration that was replaced have ended, and its connections to providers are closed.",
        NOTHING,
    ),
    "configuration.reloaded": Advice("The changed file is in force for new calls.", NOTHING),
    "configuration.unreadable": Advice(
        "Reading the file failed in a way that was not foreseen. The running configuration stays.", BUG
    ),
    "connections.cut": Advice(
        "Clients' connections were closed by the gateway, counted by reason since the last such line: `address` and"
        " `strangers` (too many without an admitted request), `descriptors` (no room for more), `late_head` and"
        " `large_head` (headers too slow or too large), `stalled` (reads no answer),"
        " `ahead` (sends much before it has its answer), `key` (revoked or expired).",
        "Nothing for a few. Many of `address`: raise `connections.max_per_address` if they are yours behind one proxy,"
        " or block the address. Many of `descriptors`: raise the limit of open files.",
    ),
    "demo.complained": Advice(
        "The simulated providers of a gateway without any key wrote this to standard error.",
        "Nothing, if the demo works. Else configure a provider.",
    ),
    "deployment.as_usual": Advice(
        "A slowdown is over. `ending`: `as_usual` (as fast as before, or its peers are as slow), `new_usual` (it has"
        " lasted so long that this is usual now) or `no_calls`.",
        NOTHING,
    ),
    "deployment.slower": Advice(
        "A deployment got slower than usual, or fails more often: its `metric` (`ttft`, `tps`, `itl`, `errors`) is"
        " `ratio` times as bad, with an interval of 95 % from `low` to `high`, of `n` requests.",
        "See [when a provider is slow](../guides/slow-provider.md). Calls are steered by the new figures already."
        " `holeshot slowdowns` lists all.",
    ),
    "detector.not_run": Advice(
        "The search for slowdowns could not read the database. It looks again, and finds them later.", DATABASE
    ),
    "gateway.descriptors": Advice(
        "At the start: how many files and sockets the process may open, and how many of them clients may have.",
        NOTHING,
    ),
    "gateway.out_of_resources": Advice(
        "Attempts failed because this machine has no more file descriptors, ports or memory. No provider is blamed.",
        "Raise the limit of open files (`ulimit -n`, `LimitNOFILE=`), or send this machine fewer calls.",
    ),
    "gateway.started": Advice("It listens at `url` and takes calls.", NOTHING),
    "gateway.stopped": Advice(
        "It has ended in order: calls are over, and rows are in the database or the spool.", NOTHING
    ),
    "gateway.stopping": Advice(
        "It was asked to end. It still answers for `lame_duck_s`; then running calls may end within `grace_s`.",
        NOTHING,
    ),
    "keys.change_not_seen": Advice(
        "A key was changed in the database, but this process could not read the change back at once.",
        "Nothing: it is read again each second. If it goes on, `keys.stale` follows.",
    ),
    "keys.changed": Advice(
        "An administrator (`by`) changed the settings of a client over `/admin/keys`.",
        "Nothing, if you know of it.",
    ),
    "keys.created": Advice(
        "An administrator (`by`) made a client and its key over `/admin/keys`.",
        "Nothing, if you know of it.",
    ),
    "keys.fresh_again": Advice("The keys can be read from the database again.", NOTHING),
    "keys.revoked": Advice(
        "An administrator (`by`) revoked keys of a client over `/admin/keys`.",
        "Nothing, if you know of it.",
    ),
    "keys.rotated": Advice(
        "An administrator (`by`) replaced the key of a client over `/admin/keys`.",
        "Nothing, if you know of it.",
    ),
    "keys.shadowed": Advice(
        "A client of this name is in the file and in the database. The one in the file is used.",
        "Remove it from the file, or revoke the one in the database.",
    ),
    "keys.stale": Advice(
        "The keys could not be read from the database for `silent_s`. Known keys stay valid; changes are not seen. At"
        " a start, keys of the database are refused with 503.",
        "Make the database reachable.",
    ),
    "keys.unreachable": Advice(
        "A request to `/admin/keys` failed because the database does not answer.",
        "Make the database reachable, list the keys, and repeat the change if it was not made.",
    ),
    "keys.unusable": Advice(
        "This version cannot use the settings of a client in the database. Its calls get 503.",
        "Correct the settings that `problem` names, or upgrade this replica to the version that wrote them.",
    ),
    "keys.uses_not_written": Advice(
        "When keys were last used could not be written. It is tried again in a minute.", BUG
    ),
    "keys.watch_failed": Advice("One look for changed keys failed. The next one follows in a second.", BUG),
    "ledger.closed_with_pending_rows": Advice(
        "The process ended before all rows were in the database. `pending` are in the folder `spool`; `lost` are "
        "nowhere, as the disk refused them too.",
        "Start a gateway with the same `spool_dir`: it writes them. Do not delete the folder. While the disk is full, "
        "free space before you stop a gateway: then nothing is lost.",
    ),
    "ledger.database_recovered": Advice("Rows are written again, after `outage_s` seconds.", NOTHING),
    "ledger.signing_key_unusable": Advice(
        "The file beside SQLite with the key that signs sessions of the page can be neither made nor read: sessions "
        "hold at one process, until it ends.",
        "Make the file readable, delete it for a new one, or set `page.signing_key`.",
    ),
    "ledger.database_unreachable": Advice(
        "The database does not answer. Calls go on, and their rows wait on disk.", DATABASE
    ),
    "ledger.entry_lost": Advice(
        "One row is lost: it could not be encoded, or a line that was to be set aside could not be written.",
        "With a `hint` it is a bug: report it. Else make `spool_dir` writable.",
    ),
    "ledger.entry_set_aside": Advice(
        "One line of the spool cannot become a row (`cause`), and was moved to `file`. All others are written.",
        "Report it with the line. The file may be deleted then.",
    ),
    "ledger.not_pruned": Advice(
        "Old rows could not be deleted, mostly because this role does not own the tables.",
        "Run `holeshot prune` as the tables' owner, for example each night.",
    ),
    "ledger.pruned": Advice("Rows older than the `ledger.keep_…` settings were deleted: how many, by table.", NOTHING),
    "ledger.spool_adopted": Advice(
        "The rows of a process that died were found and written. Its `interrupted` calls have this as their"
        " `error_kind`.",
        "Nothing, unless you do not know why that process died: see `worker.died`, or the kernel's log.",
    ),
    "ledger.spool_missing": Advice(
        "The folder of waiting rows was deleted and cannot be made again (`cause`). Calls go on; rows that are not in"
        " the database would be lost with this process.",
        "Make `spool_dir` writable now. It is put back by itself.",
    ),
    "ledger.spool_recovered": Advice("The spool is written to disk again.", NOTHING),
    "ledger.spool_restored": Advice(
        "Somebody deleted files of the spool while the gateway ran. It has written them again; `lost` rows are gone.",
        "Find out who deletes there: a cleaner of temporary files, perhaps.",
    ),
    "ledger.spool_skipped": Advice(
        "A folder of waiting rows belongs to another user of this machine, and cannot be read.",
        "Start a gateway as that user once, or give the folder to this gateway's user.",
    ),
    "ledger.spool_unwritable": Advice(
        "The disk refuses to write waiting rows (`cause`). Calls go on, and rows stay in memory.",
        "Free disk space, or make the folder writable. Do not restart before: rows in memory would be lost.",
    ),
    "ledger.sync_failed": Advice(
        "The disk did not confirm that it has stored the spool. The rows are lost only if the machine itself stops.",
        "Check the disk.",
    ),
    "ledger.task_failed": Advice("A round of the ledger's work failed. It is repeated.", BUG),
    "limits.not_recollected": Advice(
        "What clients have spent before the start could not be read, so limits in dollars may allow too much until it"
        " can.",
        "Make the database reachable: it is tried again.",
    ),
    "limits.redis_away": Advice(
        "Redis does not answer. Each of the `processes` allows its share of what was left of each limit.", REDIS
    ),
    "limits.redis_back": Advice("Limits are shared through Redis again.", NOTHING),
    "limits.round_failed": Advice("One exchange of limits with Redis failed. Shares are used until the next one.", BUG),
    "live.redis_away": Advice("Live streams show the calls of one process only, as Redis does not answer.", REDIS),
    "live.redis_garbage": Advice(
        "Another program publishes to the channel `holeshot:live:…` in Redis. What it sends is ignored and counted.",
        "Give the gateway a Redis, or an ACL, of its own.",
    ),
    "live.sharing_failed": Advice("One exchange of live events failed. The next one follows.", BUG),
    "log.lines_dropped": Advice(
        "What reads standard error was too slow or stood still, so this many `lines` were not written.",
        "Make the reader of the log faster, or set `log_level: warning`.",
    ),
    "probe": Advice("A probe of a quiet deployment has ended: `outcome`, time to the first token, cost.", NOTHING),
    "probes.crashed": Advice("A probe failed by a bug. The deployment is probed again later.", BUG),
    "probes.not_looked": Advice("One look for quiet deployments failed. The next one follows.", BUG),
    "probes.not_probed": Advice(
        "A quiet deployment is not probed, for this `reason`; said once for each reason.",
        "Nothing, mostly. `no_price`: set `price_per_mtok` or `probes.usd_if_unknown`. `usd_per_day`, `max_per_day`:"
        " the limit of the day is reached. See [probes](../probes.md).",
    ),
    "probes.unrecorded": Advice(
        "A probe was not sent, because its cost could not be written to the database.", DATABASE
    ),
    "report.child_failed": Advice(
        "The process that computes a replay for the page ended with `code`; `said` is the end of its standard error.",
        "If memory ran out, ask for a shorter window. Else report it.",
    ),
    "report.failed": Advice(
        "A report of the page or of `/api` could not be made (`cause`). The caller gets 503.",
        "Make the database reachable. If a table is missing, run `holeshot migrate`.",
    ),
    "report.too_slow": Advice(
        "A report was stopped after `limit_s` seconds. `sql` is the statement.",
        "Ask for less. If it is frequent, keep fewer attempts (`ledger.keep_attempts_days`), or use a faster database.",
    ),
    "request.crashed": Advice(
        "A request failed by a bug in the gateway. The client was answered with 500 `internal_error`.", BUG
    ),
    "request.refused": Advice(
        "The gateway itself refused requests with this `status` and `reason`: `count` of them since the last such"
        " line, at most one line a second for each reason. The other fields are those of the last request.",
        "Look the `reason` up in [errors](errors.md). All are counted in the table `refusals`.",
    ),
    "responses.not_shared": Advice(
        "Redis did not answer, so other replicas do not know who stores a response, or this one could not ask.",
        REDIS,
    ),
    "steering.not_recollected": Advice(
        "The figures of the last day could not be read at the start. Steering learns from new calls alone, and tries"
        " again.",
        NOTHING,
    ),
    "steering.not_refreshed": Advice(
        "The ranking could not be computed in the background. Calls compute their own.", BUG
    ),
    "steering.opened": Advice(
        "A deployment failed several times in a row (its breaker is open). It gets no calls for 5 to 20 s; then one"
        " call tries it.",
        "Nothing: others answer. If it goes on, an alert follows. See [when a provider"
        " fails](../guides/failing-provider.md).",
    ),
    "steering.out": Advice(
        "A deployment refuses the key or does not know the model (`kind`). It gets no calls, but one try a minute.",
        "Correct the key, the model's name or `base_url`, and reload.",
    ),
    "steering.recollected": Advice("The figures of the last day were read at the start.", NOTHING),
    "steering.recovered": Advice("A deployment that was broken or out answers again.", NOTHING),
    "steering.redis_away": Advice("Each replica steers by its own measurements, as Redis does not answer.", REDIS),
    "steering.redis_back": Advice("Replicas share their measurements again.", NOTHING),
    "steering.redis_garbage": Advice(
        "Another program writes to keys `holeshot:…` in Redis. What is not a figure is ignored and counted.",
        "Give the gateway a Redis, a number of a database, or an ACL of its own.",
    ),
    "steering.redis_lost_data": Advice(
        "Redis has lost figures: it was restarted or emptied. Each replica writes its own again.",
        "Nothing. If it repeats, Redis removes keys because its memory is full: give it more.",
    ),
    "targets.not_counted": Advice(
        "Calls of targets could not be counted in advance. Reports are right, but slower.", DATABASE
    ),
    "targets.not_watched": Advice("One look at the targets failed. The next one follows; the last figures stay.", BUG),
    "tls.authorities_missing": Advice(
        "`SSL_CERT_FILE` names a file that cannot be used, so providers with a private authority are not trusted.",
        "Correct the variable, or unset it, and restart.",
    ),
    "tls.invalid": Advice(
        "The changed certificate or key cannot be used (`problem`). The one in use stays, until it expires.",
        "Correct the files: they are read again when they change.",
    ),
    "tls.reloaded": Advice("The changed certificate is used for new connections.", NOTHING),
    "tracing.exporting_again": Advice(
        "The collector accepts spans again; `dropped` were lost since the start.", NOTHING
    ),
    "tracing.not_configured": Advice(
        "A variable `OTEL_…` in the environment is invalid (`problem`). Traces stay as they were.",
        "Correct the variable and restart.",
    ),
    "tracing.not_exported": Advice(
        "The collector did not accept spans (`reason`). They are dropped and counted until it does. Calls are not"
        " affected.",
        "Check `tracing.endpoint`, its `headers`, and the collector.",
    ),
    "tracing.setting_ignored": Advice(
        "The exporter ignores a variable `OTEL_…` (`reason`), and uses its default.",
        "Correct the variable and restart.",
    ),
    "tracing.spans_dropped": Advice(
        "The process ended before the collector had taken these spans.", "Nothing, if it is rare."
    ),
    "tracing.spans_rejected": Advice(
        "The collector accepted exports, but did not keep `spans` of their spans (`reason`). At most one line a"
        " minute.",
        "Check the limits of the collector.",
    ),
    "usage.far_off": Advice(
        "A deployment reports `times` as many tokens for its texts as other deployments of the model do. Costs and"
        " tok/s are computed from what providers report.",
        "Compare its usage and its bill with another provider's for the same text.",
    ),
    "worker.died": Advice(
        "A worker process ended by itself; `exit_code` is negative if a signal ended it (-9: killed, often as memory"
        " ran out). Another one is started. Its running calls are cut, and get `interrupted` in the ledger.",
        "See `worker.failed` before it, or the kernel's log.",
    ),
    "worker.failed": Advice("A worker could not go on. Its trace says why; another one is started.", BUG),
    "worker.no_socket": Advice(
        "A new worker has no socket to listen on (`error`). It is tried again, after at most 30 s.",
        "Check that no other program uses the port.",
    ),
    "worker.orphaned": Advice(
        "The parent process of the workers is gone, so this one stops.",
        "Find out what killed the parent. The supervisor (systemd, Docker) starts the gateway again.",
    ),
}
