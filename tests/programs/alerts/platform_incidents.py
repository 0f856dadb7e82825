"""Incidents of the platform's own kinds, as far as they need no process to be killed."""

from __future__ import annotations

import time

from gateway.connections import sms_redis
from gateway.intake.request import Request
from gateway.models import SmsAccount, SmsGateway
from msgplatform.models import Biz
from tests.integration.support.sms_rows import account, gateway
from tests.programs.alerts.incidents import Course, Places, incident
from tests.programs.alerts.sms_incidents import accepted


@incident("platform.backlog", r"the gateway closed.*waited since")
def a_gateway_is_switched_off_with_a_message(places: Places) -> Course:
    biz = Biz.objects.create(name="closed")
    row = gateway("closed", port=1, prefixes=["86150"])
    account(biz, "closed").gateways.add(row)
    text = Request(biz=biz.pk, to=["15000000000"], text="later", expire_at=time.time() + 3600)
    accepted(text)
    yield
    SmsAccount.objects.filter(name="closed").delete()
    sms_redis().flushall()
    SmsGateway.objects.filter(name="closed").delete()
