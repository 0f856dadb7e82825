"""The platform file: what people set up, as a file that is kept in a repository and applied.

    files, folders ─▶ text (bounded YAML) ─▶ reading (entries, or faults with their lines)
    ─▶ applying (one transaction of PUTs by name) ─▶ outcome (changes, and lines for people)

kinds       the kinds of objects in a file, in the order of their references
text        YAML in bounds, with the line of every value
reading     the entries of a file: which objects, with which bodies
references  `${NAME}` and `file:NAME` in the place of secrets
applying    creates, replaces and removes objects: all of them, or nothing
exporting   writes the file of what there is
"""
