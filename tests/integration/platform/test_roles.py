"""The shipped roles: what each sees, what each may do, and that nobody gives away more."""

from pathlib import Path

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.test import Client, RequestFactory

from gateway.models import SgipMt
from msgplatform import roles
from msgplatform.core import flows
from msgplatform.core.flows.contract import Flow
from msgplatform.doors.admin.platform.systems import scope_permissions as permissions_of
from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog, Biz, Role
from notify.models import BizMsg, BizReceive, Receive
from tests.support import everything
from tests.support.console_walk import Walk

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]


@pytest.fixture
def shipped() -> None:
    roles.make()


def permissions(role: str) -> set[str]:
    rows = Role.objects.get(name=role).group.permissions.select_related("content_type")
    return {f"{row.content_type.app_label}.{row.codename}" for row in rows}


def person(role: str) -> Client:
    user = User.objects.create_user(f"a {role}", is_staff=True)
    user.groups.add(Role.objects.get(name=role).group)
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.usefixtures("shipped")
class TestGroups:
    def test_each_flow_is_in_them_without_being_named(self) -> None:
        viewer, operator = permissions(roles.VIEWER), permissions(roles.OPERATOR)
        administrator = permissions(roles.ADMINISTRATOR)
        assert flows.all()
        for flow in flows.all():
            app = flow.permission.partition(".")[0]
            assert {flow.permission} <= viewer
            assert set(flow.operator_permissions) <= operator
            assert not set(flow.operator_permissions) & viewer
            every = Permission.objects.filter(content_type__app_label=app)
            assert {f"{app}.{row.codename}" for row in every} <= administrator
        assert viewer < operator < administrator
        assert "msgplatform.view_personal" in operator - viewer
        assert {"auth.change_user", "msgplatform.add_apikey"} <= administrator - operator

    def test_groups_of_ones_own_are_left_alone(self) -> None:
        Role.objects.all().delete()
        Group.objects.all().delete()
        own = Group.objects.create(name="OPERATOR")
        roles.make()
        roles.make()
        assert not own.permissions.exists()
        names = {row.name: row.group.name for row in Role.objects.select_related("group")}
        assert names == {
            "viewer": "Viewer", "operator": "Operator (msgplatform)",
            "administrator": "Administrator",
        }  # fmt: skip

    def test_what_was_taken_from_a_role_is_given_back(self) -> None:
        before = permissions(roles.OPERATOR)
        Role.objects.get(name=roles.OPERATOR).group.permissions.clear()
        roles.make()
        assert permissions(roles.OPERATOR) == before


@pytest.mark.usefixtures("shipped")
def test_nothing_that_is_offered_is_refused(tmp_path: Path) -> None:
    """To who may do most, on both databases: the others' walks are in `tests/programs`."""
    everything.make(tmp_path)
    walk = Walk(person(roles.ADMINISTRATOR)).from_(*everything.ENTRANCES)
    assert (walk.refused, walk.failed) == ([], [])
    assert len(walk.visited) > 60
    assert everything.personal_data(walk.seen) >= everything.OF_OPERATORS


