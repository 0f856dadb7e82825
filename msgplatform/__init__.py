"""The platform: what its flows have in common. `__version__` is the release, as in
pyproject.toml."""

__version__ = "0.1.0"
