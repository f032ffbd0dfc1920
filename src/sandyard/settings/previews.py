"""Settings of Previews."""

from typing import Literal

from pydantic import Field

from sandyard.settings.fields import Positive, Seconds, Section


class PreviewSettings(Section):
    """Previews."""

    preview_provider: Literal["local", "e2b"] = Field(
        "local", description="Where previews run: this machine, or E2B."
    )
    preview_ttl_minutes: float = Field(30, gt=0, le=1440, description="Lifetime of a preview.")
    previews_per_account: Positive = Field(5, description="Quota of running previews per account.")
    preview_max_files: Positive = Field(500, description="Maximum number of files in a project.")
    preview_max_bytes: Positive = Field(
        5_242_880, description="Maximum total size of a project's files."
    )
    file_bytes_per_account: Positive = Field(
        1_073_741_824, description="Quota of the total size of an account's project files."
    )
    preview_attempt_sec: Seconds = Field(
        180, description="Timeout of one attempt to create a preview."
    )
    preview_reads: Literal["new", "old"] = Field(
        "new", description="Read `sandbox_info`, or the old columns that it replaces."
    )
    preview_sweep_interval_sec: Seconds = Field(
        30, description="Interval of the jobs `end-previews` and `previews`."
    )