@pytest.mark.usefixtures("shipped")
class TestWhatIsRefused:
    def test_a_viewer_gets_no_content(self, tmp_path: Path) -> None:
        everything.make(tmp_path)
        viewer, operator = person(roles.VIEWER), person(roles.OPERATOR)
        address = f"/console/notify/{BizMsg.objects.get().pk}/content"
        assert viewer.get(address).status_code == 403
        assert everything.CARD in operator.get(address).content.decode()
        # Nor letter by letter, by a filter in the address.
        guess = f"/admin/gateway/sgipmo/?user_number__startswith={everything.NUMBER[:6]}"
        assert viewer.get(guess).status_code == 400
        number = f"/admin/gateway/sgipmo/?q={everything.NUMBER}"
        assert operator.get(number).context["cl"].result_count == 1

    def test_a_list_does_nothing_for_people_who_only_see_it(self, tmp_path: Path) -> None:
        """Each action of each list, also one that the page does not offer."""
        everything.make(tmp_path)
        viewer = User.objects.create_user("a viewer", is_staff=True)
        viewer.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
        client, request = Client(), RequestFactory().get("/")
        client.force_login(viewer)
        request.user = User.objects.create_superuser("root")
        actions = 0
        for model in filter(admin.site.is_registered, apps.get_models()):
            rows = model._default_manager.order_by("pk")
            before = list(rows.values())
            for action in admin.site.get_model_admin(model).get_actions(request) if before else ():
                form = {"action": action, "_selected_action": rows[0].pk, "post": "yes",
                        "confirmed": "yes"}  # fmt: skip
                client.post(f"/admin/{model._meta.label_lower.replace('.', '/')}/", form)
                assert list(rows.values()) == before, (model, action)
                actions += action != "delete_selected"
        assert actions > 8
        assert not AuditLog.objects.filter(actor="a viewer").exists()

    def test_an_operator_acts_and_changes_no_setting(self, tmp_path: Path) -> None:
        everything.make(tmp_path)
        operator = person(roles.OPERATOR)
        row, receive = BizReceive.objects.get(), Receive.objects.get()
        listed = {"action": "pause", "_selected_action": str(row.pk), "index": "0"}
        assert operator.post("/admin/notify/bizreceive/", listed).status_code == 302
        row.refresh_from_db()
        assert row.status == BizReceive.Status.PAUSED
        for address in (
            f"/admin/notify/bizreceive/{row.pk}/change/",
            f"/admin/notify/receive/{receive.pk}/change/",
            f"/admin/notify/receive/{receive.pk}/rotate/",
            "/admin/notify/bizreceive/add/",
            "/admin/msgplatform/apikey/add/",
            "/admin/auth/user/add/",
        ):
            assert operator.post(address, {"url": "http://elsewhere.example"}).status_code == 403
        discard = {**listed, "action": "discard", "confirmed": "yes"}
        operator.post("/admin/notify/bizreceive/", discard)
        row.refresh_from_db()
        assert row.status == BizReceive.Status.PAUSED

    def test_a_viewer_acts_on_nothing(self, tmp_path: Path) -> None:
        everything.make(tmp_path)
        viewer = person(roles.VIEWER)
        message = SgipMt.objects.get()
        assert viewer.post(f"/console/sms/{message.pk}/resend").status_code == 403
        assert viewer.get("/console/bulk").status_code == 403
        assert viewer.get("/django-rq/").status_code == 302
        row = BizReceive.objects.get()
        listed = {"action": "pause", "_selected_action": str(row.pk), "index": "0"}
        viewer.post("/admin/notify/bizreceive/", listed)
        row.refresh_from_db()
        assert row.status == BizReceive.Status.NORMAL


