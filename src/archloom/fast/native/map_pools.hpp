// 3x3 pools of feature maps (see maps.hpp) of stride 1 or 2, forward and backward. The border counts in none of them.

#pragma once

#include <limits>

#include "maps.hpp"

namespace {

struct MapPool {
    Map in, out;
    Index stride;
    bool largest;  // else averages
};

struct Window {  // the pixels of a window that are inside the image
    Index top, bottom, left, right;  // the last of each is one too many

    Window(const MapPool& pool, Index y, Index x)
        : top(y * pool.stride > 0 ? y * pool.stride - 1 : 0), bottom(y * pool.stride + 2),
          left(x * pool.stride > 0 ? x * pool.stride - 1 : 0), right(x * pool.stride + 2) {
        if (bottom > pool.in.height) bottom = pool.in.height;
        if (right > pool.in.width) right = pool.in.width;
    }

    float share() const { return 1.0f / float((bottom - top) * (right - left)); }
};

// NaN counts as the largest, as in torch.
ALWAYS auto is_larger(Vector value, Vector than) { return (value > than) | (value != value); }

// Call body(first float of a pixel of the window): rows are numbered over all groups.
template <class Body>
ALWAYS void each_pixel_inside(const Map& map, const Window& window, Index group, const Body& body) {
    for (Index y = window.top; y < window.bottom; ++y)
        for (Index x = window.left; x < window.right; ++x) body((group * map.height + y) * map.pitch() + (x + 1) * map.pixel());
}

inline void map_pool_row(const MapPool& pool, const float* image, Index number, float* to) {
    const Index group = number / pool.out.height, y = number % pool.out.height;
    for (Index x = 0; x < pool.out.width; ++x, to += pool.out.pixel()) {
        const Window window(pool, y, x);
        bool first = true;
        each_pixel_inside(pool.in, window, group, [&](Index pixel) {
            for (Index place = 0; place < pool.in.depth(); place += LANES) {
                const Vector value = load(image + pixel + place);
                if (first) {
                    store(to + place, value);
                } else {
                    const Vector known = load(to + place);
                    store(to + place, !pool.largest ? known + value : is_larger(value, known) ? value : known);
                }
            }
            first = false;
        });
        if (pool.largest) continue;
        const Vector share_of_one = splat(window.share());
        for (Index place = 0; place < pool.in.depth(); place += LANES) store(to + place, load(to + place) * share_of_one);
    }
}

// Give a pixel of the gradient to the first largest pixel of its window, for one channel.
inline void give_to_largest(
    const MapPool& pool, const Window& window, Index group, const float* image, Vector given, float* by_in
) {
    Vector best = splat(-std::numeric_limits<float>::infinity());
    each_pixel_inside(pool.in, window, group, [&](Index pixel) {
        const Vector value = load(image + pixel);
        best = is_larger(value, best) ? value : best;
    });
    Vector left = given;  // in lanes whose largest pixel has not come yet
    each_pixel_inside(pool.in, window, group, [&](Index pixel) {
        const Vector value = load(image + pixel);
        const auto here = (value == best) | (value != value);
        store(by_in + pixel, load(by_in + pixel) + (here ? left : Vector{}));
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
            const Vector share_of_one = splat(window.share());
            each_pixel_inside(pool.in, window, group, [&](Index pixel) {
                for (Index place = 0; place < pool.in.depth(); place += LANES) {
                    float* to = by_in + pixel + place;
                    store(to, load(to) + load(given + place) * share_of_one);
                }
            });
        }
    }
}

}  // namespace
