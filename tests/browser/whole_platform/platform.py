"""The platform with its daemons, which tests start when they need them, and what sends and
receives short messages.

Gateways: `city` delivers, `island` knows none of its users, `moody` fails until it is told
otherwise, `harbour` is up and has no row: an operator adds it.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.browser.conftest import PASSWORD
from tests.cluster import PATIENT_LEASE_SECONDS, WEB, times_of_notify
from tests.flows.sms_cluster import SmsCluster
from tests.support.long_texts import LONG_NAME, LONG_SLUG

ZONE = ZoneInfo("Asia/Shanghai")
FAILING, HAPPY = ["--behaviour", "failing"], ["--behaviour", "happy"]
SMGS = {"city": HAPPY, "island": FAILING, "moody": FAILING, "harbour": HAPPY}
PREFIXES = {"city": "138", "island": "132", "moody": "133"}
LINKED = r'^msgplatform_sms_links{gateway="(.+)",kind="submit"} [1-9]'
UNDER_WAY = r"^msgplatform_sms_(pending|claimed|stage){.+} [1-9]"
ROLES = ("sender-a", "receiver", "forwarder", "pump")
SECRET = "secret"  # with which the simulators bind, and let bind
ADMIN = f"""
import json
from django.contrib.auth import get_user_model
get_user_model().objects.create_superuser("admin", password={PASSWORD!r})
print(json.dumps(True))
"""
ROWS = """
import json
from gateway.models import SmsAccount, SmsGateway
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
for name, prefix in {prefixes!r}.items():
    SmsGateway.objects.create(
        name=name, host="127.0.0.1", port={ports!r}[name], prefixes=[prefix], corp_id="12345",
        login_name="sp", login_password={secret!r}, smg_login_name=name,
        smg_login_password={secret!r})
biz = Biz.objects.create(name="clinic", title={title!r})
Biz.objects.get_or_create(name="pharmacy")  # a form chooses the only system by itself
for name, number in (("clinic", "10655001"), ("ward", "10655002"), ({slug!r}, "10655003"),
                     ("bulk", "10655004")):
    SmsAccount.objects.create(
        biz=biz, name=name, sp_number=number, corp_id="12345", is_default=name == "clinic")
print(json.dumps(keys.create(biz, "browser", ["sms:write", "sms:read"])[1]))
"""


class Platform(SmsCluster):
    """`send` is what a business system does with short messages, after `start_sms`."""

    poll_seconds = 0.2  # most conditions are questions to the web server

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, f"sqlite:///{folder / 'platform.db'}", SMGS, (WEB,))
        self.environment |= times_of_notify(PATIENT_LEASE_SECONDS)
        self.environment |= {"TIME_ZONE": str(ZONE), "API_RATE_READ": "100000/min"}

    def __enter__(self) -> Platform:
        super().__enter__()
        self.script(ADMIN)
        return self

    @contextlib.contextmanager
    def running(self, *names: str) -> Iterator[None]:
        """These daemons run meanwhile."""
        for name in names:
            self.start(name)
        yield
        for name in names:
            self.stop(name)

    def start_sms(self) -> None:
        """Rows, gateways and daemons, until all links are up."""
        self.token = self.script(
            ROWS.format(prefixes=PREFIXES, ports=self.ports, secret=SECRET, title=LONG_NAME,
                        slug=LONG_SLUG)
        )  # fmt: skip
        for name in (*SMGS, *ROLES):
            self.start(name)
        for smg in SMGS:
            self.wait_until(lambda smg=smg: "listening on" in self.said(smg), f"{smg} to listen")
        self.wait_until(lambda: self.linked() == set(PREFIXES), "the links")

    def stop_sms(self) -> None:
        for name in ROLES:
            self.stop(name)
        for name in SMGS:
            self.kill(name)

    def linked(self) -> set[str]:
        """The gateways that take messages."""
        return set(re.findall(LINKED, self.metrics(), re.MULTILINE))

    def settle(self) -> None:
        """Until everything that was accepted or received is in the archive."""
        self.wait_until(
            lambda: not re.search(UNDER_WAY, self.metrics(), re.MULTILINE), "the archive"
        )

    def metrics(self) -> str:
        """Asked for again when a busy machine did not answer in time."""
        found: list[str] = []

        def answered() -> bool:
            address = self.base_url + "/metrics"
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(address, timeout=60) as answer,
            ):
                found.append(answer.read().decode())
            return bool(found)

        self.wait_until(answered, "the figures")
        return found[0]

    def send(self, *numbers: str, text: str = "您的验证码是 1234", **more: Any) -> list[str]:
        """A message to each number; their ids, when all of them are in the archive."""
        body = json.dumps({"to": numbers, "text": text, **more}).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base_url}/api/v1/sms", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            ids: list[str] = json.load(answer)["ids"]
        for id in ids:
            self.wait_until(lambda id=id: self.state(id)["archived_at"], f"{id} to be archived")
        return ids

    def state(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/api/v1/sms/{id}", self.token)
        return found
