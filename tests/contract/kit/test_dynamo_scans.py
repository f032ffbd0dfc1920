"""Scans of a table on DynamoDB."""

from tests.support.storage.engines import pool_table


async def test_a_scan_reads_everything_in_pages_of_a_limited_size(dynamo_url: str) -> None:
    """A page of a megabyte takes longer than a call may, on an engine that is busy."""
    async with pool_table(dynamo_url) as pool:
        keys = [{"PK": f"TEST#{number}", "SK": "META"} for number in range(1100)]
        await pool.table.put_all(keys)
        pages = [page async for page in pool.table.scan()]
    found = [item["PK"] for page in pages for item in page if item["PK"].startswith("TEST#")]
    assert sorted(found) == sorted(each["PK"] for each in keys)
    assert max(map(len, pages)) <= 500
