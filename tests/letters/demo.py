"""The demo of letters: twenty are posted and delivered."""

import json
import time
import urllib.request
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from demo.run import Run, Scenario
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from tests.letters.models import Letter


def play(run: Run) -> Mapping[str, Any]:
    biz = Biz.objects.create(name="writers")
    _key, plain = keys.create(biz, "demo", ["letters:write"])
    accepted = 0
    for number in range(20):
        request = urllib.request.Request(
            f"{run.base_url}/api/v1/letters",
            json.dumps({"text": f"{settings.LETTERS_STAMP} {number}"}).encode(),
            {"Authorization": f"Bearer {plain}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            accepted += answer.status == 201
    deadline = time.monotonic() + run.timeout
    while Letter.objects.filter(delivered=False).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    delivered = Letter.objects.filter(delivered=True).count()
    return {
        "accepted": accepted,
        "delivered": delivered,
        "lost": accepted - delivered,
        "at_least": 20,
    }


SCENARIO = Scenario("letters", play, lambda: {"LETTERS_STAMP": "nothing in the demo"}, "LETTERS_")
