from django.urls import path

from msgplatform.api import converters  # noqa: F401 - registers <id:…>
from msgplatform.api.management.resources import routes
from notify.api import (
    consumers,
    event_types,
    held,
    rotation,
    sandbox,
    subscriptions,
    trials,
)  # fmt: skip
from notify.api.views import EventListView, MessageBatchView, MessageView

urlpatterns = [
    *routes(consumers.Consumer),
    path("consumers/<slug:name>/rotate", rotation.RotateView.as_view(), name="consumer-rotate"),
    path("held", held.HeldListView.as_view(), name="held"),
    path(
        "held/<slug:system>/<slug:consumer>/release",
        held.HeldReleaseView.as_view(),
        name="held-release",
    ),
    path("held/<slug:system>/<slug:consumer>/skip", held.HeldSkipView.as_view(), name="held-skip"),
    *routes(subscriptions.Subscription, subscriptions.SubscriptionListView),
    path(
        "subscriptions/<slug:system>/<slug:consumer>/deliver",
        subscriptions.DeliverNowView.as_view(),
        name="subscription-deliver",
    ),
    path(
        "subscriptions/<slug:system>/<slug:consumer>/tests",
        trials.SubscriptionTestView.as_view(),
        name="subscription-test",
    ),
    path(
        "subscriptions/<slug:system>/<slug:consumer>/sandbox",
        sandbox.SandboxView.as_view(),
        name="subscription-sandbox",
    ),
    *routes(event_types.SharedEventType, event_types.EventTypeListView),
    *routes(event_types.OwnEventType),
    path("messages", EventListView.as_view(), name="messages"),
    path("messages/batch", MessageBatchView.as_view(), name="message-batch"),
    path("messages/<id:pk>", MessageView.as_view(), name="message"),
]
