"""Images of accounts, wired to their registries, the store of files and this node."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from sandyard.kit.public_addresses import networks_of
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.access.guard import RequestRate
from sandyard.platform.images.jobs import CleanImages
from sandyard.platform.images.model import count_image
from sandyard.platform.images.service import Images
from sandyard.platform.images.sql import SqlImageStore
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.archives.usage import StorageUsage
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.wiring.local_runtime import local_options, runtime_folder
from sandyard.platform.wiring.runtimes import disk_reserve
from sandyard.platform.wiring.shared import Shared
from sandyard.runtime.images.library import ImageLibrary
from sandyard.runtime.images.registry import NamedRegistry, Registries
from sandyard.runtime.local.root_filesystems.images import ImageRoots
from sandyard.runtime.local.root_filesystems.store import RootFilesystems
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.settings.fields import words
from sandyard.wiring.job_specs import PlatformJobSpecs as Specs


class ImagesWired:
    def __init__(
        self, shared: Shared, node: SandboxNode, roots: ImageRoots, storage: StorageQuota
    ) -> None:
        settings, clock = shared.settings.sandboxes, shared.clock
        store = SqlImageStore(shared.database, shared.transitions)
        most_bytes = int(settings.image_max_gb * GIGABYTE)
        networks = networks_of(words(settings.sandbox_egress_networks))
        named = [NamedRegistry.of(each) for each in words(settings.image_registries)]
        ca_files = [str(each) for each in local_options(settings).ca_files]
        reserve = disk_reserve(settings, shared.data_dir)
        uploads = ArchiveFolder(shared.data_dir / "image-uploads", reserve)
        on_node = roots if settings.sandbox_runtime == "local" else None
        self.images = Images(
            store,
            ImageLibrary(roots.files, Registries(named, networks, ca_files), most_bytes=most_bytes),
            on_node,
            uploads,
            storage,
            RequestRate(
                f"{1 + int(2048 * storage.limit_gb)} per 2 hours",
                shared.settings.broker.rate_limit_storage_url,
                name="images",
            ),
            clock=clock,
            per_account=settings.images_per_account,
            most_bytes=most_bytes,
        )
        storage.add(self.images.bytes_of)
        storage.add(uploads.bytes_of)
        self.usage = StorageUsage(
            store, count_image, prices=node.prices, make_usage_id=node.ids.usage
        )
        clean = CleanImages(store, roots.files, uploads, on_node, clock=clock)
        self.job = Specs.IMAGES.job(settings.images_interval_sec, clean.run, node=node.name)


class NodeRootFileSystems:
    """The environments of this node, or, if sandboxes run as Pods, the names of their images; and
    accounts' images."""

    def __init__(self, shared: Shared, images: Images, of_pods: Mapping[str, str]) -> None:
        runtime = shared.settings.sandboxes.sandbox_runtime
        folder = runtime_folder(shared.data_dir)
        self._environments = RootFilesystems(folder) if runtime == "local" else None
        self._of_pods = of_pods.keys() if runtime == "kubernetes" else frozenset()
        self._images = images

    async def names(self) -> AbstractSet[str]:
        if self._environments is None:
            return self._of_pods
        return {each.name for each in self._environments.list() if not each.is_image}

    async def require_image(self, account_id: str, image_id: str) -> None:
        await self._images.require_usable(account_id, image_id)
