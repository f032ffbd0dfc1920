"""`sandyard serve`: from the first lock to the last request."""

import asyncio
import gc
import logging
import os
import sys
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from sandyard.bootstrap.addresses import check_domain
from sandyard.bootstrap.copies import within
from sandyard.bootstrap.registry import embedded_parts, tenant_parts
from sandyard.entrypoints.server.bulkhead.keeper import Keeper, fork_keeper
from sandyard.entrypoints.server.data_dir import locked_if, require_writable, with_secrets
from sandyard.entrypoints.server.listeners import require_free_port
from sandyard.entrypoints.server.main_process import serve_main
from sandyard.entrypoints.server.options import ServeOptions
from sandyard.entrypoints.server.previous_engines import require_data_here
from sandyard.entrypoints.server.tenants_process import run_tenants
from sandyard.settings import Settings, SettingsError, close_variables

logger = logging.getLogger(__name__)


def run(settings: Settings, options: ServeOptions) -> int:
    import uvloop

    require_writable(options.data_dir)
    settings = within(settings, options.data_dir)
    with locked_if(embedded_parts(settings), options.data_dir):
        settings = with_addresses(with_secrets(settings, options.data_dir), options)
        if options.worker_of is None:
            warn_of_close_variables()
            require_free_ports(settings, options)
            asyncio.run(
                require_data_here(settings, options.data_dir, start_empty=options.start_empty)
            )
        keeper = _keeper(settings, options)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve_main(settings, options, keeper))


def _keeper(settings: Settings, options: ServeOptions) -> Keeper | None:
    """The keeper of the tenants' process; None if this process serves all parts."""
    if not tenant_parts(settings) or sys.platform != "linux":
        return None
    gc.freeze()  # so that a collection does not copy what the processes share
    return fork_keeper(partial(run_tenants, settings, options))


def require_free_ports(settings: Settings, options: ServeOptions) -> None:
    """Raise PortInUseError or SettingsError if a port can't be used for its listener."""
    require_free_port(options.host, options.port)
    metrics_port = settings.server.metrics_port
    if metrics_port == options.port:
        raise SettingsError(f"METRICS_PORT: must differ from the server's --port {options.port}")
    if metrics_port is not None:
        require_free_port(options.host, metrics_port, option="METRICS_PORT")
    ssh = settings.sandboxes
    if ssh.ssh_port is not None:
        require_free_port(ssh.ssh_host, ssh.ssh_port, option="SSH_PORT")


def warn_of_close_variables() -> None:
    for name, setting in close_variables(os.environ):
        logger.warning(
            "%s is not a setting and is ignored. Did you mean %s?",
            name,
            setting,
            extra={"action": "start"},
        )


def with_addresses(settings: Settings, options: ServeOptions) -> Settings:
    """The settings with the addresses derived from where it listens. Raises SettingsError if
    sandboxes are not separated from the API."""
    url = urlsplit(options.url)
    public_url = settings.platform.public_url or options.url
    domain = settings.sandboxes.sandbox_domain or f"{url.scheme}://localhost:{url.port}"
    settings = replace(
        settings,
        platform=settings.platform.model_copy(update={"public_url": public_url}),
        sandboxes=settings.sandboxes.model_copy(update={"sandbox_domain": domain}),
    )
    check_domain(settings)
    return settings
