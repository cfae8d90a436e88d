"""The Python that ran, as a report names it: how it was built changes CPU by a third."""

import platform
import sysconfig

_PGO, _LTO = "--enable-optimizations", "--with-lto"


def described() -> str:
    """Return version, machine and build of this interpreter, which is the measured servers' as well."""
    build = built(sysconfig.get_config_var("CONFIG_ARGS"), platform.python_compiler())
    return f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, {build}"


def built(config_args: str | None, compiler: str) -> str:
    """Return how an interpreter was built, from the arguments of its ``configure`` and its compiler's name.

    PGO: guided by a profile (``--enable-optimizations``). LTO: optimised at link time.
    """
    if config_args is None:  # nobody ran configure: Windows, and some builds that were moved
        return f"built by {compiler}, optimisations unknown"
    given = {word.strip("'\"") for word in config_args.split()}
    pgo = "with PGO" if _PGO in given else "without PGO"
    lto = any(word == _LTO or (word.startswith(f"{_LTO}=") and word != f"{_LTO}=no") for word in given)
    return f"built {pgo} and {'with' if lto else 'without'} LTO by {compiler}"
