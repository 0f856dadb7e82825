"""Notify in the console.

consumers            where messages go: URL, headers, networks, the signing secret and its rotation
subscriptions        which consumer gets what: the form, the columns of the list, the page of one
subscription_list    the list: its order and its filter
subscription_cells   cells that the list and the card have in common
states               pausing, resuming, discarding: for the list and for the page
health               live state and counters of a page's rows, read in sets
dashboard            the card above one subscription's settings: live state, chart, failures
messages             messages and their deliveries
reports, chart       statistics per hour and day, and as CSV
fields               form fields: one item a line
"""

from notify.admin import consumers, messages, subscriptions

__all__ = ["consumers", "messages", "subscriptions"]
