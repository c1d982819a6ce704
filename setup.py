"""The compiled Langevin step. It is optional: without a C compiler the pure-torch path serves."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "entropy_sgd.optim._kernel",
            ["src/entropy_sgd/optim/kernel.c"],
            depends=[f"src/entropy_sgd/optim/kernel_{part}.h" for part in ("isa", "langevin", "outer")],
            # No contraction: the noise must have the same bits as that of the torch path.
            extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno"],
            optional=True,
        )
    ]
)
