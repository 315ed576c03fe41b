// Products of matrices whose sums stay in registers. The right factor is read in panels of a few vectors.
//
// The left factor may lie in any direction: an element is `data[row * row_step + depth * depth_step]`.

#pragma once

#include <type_traits>

#include "threads.hpp"

namespace {

constexpr int TILE_ROWS = LANES == 16 ? 8 : 4;       // with PANEL vectors each: as many sums as registers hold
constexpr Index PANEL = LANES == 4 ? 2 : 3;          // vectors
constexpr Index WORTH_SHARING = 8 * WORTH_THREADS;   // multiply-adds; a smaller product is done before threads start

template <int VALUE>
using Size = std::integral_constant<int, VALUE>;

inline Index panel_count(Index vectors) { return (vectors + PANEL - 1) / PANEL; }
inline Index panel_width(Index vectors, Index panel) {
    return vectors - panel * PANEL < PANEL ? vectors - panel * PANEL : PANEL;
}

// sums[r][v] += sum over depth of left[r][depth] * right[depth][v].
template <int R, int V>
ALWAYS void add_tile(
    const float* left, Index row_step, Index depth_step, const float* right, Index right_step, Index depth,
    Vector (&sums)[R][V]
) {
    for (Index k = 0; k < depth; ++k) {
        Vector values[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) values[v] = load(right + k * right_step + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const Vector factor = splat(left[r * row_step + k * depth_step]);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sums[r][v] += factor * values[v];
        }
    }
}

template <int V, class Each>
ALWAYS void each_row_tile(Index rows, Each each) {
    Index row = 0;
    for (; row + TILE_ROWS <= rows; row += TILE_ROWS) each(row, Size<TILE_ROWS>{}, Size<V>{});
    if (TILE_ROWS > 4 && row + 4 <= rows) {
        each(row, Size<4>{}, Size<V>{});
        row += 4;
    }
    for (; row < rows; ++row) each(row, Size<1>{}, Size<V>{});
}

// Call each(first row, number of rows, number of vectors) for all tiles of a panel; both numbers are types.
template <class Each>
ALWAYS void each_tile(Index rows, Index width, Each each) {
    switch (width) {
        case 1: return each_row_tile<1>(rows, each);
        case 2: return each_row_tile<2>(rows, each);
        default: return each_row_tile<PANEL>(rows, each);
    }
}

// A right factor cut into panels, each [depth][width]: tiles then read it without gaps.
class Panels {
  public:
    Panels(Index depth, Index vectors) : depth_(depth), vectors_(vectors), data_(depth * vectors * LANES) {}

    // Fill from element(depth, column).
    template <class Element>
    void fill(Element element) {
        for (Index panel = 0; panel < count(); ++panel) {
            float* to = data_.at(panel * PANEL * LANES * depth_);
            const Index floats = width(panel) * LANES;
            for (Index k = 0; k < depth_; ++k)
                for (Index column = 0; column < floats; ++column)
                    to[k * floats + column] = element(k, panel * PANEL * LANES + column);
        }
    }

    Index count() const { return panel_count(vectors_); }
    Index width(Index panel) const { return panel_width(vectors_, panel); }
    Index depth() const { return depth_; }
    Index vectors() const { return vectors_; }
    const float* at(Index panel) const { return data_.at(panel * PANEL * LANES * depth_); }

  private:
    Index depth_, vectors_;
    Buffer<float> data_;
};

}  // namespace
