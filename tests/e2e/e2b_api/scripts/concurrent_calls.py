"""Many sandboxes at once: made, used and killed.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set, and how many as its argument.
"""

import asyncio
import os
import sys

from e2b import AsyncSandbox


async def use(number: int) -> str:
    sandbox = await AsyncSandbox.create(timeout=300, request_timeout=120)
    try:
        await sandbox.files.write("number", str(number), request_timeout=120)
        run = await sandbox.commands.run("cat number; echo; sleep 0.2; whoami", timeout=120)
        assert run.stdout == f"{number}\nuser\n", run
        assert (await sandbox.files.read("number", request_timeout=120)) == str(number)
    finally:
        assert await sandbox.kill(request_timeout=120) is True
    return sandbox.sandbox_id


async def main(how_many: int) -> None:
    ids = await asyncio.gather(*(use(number) for number in range(how_many)))
    assert len(set(ids)) == how_many


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)
