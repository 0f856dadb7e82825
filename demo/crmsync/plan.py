"""Rows: business systems with their landing pages, two CRMs, a policy for each CRM."""

from collections.abc import Mapping
from typing import Any

from crmsync.adapters.registry import open_adapter
from crmsync.models import Crm, LandingPage, Policy, Source
from crmsync.policies import mapping
from demo.crmsync.crms import CallCentre, SalesTable
from demo.crmsync.leads import CALL_CENTRE, CARS, COURSES, TABLE
from msgplatform.core.errors import PlatformError
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz

DESCRIPTIONS = {
    TABLE: "rows of a table that wants a name and takes 40 characters of a company",
    CALL_CENTRE: "HTTP; wants fewer calls now and then, fails once after it has stored",
}
# The system that owns each page, and the page's fields: name → required.
_SYSTEMS = {CARS: "cars", COURSES: "courses"}
_FIELDS: Mapping[str, Mapping[str, bool]] = {
    CARS: {"name": True, "phone": True, "email": False, "company": False, "city": False},
    COURSES: {"name": False, "phone": True, "email": True, "company": False, "budget": False},
}
# `or null` clears a field in the CRM when the lead no longer has it.
_TABLE_MAPPING = """
name = name or null
phone = phone
email = extra.email or null
company = extra.company or null
city = extra.city or null
page = appkey
"""
_CALL_CENTRE_MAPPING = """
LastName = name or "unknown"
Phone = phone
Email = extra.email or null
Company = extra.company or "private"
Budget = extra.budget or null
LeadSource = "landing page"
"""


def create_pages() -> dict[str, str]:
    """Create systems and their landing pages. Returns an API key of the system for each page."""
    tokens = {}
    for appkey, system in _SYSTEMS.items():
        biz = Biz.objects.create(name=system, title=system.title())
        page = LandingPage(
            biz=biz,
            appkey=appkey,
            title=appkey.replace("-", " ").capitalize(),
            text="Leave your number, and we call you back.",
            form_fields=[
                {"name": name, "required": is_required, "label": "Budget" * (name == "budget")}
                for name, is_required in _FIELDS[appkey].items()
            ],
            allowed_origins=["https://www.pages.example"],
        )
        page.full_clean()
        page.save()
        tokens[appkey] = keys.create(biz, "demo", ["leads:write", "leads:read"])[1]
    return tokens


def create_crms(table: SalesTable, call_centre: CallCentre) -> None:
    """Create both CRMs, tested as by the console's button, and the policies that fill them."""
    _create(
        Crm(
            name=TABLE,
            adapter="sql",
            settings={"table": "customer", "key_column": "lead", "deleted_column": "gone"},
            credentials={"url": table.url},
            retry_seconds=[1, 2, 5],
        ),
        _TABLE_MAPPING,
    )
    _create(
        Crm(
            name=CALL_CENTRE,
            adapter="http",
            settings=_call_centre(call_centre.url),
            credentials={"token": call_centre.token},
            concurrency=2,
            retry_seconds=[1, 2, 5],
        ),
        _CALL_CENTRE_MAPPING,
    )


def _create(crm: Crm, lines: str) -> None:
    """Raises ValidationError, InvalidInput, and PlatformError for a CRM that cannot be used."""
    crm.full_clean()
    crm.save()
    # Looks every second, so that a demo takes seconds.
    # Without the guard: a fifth of these leads is deleted or emptied.
    policy = Policy(
        source=Source.hive(), crm=crm, mapping=lines, interval_seconds=1, guard_percent=100
    )
    policy.full_clean()
    rules = mapping.parse(lines)
    rules.check_columns(policy.source.value_columns)
    adapter = open_adapter(crm.adapter, crm.settings, crm.credentials)
    try:
        # The same check as that of the console's button.
        result = adapter.check(rules.fields)
    finally:
        adapter.close()
    if not result.is_usable:
        raise PlatformError(f"{crm}: {result.message}")
    policy.save()


def _call_centre(url: str) -> dict[str, Any]:
    """The settings with which the HTTP adapter speaks to the call centre."""
    return {
        "url": f"{url}/contacts",
        "headers": {"Authorization": "Bearer {secret.token}"},
        "body": {"contacts": "{records}"},
        "record": {
            "external_id": "{key}", "version": "{version}", "deleted": "{deleted}",
            "properties": "{fields}",
        },
        "records_per_call": 50,
        "concurrency": 2,
        "is_upsert": True,
        "read": {
            "url": f"{url}/contacts/{{key}}", "record": "properties", "remote_id": "id",
            "version": "version", "deleted": "deleted",
        },
        "test": {"url": f"{url}/contacts"},
        "fields": ["LastName", "Phone", "Email", "Company", "Budget", "LeadSource"],
        "answer": {
            "results": "results",
            "result": {
                "code": "status", "ok": ["stored"], "kinds": {"refused": "invalid"},
                "field": "property", "message": "message", "remote_id": "id",
                "created": "created",
            },
        },
    }  # fmt: skip
