"""`sandyard csp-sim`."""

import asyncio
import signal
from pathlib import Path

import click

_EPILOG = """\b
Examples:
  sandyard csp-sim --count 100
  sandyard csp-sim --latency 0.5 --error-rate 0.2
  curl -X PATCH http://127.0.0.1:8090/_sim -d '{"outage": "error"}'
  curl -X POST http://127.0.0.1:8090/_sim/sandboxes -d '{"count": 50}'
  CSP_BASE_URL=http://127.0.0.1:8090 sandyard serve
"""


@click.command("csp-sim", epilog=_EPILOG)
@click.option("--count", default=25, type=click.IntRange(0, 1_000_000))
@click.option(
    "--dialect",
    default="generic",
    type=click.Choice(["generic", "infoblox"]),
    help="Dialect in the printed settings; both are served.",
)
@click.option("--latency", default=0.0, help="Delay of each response in seconds.")
@click.option("--delete-latency", default=0.0, help="Additional delay of deletions in seconds.")
@click.option(
    "--error-rate",
    default=0.0,
    type=click.FloatRange(0, 1),
    help="Share of responses that are 500.",
)
@click.option(
    "--outage",
    default="none",
    type=click.Choice(["none", "error", "hang"]),
    help="error: return 503 to every call; hang: never respond.",
)
@click.option("--break-after-page", default=0, help="The list fails after this many pages.")
@click.option("--empty-list", is_flag=True, help="Return empty lists.")
@click.option("--token", help="Refuse callers without this token, also at /_sim.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to keep the state across restarts.",
)
@click.option("--host", default="127.0.0.1")
@click.option("--port", default=8090, type=click.IntRange(1, 65535))
def command(
    count: int,
    dialect: str,
    token: str | None,
    state: Path | None,
    host: str,
    port: int,
    **faults: object,
) -> None:
    """Run a simulated cloud provider, with faults that can be switched on (also at /_sim)."""
    from sandyard.entrypoints.server.listeners import Listener, is_loopback, require_free_port
    from sandyard.tools.provider.simulator import Faults, Simulator, create_simulator_app

    if token is None and not is_loopback(host):
        raise click.UsageError(f"--host {host} can be reached by others: set a --token")
    try:
        simulator = Simulator(token=token, faults=Faults().changed(faults), state_file=state)
    except ValueError as error:
        raise click.UsageError("--" + str(error).replace("_", "-")) from error
    try:
        simulator.load_or_create(count)
    except ValueError as error:
        raise click.ClickException(str(error)) from error

    require_free_port(host, port)

    async def run() -> None:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        listener = Listener(create_simulator_app(simulator), host=host, port=port)
        await listener.start()
        click.echo(
            f"{len(simulator.sandboxes)} simulated sandboxes; use them with\n"
            f"  CSP_BASE_URL=http://{host}:{port} CSP_DIALECT={dialect} sandyard serve"
        )
        await stopping.wait()
        await listener.stop()

    asyncio.run(run())
