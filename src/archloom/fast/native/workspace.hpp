// Memory that lasts over many calls, in pages as large as the system has: small ones cost a tenth of a large network.

#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <cstring>

namespace {

// Set fresh memory to zero. The advice must come before the first write.
inline void clear_workspace(void* memory, std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t PAGE = 4096;
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(memory), first = (start + PAGE - 1) / PAGE * PAGE;
    const std::uintptr_t last = (start + bytes) / PAGE * PAGE;
    if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // may fail: only slower
#endif
    std::memset(memory, 0, bytes);
}

}  // namespace
