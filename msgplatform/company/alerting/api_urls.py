from django.urls import path

from msgplatform.api.management.resources import routes
from msgplatform.company.alerting import api
from msgplatform.company.alerting.setup import AlertChannelResource, AlertRuleResource

urlpatterns = [
    *routes(AlertChannelResource),
    path(
        "alert-channels/<slug:name>/tests",
        api.AlertChannelTestView.as_view(),
        name="alert-channel-test",
    ),
    *routes(AlertRuleResource),
]
