// 3x3 convolutions of stride 1 with 16 products where the definition has 36, as F(2x2, 3x3) of Lavin & Gray (2016).
//
// A tile of 2x2 results needs 4x4 values. Both the values and the kernel are transformed to 4x4 numbers, multiplied
// entry by entry, summed over channels and transformed back. Every step is the same for all lanes. Transforms only add,
// and halve the kernel, so results are about as exact as sums in another order.

#pragma once

#include "dense.hpp"

namespace {

constexpr Index ENTRIES = 16;               // of a transformed tile
constexpr Index FEWEST_CHANNELS = 8;        // that pay for the transforms
constexpr Index EVEN_BANDS = 2 * Bands::MOST;  // rows of a map whose bands all have an even number of rows

inline bool fits_winograd(const Dense& dense) {
    return dense.kernel == 3 && dense.stride == 1 && dense.in.channels >= FEWEST_CHANNELS
           && dense.out.channels >= FEWEST_CHANNELS && dense.out.height % EVEN_BANDS == 0 && dense.out.width % 2 == 0;
}

inline Index winograd_weights(const Dense& dense) { return ENTRIES * dense.in.channels * dense.out.channels; }

// Floats from one entry of transformed values to the next: at multiples of a page they would compete for the same lines
// of a cache.
inline Index entry_step(Index vectors) { return (vectors + 1) * LANES; }

inline Index winograd_room(const Dense& dense) {
    const Index widest = dense.in.channels > dense.out.channels ? dense.in.channels : dense.out.channels;
    return ENTRIES * (entry_step(TILE_PIXELS * widest) + TILE_PIXELS * TILE_CHANNELS * LANES);
}

// --- kernels: [tiles of result channels][entries][channels read][channels of the tile]

inline void transform_line(const float* from, Index step, float* to, Index to_step) {
    const float first = from[0], middle = from[step], last = from[2 * step];
    to[0] = first;
    to[to_step] = 0.5f * (first + middle + last);
    to[2 * to_step] = 0.5f * (first - middle + last);
    to[3 * to_step] = last;
}

// get(result, channel read, row, column): the kernel as it meets the values.
template <class Get>
inline void pack_winograd(float* to, Index results, Index read, Get get) {
    for (Index first = 0; first < results;) {
        const Index tile = tile_at(first, results);
        for (Index channel = 0; channel < read; ++channel)
            for (Index result = 0; result < tile; ++result) {
                float kernel[9], rows[12], entries[ENTRIES];
                for (Index place = 0; place < 9; ++place) kernel[place] = get(first + result, channel, place / 3, place % 3);
                for (Index column = 0; column < 3; ++column) transform_line(kernel + column, 3, rows + column, 3);
                for (Index row = 0; row < 4; ++row) transform_line(rows + 3 * row, 1, entries + 4 * row, 1);
                for (Index entry = 0; entry < ENTRIES; ++entry)
                    to[(entry * read + channel) * tile + result] = entries[entry];
            }
        to += ENTRIES * read * tile;
        first += tile;
    }
}

inline void pack_winograd_forward(const Dense& dense, const Weights& weights, float* packed) {
    pack_winograd(packed, dense.out.channels, dense.in.channels, [&](Index out, Index in, Index row, Index column) {
        return weights.at(out, in, row, column);
    });
}

inline void pack_winograd_backward(const Dense& dense, const Weights& weights, float* packed) {
    pack_winograd(packed, dense.in.channels, dense.out.channels, [&](Index in, Index out, Index row, Index column) {
        return weights.at(out, in, 2 - row, 2 - column);
    });
}

// --- two rows of results

struct FourRows {  // from the column before the first on; null beyond the border
    const float* start[4];
    Index pixel;
};

inline FourRows four_rows(const Map& map, const float* values, Index number) {
    FourRows rows{{}, map.pixel()};
    const Index y = number % map.height;
    for (Index step = 0; step < 4; ++step)
        if (y + step - 1 >= 0 && y + step - 1 < map.height)
            rows.start[step] = map.row(values, number + step - 1) - map.pixel();
    return rows;
}

template <int P, bool RECTIFY>
ALWAYS void transform_values(const FourRows& rows, Index x, Index channels, float* to) {
    constexpr int COLUMNS = 2 * P + 2;
    const Index step = entry_step(P * channels);
    for (Index channel = 0; channel < channels; ++channel) {
        Vector sums[4][COLUMNS];
#pragma GCC unroll 16
        for (int column = 0; column < COLUMNS; ++column) {
            Vector value[4];
#pragma GCC unroll 4
            for (int row = 0; row < 4; ++row) {
                const float* start = rows.start[row];
                value[row] = start == nullptr ? Vector{} : load(start + (x + column) * rows.pixel + channel * LANES);
                if (RECTIFY) value[row] = rectify(value[row]);
            }
            sums[0][column] = value[0] - value[2];
            sums[1][column] = value[1] + value[2];
            sums[2][column] = value[2] - value[1];
            sums[3][column] = value[1] - value[3];
        }
#pragma GCC unroll 4
        for (int row = 0; row < 4; ++row)
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) {
                const Vector* of = sums[row] + 2 * p;
                const auto put = [&](int column, Vector value) {
                    store(to + (row * 4 + column) * step + (channel * P + p) * LANES, value);
                };
                put(0, of[0] - of[2]);
                put(1, of[1] + of[2]);
                put(2, of[2] - of[1]);
                put(3, of[1] - of[3]);
            }
    }
}

