from django.urls import path

from notify.api import MessageListView, MessageView

urlpatterns = [
    path("messages", MessageListView.as_view(), name="messages"),
    path("messages/<int:pk>", MessageView.as_view(), name="message"),
]
