"""Calls of sandboxes, templates, images and SSH keys."""

from sandyard.entrypoints.cli.calls.row import ALL, EVENT_COLUMNS, Row, Rows

SANDBOX_COLUMNS = (
    "sandbox_id name status cost currency* ends=timeout_at program=program.status "
    "reason=status_reason* cpu=cpu_spec* memory=memory_spec* network* isolation* template_id* "
    "address=preview_url*"
)
_FILES = "path kind bytes=size_bytes modified_at* mode*"

rows = (
    Row("show", "get_sandbox", "my-box", columns=ALL),
    Row("change", "update_sandbox", "my-box --idle-stop-minutes 15 --network none"),
    Row("extend", "extend_sandbox", "my-box 600", arguments="seconds"),
    Row("ports", "list_ports", "my-box", columns="port url"),
    Row("history", "get_sandbox_history", "my-box", columns=EVENT_COLUMNS),
    Row("metrics", "get_sandbox_metrics", "my-box", items="metrics", columns=ALL),
    Row("samples", "list_sandbox_samples", "my-box --limit 20",
        columns="timestamp cpu=cpu_utilization memory=memory_utilization "
        "storage=storage_utilization"),
    Row("egress", "get_sandbox_egress", "my-box", columns=ALL),
)  # fmt: skip
groups = (
    Rows(
        "sandbox env",
        (
            Row("ls", "list_sandbox_variables", "my-box"),
            Row("set", "set_sandbox_variable", "my-box API_KEY sk-live-0123456789 --secret "
                """--binding '{"hosts": ["api.example.com"]}'""", arguments="value"),
            Row("rm", "remove_sandbox_variable", "my-box API_KEY"),
        ),
        columns="name value is_secret updated_at*",
        help="Variables and secrets of a sandbox.",
    ),
    Rows(
        "sandbox command",
        (
            Row("ls", "list_commands", "my-box"),
            Row("show", "get_command", "my-box cmd-7c2e9g4j1m6p3s8vx", columns=ALL),
            Row("output", "get_command_output", "my-box cmd-7c2e9g4j1m6p3s8vx --offset 4096",
                fixed={"follow": False}, columns=ALL),
            Row("input", "write_command_input", "my-box cmd-7c2e9g4j1m6p3s8vx --data 'yes\n'"),
            Row("signal", "signal_command", "my-box cmd-7c2e9g4j1m6p3s8vx --signal SIGHUP"),
            Row("kill", "kill_command", "my-box cmd-7c2e9g4j1m6p3s8vx"),
        ),
        columns="command_id arguments running=is_running exit=exit_code started_at ended_at* tag*",
        help="Commands that run in a sandbox.",
    ),
    Rows(
        "sandbox file",
        (
            Row("ls", "list_folder", "my-box --path /workspace --depth 2"),
            Row("show", "stat_file", "my-box /workspace/app.py", arguments="path", columns=ALL),
            Row("mv", "move_file", "my-box a.txt b.txt", arguments="source target"),
            Row("mkdir", "make_folder", "my-box data", arguments="path"),
            Row("rm", "remove_file", "my-box data", arguments="path"),
        ),
        columns=_FILES,
        help="Files of a sandbox; `sandbox cp` copies them.",
    ),
)  # fmt: skip

template = (
    Row("ls", "list_templates", "--own", flags={"own": "is_own"}),
    Row("create", "create_template", "web --image img-7c2e9g4j1m6p3s8vx", arguments="name",
        renamed={"repository_url": "repository", "repository_ref": "ref"},
        defaults={"category": "other", "language": "any"}),
    Row("show", "get_template", "web", columns=ALL),
    Row("change", "update_template", "web --is-public --tags web --tags node"),
    Row("rm", "delete_template", "web"),
)  # fmt: skip
TEMPLATE_COLUMNS = (
    "template_id name visibility image isolation repository=repository_url description* tags* "
    "language* network* updated_at*"
)

image = (Row("ls", "list_images"), Row("show", "get_image", "web", columns=ALL),
         Row("rm", "delete_image", "img-7c2e9g4j1m6p3s8vx"))  # fmt: skip
IMAGE_COLUMNS = "image_id reference status bytes=size_bytes unpacked_bytes* digest* reason"

ssh_key = (Row("ls", "list_ssh_keys"), Row("rm", "remove_ssh_key", "ssk-7r2d9f0h3j5k8l1zq"))
SSH_KEY_COLUMNS = "key=ssh_key_id name fingerprint added=created_at by_API_key=api_key_id*"

volumes = Rows(
    "volume",
    (
        Row("ls", "list_volumes"),
        Row("create", "create_volume", "models --size-gb 10", arguments="name"),
        Row("show", "get_volume", "models", columns=ALL),
        Row("resize", "resize_volume", "models --size-gb 20"),
        Row("rm", "delete_volume", "models"),
    ),
    columns="volume_id name GB=size_gb status mounted_by* project_id* created_at*",
    help="Volumes, which outlive the sandboxes that mount them.",
)  # fmt: skip
