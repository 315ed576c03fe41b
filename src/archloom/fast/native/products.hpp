// Products of the pixels of images with small matrices: the 1x1 convolutions of several branches in one call.
//
// A matrix has a row of outputs for each input channel. The caller makes sure that rows fill whole vectors.

#pragma once

#include "threads.hpp"

namespace {

struct Branches {
    Index count, pixels, in, out;
    Index image_step;  // floats from one branch's image to the next; 0 where all read the same
};

constexpr Index PIXELS_AT_ONCE = 256;  // inputs and outputs of this many pixels fit into the first caches

// out[pixel][column ..] (+)= in[pixel] * matrix, for R pixels and V vectors of columns: all sums stay in registers.
template <int R, int V>
ALWAYS void product_tile(
    const float* in, Index in_step, const float* matrix, Index columns, float* out, Index out_step, bool add
) {
    Vector sums[R][V];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) sums[r][v] = add ? load(out + r * out_step + v * LANES) : Vector{};
    for (Index row = 0; row < in_step; ++row) {
        Vector weights[V];
        for (int v = 0; v < V; ++v) weights[v] = load(matrix + row * columns + v * LANES);
        for (int r = 0; r < R; ++r) {
            const Vector value = splat(in[r * in_step + row]);
            for (int v = 0; v < V; ++v) sums[r][v] += value * weights[v];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) store(out + r * out_step + v * LANES, sums[r][v]);
}

template <int V>
void product_columns(
    const float* in, const float* matrix, float* out, Index pixels, Index rows, Index columns, bool add
) {
    constexpr int R = LANES == 16 ? (V == 1 ? 12 : 8) : 4;
    Index pixel = 0;
    for (; pixel + R <= pixels; pixel += R)
        product_tile<R, V>(in + pixel * rows, rows, matrix, columns, out + pixel * columns, columns, add);
    for (; pixel < pixels; ++pixel)
        product_tile<1, V>(in + pixel * rows, rows, matrix, columns, out + pixel * columns, columns, add);
}

void product_block(
    const float* in, const float* matrix, float* out, Index pixels, Index rows, Index columns, bool add
) {
    Index column = 0;
    for (; column + 2 * LANES <= columns; column += 2 * LANES)
        product_columns<2>(in, matrix + column, out + column, pixels, rows, columns, add);
    for (; column < columns; column += LANES)
        product_columns<1>(in, matrix + column, out + column, pixels, rows, columns, add);
}

// Multiply each branch's image by its matrix, into [branches][pixels][out] or summed into one image.
void products(
    const float* images, const float* matrices, float* out, const Branches& all, bool into_one, bool add, Index threads
) {
    const Index blocks = (all.pixels + PIXELS_AT_ONCE - 1) / PIXELS_AT_ONCE;
    const int count = thread_count(threads, blocks, all.count * all.pixels * (all.in + all.out));
    share(blocks, count, [&](Index first, Index last, int) {
        for (Index block = first; block < last; ++block) {
            const Index start = block * PIXELS_AT_ONCE;
            const Index pixels = all.pixels - start < PIXELS_AT_ONCE ? all.pixels - start : PIXELS_AT_ONCE;
            for (Index branch = 0; branch < all.count; ++branch) {
                float* to = out + (into_one ? start : branch * all.pixels + start) * all.out;
                product_block(
                    images + branch * all.image_step + start * all.in, matrices + branch * all.in * all.out, to, pixels,
                    all.in, all.out, into_one && (add || branch > 0)
                );
            }
        }
    });
}

// sums[row ..][column ..] = sum over pixels of left[pixel][row] * right[pixel][column], for R rows and V vectors.
template <int R, int V>
ALWAYS void inner_tile(
    const float* left, Index rows, const float* right, Index columns, Index pixels, float* sums
) {
    Vector own[R][V] = {};
    for (Index pixel = 0; pixel < pixels; ++pixel) {
        Vector values[V];
        for (int v = 0; v < V; ++v) values[v] = load(right + pixel * columns + v * LANES);
        for (int r = 0; r < R; ++r) {
            const Vector value = splat(left[pixel * rows + r]);
            for (int v = 0; v < V; ++v) own[r][v] += value * values[v];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) store(sums + r * columns + v * LANES, own[r][v]);
}

template <int V>
void inner_columns(const float* left, Index rows, const float* right, Index columns, Index pixels, float* sums) {
    constexpr int R = LANES == 16 ? (V == 1 ? 16 : 8) : 4;
    Index row = 0;
    for (; row + R <= rows; row += R)
        inner_tile<R, V>(left + row, rows, right, columns, pixels, sums + row * columns);
    for (; row < rows; ++row) inner_tile<1, V>(left + row, rows, right, columns, pixels, sums + row * columns);
}

// left' * right of every branch, [branches][left's channels][right's channels]; `in` is left's, `out` right's channels,
// and `image_step` that of right. Blocks of pixels are summed apart, and then in order.
void inner_products(const float* left, const float* right, float* out, const Branches& all, Index threads) {
    constexpr Index BLOCK_PIXELS = 1024;
    const Index blocks = (all.pixels + BLOCK_PIXELS - 1) / BLOCK_PIXELS, size = all.in * all.out;
    const Buffer<float> parts(all.count * blocks * size);
    const Index floats = all.count * all.pixels * (all.in + all.out);
    share(all.count * blocks, thread_count(threads, all.count * blocks, floats), [&](Index first, Index last, int) {
        for (Index task = first; task < last; ++task) {
            const Index branch = task / blocks, start = task % blocks * BLOCK_PIXELS;
            const Index pixels = all.pixels - start < BLOCK_PIXELS ? all.pixels - start : BLOCK_PIXELS;
            const float* own = left + (branch * all.pixels + start) * all.in;
            const float* other = right + branch * all.image_step + start * all.out;
            float* sums = parts.at(task * size);
            Index column = 0;
            for (; column + 2 * LANES <= all.out; column += 2 * LANES)
                inner_columns<2>(own, all.in, other + column, all.out, pixels, sums + column);
            for (; column < all.out; column += LANES)
                inner_columns<1>(own, all.in, other + column, all.out, pixels, sums + column);
        }
    });
    share(all.count, thread_count(threads, all.count, all.count * blocks * size), [&](Index first, Index last, int) {
        for (Index branch = first; branch < last; ++branch)
            for (Index place = 0; place < size; ++place) {
                double sum = 0;
                for (Index block = 0; block < blocks; ++block) sum += parts[(branch * blocks + block) * size + place];
                out[branch * size + place] = float(sum);
            }
    });
}

}  // namespace
