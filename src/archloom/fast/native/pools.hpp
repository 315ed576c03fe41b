// 3x3 pools without padding, forward and backward, and the backward pass of ReLU.
//
// Forward: three rows are combined into one, which is then pooled along its length. Backward: every pixel gathers from
// the windows that contain it, row by row and, where the stride is 2, separately for even and odd columns.

#pragma once

#include <limits>

#include "depthwise.hpp"

namespace {

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

inline void fill(float* to, float value, Index count) {
    for (Index entry = 0; entry < count; ++entry) to[entry] = value;
}

struct Span {  // from the first to the one after the last
    Index first, last;
    Index count() const { return last - first; }
};

// The pixels of a window that are inside the image, along one direction.
inline Span inside(Index window, Index stride, Index size) {
    const Index middle = window * stride;
    return {middle > 0 ? middle - 1 : 0, middle + 2 < size ? middle + 2 : size};
}

// The windows that contain a pixel, along one direction; there are `size` windows.
inline Span windows(Index pixel, Index stride, Index size) {
    const Index first = pixel == 0 ? 0 : (pixel - 1 + stride - 1) / stride, last = (pixel + 1) / stride + 1;
    return {first, last < size ? last : size};
}

struct Average {
    static constexpr float BORDER = 0.0f;
    static float join(float one, float other) { return one + other; }
    static float scale(Index pixels) { return 1.0f / float(pixels); }
};

struct Largest {
    static constexpr float BORDER = LOWEST;
    static float join(float one, float other) { return one > other || one != one ? one : other; }  // keeps NaN
    static float scale(Index) { return 1.0f; }
};

// --- forward

template <class Kind>
inline void pool_row(float* __restrict out, const float* __restrict row, const Shape& shape, Index rows) {
    const Index channels = shape.channels, width = shape.out_width();
    if (shape.stride == 1) {
        const float scale = Kind::scale(3 * rows);
        for (Index entry = 0; entry < width * channels; ++entry)
            out[entry] = Kind::join(Kind::join(row[entry], row[entry + channels]), row[entry + 2 * channels]) * scale;
    } else {
        const float scale = Kind::scale(3 * rows);
        each_pixel(width, channels, [=](Index pixel, Index count) {
            const float* from = row + 2 * pixel * count;
            for (Index channel = 0; channel < count; ++channel)
                out[pixel * count + channel] =
                    Kind::join(Kind::join(from[channel], from[channel + count]), from[channel + 2 * count]) * scale;
        });
    }
    for (Index x = 0; x < width; x += width > 1 ? width - 1 : 1) {  // fewer pixels at both ends
        const Index columns = inside(x, shape.stride, shape.width).count();
        if (columns == 3) continue;
        const float scale = Kind::scale(columns * rows);
        const float* from = row + x * shape.stride * channels;
        for (Index channel = 0; channel < channels; ++channel)
            out[x * channels + channel] =
                Kind::join(Kind::join(from[channel], from[channel + channels]), from[channel + 2 * channels]) * scale;
    }
}

template <class Kind>
inline void pool_image(float* out, const float* image, const Shape& shape, float* padded) {
    const Index floats = shape.width * shape.channels;
    float* row = padded + shape.channels;
    for (Index y = 0; y < shape.out_height(); ++y) {
        const Span rows = inside(y, shape.stride, shape.height);
        const float* one = image + rows.first * floats;
        const float* two = one + (rows.count() > 1 ? floats : 0);
        const float* three = image + (rows.last - 1) * floats;
        if (rows.count() == 3)
            for (Index entry = 0; entry < floats; ++entry)
                row[entry] = Kind::join(Kind::join(one[entry], two[entry]), three[entry]);
        else if (rows.count() == 2)
            for (Index entry = 0; entry < floats; ++entry) row[entry] = Kind::join(one[entry], two[entry]);
        else
            std::memcpy(row, one, std::size_t(floats) * sizeof(float));
        pool_row<Kind>(out + y * shape.out_width() * shape.channels, padded, shape, rows.count());
    }
}

template <class Kind>
inline void pool(const Image& image, const Shape& shape, float* out, Index threads_given) {
    const Index channels = shape.channels, floats = shape.pixels() * channels;
    const Index border = (shape.width + 2) * channels, work = round_up(border + floats, LANES);
    const int threads = thread_count(threads_given, shape.batch, shape.batch * floats);
    Buffer<float> works(threads * work);
    share(shape.batch, threads, [&](Index first, Index last, int share_number) {
        float *padded = works.at(share_number * work), *copy = padded + border;
        fill(padded, Kind::BORDER, border);
        for (Index number = first; number < last; ++number) {
            const float* values = flat(image, number * shape.pixels(), shape.pixels(), channels, copy);
            pool_image<Kind>(out + number * shape.out_pixels() * channels, values, shape, padded);
        }
    });
}

// --- backward

// Rows of windows with one empty window at each end.
inline Index window_row(const Shape& shape) { return (shape.out_width() + 2) * shape.channels; }

// Call gather(to, first window, tap of the first, windows) for each plane of columns. Its pixels belong to adjacent
// windows: to the first by the given tap (0, 1 or 2), to the next by a tap `stride` less.
template <class Gather>
inline void gather_row(const Shape& shape, float* row, float* plane, Gather gather) {
    const Index channels = shape.channels;
    if (shape.stride == 1) {
        gather(row, Index(0), Index(2), Index(3), shape.width * channels);  // windows x - 1, x, x + 1
        return;
    }
    const Index even = (shape.width + 1) / 2, odd = shape.width / 2;
    gather(plane, channels, Index(1), Index(1), even * channels);  // window x / 2 alone
    copy_pixels(row, 2 * channels, plane, channels, even, channels);
    gather(plane, channels, Index(2), Index(2), odd * channels);  // windows (x - 1) / 2 and (x + 1) / 2
    copy_pixels(row + channels, 2 * channels, plane, channels, odd, channels);
}

// Divide by the number of pixels of each window.
inline void spread_average(float* to, const float* gradient, const Shape& shape) {
    const Index channels = shape.channels, width = shape.out_width();
    for (Index y = 0; y < shape.out_height(); ++y) {
        const Index rows = inside(y, shape.stride, shape.height).count();
        float* row = to + y * window_row(shape) + channels;
        const float* from = gradient + y * width * channels;
        for (Index x = 0; x < width; ++x) {
            const float scale = 1.0f / float(rows * inside(x, shape.stride, shape.width).count());
            for (Index channel = 0; channel < channels; ++channel)
                row[x * channels + channel] = from[x * channels + channel] * scale;
        }
    }
}

inline void average_row(
    float* row, const float* spread, const Shape& shape, Index y, float* joined, float* plane
) {
    const Index length = window_row(shape), channels = shape.channels;
    const Span rows = windows(y, shape.stride, shape.out_height());
    fill(joined, 0.0f, length);
    for (Index window = rows.first; window < rows.last; ++window)
        for (Index entry = 0; entry < length; ++entry) joined[entry] += spread[window * length + entry];
    gather_row(shape, row, plane, [=](float* __restrict to, Index first, Index, Index count, Index floats) {
        const float* __restrict from = joined + first;
        if (count == 3)
            for (Index entry = 0; entry < floats; ++entry)
                to[entry] = from[entry] + from[entry + channels] + from[entry + 2 * channels];
        else if (count == 2)
            for (Index entry = 0; entry < floats; ++entry) to[entry] = from[entry] + from[entry + channels];
        else
            std::memcpy(to, from, std::size_t(floats) * sizeof(float));
    });
}

// The tap of the first largest pixel of every window: 3 * row + column. image: padded, in planes by column.
inline void find_largest(
    std::int32_t* taps, const float* image, const Padded& padded, const Shape& shape, float* __restrict largest
) {
    const Index channels = shape.channels, floats = shape.out_width() * channels;
    for (Index y = 0; y < shape.out_height(); ++y) {
        std::int32_t* __restrict tap = taps + y * window_row(shape) + channels;
        fill(largest, LOWEST, floats);
        for (Index entry = 0; entry < floats; ++entry) tap[entry] = 4;  // the middle is always inside
        for (std::int32_t row = 0; row < 3; ++row) {
            const float* start = image + (y * shape.stride + row) * padded.pitch;
            const float* __restrict left = start;
            const float* __restrict middle = start + 1 % shape.stride * padded.plane + 1 / shape.stride * channels;
            const float* __restrict right = start + 2 / shape.stride * channels;
            for (Index entry = 0; entry < floats; ++entry) {
                float most = largest[entry];
                std::int32_t place = tap[entry];
                place = left[entry] > most ? 3 * row : place;
                most = left[entry] > most ? left[entry] : most;
                place = middle[entry] > most ? 3 * row + 1 : place;
                most = middle[entry] > most ? middle[entry] : most;
                place = right[entry] > most ? 3 * row + 2 : place;
                most = right[entry] > most ? right[entry] : most;
                largest[entry] = most;
                tap[entry] = place;
            }
        }
    }
}

// Add the gradient of COUNT adjacent windows where this tap was the largest.
template <int COUNT>
inline void add_largest(
    float* __restrict to, const float* __restrict gradient, const std::int32_t* __restrict taps, std::int32_t tap,
    std::int32_t stride, Index channels, Index floats
) {
    for (Index entry = 0; entry < floats; ++entry) {
        float sum = to[entry];
        for (int window = 0; window < COUNT; ++window) {
            const Index from = entry + window * channels;
            sum += taps[from] == tap - window * stride ? gradient[from] : 0.0f;
        }
        to[entry] = sum;
    }
}

inline void largest_row(
    float* row, const float* gradient, const std::int32_t* taps, const Shape& shape, Index y, float* plane
) {
    const Index length = window_row(shape), channels = shape.channels;
    const Span rows = windows(y, shape.stride, shape.out_height());
    gather_row(shape, row, plane, [=](float* __restrict to, Index first, Index tap, Index count, Index floats) {
        fill(to, 0.0f, floats);
        for (Index window = rows.first; window < rows.last; ++window) {
            const Index start = window * length + first;
            const auto here = std::int32_t(3 * (y - window * shape.stride + 1) + tap);
            const auto add = count == 3 ? add_largest<3> : count == 2 ? add_largest<2> : add_largest<1>;
            add(to, gradient + start, taps + start, here, std::int32_t(shape.stride), channels, floats);
        }
    });
}

struct Pool {
    Image gradient, image;
    Shape shape;
    Image slot;
    bool filled;
};

inline void average_pool_backward(const Pool& pool, Index threads_given) {
    const Shape& shape = pool.shape;
    const Index channels = shape.channels, length = window_row(shape), floats = shape.width * channels;
    const Index spread = shape.out_height() * length, copy = shape.out_pixels() * channels;
    const Index work = round_up(spread + copy + length + 2 * floats, LANES);
    const int threads = thread_count(threads_given, shape.batch, shape.batch * shape.pixels() * channels);
    Buffer<float> works(threads * work);
    works.clear();
    share(shape.batch, threads, [&](Index first, Index last, int share_number) {
        float *windows = works.at(share_number * work), *dense = windows + spread;
        float *joined = dense + copy, *row = joined + length, *plane = row + floats;
        for (Index number = first; number < last; ++number) {
            const Index given = number * shape.out_pixels();
            spread_average(windows, flat(pool.gradient, given, shape.out_pixels(), channels, dense), shape);
            for (Index y = 0; y < shape.height; ++y) {
                average_row(row, windows, shape, y, joined, plane);
                put(pool.slot, number * shape.pixels() + y * shape.width, row, shape.width, channels, pool.filled);
            }
        }
    });
}

inline void max_pool_backward(const Pool& pool, Index threads_given) {
    const Shape& shape = pool.shape;
    const Index channels = shape.channels, length = window_row(shape), floats = shape.width * channels;
    const Index all = shape.out_height() * length;
    const Padded padded(shape.height, shape.width, channels, 1, shape.stride);
    const Index copy = round_up(padded.floats(), LANES), work = round_up(copy + all + length + 2 * floats, LANES);
    const int threads = thread_count(threads_given, shape.batch, shape.batch * shape.pixels() * channels);
    Buffer<float> works(threads * work);
    Buffer<std::int32_t> taps(threads * all);
    works.clear();
    for (Index entry = 0; entry < threads * all; ++entry) taps[entry] = -1;  // outside the image: belongs to no window
    share(shape.batch, threads, [&](Index first, Index last, int share_number) {
        float *image = works.at(share_number * work), *gradient = image + copy;
        float *largest = gradient + all, *row = largest + length, *plane = row + floats;
        fill(image, LOWEST, copy);
        for (Index number = first; number < last; ++number) {
            for (Index y = 0; y < shape.height; ++y) {
                const Index start = number * shape.pixels() + y * shape.width;
                padded.place(image, y, flat(pool.image, start, shape.width, channels, row), shape.width);
            }
            for (Index y = 0; y < shape.out_height(); ++y) {
                const Index start = number * shape.out_pixels() + y * shape.out_width();
                copy_pixels(
                    gradient + y * length + channels, channels, pool.gradient.data + start * pool.gradient.pixel,
                    pool.gradient.pixel, shape.out_width(), channels
                );
            }
            find_largest(taps.at(share_number * all), image, padded, shape, largest);
            for (Index y = 0; y < shape.height; ++y) {
                largest_row(row, gradient, taps.at(share_number * all), shape, y, plane);
                put(pool.slot, number * shape.pixels() + y * shape.width, row, shape.width, channels, pool.filled);
            }
        }
    });
}

// --- the way back through a rectifier

inline void rectify_backward(const Pool& pool, Index threads_given) {
    const Index channels = pool.shape.channels;
    const Cut cut(pool.shape.batch * pool.shape.pixels(), channels);
    const Rectifier rectifier(nullptr, cut);
    const int threads = thread_count(threads_given, cut.chunks, cut.pixels * channels);
    Buffer<float> copies(threads * 3 * cut.floats());
    share(cut.blocks, threads, [&](Index first, Index last, int share_number) {
        float* copy = copies.at(share_number * 3 * cut.floats());
        for (Index block = first; block < last; ++block) {
            const Index start = cut.first(block), pixels = cut.count(block), floats = pixels * channels;
            const float* gradient = flat(pool.gradient, start, pixels, channels, copy);
            const float* values = flat(pool.image, start, pixels, channels, copy + cut.floats());
            through_copy(
                pool.slot, pool.filled, start, pixels, channels, copy + 2 * cut.floats(), [&](float* to, bool add) {
                    add ? rectifier.mask<true>(to, gradient, values, floats)
                        : rectifier.mask<false>(to, gradient, values, floats);
                }
            );
        }
    });
}

}  // namespace
