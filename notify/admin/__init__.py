"""Notify in the console: consumers, subscriptions, event types, and what people try with them."""

from notify.admin import consumers, event_types, subscriptions

__all__ = ["consumers", "event_types", "subscriptions"]
