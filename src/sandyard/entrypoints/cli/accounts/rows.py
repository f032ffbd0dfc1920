"""An account's calls: projects, previews, keys, bills, notifications; and an admin's, of users."""

from sandyard.entrypoints.cli.calls.row import ALL, EVENT_COLUMNS, Row, Rows

_VERSIONS = (
    Row("ls", "list_project_versions", "shop", items="versions",
        columns="version created_at author files size=size_bytes message"),
    Row("diff", "compare_project_versions", "shop 3 --since 1", items="changes", columns=ALL),
    Row("restore", "restore_project_version", "shop 3 --message 'As on Monday'", columns=ALL),
    Row("rm", "remove_project_versions", "shop --keep 10"),
)  # fmt: skip
_VARIABLES = "name value is_secret updated_at*"

project = Rows(
    "project",
    (
        Row("ls", "list_projects", "--status active"),
        Row("create", "create_project", "shop --description 'The web shop'", arguments="name"),
        Row("show", "get_project", "shop", columns=ALL),
        Row("change", "update_project", "shop --name web-shop"),
        Row("archive", "archive_project", "shop"),
        Row("unarchive", "unarchive_project", "shop"),
        Row("make-default", "make_project_default", "shop"),
        Row("rm", "delete_project", "shop"),
        Row("files", "list_project_files", "shop", items="files", columns="path encoding*"),
        Row("tar", "read_project_tar", "shop shop.tar --version 3", is_raw=True),
    ),
    columns="project_id name status default=is_default description* created_at* updated_at*",
    help="Manage the projects of your account.",
)
project.add_command(
    Rows(
        "project env",
        (
            Row("ls", "list_project_variables", "shop"),
            Row("set", "set_project_variable", "shop API_KEY 0fj39 --secret", arguments="value"),
            Row("rm", "remove_project_variable", "shop API_KEY"),
        ),
        columns=_VARIABLES,
        help="Variables and secrets of a project's sandboxes.",
    )
)

project.add_command(
    Rows(
        "project versions",
        _VERSIONS,
        help="Versions of a project's files.",
    )
)

preview = Rows(
    "preview",
    (
        Row("sync", "sync_preview", "shop", columns=ALL),
        Row("status", "get_preview_status", "shop", columns=ALL),
        Row(
            "look", "look_at_preview", "shop --path /cart", columns="url title complete=is_complete"
        ),
        Row("stop", "stop_preview", "shop"),
        Row("publish", "publish_project", "shop --root dist --fallback index.html", columns=ALL),
        Row("published", "get_publication", "shop", columns=ALL),
        Row("unpublish", "unpublish_project", "shop"),
        Row("add-domain", "add_publication_domain", "shop shop.example.org", columns=ALL),
        Row("rm-domain", "remove_publication_domain", "shop shop.example.org"),
        Row("link", "create_project_token", "shop --minutes 30", columns="url expires_at token*"),
        Row("history", "get_preview_history", "shop", columns=EVENT_COLUMNS),
    ),
    help="Serve the files of a project.",
)

key = Rows(
    "key",
    (
        Row("ls", "list_api_keys"),
        Row("create", "create_api_key", "ci --scope run --expires 90d", arguments="name",
            renamed={"expires_at": "expires"}, shown_once="api_key",
            more="A key can't create keys: SANDYARD_API_KEY must be a login's access token."),
        Row("show", "get_api_key", "ci", columns=ALL),
        Row("change", "update_api_key", "ci --name nightly"),
        Row("activate", "activate_api_key", "ci"),
        Row("deactivate", "deactivate_api_key", "ci"),
        Row("rm", "delete_api_key", "ci"),
    ),
    columns="key_id name prefix scope active=is_active expires_at last_used=last_used_at*",
    help="Manage the API keys of your account.",
)  # fmt: skip

bills = Rows(
    "bills",
    (
        Row("ls", "list_bills", "--from 2026-11-01 --service-type sandbox_runtime"),
        Row("sum", "sum_bills", "--by project", items="sums", columns=ALL),
        Row("export", "export_bills", "bills.csv --from 2026-11-01", is_raw=True,
            more="As CSV, to a file or standard output."),
        Row("quota", "get_quota", items="quotas", columns=ALL),
        Row("charge", "charge_account", "ann --service-type credit --amount 20 "
            "--description 'Goodwill'", arguments="account_id"),
        Row("run", "run_billing", columns=ALL),
    ),
    columns="date=billing_date sandbox=sandbox_id service=service_type amount currency "
    "seconds=usage_seconds* project=project_id* id=billing_id*",
    help="Show bills and quotas of your account.",
)  # fmt: skip

notifications = Rows(
    "notifications",
    (
        Row("ls", "list_notifications", "--unread true"),
        Row("show", "get_notification", "ntf-3k9x0v7q2m5n8p1rt", columns=ALL),
        Row("read", "read_notification", "ntf-3k9x0v7q2m5n8p1rt"),
        Row("read-all", "read_all_notifications", columns=ALL),
        Row("rm", "delete_notification", "ntf-3k9x0v7q2m5n8p1rt"),
        Row("broadcast", "broadcast_notification", "--title 'Maintenance at 20:00' "
            "--message 'For ten minutes.'", columns=ALL),
    ),
    columns="notification_id time=created_at type read=is_read title message",
    help="Read your notifications.",
)  # fmt: skip

account = Rows(
    "account",
    (
        Row("show", "get_me"),
        Row("change", "update_me", "--spend-threshold 50"),
        Row("export", "export_account", "account.json", is_raw=True,
            more="As JSON, to a file or standard output."),
        Row("events", "list_events", "--kind sandbox.started", columns=EVENT_COLUMNS),
    ),
    help="Show and change your account.",
)  # fmt: skip

users = (
    Row("ls", "list_users", "--role admin"),
    Row("show", "get_user", "ann", columns=ALL),
    Row("invite", "invite_user", "ann@example.com", arguments="email", columns=ALL),
    Row("activate", "activate_user", "ann"),
    Row("deactivate", "deactivate_user", "ann"),
    Row("set-role", "set_user_role", "ann admin", arguments="role"),
    Row("end-sandbox", "end_sandbox", "sbx-7c2e9g4j1m6p3s8vx --reason 'mining'", columns=ALL),
    Row("events", "list_all_events", "--kind account.created", columns=EVENT_COLUMNS),
)
USER_COLUMNS = "account_id username email role active=is_active last_login* created_at*"
