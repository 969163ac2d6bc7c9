"""The wheel's tag: it carries a shared library, and no code that depends on the version of Python.

pyproject.toml has everything else. The platform comes from --plat-name, which python.mk gives.
"""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Binary(Distribution):
    """A distribution that belongs to one platform."""

    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple:
        return "py3", "none", super().get_tag()[2]


setup(distclass=Binary, cmdclass={"bdist_wheel": Wheel})
