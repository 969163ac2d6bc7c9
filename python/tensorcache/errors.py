"""The exceptions of tensorcache.

Every exception of the library is an ``Error`` with the library's own text: what is wrong, the value, and the constraint. Where Python has
an exception for the case (``IndexError`` for row numbers, ``ValueError`` for arguments, ``MemoryError``), the class is that one, too.
Arguments of a wrong type are plain ``TypeError``.
"""

from __future__ import annotations


class Error(Exception):
    """The base class of all exceptions of tensorcache."""


class ArgumentError(Error, ValueError):
    """An argument has a value that the library does not take."""


class RowError(Error, IndexError):
    """Row numbers lie outside the table. The text has the first of them and their count."""


class ClosedError(Error):
    """The cache is closed."""


class FileError(Error, OSError):
    """A file cannot be read, or is not of the format that its name says."""


class DeviceError(Error):
    """A GPU has failed, or there is none, or no driver."""


class OutOfMemoryError(Error, MemoryError):
    """The GPU has no room for what was asked, or the host too little memory that can be page-locked."""


class CancelledError(Error):
    """Loading was interrupted."""


class CorruptError(Error):
    """A row does not decode. This is a fault of memory or of the library. The output is undefined."""


class UnsupportedError(Error, NotImplementedError):
    """The library, or the build of it, does not do this."""


class ForkedError(Error):
    """This process was forked from one that had loaded the library, whose threads did not come along.

    Open the cache in this process before anything loads the library, or start workers by ``spawn``
    (``multiprocessing_context="spawn"`` of a torch DataLoader).
    """


class OwnerError(Error, ConnectionError):
    """The cache is of another process, its owner, which is not there, refuses, or waits for one of its clients."""


class LibraryError(Error, ImportError):
    """The shared library is missing, cannot be loaded, or is of another version than the package."""


class GradientError(Error):
    """Something asked for a gradient. Rows of a cache are constants: no gradient reaches the table."""
