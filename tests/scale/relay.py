"""A machine that dies: what its Redis has sent to replicas never leaves it."""

import asyncio
import threading

# A replica's connection begins with an ordinary handshake, and is one from this command on.
_REPLICATION = b"PSYNC"
_CHUNK = 1 << 16


class Relay:
    """The address under which replicas and Sentinel know one server, on 127.0.0.1.

    `hold` keeps what the server sends to replicas from then on; `drop` ends all connections, and
    what was held is lost. A server that is only stopped or killed loses nothing that it has sent:
    the kernel delivers it.
    """

    def __init__(self, port: int, target_port: int) -> None:
        self.port, self._target_port = port, target_port
        self._connections: set[asyncio.Task[None]] = set()
        self._is_holding = False
        self._loop = asyncio.new_event_loop()
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._is_listening.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def hold(self) -> None:
        self._is_holding = True

    def drop(self) -> None:
        self._loop.call_soon_threadsafe(self._drop)

    # -- in the loop -----------------------------------------------------------------------------
    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=_CHUNK)
        )
        self._is_listening.set()
        self._loop.run_forever()

    def _drop(self) -> None:
        for connection in self._connections:
            connection.cancel()
        self._is_holding = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            server = await asyncio.open_connection("127.0.0.1", self._target_port)
            try:
                await self._carry(reader, writer, *server)
            finally:
                server[1].close()
        except (OSError, asyncio.CancelledError):
            pass  # the server is away, or its machine has died
        finally:
            writer.close()
            self._connections.discard(task)

    async def _carry(
        self,
        client_reader: asyncio.StreamReader,
        client_writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        """Until one side ends."""
        is_replica = asyncio.Event()

        async def ask() -> None:
            while data := await client_reader.read(_CHUNK):
                if _REPLICATION in data:
                    is_replica.set()
                server_writer.write(data)
                await server_writer.drain()

        async def answer() -> None:
            while data := await server_reader.read(_CHUNK):
                if self._is_holding and is_replica.is_set():
                    await asyncio.Event().wait()  # until `drop`
                client_writer.write(data)
                await client_writer.drain()

        tasks = [asyncio.ensure_future(ask()), asyncio.ensure_future(answer())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
