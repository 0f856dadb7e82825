"""Walks through the console: what a role is offered is not refused, and nobody sees too much."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from msgplatform import roles
from msgplatform.models import Role
from tests.support import everything
from tests.support.console_walk import Walk

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]


def walk(role: str, folder: Path) -> Walk:
    """Of somebody with this role, through one of everything."""
    roles.make()
    everything.make(folder)
    user = User.objects.create_user(f"a {role}", is_staff=True)
    user.groups.add(Role.objects.get(name=role).group)
    client = Client()
    client.force_login(user)
    walk = Walk(client).from_(*everything.ENTRANCES)
    assert (walk.refused, walk.failed) == ([], [])
    assert len(walk.visited) > 60
    return walk


def test_a_viewer_sees_nobody_s_data(tmp_path: Path) -> None:
    """On no page, in no file."""
    seen = walk(roles.VIEWER, tmp_path).seen
    assert everything.personal_data(seen) == set()
    assert any("861****0123" in text for _address, text in seen)


@pytest.mark.full
def test_an_operator_sees_it(tmp_path: Path) -> None:
    assert everything.personal_data(walk(roles.OPERATOR, tmp_path).seen) >= everything.OF_OPERATORS
