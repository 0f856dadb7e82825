from django.urls import path

from msgplatform.api import converters  # noqa: F401 - registers <id:…>
from notify.api.views import MessageBatchView, MessageListView, MessageView

urlpatterns = [
    path("messages", MessageListView.as_view(), name="messages"),
    path("messages/batch", MessageBatchView.as_view(), name="message-batch"),
    path("messages/<id:pk>", MessageView.as_view(), name="message"),
]
