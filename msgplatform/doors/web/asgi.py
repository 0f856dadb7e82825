"""The ASGI application of a web worker."""

import asyncio
import gc
import multiprocessing
import os
import socket
import time

from django.urls import reverse
from django.utils.module_loading import import_string

from msgplatform.core import features, logging
from msgplatform.core.daemons import bounded_call, heartbeats, structs
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import cell_record, ids, server
from msgplatform.core.web import request_counts
from msgplatform.doors.web import stopping, wsgi  # `wsgi` first, because it sets Django up
from msgplatform.doors.web.application import Application, intakes
from msgplatform.doors.web.django_app import DjangoApp
from msgplatform.doors.web.fast_intake import FastIntake

# Django's threads for reading and for batches. A single publish does not wait for its commit in
# them. More threads would only wait for the interpreter's lock.
_THREADS = 16
_HEALTH = [reverse(name) for name in ("healthz", "readyz")]

log = logging.get(__name__)


def _refuse_another_cell() -> None:
    """Exit if the database belongs to another cell, now or as soon as it answers."""
    try:
        if bounded_call.ask(cell_record.check_if_readable):
            return
    except TimeoutError:
        log.warning("cell_not_checked", why="the database does not answer")
    except cell_record.WrongCell as error:
        text = f"msgplatform does not start until this is corrected:\n  {error}"
        raise SystemExit(text) from None

    def look() -> None:
        try:
            if cell_record.check_if_readable():
                look_thread.stop()
        except cell_record.WrongCell as error:
            log.critical("wrong_cell", why=str(error))
            os._exit(1)  # granian starts another worker, which refuses too

    look_thread = ThreadLoop("cell", look, every=1.0)
    look_thread.start()


def _beat(loop: asyncio.AbstractEventLoop) -> None:
    """Send heartbeats, as programs do, while the event loop goes round: a loop that stands still
    sends none."""
    last_round = time.monotonic()

    def go_round() -> None:
        nonlocal last_round
        last_round = time.monotonic()
        loop.call_later(heartbeats.INTERVAL_SECONDS, go_round)

    def is_going_round() -> bool:
        return time.monotonic() - last_round < 2 * heartbeats.INTERVAL_SECONDS

    def begin() -> None:
        thread = heartbeats.beat(heartbeats.Heartbeat(heartbeats.WEB), is_going_round)
        stopping.call_at_stop(loop, thread.stop)
        go_round()
        thread.start()

    loop.call_soon(begin)


def _tell_systemd() -> None:
    """Say that this worker answers, to the systemd that started the server (sd_notify(3))."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        if address.startswith("@"):  # a name that is no path
            address = f"\0{address[1:]}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", address)


structs.prepare()
bounded_call.switch_on()
_refuse_another_cell()
# Requests without the database are answered while it is unavailable or hangs.
ids.keep_ahead(at_once=True)
request_counts.keep_adding()
server.keep_reporting(heartbeats.WEB)
_loop = asyncio.get_event_loop()  # granian has set the loop that it will run
_beat(_loop)
_loop.call_soon(_tell_systemd)
for thread_name in features.web_threads:
    import_string(thread_name)()

application = Application(FastIntake(intakes()), DjangoApp(wsgi.application, _THREADS, _HEALTH))

if multiprocessing.parent_process():  # a worker
    # The collector runs seldom: imported objects stay, and a request leaves only a few dozen
    # objects in cycles, which may wait for some hundred requests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
