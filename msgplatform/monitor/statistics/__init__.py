"""What the flows have counted: over time, by group, as a file.

Each flow says what its counters mean (`core/flows/activity.py`).

points       a flow's counters in steps of time, and their sum
groups       the sums of each group of a dimension, ranked by what was lost
recent       the last minutes of every flow, for the overview
troubles     what lost messages, lags or failed most in the last hour
files        the same as the lines of a CSV file
dimensions   by system, and by the rows of a model: what flows use
"""
