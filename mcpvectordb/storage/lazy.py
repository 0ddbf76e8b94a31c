"""numpy, imported when it is first used: a process that needs no numbers starts without it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> object:
            import numpy

            found = getattr(numpy, name)
            setattr(self, name, found)  # the next use is as fast as that of a module
            return found

    np = _Numpy()

__all__ = ["np"]
