from django.urls import path

from notify.api.asyncapi.views import DocumentView

urlpatterns = [path("api/asyncapi.json", DocumentView.as_view(), name="asyncapi")]
