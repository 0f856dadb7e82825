from django.urls import path

from msgplatform.api import converters  # noqa: F401 - registers <id:…>
from notify.api import MessageListView, MessageView

urlpatterns = [
    path("messages", MessageListView.as_view(), name="messages"),
    path("messages/<id:pk>", MessageView.as_view(), name="message"),
]
