from django.urls import path

from gateway import setup
from gateway.api import trials
from gateway.api.views import IncomingListView, SmsBatchView, SmsListView, SmsView
from msgplatform.doors.api import converters  # noqa: F401 - registers <id:…>
from msgplatform.doors.api.management.resources import routes

urlpatterns = [
    *routes(setup.Gateway),
    *routes(setup.Account),
    path("sms/accounts/<slug:name>/tests", trials.AccountTestView.as_view(), name="account-test"),
    path("sms", SmsListView.as_view(), name="sms"),
    path("sms/batch", SmsBatchView.as_view(), name="sms-batch"),
    path("sms/incoming", IncomingListView.as_view(), name="sms-incoming"),
    path("sms/<id:pk>", SmsView.as_view(), name="sms-message"),
]
