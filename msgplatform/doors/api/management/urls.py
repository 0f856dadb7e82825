from django.urls import path

from msgplatform.core import features
from msgplatform.doors.api import converters  # noqa: F401 - registers <id:…>
from msgplatform.doors.api.management import (
    alerts,
    failures,
    jobs,
    people,
    platform_file,
    statistics,
    systems,
)
from msgplatform.doors.api.management.resources import routes

urlpatterns = [
    *features.gather("api", "urlpatterns"),
    *routes(systems.System),
    *routes(systems.Key, systems.KeyListView),
    path("alerts", alerts.AlertListView.as_view(), name="alerts"),
    path("alerts/<id:pk>", alerts.AlertView.as_view(), name="alert"),
    path(
        "alerts/<id:pk>/acknowledge",
        alerts.AlertAcknowledgeView.as_view(),
        name="alert-acknowledge",
    ),
    path("alerts/<id:pk>/resolve", alerts.AlertResolveView.as_view(), name="alert-resolve"),
    path("audit", alerts.AuditListView.as_view(), name="audit"),
    path("failures", failures.FailureListView.as_view(), name="failures"),
    path(
        "failures/<id:pk>/acknowledge",
        failures.FailureAcknowledgeView.as_view(),
        name="failure-acknowledge",
    ),
    path("failures/<id:pk>/resend", failures.FailureResendView.as_view(), name="failure-resend"),
    path("key", systems.OwnKeyView.as_view(), name="own-key"),
    path("jobs", jobs.JobListView.as_view(), name="jobs"),
    path("jobs/<id:pk>", jobs.JobView.as_view(), name="job"),
    path("jobs/<id:pk>/pause", jobs.JobPauseView.as_view(), name="job-pause"),
    path("jobs/<id:pk>/resume", jobs.JobResumeView.as_view(), name="job-resume"),
    path("jobs/<id:pk>/cancel", jobs.JobCancelView.as_view(), name="job-cancel"),
    *routes(people.Person),
    path("people/<str:name>/limit", people.PersonLimitView.as_view(), name="person-limit"),
    path("people/<str:name>/invite", people.InviteView.as_view(), name="person-invite"),
    path("platform", platform_file.PlatformView.as_view(), name="platform"),
    path("platform/schema", platform_file.PlatformSchemaView.as_view(), name="platform-schema"),
    path("roles", people.RoleListView.as_view(), name="roles"),
    path("statistics", statistics.StatisticsView.as_view(), name="statistics"),
]
