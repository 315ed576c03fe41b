// Convolutions of feature maps (see maps.hpp), 1x1 and 3x3, forward and backward.
//
// A tile is a few pixels by a few channels, whose sums stay in registers. Every value that is loaded serves all channels
// of the tile, every weight all its pixels. ReLU before a convolution is applied as values are loaded. A 1x1 convolution
// of stride 2 may read odd pixels instead of even ones (`shift`); beyond the border there are zeros.

#pragma once

#include "maps.hpp"

namespace {

constexpr int TILE_PIXELS = LANES == 16 ? 4 : 2;
constexpr int TILE_CHANNELS = 4;

struct Dense {
    Map in, out;
    Index kernel, stride;
    bool rectified;
    Index shift;

    Index taps() const { return kernel * kernel; }
    Index weights() const { return in.channels * out.channels * taps(); }
};

struct Weights {  // [out][in][rows][columns], in any layout
    float* data;
    const Index* strides;
    float& at(Index out, Index in, Index row, Index column) const {
        return data[out * strides[0] + in * strides[1] + row * strides[2] + column * strides[3]];
    }
};

struct Taps3 {  // the rows that one row of results reads, each with its row of the kernel
    Index pixel;  // floats from one pixel to the next
    const float* start[3];
    Index tap[3];
    int count = 0;
};

// --- packed weights: [tiles of result channels][rows][channels read][columns][channels of the tile]

inline Index tile_at(Index channel, Index channels) {
    return channels - channel >= TILE_CHANNELS ? TILE_CHANNELS : 1;
}

template <class Get>
inline void pack(float* to, Index results, Index read, Index kernel, Get get) {
    for (Index first = 0; first < results; first += tile_at(first, results))
        for (Index row = 0; row < kernel; ++row)
            for (Index channel = 0; channel < read; ++channel)
                for (Index column = 0; column < kernel; ++column)
                    for (Index result = first; result < first + tile_at(first, results); ++result)
                        *to++ = get(result, channel, row, column);
}

// --- one row of results

template <int P, int C, int K, int S, bool RECTIFY>
ALWAYS void dense_tile(const Taps3& rows, Index start, Index channels, const float* weights, Vector (&sums)[P][C]) {
    constexpr int SPAN = (P - 1) * S + K;
    const Index pixel = rows.pixel;
    for (int row = 0; row < rows.count; ++row) {
        const float* in = rows.start[row] + start * pixel;
        const float* weight = weights + rows.tap[row] * channels * K * C;
        for (Index channel = 0; channel < channels; ++channel, in += LANES, weight += K * C) {
            Vector values[SPAN];
#pragma GCC unroll 16
            for (int place = 0; place < SPAN; ++place) {
                values[place] = load(in + place * pixel);
                if (RECTIFY) values[place] = rectify(values[place]);
            }
#pragma GCC unroll 3
            for (int column = 0; column < K; ++column)
#pragma GCC unroll 4
                for (int result = 0; result < C; ++result) {
                    const Vector factor = splat(weight[column * C + result]);
#pragma GCC unroll 4
                    for (int p = 0; p < P; ++p) sums[p][result] += values[p * S + column] * factor;
                }
        }
    }
}

template <int P, int C, int K, int S, bool RECTIFY, class Put>
ALWAYS void dense_pixels(
    const Taps3& rows, Index x, Index channel, Index channels, const float* weights, const Put& put
) {
    Vector sums[P][C] = {};
    dense_tile<P, C, K, S, RECTIFY>(rows, x * S, channels, weights, sums);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
        for (int result = 0; result < C; ++result) put(x + p, channel + result, sums[p][result]);
}

// Call put(pixel, channel, value) for a row of results.
template <int K, int S, bool RECTIFY, class Put>
inline void dense_row(
    const Taps3& rows, Index width, Index results, Index channels, const float* weights, const Put& put
) {
    for (Index channel = 0; channel < results;) {
        const Index tile = tile_at(channel, results);
        Index x = 0;
        if (tile == TILE_CHANNELS) {
            for (; x + TILE_PIXELS <= width; x += TILE_PIXELS)
                dense_pixels<TILE_PIXELS, TILE_CHANNELS, K, S, RECTIFY>(rows, x, channel, channels, weights, put);
            for (; x < width; ++x)
                dense_pixels<1, TILE_CHANNELS, K, S, RECTIFY>(rows, x, channel, channels, weights, put);
        } else {
            for (; x + TILE_PIXELS <= width; x += TILE_PIXELS)
                dense_pixels<TILE_PIXELS, 1, K, S, RECTIFY>(rows, x, channel, channels, weights, put);
            for (; x < width; ++x) dense_pixels<1, 1, K, S, RECTIFY>(rows, x, channel, channels, weights, put);
        }
        weights += tile * channels * K * K;
        channel += tile;
    }
}

// --- forward

inline Taps3 rows_read(const Dense& dense, const float* in, Index number) {
    Taps3 rows{dense.in.pixel(), {}, {}};
    const Index group = number / dense.out.height, y = number % dense.out.height;
    const Index pad = dense.kernel / 2 - dense.shift;
    for (Index tap = 0; tap < dense.kernel; ++tap) {
        const Index from = y * dense.stride + tap - pad;
        if (from < 0 || from >= dense.in.height) continue;
        rows.start[rows.count] = dense.in.row(in, group * dense.in.height + from) - pad * dense.in.pixel();
        rows.tap[rows.count++] = tap;
    }
    return rows;
}

template <int K, int S, bool RECTIFY>
void dense_forward_row(const Dense& dense, const float* in, const float* packed, float* out, Index number) {
    float* to = dense.out.row(out, number);
    const Index pixel = dense.out.pixel();
    dense_row<K, S, RECTIFY>(
        rows_read(dense, in, number), dense.out.width, dense.out.channels, dense.in.channels, packed,
        [=](Index x, Index channel, Vector value) { store(to + x * pixel + channel * LANES, value); }
    );
}

using ForwardRow = void (*)(const Dense&, const float*, const float*, float*, Index);

inline ForwardRow forward_row_of(const Dense& dense) {
    if (dense.kernel == 1 && dense.stride == 2)
        return dense.rectified ? dense_forward_row<1, 2, true> : dense_forward_row<1, 2, false>;
    if (dense.kernel == 1) return dense.rectified ? dense_forward_row<1, 1, true> : dense_forward_row<1, 1, false>;
    if (dense.stride == 1) return dense.rectified ? dense_forward_row<3, 1, true> : dense_forward_row<3, 1, false>;
    return dense.rectified ? dense_forward_row<3, 2, true> : dense_forward_row<3, 2, false>;
}

inline void pack_forward(const Dense& dense, const Weights& weights, float* packed) {
    pack(packed, dense.out.channels, dense.in.channels, dense.kernel, [&](Index out, Index in, Index row, Index column) {
        return weights.at(out, in, row, column);
    });
}

// --- backward: the gradient of what was read

inline void pack_backward(const Dense& dense, const Weights& weights, float* packed) {
    const Index last = dense.kernel - 1;
    pack(packed, dense.in.channels, dense.out.channels, dense.kernel, [&](Index in, Index out, Index row, Index column) {
        return weights.at(out, in, row, last - column);
    });
}

// Where a convolution has stride 2, its gradient as rows of the width that was read, zero in every second pixel.
inline Map spread_map(const Dense& dense) {
    return {0, 0, dense.out.channels, dense.out.height, dense.in.width, dense.out.channels};
}

inline void spread_columns(const Dense& dense, const float* gradient, float* spread, Index groups, Index threads) {
    const Map wide = spread_map(dense);
    each_row(wide, groups, threads, [&](Index number) {
        float* to = wide.row(spread, number);
        const float* from = dense.out.row(gradient, number);
        std::memset(to - wide.pixel(), 0, std::size_t(wide.pitch()) * sizeof(float));
        for (Index x = 0; x < dense.out.width && 2 * x + dense.shift < wide.width; ++x)
            std::memcpy(
                to + (2 * x + dense.shift) * wide.pixel(), from + x * dense.out.pixel(),
                std::size_t(wide.pixel()) * sizeof(float)
            );
    });
}

// The rows of the gradient that a row of the image gets something from.
inline Taps3 rows_of_gradient(const Dense& dense, const Map& map, const float* gradient, Index number) {
    Taps3 rows{map.pixel(), {}, {}};
    const Index group = number / dense.in.height, y = number % dense.in.height, pad = dense.kernel / 2;
    for (Index tap = 0; tap < dense.kernel; ++tap) {
        const Index reach = y + pad - tap - dense.shift;
        if (reach < 0 || reach % dense.stride != 0 || reach / dense.stride >= map.height) continue;
        rows.start[rows.count] = map.row(gradient, group * map.height + reach / dense.stride) - pad * map.pixel();
        rows.tap[rows.count++] = tap;
    }
    return rows;
}

template <int K, bool RECTIFIED, bool ADD>
void dense_backward_row(
    const Dense& dense, const Map& map, const float* gradient, const float* packed, const float* in, float* by_in,
    Index number
) {
    const float* values = dense.in.row(in, number);
    float* to = dense.in.row(by_in, number);
    const Index pixel = dense.in.pixel();
    dense_row<K, 1, false>(
        rows_of_gradient(dense, map, gradient, number), dense.in.width, dense.in.channels, dense.out.channels, packed,
        [=](Index x, Index channel, Vector value) {
            const Index place = x * pixel + channel * LANES;
            if (RECTIFIED) value = where_positive(load(values + place), value);
            store(to + place, ADD ? load(to + place) + value : value);
        }
    );
}

using BackwardRow =
    void (*)(const Dense&, const Map&, const float*, const float*, const float*, float*, Index);

template <int K>
inline BackwardRow backward_row_of(bool rectified, bool add) {
    if (rectified) return add ? dense_backward_row<K, true, true> : dense_backward_row<K, true, false>;
    return add ? dense_backward_row<K, false, true> : dense_backward_row<K, false, false>;
}

// gradient: of the results, with zeros at both ends of a row; spread: room for a spread map, where the stride is 2.
inline void dense_backward(
    const Dense& dense, const float* gradient, const float* packed, float* spread, const float* in, float* by_in,
    bool add, Index groups, Index threads
) {
    const Map map = dense.stride == 1 ? dense.out : spread_map(dense);
    if (dense.stride != 1) spread_columns(dense, gradient, spread, groups, threads);
    const float* from = dense.stride == 1 ? gradient : spread;
    const BackwardRow run =
        dense.kernel == 1 ? backward_row_of<1>(dense.rectified, add) : backward_row_of<3>(dense.rectified, add);
    each_row(dense.in, groups, threads, [&](Index row) { run(dense, map, from, packed, in, by_in, row); });
}

// --- backward: the gradient of the weights

// Rows are taken in chunks that fit into the second cache with what they are multiplied by. Sums over a chunk are kept
// as vectors until the last.
constexpr Index CHUNK_FLOATS = 131072;

struct WeightSums {
    const Dense& dense;
    const float *in, *gradient;
    Index groups;
    Index chunk, chunks;  // rows of results, and how many such chunks
    float* kept;          // a vector for every weight, where there is more than one chunk

