"""All data of an account, as one JSON document that is streamed while it is read."""

from collections.abc import AsyncIterator

import orjson

from sandyard.platform.account_data.ports import AccountDataStore, Section


class AccountExport:
    def __init__(self, store: AccountDataStore) -> None:
        self.sections = list(store.sections())

    def add(self, section: Section) -> None:
        """For a part that is built later."""
        self.sections.append(section)

    async def write(self, account_id: str) -> AsyncIterator[bytes]:
        """An object with a list for each kind of entity. At most one batch is in memory."""
        opening = b"{"
        for name, read in self.sections:
            yield opening + orjson.dumps(name) + b":["
            separator = b""
            async for records in read(account_id):
                yield separator + b",".join(orjson.dumps(each) for each in records)
                separator = b","
            yield b"]"
            opening = b","
        yield b"}"
