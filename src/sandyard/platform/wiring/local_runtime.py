"""How sandboxes run on this machine, by the settings: their isolation, network and packages."""

from pathlib import Path
from urllib.parse import urlsplit

from sandyard.kit.sizes import GIGABYTE
from sandyard.runtime.local.root_filesystems.settings import PackageSources
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.settings import SandboxSettings
from sandyard.settings.fields import words

_DEFAULT_PORTS = {"http": 80, "https": 443}


def runtime_folder(data_dir: Path) -> Path:
    return data_dir / "runtime"


def local_options(settings: SandboxSettings) -> LocalOptions:
    egress_networks = tuple(words(settings.sandbox_egress_networks))
    cgroup_root = settings.sandbox_cgroup_root
    ca_files = (settings.sandbox_ca_file, settings.sandbox_git_ca_file)
    return LocalOptions(
        isolation="bubblewrap"
        if settings.sandbox_isolation == "auto"
        else settings.sandbox_isolation,
        chooses_isolation=settings.sandbox_isolation == "auto",
        gvisor_platform=settings.sandbox_gvisor_platform,
        allowed_networks=(*words(settings.sandbox_git_networks), *egress_networks),
        ca_files=tuple(Path(file).absolute() for file in ca_files if file),
        allowed_hosts=(*words(settings.sandbox_package_hosts), *_own_hosts(settings)),
        egress_networks=egress_networks,
        packages=PackageSources(
            settings.sandbox_pip_index_url,
            settings.sandbox_npm_registry,
            settings.sandbox_debian_mirror,
        ),
        kernels=Path(kernels) if (kernels := settings.sandbox_kernels) else None,
        prepare_timeout_sec=settings.sandbox_git_timeout_sec,
        volume=settings.sandbox_volume,
        root=settings.sandbox_root,
        cgroup_root=Path(cgroup_root) if cgroup_root else None,
        disk_reserve_bytes=disk_reserve_bytes(settings),
    )


def disk_reserve_bytes(settings: SandboxSettings) -> int | None:
    reserve_gb = settings.disk_reserve_gb
    return None if reserve_gb is None else int(reserve_gb * GIGABYTE)


def _own_hosts(settings: SandboxSettings) -> list[str]:
    """The hosts of the operator's own indexes, which are allowed implicitly."""
    urls = (
        settings.sandbox_pip_index_url,
        settings.sandbox_npm_registry,
        settings.sandbox_debian_mirror,
    )
    parts = [urlsplit(url) for url in urls if url is not None]
    return [f"{each.hostname}:{each.port or _DEFAULT_PORTS[each.scheme]}" for each in parts]
