from django.urls import path

from bench.references.naive_sms.views import BatchView

urlpatterns = [path("api/v1/sms/batch", BatchView.as_view())]
