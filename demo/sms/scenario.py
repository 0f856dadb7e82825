"""Business systems send over XML-RPC and REST, users answer, every message is accounted for."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from demo.account import Differences, Records, compare
from demo.run import Run, Scenario
from demo.sms import traffic
from demo.sms.plan import OPERATORS, SYSTEMS, create, ending, mos
from demo.sms.smg import SmgProcess
from demo.sms.traffic import Listener
from gateway import presence
from gateway.models import SgipMt, SmsGateway
from msgplatform.core.data import chunks
from msgplatform.core.errors import PlatformError
from msgplatform.core.servers.private_server import free_port

# With fewer the demo proves nothing, and says so.
_MIN_MESSAGES = 5_000
_MOS = 120
_LINK_SECONDS = 180.0
_CHUNK = 500
_TRICKLE_SECONDS = 1.0  # between two messages, after the accounting


class Account:
    """The accepted messages (system → id → recipient) and the users' texts, and where they are."""

    def __init__(
        self,
        messages: Mapping[str, Mapping[str, str]],
        listeners: Mapping[str, Listener],
        texts: Mapping[str, list[str]],
    ) -> None:
        self._listeners = listeners
        self.endings = {
            id: ending(number) for ids in messages.values() for id, number in ids.items()
        }
        # Each ending and each text must come to its system exactly once.
        self._expected: dict[str, Records] = {
            system: [*((id, self.endings[id]) for id in messages[system]),
                     *((text, None) for text in texts[system])]
            for system in messages
        }  # fmt: skip

    def at_systems(self) -> Differences:
        seen: dict[str, Records] = {}
        for system, listener in self._listeners.items():
            listener.listen()
            reports = [(id, state) for id, states in listener.reports.items() for state in states]
            seen[system] = [*reports, *((text, None) for text in listener.mos)]
        return compare(self._expected, seen)

    def in_archive(self) -> Differences:
        rows: list[tuple[str, object]] = []
        for ids in chunks(list(self.endings), _CHUNK):
            archive_rows = SgipMt.objects.filter(id__in=[int(id) for id in ids])
            rows += [(str(pk), final) for pk, final in archive_rows.values_list("pk", "final")]
        return compare({"archive": list(self.endings.items())}, {"archive": rows})

    def count_open(self) -> int:
        """Endings and texts that are still missing; the archive, the last step, is asked last."""
        return len(self.at_systems().missing) or len(self.in_archive().missing)


def play(run: Run) -> Mapping[str, Any]:
    """Send, wait for the listeners' files and the archive, account for every message."""
    receiver = (settings.SMS_RECEIVER_HOST, settings.SMS_RECEIVER_PORT)
    # The listeners first: a simulator may send as soon as it runs.
    listeners = {
        name: run.until_end.enter_context(Listener(run.folder / f"{name}-listener.log"))
        for name in SYSTEMS
    }
    smgs = {
        operator.name: run.until_end.enter_context(SmgProcess(operator, run.folder, receiver))
        for operator in OPERATORS
    }
    urls = {name: listener.url for name, listener in listeners.items()}
    tokens = create(urls, {name: smg.port for name, smg in smgs.items()})
    count = max(1, run.messages // 2)
    lines = [f"sms: {count} messages from {len(tokens)} business systems over"]
    run.say("\n".join([*lines, *(f"  {o.name:<15} {o.description}" for o in OPERATORS)]))
    _await_links()
    run.start_together()
    messages = traffic.send_all(run.base_url, tokens, count)
    texts = mos(_MOS)
    smgs["city"].deliver([mo[1:] for mo in texts])
    texts_by_system = {system: [mo[3] for mo in texts if mo[0] == system] for system in SYSTEMS}
    account = Account(messages, listeners, texts_by_system)
    run.wait_for_none("sms", account.count_open, "endings and MOs to come")
    step = traffic.trickle(run.base_url, tokens, count, smgs["city"].deliver)
    run.trickle("sms", step, _TRICKLE_SECONDS)
    at_systems, archive = account.at_systems(), account.in_archive()
    missing = {*at_systems.missing, *archive.missing}
    wrong = len(at_systems.different) + len(at_systems.extra) + len(archive.different)
    endings = Counter(state for id, state in account.endings.items() if id not in missing)
    return {
        "accepted": len(account.endings),
        "at_least": _MIN_MESSAGES,
        "systems": len(SYSTEMS),
        "gateways": len(OPERATORS),
        "copies": sum(smg.submitted() for smg in smgs.values()),
        "delivered": endings["delivered"],
        "failed": endings["failed"],
        "received": _MOS - len(missing - account.endings.keys()),
        "lost": len(missing),
        "duplicates": sum(listener.repeated for listener in listeners.values()),
        "problem": f"{wrong} endings are wrong, or came twice" if wrong else "",
    }


def _await_links() -> None:
    """Messages and users' texts would wait for a gateway that is not bound both ways."""
    gateways = SmsGateway.objects.values_list("pk", flat=True)
    links = {(pk, kind) for pk in gateways for kind in ("submit", "report")}
    deadline = time.monotonic() + _LINK_SECONDS
    while missing := links - {(s.gateway, s.kind) for s in presence.live() if not s.problem}:
        if time.monotonic() > deadline:
            raise PlatformError(f"gateways are not bound: {sorted(missing)}")
        time.sleep(0.1)


SCENARIO = Scenario("sms", play, lambda: {"SMS_RECEIVER_PORT": str(free_port())}, "SMS_")
