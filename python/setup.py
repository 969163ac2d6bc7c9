"""The wheel's tag, and the shared libraries that it carries: no code here depends on the version of Python.

pyproject.toml has everything else. The platform comes from --plat-name, which python.mk gives, and they lie in the package then. Where they do not, as in a source
distribution, the environment variable TENSORCACHE_LIBRARY names libtensorcache.so. libtensorcache_torch.so is taken from beside it, if it is there.
"""

import os
import shutil

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

LIBRARY = "tensorcache/libtensorcache.so"
EXTENSION = "tensorcache/libtensorcache_torch.so"


class Binary(Distribution):
    """A distribution that belongs to one platform."""

    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple:
        return "py3", "none", super().get_tag()[2]


class Build(build_py):
    def run(self) -> None:
        named = os.environ.get("TENSORCACHE_LIBRARY")
        if not named and not os.path.exists(LIBRARY):
            raise SystemExit(
                "tensorcache: the shared library is not part of the sources of the Python package. Install a wheel: of a release, or of `make wheel` in the repository "
                "(Go is needed), at dist/. Or build the library by `make capi`, and set TENSORCACHE_LIBRARY to libtensorcache.so before pip install."
            )
        super().run()
        if named:
            shutil.copyfile(named, os.path.join(self.build_lib, LIBRARY))
            beside = os.path.join(os.path.dirname(named), os.path.basename(EXTENSION))
            if os.path.exists(beside):
                shutil.copyfile(beside, os.path.join(self.build_lib, EXTENSION))


setup(distclass=Binary, cmdclass={"bdist_wheel": Wheel, "build_py": Build})
