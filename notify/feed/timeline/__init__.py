"""Timelines as readers see them: the written part and the merged part, read together. For the API
and the console."""

from notify.feed.timeline.page import Page, Post, Unread, count_unread, mark_read, read

__all__ = ["Page", "Post", "Unread", "count_unread", "mark_read", "read"]
