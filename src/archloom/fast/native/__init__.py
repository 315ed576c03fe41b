"""The inner loops of a fused cell compiled for the processor: what they compute is what `kernels.base` says.

The sources beside this file are built into one library per instruction set when the package is installed. Where there
was no compiler there is none of them, and plain torch does the work.
"""

from archloom.fast.native.kernels import NativeKernels
from archloom.fast.native.loader import available_levels, load

__all__ = ["NativeKernels", "available_levels", "load"]
