from django.urls import path

from crmsync.hive.pages import LandingPageView, ThanksView

urlpatterns = [
    path("l/<str:appkey>", LandingPageView.as_view(), name="landing-page"),
    path("l/<str:appkey>/thanks", ThanksView.as_view(), name="landing-page-thanks"),
]
