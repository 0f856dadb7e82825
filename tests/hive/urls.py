"""The platform's addresses with those of the hive, for tests in one process."""

from django.urls import include, path

from msgplatform import urls
from msgplatform.urls import handler400, handler403, handler404, handler500
from tests.hive.flow import HiveFlow

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]

urlpatterns = [
    path("api/v1/", include(HiveFlow.urls)),
    path("", include(HiveFlow.root_urls)),
    *urls.urlpatterns,
]
