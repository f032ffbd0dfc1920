"""Where the archive begins."""

import asyncio
import sys

from sandyard.previews.launcher.preview import main

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
