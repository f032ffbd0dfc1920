"""A backup's manifest, validated before it is used."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandyard.entrypoints.backup.archive import Manifest
from sandyard.entrypoints.backup.errors import ArchiveInvalidError

_Word = Annotated[str, Field(pattern=r"\A[A-Za-z0-9._+-]{1,100}\z")]
_Schema = Annotated[str, Field(pattern=r"\A[0-9]{4}\z")]


class About(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    version: _Word
    made_at: str
    node: str | None
    schemas: dict[_Word, _Schema | None]
    """The schema of each database in the file; None if it has none yet."""
    elsewhere: list[_Word]
    has_secrets: bool


def about_of(manifest: Manifest, databases: Mapping[str, object]) -> About:
    """The manifest's content; raises ArchiveInvalidError if it is invalid or does not match the
    archive."""
    try:
        about = About.model_validate(manifest.about)
        datetime.fromisoformat(about.made_at)
    except (ValidationError, ValueError) as error:
        raise ArchiveInvalidError(
            "The manifest does not describe the contents of the backup."
        ) from error
    if set(about.schemas) != manifest.files.keys() & databases.keys():
        raise ArchiveInvalidError("The databases do not match the manifest.")
    return about
