"""`sandyard egress-proxy`."""

import asyncio
import signal

import click

_EPILOG = """\b
Examples:
  sandyard egress-proxy
  KUBERNETES_NAMESPACE=sandboxes sandyard egress-proxy --port 3128
"""


@click.command("egress-proxy", epilog=_EPILOG)
@click.option("--host", default="0.0.0.0", help="Address to listen on.")  # noqa: S104 - for Pods
@click.option("--port", default=3128, type=click.IntRange(0, 65535))
def command(host: str, port: int) -> None:
    """Run the egress proxy of the sandboxes that are Pods, by which alone they reach the network.

    It reads the Pods of KUBERNETES_NAMESPACE and changes nothing. SANDBOX_PACKAGE_HOSTS,
    SANDBOX_EGRESS_NETWORKS and SANDBOX_GIT_NETWORKS must be those of the server.
    """
    from sandyard.kit.observability.log import configure_logging
    from sandyard.settings import load_settings

    settings = load_settings()
    configure_logging(settings.server.log_level, settings.server.log_format)

    async def run() -> None:
        from sandyard.platform.wiring.kubernetes import serving_egress

        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        serving = serving_egress(settings.sandboxes, settings.kubernetes, host=host, port=port)
        async with serving as server:
            click.echo(f"ready {server.sockets[0].getsockname()[1]}")
            await stopping.wait()

    asyncio.run(run())
