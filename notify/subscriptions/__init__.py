"""The settings of a subscription and of its consumer, without I/O.

limits     the valid values of settings, and the parts that people may see
matching   the messages that a subscription's filter lets through
signing    the signatures of requests
"""
