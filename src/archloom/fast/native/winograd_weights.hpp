// Gradients of the weights of 3x3 convolutions with 16 products where the definition has 36: the adjoint of winograd.hpp.
//
// The values of a tile are transformed as in the forward pass, its 2x2 gradients to 4x4 numbers, too. Their products are
// summed over tiles and images entry by entry, and the sums are transformed to a kernel once, in the end. A lane of the
// values is an image and a lane of the gradients a channel of the results, so sums over images need no other sum.

#pragma once

#include "winograd.hpp"

namespace {

constexpr Index WEIGHT_PARTS = 4;  // of the rows, each with sums of its own: their order is the same for any threads
template <int N>
constexpr int READ_AT_ONCE = LANES == 16 ? 16 / N : 8 / N;  // channels whose sums, of N vectors each, are in registers

inline Index blocks_of(Index channels) { return (channels + LANES - 1) / LANES; }  // vectors, the last one perhaps part

// Few channels of results would leave lanes empty, which cost more than the products that are saved.
inline bool fits_winograd_weights(const Dense& dense) {
    return fits_winograd(dense) && 3 * blocks_of(dense.out.channels) * LANES <= 4 * dense.out.channels;
}

struct WinogradWeights {
    const Dense& dense;
    const float *in, *gradient;
    Index groups;

    Index blocks() const { return blocks_of(dense.out.channels); }
    Index pairs() const { return dense.out.rows(groups) / 2; }  // of rows
    Index parts() const { return pairs() < WEIGHT_PARTS ? pairs() : WEIGHT_PARTS; }
    Index first_pair(Index part) const { return part * pairs() / parts(); }