template <int P, int C>
ALWAYS void multiply_entries(const float* values, Index channels, const float* weights, float* products) {
    for (Index entry = 0; entry < ENTRIES; ++entry, values += LANES) {
        Vector sums[P][C] = {};
        for (Index channel = 0; channel < channels; ++channel, values += P * LANES, weights += C) {
            Vector value[P];
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) value[p] = load(values + p * LANES);
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) {
                const Vector factor = splat(weights[c]);
#pragma GCC unroll 4
                for (int p = 0; p < P; ++p) sums[p][c] += value[p] * factor;
            }
        }
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) store(products + ((entry * P + p) * C + c) * LANES, sums[p][c]);
    }
}

// Call put(row, pixel, channel, value) for the results of some tiles.
template <int P, int C, class Put>
ALWAYS void transform_back(const float* products, Index x, Index channel, const Put& put) {
    for (int p = 0; p < P; ++p)
        for (int c = 0; c < C; ++c) {
            Vector upper[4], lower[4];
#pragma GCC unroll 4
            for (int column = 0; column < 4; ++column) {
                const auto entry = [&](int row) { return load(products + (((row * 4 + column) * P + p) * C + c) * LANES); };
                const Vector sum = entry(1) + entry(2), difference = entry(1) - entry(2);
                upper[column] = entry(0) + sum;
                lower[column] = difference - entry(3);
            }
            const Index first = x + 2 * p;
            put(0, first, channel + c, upper[0] + upper[1] + upper[2]);
            put(0, first + 1, channel + c, upper[1] - upper[2] - upper[3]);
            put(1, first, channel + c, lower[0] + lower[1] + lower[2]);
            put(1, first + 1, channel + c, lower[1] - lower[2] - lower[3]);
        }
}

template <int P, bool RECTIFY, class Put>
ALWAYS void winograd_tiles(
    const FourRows& rows, Index x, Index channels, Index results, const float* weights, float* room, const Put& put
) {
    float* products = room + ENTRIES * entry_step(P * channels);
    transform_values<P, RECTIFY>(rows, x, channels, room);
    for (Index channel = 0; channel < results;) {
        const Index tile = tile_at(channel, results);
        if (tile == TILE_CHANNELS) {
            multiply_entries<P, TILE_CHANNELS>(room, channels, weights, products);
            transform_back<P, TILE_CHANNELS>(products, x, channel, put);
        } else {
            multiply_entries<P, 1>(room, channels, weights, products);
            transform_back<P, 1>(products, x, channel, put);
        }
        weights += ENTRIES * channels * tile;
        channel += tile;
    }
}

template <bool RECTIFY, class Put>
inline void winograd_rows(
    const FourRows& rows, Index width, Index channels, Index results, const float* weights, float* room, const Put& put
) {
    Index x = 0;
    for (; x + 2 * TILE_PIXELS <= width; x += 2 * TILE_PIXELS)
        winograd_tiles<TILE_PIXELS, RECTIFY>(rows, x, channels, results, weights, room, put);
    for (; x < width; x += 2) winograd_tiles<1, RECTIFY>(rows, x, channels, results, weights, room, put);
}

// Rows `number` and the one after it; room: `winograd_room` floats.
inline void winograd_forward(
    const Dense& dense, const float* in, const float* packed, float* out, Index number, float* room
) {
    float* to[2] = {dense.out.row(out, number), dense.out.row(out, number + 1)};
    const Index pixel = dense.out.pixel();
    const auto put = [&](Index row, Index x, Index channel, Vector value) {
        store(to[row] + x * pixel + channel * LANES, value);
    };
    const FourRows rows = four_rows(dense.in, in, number);
    const Index width = dense.out.width, read = dense.in.channels, results = dense.out.channels;
    dense.rectified ? winograd_rows<true>(rows, width, read, results, packed, room, put)
                    : winograd_rows<false>(rows, width, read, results, packed, room, put);
}

template <bool RECTIFIED, bool ADD>
void winograd_backward_rows(
    const Dense& dense, const float* gradient, const float* packed, const float* in, float* by_in, Index number,
    float* room
) {
    const float* values[2] = {dense.in.row(in, number), dense.in.row(in, number + 1)};
    float* to[2] = {dense.in.row(by_in, number), dense.in.row(by_in, number + 1)};
    const Index pixel = dense.in.pixel();
    const auto put = [&](Index row, Index x, Index channel, Vector value) {
        const Index place = x * pixel + channel * LANES;
        if (RECTIFIED) value = where_positive(load(values[row] + place), value);
        store(to[row] + place, ADD ? load(to[row] + place) + value : value);
    };
    winograd_rows<false>(
        four_rows(dense.out, gradient, number), dense.in.width, dense.out.channels, dense.in.channels, packed, room, put
    );
}

using WinogradBackward = void (*)(const Dense&, const float*, const float*, const float*, float*, Index, float*);

inline WinogradBackward winograd_backward_of(bool rectified, bool add) {
    if (rectified) return add ? winograd_backward_rows<true, true> : winograd_backward_rows<true, false>;
    return add ? winograd_backward_rows<false, true> : winograd_backward_rows<false, false>;
}

}  // namespace
