"""Publishes by msgplatform-client while the platform is killed: in threads, in tasks, in batches.

`client_publishers.py COUNT` prints a line for each accepted event: its key and its id.
"""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from msgplatform_client import AsyncClient, Client, Event

URL, KEY = os.environ["MSGPLATFORM_URL"], os.environ["MSGPLATFORM_KEY"]
COUNT = int(sys.argv[1])
PATIENCE_SECONDS = 600.0  # a busy machine starts a web server slowly
AT_ONCE = 8
BATCH = 20


def accepted(key: str, id: str) -> None:
    sys.stdout.write(f"{key} {id}\n")
    sys.stdout.flush()


def in_threads() -> None:
    with (
        Client(URL, KEY, patience=PATIENCE_SECONDS) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):

        def publish(number: int) -> None:
            key = f"thread-{number}"
            accepted(key, client.publish("load.test", {"number": number}, key=key).id)

        list(threads.map(publish, range(COUNT)))


async def in_tasks() -> None:
    numbers = iter(range(COUNT))

    async def publish_some(client: AsyncClient) -> None:
        for number in numbers:
            key = f"task-{number}"
            accepted(key, (await client.publish("load.test", {"number": number}, key=key)).id)

    async with AsyncClient(URL, KEY, patience=PATIENCE_SECONDS) as client:
        await asyncio.gather(*(publish_some(client) for _ in range(AT_ONCE)))


def in_batches() -> None:
    with Client(URL, KEY, patience=PATIENCE_SECONDS) as client:
        for start in range(0, COUNT, BATCH):
            numbers = range(start, min(start + BATCH, COUNT))
            events = [Event("load.test", {"number": n}, f"batch-{n}") for n in numbers]
            for event, verdict in zip(events, client.publish_many(events), strict=True):
                assert isinstance(verdict.id, str), verdict
                accepted(event.key, verdict.id)


with ThreadPoolExecutor(3) as kinds:
    running = [
        kinds.submit(in_threads),
        kinds.submit(lambda: asyncio.run(in_tasks())),
        kinds.submit(in_batches),
    ]
    for kind in running:
        kind.result()
