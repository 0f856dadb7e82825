from django.urls import path

from msgplatform.api import converters  # noqa: F401 - registers <id:…>
from msgplatform.api.management import jobs, statistics, systems
from msgplatform.api.management.resources import routes

urlpatterns = [
    *routes(systems.System),
    *routes(systems.Key, systems.KeyListView),
    path("jobs", jobs.JobListView.as_view(), name="jobs"),
    path("jobs/<id:pk>", jobs.JobView.as_view(), name="job"),
    path("jobs/<id:pk>/pause", jobs.JobPauseView.as_view(), name="job-pause"),
    path("jobs/<id:pk>/resume", jobs.JobResumeView.as_view(), name="job-resume"),
    path("jobs/<id:pk>/cancel", jobs.JobCancelView.as_view(), name="job-cancel"),
    path("statistics", statistics.StatisticsView.as_view(), name="statistics"),
]
