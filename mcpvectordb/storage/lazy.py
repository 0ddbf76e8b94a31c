"""numpy, imported when it is first used: a process that needs no numbers starts without it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> object:
            import numpy

            vars(self).update(vars(numpy))  # the next use is as fast as that of a module
            return getattr(numpy, name)

    np = _Numpy()

__all__ = ["np"]
