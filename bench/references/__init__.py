"""What the platform is compared with: the naive way and the good practice, as programs.

None of them is made slow: each docstring says what it does, and what it does not have to do.
"""
