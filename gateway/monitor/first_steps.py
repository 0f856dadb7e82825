"""The first steps of a newcomer: settings and a first message."""

from django.utils.translation import gettext_lazy as _

from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.core.flows.setup import FirstCall, FirstStep

CALL = FirstCall(
    "/api/v1/sms",
    {"to": ["13800000000"], "text": "您的验证码是 1234", "idempotency_key": "order-7-code"},
    "sms:write",
)


def steps() -> list[FirstStep]:
    """Raises RedisError."""
    has_archived = SgipMt.objects.exists()
    return [
        FirstStep(
            _("A gateway"),
            _(
                "The operator's SMG: its address and both logins. To try it without an operator, "
                "start manage.py run_smg_simulator: host 127.0.0.1, port 8802, our login sp with "
                "the password secret, the SMG's login smg with the password secret, any corp id."
            ),
            SmsGateway.objects.exists(),
            "admin:gateway_smsgateway_add",
            ("gateway.add_smsgateway",),
        ),
        FirstStep(
            _("An account"),
            _("As whom a business system sends: SP number, service code and fees."),
            SmsAccount.objects.exists(),
            "admin:gateway_smsaccount_add",
            ("gateway.add_smsaccount",),
        ),
        FirstStep(
            _("A short message is accepted"),
            _("Send one with the command below, over REST or XML-RPC."),
            has_archived or bool(sms_redis().get(keys.MT_COUNT)),
        ),
        FirstStep(
            _("Its end is known"),
            _("Delivered, or refused with the operator's reason, and in the archive."),
            has_archived,
            "console:search",
        ),
    ]
