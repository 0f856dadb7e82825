"""Timelines as their readers see them: the written part and the merged part, read together. Used
by the API and the console."""

from notify.feed.timeline.page import Page, Post, read
from notify.feed.timeline.unread import Unread, mark_read, unread

__all__ = ["Page", "Post", "Unread", "mark_read", "read", "unread"]
