"""Settings of the Platform and of its sandboxes."""

import re
from decimal import Decimal
from ipaddress import ip_network
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from sandyard.kit.patterns import pattern
from sandyard.settings import fields

_HOST = r"(\*\.)?[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?"
_REGISTRY = r"(https?://)?[A-Za-z0-9._-]+(:\d{1,5})?"
_DOMAIN = pattern(
    r"^(https?://)?([a-zA-Z0-9][a-zA-Z0-9-]*\.)*[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?(:\d{1,5})?$",
    "must be a domain such as sandboxes.example.net, perhaps with scheme and port; an address has "
    "no hosts below it",
)


PACKAGE_HOSTS = ",".join(
    (
        *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "registry.yarnpkg.com"),
        *("nodejs.org", "deb.debian.org", "security.debian.org"),
        *("crates.io", "index.crates.io", "static.crates.io", "static.rust-lang.org"),
        *("proxy.golang.org", "sum.golang.org", "github.com", "codeload.github.com"),
        *("raw.githubusercontent.com", "objects.githubusercontent.com", "gitlab.com"),
        *("bitbucket.org", "codeberg.org"),
    )
)


READ_ONLY = "read-only+"
"""Before SNAPSHOT_STORE in a copy of a data dir."""


class PlatformSettings(fields.Section):
    """The Platform."""

    jwt_secret: fields.SigningKey = None
    """Keys for login tokens, comma-separated: the first signs, all verify."""
    gateway_secret: fields.SigningKey = None
    """Keys for access tokens of sandboxes, comma-separated: the first signs, all verify."""
    login_hours: fields.Hours = 24
    """Lifetime of a login token."""
    public_url: fields.URL | None = None
    """Public URL of this server, for links in mails and the addresses of sandboxes. Unset: the
    address it listens on."""
    smtp_url: SecretStr | None = None
    """`smtp://`, `smtps://` or `smtp+starttls://`, with user and password if needed. Unset: mails
    are written to `outbox` in the data dir."""
    mail_from: str = Field(
        "Sandyard <sandyard@localhost>",
        pattern=pattern(r"^[^\x00-\x1f\x7f]+$", "must have no control characters"),
    )
    """Sender of mails."""
    auth_rate_limit_per_account: fields.Rate = "10 per 15 minutes"
    """Rate limit of failed logins per account and client address, of wrong operator tokens in the
    console per client address, and of mails per e-mail address."""
    auth_rate_limit_per_address: fields.Rate = "100 per 15 minutes"
    """Rate limit of failed logins and of mails per client address."""
    failed_logins_per_account: fields.Rate = "1000 per hour"
    """Rate limit of failed logins per account, from addresses where it has not logged in before."""

    requests_per_account: fields.Rate = "12000 per minute"
    """Rate limit of requests per account."""
    writes_per_account: fields.Rate = "1200 per minute"
    """Rate limit of requests per account that change something, other than inside sandboxes."""
    streams_per_account: fields.Positive = 100
    """Maximum number of logs and command outputs that an account follows at a time, per process;
    also of the streams of E2B's API into one sandbox."""
    projects_per_account: fields.Positive = 1000
    """Quota of projects per account."""
    variables_per_account: fields.Positive = 1000
    """Quota of variables and secrets per account."""
    secrets_key: fields.SigningKey = None
    """Keys for variables and secrets at rest, comma-separated: the first encrypts, all decrypt."""
    signup: Literal["open", "invite", "closed"] = "open"
    """Who may sign up: everybody, people whom an admin invites, or nobody."""
    oidc_issuer: fields.URL | None = None
    """Identity provider for logins with OpenID Connect, such as `https://id.example.com`. Unset:
    passwords only."""
    oidc_client_id: str | None = None
    """Client id at the identity provider."""
    oidc_client_secret: fields.Token = None
    """Client secret at the identity provider."""
    templates_per_account: fields.Positive = 1000
    """Quota of templates per account."""

    @field_validator("oidc_issuer")
    @classmethod
    def _is_safe(cls, issuer: str | None) -> str | None:
        url = urlsplit(issuer or "")
        if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError("must begin with https://, unless it is on this machine")
        return issuer

    @field_validator("smtp_url")
    @classmethod
    def _is_smtp(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not re.match(
            r"(smtp|smtps|smtp\+starttls)://[^\s/]+", url.get_secret_value()
        ):
            raise ValueError("must begin with smtp://, smtps:// or smtp+starttls://")
        return url


class SandboxSettings(fields.Section):
    """Sandboxes, usage and bills."""

    sandbox_runtime: Literal["local", "e2b", "kubernetes"] = "local"
    """Where sandboxes run: this machine, E2B, or a Kubernetes cluster."""
    sandbox_isolation: Literal["auto", "bubblewrap", "gvisor", "none"] = "bubblewrap"
    """The weakest isolation of sandboxes; a template may ask for a stronger one. `gvisor` gives
    each sandbox a kernel of its own; `auto` chooses it once per data dir if it works, else
    bubblewrap. `none` runs programs without isolation: only for code that you trust."""
    sandbox_gvisor_platform: Literal["systrap", "kvm"] = "systrap"
    """How gVisor's kernel runs programs. `kvm` is faster on hardware of its own and needs
    /dev/kvm; `systrap` runs everywhere."""
    sandbox_domain: str | None = Field(None, pattern=_DOMAIN)
    """Domain of sandboxes: each port has the host `{port}-{sandbox_id}` below it. It may have a
    scheme and a port; default are those of PUBLIC_URL. Unset: `localhost`."""
    gateway_timeout_sec: fields.Seconds = 120
    """Timeout for a program in a sandbox to begin its response."""
    gateway_connections: fields.Positive = 500
    """Maximum number of concurrent requests and WebSockets to one sandbox, and of an account's SSH
    channels and files open by SFTP, per process."""
    ssh_port: int | None = Field(None, ge=1, le=65535)
    """Port of the SSH server, on every replica. Unset: no SSH."""
    ssh_host: str = "127.0.0.1"
    """Address that the SSH server listens on."""
    ssh_connections_per_account: fields.Positive = 200
    """Maximum number of SSH connections that an account has open at a time, per process."""
    ssh_host_key_days: float = Field(365, ge=60, le=36_500)
    """Age of the host key at which the next one is made. Clients learn it for 30 days; then it is
    used."""
    sandbox_processes: fields.Positive = 128
    """Maximum number of processes and threads per sandbox."""
    sandbox_storage_gb: float = Field(2, gt=0, le=1000)
    """Maximum size of a sandbox's files and logs."""
    disk_reserve_gb: float | None = Field(None, ge=0, le=100_000)
    """Part of the data dir's disk that sandboxes, builds and previews never use: with less free,
    nothing is started or stored, and what keeps writing is ended. Unset: the larger of 1 GB and 5 %
    of the disk."""
    sandbox_root: Literal["auto", "none"] = "auto"
    """Whether sandboxes have their own root user with `sudo`, who can change files outside the
    workspace, for that sandbox only and within its storage. `auto`: if possible (Linux, server is
    root, files in an image or in memory, id-mapped mounts)."""
    sandbox_volume: Literal["auto", "image", "tmpfs", "folder"] = "auto"
    """Where the files of a sandbox are stored: in an image with its own file system, in memory
    (`tmpfs`, lost if the host fails), or in a folder. `auto`: an image if possible (Linux, root,
    loop devices), else a folder."""
    sandbox_cgroup_root: str | None = Field(
        None, pattern=pattern("^/.+", "must be an absolute path")
    )
    """cgroup v2 folder, delegated to the server, in which each sandbox gets a control group. Unset:
    the limit of memory is advisory."""
    sandbox_git_networks: str = ""
    """Private networks from which templates may be cloned, such as 10.0.0.0/8."""
    sandbox_git_ca_file: str | None = None
    """CA certificates for cloning templates, in addition to the system's."""
    sandbox_kernels: str | None = None
    """Virtual environment with Jupyter kernels (ipykernel) for E2B's code interpreter, which
    sandboxes see read-only; its Python must be below `/usr`."""
    sandbox_egress_networks: str = ""
    """Private networks that sandboxes may reach and from which templates may be cloned, such as
    10.0.0.0/8."""
    sandbox_package_hosts: str = PACKAGE_HOSTS
    """Hosts that sandboxes with the network `packages` can reach: names, or `*.name` for all
    subdomains, optionally with `:port`."""
    sandbox_pip_index_url: fields.URL | None = None
    """Package index for pip in sandboxes. Unset: PyPI."""
    sandbox_npm_registry: fields.URL | None = None
    """Registry for npm in sandboxes. Unset: npm's own."""
    sandbox_debian_mirror: fields.URL | None = None
    """Mirror for apt in sandboxes. Unset: Debian's own."""
    sandbox_ca_file: str | None = None
    """CA certificates that sandboxes trust, in addition to the system's."""
    sandbox_git_timeout_sec: fields.Seconds = 60
    """Timeout for cloning a template's repository."""
    sandbox_listen_timeout_sec: fields.Seconds = 120
    """Timeout for a program to listen on its PORT."""

    @field_validator("sandbox_egress_networks", "sandbox_git_networks")
    @classmethod
    def _are_networks(cls, networks: str) -> str:
        for each in fields.words(networks):
            ip_network(each, strict=False)  # raises a ValueError that names it
        return networks

    @field_validator("image_registries")
    @classmethod
    def _are_registries(cls, registries: str) -> str:
        for each in fields.words(registries):
            if not re.fullmatch(_REGISTRY, each):
                raise ValueError(f"{each!r} is not a registry, such as registry.internal:5000")
        return registries

    @field_validator("sandbox_package_hosts")
    @classmethod
    def _are_hosts(cls, hosts: str) -> str:
        for each in fields.words(hosts):
            if not re.fullmatch(_HOST, each):
                raise ValueError(f"{each!r} is not a host")
        return hosts

    quota_sandboxes: fields.Positive = 5
    """Quota of running sandboxes per account."""
    sandboxes_per_account: fields.Positive = 1000
    """Quota of sandboxes per account, running or not, until they are recycled."""
    quota_cpu: float = Field(8, gt=0)
    """Quota of vCPU per account, for all its running sandboxes."""
    quota_memory_gb: float = Field(16, gt=0)
    """Quota of memory per account, for all its running sandboxes."""
    quota_storage_gb: float | None = Field(None, gt=0)
    """Quota of stored files per account: workspaces of running sandboxes and previews, by their
    limit, snapshots, builds, images and uploads, and volumes by their size. Unset: twice what its
    running sandboxes may store: QUOTA_SANDBOXES times SANDBOX_STORAGE_GB."""
    snapshot_store: str | None = Field(
        None,
        pattern=pattern(
            r"^(file:/.+|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?)$",
            "must be file: and an absolute path, or s3://bucket/prefix",
        ),
    )
    """Store of files: `file:` and an absolute path outside the data dir, such as a mounted share,
    or `s3://bucket/prefix`. A stop is answered when the files are there. Unset: they stay in the
    data dir."""
    image_registries: str = ""
    """Registries that images may also be pulled from at private addresses, comma-separated:
    `host:port`, or `http://host:port` without TLS. Others need TLS and a public address, or one of
    SANDBOX_EGRESS_NETWORKS."""
    image_max_gb: float = Field(10, gt=0, le=1000)
    """Maximum size of an image, as it is stored and as it is unpacked."""
    images_per_account: fields.Positive = 100
    """Quota of images per account."""
    images_interval_sec: fields.Seconds = 600
    """Interval of the jobs `images` and `volumes`."""
    volumes_per_account: fields.Positive = 100
    """Quota of volumes per account."""
    snapshot_days: float = Field(30, gt=0, le=3650)
    """Retention of a stopped sandbox's files."""
    snapshot_warning_hours: fields.Hours = 24
    """How long before these files expire the owner is notified."""
    currency: str = Field(
        "USD", pattern=pattern(r"^[A-Z]{3}$", "must be three capital letters, such as EUR")
    )
    """Currency of the prices, by its code of ISO 4217."""
    price_vcpu_hour: fields.Price = Decimal("0.05")
    """Price of one vCPU for an hour."""
    price_memory_gb_hour: fields.Price = Decimal("0.01")
    """Price of one GB of memory for an hour."""
    price_storage_gb_hour: fields.Price = Decimal("0.0001")
    """Price of one GB of stored files for an hour."""
    reconcile_interval_sec: fields.Seconds = 60
    """Interval of the job `reconcile`."""
    ends_interval_sec: fields.Seconds = 2
    """Interval of the job `ends`."""
    warm_interval_sec: fields.Seconds = 5
    """Interval of the job `warm`."""
    metrics_interval_sec: fields.Seconds = 15
    """Interval of the job `measure`."""
    metrics_days: float = Field(30, gt=0)
    """Retention of samples."""
    billing_interval_sec: fields.Seconds = 3600
    """Interval of the job `billing`."""
    snapshots_interval_sec: fields.Seconds = 3600
    """Interval of the job `snapshots`."""
