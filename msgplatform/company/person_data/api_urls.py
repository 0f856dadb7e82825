from django.urls import path

from msgplatform.company.person_data import api

urlpatterns = [
    path("person-data/erasures", api.ErasureListView.as_view(), name="erasures"),
    path("person-data/erasures/<slug:key>", api.ErasureView.as_view(), name="erasure"),
    path(
        "person-data/erasures/<slug:key>/cancel",
        api.ErasureCancelView.as_view(),
        name="erasure-cancel",
    ),
    path(
        "person-data/erasures/<slug:key>/end",
        api.ErasureEndView.as_view(),
        name="erasure-end",
    ),
    path("person-data/export", api.PersonExportView.as_view(), name="person-export"),
    path("person-data/find", api.PersonFindView.as_view(), name="person-find"),
]
