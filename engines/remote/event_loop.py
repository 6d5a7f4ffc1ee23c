"""The loop that remote engines run on: uvloop's where it is installed, else asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the faster loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
