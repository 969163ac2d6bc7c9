"""What a table, or a cache of several, becomes when it is sent to another process."""

from __future__ import annotations

from typing import Any, NoReturn

from .errors import Error


class Elsewhere:
    """Stands for a table or a cache of another process, ``what``. It can be carried about, so that loaders can start workers, and any use of it is an ``Error``."""

    def __init__(self, what: str, pid: int) -> None:
        self.__dict__.update(_what=what, _pid=pid)

    def _refuse(self) -> NoReturn:
        raise Error(
            f"tensorcache: {self._what} is open in process {self._pid} and cannot be read in another: open it there, or read it in "
            "the process that opened it (PyG loaders: filter_per_worker=False)"
        )

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __getitem__(self, ids: object) -> object:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __contains__(self, name: object) -> bool:
        self._refuse()

    def __reduce__(self) -> tuple[Any, ...]:
        return Elsewhere, (self._what, self._pid)

    def __repr__(self) -> str:
        return f"<tensorcache: {self._what} of process {self._pid}>"
