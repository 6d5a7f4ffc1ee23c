"""Bodies wait for room in their order, and nobody's room is lost."""

from __future__ import annotations

import asyncio

import pytest

from harness.server.bounded_body import BodyLimits
from harness.server.guards import Guards
from harness.server.room import Room


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_finds_no_room_waits_in_order_though_less_would_fit():
    entered = []

    async def enter(room, name, size):
        await room.take(size)
        entered.append(name)

    async def play():
        room = Room(10)
        await enter(room, "a", 6)
        waiting = [
            asyncio.create_task(enter(room, name, size)) for name, size in [("b", 6), ("c", 2)]
        ]
        await settle()
        assert entered == ["a"]
        room.give_back(6)
        await asyncio.gather(*waiting)
        assert entered == ["a", "b", "c"]

    asyncio.run(play())


@pytest.mark.parametrize("has_been_let_in", [False, True])
def test_one_that_is_cancelled_takes_nothing_and_holds_nobody_up(has_been_let_in):
    async def play():
        room = Room(10)
        await room.take(9)
        leaves = asyncio.create_task(room.take(8))
        stays = asyncio.create_task(room.take(1))
        await settle()
        if has_been_let_in:
            room.give_back(9)
        leaves.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaves
        await stays
        if not has_been_let_in:
            room.give_back(9)
        await room.take(9)

    asyncio.run(asyncio.wait_for(play(), 10))


class Client:
    """One request through the guards, its body in parts that come when the test says so."""

    def __init__(self, guards, length):
        self.parts = asyncio.Queue()
        self.asked = 0
        headers = (
            [(b"transfer-encoding", b"chunked")]
            if length is None
            else [(b"content-length", str(length).encode())]
        )
        scope = {"type": "http", "path": "/v1/completions", "headers": headers}
        self.task = asyncio.create_task(guards(scope, self._receive, self._send))

    async def _receive(self):
        self.asked += 1
        body, more = await self.parts.get()
        return {"type": "http.request", "body": body, "more_body": more}

    async def _send(self, message):
        raise AssertionError(message)


async def app(scope, receive, send):
    while (await receive())["more_body"]:
        pass


@pytest.mark.parametrize("length", [10, None])
def test_a_body_for_which_there_is_no_room_is_read_once_another_is_whole(length):
    async def play():
        limits = BodyLimits(most_bytes=10, within_s=60, at_once=2)
        guards = Guards(app, api_key=None, limits=limits, count=lambda path, status: None)
        clients = [Client(guards, length) for _ in range(3)]
        without_body = Client(guards, 0)
        await settle()
        assert [client.asked for client in clients] == [1, 1, 0]
        assert without_body.asked == 1
        clients[0].parts.put_nowait((b"12345", True))
        await settle()
        assert [client.asked for client in clients] == [2, 1, 0]
        clients[0].parts.put_nowait((b"12345", False))
        await settle()
        assert [client.asked for client in clients] == [2, 1, 1]
        clients[1].task.cancel()
        fourth = Client(guards, length)
        await settle()
        assert fourth.asked == 1
        for client in (clients[2], fourth, without_body):
            client.parts.put_nowait((b"", False))
            await client.task

    asyncio.run(asyncio.wait_for(play(), 10))


def test_the_wait_for_room_is_not_the_bodys_time():
    async def play():
        limits = BodyLimits(most_bytes=10, within_s=0.2, at_once=1)
        guards = Guards(app, api_key=None, limits=limits, count=lambda path, status: None)
        room = guards._room
        await room.take(10)
        late = Client(guards, 10)
        await asyncio.sleep(0.4)
        assert not late.task.done()
        room.give_back(10)
        late.parts.put_nowait((b"1234567890", False))
        await late.task

    asyncio.run(asyncio.wait_for(play(), 10))
