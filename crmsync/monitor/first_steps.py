"""The first steps of a newcomer: objects to set up, and a first call."""

from django.utils.translation import gettext_lazy as _

from crmsync.models import Crm, LandingPage, Lead, Policy, Record
from msgplatform.core import sandbox
from msgplatform.core.flows.setup import FirstCall, FirstStep


def call() -> FirstCall:
    """The first call, for the oldest landing page if there is one."""
    appkey = LandingPage.objects.order_by("id").values_list("appkey", flat=True).first()
    lead = {
        "name": "张三",
        "phone": "13800000000",
        "idempotency_key": "7f9d2c1e-5a0b-4c6e-9f57-2f0c8e1b6a34",
    }
    return FirstCall("/api/v1/leads", {"appkey": appkey or "…", **lead}, "leads:write")


def steps() -> list[FirstStep]:
    policies = list(Policy.objects.values_list("id", flat=True)[:20])
    confirmed_records = Record.objects.filter(policy_id__in=policies, state=Record.State.CONFIRMED)
    sandbox_step = FirstStep(
        _("A sandbox"),
        _(
            "A CRM of the platform's own that shows what it gets: one click makes it with its "
            "policy. Skip it if you have a CRM to try."
        ),
        Crm.objects.exists(),
        "admin:crmsync_sandboxes",
        ("crmsync.add_crm", "crmsync.add_policy"),
    )
    return [
        *([sandbox_step] if sandbox.is_on() else []),
        FirstStep(
            _("A landing page"),
            _("What it asks for. Its form is there at once, and its APPKEY takes leads over REST."),
            LandingPage.objects.exists(),
            "admin:crmsync_landingpage_add",
            ("crmsync.add_landingpage",),
        ),
        FirstStep(
            _("A CRM"),
            _("Where leads are carried to. Test says whether it answers."),
            Crm.objects.exists(),
            "admin:crmsync_crm_add",
            ("crmsync.add_crm",),
        ),
        FirstStep(
            _("A policy"),
            _("Which field of a lead becomes which field of the CRM. Try it on a sample first."),
            bool(policies),
            "admin:crmsync_policy_add",
            ("crmsync.add_policy",),
        ),
        FirstStep(
            _("A lead is stored"),
            _("Fill in the form of the landing page, or use the command below."),
            Lead.objects.exists(),
        ),
        FirstStep(
            _("The CRM has confirmed it"),
            _("Search for the lead's name to see what became of it at each CRM."),
            confirmed_records.exists(),
            "console:search",
        ),
    ]
