"""Notify in the console.

consumers            URL, headers, networks, the signing secret and its rotation
subscriptions        the form, list and page of subscriptions, with their actions
subscription_cells   cells of the list; the card above one subscription: live state, chart, failures
health               live state and counters of a page's rows, read in sets
trials               a test send of any event type of the catalogue; a filter on the latest messages
event_types          the catalogue of event types, and the reference of events
"""

from notify.admin import consumers, event_types, subscriptions

__all__ = ["consumers", "event_types", "subscriptions"]
