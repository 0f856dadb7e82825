"""Which sockets are ready: epoll for an event-driven library, with as few system calls as it needs.

The library takes interest in a socket before each transfer and drops it after; on a kept-alive
connection that would be two system calls a transfer. So a dropped socket stays registered until it
reports something nobody waits for. The price: whoever opens a socket has to say so (`opened`),
because the kernel forgets a closed one by itself and its number comes back.
"""

from __future__ import annotations

import os
import select
import threading

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_TROUBLE = select.EPOLLERR | select.EPOLLHUP


class Readiness:
    """Belongs to one thread, but for `wake()`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._registered: dict[int, int] = {}
        self._wanted: dict[int, int] = {}
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wake_lock = threading.Lock()
        self._epoll.register(self._wake_fd, _IN)

    def opened(self, fd: int) -> None:
        """A new socket has this number: what is known of its predecessor is void."""
        self._registered.pop(fd, None)
        self._wanted.pop(fd, None)

    def want(self, fd: int, read: bool, write: bool) -> None:
        """Report when this socket is ready, until `drop()`."""
        mask = (_IN if read else 0) | (_OUT if write else 0)
        self._wanted[fd] = mask
        if self._registered.get(fd) == mask:
            return
        try:
            if fd in self._registered:
                self._epoll.modify(fd, mask)
            else:
                self._epoll.register(fd, mask)
        except FileNotFoundError:
            self._epoll.register(fd, mask)
        except FileExistsError:
            self._epoll.modify(fd, mask)
        self._registered[fd] = mask

    def drop(self, fd: int) -> None:
        """Nobody waits for this socket for now."""
        self._wanted.pop(fd, None)

    def wait(self, seconds: float) -> list[tuple[int, bool, bool]]:
        """(socket, readable, writable), after at most `seconds`; trouble counts as both."""
        ready = []
        for fd, events in self._epoll.poll(max(seconds, 0.0)):
            if fd == self._wake_fd:
                os.eventfd_read(fd)
            elif fd not in self._wanted:
                self._unregister(fd)
            else:
                trouble = bool(events & _TROUBLE)
                ready.append((fd, trouble or bool(events & _IN), trouble or bool(events & _OUT)))
        return ready

    def wake(self) -> None:
        """Ends the current `wait()`, or else the next one. For any thread, also after close()."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.close(self._wake_fd)
                self._wake_fd = -1
        self._epoll.close()

    def _unregister(self, fd: int) -> None:
        self._registered.pop(fd, None)
        try:
            self._epoll.unregister(fd)
        except OSError:  # closed in the meantime: then the kernel has forgotten it already
            return
