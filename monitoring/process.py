"""The board of the process: overload, connections, stores, memory."""

from monitoring.board import INSTANCE, JOB, Board, Kind, Panel, Query, Row, gauge, rate

_INSTANCES = "{{instance}}"

PROCESS = Board(
    uid="holeshot-process",
    title="Holeshot: the process",
    description="Overload, connections, the ledger and Redis, memory and CPU of each gateway.",
    variables=(JOB, INSTANCE),
    rows=(
        Row(
            "Process",
            (
                Panel(
                    title="Version",
                    description="The version of each gateway, and its Python.",
                    kind=Kind.NAMES,
                    width=6,
                    queries=(
                        Query(
                            gauge("holeshot_build_info", by="instance, version, python", how="max"),
                            "{{instance}}: {{version}} on Python {{python}}",
                        ),
                    ),
                ),
                Panel(
                    title="Running for",
                    description="Since its oldest worker started.",
                    kind=Kind.STAT,
                    unit="s",
                    width=6,
                    queries=(
                        Query(
                            f"time() - {gauge('process_start_time_seconds', by='instance', how='min')}",
                            _INSTANCES,
                        ),
                    ),
                ),
                Panel(
                    title="CPU",
                    description="Cores that all workers of a gateway use.",
                    width=6,
                    queries=(Query(rate("process_cpu_seconds_total", by="instance"), _INSTANCES),),
                ),
                Panel(
                    title="Memory",
                    description="Resident memory of all workers.",
                    unit="bytes",
                    width=6,
                    queries=(Query(gauge("process_resident_memory_bytes", by="instance"), _INSTANCES),),
                ),
            ),
        ),
        Row(
            "Load",
            (
                Panel(
                    title="Calls in flight",
                    description="Calls with a seat, those that wait for one, and how many may have one now.",
                    queries=(
                        Query(gauge("holeshot_calls_in_flight", by="instance"), "{{instance}} in flight"),
                        Query(gauge("holeshot_calls_queued", by="instance"), "{{instance}} queued"),
                        Query(gauge("holeshot_calls_limit", by="instance"), "{{instance}} limit"),
                    ),
                ),
                Panel(
                    title="Delay of the event loop",
                    description="How late it is, and the longest of the last ten to twenty seconds; per worker.",
                    unit="s",
                    queries=(
                        Query(
                            f"{gauge('holeshot_loop_delay_seconds', by='instance')} / "
                            f"{gauge('holeshot_workers', by='instance')}",
                            _INSTANCES,
                        ),
                        Query(
                            f"{gauge('holeshot_loop_delay_peak_seconds', by='instance')} / "
                            f"{gauge('holeshot_workers', by='instance')}",
                            "{{instance}} longest",
                        ),
                    ),
                ),
                Panel(
                    title="Tasks and workers",
                    description="Tasks of all event loops, and worker processes.",
                    queries=(
                        Query(gauge("holeshot_tasks", by="instance"), "{{instance}} tasks"),
                        Query(gauge("holeshot_workers", by="instance"), "{{instance}} workers"),
                    ),
                ),
                Panel(
                    title="Connections",
                    description="Open connections from clients; unadmitted: no request with a valid key yet.",
                    queries=(
                        Query(gauge("holeshot_connections", by="instance"), "{{instance}}"),
                        Query(gauge("holeshot_connections_unadmitted", by="instance"), "{{instance}} unadmitted"),
                    ),
                ),
                Panel(
                    title="New connections",
                    description="Accepted per second.",
                    unit="cps",
                    queries=(Query(rate("holeshot_connections_accepted_total", by="instance"), _INSTANCES),),
                ),
                Panel(
                    title="Cut connections",
                    description="Closed for a limit or an ended key, per second, by reason.",
                    unit="cps",
                    queries=(Query(rate("holeshot_connections_cut_total", by="reason"), "{{reason}}"),),
                    empty_when_healthy="these series begin with the first such event.",
                ),
            ),
        ),
        Row(
            "Stores",
            (
                Panel(
                    title="Rows not in SQL",
                    description="Entries that wait on disk for the database.",
                    queries=(Query(gauge("holeshot_ledger_pending", by="instance"), _INSTANCES),),
                ),
                Panel(
                    title="The oldest of them",
                    description="Its age, and how long the database has not answered.",
                    unit="s",
                    queries=(
                        Query(
                            gauge("holeshot_ledger_oldest_pending_seconds", by="instance", how="max"),
                            "{{instance}} oldest row",
                        ),
                        Query(
                            gauge("holeshot_ledger_answered_seconds", by="instance", how="max"),
                            "{{instance}} since the database answered",
                        ),
                    ),
                ),
                Panel(
                    title="Stores away",
                    description="Workers without database, without Redis, or with a spool that cannot be written.",
                    queries=(
                        Query(gauge("holeshot_ledger_away"), "database"),
                        Query(gauge("holeshot_redis_away"), "Redis"),
                        Query(gauge("holeshot_ledger_spool_failing"), "spool"),
                    ),
                ),
                Panel(
                    title="Rounds with Redis",
                    description="How long the last one took, and the time from one to the next, which is longer the "
                    "more processes share Redis. Calls that need a larger lease wait for 50 ms at most, in a new "
                    "window 250.",
                    unit="s",
                    width=12,
                    queries=(
                        Query(gauge("holeshot_redis_round_seconds", by="of", how="max"), "{{of}} took"),
                        Query(gauge("holeshot_redis_period_seconds", by="of", how="max"), "{{of}} every"),
                    ),
                    empty_when_healthy="without redis_url there are none.",
                ),
                Panel(
                    title="Rows in trouble",
                    description="lost: neither disk nor SQL took them. unspooled: the disk did not. rejected: the "
                    "database did not. expired: older than the retention when they arrived.",
                    width=12,
                    queries=(
                        Query(gauge("holeshot_ledger_lost"), "lost"),
                        Query(gauge("holeshot_ledger_unspooled"), "unspooled"),
                        Query(gauge("holeshot_ledger_rejected"), "rejected"),
                        Query(gauge("holeshot_ledger_expired"), "expired"),
                    ),
                ),
                Panel(
                    title="Dropped log lines",
                    description="Lines that no process read in time, per second.",
                    width=12,
                    queries=(Query(rate("holeshot_log_lines_dropped_total"), "lines"),),
                ),
                Panel(
                    title="Keys from the database",
                    description="Seconds since the database last told which keys there are; per worker.",
                    unit="s",
                    width=12,
                    queries=(
                        Query(
                            f"{gauge('holeshot_keys_stale_s', by='instance')} / "
                            f"{gauge('holeshot_workers', by='instance')}",
                            _INSTANCES,
                        ),
                    ),
                ),
            ),
        ),
    ),
)
