"""Feed in the console.

posts       the list of posts, and the page of one
events      the queue: events that wait or were set aside, replaying them
scheduler   the pace of dispatchers and its reasons; charts of the last hours
users       a user: delivery of their posts, their timeline, their relations
rows        shared by both lists: systems, authors, times, how far a list looks back
"""

from notify.feed.admin import events, posts

__all__ = ["events", "posts"]
