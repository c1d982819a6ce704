"""The compiled Langevin step. It is optional: without a C compiler the pure-torch path serves.

The library is loaded through ctypes and uses no Python ABI: its wheel is named for the platform alone,
`py3-none-<platform>`, and one without the library is `py3-none-any`.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class BuildLibrary(build_ext):
    """A plain shared library, `_kernel.so`, whatever the version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Without the suffix of an extension module of CPython."""
        return f"{fullname.replace('.', '/')}.so"

    def build_extension(self, ext: Extension) -> None:
        """Anew: a library that is left over from an earlier build must not pass for this one."""
        Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
        super().build_extension(ext)


class Wheel(bdist_wheel):
    """Named for what has been built."""

    def run(self) -> None:
        """Builds the library first: where it fails, the wheel is one of Python alone."""
        self.run_command("build_ext")
        library = self.get_finalized_command("build_ext")
        if not all(Path(library.get_ext_fullpath(ext.name)).exists() for ext in library.extensions):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """The platform's tag alone, for any Python 3."""
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else ("py3", "none", platform)


setup(
    cmdclass={"bdist_wheel": Wheel, "build_ext": BuildLibrary},
    ext_modules=[
        Extension(
            "entropy_sgd.optim._kernel",
            ["src/entropy_sgd/optim/kernel.c"],
            depends=[str(header) for header in sorted(Path("src/entropy_sgd/optim").glob("kernel*.h"))],
            # No contraction: the noise must have the same bits as that of the torch path.
            extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno"],
            optional=True,
        )
    ],
)
