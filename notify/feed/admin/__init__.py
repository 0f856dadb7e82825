"""Feed in the console, beside the list of posts and their pages.

events      the queue: events that wait or were set aside, replaying them
scheduler   the pace of dispatchers and its reasons; charts of the last hours
users       a user: delivery of their posts, their timeline, their relations
"""

from notify.feed.admin import events

__all__ = ["events"]
