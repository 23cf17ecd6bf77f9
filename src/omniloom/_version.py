"""The version, here alone. Asking the installed metadata for it takes 20 ms, which no command needs to wait."""

__version__ = "0.1.0"
