"""Kannel's configuration for the bench, one file for both of its programs."""

from __future__ import annotations

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
store-type = spool
store-location = "{store}"
dlr-storage = internal
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
log-level = 3

group = sendsms-user
username = {user}
password = {password}
max-messages = 1
"""


@dataclass(frozen=True)
class Ports:
    """Of 127.0.0.1: bearerbox's pages, bearerbox for smsbox, HTTP for senders, the SMPP center."""

    admin: int
    smsbox: int
    http: int
    center: int


def write(file: Path, ports: Ports, store: Path) -> None:
    """`store` is an existing folder, for messages that are not sent yet."""
    file.write_text(
        _TEXT.format(
            ports=ports, store=store, user=USER, password=PASSWORD,
            connections=CONNECTIONS, window=WINDOW,
        )
    )  # fmt: skip
