"""The superuser that `up` makes where nobody can log in, and what `doctor` says of it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from django.contrib.auth import get_user_model

from msgplatform import doctor
from msgplatform.supervision import first_user
from tests.integration.support.lock_waits import until_somebody_waits

pytestmark = pytest.mark.django_db(transaction=True)
User = get_user_model()


def test_a_user_who_may_do_everything() -> None:
    shown: list[str] = []
    assert first_user.make(shown.append)
    (user,) = User.objects.all()
    assert (user.username, user.is_superuser, user.is_staff) == ("admin", True, True)
    assert user.check_password(*shown)
    assert len(shown[0]) >= 16


def test_never_when_there_is_a_user() -> None:
    User.objects.create_user("somebody", is_active=False)
    assert not first_user.make(pytest.fail)
    assert User.objects.count() == 1


def test_no_user_whose_password_nobody_has_seen() -> None:
    def terminal_is_gone(password: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        first_user.make(terminal_is_gone)
    assert not User.objects.exists()


def test_two_machines_at_once_make_one_user() -> None:
    shown: list[str] = []
    others: list[Future[bool]] = []
    with ThreadPoolExecutor() as pool:

        def show(password: str) -> None:
            """The other machine begins before this one has committed."""
            shown.append(password)
            others.append(pool.submit(first_user.make, shown.append))
            until_somebody_waits()

        assert first_user.make(show)
        assert others[0].result(timeout=60) is False
    assert User.objects.get().check_password(*shown)


def said_of_users() -> list[tuple[str, str]]:
    return [(f.what, f.repair) for f in doctor.examine() if "log in" in f.what]


@pytest.mark.usefixtures("work_redis", "sms_redis")
def test_doctor_says_that_nobody_can_log_in() -> None:
    ((what, repair),) = said_of_users()
    assert what == "nobody can log in: there is no user"
    assert "`up` creates one" in repair
    assert "manage.py createsuperuser" in repair
    User.objects.create_user("somebody")
    ((what, repair),) = said_of_users()
    assert what == "nobody can log in: no user is active and staff"
    assert "`up`" not in repair
    User.objects.update(is_staff=True)
    assert said_of_users() == []
