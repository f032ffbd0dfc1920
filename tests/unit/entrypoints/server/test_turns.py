"""Passed-on requests take their steps a few at a time: others never wait for all of them."""

import asyncio

from sandyard.entrypoints.server.bulkhead.turns import Turns


async def test_steps_that_are_ready_at_once_are_spread_over_turns_of_the_loop() -> None:
    turns, order = Turns(steps=4), list[int]()
    most = before = 0

    async def step(number: int) -> None:
        await turns.step()
        order.append(number)

    steps = [asyncio.create_task(step(number)) for number in range(50)]
    while len(order) < len(steps):
        await asyncio.sleep(0)  # another turn
        most, before = max(most, len(order) - before), len(order)
    assert most == 4
    assert order == [*range(50)]


async def test_steps_that_were_given_up_leave_their_place_to_others() -> None:
    turns, done = Turns(steps=1), list[int]()

    async def step(number: int) -> None:
        await turns.step()
        done.append(number)

    steps = [asyncio.create_task(step(number)) for number in range(10)]
    await asyncio.sleep(0)
    for each in steps[1:9]:
        each.cancel()
    await asyncio.wait_for(steps[9], 10)
    assert done == [0, 9]
