"""Loops beside a block end with it, and one that breaks ends the block."""

from __future__ import annotations

import asyncio

import pytest

from notifier.runtime import background


async def test_a_loop_that_swallows_a_cancel_is_ended_all_the_same() -> None:
    """The Redis client does that now and then; a process must stop on SIGTERM nevertheless."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed > 2:
                    raise

    async with asyncio.timeout(5), background(stubborn()):
        await asyncio.sleep(0)
    assert swallowed == 3


async def test_a_loop_that_breaks_ends_the_block_with_its_error() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5), background(broken()):
            await asyncio.sleep(3600)
