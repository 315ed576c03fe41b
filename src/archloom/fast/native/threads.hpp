// Distribute work over torch's own threads: a second pool would compete with it for the cores.

#pragma once

#include <atomic>

#include "vectors.hpp"

namespace {

using StartThreads = void (*)(void (*)(void*), void*, unsigned, unsigned);  // GOMP_parallel
using ThreadNumber = int (*)();                                             // omp_get_thread_num

StartThreads start_threads = nullptr;
ThreadNumber thread_number = nullptr;

constexpr Index MOST_THREADS = 256;
constexpr Index WORTH_THREADS = 65536;  // floats; smaller work is done before a second thread has started

// How many threads a call should use for that many tasks, over that many floats in all.
inline int thread_count(Index threads, Index tasks, Index floats) {
    if (start_threads == nullptr || thread_number == nullptr || floats < WORTH_THREADS) return 1;
    Index count = threads < tasks ? threads : tasks;
    count = count < MOST_THREADS ? count : MOST_THREADS;
    return count > 1 ? int(count) : 1;
}

template <class Body>
struct Shares {
    Body* body;
    Index tasks;
    int count;
    std::atomic<bool> taken[MOST_THREADS];

    void run(int share) {
        if (!taken[share].exchange(true)) (*body)(share * tasks / count, (share + 1) * tasks / count, share);
    }

    // A runtime may start fewer threads than requested: each thread does its own share first, then the remaining ones.
    static void work(void* shares) {
        auto& self = *static_cast<Shares*>(shares);
        const int own = thread_number();
        for (int step = 0; step < self.count; ++step) self.run((own + step) % self.count);
    }
};

// Call body(first task, last task + 1, number of the share), all shares in parallel.
template <class Body>
void share(Index tasks, int threads, Body body) {
    if (threads <= 1) {
        body(Index(0), tasks, 0);
        return;
    }
    Shares<Body> shares{&body, tasks, threads, {}};
    start_threads(&Shares<Body>::work, &shares, unsigned(threads), 0);
}

}  // namespace
