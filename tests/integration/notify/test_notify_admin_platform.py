"""What the admin of the platform writes down, and which pages of the queues it offers."""

import pytest
from django.test import Client
from django.urls import reverse

from msgplatform.core.queues import jobs
from msgplatform.doors.api.access import keys
from msgplatform.models import ApiKey, AuditLog, Biz
from notify import orders

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


def test_switching_a_system_off_and_on_is_audited(admin_client: Client) -> None:
    admin_client.post("/admin/msgplatform/biz/add/", {"name": "shop", "enabled": "on"})
    biz = Biz.objects.get()
    _key, plain = keys.create(biz, "till", ["events:write"])
    assert keys.verify(plain)
    address = f"/admin/msgplatform/biz/{biz.pk}/change/"
    admin_client.post(address, {"name": "shop"})
    assert keys.verify(plain) is None  # at once in this process
    admin_client.post(address, {"name": "shop", "title": "Web shop"})
    admin_client.post(address, {"name": "shop", "title": "Web shop", "enabled": "on"})
    assert list(AuditLog.objects.order_by("id").values_list("action", "target")) == [
        ("system_created", "shop"), ("system_disabled", "shop"), ("system_changed", "shop"),
        ("system_enabled", "shop"),
    ]  # fmt: skip


def test_a_change_of_scopes_is_audited_and_holds_at_once(admin_client: Client) -> None:
    biz = Biz.objects.create(name="shop")
    key, plain = keys.create(biz, "till", ["events:write", "events:read"])
    assert keys.verify(plain)
    admin_client.post(
        f"/admin/msgplatform/apikey/{key.pk}/change/", {"name": "till", "scopes": ["events:read"]}
    )
    caller = keys.verify(plain)
    assert caller is not None
    assert caller.scopes == {"events:read"}
    entry = AuditLog.objects.get()
    assert entry.action == "api_key_changed"
    before, after = entry.detail["changes"]["scopes"]
    assert (sorted(before), after) == (["events:read", "events:write"], ["events:read"])


def test_a_new_key_is_shown_once_and_in_no_cookie(admin_client: Client) -> None:
    biz = Biz.objects.create(name="shop")
    made = admin_client.post(
        "/admin/msgplatform/apikey/add/",
        {"biz": biz.pk, "name": "till", "scopes": ["events:read"]},
    )
    page = admin_client.get(made["Location"])
    plain = page.context["secret"]
    assert keys.verify(plain)
    assert plain in page.content.decode()
    assert plain not in str(made.cookies) + made["Location"] + str(page.cookies)
    assert plain not in admin_client.get(made["Location"], follow=True).content.decode()
    assert plain not in str(list(AuditLog.objects.values()))


def test_a_deleted_key_is_audited_and_refused(admin_client: Client) -> None:
    key, plain = keys.create(Biz.objects.create(name="shop"), "till", ["events:read"])
    assert keys.verify(plain)
    admin_client.post(f"/admin/msgplatform/apikey/{key.pk}/delete/", {"post": "yes"})
    assert not ApiKey.objects.exists()
    assert keys.verify(plain) is None
    assert AuditLog.objects.get().action == "api_key_deleted"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("clear", ()), ("requeue_all", ()), ("delete_failed_jobs", ()), ("confirm_action", ()),
        ("actions", ()), ("delete_job", ("x",)), ("requeue_job", ("x",)), ("enqueue_job", ("x",)),
        ("stop_job", ("x",)),
    ],
)  # fmt: skip
def test_queues_are_for_looking_only(
    admin_client: Client, name: str, more: tuple[str, ...]
) -> None:
    jobs.put(orders.MARKER_QUEUE, [{"n": 1}], ttl=600)
    address = reverse(f"django_rq:{name}", args=(0, *more))
    for answer in (admin_client.get(address), admin_client.post(address, {"action": "delete"})):
        assert answer.status_code == 403
    assert jobs.depths([orders.MARKER_QUEUE]) == {orders.MARKER_QUEUE: 1}
    for page in ("", "queues/0/", "queues/0/details/"):
        assert admin_client.get(f"/django-rq/{page}", follow=True).status_code == 200


@pytest.mark.parametrize(
    "address",
    ["notify/receive/?secret__regex=^whsec", "notify/receive/?headers__icontains=x",
     "notify/receive/?previous_secret__startswith=w",
     "notify/bizreceive/?receive__secret__regex=^whsec", "msgplatform/apikey/?hash__startswith=a",
     "auth/user/?password__startswith=pbkdf2"],
)  # fmt: skip
def test_a_filter_cannot_spell_out_a_secret(
    admin_client: Client, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert admin_client.get(f"/admin/{address}").status_code == 400
    assert not caplog.records, "who guesses does not fill the disk with tracebacks"
