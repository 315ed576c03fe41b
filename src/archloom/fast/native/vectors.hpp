// Vectors of the width of the instruction set, and loops of them over images.
//
// An image is [pixels][channels] with channels adjacent. Without gaps between pixels it is one flat array, in which the
// values of a channel repeat with a period. Tables are written for a whole period once; then any number of channels
// fills whole vectors.

#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

using Index = std::int64_t;

#if defined(__AVX512F__)
constexpr Index BYTES = 64;
#elif defined(__AVX2__)
constexpr Index BYTES = 32;
#else
constexpr Index BYTES = 16;
#endif
constexpr Index LANES = BYTES / Index(sizeof(float));

typedef float Vector __attribute__((vector_size(BYTES)));
typedef float Anywhere __attribute__((vector_size(BYTES), aligned(4), may_alias));  // in memory, aligned or not

#define ALWAYS inline __attribute__((always_inline))

ALWAYS Vector load(const float* from) { return *reinterpret_cast<const Anywhere*>(from); }
ALWAYS void store(float* to, Vector value) { *reinterpret_cast<Anywhere*>(to) = value; }
ALWAYS Vector splat(float value) {  // a sum with zeros would be an addition of its own
#if defined(__AVX512F__)
    return Vector(_mm512_set1_ps(value));
#elif defined(__AVX2__)
    return Vector(_mm256_set1_ps(value));
#else
    return Vector{value, value, value, value};
#endif
}

ALWAYS Vector load_part(const float* from, Index count) {
    float lanes[LANES] = {};
    std::memcpy(lanes, from, std::size_t(count) * sizeof(float));
    return load(lanes);
}

ALWAYS void store_part(float* to, Vector value, Index count) {
    float lanes[LANES];
    store(lanes, value);
    std::memcpy(to, lanes, std::size_t(count) * sizeof(float));
}

inline Index round_up(Index value, Index step) { return (value + step - 1) / step * step; }

// Memory for the duration of a call, aligned for vectors. It is allocated before threads start, because it may throw.
template <class T>
class Buffer {
  public:
    explicit Buffer(Index count)
        : data_(static_cast<T*>(::operator new(std::size_t(count > 0 ? count : 1) * sizeof(T), std::align_val_t(64)))),
          count_(count) {}
    ~Buffer() { ::operator delete(data_, std::align_val_t(64)); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* at(Index position) const { return data_ + position; }
    T& operator[](Index position) const { return data_[position]; }
    void clear() const { std::memset(static_cast<void*>(data_), 0, std::size_t(count_) * sizeof(T)); }

  private:
    T* data_;
    Index count_;
};

// --- where things lie

struct Image {
    float* data;
    Index pixel;  // floats from one pixel to the next: more than the channels in a slice of a wider image
};

// How pixels are divided: into blocks that fit into the first cache, and blocks into chunks for threads. Both depend on
// the shape alone: sums have the same order for any number of threads.
struct Cut {
    Index pixels, channels;
    Index period;  // floats after which a channel and a vector start at the same place again
    Index block, blocks, chunks;

    Cut(Index pixels_, Index channels_) : pixels(pixels_), channels(channels_) {
        period = std::lcm(channels, LANES);
        while (period < 3 * LANES) period *= 2;  // several independent sums hide the latency of each
        block = (BLOCK > period ? BLOCK / period : 1) * (period / channels);
        blocks = (pixels + block - 1) / block;
        chunks = blocks < CHUNKS ? blocks : CHUNKS;
    }

    Index floats() const { return block * channels; }
    Index first_block(Index chunk) const { return chunk * blocks / chunks; }
    Index first(Index number) const { return number * block; }
    Index count(Index number) const { return pixels - first(number) < block ? pixels - first(number) : block; }