@pytest.mark.usefixtures("shipped")
class TestNobodyGivesAwayMore:
    def test_an_administrator_does_not_become_a_superuser(self) -> None:
        boss = User.objects.create_superuser("boss")
        client = person(roles.ADMINISTRATOR)
        own = User.objects.get(username="a administrator")
        page = f"/admin/auth/user/{own.pk}/change/"
        form = client.get(page).context["adminform"].form
        assert "is_superuser" not in form.fields
        client.post(page, {"username": own.username, "is_superuser": "on", "is_active": "on",
                           "is_staff": "on"})  # fmt: skip
        own.refresh_from_db()
        assert not own.is_superuser
        for address in ("change/", "password/", "delete/"):
            posted = {"password1": "x" * 20, "password2": "x" * 20, "post": "yes"}
            assert client.post(f"/admin/auth/user/{boss.pk}/{address}", posted).status_code == 403

    def test_who_manages_users_gives_only_what_is_his(self) -> None:
        """Neither to himself nor to others, and takes over nobody who may do more."""
        clerk = User.objects.create_user("clerk", is_staff=True)
        wanted = ["add_user", "change_user", "view_user", "change_group", "view_group"]
        clerk.user_permissions.set(Permission.objects.filter(codename__in=wanted))
        chief = User.objects.create_user("chief", is_staff=True, is_active=False)
        administrators = Role.objects.get(name=roles.ADMINISTRATOR).group
        chief.groups.add(administrators)
        client = Client()
        client.force_login(clerk)
        page = f"/admin/auth/user/{clerk.pk}/change/"
        form = client.get(page).context["adminform"].form
        offered = set(form.fields["user_permissions"].queryset.values_list("codename", flat=True))
        assert offered == set(wanted)
        assert not form.fields["groups"].queryset.exists()
        client.post(page, {"username": "clerk", "is_active": "on", "is_staff": "on",
                           "groups": [str(administrators.pk)]})  # fmt: skip
        assert not clerk.groups.exists()
        posted = {"password1": "x" * 20, "password2": "x" * 20}
        assert client.post(f"/admin/auth/user/{chief.pk}/password/", posted).status_code == 403

    def test_who_makes_keys_gives_only_scopes_that_are_his(self) -> None:
        """An administrator all of them; others what they may do in the console."""
        add, every = "/admin/msgplatform/apikey/add/", {*keys.scopes(), *keys.management_scopes()}

        def offered(client: Client, address: str = add) -> set[str]:
            form = client.get(address).context["adminform"].form
            groups = form.fields["scopes"].choices
            return {name for _title, scopes in groups for name, _text in scopes}

        # Who makes people of any group can become anybody: only a superuser lets a script do it.
        assert offered(person(roles.ADMINISTRATOR)) == every - {
            "manage:people",
            "manage:person-data",
        }
        boss = Client()
        boss.force_login(User.objects.create_superuser("boss"))
        assert offered(boss) == every
        clerk = User.objects.create_user("clerk", is_staff=True)
        own = ["add_apikey", "change_apikey", "view_apikey", "view_biz", "view_bizmsg",
               "add_sgipmt", "view_sgipmt"]  # fmt: skip
        clerk.user_permissions.set(Permission.objects.filter(codename__in=own))
        client = Client()
        client.force_login(clerk)
        assert offered(client) == {"sms:write"}
        biz = Biz.objects.create(name="shop")
        for owner, scope, status in (
            ("", "manage:keys", 200), (biz.pk, "events:read", 200), (biz.pk, "sms:write", 302),
        ):  # fmt: skip
            given = {"biz": owner, "name": "k", "scopes": [scope]}
            assert client.post(add, given).status_code == status, scope
        # Of a key that may do more already, these scopes stay.
        key, _plain = keys.create(biz, "theirs", ["events:read"])
        page = f"/admin/msgplatform/apikey/{key.pk}/change/"
        assert offered(client, page) == {"events:read", "sms:write"}
        clerk.user_permissions.add(Permission.objects.get(codename="view_personal"))
        assert offered(client) == {"sms:write", "sms:read", "events:read"}

    @pytest.mark.parametrize("flow", flows.all(), ids=lambda flow: flow.name)
    def test_permissions_for_scopes_exist(self, flow: Flow) -> None:
        assert set(flow.scope_permissions) <= {*flow.scopes, *flow.management_scopes}
        wanted = {name for scope in flow.scope_permissions for name in permissions_of(scope)}
        assert wanted <= permissions(roles.ADMINISTRATOR)

    def test_a_shipped_role_is_not_edited(self, admin_client: Client) -> None:
        group = Role.objects.get(name=roles.VIEWER).group
        page = f"/admin/auth/group/{group.pk}"
        assert admin_client.post(f"{page}/change/", {"name": "x"}).status_code == 403
        assert admin_client.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
        assert admin_client.get(f"{page}/change/").status_code == 200
