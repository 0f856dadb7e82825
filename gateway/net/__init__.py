"""SGIP over asyncio: thin shells around `gateway.sgip.Session`.

A connection hands over events in batches, and writes bytes in one piece for each turn of the loop:
there is no task and no future for a message.
"""

from .connection import Connection, Handler, NetThread
from .ends import Client, Login, Server

__all__ = ["Client", "Connection", "Handler", "Login", "NetThread", "Server"]
