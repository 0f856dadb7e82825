from django.urls import include, path

from notify.api.asyncapi.views import DocumentView

urlpatterns = [
    path("api/asyncapi.json", DocumentView.as_view(), name="asyncapi"),
    path("", include("notify.sandbox_receiver")),
]
