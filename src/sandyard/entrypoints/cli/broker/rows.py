"""The Broker's calls for operators: reservations, the queue, webhooks, clients, provider, pool."""

from sandyard.entrypoints.cli.calls.row import ALL, EVENT_COLUMNS, Row, Rows

reservations = Rows(
    "reservations",
    (
        Row("ls", "list_reservations", "--from 2026-12-24 --to 2026-12-31"),
        Row("create", "reserve_sandboxes", "30 --track-prefix dns-101- --from 2026-12-24T09:00 "
            "--to 2026-12-24T17:00", arguments="count"),
        Row("show", "get_reservation", "res-3k9x0v7q2m5n8p1rt", columns=ALL),
        Row("rm", "cancel_reservation", "res-3k9x0v7q2m5n8p1rt"),
    ),
    columns="reservation_id status count kept missing from to tracks=track_prefix client "
    "names=name_prefix* note*",
    help="Keep sandboxes of the pool for named tracks.",
)  # fmt: skip

queue = Rows(
    "queue",
    (
        Row("ls", "list_waiting_tickets", "--watch"),
        Row("move", "move_ticket", "0199a2b3c4d500000adf3f2c91 0", arguments="urgency"),
        Row("rm", "drop_ticket", "0199a2b3c4d500000adf3f2c91"),
    ),
    help="Show the tracks that wait for a sandbox, in their order, and change it.",
)

webhooks = Rows(
    "webhooks",
    (
        Row("ls", "list_webhooks"),
        Row("create", "create_webhook", "https://ops.example.com/hook --kinds 'lease.*'",
            arguments="url", shown_once="secret"),
        Row("show", "get_webhook", "whk-3k9x0v7q2m5n8p1rt", columns=ALL),
        Row("change", "change_webhook", "whk-3k9x0v7q2m5n8p1rt --is-enabled true",
            renamed={"url": "receiver"}),
        Row("rm", "delete_webhook", "whk-3k9x0v7q2m5n8p1rt"),
        Row("rotate-secret", "rotate_webhook_secret", "whk-3k9x0v7q2m5n8p1rt", shown_once="secret"),
        Row("replay", "replay_webhook_event", "whk-3k9x0v7q2m5n8p1rt evt-7r2d9f0h3j5k8l1zq",
            arguments="event_id", columns=ALL),
        Row("deliveries", "list_webhook_deliveries", "whk-3k9x0v7q2m5n8p1rt --limit 20",
            columns=ALL),
    ),
    columns="webhook_id url enabled=is_enabled kinds reason=disabled_reason* note* created_at*",
    help="Send the Broker's events to HTTP receivers.",
)  # fmt: skip

_LIFETIME = {"expires_at": "expires-days", "scopes": "scope"}
clients = Rows(
    "clients",
    (
        Row("create", "create_client", "acme --scope allocate --track-prefix acme- "
            "--rate 100/minute", arguments="name", renamed=_LIFETIME, shown_once="token"),
        Row("list", "list_clients"),
        Row("show", "get_client", "acme", columns=ALL),
        Row("tokens", "get_client", "acme", items="tokens",
            columns="token_id expires=expires_at last_used=last_used_at created=created_at*"),
        Row("change", "change_client", "acme --scope allocate --max-leases 10", renamed=_LIFETIME),
        Row("add-token", "add_client_token", "acme --expires-days 90", renamed=_LIFETIME,
            shown_once="token"),
        Row("revoke", "revoke_client_token", "acme 3k9x0v7q2m5n"),
        Row("delete", "delete_client", "acme"),
    ),
    columns="name scopes tracks=track_prefix rate max_leases",
    help="Manage clients of the Broker, their tokens and limits.",
)  # fmt: skip

pool = (
    Row("ls", "list_pool_sandboxes", "--status held --watch"),
    Row("show", "get_pool_sandbox", "lab-042", columns=ALL),
    Row("stats", "get_pool_stats"),
    Row("trend", "get_pool_history", "--hours 24 --step-minutes 60", items="samples", columns=ALL),
    Row("events", "list_pool_events", "--kind lease.ended --limit 20", columns=EVENT_COLUMNS),
    Row("quarantine", "quarantine_pool_sandbox", "lab-042 --reason 'no network'"),
    Row("hold", "hold_pool_sandbox", "lab-042 --reason 'to look at' --until 2d"),
    Row("restore", "restore_pool_sandbox", "lab-042"),
    Row("release", "release_pool_sandbox", "lab-042"),
    Row("extend", "extend_pool_lease", "lab-042 30", arguments="minutes"),
    Row("replace", "replace_pool_sandbox", "lab-042 --reason 'no network'"),
    Row("retry-deletion", "retry_pool_sandbox_deletion", "lab-042"),
    Row("history", "get_pool_sandbox_history", "lab-042 -o wide", columns=EVENT_COLUMNS,
        more="Newest first. A deleted sandbox needs its id."),
    Row("sync", "sync_pool", columns=ALL),
    Row("cleanup", "clean_up_pool", columns=ALL),
    Row("expire", "expire_leases", columns=ALL),
    Row("bulk-delete", "bulk_delete_pool_sandboxes", "--status stale --dry-run", columns=ALL),
    Row("bulk-quarantine", "bulk_quarantine_pool_sandboxes", "--name lab-1 --reason 'old image'",
        columns=ALL),
    Row("bulk-hold", "bulk_hold_pool_sandboxes", "--status stale --reason audit --until 1d",
        columns=ALL),
    Row("bulk-restore", "bulk_restore_pool_sandboxes", "--status held --dry-run", columns=ALL),
    Row("delete-stale", "auto_delete_stale_pool_sandboxes", "--dry-run", columns=ALL),
    Row("provider", "get_pool_provider"),
)  # fmt: skip
jobs = (
    Row("ls", "list_pool_jobs", items="jobs",
        columns="name last=finished_at next=next_run_at every=interval_sec running=is_running"),
    Row("start", "run_pool_job", "sync", columns=ALL, more="On the server, and at once."),
)  # fmt: skip
POOL_COLUMNS = (
    "sandbox=sandbox_id name status reason=status_reason track=allocated_to_track* "
    "expires=expires_at* external_id=external_id*"
)