    Index values_room() const { return ENTRIES * entry_step(TILE_PIXELS * dense.in.channels); }
    Index gradients_room() const { return ENTRIES * entry_step(TILE_PIXELS * LANES * blocks()); }
    Index room() const { return values_room() + gradients_room(); }  // floats of a thread
    Index sums() const { return ENTRIES * dense.in.channels * blocks() * LANES; }  // floats of a part
};

#if defined(__clang__)
template <Index FIRST>
ALWAYS Vector interleave(Vector even, Vector odd) {
    Vector result;
    for (Index lane = 0; lane < LANES; ++lane) result[lane] = (lane % 2 == 0 ? even : odd)[FIRST + lane / 2];
    return result;
}
#else
typedef std::int32_t Places __attribute__((vector_size(BYTES)));

template <Index FIRST>
ALWAYS Vector interleave(Vector even, Vector odd) {
    Places from;
    for (Index lane = 0; lane < LANES; ++lane) from[lane] = std::int32_t(FIRST + lane / 2 + (lane % 2) * LANES);
    return __builtin_shuffle(even, odd, from);
}
#endif

// Turn vectors over images into vectors over channels: interleaving halves as often as halves exist transposes.
ALWAYS void transpose(Vector (&rows)[LANES]) {
    for (Index size = 1; size < LANES; size *= 2) {
        Vector next[LANES];
#pragma GCC unroll 8
        for (Index row = 0; row < LANES / 2; ++row) {
            next[2 * row] = interleave<0>(rows[row], rows[row + LANES / 2]);
            next[2 * row + 1] = interleave<LANES / 2>(rows[row], rows[row + LANES / 2]);
        }
#pragma GCC unroll 16
        for (Index row = 0; row < LANES; ++row) rows[row] = next[row];
    }
}

// --- gradients: [entries][tiles, images][blocks of channels]

// A column of a tile: its two gradients to four numbers.
ALWAYS void transform_gradient_line(Vector first, Vector second, Vector (&to)[4]) {
    to[0] = first;
    to[1] = first + second;
    to[2] = first - second;
    to[3] = -second;
}

ALWAYS void read_gradients(const float* pixel, Index channels, Vector (&to)[LANES]) {
#pragma GCC unroll 16
    for (Index channel = 0; channel < LANES; ++channel)
        to[channel] = channel < channels ? load(pixel + channel * LANES) : Vector{};
    transpose(to);
}

template <int P>
inline void transform_gradients(const WinogradWeights& of, Index number, Index x, float* to) {
    const Map& out = of.dense.out;
    const Index blocks = of.blocks(), step = entry_step(P * LANES * blocks);
    const float* rows[2] = {out.row(of.gradient, number), out.row(of.gradient, number + 1)};
    for (Index tile = 0; tile < P; ++tile)
        for (Index block = 0; block < blocks; ++block) {
            const Index place = (x + 2 * tile) * out.pixel() + block * LANES * LANES;
            const Index channels = out.channels - block * LANES;
            Vector given[2][2][LANES];
            for (Index row = 0; row < 2; ++row)
                for (Index column = 0; column < 2; ++column)
                    read_gradients(rows[row] + place + column * out.pixel(), channels, given[row][column]);
            for (Index image = 0; image < LANES; ++image) {
                float* entry = to + ((tile * LANES + image) * blocks + block) * LANES;
                Vector left[4], right[4], line[4];
                transform_gradient_line(given[0][0][image], given[1][0][image], left);
                transform_gradient_line(given[0][1][image], given[1][1][image], right);
#pragma GCC unroll 4
                for (Index row = 0; row < 4; ++row) {
                    transform_gradient_line(left[row], right[row], line);
#pragma GCC unroll 4
                    for (Index column = 0; column < 4; ++column) store(entry + (4 * row + column) * step, line[column]);
                }
            }
        }
}

// --- sums of products: [entries][channels read][blocks of channels]

// Of I channels read and N blocks, over all tiles and images of a call.
template <int I, int N>
ALWAYS void add_products(const float* values, Index images, const float* gradients, Index step, float* sums) {
    Vector kept[I][N];
#pragma GCC unroll 16
    for (int i = 0; i < I; ++i)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) kept[i][n] = load(sums + i * step + n * LANES);
    for (Index image = 0; image < images; ++image, gradients += step) {
        Vector given[N];
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) given[n] = load(gradients + n * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < I; ++i) {
            const Vector value = splat(values[i * images + image]);
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) kept[i][n] += value * given[n];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < I; ++i)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) store(sums + i * step + n * LANES, kept[i][n]);
}

template <int N>
ALWAYS void add_block_products(
    const float* values, Index channels, Index images, const float* gradients, Index step, float* sums
) {
    Index channel = 0;
    for (; channel + READ_AT_ONCE<N> <= channels; channel += READ_AT_ONCE<N>)
        add_products<READ_AT_ONCE<N>, N>(values + channel * images, images, gradients, step, sums + channel * step);
    for (; channel + 4 <= channels; channel += 4)
        add_products<4, N>(values + channel * images, images, gradients, step, sums + channel * step);
    for (; channel < channels; ++channel)
        add_products<1, N>(values + channel * images, images, gradients, step, sums + channel * step);
}

inline void add_entry_products(
    const float* values, Index channels, Index images, const float* gradients, Index blocks, float* sums
) {
    const Index step = blocks * LANES;
    Index block = 0;
    for (; block + 2 <= blocks; block += 2)
        add_block_products<2>(values, channels, images, gradients + block * LANES, step, sums + block * LANES);
    if (block < blocks)
        add_block_products<1>(values, channels, images, gradients + block * LANES, step, sums + block * LANES);
}

template <int P, bool RECTIFY>
inline void add_tiles(const WinogradWeights& of, const FourRows& rows, Index number, Index x, float* room, float* sums) {
    const Index channels = of.dense.in.channels, images = P * LANES, blocks = of.blocks();
    float* gradients = room + of.values_room();
    transform_values<P, RECTIFY>(rows, x, channels, room);
    transform_gradients<P>(of, number, x, gradients);
    for (Index entry = 0; entry < ENTRIES; ++entry)
        add_entry_products(
            room + entry * entry_step(P * channels), channels, images, gradients + entry * entry_step(images * blocks),
            blocks, sums + entry * channels * blocks * LANES
        );
}

