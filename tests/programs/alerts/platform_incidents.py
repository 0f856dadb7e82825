"""Incidents of the platform's own kinds, as far as they need no process to be killed."""

import time
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.test import Client, override_settings

from gateway.connections import sms_redis
from gateway.intake.request import Request
from gateway.models import SmsAccount, SmsGateway
from msgplatform.company.alerting.models import AlertChannel, AlertRule
from msgplatform.company.audit_export import address
from msgplatform.company.person_data.models import Erasure
from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.data import sql
from msgplatform.core.data.server import Writer
from msgplatform.models import AuditLog, Biz, FailureGroup, IdNode
from tests.programs.alerts.incidents import Course, Places, incident
from tests.programs.alerts.sms_incidents import accepted
from tests.support.oidc_provider import OidcProvider
from tests.support.sms_rows import account, gateway


@incident("platform.backlog", r"the gateway closed.*waited since")
def a_gateway_is_switched_off_with_a_message(places: Places) -> Course:
    biz = Biz.objects.create(name="closed")
    row = gateway("closed", port=1, prefixes=["86150"])
    account(biz, "closed").gateways.add(row)
    text = Request(biz=biz.pk, to=["15000000000"], text="later", expire_at=time.time() + 3600)
    accepted(text)
    yield
    SmsAccount.objects.filter(name="closed").delete()
    sms_redis().flushall()
    SmsGateway.objects.filter(name="closed").delete()


@incident("platform.watch", r"alert sms\.failures cannot be looked up ValueError", act=2)
def a_count_cannot_be_read(places: Places) -> Course:
    FailureGroup.objects.create(
        flow="sms", subject=1, answer="x", count=1, lost=1, since=sql.now(), sample=1,
        counted_since=sql.now(), last_at=sql.now(),
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE msgplatform_givenup SET since = '2026-13-01 00:00:00' WHERE flow = 'sms'"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM msgplatform_givenup WHERE flow = 'sms'")


@incident("platform.channel", r"the channel pager JSON .*Connection refused")
def alerts_do_not_reach_a_channel(places: Places) -> Course:
    channel = AlertChannel.objects.create(name="pager", url="json://127.0.0.1:9/", shown="JSON")
    AlertRule.objects.create(name="all", group_seconds=1).channels.add(channel)
    yield
    AlertRule.objects.all().delete()
    AlertChannel.objects.all().delete()


@incident("platform.disk", r"The disk of elsewhere .* 5\.0 of 100\.0 GiB are free", act=2)
def the_disk_of_another_machine_is_full(places: Places) -> Course:
    """Its program says so with its heartbeats."""
    beats = Presence(work_redis, "heartbeats", Heartbeat, 3600.0)
    there = Heartbeat("maker", host="elsewhere", at=time.time(), disk_bytes=100 << 30)
    there.disk_free_bytes = 5 << 30
    beats.report({there.name: there})
    yield
    there.disk_free_bytes = 50 << 30
    beats.report({there.name: there})


@incident("platform.ids", r"1\d\d of 128 id nodes of the database are in use", act=2)
def nearly_all_id_nodes_are_in_use(places: Places) -> Course:
    """By processes of other machines."""
    held = set(IdNode.objects.filter(lease_until__gt=sql.now()).values_list("node", flat=True))
    ahead = {"holder": "elsewhere", "lease_until": sql.now() + timedelta(hours=1)}
    for node in sorted(set(range(128)) - held)[10:]:
        IdNode.objects.update_or_create(node=node, defaults=ahead)
    yield
    IdNode.objects.filter(holder="elsewhere").update(holder="", lease_until=None)


@incident("platform.writers", r"one:3306: maker \(here\); two:3306: marker \(there\)")
def programs_write_to_two_servers(places: Places) -> Course:
    """Programs that a proxy sends to different servers of a cluster say so."""
    writers = Presence(work_redis, "platform:writers", Writer, 3600.0)
    there, here = Writer("marker", "there", "two:3306"), Writer("maker", "here", "one:3306")
    writers.report({"there": there, "here": here})
    yield
    writers.withdraw("there", "here")


@incident("platform.releases", r"0\.0\.1: maker; .*Finish the update", act=2)
def an_update_is_left_half_done(places: Places) -> Course:
    """A program of another machine is of the old release."""
    beats = Presence(work_redis, "heartbeats", Heartbeat, 3600.0)
    there = Heartbeat("maker", host="outdated", at=time.time(), release="0.0.1")
    beats.report({there.name: there})
    yield
    beats.withdraw(there.name)


@incident("platform.memory", r"SMS_REDIS_URL is nearly full It uses", act=2)
def a_redis_is_nearly_full(places: Places) -> Course:
    """So large that buffers, which come and go, do not count."""
    client = sms_redis()
    client.setrange("ballast", 20_000_000, b"x")
    used = int(client.info("memory")["used_memory"])
    client.config_set("maxmemory", int(used * 1.05))
    yield
    client.config_set("maxmemory", 0)
    client.delete("ballast")


@incident("platform.audit", r"audit\.sock: No such file or directory\. Entries have waited", act=2)
def nobody_takes_the_audit_log(places: Places) -> Course:
    """Not in the first act, in which run_bulk is killed."""
    path = Path(address.parse(settings.AUDIT_EXPORT).place)
    away = path.rename(path.with_suffix(".away"))
    AuditLog.objects.create(actor="ann", action="consumer_changed", target="well")
    yield
    away.rename(path)


@incident("platform.erasure", r"erasure .* fails DataError in feed\.posts\. It is tried", act=2)
def an_erasure_fails(places: Places) -> Course:
    """Not in the first act, in which run_bulk is killed."""
    Erasure.objects.create(
        state=Erasure.State.WAITING, error="DataError", store="feed.posts", reason="asked for it",
        created_by="ann", created_at=sql.now(), lease_until=sql.now() + timedelta(hours=1),
    )  # fmt: skip
    yield
    Erasure.objects.all().delete()


@incident("platform.traces", r"1 programs, among them elsewhere:1: no answer in time\. Messages go")
def a_collector_takes_no_spans(places: Places) -> Course:
    """A program of another machine says so."""
    failing = Presence(work_redis, "platform:traces", str, 3600.0)
    failing.report({"elsewhere:1": "no answer in time"})
    yield
    failing.withdraw("elsewhere:1")


@incident("platform.signin", r"People cannot sign in .*http://127\.0\.0\.1:9: connect\.")
def the_company_provider_is_away(places: Places) -> Course:
    """Somebody presses the button of the login page, and later gets in."""
    provider, login, browser = OidcProvider(), "/console/sign-in/company", Client()
    with override_settings(**{**provider.settings(), "OIDC_ISSUER": "http://127.0.0.1:9"}):
        assert browser.get(login, SERVER_NAME="127.0.0.1").status_code == 503
    yield
    provider.claims = {"groups": ["ops"], "preferred_username": "anna"}
    with override_settings(**provider.settings()):
        url = browser.get(login, SERVER_NAME="127.0.0.1")["Location"]
        back = provider.authorize(url)
        assert browser.get(f"{login}/callback", back, SERVER_NAME="127.0.0.1").status_code == 302
    provider.close()
