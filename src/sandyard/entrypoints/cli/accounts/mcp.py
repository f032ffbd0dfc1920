"""`sandyard mcp`."""

from sandyard.entrypoints.cli.connecting import ServerChoice, server_command

_EPILOG = """\b
Examples:
  sandyard mcp
  SANDYARD_URL=https://sandyard.example.com SANDYARD_API_KEY=sbk-… sandyard mcp
"""


@server_command("mcp", epilog=_EPILOG)
def command(target: ServerChoice) -> None:
    """Serve MCP on standard input and output, for an agent that starts this command.

    Its tools call the server of the profile with the API key, and the Broker with the track token.
    A server has the same tools at /mcp.
    """
    import anyio
    import httpx
    from sandyard_client import Connection

    from sandyard.mcp.api import Calls, HttpApi
    from sandyard.mcp.server import build_server

    connection = Connection.load(target.profile, url=target.url)

    async def serve() -> None:
        async with httpx.AsyncClient(base_url=connection.url, timeout=900) as client:
            api = HttpApi(client, connection.api_key, connection.track_token)
            await build_server(lambda _context: Calls(api)).run_stdio_async()

    anyio.run(serve)
