"""What `up` runs: so many of each daemon, and processes that a setting asks for."""

import pytest
from django.core.management import CommandError, call_command

from msgplatform.models import Biz
from msgplatform.operation.supervision import platform
from msgplatform.operation.supervision.run import Refused
from notify.models import BizReceive
from tests.support.notify_rows import subscription
from tests.support.sms_rows import gateway

pytestmark = pytest.mark.django_db


def test_a_process_for_each_that_is_to_have_one() -> None:
    biz = Biz.objects.create(name="orders")
    own, discarded, _other = (subscription(biz, name) for name in ("own", "gone", "other"))
    BizReceive.objects.filter(pk__in=[own.pk, discarded.pk]).update(own_process=True)
    BizReceive.objects.filter(pk=discarded.pk).update(status=BizReceive.Status.DISCARDED)
    gateway(name="unicom", own_process=True)
    gateway(name="off", own_process=True, enabled=False)
    gateway(name="other")
    found = platform.own_processes()
    assert [program.name for program in found] == [
        f"run_sender-subscription-{own.pk}", "run_sms_sender-gateway-unicom",
    ]  # fmt: skip
    assert f"--subscription={own.pk}" in found[0].argv
    assert "--gateway=unicom" in found[1].argv
    general = {program.name: program for program in platform.daemons({})}
    for program in found:
        assert program.comes_and_goes
        like = general[program.name.partition("-")[0]]
        assert (program.priority, program.stop_seconds) == (like.priority, like.stop_seconds)


def test_as_many_as_are_asked_for() -> None:
    programs = {p.name: p.processes for p in platform.daemons({"run_sender": 4})}
    assert (programs["run_sender"], programs["run_maker"]) == (4, 1)
    with pytest.raises(Refused, match=r"no daemon run_nothing.*run_sender"):
        platform.daemons({"run_nothing": 2})


@pytest.mark.parametrize("given", ["run_sender", "run_sender=0", "run_sender=65", "run_sender=x"])
def test_a_number_of_processes_that_cannot_be(given: str) -> None:
    with pytest.raises(CommandError, match="such as run_sender=4"):
        call_command("up", f"--processes={given}")


@pytest.mark.parametrize("given", ["80000", "0", "-1", "http"])
def test_a_port_that_cannot_be(given: str) -> None:
    for command in ("up", "demo"):
        with pytest.raises(CommandError, match="from 1 to 65535"):
            call_command(command, f"--port={given}")
