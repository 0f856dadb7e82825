from django.urls import path

from crmsync.api.views import LeadBatchView, LeadListView, LeadView
from msgplatform.api import converters  # noqa: F401 - registers <id:…>

urlpatterns = [
    path("leads", LeadListView.as_view(), name="leads"),
    path("leads/batch", LeadBatchView.as_view(), name="lead-batch"),
    path("leads/<id:pk>", LeadView.as_view(), name="lead"),
]
