from django.urls import path

from bench.references.drf_orm.views import MessageView

urlpatterns = [path("api/v1/messages", MessageView.as_view())]
