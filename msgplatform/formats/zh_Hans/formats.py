"""Times that sort and can be compared with a log line: 2026-11-20 21:38:40."""

DATETIME_FORMAT = "Y-m-d H:i:s"
DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
# As charts show numbers; Django leaves Chinese ones without groups.
NUMBER_GROUPING = 3
THOUSAND_SEPARATOR = ","
