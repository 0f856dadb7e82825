"""People who are limited to business systems see and change nothing of another one: every page and
every route, as an administrator, an operator and a viewer."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from msgplatform import person_limits, roles
from msgplatform.core import flows
from msgplatform.models import Alert, Role
from notify.models import Receive
from tests.support import two_systems
from tests.support.console_walk import Walk
from tests.support.two_systems import OWN, ZEBRA, System

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
MESSAGE_OF_FLOW = {"notify": "message", "sms": "sms", "crmsync": "lead", "feed": "post"}
# What people keep for themselves.
_OF_THE_PERSON = ("msgplatform_preferences", "msgplatform_savedfilter")
ENTRANCES = (
    "/console/", f"/console/search?q={ZEBRA}", f"/console/search?q={two_systems.SECRET_WORD}",
    "/console/search/notify", "/console/search/sms", "/console/search/crmsync",
    "/console/search/feed", "/console/search/sms?state=failed", "/console/failures",
    "/console/statistics", "/console/preferences",
)  # fmt: skip


@pytest.fixture
def systems(tmp_path: Path) -> tuple[System, System]:
    roles.make()
    return two_systems.make(tmp_path)


def person(role: str, *system_names: str, superuser: bool = False) -> Client:
    user = User.objects.create_user(f"limited-{role}", is_staff=True, is_superuser=superuser)
    user.groups.add(Role.objects.get(name=role).group)
    person_limits.limit_person(user, system_names, "tests")
    client = Client()
    client.force_login(user)
    return client


def content(*left_out: str) -> dict[str, list[Any]]:
    """Every row of every table, without sessions and what looking changes."""
    return {
        model._meta.db_table: list(model._base_manager.order_by("pk").values())
        for model in apps.get_models()
        if model._meta.managed
        and "session" not in model._meta.db_table
        and model._meta.db_table not in left_out
    }


def leaks(needles: set[str], what: str, text: str) -> list[str]:
    """What surrounds the foreign texts in an answer that the request itself did not name."""
    folded, asked = text.lower(), what.lower()
    places = [folded.find(needle.lower()) for needle in needles if needle.lower() not in asked]
    return [text[max(0, at - 60) : at + 60] for at in places if at >= 0]


# -- the walk ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "role",
    [roles.ADMINISTRATOR, roles.OPERATOR, pytest.param(roles.VIEWER, marks=pytest.mark.full)],
)
def test_nothing_of_another_system_is_offered_or_shown(
    systems: tuple[System, System], role: str
) -> None:
    own, _foreign = systems
    needles = two_systems.foreign_needles(own)
    walk = Walk(person(role, OWN)).from_(*ENTRANCES)
    found = {what: texts for what, text in walk.seen if (texts := leaks(needles, what, text))}
    assert found == {}
    assert (walk.refused, walk.failed) == ([], [])
    assert len(walk.visited) > 30
    shown = " ".join(text for _what, text in walk.seen)
    for word in ("orders", "own-payload" if role != roles.VIEWER else "orders-hook"):
        assert word in shown


# -- every route ---------------------------------------------------------------------------------
def patterns(resolver: Any, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for each in resolver.url_patterns:
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from patterns(each, path)
        else:
            yield path, each


def row_of(model: type[Model], own: System, foreign: System) -> Any:
    """The key of a row that does not belong to the own system."""
    if model in (Alert, Receive):
        return foreign.rows[{Alert: "alert", Receive: "consumer"}[model]]
    rows = model._base_manager.all()
    names = {field.name for field in model._meta.get_fields()}
    if "biz" in names or "biz_id" in names:
        rows = rows.exclude(biz_id=own.biz.pk)
    if model is type(own.biz):
        rows = rows.exclude(pk=own.biz.pk)
    return rows.order_by("-pk").values_list("pk", flat=True).first() or 1


def routes(own: System, foreign: System) -> Iterator[str]:
    """Every address of the console, with what belongs to the foreign system or to the platform."""
    for path, pattern in patterns(get_resolver("msgplatform.urls")):
        if not path.startswith(("console/", "admin/", "django-rq/")):
            continue
        if any(own in path for own in ("logout", "sign-in", "console/sessions")) or path.endswith(
            "(?P<url>.*)$"
        ):
            continue
        callback = pattern.callback
        model_admin = getattr(callback, "model_admin", None) or getattr(
            getattr(callback, "__wrapped__", None), "__self__", None
        )
        model = getattr(model_admin, "model", None)
        name = re.match(r"admin/(\w+)/(\w+)/", path)
        if model is None and name and name[1] in {each.label for each in apps.get_app_configs()}:
            model = apps.get_model(name[1], name[2])
        values: dict[str, Any] = {}
        if model is not None:
            values = dict.fromkeys(("object_id", "pk", "id"), row_of(model, own, foreign))
        for flow in [each.name for each in flows.all()] if "flow_name" in path else [""]:
            given: Mapping[str, Any] = {
                "id": foreign.rows.get(MESSAGE_OF_FLOW.get(flow, ""), foreign.rows["job_notify"]),
                **values, "flow_name": flow, "page_name": "search", "field_name": "biz",
                "what": "acknowledge", "ending": "arrived", "queue_index": 0, "app_label": "notify",
                "content_type_id": 1, "uidb64": "MQ", "name": ZEBRA, "job_id": "x",
            }  # fmt: skip
            yield "/" + re.sub(
                r"<(?:\w+:)?(\w+)>", lambda part, given=given: str(given.get(part[1], 1)), path
            ).replace("^", "").replace("$", "").replace("\\Z", "")


def body_of(text: Any) -> str:
    return (b"".join(text.streaming_content) if text.streaming else text.content).decode(
        errors="replace"
    ) + str(dict(text.headers))


@pytest.mark.parametrize("superuser", [pytest.param(False, marks=pytest.mark.full), True])
def test_no_route_shows_or_changes_what_is_foreign(
    systems: tuple[System, System], superuser: bool
) -> None:
    own, foreign = systems
    needles = two_systems.foreign_needles(own)
    client = person(roles.ADMINISTRATOR, OWN, superuser=superuser)
    forms: list[dict[str, Any]] = [
        {},
        {
            "id": str(foreign.rows["message"]),
            "recipient": str(foreign.rows["delivery"]),
            "note": "taken",
            "lost": "9",
            "until": "2099-01-01",
            "seen": "",
            "kind": "changes",
            "to": "cancelled",
            "name": "taken",
            "title": "taken",
            "enabled": "on",
            "_save": "Save",
            "biz": str(foreign.biz.pk),
            "post": "yes",
        },
    ]
    before = content(*_OF_THE_PERSON)
    found, count, accepted = {}, 0, list[str]()
    for address in dict.fromkeys(routes(own, foreign)):
        for form in (None, *forms):
            answer = client.get(address) if form is None else client.post(address, form)
            count += 1
            what = f"{'GET' if form is None else 'POST'} {address}"
            assert answer.status_code < 500, what
            if texts := leaks(needles, f"{address} {form or ''}", body_of(answer)):
                found[what] = texts
            if form is not None and answer.status_code == 302:
                accepted.append(what)
    assert found == {}
    changed = [table for table, rows in content(*_OF_THE_PERSON).items() if rows != before[table]]
    assert changed == [], accepted
    assert count > 300
