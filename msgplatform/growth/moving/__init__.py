"""Move a business system from one cell to another, in a file with its objects (as in a platform
file), its API keys and its idempotency keys.

system_file  the lines of the file: a header, objects and keys, and a last line with the checksum;
             written by `export`
importing    look at the whole file, then store it
"""
