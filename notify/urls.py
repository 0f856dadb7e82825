from django.urls import include, path

from msgplatform.doors.api import converters  # noqa: F401 - registers <id:…>
from msgplatform.doors.api.management.resources import routes
from notify.api import sandbox, subscriptions, trials
from notify.api.views import EventListView, MessageBatchView, MessageView
from notify.setup.consumers import Consumer
from notify.setup.event_types import OwnEventType, SharedEventType
from notify.setup.subscriptions import Subscription

_subscription_patterns = [
    path("deliver", subscriptions.DeliverNowView.as_view(), name="subscription-deliver"),
    path("tests", trials.SubscriptionTestView.as_view(), name="subscription-test"),
    path("filter-trial", trials.FilterTrialView.as_view(), name="subscription-filter-test"),
    path("sandbox", sandbox.SandboxView.as_view(), name="subscription-sandbox"),
]
_held_patterns = [
    path("release", subscriptions.HeldReleaseView.as_view(), name="held-release"),
    path("skip", subscriptions.HeldSkipView.as_view(), name="held-skip"),
]
urlpatterns = [
    *routes(Consumer),
    path(
        "consumers/<slug:name>/rotate", subscriptions.RotateView.as_view(), name="consumer-rotate"
    ),
    path("held", subscriptions.HeldListView.as_view(), name="held"),
    path("held/<slug:system>/<slug:consumer>/", include(_held_patterns)),
    *routes(Subscription, subscriptions.SubscriptionListView),
    path("subscriptions/<slug:system>/<slug:consumer>/", include(_subscription_patterns)),
    *routes(SharedEventType),
    *routes(OwnEventType),
    path("messages", EventListView.as_view(), name="messages"),
    path("messages/batch", MessageBatchView.as_view(), name="message-batch"),
    path("messages/<id:pk>", MessageView.as_view(), name="message"),
]
