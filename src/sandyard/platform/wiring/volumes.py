"""Volumes of accounts, wired to the files that sandboxes mount."""

from functools import partial
from typing import Any

from sandyard.kit.jobs import Job
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.archives.usage import StorageUsage
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.volumes.model import count_volume
from sandyard.platform.volumes.service import Volumes, clean_volumes
from sandyard.platform.volumes.sql import SqlVolumeStore
from sandyard.platform.wiring.shared import Shared
from sandyard.runtime.ports import VolumeFiles
from sandyard.wiring.job_specs import PlatformJobSpecs as Specs


class VolumesWired:
    def __init__(
        self,
        shared: Shared,
        node: SandboxNode,
        storage: StorageQuota,
        files: VolumeFiles | None,
    ) -> None:
        """`files` is None where sandboxes have no volumes."""
        settings = shared.settings.sandboxes
        store = SqlVolumeStore(shared.database, shared.transitions)
        self.jobs: tuple[Job[Any], ...] = ()
        if files is not None:
            clean = partial(clean_volumes, store, files, node)
            self.jobs = (Specs.VOLUMES.job(settings.images_interval_sec, clean, node=node.name),)
        self.volumes = Volumes(
            store, files, node, storage, per_account=settings.volumes_per_account
        )
        storage.add(store.bytes_of)
        self.usage = StorageUsage(
            store, count_volume, prices=node.prices, make_usage_id=node.ids.usage
        )
