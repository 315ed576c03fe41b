"""The kernels of a fused cell compiled for the processor; `fast.kernels` is their reference.

The sources in this folder are built into one library per instruction set when the package is installed. Without a
compiler there is no library, and the torch kernels run instead.
"""

from archloom.fast.native.kernels import NativeKernels
from archloom.fast.native.loader import available_levels, load

__all__ = ["NativeKernels", "available_levels", "load"]
