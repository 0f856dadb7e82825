"""The fields by which leads and records are found."""

from collections.abc import Sequence

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from crmsync import lead_fields
from crmsync.messages.explanations import ERROR_CLASSES
from crmsync.models import Crm, LandingPage, Policy, Record
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import MAX_OPTIONS, Fields, FilterField, Option, Systems
from msgplatform.messages import filters

NO_CRM = _("there is no CRM of this name")
NO_POLICY = _("there is no such policy; use source/CRM or its id")
STATES = {state.name.lower(): state for state in Record.State}
# Filters on these fields reveal data of a lead or a record.
OF_LEADS = ("id", "phone", "name", "uid", "appkey", "deleted")
OF_RECORDS = ("record_key", "crm", "policy", "state", "error_class", "operation", "remote_id")


def read_crm(text: str, field: str) -> int:
    """A CRM's name, or its id."""
    return filters.id_of(Crm.objects.all(), text, field, str(NO_CRM))


def _systems_of(rows: QuerySet[Policy]) -> list[int | None]:
    """The systems of policies; None for a policy that carries the leads of all systems."""
    return list(rows.order_by().values_list("biz_id", flat=True).distinct())


def _seen_policies(systems: frozenset[int]) -> QuerySet[Policy]:
    """The policies that carry leads of these systems."""
    return Policy.objects.filter(Q(biz=None) | Q(biz_id__in=systems))


def _crms(text: str, systems: Systems) -> Sequence[Option]:
    rows = Crm.objects.filter(name__icontains=text).order_by("name")
    if systems is not None:
        rows = rows.filter(pk__in=_seen_policies(systems).values("crm"))
    return [Option(name, adapter) for name, adapter in rows.values_list("name", "adapter")]


def read_policy(text: str, field: str) -> int:
    """The id of a policy that is named by its id, or by source and CRM: hive/sales."""
    source, slash, crm = filters.searchable(text, field).rpartition("/")
    if not slash:
        return filters.number(text, field)
    rows = Policy.objects.filter(source__name=source.strip(), crm__name=crm.strip())
    policy_id = rows.values_list("id", flat=True).first()
    if policy_id is None:
        raise InvalidInput(str(NO_POLICY), field)
    return policy_id


def _policies(text: str, systems: Systems) -> Sequence[Option]:
    """Policies by a part of the name of the source or the CRM; also hive/sa."""
    rows = Policy.objects.all() if systems is None else _seen_policies(systems)
    rows = rows.select_related("source", "crm")
    source, slash, crm_name = text.rpartition("/")
    if slash:
        rows = rows.filter(source__name__icontains=source.strip())
        rows = rows.filter(crm__name__icontains=crm_name.strip())
    else:
        rows = rows.filter(Q(source__name__icontains=text) | Q(crm__name__icontains=text))
    names = rows.order_by("source__name", "crm__name").values_list("source__name", "crm__name")
    return [Option(f"{source}/{crm_name}") for source, crm_name in names[:MAX_OPTIONS]]


def _owners_of_page(appkey: str) -> list[int]:
    return list(LandingPage.objects.filter(appkey=appkey).values_list("biz_id", flat=True))


def _landing_pages(text: str, systems: Systems) -> Sequence[Option]:
    rows = LandingPage.objects.filter(Q(title__icontains=text) | Q(appkey__startswith=text))
    if systems is not None:
        rows = rows.filter(biz_id__in=systems)
    names = rows.order_by("title").values_list("appkey", "title")[:MAX_OPTIONS]
    return [Option(appkey, title) for appkey, title in names]


CRM = FilterField(
    _("CRM"),
    _("Type a part of its name"),
    "name",
    options=_crms,
    owners=lambda crm: _systems_of(Policy.objects.filter(crm=crm)),
    read=read_crm,
    parameter_help="Only leads with a record at this CRM: its name",
)
POLICY = FilterField(
    _("Policy"),
    _("Type a part of its source or CRM"),
    "name",
    options=_policies,
    owners=lambda policy: _systems_of(Policy.objects.filter(pk=policy)),
    read=read_policy,
    parameter_help="Only leads with a record of this policy: its id, or its source and CRM",
)
ERROR_CLASS = filters.choice(_("Error class"), ERROR_CLASSES.items(), _("Why it failed at a CRM"))
FIELDS: Fields = {
    "id": filters.message_id(_("A lead's id")),
    "phone": FilterField(
        _("Phone"),
        _("The whole number: 13800000000 or +44 20 7946 0000"),
        personal=True,
        read=lead_fields.phone_forms,
    ),
    "name": FilterField(_("Name"), _("The beginning of a name"), personal=True),
    "uid": FilterField("UID", _("The caller's own id of the person")),
    "appkey": FilterField(
        "APPKEY",
        _("APPKEY of a landing page; type a part of its title"),
        "name",
        options=_landing_pages,
        owners=_owners_of_page,
        parameter_help="Only leads of this landing page",
    ),
    "deleted": filters.choice(
        _("Deleted"),
        [("false", _("not deleted")), ("true", _("deleted"))],
        _("Whether the lead was deleted"),
        read=lambda text, field: filters.one_of(("false", "true"))(text, field) == "true",
    ),
    "biz": filters.BIZ,
    "crm": CRM,
    "policy": POLICY,
    "state": filters.choice(
        _("State"),
        [(name, state.label) for name, state in STATES.items()],
        _("At a CRM"),
        read=lambda text, field: STATES[filters.one_of(STATES)(text, field)],
    ),
    "error_class": ERROR_CLASS,
    "operation": FilterField(
        _("Operation"),
        _("Everything that an operation was to send: its id"),
        read=filters.number,
    ),
    "remote_id": FilterField(_("Id in the CRM"), _("A record's id in a CRM")),
    "record_key": FilterField(_("Record key"), _("A record's key in its source")),
    "rows": filters.choice(
        _("List"),
        [("records", _("records, of every source"))],
        _("Leads, or what each CRM holds of each row of a source"),
        _("leads"),
    ),
    "since": filters.since(_("Stored, or read for a CRM, at this time or later")),
    "until": filters.until(_("Stored, or read for a CRM, before this time")),
}
