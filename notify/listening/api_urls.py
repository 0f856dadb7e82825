from django.urls import path

from notify.listening import api

urlpatterns = [
    path("consumers/<slug:consumer>/listen", api.ListenView.as_view(), name="listen"),
    path(
        "consumers/<slug:consumer>/listen/<id:pk>",
        api.ListenResultView.as_view(),
        name="listen-result",
    ),
]