// The sums of a part; room: `room` floats.
template <bool RECTIFY>
inline void add_part(const WinogradWeights& of, Index part, float* room, float* sums) {
    std::memset(sums, 0, std::size_t(of.sums()) * sizeof(float));
    for (Index pair = of.first_pair(part); pair < of.first_pair(part + 1); ++pair) {
        const FourRows rows = four_rows(of.dense.in, of.in, 2 * pair);
        Index x = 0;
        for (; x + 2 * TILE_PIXELS <= of.dense.out.width; x += 2 * TILE_PIXELS)
            add_tiles<TILE_PIXELS, RECTIFY>(of, rows, 2 * pair, x, room, sums);
        for (; x < of.dense.out.width; x += 2) add_tiles<1, RECTIFY>(of, rows, 2 * pair, x, room, sums);
    }
}

inline void transform_sums_line(const Vector* from, Index step, Vector* to, Index to_step) {
    const Vector half = splat(0.5f);
    const Vector sum = half * (from[step] + from[2 * step]), difference = half * (from[step] - from[2 * step]);
    to[0] = from[0] + sum;
    to[to_step] = difference;
    to[2 * to_step] = sum + from[3 * step];
}

// Add what all parts have for a channel that is read to the sums of the first one.
inline void join_parts(const WinogradWeights& of, float* sums, Index channel) {
    const Index line = of.blocks() * LANES, step = of.dense.in.channels * line;
    for (Index entry = 0; entry < ENTRIES; ++entry) {
        float* to = sums + entry * step + channel * line;
        for (Index part = 1; part < of.parts(); ++part)
            for (Index place = 0; place < line; place += LANES)
                store(to + place, load(to + place) + load(to + part * of.sums() + place));
    }
}

// Write the kernels of a channel that is read.
inline void finish_kernels(const WinogradWeights& of, float* sums, Index channel, const Weights& result) {
    join_parts(of, sums, channel);
    const Index line = of.blocks() * LANES, step = of.dense.in.channels * line;
    for (Index block = 0; block < line; block += LANES) {
        Vector entries[ENTRIES], rows[12], kernel[9];
        for (Index entry = 0; entry < ENTRIES; ++entry)
            entries[entry] = load(sums + entry * step + channel * line + block);
        for (Index column = 0; column < 4; ++column) transform_sums_line(entries + column, 4, rows + column, 4);
        for (Index row = 0; row < 3; ++row) transform_sums_line(rows + 4 * row, 1, kernel + 3 * row, 1);
        for (Index out = block; out < block + LANES && out < of.dense.out.channels; ++out)
            for (Index place = 0; place < 9; ++place)
                result.at(out, channel, place / 3, place % 3) = kernel[place][out - block];
    }
}

// rooms: `room` floats for every thread; sums: `sums` floats for every part.
inline void winograd_weights_gradient(
    const WinogradWeights& of, float* rooms, float* sums, const Weights& result, Index threads
) {
    const Dense& dense = of.dense;
    const Index floats = dense.out.rows(of.groups) * dense.out.pitch();
    share(of.parts(), thread_count(threads, of.parts(), floats), [&](Index first, Index last, int number) {
        float* room = rooms + number * of.room();
        for (Index part = first; part < last; ++part)
            dense.rectified ? add_part<true>(of, part, room, sums + part * of.sums())
                            : add_part<false>(of, part, room, sums + part * of.sums());
    });
    const Index channels = dense.in.channels;
    share(channels, thread_count(threads, channels, of.parts() * of.sums()), [&](Index first, Index last, int) {
        for (Index channel = first; channel < last; ++channel) finish_kernels(of, sums, channel, result);
    });
}

}  // namespace
