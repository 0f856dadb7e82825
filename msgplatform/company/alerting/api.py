"""Alert channels and rules, and the test of a channel, over the management API."""

from typing import Any

from django.http import Http404
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.company.alerting import outbox
from msgplatform.company.alerting.models import AlertChannel
from msgplatform.company.alerting.setup import SCOPE, AlertChannelResource, AlertRuleResource
from msgplatform.core.errors import NotNow, Undecryptable
from msgplatform.doors.api.management.resources import audit, routes
from msgplatform.doors.api.schema import operation


class ChannelCheckSerializer(serializers.Serializer[Any]):
    """The outcome of a test."""

    sent = serializers.BooleanField(source="is_ok", help_text="true: the service took it")
    error = serializers.CharField(help_text="Why not, '' when it was sent")


class AlertChannelTestView(APIView):
    tag = "alert channels"
    required_scope = SCOPE
    answers_limited_keys = False
    answers_not_now = True

    @operation(None, {200: ChannelCheckSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Send a test to an alert channel.

        Sends a message now, or calls the address of a heartbeat, and waits at most 20 seconds for
        the answer. 409 when the stored address cannot be decrypted.
        """
        row = AlertChannel.objects.filter(name=name).first()
        if row is None:
            raise Http404("There is no alert channel of this name.")
        audit(request, "alert_channel_tested", row.name)
        try:
            outcome = outbox.send_test(row)
        except Undecryptable as error:
            raise NotNow(str(error)) from None
        return Response(ChannelCheckSerializer(outcome).data)


urlpatterns = [
    *routes(AlertChannelResource),
    path(
        "alert-channels/<slug:name>/tests",
        AlertChannelTestView.as_view(),
        name="alert-channel-test",
    ),
    *routes(AlertRuleResource),
]
