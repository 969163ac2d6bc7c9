"""The version of the package. It must be the library's (TC_VERSION in tensorcache.h)."""

__version__ = "0.1.0"
