// The inner loops of depthwise convolutions: a kernel moves over rows, each a flat array of pixels.
//
// Most of a convolution's time is spent here. Loops over columns and tiles have lengths known to the compiler: weights
// and sums stay in registers.

#pragma once

#include "vectors.hpp"

namespace {

struct Walk {
    const float* input;
    Index input_row;  // from what one row reads to what the next reads
    Index tap_row, tap_rows, tap_column;  // from one row of taps to the next, how many, from one column to the next
    const float* weights;
    Index period;
    float* output;
    Index output_row, rows, floats;  // floats: of an output row
    bool add;
};

// TILE vectors of a row, a period apart. The value that one of them reads for a tap is read by another for the tap
// SPACING periods away: it is loaded once for both. Where a period holds several pixels, this holds for every GROUPS-th
// tap only. Without GROUPS the distance of the taps is unknown.
template <int COLUMNS, int SPACING, int GROUPS, int TILE>
ALWAYS void walk_tile(const Walk& walk, const float* input, const float* weights, Vector (&sums)[TILE]) {
    const Index period = walk.period, step = walk.tap_column;
    for (Index row = 0; row < walk.tap_rows; ++row, input += walk.tap_row, weights += COLUMNS * period) {
        Vector weight[COLUMNS];
        for (int column = 0; column < COLUMNS; ++column) weight[column] = load(weights + column * period);
        if constexpr (GROUPS > 0) {
#pragma GCC unroll 4
            for (int group = 0; group < GROUPS && group < COLUMNS; ++group) {
                const int members = (COLUMNS - group + GROUPS - 1) / GROUPS;
#pragma GCC unroll 32
                for (int place = 0; place < TILE + (members - 1) * SPACING; ++place) {
                    const Vector value = load(input + group * step + place * period);
#pragma GCC unroll 8
                    for (int member = 0; member < members; ++member) {
                        const int tile = place - member * SPACING;
                        if (tile >= 0 && tile < TILE) sums[tile] += value * weight[group + member * GROUPS];
                    }
                }
            }
        } else {
#pragma GCC unroll 8
            for (int column = 0; column < COLUMNS; ++column)
#pragma GCC unroll 8
                for (int tile = 0; tile < TILE; ++tile)
                    sums[tile] += load(input + column * step + tile * period) * weight[column];
        }
    }
}

template <int COLUMNS, int SPACING, int GROUPS, int TILE>
ALWAYS Index walk_tiles(const Walk& walk, const float* input, const float* weights, float* output, Index position) {
    const Index last = walk.floats - LANES - (TILE - 1) * walk.period;
    for (; position <= last; position += TILE * walk.period) {
        Vector sums[TILE] = {};
        if (walk.add)
            for (int tile = 0; tile < TILE; ++tile) sums[tile] = load(output + position + tile * walk.period);
        walk_tile<COLUMNS, SPACING, GROUPS, TILE>(walk, input + position, weights, sums);
        for (int tile = 0; tile < TILE; ++tile) store(output + position + tile * walk.period, sums[tile]);
    }
    return position;
}

template <int COLUMNS, int SPACING, int GROUPS>
void walk_rows(const Walk& walk) {
    for (Index row = 0; row < walk.rows; ++row) {
        const float* input = walk.input + row * walk.input_row;
        float* output = walk.output + row * walk.output_row;
        for (Index phase = 0; phase < walk.period && phase < walk.floats; phase += LANES) {
            const float* weights = walk.weights + phase;
            Index position = phase;
            position = walk_tiles<COLUMNS, SPACING, GROUPS, 8>(walk, input, weights, output, position);
            position = walk_tiles<COLUMNS, SPACING, GROUPS, 4>(walk, input, weights, output, position);
            position = walk_tiles<COLUMNS, SPACING, GROUPS, 1>(walk, input, weights, output, position);
            if (position < walk.floats) {  // less than a vector
                const Index count = walk.floats - position;
                Vector sums[1] = {walk.add ? load_part(output + position, count) : Vector{}};
                walk_tile<COLUMNS, SPACING, GROUPS, 1>(walk, input + position, weights, sums);
                store_part(output + position, sums[0], count);
            }
        }
    }
}

template <int COLUMNS>
void walk_over(const Walk& walk) {
    const Index step = walk.tap_column, period = walk.period;
    if constexpr (COLUMNS == 3 || COLUMNS == 5 || COLUMNS == 7)
        if (step == 2 * period) return walk_rows<COLUMNS, 2, 1>(walk);
    if (step == period) return walk_rows<COLUMNS, 1, 1>(walk);
    if (step * 2 == period) return walk_rows<COLUMNS, 1, 2>(walk);
    if constexpr (COLUMNS > 4)
        if (step * 4 == period) return walk_rows<COLUMNS, 1, 4>(walk);
    walk_rows<COLUMNS, 1, 0>(walk);
}

inline void walk_over(const Walk& walk, Index columns) {
    switch (columns) {
        case 1: return walk_over<1>(walk);
        case 2: return walk_over<2>(walk);
        case 3: return walk_over<3>(walk);
        case 4: return walk_over<4>(walk);
        case 5: return walk_over<5>(walk);
        case 7: return walk_over<7>(walk);
    }
}

// --- the gradient by the weights: each tap's sum over rows of gradient * what the tap reads

struct Products {
    const float* input;
    Index input_row, tap_row, tap_column;
    const float* gradient;  // each row followed by zeros
    Index gradient_row, rows, floats, period;
    float* sums;  // [tap rows][columns][period]
};

template <int COLUMNS, int ROWS>
void sum_products(const Products& products) {
    const Index period = products.period, step = products.tap_column;
    for (Index phase = 0; phase < period; phase += LANES) {
        Vector sums[ROWS][COLUMNS] = {};
        for (Index row = 0; row < products.rows; ++row) {
            const float* gradient = products.gradient + row * products.gradient_row;
            const float* input = products.input + row * products.input_row;
            for (Index position = phase; position < products.floats; position += period) {
                const Vector value = load(gradient + position);
                const float* tap = input + position;
#pragma GCC unroll 8
                for (int tap_row = 0; tap_row < ROWS; ++tap_row, tap += products.tap_row)
#pragma GCC unroll 8
                    for (int column = 0; column < COLUMNS; ++column)
                        sums[tap_row][column] += load(tap + column * step) * value;
            }
        }
        for (int tap = 0; tap < ROWS * COLUMNS; ++tap)
            store(products.sums + tap * period + phase, sums[tap / COLUMNS][tap % COLUMNS]);
    }
}

constexpr Index REGISTERS = LANES == 16 ? 25 : 12;  // for sums; the others hold their inputs

// Process as many rows of taps at a time as the registers allow.
template <int COLUMNS>
void sum_products(Products products, Index tap_rows) {
    while (tap_rows > 0) {
        Index done = 1;
        if constexpr (5 * COLUMNS <= REGISTERS) if (tap_rows >= 5) done = 5;
        if constexpr (3 * COLUMNS <= REGISTERS) if (done == 1 && tap_rows >= 3) done = 3;
        if constexpr (2 * COLUMNS <= REGISTERS) if (done == 1 && tap_rows >= 2) done = 2;
        if constexpr (5 * COLUMNS <= REGISTERS) if (done == 5) sum_products<COLUMNS, 5>(products);
        if constexpr (3 * COLUMNS <= REGISTERS) if (done == 3) sum_products<COLUMNS, 3>(products);
        if constexpr (2 * COLUMNS <= REGISTERS) if (done == 2) sum_products<COLUMNS, 2>(products);
        if (done == 1) sum_products<COLUMNS, 1>(products);
        products.input += done * products.tap_row;
        products.sums += done * COLUMNS * products.period;
        tap_rows -= done;
    }
}

inline void sum_products(const Products& products, Index tap_rows, Index columns) {
    switch (columns) {
        case 1: return sum_products<1>(products, tap_rows);
        case 2: return sum_products<2>(products, tap_rows);
        case 3: return sum_products<3>(products, tap_rows);
        case 4: return sum_products<4>(products, tap_rows);
        case 5: return sum_products<5>(products, tap_rows);
        case 7: return sum_products<7>(products, tap_rows);
    }
}

}  // namespace
