from django.urls import path

from crmsync.api import sandbox, sync_views, trials
from crmsync.api.views import LeadBatchView, LeadChangesView, LeadListView, LeadView
from crmsync.setup.crms import CrmResource
from crmsync.setup.landing_pages import LandingPageResource
from crmsync.setup.policies import PolicyResource
from crmsync.setup.sources import SourceResource
from msgplatform.doors.api import converters  # noqa: F401 - registers <id:…>
from msgplatform.doors.api.management.resources import routes

urlpatterns = [
    *routes(LandingPageResource),
    *routes(CrmResource),
    path("crms/<slug:name>/tests", trials.CrmTestView.as_view(), name="crm-test"),
    path("crms/<slug:name>/tests/lead", trials.CrmTestLeadView.as_view(), name="crm-test-lead"),
    path("crms/<slug:name>/sandbox", sandbox.CrmSandboxView.as_view(), name="crm-sandbox"),
    *routes(SourceResource),
    *routes(PolicyResource),
    path("leads", LeadListView.as_view(), name="leads"),
    path("leads/changes", LeadChangesView.as_view(), name="lead-changes"),
    path("leads/batch", LeadBatchView.as_view(), name="lead-batch"),
    path("leads/<id:pk>", LeadView.as_view(), name="lead"),
    path("leads/<id:pk>/crms", sync_views.LeadCrmsView.as_view(), name="lead-crms"),
    path("sync/policies", sync_views.PolicyListView.as_view(), name="sync-policies"),
    path(
        "sync/policies/<id:pk>/runs", sync_views.PolicyRunsView.as_view(), name="sync-policy-runs"
    ),
    path("sync/runs", sync_views.RunListView.as_view(), name="sync-runs"),
    path("sync/runs/<id:pk>", sync_views.RunView.as_view(), name="sync-run"),
]
