"""Incidents of SMS. Gateways are addresses at which nobody answers; texts end by their validity."""

import contextlib
import socket
import time

from gateway import sgip
from gateway.connections import sms_redis
from gateway.intake import accept
from gateway.intake.request import Request
from gateway.lifecycle import keys
from gateway.models import SmsAccount, SmsGateway
from gateway.monitor.conditions import MIN_FAILED
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.models import Biz, FailureGroup, MinuteCounter
from tests.programs.alerts.incidents import Course, Places, incident, refuse
from tests.support.sms_rows import NODE, TS, account, gateway, submit

VALID_SECONDS = 1.5


def _account(name: str, **fields: object) -> SmsAccount:
    biz = Biz.objects.create(name=name)
    row = gateway(name, port=1, **fields)
    made = account(biz, name)
    made.gateways.add(row)
    return made


def accepted(request: Request) -> None:
    accept.intake.cache_clear()  # it knows the accounts of the incident before
    verdict = _verdict(request)
    assert verdict.outcome == "created", verdict


def _verdict(request: Request) -> Verdict:
    intake = accept.intake()
    (verdict,) = intake.commit(intake.prepare([request]))
    return verdict


def _send(of: SmsAccount, count: int, to: int = 15000000000) -> None:
    """Texts that expire soon, since their gateway does not answer."""
    numbers = [str(to + n) for n in range(count)]
    accept.intake.cache_clear()  # it knows the accounts of the incident before
    # A busy machine can take longer to accept a text than it is valid.
    for valid_seconds in (VALID_SECONDS, 4 * VALID_SECONDS, 16 * VALID_SECONDS):
        expire_at = time.time() + valid_seconds
        request = Request(biz=of.biz_id, to=numbers, text="hello", expire_at=expire_at)
        verdict = _verdict(request)
        if verdict.field != "expire_at":
            break
    assert verdict.outcome == "created", verdict


@incident("sms.gateway", r"127\.0\.0\.1:1: .*call failed.*wait")
def a_gateway_does_not_answer(places: Places) -> Course:
    _account("silent")
    yield
    SmsGateway.objects.filter(name="silent").update(enabled=False)


@incident("sms.failures", r"Messages: 2, since .*expired \(2\)")
def texts_expire(places: Places) -> Course:
    _send(_account("expiring"), 2)
    yield
    SmsGateway.objects.filter(name="expiring").update(enabled=False)
    FailureGroup.objects.filter(flow="sms").update(count=0)


@incident("sms.failing", rf"the gateway failing.*{MIN_FAILED} messages ended")
def every_text_fails(places: Places) -> Course:
    _send(_account("failing-sms"), MIN_FAILED)
    yield
    MinuteCounter.objects.filter(flow="sms").delete()
    SmsGateway.objects.filter(name="failing-sms").update(enabled=False)
    FailureGroup.objects.filter(flow="sms").update(count=0)


@incident("sms.gateway_settings", r"not appear to be an IPv4.*or its calls are refused")
def a_network_is_no_network(places: Places) -> Course:
    row = gateway("no-network", port=1, networks=["here"])
    yield
    SmsGateway.objects.filter(pk=row.pk).update(networks=[], enabled=False)


@incident("sms.account_settings", r"not iterable.*or its calls are refused")
def keywords_are_no_list(places: Places) -> Course:
    row = account(Biz.objects.create(name="keywords"), "keywords", keywords=7)
    yield
    SmsAccount.objects.filter(pk=row.pk).update(keywords=[])


@incident("sms.archive", r"cannot be archived.*read-only", is_for_person=True)
def the_archive_takes_no_text(places: Places) -> Course:
    allow = refuse("INSERT", "sgip_mt", "NEW.user_number = '8615100000000'")
    _send(_account("archive-sms"), 1, 15100000000)
    yield
    allow()
    SmsGateway.objects.filter(name="archive-sms").update(enabled=False)


@incident("sms.event", r"could not be published.*read-only", is_for_person=True)
def the_event_of_a_text_is_refused(places: Places) -> Course:
    of = _account("no-event")
    allow = refuse("INSERT", "biz_msg", f"NEW.biz_id = {of.biz_id}")
    _send(of, 1)
    yield
    allow()
    SmsGateway.objects.filter(name="no-event").update(enabled=False)


# -- what comes in -------------------------------------------------------------------------------
def _until_known() -> None:
    """The receiver reads its gateways once a second or two, on a busy machine later."""
    time.sleep(10)


def _tell(places: Places, *requests: sgip.Command, source: str = "127.0.0.1") -> bytes:
    """Send these over one connection to the receiver; the answer to the last one."""
    address = ("127.0.0.1", int(places["receiver"]))
    with socket.create_connection(address, timeout=120, source_address=(source, 0)) as smg:
        for request in requests:
            smg.sendall(request.encode())
            answer = smg.recv(1000)
    return answer


def _told(places: Places, *requests: sgip.Command) -> None:
    """Send these as soon as the receiver knows the gateway: before, it closes the connection."""
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(ConnectionError):
            if _tell(places, *requests):
                return
        assert time.monotonic() < deadline, "it closed the connection"
        time.sleep(1)


def _bind(login: str, password: str) -> sgip.Bind:
    sequence = (1, 1, 1)
    return sgip.Bind(sequence, sgip.LoginType.SMG_TO_SP, login, password)


@incident("sms.stranger", r"the last from 127\.0\.0\.2", is_for_person=True)
def a_stranger_connects(places: Places) -> Course:
    with contextlib.suppress(ConnectionError):
        _tell(places, _bind("smg", "its-secret"), source="127.0.0.2")
    yield


@incident("sms.login", r"10 wrong logins", is_for_person=True)
def somebody_guesses_passwords(places: Places) -> Course:
    row = gateway("guessed", port=1, smg_login_name="guessed")
    _until_known()
    for number in range(10):
        _told(places, _bind("guessed", f"guess {number}"))
    yield
    SmsGateway.objects.filter(pk=row.pk).update(enabled=False)


@incident("sms.report", r"talker reports on messages of another gateway", is_for_person=True)
def a_gateway_reports_on_anothers_message(places: Places) -> Course:
    of = _account("other")
    row = gateway("talker", port=1, smg_login_name="talker")
    text = Request(biz=of.biz_id, to=["15000000000"], text="hello")
    accepted(text)
    ((seqno,),) = submit(of.gateways.get().pk).values()
    report = sgip.Report((1, 1, 2), (NODE, TS, seqno), 0, "8615000000000", 0, 0)
    _told(places, _bind("talker", "its-secret"), report)
    yield
    SmsGateway.objects.filter(name__in=["other", row.name]).update(enabled=False)


@incident("sms.mo", r"cannot be taken in.*sends it again", is_for_person=True)
def a_part_of_an_mo_cannot_be_read(places: Places) -> Course:
    """Somebody wrote into Redis what no part is."""
    row = gateway("mo", port=1, smg_login_name="mo")
    user, sp_number = "8613800000000", "10655"
    sms_redis().hset(keys.mo_part(user, sp_number, 7, 2), "1", "no part")
    second = sgip.Deliver(
        (1, 1, 3), user, sp_number, tp_udhi=1,
        message_content=bytes((5, 0, 3, 7, 2, 2)) + b"the end",
    )  # fmt: skip
    _told(places, _bind("mo", "its-secret"), second)
    yield
    SmsGateway.objects.filter(pk=row.pk).update(enabled=False)