    static constexpr Index BLOCK = 4096;
    static constexpr Index CHUNKS = 64;
};

// Repeat one value per channel for a whole period.
inline void repeat(float* table, const float* values, Index channels, Index period) {
    for (Index start = 0; start < period; start += channels)
        std::memcpy(table + start, values, std::size_t(channels) * sizeof(float));
}

// --- slices of wider images

template <Index FIXED, class Each>
ALWAYS void each_pixel_of(Index pixels, Index channels, Each each) {
    const Index count = FIXED ? FIXED : channels;
    for (Index pixel = 0; pixel < pixels; ++pixel) each(pixel, count);
}

// Channel counts known to the compiler become whole vectors instead of loops.
template <class Each>
ALWAYS void each_pixel(Index pixels, Index channels, Each each) {
    switch (channels) {
        case 4: return each_pixel_of<4>(pixels, channels, each);
        case 8: return each_pixel_of<8>(pixels, channels, each);
        case 16: return each_pixel_of<16>(pixels, channels, each);
        case 32: return each_pixel_of<32>(pixels, channels, each);
        case 64: return each_pixel_of<64>(pixels, channels, each);
        default: return each_pixel_of<0>(pixels, channels, each);
    }
}

inline void copy_pixels(
    float* __restrict to, Index to_pixel, const float* __restrict from, Index from_pixel, Index pixels, Index channels
) {
    each_pixel(pixels, channels, [=](Index pixel, Index count) {
        for (Index channel = 0; channel < count; ++channel)
            to[pixel * to_pixel + channel] = from[pixel * from_pixel + channel];
    });
}

inline void add_pixels(
    float* __restrict to, Index to_pixel, const float* __restrict from, Index from_pixel, Index pixels, Index channels
) {
    each_pixel(pixels, channels, [=](Index pixel, Index count) {
        for (Index channel = 0; channel < count; ++channel)
            to[pixel * to_pixel + channel] += from[pixel * from_pixel + channel];
    });
}

// Some pixels as a flat array: in place, or copied.
inline const float* flat(const Image& image, Index first, Index pixels, Index channels, float* copy) {
    const float* from = image.data + first * image.pixel;
    if (image.pixel == channels) return from;
    copy_pixels(copy, channels, from, image.pixel, pixels, channels);
    return copy;
}

inline void put(const Image& image, Index first, const float* values, Index pixels, Index channels, bool add) {
    float* to = image.data + first * image.pixel;
    if (image.pixel == channels) {  // one long pixel
        channels *= pixels;
        pixels = 1;
    }
    if (add)
        add_pixels(to, image.pixel, values, channels, pixels, channels);
    else
        copy_pixels(to, image.pixel, values, channels, pixels, channels);
}

// --- sweeps over flat arrays

struct Whole {  // a full vector of every array
    Index position;
    ALWAYS Vector get(const float* array) const { return load(array + position); }
    ALWAYS void put(float* array, Vector value) const { store(array + position, value); }
    ALWAYS Vector keep(Vector value) const { return value; }
};

struct Part {  // what is left at the end
    Index position, count;
    ALWAYS Vector get(const float* array) const { return load_part(array + position, count); }
    ALWAYS void put(float* array, Vector value) const { store_part(array + position, value, count); }
    ALWAYS Vector keep(Vector value) const {  // nothing beyond the end, for sums
        float lanes[LANES];
        store(lanes, value);
        return load_part(lanes, count);
    }
};

template <int TABLES>
struct Tables {
    const float* of[TABLES > 0 ? TABLES : 1];
};

template <int TABLES>
ALWAYS void look_up(Vector* entries, const Tables<TABLES>& tables, Index phase) {
    for (int table = 0; table < TABLES; ++table) entries[table] = load(tables.of[table] + phase);
}

// Call body(place, table entries there, sums there) from start to end; it adds to sums[sum * period + phase].
// VECTORS: of a period, where few enough for tables and sums to stay in registers; else 0.
template <int VECTORS, int TABLES, int SUMS, class Body>
ALWAYS void sweep_of(const Tables<TABLES>& tables, Index period, float* sums, Index floats, Body body) {
    constexpr int ENTRIES = TABLES > 0 ? TABLES : 1, TOTALS = SUMS > 0 ? SUMS : 1;
    Index position = 0, phase = 0;
    if constexpr (VECTORS > 0) {
        Vector entries[VECTORS][ENTRIES], totals[VECTORS][TOTALS] = {};
        for (int vector = 0; vector < VECTORS; ++vector) look_up(entries[vector], tables, vector * LANES);
        for (; position + VECTORS * LANES <= floats; position += VECTORS * LANES)
#pragma GCC unroll 4
            for (int vector = 0; vector < VECTORS; ++vector)
                body(Whole{position + vector * LANES}, entries[vector], totals[vector]);
        for (int vector = 0; vector < VECTORS; ++vector)
            for (int sum = 0; sum < SUMS; ++sum) {
                float* total = sums + sum * period + vector * LANES;
                store(total, load(total) + totals[vector][sum]);
            }
    }
    for (; position < floats; position += LANES, phase = phase + LANES == period ? 0 : phase + LANES) {
        Vector entries[ENTRIES], totals[TOTALS] = {};
        look_up(entries, tables, phase);
        if (position + LANES <= floats)
            body(Whole{position}, entries, totals);
        else
            body(Part{position, floats - position}, entries, totals);
        for (int sum = 0; sum < SUMS; ++sum) {
            float* total = sums + sum * period + phase;
            store(total, load(total) + totals[sum]);
        }
    }
}

template <int SUMS = 0, int TABLES, class Body>
inline void sweep(const Tables<TABLES>& tables, Index period, Index floats, Body body, float* sums = nullptr) {
    switch (period / LANES) {
        case 3: return sweep_of<3, TABLES, SUMS>(tables, period, sums, floats, body);
        case 4: return sweep_of<4, TABLES, SUMS>(tables, period, sums, floats, body);
        default: return sweep_of<0, TABLES, SUMS>(tables, period, sums, floats, body);
    }
}

// Sums over a period become sums of the channels, in place.
inline void fold(float* sums, const Cut& cut) {
    for (Index start = cut.channels; start < cut.period; start += cut.channels) {
        const float* __restrict more = sums + start;
        float* __restrict total = sums;
        for (Index channel = 0; channel < cut.channels; ++channel) total[channel] += more[channel];
    }
}

}  // namespace
