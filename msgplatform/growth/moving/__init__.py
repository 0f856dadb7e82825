"""A business system moves from one cell to another, in a file: what was set up for it as a
platform file has it, its API keys and its idempotency keys.

system_file  the lines of the file: a header, objects and keys, and a last line with the checksum
exporting    write the file
importing    look at the whole file, then store it
"""
