"""A business system moves from one cell to another: its settings and idempotency keys, in a file.

tables       the tables and stores of keys that move, the platform's and each flow's
encoding     a row as the file has it, without numbers of its cell
system_file  the lines of the file: a header, rows, and a last line with count and checksum
exporting    write the file
importing    look at the whole file, then store it
"""
