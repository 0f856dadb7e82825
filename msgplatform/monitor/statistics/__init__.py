"""The counters of the flows: over time, by group, as a file.

Each flow declares the meaning of its counters (`core/flows/activity.py`).
"""
