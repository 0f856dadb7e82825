from django.urls import path

from msgplatform.company.alerting import api
from msgplatform.company.alerting.setup import AlertChannelResource, AlertRuleResource
from msgplatform.doors.api.management.resources import routes

urlpatterns = [
    *routes(AlertChannelResource),
    path(
        "alert-channels/<slug:name>/tests",
        api.AlertChannelTestView.as_view(),
        name="alert-channel-test",
    ),
    *routes(AlertRuleResource),
]
