from django.urls import path

from msgplatform.core import features
from msgplatform.doors.console.statistics import views as statistics
from msgplatform.doors.console.views import (
    bulk,
    failures,
    getting_started,
    job,
    message,
    message_list,
    overview,
    preferences,
    retention,
    saved_filters,
    search,
)

app_name = "console"
urlpatterns = [
    path("", overview.overview, name="overview"),
    path("preferences", preferences.preferences, name="preferences"),
    path("statistics", statistics.statistics, name="statistics"),
    path("statistics.csv", statistics.as_csv, name="statistics-csv"),
    path("failures", failures.failures, name="failures"),
    path(
        "failures/<slug:flow_name>/acknowledge", failures.acknowledge, name="failures-acknowledge"
    ),
    path("search", search.search, name="search"),
    path("search/<slug:flow_name>", message_list.find, name="find"),
    path("search/<slug:flow_name>.csv", message_list.as_csv, name="messages-csv"),
    path("search/<slug:flow_name>/resend", message_list.resend, name="resend-messages"),
    path("texts/<slug:flow_name>", search.texts, name="texts"),
    path(
        "options/<slug:flow_name>/<slug:page_name>/<slug:field_name>",
        search.options,
        name="options",
    ),
    path("filters/<int:id>/delete", saved_filters.delete, name="delete-filter"),
    path("filters/<slug:flow_name>/<slug:page_name>", saved_filters.save, name="save-filter"),
    path("bulk", bulk.bulk, name="bulk"),
    path("bulk/jobs/<int:id>", job.job, name="job"),
    path("bulk/jobs/<int:id>/<slug:ending>", job.job_messages, name="job-messages"),
    path("bulk/<slug:flow_name>", bulk.bulk, name="bulk-flow"),
    path("getting-started", getting_started.getting_started, name="getting-started"),
    path("getting-started/dismiss", getting_started.dismiss, name="getting-started-dismiss"),
    path("retention", retention.retention, name="retention"),
    *features.gather("console_urls", "urlpatterns"),
    # Last, because the addresses of messages match many others.
    path("<slug:flow_name>/<str:id>", message.message, name="message"),
    path("<slug:flow_name>/<str:id>/resend", message.resend, name="resend"),
    path("<slug:flow_name>/<str:id>/content", message.content, name="content"),
]
