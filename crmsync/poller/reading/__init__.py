"""Read a source: the rows that changed since a watermark, without losing one.

source       the description of a source, and the errors that reading raises
database     connections to a source's database, which only read; the table as it is, compared
             with its description
horizon      the time below which no further row can appear; `server_horizon` has that of servers
increment    pages of changed rows, up to the horizon
"""
