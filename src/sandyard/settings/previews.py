"""Settings of Previews."""

from typing import Literal

from pydantic import Field

from sandyard.settings.fields import Positive, Seconds, Section


class PreviewSettings(Section):
    """Previews."""

    preview_provider: Literal["local", "e2b"] = "local"
    """Where previews run: this machine, or E2B."""
    preview_ttl_minutes: float = Field(30, gt=0, le=1440)
    """Lifetime of a preview."""
    previews_per_account: Positive = 5
    """Quota of running previews per account."""
    preview_max_files: Positive = 5000
    """Maximum number of files in a project."""
    preview_max_bytes: Positive = 52_428_800
    """Maximum total size of a project's files."""
    preview_keep_versions: Positive = Field(100, le=1000)
    """How many of the last versions of a project's files are kept."""
    file_bytes_per_account: Positive = 1_073_741_824
    """Quota of the total size of an account's project files, with their earlier versions."""
    preview_attempt_sec: Seconds = 180
    """Timeout of one attempt to create a preview."""
    preview_network: Literal["none", "packages", "internet"] = "packages"
    """What a preview on this machine can reach: by default what packages are installed from."""
    preview_install_sec: Seconds = 600
    """Timeout of the installation of a preview's packages."""
    preview_memory_gb: float = Field(1, ge=0.25, le=16)
    """Memory of a preview on this machine."""
    preview_storage_gb: float = Field(1, ge=0.25, le=100)
    """Storage of a preview on this machine: its files and its packages."""
    chromium: str | None = None
    """The browser that looks at previews; default: an installed Chromium or Chrome."""
    preview_reads: Literal["new", "old"] = "new"
    """Read `sandbox_info`, or the old columns that it replaces."""
    preview_sweep_interval_sec: Seconds = 30
    """Interval of the jobs `end-previews` and `previews`."""