    WeightSums(const Dense& dense_, const float* in_, const float* gradient_, Index groups_, float* kept_)
        : dense(dense_), in(in_), gradient(gradient_), groups(groups_), kept(kept_) {
        chunk = rows_at_once(dense);
        chunks = (dense.out.rows(groups) + chunk - 1) / chunk;
    }

    static Index rows_at_once(const Dense& dense) {
        const Index rows = CHUNK_FLOATS / (dense.out.pitch() + dense.stride * dense.in.pitch());
        return rows > 1 ? rows : 1;
    }
};

// Call body(channel read, column, channel of the results, place among the sums kept), unrolled: sums are registers.
template <int C, int I, int K, class Body>
ALWAYS void each_sum(const Body& body) {
#pragma GCC unroll 4
    for (int i = 0; i < I; ++i)
#pragma GCC unroll 3
        for (int column = 0; column < K; ++column)
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) body(i, column, c, Index(((i * K + column) * C + c) * LANES));
}

// Add a row of pixels. Three neighbours are kept from pixel to pixel, so each value is loaded and rectified once.
template <int C, int I, bool RECTIFY>
ALWAYS void add_weight_row(
    const float* values, Index in_pixel, const float* given, Index out_pixel, Index width, Vector (&sums)[I][3][C]
) {
    const auto read = [=](Index column, int i) __attribute__((always_inline)) {
        const Vector value = load(values + column * in_pixel + i * LANES);
        return RECTIFY ? rectify(value) : value;
    };
    Vector left[I], middle[I];
#pragma GCC unroll 4
    for (int i = 0; i < I; ++i) left[i] = read(0, i), middle[i] = read(1, i);
    for (Index x = 0; x < width; ++x, given += out_pixel) {
        Vector right[I];
#pragma GCC unroll 4
        for (int i = 0; i < I; ++i) right[i] = read(x + 2, i);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            const Vector gradient = load(given + c * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < I; ++i) {
                sums[i][0][c] += left[i] * gradient;
                sums[i][1][c] += middle[i] * gradient;
                sums[i][2][c] += right[i] * gradient;
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < I; ++i) left[i] = middle[i], middle[i] = right[i];
    }
}

