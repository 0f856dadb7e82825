from django.urls import path

from msgplatform.doors.api import converters  # noqa: F401 - registers <id:…>
from notify.feed.api.post_views import PostBatchView, PostListView, PostView
from notify.feed.api.relation_views import RelationBatchView, RelationListView
from notify.feed.api.timeline_views import ReadView, TimelineView, UnreadView

urlpatterns = [
    path("feed/posts", PostListView.as_view(), name="feed-posts"),
    path("feed/posts/batch", PostBatchView.as_view(), name="feed-post-batch"),
    path("feed/posts/<id:pk>", PostView.as_view(), name="feed-post"),
    path("feed/relations", RelationListView.as_view(), name="feed-relations"),
    path("feed/relations/batch", RelationBatchView.as_view(), name="feed-relation-batch"),
    path("feed/timelines/<uid:uid>", TimelineView.as_view(), name="feed-timeline"),
    path("feed/timelines/<uid:uid>/unread", UnreadView.as_view(), name="feed-unread"),
    path("feed/timelines/<uid:uid>/read", ReadView.as_view(), name="feed-read"),
]
