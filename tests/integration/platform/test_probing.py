"""What is masked for somebody cannot be guessed by asking: by a search, a filter or an order."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from gateway.models import SgipMo, SgipMt
from msgplatform import roles
from msgplatform.core import flows
from msgplatform.core.flows.messages import personal_names
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog, Role, SavedFilter
from tests.support import crm_rows, everything

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
PHONE = "13800000005"  # of a lead
# Field of a search → what somebody may guess of it.
GUESSES = [
    ("notify", {"biz": "shop", "text": everything.ANSWER[:9]}),
    ("notify", {"biz": "shop", "text": everything.CARD[:4]}),
    ("sms", {"number": everything.NUMBER}),
    ("crmsync", {"phone": PHONE}),
    ("crmsync", {"name": crm_rows.NAME[:1]}),
]


@pytest.fixture(autouse=True)
def rows(tmp_path: Path) -> None:
    roles.make()
    everything.make(tmp_path)


def person(*groups: Group, permissions: tuple[str, ...] = ()) -> Client:
    user = User.objects.create_user(f"person {User.objects.count()}", is_staff=True)
    user.groups.set(groups)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def role(name: str) -> Group:
    return Role.objects.get(name=name).group


@pytest.fixture
def viewer() -> Client:
    return person(role(roles.VIEWER))


@pytest.fixture
def operator() -> Client:
    return person(role(roles.OPERATOR))


def listed(client: Client, address: str) -> list[int]:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return [row.pk for row in answer.context["cl"].result_list]


@pytest.mark.parametrize(("flow", "given"), GUESSES)
def test_a_search_by_fields(
    flow: str, given: dict[str, str], viewer: Client, operator: Client
) -> None:
    address = f"/console/search/{flow}"
    assert operator.get(address, given).context["found"].hits
    answer = viewer.get(address, given)
    assert answer.context["found"] is None
    assert "only for people who may see personal data" in answer.content.decode()
    (field,) = personal_names(flows.get(flow).messages.fields) & set(given)  # type: ignore[union-attr]
    assert f'name="{field}"' not in viewer.get(address).content.decode()
    assert f'name="{field}"' in operator.get(address).content.decode()
    # Nor is the beginning of another search of theirs changed by it.
    others = {name: value for name, value in given.items() if name != field}
    assert viewer.get(address, others or {"id": "1"}).context["found"] is not None


def finds(client: Client, query: str | int) -> bool:
    """True if the search shows hits, or opens the only one."""
    answer = client.get("/console/search", {"q": query})
    return answer.status_code == 302 or bool(answer.context["hits"])


@pytest.mark.parametrize("query", [everything.NUMBER, PHONE, crm_rows.NAME[:1]])
def test_the_search_over_everything(query: str, viewer: Client, operator: Client) -> None:
    assert finds(operator, query)
    answer = viewer.get("/console/search", {"q": query})
    assert answer.context["hits"] == []
    assert "only searched for people who may see personal data" in answer.content.decode()
    assert finds(viewer, SgipMt.objects.get().pk)


def test_a_list(viewer: Client, operator: Client) -> None:
    for address, model, text in (("/admin/gateway/sgipmo/", SgipMo, everything.NUMBER),):
        pk = model.objects.get().pk
        assert pk in listed(operator, f"{address}?q={text}")
        assert listed(viewer, f"{address}?q={text}") == []
        assert listed(viewer, f"{address}?q={pk}") == [pk]
        help_text = viewer.get(address).context["cl"].search_help_text
        assert "number" not in str(help_text).lower()


def test_the_audit_log(viewer: Client, operator: Client) -> None:
    entry = AuditLog.objects.create(
        actor="ann", action="sms_sent", target=f"unicom: {everything.NUMBER}", detail={}
    )
    address = "/admin/msgplatform/auditlog/"
    assert listed(operator, f"{address}?q={everything.NUMBER[:8]}") == [entry.pk]
    assert listed(viewer, f"{address}?q={everything.NUMBER[:8]}") == []
    for seen in ("unicom", "ann"):
        assert entry.pk in listed(viewer, f"{address}?q={seen}")


@pytest.mark.parametrize(
    "guess",
    [
        "msgplatform/auditlog/?target__contains=1381", "msgplatform/alert/?said__contains=1381",
        "crmsync/recoveryentry/?reason__contains=1381", "gateway/sgipmo/?user_number=138",
        "crmsync/exceptionentry/?message__startswith=1381", "notify/receive/?url__contains=token",
        "notify/bizreceive/?receive__url__contains=token",
        "msgplatform/bulkjob/?error__contains=1", "crmsync/operation/?id__gt=1",
    ],
)  # fmt: skip
def test_a_lookup_that_is_no_filter(guess: str, viewer: Client, operator: Client) -> None:
    """Nobody's: it could be guessed with, and it reads the table."""
    assert viewer.get(f"/admin/{guess}").status_code == 400
    assert operator.get(f"/admin/{guess}").status_code == 400


def test_a_lookup_by_the_key(viewer: Client) -> None:
    pk = SgipMo.objects.get().pk
    for name in ("id", "id__exact", "pk"):
        assert listed(viewer, f"/admin/gateway/sgipmo/?{name}={pk}") == [pk]
    assert viewer.get("/admin/gateway/sgipmo/?id=x").status_code == 302, "the list without it"


def test_an_order(operator: Client) -> None:
    """Django takes any column from the address, also one whose header offers no order."""
    shown = operator.get("/admin/gateway/sgipmo/").context["cl"]
    place = shown.list_display.index("number")
    asked = operator.get(f"/admin/gateway/sgipmo/?o={place}").context["cl"]
    assert asked.queryset.query.order_by == ("-pk",)


def test_saved_filters(viewer: Client, operator: Client) -> None:
    def save(client: Client, name: str, **fields: str) -> Any:
        given = {f"filter-{field}": value for field, value in fields.items()}
        return client.post("/console/filters/sms/search", {"name": name, "shared": "on", **given})

    save(operator, "hers", number=everything.NUMBER)
    save(operator, "failed", state="failed")
    save(viewer, "probe", number=everything.NUMBER)
    assert set(SavedFilter.objects.values_list("name", flat=True)) == {"hers", "failed"}
    page = viewer.get("/console/search/sms").content.decode()
    assert "state=failed" in page
    assert everything.NUMBER not in page
    assert everything.NUMBER in operator.get("/console/search/sms").content.decode()


def test_a_bulk_action() -> None:
    clerk = person(permissions=("view_sgipmt", "change_sgipmt", "add_bulkjob"))
    given = {"action": "resend", "number": everything.NUMBER, "since": "2020-01-01", "count": "1"}
    answer = clerk.get("/console/bulk/sms", given)
    assert answer.context["counted"] is None
    assert "only for people who may see personal data" in answer.content.decode()
    del given["number"]
    assert clerk.get("/console/bulk/sms", given).context["counted"] is not None
    job = BulkJob.objects.get()
    assert job.filter["number"] == everything.NUMBER
    job.action = "resend"
    job.save()
    page = clerk.get(f"/console/bulk/jobs/{job.pk}").content.decode()
    assert "861****0123" in page
    assert everything.NUMBER not in page, "neither in the link to a new preview"
