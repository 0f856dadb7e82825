from django.contrib.auth.hashers import PBKDF2PasswordHasher


class QuickHasher(PBKDF2PasswordHasher):
    """Django's own with one round: hundreds of tests make users, and none is about the cost of
    guessing a password."""

    iterations = 1
