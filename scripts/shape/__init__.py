"""The measures of `scripts/shape.py`.

names      which names the rules of CONTRIBUTING.md advise against
modules    one module of the product, read once
touches    the places at which tests touch what is private, or replace an attribute
sources    comments and duplicate lines
figures    the figures of a checkout that have a ceiling
ceilings   the file of ceilings: read, compared, lowered
"""
