"""The platform file: what people set up, as a file that is kept in a repository and applied.

files, folders ─▶ text (bounded YAML) ─▶ reading (entries, or faults with their lines)
─▶ applying (one transaction of PUTs by name) ─▶ outcome (changes, and lines for people)
"""
