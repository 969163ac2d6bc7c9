"""The wheel's tag: it carries a shared library, and no code that depends on the version of Python.

pyproject.toml has everything else. The platform comes from --plat-name, which the Makefile gives.
"""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"bdist_wheel": Wheel})
