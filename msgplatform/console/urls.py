from django.urls import path

from msgplatform.console import views

app_name = "console"
urlpatterns = [
    path("", views.overview, name="overview"),
    path("search", views.search, name="search"),
    path("search/<slug:flow_name>", views.find, name="find"),
    path("bulk", views.bulk, name="bulk"),
    path("bulk/<slug:flow_name>", views.bulk, name="bulk-flow"),
    path("<slug:flow_name>/<str:id>", views.message, name="message"),
    path("<slug:flow_name>/<str:id>/content", views.content, name="content"),
]
