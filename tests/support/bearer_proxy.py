"""A loopback proxy for clients that cannot send a token: it adds one, and changes nothing else they said.

Host and Origin arrive as the client sent them. The server is asked to close after each answer, so every
connection carries one request, and only its head has to be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

END_OF_HEAD = b"\r\n\r\n"
CHUNK = 65536


@asynccontextmanager
async def bearer_proxy(port: int, token: str) -> AsyncIterator[int]:
    """Yields the port of a proxy to the server on ``port``."""
    connections: set[asyncio.Task[Any]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(_serve(reader, writer, port, token))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, token: str
) -> None:
    try:
        head = _with_token(await reader.readuntil(END_OF_HEAD), token)
    except asyncio.IncompleteReadError:  # opened, and closed again without a word
        writer.close()
        return
    server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
    server_writer.write(head)
    request = asyncio.create_task(_pass_on(reader, server_writer))
    try:
        await _pass_on(server_reader, writer)
    finally:
        request.cancel()


def _with_token(head: bytes, token: str) -> bytes:
    request, *headers = head.removesuffix(END_OF_HEAD).split(b"\r\n")
    kept = [line for line in headers if not line.lower().startswith(b"connection:")]
    added = [b"Connection: close", b"Authorization: Bearer " + token.encode()]
    return b"\r\n".join([request, *kept, *added]) + END_OF_HEAD


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything until one side leaves, which the other is told."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
