"""A message center that speaks SMPP 3.4: it answers each submit_sm at once, with a receipt behind.

    python -m bench.references.kannel.center --port 2775 --submits FILE

On SIGTERM it writes a line for each submit_sm: the destination and the text in hexadecimal (UCS-2).
Layouts are those of SMPP 3.4, chapters 4.1 to 4.6.
"""

import argparse
import asyncio
import signal
from itertools import count
from pathlib import Path
from struct import Struct
from typing import cast

HEADER = Struct(">4I")  # length, command, status, sequence
BIND_TRANSCEIVER, SUBMIT_SM, DELIVER_SM, UNBIND, ENQUIRE_LINK = 0x09, 0x04, 0x05, 0x06, 0x15
GENERIC_NACK, RESPONSE, INVALID_COMMAND = 0x80000000, 0x80000000, 0x03
RECEIPT = b"\x04"  # esm_class: a delivery receipt
TEXT = (
    b"id:%d sub:001 dlvrd:001 submit date:2611260800 done date:2611260800 stat:DELIVRD err:000 "
    b"text:"
)
ADDRESS = b"\x01\x01"  # international, ISDN


def pdu(command: int, sequence: int, body: bytes = b"", status: int = 0) -> bytes:
    return HEADER.pack(16 + len(body), command, status, sequence) + body


def read_submit(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Source, destination and short_message of a submit_sm."""
    start = body.index(b"\0") + 3  # service_type, then type and plan of the source
    end = body.index(b"\0", start)
    source, start = body[start:end], end + 3
    end = body.index(b"\0", start)
    destination = body[start:end]
    # esm_class, protocol_id, priority; two times; registered_delivery … sm_default_msg_id.
    end = body.index(b"\0", end + 4)
    end = body.index(b"\0", end + 1)
    length = body[end + 5]
    return source, destination, body[end + 6 : end + 6 + length]


def receipt(source: bytes, destination: bytes, message: int) -> bytes:
    """The body of a deliver_sm: from the message's destination to its source."""
    text = TEXT % message
    head = b"\0" + ADDRESS + destination + b"\0" + ADDRESS + source + b"\0" + RECEIPT
    return head + bytes(8) + bytes([len(text)]) + text


class Center(asyncio.Protocol):
    """One connection of an ESME. What came together is answered by one write."""

    numbers = count(1)
    submits: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.rest, self.sequences = b"", count(1)

    def data_received(self, data: bytes) -> None:
        data, start, answers = self.rest + data, 0, []
        while len(data) - start >= 16:
            length, command, _, sequence = HEADER.unpack_from(data, start)
            if len(data) - start < length:
                break
            answers += self.answer(command, sequence, data[start + 16 : start + length])
            start += length
        self.rest = data[start:]
        self.transport.write(b"".join(answers))

    def answer(self, command: int, sequence: int, body: bytes) -> list[bytes]:
        if command & RESPONSE:  # to one of our receipts
            return []
        if command == SUBMIT_SM:
            source, destination, text = read_submit(body)
            self.submits.append(b"%s %s\n" % (destination, text.hex().encode()))
            number = next(self.numbers)
            receipt_body = receipt(source, destination, number)
            return [
                pdu(SUBMIT_SM | RESPONSE, sequence, b"%d\0" % number),
                pdu(DELIVER_SM, next(self.sequences), receipt_body),
            ]
        if command == BIND_TRANSCEIVER:
            return [pdu(command | RESPONSE, sequence, b"center\0")]
        if command in (ENQUIRE_LINK, UNBIND):
            return [pdu(command | RESPONSE, sequence)]
        return [pdu(GENERIC_NACK, sequence, status=INVALID_COMMAND)]


async def serve(port: int) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    async with await loop.create_server(Center, "127.0.0.1", port):
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer submit_sm.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--submits", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.port))
    options.submits.write_bytes(b"".join(Center.submits))


if __name__ == "__main__":
    main()