template <int C, int I, int K, int S, bool RECTIFY>
void weight_tile(const WeightSums& all, Index number, Index tap, Index out, Index in, float* kept, const Weights& result) {
    const Dense& dense = all.dense;
    Vector sums[I][K][C] = {};
    if (number > 0)
        each_sum<C, I, K>([&](int i, int column, int c, Index place) { sums[i][column][c] = load(kept + place); });
    const Index rows = dense.out.rows(all.groups), first = number * all.chunk;
    const Index last = first + all.chunk < rows ? first + all.chunk : rows;
    const Index in_pixel = dense.in.pixel(), out_pixel = dense.out.pixel(), pad = K / 2 - dense.shift;
    for (Index row = first; row < last; ++row) {
        const Index group = row / dense.out.height, from = row % dense.out.height * S + tap - pad;
        if (from < 0 || from >= dense.in.height) continue;
        const float* values = dense.in.row(all.in, group * dense.in.height + from) - pad * in_pixel + in * LANES;
        const float* given = dense.out.row(all.gradient, row) + out * LANES;
        if constexpr (K == 3 && S == 1 && LANES == 16) {  // fewer registers than 32 would not hold so much
            add_weight_row<C, I, RECTIFY>(values, in_pixel, given, out_pixel, dense.out.width, sums);
            continue;
        }
        for (Index x = 0; x < dense.out.width; ++x, values += S * in_pixel, given += out_pixel) {
            Vector gradients[C];
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) gradients[c] = load(given + c * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < I; ++i)
#pragma GCC unroll 3
                for (int column = 0; column < K; ++column) {
                    Vector value = load(values + column * in_pixel + i * LANES);
                    if (RECTIFY) value = rectify(value);
#pragma GCC unroll 4
                    for (int c = 0; c < C; ++c) sums[i][column][c] += value * gradients[c];
                }
        }
    }
    if (number + 1 < all.chunks)
        each_sum<C, I, K>([&](int i, int column, int c, Index place) { store(kept + place, sums[i][column][c]); });
    else
        each_sum<C, I, K>([&](int i, int column, int c, Index) {
            result.at(out + c, in + i, tap, column) = add_lanes(sums[i][column][c]);
        });
}

