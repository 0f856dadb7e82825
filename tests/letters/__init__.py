"""A tiny flow, as small as one can be: a letter is posted, `run_postman` delivers it.

It shows that a flow is a folder and a name: nothing outside of this folder knows it.
"""
