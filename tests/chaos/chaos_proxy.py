"""A socket between runner and broker whose connections can be cut while both live."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

READ_BYTES = 1 << 16
START_TIMEOUT_S = 10.0


class Proxy:
    """Passes on what comes, in a thread of its own."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving = threading.Event()
        self._thread = threading.Thread(target=self._work, name="proxy", daemon=True)

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        if not self._serving.wait(START_TIMEOUT_S):
            raise RuntimeError("the proxy did not start")

    def drop(self) -> None:
        """Cut every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def stop(self) -> None:
        """End."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)

    def _cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_unix_server(self._serve, str(self.path)))
        self._serving.set()
        try:
            self._loop.run_forever()
        finally:
            self._cut()
            server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0.05))
            self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there_reader, there = await asyncio.open_unix_connection(str(self._target))
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(there)
        try:
            await asyncio.gather(self._pump(reader, there), self._pump(there_reader, writer))
        finally:
            for one in (writer, there):
                one.transport.abort()
                self._writers.discard(one)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The end of one direction ends both: neither side speaks on to one that has hung up."""
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                writer.write(data)
                await writer.drain()
        writer.close()
