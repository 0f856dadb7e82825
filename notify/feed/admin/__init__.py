"""Feed in the console.

posts       what users posted, and what became of it
events      the queue: what waits and for how long, what was set aside, replaying it
queue_bar   what is in the queue of each topic
scheduler   how fast dispatchers work, and why; charts of the last hours
users       a user: how their posts are delivered, their timeline, their relations
relations   relations of a user, page by page
rows        what both lists share: systems, authors, times, how far a list looks back
"""

from notify.feed.admin import events, posts

__all__ = ["events", "posts"]
