// 3x3 pools of feature maps (see maps.hpp) of stride 1 or 2, forward and backward. The border counts in none of them.

#pragma once

#include <limits>

#include "maps.hpp"

namespace {

struct MapPool {
    Map in, out;
    Index stride;
    bool largest;  // else averages
    Lot lot;

    float beyond() const { return largest ? -std::numeric_limits<float>::infinity() : 0.0f; }
};

struct Window {  // the pixels of a window; columns before the first and after the last lie in neighbouring segments
    Index top, bottom, left, right;  // the last of each is one too many
    bool before, after;              // whether it reaches beyond the first and the last column

    Window(const MapPool& pool, Index y, Index x)
        : top(y * pool.stride > 0 ? y * pool.stride - 1 : 0), bottom(y * pool.stride + 2),
          left(x * pool.stride - 1), right(x * pool.stride + 2) {
        if (bottom > pool.in.height) bottom = pool.in.height;
        before = left < 0;
        after = right > pool.in.width;
        if (pool.lot.segments > 1) return;
        if (before) left = 0;
        if (after) right = pool.in.width;
    }

    // 1 / pixels that are inside the image.
    Vector share(const Lot& lot) const {
        float lanes[LANES];
        for (Index lane = 0; lane < LANES; ++lane) {
            Index columns = right - left;
            if (lot.segments > 1) columns -= (before && lot.segment(lane) == 0) + (after && lot.segment(lane) + 1 == lot.segments);
            lanes[lane] = 1.0f / float((bottom - top) * columns);
        }
        return load(lanes);
    }
};

// NaN counts as the largest, as in torch.
ALWAYS auto is_larger(Vector value, Vector than) { return (value > than) | (value != value); }

struct WindowPixel {  // where a pixel of a window lies, and whether in the segment before or after
    Index place, neighbour;

    Vector get(const MapPool& pool, const float* image) const {
        const Vector value = load(image + place);
        if (neighbour == 0) return value;
        return neighbour < 0 ? pool.lot.from_left(value, pool.beyond()) : pool.lot.from_right(value, pool.beyond());
    }

    // Add to where the pixel comes from; what is given beyond the image is lost.
    void give(const Lot& lot, float* image, Vector value) const {
        if (neighbour != 0) value = neighbour < 0 ? lot.from_right(value) : lot.from_left(value);
        store(image + place, load(image + place) + value);
    }
};

// Call body(pixel) for the pixels of a window; rows are numbered over all groups.
template <class Body>
ALWAYS void each_pixel_of_window(const Map& map, const Window& window, Index group, const Body& body) {
    for (Index y = window.top; y < window.bottom; ++y)
        for (Index x = window.left; x < window.right; ++x) {
            const Index neighbour = x < 0 ? -1 : x >= map.width ? 1 : 0, own = x - neighbour * map.width;
            body(WindowPixel{(group * map.height + y) * map.pitch() + (own + 1) * map.pixel(), neighbour});
        }
}

inline void map_pool_row(const MapPool& pool, const float* image, Index number, float* to) {
    const Index group = number / pool.out.height, y = number % pool.out.height;
    for (Index x = 0; x < pool.out.width; ++x, to += pool.out.pixel()) {
        const Window window(pool, y, x);
        for (Index place = 0; place < pool.in.depth(); place += LANES) store(to + place, splat(pool.beyond()));
        each_pixel_of_window(pool.in, window, group, [&](const WindowPixel& pixel) {
            for (Index place = 0; place < pool.in.depth(); place += LANES) {
                const Vector value = pixel.get(pool, image + place), known = load(to + place);
                store(to + place, !pool.largest ? known + value : is_larger(value, known) ? value : known);
            }
        });
        if (pool.largest) continue;
        const Vector share_of_one = window.share(pool.lot);
        for (Index place = 0; place < pool.in.depth(); place += LANES) store(to + place, load(to + place) * share_of_one);
    }
}

// Give a pixel of the gradient to the first largest pixel of its window, for one channel.
inline void give_to_largest(
    const MapPool& pool, const Window& window, Index group, const float* image, Vector given, float* by_in
) {
    Vector best = splat(pool.beyond());
    each_pixel_of_window(pool.in, window, group, [&](const WindowPixel& pixel) {
        const Vector value = pixel.get(pool, image);
        best = is_larger(value, best) ? value : best;
    });
    Vector left = given;  // in lanes whose largest pixel has not come yet
    each_pixel_of_window(pool.in, window, group, [&](const WindowPixel& pixel) {
        const Vector value = pixel.get(pool, image);
        const auto here = (value == best) | (value != value);
        pixel.give(pool.lot, by_in, here ? left : Vector{});
        left = here ? Vector{} : left;
    });
}

// The gradient of all images of a group. Windows overlap, so groups are the tasks that threads share.
inline void map_pool_backward(const MapPool& pool, const float* image, const float* gradient, Index group, float* by_in) {
    for (Index y = 0; y < pool.out.height; ++y) {
        const float* given = pool.out.row(gradient, group * pool.out.height + y);
        for (Index x = 0; x < pool.out.width; ++x, given += pool.out.pixel()) {
            const Window window(pool, y, x);
            if (pool.largest) {
                for (Index place = 0; place < pool.in.depth(); place += LANES)
                    give_to_largest(pool, window, group, image + place, load(given + place), by_in + place);
                continue;
            }
            const Vector share_of_one = window.share(pool.lot);
            each_pixel_of_window(pool.in, window, group, [&](const WindowPixel& pixel) {
                for (Index place = 0; place < pool.in.depth(); place += LANES)
                    pixel.give(pool.lot, by_in + place, load(given + place) * share_of_one);
            });
        }
    }
}

}  // namespace
