"""A platform that sends and receives short messages, for the tests of the console's SMS pages.

Gateways: `city` delivers, `island` knows none of its users, `moody` fails until it is told
otherwise, `harbour` is up and has no row: an operator adds it.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from playwright.sync_api import Browser, StorageState

from tests.browser import pages
from tests.browser.conftest import PASSWORD
from tests.cluster import WEB
from tests.flows.sms_cluster import SmsCluster

ZONE = ZoneInfo("Asia/Shanghai")
FAILING, HAPPY = ["--behaviour", "failing"], ["--behaviour", "happy"]
SMGS = {"city": HAPPY, "island": FAILING, "moody": FAILING, "harbour": HAPPY}
PREFIXES = {"city": "138", "island": "132", "moody": "133"}
LINKED = r'^msgplatform_sms_links{gateway="(.+)",kind="submit"} [1-9]'
UNDER_WAY = r"^msgplatform_sms_(pending|claimed|stage){.+} [1-9]"
ROLES = ("sender-a", "receiver", "forwarder", "pump")
SECRET = "secret"  # with which the simulators bind, and let bind
LONG_NAME = "人民医院预约中心（一个很长的名字，列表里放不下，手机上更放不下）"
LONG_TEXT = "请带好您的身份证和医保卡，提前十五分钟到达。" * 45 + "谢谢合作，祝早日康复！"
LONG_SLUG = "an-account-with-a-name-of-sixty-four-characters-as-long-as-it-go"
# People: one may do everything, one only look at gateways, one nothing at all.
ROWS = """
import json
from django.contrib.auth.models import Permission, User
from gateway.models import SmsAccount, SmsGateway
from msgplatform.api.access import keys
from msgplatform.models import Biz
User.objects.create_superuser("admin", password={password!r})
User.objects.create_user("guest", password={password!r}, is_staff=True)
viewer = User.objects.create_user("viewer", password={password!r}, is_staff=True)
viewer.user_permissions.set(Permission.objects.filter(codename="view_smsgateway"))
for name, prefix in {prefixes!r}.items():
    SmsGateway.objects.create(
        name=name, host="127.0.0.1", port={ports!r}[name], prefixes=[prefix], corp_id="12345",
        login_name="sp", login_password={secret!r}, smg_login_name=name,
        smg_login_password={secret!r})
biz = Biz.objects.create(name="clinic", title={title!r})
for name, number in (("clinic", "10655001"), ("ward", "10655002"), ({slug!r}, "10655003"),
                     ("bulk", "10655004")):
    SmsAccount.objects.create(
        biz=biz, name=name, sp_number=number, corp_id="12345", is_default=name == "clinic")
print(json.dumps(keys.create(biz, "browser", ["sms:write", "sms:read"])[1]))
"""

# What the statistics have to show, counted from the archive's rows.
COUNTS = """
import json
from collections import Counter, defaultdict
from django.utils import timezone
from gateway.models import SgipMo, SgipMt, SgipMtPart, SmsAccount, SmsGateway
columns = {"delivered": 2, "failed": 3, "expired": 3, "unknown": 4, "accepted": 5}
gateways = dict(SmsGateway.objects.values_list("pk", "name"))
accounts = dict(SmsAccount.objects.values_list("pk", "name")) | {0: "nobody's"}
titles = {"day": "Per day, the latest first", "gateway": "By gateway, what lost most first",
          "account": "By account, what lost most first"}
found = {"sent": 0, "codes": Counter()}
found |= {title: defaultdict(lambda: [0] * 7) for title in titles.values()}
parts = list(SgipMtPart.objects.values_list("mt_id", "part", "result"))
billed = {(mt, part) for mt, part, _ in parts} - {(mt, part) for mt, part, code in parts if code}
segments = Counter(mt for mt, _ in billed)
for mt in SgipMt.objects.all():
    found["sent"] += 1
    if mt.final == "failed":
        found["codes"][mt.error_code] += 1
    day = timezone.localtime(mt.archived_at).date().isoformat()
    for by, name in (("day", day), ("gateway", gateways[mt.gateway_id]),
                     ("account", accounts[mt.account_id])):
        line = found[titles[by]][name]
        line[0] += 1
        line[1] += segments[mt.pk]
        line[columns[mt.final]] += 1
for mo in SgipMo.objects.all():
    day = timezone.localtime(mo.archived_at).date().isoformat()
    for by, name in (("day", day), ("account", accounts[mo.account_id]),
                     ("gateway", gateways.get(mo.gateway_id))):
        if name is None:
            continue
        found[titles[by]][name][6] += 1
print(json.dumps(found))
"""


class SmsPlatform(SmsCluster):
    """With people, gateways, accounts and a key; `send` is what a business system does."""

    def __init__(self, folder: Path, programs: tuple[str, ...] = (WEB, "run_bulk")) -> None:
        super().__init__(folder, f"sqlite:///{folder / 'platform.db'}", SMGS, programs)
        self.environment |= {"TIME_ZONE": str(ZONE), "API_RATE_READ": "100000/min"}

    def __enter__(self) -> SmsPlatform:
        super().__enter__()
        self.token = self.script(
            ROWS.format(password=PASSWORD, prefixes=PREFIXES, ports=self.ports, secret=SECRET,
                        title=LONG_NAME, slug=LONG_SLUG)
        )  # fmt: skip
        return self

    def start_all(self) -> None:
        """Gateways and daemons, until all links are up."""
        for name in (*SMGS, *ROLES):
            self.start(name)
        for smg in SMGS:
            self.wait_until(lambda smg=smg: "listening on" in self.said(smg), f"{smg} to listen")
        self.wait_until(lambda: self.linked() == set(PREFIXES), "the links")

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

    def sign_in(self, browser: Browser, name: str) -> StorageState:
        return pages.sign_in(browser, self.base_url, name)


def console(sms: SmsPlatform, path: str) -> str:
    return f"{sms.base_url}/admin/gateway/{path}"
