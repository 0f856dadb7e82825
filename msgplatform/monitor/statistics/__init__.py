"""The counters of the flows: over time, by group, as a file.

Each flow declares the meaning of its counters (`core/flows/activity.py`).

points       counters in steps of time: of all flows, of a flow, and their sum
groups       the sums of each group of a dimension, ranked by failures; the lines of a CSV file
recent       the last minutes of every flow, and the groups in most trouble, for the overview
"""
