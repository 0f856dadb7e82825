"""The business systems to which a person is limited: who sets them, and what is stored."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgplatform import person_limits
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.admin.versions import SEEN
from msgplatform.models import AuditLog, Biz
from tests.support.api_support import problem
from tests.support.management import Manager

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


@pytest.fixture
def anna() -> User:
    for name in ("orders", "zebra"):
        Biz.objects.create(name=name)
    return User.objects.create_user("anna", is_staff=True)


def test_the_last_system_that_is_deleted_leaves_the_limit(anna: User) -> None:
    assert person_limits.limit_of(anna) is None
    assert person_limits.limit_person(anna, ["orders"], "OIDC")
    own = Biz.objects.get(name="orders")
    assert person_limits.limit_of(anna) == {"orders": own.pk}
    own.delete()
    assert person_limits.limit_of(anna) == {}
    assert person_limits.limit_person(anna, None, "OIDC")
    assert person_limits.limit_of(anna) is None


def test_each_change_is_in_the_audit_log_once(anna: User) -> None:
    assert person_limits.limit_person(anna, ["zebra", "orders"], "OIDC")
    assert not person_limits.limit_person(anna, ["orders", "zebra", "zebra"], "OIDC")
    assert person_limits.limit_person(anna, [], "OIDC")
    with pytest.raises(InvalidInput, match="nobody"):
        person_limits.limit_person(anna, ["orders", "nobody"], "OIDC")
    assert person_limits.limit_of(anna) == {}
    entries = AuditLog.objects.filter(actor="OIDC", target="anna", action="user_limited")
    changes = [entry.detail["changes"]["systems"] for entry in entries.order_by("id")]
    assert changes == [[None, ["orders", "zebra"]], [["orders", "zebra"], []]]


def test_a_limit_without_its_audit_entry_is_not_stored(anna: User) -> None:
    def lose(execute: Any, sql: str, *args: Any) -> Any:
        if AuditLog._meta.db_table in sql:
            raise OperationalError
        return execute(sql, *args)

    with connection.execute_wrapper(lose), pytest.raises(OperationalError):
        person_limits.limit_person(anna, ["orders"], "OIDC")
    assert person_limits.limit_of(anna) is None


def test_of_two_limits_at_once_the_later_one_is_stored(anna: User) -> None:
    Biz.objects.create(name="books")
    person_limits.limit_person(anna, ["orders"], "OIDC")
    waits = threading.Event()

    def note(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith(("BEGIN", "DELETE")) or "FOR UPDATE" in sql:
            waits.set()
        return execute(sql, *args)

    def limit_later() -> None:
        with connection.execute_wrapper(note):
            person_limits.limit_person(anna, ["books"], "OIDC")
        connection.close()

    thread = threading.Thread(target=limit_later)
    with transaction.atomic():
        person_limits.limit_person(anna, ["zebra"], "OIDC")
        thread.start()
        assert waits.wait(60)
    thread.join()
    assert list(person_limits.limit_of(anna) or ()) == ["books"]


def test_the_page_of_a_person_sets_the_limit(anna: User, admin_client: Client) -> None:
    address = f"/admin/auth/user/{anna.pk}/change/"
    form = {"username": "anna", "is_active": "on", "is_staff": "on"}

    def save(**fields: Any) -> bool:
        answer = admin_client.post(address, {**form, SEEN: seen(), **fields})
        return answer.status_code == 302

    def seen() -> str:
        return str(admin_client.get(address).context["adminform"].form.seen)

    assert save(is_limited="on", systems=["orders"])
    assert person_limits.limit_of(anna) == {"orders": Biz.objects.get(name="orders").pk}
    entry = AuditLog.objects.latest("id")
    assert (entry.action, entry.target) == ("user_changed", "anna")
    expected = {"is_limited": [False, True], "systems": [[], ["orders"]]}
    assert entry.detail["changes"] == expected
    assert not save(systems=["orders"])  # it would take away the limit that was chosen
    assert save(is_limited="on")
    assert person_limits.limit_of(anna) == {}
    stale = seen()
    assert person_limits.limit_person(anna, ["zebra"], "OIDC")
    assert not save(**{SEEN: stale})  # the page was made before
    assert list(person_limits.limit_of(anna) or ()) == ["zebra"]
    assert b"zebra" in admin_client.get("/admin/auth/user/").content
    assert save()
    assert person_limits.limit_of(anna) is None


def test_the_list_of_people_asks_once_for_all_limits(anna: User, admin_client: Client) -> None:
    with CaptureQueriesContext(connection) as few:
        admin_client.get("/admin/auth/user/")
    for number in range(20):
        user = User.objects.create_user(f"person{number}")
        person_limits.limit_person(user, ["orders"], "OIDC")
    with CaptureQueriesContext(connection) as many:
        admin_client.get("/admin/auth/user/")
    assert len(many) <= len(few) + 1  # the systems of limits, of which there were none


def test_a_key_that_manages_people_sets_the_limit(anna: User) -> None:
    manager = Manager("manage:people")
    assert manager.send("GET", "people/anna").json()["systems"] is None
    for systems in (["orders"], [], None):
        answer = manager.send("PUT", "people/anna/limit", {"systems": systems})
        assert answer.json() == {"systems": systems}
        assert manager.send("GET", "people/anna").json()["systems"] == systems
    manager.send("PUT", "people/anna/limit", {"systems": ["zebra"]})
    # A body that knows nothing of limits takes none away.
    assert manager.send("PUT", "people/anna", {"email": "anna@example.com"}).status_code == 200
    assert manager.send("GET", "people/anna").json()["systems"] == ["zebra"]
    for body in ({}, {"systems": "orders"}, {"systems": ["nobody"]}, {"systems": [1]}):
        problem(manager.send("PUT", "people/anna/limit", body), 400, "invalid-input")
    User.objects.create_superuser("boss")
    problem(manager.send("PUT", "people/boss/limit", {"systems": []}), 409, "not-now")
    problem(manager.send("PUT", "people/nobody/limit", {"systems": []}), 404, "not-found")
