"""The policies, and those that carry a lead."""

from collections.abc import Iterator, Mapping

from crmsync.models import Lead, Policy
from msgplatform.core.flows.messages import Values

Policies = Mapping[int, Policy]


def by_id() -> Policies:
    """Every policy with its source, CRM and system, in the order of CRMs; without secrets."""
    rows = Policy.with_names().select_related("biz")
    return {row.pk: row for row in rows.order_by("crm__name", "id")}


def of_hive(policies: Policies) -> list[int]:
    return [pk for pk, policy in policies.items() if policy.source.is_hive]


def matching(policies: Policies, values: Values) -> list[int]:
    """The policies of the filter's CRM and policy, or all."""
    return [
        pk
        for pk, policy in policies.items()
        if values.get("crm", policy.crm_id) == policy.crm_id and values.get("policy", pk) == pk
    ]


def of_lead(policies: Policies, lead: Lead) -> Iterator[Policy]:
    """The policies that carry the lead, as they are set up now."""
    values = {"biz_id": lead.biz_id, "appkey": lead.appkey}
    for policy in policies.values():
        if policy.source.is_hive and policy.carries(values):
            yield policy


def key_of(lead_id: int) -> str:
    """The key of a lead's records."""
    return str(lead_id)


def lead_of(key: str) -> int | None:
    """The lead of a record of the hive; None when the key is no lead's id."""
    return int(key) if key.isascii() and key.isdigit() and len(key) <= 19 else None
