"""The settings of a subscription and of its consumer; no I/O.

limits     the values that they may have, and the parts that people may see
matching   the messages that a subscription's filter lets through
signing    the signatures of requests
"""
