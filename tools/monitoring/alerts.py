"""The alert rules: for each its expression, and what to do when it fires."""

from tools.monitoring.alert import Alert, Example

_FAILED = 'status=~"5..|424|429|broken"'  # errors that are not the client's fault, as counted everywhere
_JOB = {"job": "holeshot"}
_ALWAYS, _NEVER = "1+0x60", "0+0x60"


def _gauge(name: str, labels: str = "") -> str:
    return f'{name}{{job="holeshot",instance="a"{"," + labels if labels else ""}}}'


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="HoleshotDown",
        expr='up{job="holeshot"} == 0',
        lasting="2m",
        severity="page",
        summary="Prometheus cannot reach the gateway {{ $labels.instance }}.",
        description="See whether it runs, and whether the scrape has a key of a viewer.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("up"): _NEVER}),
        quiet=Example({_gauge("up"): _ALWAYS}),
    ),
    Alert(
        name="HoleshotCallsFail",
        expr=f"sum by (job, model) (rate(holeshot_calls_total{{{_FAILED}}}[5m]))"
        " / sum by (job, model) (rate(holeshot_calls_total[5m])) > 0.05"
        " and sum by (job, model) (increase(holeshot_calls_total[5m])) > 20",
        lasting="5m",
        severity="page",
        summary="More than 5 % of the calls to {{ $labels.model }} fail.",
        description="See the board of deployments, then: holeshot sql 'select * from provider_errors'.",
        labels={**_JOB, "model": "m"},
        fires=Example(
            {
                _gauge("holeshot_calls_total", 'model="m",status="200"'): "0+90x60",
                _gauge("holeshot_calls_total", 'model="m",status="502"'): "0+5x60",
                _gauge("holeshot_calls_total", 'model="m",status="broken"'): "0+5x60",
            }
        ),
        quiet=Example(
            {
                _gauge("holeshot_calls_total", 'model="m",status="200"'): "0+99x60",
                _gauge("holeshot_calls_total", 'model="m",status="502"'): "0+1x60",
                _gauge("holeshot_calls_total", 'model="rare",status="502"'): "0+1x60",
            }
        ),
    ),
    Alert(
        name="HoleshotDeploymentOut",
        expr='max by (job, deployment) (holeshot_deployment_state{state="out"}) > 0'
        " or max by (job, deployment) (holeshot_breaker_open) > 0",
        lasting="5m",
        severity="ticket",
        summary="{{ $labels.deployment }} is out: it is broken, refuses the key, or does not know the model.",
        description="See why on the page (Alerts). Correct its key or name and reload; until then it gets probes only.",
        labels={**_JOB, "deployment": "d"},
        fires=Example({_gauge("holeshot_breaker_open", 'deployment="d"'): _ALWAYS}),
        quiet=Example(
            {
                _gauge("holeshot_deployment_state", 'deployment="d",state="out"'): _NEVER,
                _gauge("holeshot_breaker_open", 'deployment="d"'): "0 1 1 1 1 0+0x60",
            }
        ),
    ),
    Alert(
        name="HoleshotRateLimitNear",
        expr="min by (job, deployment) (holeshot_headroom_ratio) < 0.1",
        lasting="10m",
        severity="ticket",
        summary="Less than 10 % of the rate limit of {{ $labels.deployment }} is left.",
        description="Ask the provider for more, or add a deployment to the model.",
        labels={**_JOB, "deployment": "d"},
        fires=Example({_gauge("holeshot_headroom_ratio", 'deployment="d"'): "0.05+0x60"}),
        quiet=Example({_gauge("holeshot_headroom_ratio", 'deployment="d"'): "0.5+0x60"}),
    ),
    Alert(
        name="HoleshotCountsTokensUnlikeOthers",
        expr="sum by (job, deployment) (increase(holeshot_usage_far_off_total[1h])) > 0.5",
        lasting="0m",
        severity="ticket",
        summary="{{ $labels.deployment }} counts tokens unlike the other deployments.",
        description="Its cost and speed come from its own counts. Compare them with another provider's for one text.",
        labels={**_JOB, "deployment": "d"},
        fires=Example({_gauge("holeshot_usage_far_off_total", 'deployment="d"'): "0+0x10 1+0x50"}),
        quiet=Example({_gauge("holeshot_usage_far_off_total", 'deployment="d"'): "7+0x60"}),
    ),
    Alert(
        name="HoleshotDatabaseAway",
        expr="max by (job, instance) (holeshot_ledger_away) > 0",
        lasting="5m",
        severity="ticket",
        summary="The database of {{ $labels.instance }} does not answer.",
        description="Calls go on, and rows wait on disk. Bring it back before the disk is full.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_ledger_away"): _ALWAYS}),
        quiet=Example({_gauge("holeshot_ledger_away"): _NEVER}),
    ),
    Alert(
        name="HoleshotLedgerBehind",
        expr="max by (job, instance) (holeshot_ledger_oldest_pending_seconds) > 300",
        lasting="0m",
        severity="ticket",
        summary="Rows of {{ $labels.instance }} have waited for SQL for more than five minutes.",
        description="See whether the database is slow or away. Limits in dollars and reports are late by as much.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_ledger_oldest_pending_seconds"): "0+60x60"}),
        quiet=Example({_gauge("holeshot_ledger_oldest_pending_seconds"): "2+0x60"}),
    ),
    Alert(
        name="HoleshotSpoolFails",
        expr="max by (job, instance) (holeshot_ledger_spool_failing) > 0",
        lasting="0m",
        severity="page",
        summary="The spool of {{ $labels.instance }} is deleted or full.",
        description="Rows not yet in SQL would be lost with the process. Make room, or move the folder back.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_ledger_spool_failing"): _ALWAYS}),
        quiet=Example({_gauge("holeshot_ledger_spool_failing"): _NEVER}),
    ),
    Alert(
        name="HoleshotRowsLost",
        expr="sum by (job, instance) (delta(holeshot_ledger_lost[15m])) > 0"
        " or sum by (job, instance) (delta(holeshot_ledger_rejected[15m])) > 0",
        lasting="0m",
        severity="page",
        summary="Rows of {{ $labels.instance }} reached neither disk nor SQL, or the database rejected them.",
        description="The log says why: ledger.entry_set_aside, ledger.entry_lost.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_ledger_rejected"): "0+0x20 3+0x40"}),
        quiet=Example({_gauge("holeshot_ledger_rejected"): "3+0x60", _gauge("holeshot_ledger_lost"): _NEVER}),
    ),
    Alert(
        name="HoleshotRedisAway",
        expr="max by (job, instance) (holeshot_redis_away) > 0 or max by (job, instance) (holeshot_limits_away) > 0",
        lasting="5m",
        severity="ticket",
        summary="{{ $labels.instance }} cannot reach Redis.",
        description="Bring Redis back. Until then it steers by its own measurements, and allows its share of limits.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_redis_away"): _ALWAYS}),
        quiet=Example({_gauge("holeshot_redis_away"): _NEVER, _gauge("holeshot_limits_away"): _NEVER}),
    ),
    Alert(
        name="HoleshotResolverAway",
        expr="max by (job, instance) (holeshot_names_away) > 0",
        lasting="5m",
        severity="ticket",
        summary="The resolver of {{ $labels.instance }} does not tell the addresses of providers.",
        description="Repair it (/etc/resolv.conf, CoreDNS). Calls go to the last good addresses, for an hour at most.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_names_away"): _ALWAYS}),
        quiet=Example({_gauge("holeshot_names_away"): _NEVER}),
    ),
    Alert(
        name="HoleshotRedisSlow",
        expr="max by (job, instance) (avg_over_time(holeshot_redis_round_seconds[5m])) > 0.05",
        lasting="5m",
        severity="ticket",
        summary="A round of {{ $labels.instance }} with Redis takes more than 50 ms.",
        description="If Redis' core is full (redis-cli info cpu), a Redis Cluster has several. Else it is the network, "
        "or the gateway's own core.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_redis_round_seconds", 'of="limits"'): "0.08+0x60"}),
        quiet=Example({_gauge("holeshot_redis_round_seconds", 'of="limits"'): "0.004+0x60"}),
    ),
    Alert(
        name="HoleshotSheds",
        expr="sum by (job) (rate(holeshot_shed_calls_total[5m])) > 0",
        lasting="5m",
        severity="ticket",
        summary="Calls are refused because there are too many.",
        description="Add a worker or a replica; the page 'Overload' of the documentation has what sets the limit.",
        labels=_JOB,
        fires=Example({_gauge("holeshot_shed_calls_total", 'limit="delay",reason="queue_full"'): "0+5x60"}),
        quiet=Example({_gauge("holeshot_shed_calls_total", 'limit="delay",reason="queue_full"'): "5+0x60"}),
    ),
    Alert(
        name="HoleshotLoopLate",
        expr="sum by (job, instance) (holeshot_loop_delay_seconds) / sum by (job, instance) (holeshot_workers) > 0.05",
        lasting="5m",
        severity="ticket",
        summary="The event loop of {{ $labels.instance }} is late by more than 50 ms.",
        description="Its CPU is used up, or its machine is. Add a worker or a replica.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_loop_delay_seconds"): "0.4+0x60", _gauge("holeshot_workers"): "4+0x60"}),
        quiet=Example({_gauge("holeshot_loop_delay_seconds"): "0.1+0x60", _gauge("holeshot_workers"): "4+0x60"}),
    ),
    Alert(
        name="HoleshotModelDollarsLow",
        expr="min by (job, model) (holeshot_model_left_usd / holeshot_model_limit_usd) < 0.1",
        lasting="0m",
        severity="ticket",
        summary="Less than 10 % of today's dollars of {{ $labels.model }} is left.",
        description="Raise usd_per_day, or find who uses it. At 0 fallbacks answer, or nobody, until the next UTC day.",
        labels={**_JOB, "model": "m"},
        fires=Example(
            {
                _gauge("holeshot_model_left_usd", 'model="m"'): "1+0x60",
                _gauge("holeshot_model_limit_usd", 'model="m"'): "20+0x60",
            }
        ),
        quiet=Example(
            {
                _gauge("holeshot_model_left_usd", 'model="m"'): "10+0x60",
                _gauge("holeshot_model_limit_usd", 'model="m"'): "20+0x60",
            }
        ),
    ),
    Alert(
        name="HoleshotClientDollarsGone",
        expr='max by (job, limit) (holeshot_client_limits{left="none"}) > 0',
        lasting="0m",
        severity="ticket",
        summary="A client has used up its {{ $labels.limit }}.",
        description="See which one in the view client_usage. Raise its limit, or let it wait.",
        labels={**_JOB, "limit": "usd_per_day"},
        fires=Example({_gauge("holeshot_client_limits", 'left="none",limit="usd_per_day"'): _ALWAYS}),
        quiet=Example({_gauge("holeshot_client_limits", 'left="more",limit="usd_per_day"'): "9+0x60"}),
    ),
    Alert(
        name="HoleshotKeysStale",
        expr="sum by (job, instance) (holeshot_keys_stale_s) / sum by (job, instance) (holeshot_workers) > 60",
        lasting="5m",
        severity="ticket",
        summary="{{ $labels.instance }} has not heard from the database which keys there are.",
        description="Make the database reachable. Until then keys that were ended still work there.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("holeshot_keys_stale_s"): "0+120x60", _gauge("holeshot_workers"): "2+0x60"}),
        quiet=Example({_gauge("holeshot_keys_stale_s"): "1+0x60", _gauge("holeshot_workers"): "2+0x60"}),
    ),
    Alert(
        name="HoleshotRestarts",
        expr='changes(process_start_time_seconds{job="holeshot"}[30m]) > 2',
        lasting="0m",
        severity="ticket",
        summary="{{ $labels.instance }} has started more than twice in half an hour.",
        description="See in its log why it ended: worker.failed, or the last lines before gateway.started.",
        labels={**_JOB, "instance": "a"},
        fires=Example({_gauge("process_start_time_seconds"): "1 1 1 1 1 9 9 9 9 20 20 20 20 30 30 30 30+0x40"}),
        quiet=Example({_gauge("process_start_time_seconds"): "1 1 1 1 1 9+0x60"}),
    ),
    Alert(
        name="HoleshotKeysGuessed",
        expr="sum by (job) (holeshot_guessing_addresses) > 0",
        lasting="15m",
        severity="ticket",
        summary="Somebody tries wrong keys.",
        description="See the addresses in the view wrong_keys_24h. Give old programs a new key; block others.",
        labels=_JOB,
        fires=Example({_gauge("holeshot_guessing_addresses"): _ALWAYS}),
        quiet=Example({_gauge("holeshot_guessing_addresses"): _NEVER}),
    ),
)
