"""The business systems of the SMS crash test: they send as processes, and listen as processes."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from demo.sms.traffic import Listener
from tests.cluster import ROOT
from tests.flows.sms_cluster import SmsCluster
from tests.flows.sms_traffic import OPERATORS, SYSTEMS, Call, first_calls

CORP = "12345"
# Shares that a sender has leave for and has not sent: it is never without work, nor overrun.
_AHEAD = 3
ROWS = """
import json
from gateway.models import SmsAccount, SmsGateway
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
for pk, (name, fields) in enumerate({gateways!r}.items(), 1):
    SmsGateway.objects.create(pk=pk, name=name, **fields)
tokens = {{}}
for name, (number, url) in {systems!r}.items():
    biz = Biz.objects.create(name=name)
    tokens[name] = keys.create(biz, "crash", ["sms:write", "sms:read"])[1]
    SmsAccount.objects.create(biz=biz, name=name, sp_number=number, corp_id={corp!r})
    receive = Receive.objects.create(name=name, url=url)
    BizReceive.objects.create(biz=biz, receive=receive, event_types=["sms.report", "sms.mo"],
                              schedule=[1, 1, 1, 2, 2, 600])
print(json.dumps(tokens))
"""


class Sender:
    """A running `tests.flows.sms_client`; its file is the only thing that is believed."""

    def __init__(self, cluster: SmsCluster, system: str, token: str, least: int, share: int):
        self._file = cluster.folder / f"{system}.client"
        self._file.touch()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.flows.sms_client", "--url", cluster.base_url,
             "--token", token, "--system", system, "--least", str(least),
             "--share", str(share), "--file", str(self._file)],
            cwd=ROOT, stdin=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self._shares = 0

    def more(self) -> None:
        """Leave to send another share, if it used what it was given before."""
        if self._shares - len(self.lines("share")) >= _AHEAD:
            return
        self._shares += 1
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it failed: `finish` tells
            self._process.stdin.write(b"\n")

    def finish(self) -> None:
        """Send what is missing to the least, and wait until everything was accepted."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=600) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self, kind: str) -> list[list[str]]:
        whole = self._file.read_text("ascii").rpartition("\n")[0].splitlines()
        return [line.split()[1:] for line in whole if line.startswith(kind)]


class Business:
    """All of them."""

    def __init__(self, senders: dict[str, Sender], ears: dict[str, Listener]) -> None:
        self.senders, self.ears = senders, ears

    def more(self) -> None:
        for sender in self.senders.values():
            sender.more()

    def finish(self) -> None:
        for sender in self.senders.values():
            sender.finish()

    def accepted(self, system: str) -> list[tuple[str, str]]:
        """(message id, recipient) of what this system saw accepted."""
        return [(id, number) for id, number in self.senders[system].lines("accepted")]

    def calls(self, system: str) -> list[Call]:
        """All that this system asked for."""
        return first_calls(system, self._asked(system))

    def count_accepted(self) -> int:
        return sum(len(sender.lines("accepted")) for sender in self.senders.values())

    def unanswered(self) -> int:
        """Messages that were asked for and not accepted yet."""
        return sum(map(self._asked, self.senders)) - self.count_accepted()

    def unknown(self) -> int:
        """How often a request had to be repeated, because nothing was known of its outcome."""
        return sum(len(sender.lines("again")) for sender in self.senders.values())

    def listen(self) -> None:
        for ear in self.ears.values():
            ear.listen()

    def _asked(self, system: str) -> int:
        return sum(int(n) for (n,) in self.senders[system].lines("asked"))


@contextlib.contextmanager
def business(cluster: SmsCluster, least: int, share: int) -> Iterator[Business]:
    """Rows for gateways and systems, an endpoint and a sending process for each system; they send
    `least` messages together, and more when they are given leave."""
    with contextlib.ExitStack() as stack:
        ears = {
            name: stack.enter_context(Listener(Path(cluster.folder) / f"{name}.heard"))
            for name in SYSTEMS
        }
        gateways = {name: _gateway(cluster, name) for name in OPERATORS}
        systems = {name: (number, ears[name].url) for name, number in SYSTEMS.items()}
        tokens = cluster.script(ROWS.format(gateways=gateways, systems=systems, corp=CORP))
        senders = {
            name: Sender(cluster, name, token, least // len(SYSTEMS), share)
            for name, token in tokens.items()
        }
        for sender in senders.values():
            stack.callback(sender.kill)
        yield Business(senders, ears)


def _gateway(cluster: SmsCluster, name: str) -> dict[str, object]:
    operator = OPERATORS[name]
    return {
        "host": "127.0.0.1", "port": cluster.ports[name], "login_name": "sp",
        "login_password": "secret", "smg_login_name": name, "smg_login_password": "secret",
        "corp_id": CORP, "node_id": operator.node_id, "prefixes": [operator.prefix],
        "connections": 2, "response_timeout": 2.0, **operator.row,
    }  # fmt: skip
