"""The sockets that are ready for libcurl, by epoll with as few system calls as possible.

libcurl registers interest in a socket before each transfer and removes it afterwards; on a
kept-alive connection that would be two system calls a transfer. So a removed socket stays
registered with epoll until it reports an event that nobody waits for. In return, code that opens a
socket must call `opened`: the kernel forgets a closed socket by itself, and reuses its number.
"""

import os
import select
import threading
from contextlib import suppress
from typing import Any

import pycurl

_REMOVE: int = pycurl.POLL_REMOVE
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
# libcurl's interest → the events that epoll shall report.
_EVENTS = {pycurl.POLL_IN: _IN, pycurl.POLL_OUT: _OUT, pycurl.POLL_INOUT: _IN | _OUT}
_BOTH: int = pycurl.CSELECT_IN | pycurl.CSELECT_OUT
# epoll's events → libcurl's bits. Errors and hang-ups, which are not here, count as both.
_ACTIONS: dict[int, int] = {_IN: pycurl.CSELECT_IN, _OUT: pycurl.CSELECT_OUT}


class Readiness:
    """The methods are for one thread; any thread may call `wake()`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._registered: dict[int, int] = {}  # socket → interest that epoll knows
        self._wanted: dict[int, int] = {}  # socket → interest, or _REMOVE
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wake_lock = threading.Lock()
        self._epoll.register(self._wake_fd, _IN)

    def opened(self, fd: int) -> None:
        """A new socket has this number: forget the closed socket with the same number."""
        self._registered.pop(fd, None)
        self._wanted.pop(fd, None)

    def on_interest(self, what: int, fd: int, _multi: Any, _data: Any) -> None:
        """libcurl's socket callback. It comes twice a transfer, and mostly makes no system call."""
        self._wanted[fd] = what
        if what == _REMOVE or self._registered.get(fd) == what:
            return
        events = _EVENTS[what]
        try:
            if fd in self._registered:
                self._epoll.modify(fd, events)
            else:
                self._epoll.register(fd, events)
        except FileNotFoundError:  # the kernel forgot the closed socket
            self._epoll.register(fd, events)
        except FileExistsError:
            self._epoll.modify(fd, events)
        self._registered[fd] = what

    def wait(self, seconds: float) -> list[tuple[int, int]]:
        """(socket, libcurl's bits of its readiness), after at most `seconds`."""
        ready = []
        interests = self._wanted
        for fd, events in self._epoll.poll(seconds if seconds > 0.0 else 0.0):
            if interests.get(fd, _REMOVE) != _REMOVE:
                ready.append((fd, _ACTIONS.get(events, _BOTH)))
            elif fd == self._wake_fd:
                os.eventfd_read(fd)
            else:
                self._registered.pop(fd, None)
                with suppress(OSError):  # the kernel forgot the closed socket
                    self._epoll.unregister(fd)
        return ready

    def wake(self) -> None:
        """End the current or the next `wait()`. Any thread may call this, also after close()."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.close(self._wake_fd)
                self._wake_fd = -1
        self._epoll.close()
