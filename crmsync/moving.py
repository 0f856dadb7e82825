"""Landing pages and idempotency keys of leads move with a system to another cell; leads stay."""

from __future__ import annotations

from crmsync.models import LandingPage, LeadIdempotency
from msgplatform.core.flows.moving import MovedTable, Moving
from msgplatform.core.intake.moved_keys import TableKeys

MOVING = Moving(
    tables=(
        MovedTable(
            model=LandingPage,
            rows=lambda biz: LandingPage.objects.filter(biz_id=biz).order_by("id"),
            identity=("appkey",),
            proxy_name=("", "appkey"),
        ),
    ),
    keys=(TableKeys(LeadIdempotency),),
)
