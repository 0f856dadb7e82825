"""Leads over REST, each repeated once: the hive has each of them once."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from crmsync.models import LandingPage, Lead
from msgplatform.api.access import keys
from msgplatform.core.flows import DemoRun
from msgplatform.models import Biz

LEADS = 200


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    run.say(f"CRM sync: {LEADS} leads, each sent twice …")
    biz = Biz.objects.create(name="crm-demo", title="Demo: advertising")
    page = LandingPage.objects.create(biz=biz, title="Book a test drive · 预约试驾")
    _key, plain = keys.create(biz, "demo", ["leads:write"])
    leads = [
        {
            "appkey": page.appkey, "name": f"Visitor {number}", "phone": f"138{number:08d}",
            "idempotency_key": f"visit-{number}",
        }
        for number in range(LEADS)
    ]  # fmt: skip
    outcomes = [_send(run, plain, leads) for _ in range(2)]
    accepted = outcomes[0].count("created")
    stored = Lead.objects.filter(biz=biz).count()
    run.say(f"the landing page: {run.base_url}{page.get_absolute_url()}")
    return {
        "accepted": accepted,
        "stored": stored,
        "lost": accepted - stored,
        "duplicates": outcomes[1].count("created"),
        "at_least": LEADS,
    }


def _send(run: DemoRun, key: str, leads: list[dict[str, str]]) -> list[str]:
    request = urllib.request.Request(  # noqa: S310 - our own address
        f"{run.base_url}/api/v1/leads/batch",
        json.dumps({"leads": leads}).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return [each["outcome"] for each in json.load(answer)["results"]]
