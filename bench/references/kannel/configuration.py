"""Kannel's configuration for the bench, one file for both of its programs."""

from dataclasses import dataclass
from pathlib import Path

USER, PASSWORD = "bench", "secret"
# As many connections to the gateway, and Submits without an answer on each, as ours has.
CONNECTIONS, WINDOW = 8, 32
_TEXT = """\
group = core
admin-port = {ports.admin}
admin-password = {password}
admin-interface = 127.0.0.1
smsbox-port = {ports.smsbox}
smsbox-interface = 127.0.0.1
box-allow-ip = 127.0.0.1
{storage}
log-level = 3

group = smsc
smsc = smpp
smsc-id = center
host = 127.0.0.1
port = {ports.center}
transceiver-mode = true
smsc-username = sp
smsc-password = {password}
system-type = ""
instances = {connections}
max-pending-submits = {window}
msg-id-type = 0x00

group = smsbox
bearerbox-host = 127.0.0.1
bearerbox-port = {ports.smsbox}
sendsms-port = {ports.http}
sendsms-interface = 127.0.0.1
http-request-retry = {tries}
http-queue-delay = 1
log-level = 3

group = sendsms-user
username = {user}
password = {password}
max-messages = 1
"""
# Messages in files that are never synced, receipts in memory.
_SPOOL = """\
store-type = spool
store-location = "{store}"
dlr-storage = internal"""
# Messages and receipts in a Redis.
_IN_REDIS = """\
store-type = redis
dlr-storage = redis"""
_REDIS_GROUPS = """
group = redis-connection
id = kept
host = 127.0.0.1
port = {port}
database = 0
max-connections = 4

group = store-db
id = kept
table = store

group = dlr-db
id = kept
table = dlr
field-smsc = smsc
field-timestamp = ts
field-destination = destination
field-source = source
field-service = service
field-url = url
field-mask = mask
field-status = status
field-boxc-id = boxc
"""


@dataclass(frozen=True)
class Ports:
    """Of 127.0.0.1: bearerbox's pages, bearerbox for smsbox, HTTP for senders, the SMPP center."""

    admin: int
    smsbox: int
    http: int
    center: int


def write(file: Path, ports: Ports, store: Path | int, receipt_tries: int = 0) -> None:
    """`store` is an existing folder, for messages that are not sent yet, or the port of a Redis. A
    GET of a receipt that fails is repeated so many times."""
    is_redis = isinstance(store, int)
    text = _TEXT.format(
        ports=ports, user=USER, password=PASSWORD, connections=CONNECTIONS, window=WINDOW,
        storage=_IN_REDIS if is_redis else _SPOOL.format(store=store), tries=receipt_tries,
    )  # fmt: skip
    file.write_text(text + (_REDIS_GROUPS.format(port=store) if is_redis else ""))
