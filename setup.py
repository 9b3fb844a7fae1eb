"""The compiled part (docs/speed.md): the same C files once per instruction set, as shared libraries.

They know nothing of Python, so that one wheel per platform serves every Python. All are optional: without a compiler
the package is installed without them, unless HF_LRP_NEED_COMPILED is set.
"""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

FOLDER = Path("hf_lrp/relevance/fused")
SOURCES = [str(FOLDER / name) for name in ("linear.c", "gated.c", "residual.c", "norms.c", "attention.c")]
FLAGS = {
    "plain": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma"],
}
WINDOWS = os.name == "nt"


def compiler() -> list[str]:
    """The C compiler: GCC or Clang, whose vectors the files use."""
    found = os.environ.get("CC") or ("gcc" if WINDOWS else sysconfig.get_config_var("CC")) or "cc"
    return [*shlex.split(found), *shlex.split(os.environ.get("ARCHFLAGS", ""))]  # the latter: macOS


def run(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompileError(f"{shlex.join(command)}: {error}") from error


def target() -> str:
    """What the compiler compiles for, such as x86_64-linux-gnu; empty if there is none."""
    try:
        return run([*compiler(), "-dumpmachine"])
    except CompileError:
        return ""


class BuildLibraries(build_ext):
    """Shared libraries beside `hf_lrp/relevance/compiled.py`, which names them in the same way."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + (".dll" if WINDOWS else ".so")

    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-O3", *ext.extra_compile_args, *shlex.split(os.environ.get("CFLAGS", "")), "-shared"]
        if "mingw" in target():  # GCC aligns no stack to more than 16 bytes there, but takes it to be aligned
            flags += ["-static-libgcc", "-Wl,--export-all-symbols", "-Wa,-muse-unaligned-vector-move"]
        else:
            flags += ["-fPIC"]
        run([*compiler(), *flags, *ext.sources, "-o", str(path), "-lm"])


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 on this platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": PlatformWheel},
    ext_modules=[
        Extension(
            f"hf_lrp.relevance._fused_{name}",
            SOURCES,
            depends=[str(FOLDER / "tiles.h")],
            extra_compile_args=flags,
            optional="HF_LRP_NEED_COMPILED" not in os.environ,
        )
        for name, flags in FLAGS.items()
        if not flags or target().startswith(("x86_64", "amd64"))
    ],
)
