#include "kernels.hpp"  // compiled with the flags that pyproject.toml has for this file
