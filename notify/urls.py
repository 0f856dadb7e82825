from django.urls import path

from msgplatform.api import converters  # noqa: F401 - registers <id:…>
from notify.api import consumers, event_types, subscriptions
from notify.api.views import EventListView, MessageBatchView, MessageView

urlpatterns = [
    path("consumers", consumers.ConsumerListView.as_view(), name="consumers"),
    path("consumers/<slug:name>", consumers.ConsumerView.as_view(), name="consumer"),
    path("subscriptions", subscriptions.SubscriptionListView.as_view(), name="subscriptions"),
    path(
        "subscriptions/<slug:system>/<slug:consumer>",
        subscriptions.SubscriptionView.as_view(),
        name="subscription",
    ),
    path(
        "subscriptions/<slug:system>/<slug:consumer>/deliver",
        subscriptions.DeliverNowView.as_view(),
        name="subscription-deliver",
    ),
    path("event-types", event_types.EventTypeListView.as_view(), name="event-types"),
    path("event-types/<str:name>", event_types.SharedTypeView.as_view(), name="event-type"),
    path(
        "systems/<slug:system>/event-types/<str:name>",
        event_types.OwnTypeView.as_view(),
        name="own-event-type",
    ),
    path("messages", EventListView.as_view(), name="messages"),
    path("messages/batch", MessageBatchView.as_view(), name="message-batch"),
    path("messages/<id:pk>", MessageView.as_view(), name="message"),
]