constexpr int WEIGHT_OUT = LANES == 16 ? 4 : 2;
template <int K>
constexpr int WEIGHT_IN = K == 1 ? 4 : 2;

// A tile of weights is `C` channels of the results by `I` of the image, along one row of the kernel.
template <int K, int S, bool RECTIFY>
void weight_tiles(const WeightSums& all, Index number, Index tap, Index out, const Weights& result) {
    constexpr int C = WEIGHT_OUT, I = WEIGHT_IN<K>;
    const Index ins = all.dense.in.channels;
    const bool whole = all.dense.out.channels - out >= C;
    const Index width = whole ? C : 1;
    float* kept = all.kept + (out * K + tap * width) * ins * K * LANES;
    for (Index in = 0; in < ins;) {
        const Index step = ins - in >= I ? I : 1;
        if (whole)
            step == I ? weight_tile<C, I, K, S, RECTIFY>(all, number, tap, out, in, kept, result)
                      : weight_tile<C, 1, K, S, RECTIFY>(all, number, tap, out, in, kept, result);
        else
            step == I ? weight_tile<1, I, K, S, RECTIFY>(all, number, tap, out, in, kept, result)
                      : weight_tile<1, 1, K, S, RECTIFY>(all, number, tap, out, in, kept, result);
        kept += step * width * K * LANES;
        in += step;
    }
}

using WeightTiles = void (*)(const WeightSums&, Index, Index, Index, const Weights&);

inline WeightTiles weight_tiles_of(const Dense& dense) {
    if (dense.kernel == 1 && dense.stride == 2)
        return dense.rectified ? weight_tiles<1, 2, true> : weight_tiles<1, 2, false>;
    if (dense.kernel == 1) return dense.rectified ? weight_tiles<1, 1, true> : weight_tiles<1, 1, false>;
    if (dense.stride == 1) return dense.rectified ? weight_tiles<3, 1, true> : weight_tiles<3, 1, false>;
    return dense.rectified ? weight_tiles<3, 2, true> : weight_tiles<3, 2, false>;
}

// kept: a vector for every weight.
inline void dense_weights(
    const Dense& dense, const float* in, const float* gradient, float* kept, const Weights& result, Index groups,
    Index threads
) {
    const WeightSums all(dense, in, gradient, groups, kept);
    const WeightTiles run = weight_tiles_of(dense);
    const Index outs = dense.out.channels, whole = outs / WEIGHT_OUT, tiles = whole + outs % WEIGHT_OUT;
    const Index tasks = tiles * dense.kernel;
    const int count = thread_count(threads, tasks, dense.out.rows(groups) * dense.out.pitch());
    share(tasks, count, [&](Index first, Index last, int) {
        for (Index chunk = 0; chunk < all.chunks; ++chunk)
            for (Index task = first; task < last; ++task) {
                const Index tile = task / dense.kernel;
                const Index out = tile < whole ? tile * WEIGHT_OUT : whole * WEIGHT_OUT + tile - whole;
                run(all, chunk, task % dense.kernel, out, result);
            }
    });
}

}  // namespace
