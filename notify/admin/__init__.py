"""Notify in the console.

consumers            where messages go: URL, headers, networks, the signing secret and its rotation
subscriptions        which consumer gets what: the form, the columns of the list, the page of one
subscription_list    the list: its order and its filter
subscription_cells   cells that the list and the card have in common
states               pausing, resuming, discarding: for the list and for the page
health               live state and counters of a page's rows, read in sets
test_sends           a test send: any event type of the catalogue, its request and its answer
event_types          the catalogue of event types
dashboard            the card above one subscription's settings: live state, chart, failures
messages             messages and their deliveries
fields               form fields: one item a line
"""

from notify.admin import consumers, event_types, messages, subscriptions

__all__ = ["consumers", "event_types", "messages", "subscriptions"]
