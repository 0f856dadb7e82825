"""What the platform is compared with: the naive way, the good practice, and peers, as programs.

None of them is made slow: each docstring says what it does, and what it does not have to do.
"""
