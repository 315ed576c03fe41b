// Feature maps of a network whose vectors run over images: every lane of a vector is another image.
//
// A map is [groups of LANES images][height][width + 2][channels][LANES]. All channels and pixels then run the same loops
// at full width, few channels as well as many. A column of zeros at both ends of a row is the padding of convolutions.
// Lanes beyond the last image are zero in every map and every gradient. Some channels of a map are a map, too: its
// pixels then lie further apart.

#pragma once

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "threads.hpp"

namespace {

struct Map {
    Index offset;    // of its values, in vectors of the workspace
    Index gradient;  // of its gradient, the same way
    Index channels, height, width;
    Index wide;  // channels from one pixel to the next: more than its own where it is a part of another map

    Index pixel() const { return wide * LANES; }      // floats from one pixel to the next
    Index depth() const { return channels * LANES; }  // floats of one pixel
    Index pitch() const { return (width + 2) * pixel(); }
    Index rows(Index groups) const { return groups * height; }

    // The first pixel of a row; rows are numbered over all groups.
    template <class Float>
    Float* row(Float* start, Index number) const {
        return start + number * pitch() + pixel();
    }
};

struct Lot {  // the images of a batch
    Index images;

    Index groups() const { return (images + LANES - 1) / LANES; }
    Index in_group(Index group) const {
        const Index left = images - group * LANES;
        return left < LANES ? left : LANES;
    }
    Vector mask(Index group) const {  // 1 where a lane has an image
        float lanes[LANES];
        for (Index lane = 0; lane < LANES; ++lane) lanes[lane] = lane < in_group(group) ? 1.0f : 0.0f;
        return load(lanes);
    }
};

// Parts of the rows of a map. They depend on the shape alone: sums have the same order for any number of threads.
struct Bands {
    Index height, per_group, count;

    Bands(const Map& map, Index groups)
        : height(map.height), per_group(map.height < MOST ? map.height : MOST), count(groups * per_group) {}

    Index first(Index band) const { return band / per_group * height + band % per_group * height / per_group; }
    Index last(Index band) const { return band / per_group * height + (band % per_group + 1) * height / per_group; }
    Index group(Index band) const { return band / per_group; }

    static constexpr Index MOST = 4;
};

// Keeps NaN, as torch does.
ALWAYS Vector rectify(Vector value) {
#if defined(__AVX512F__)
    return Vector(_mm512_max_ps(_mm512_setzero_ps(), __m512(value)));
#elif defined(__AVX2__)
    return Vector(_mm256_max_ps(_mm256_setzero_ps(), __m256(value)));
#else
    return value < 0.0f ? Vector{} : value;
#endif
}

ALWAYS Vector where_positive(Vector sign, Vector value) { return sign <= 0.0f ? Vector{} : value; }

ALWAYS float add_lanes(Vector value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(__m512(value));
#else
    float lanes[LANES];
    store(lanes, value);
    for (Index half = LANES / 2; half > 0; half /= 2)
        for (Index lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
#endif
}

inline double add_lanes_exactly(const float* lanes) {
    double sum = 0.0;
    for (Index lane = 0; lane < LANES; ++lane) sum += double(lanes[lane]);
    return sum;
}

// Call body(first row, last row + 1) of all rows, in parallel.
template <class Body>
inline void each_row(const Map& map, Index groups, Index threads, Body body) {
    const Index rows = map.rows(groups);
    share(rows, thread_count(threads, rows, rows * map.pitch()), [&](Index first, Index last, int) {
        for (Index row = first; row < last; ++row) body(row);
    });
}

// --- from and to tensors

struct Pixels {  // a tensor [images][channels][height][width] in any layout
    const float* data;
    const Index* strides;
};

inline void read_images(const Pixels& from, const Lot& lot, const Map& map, float* to) {
    for (Index number = 0; number < map.rows(lot.groups()); ++number) {
        const Index group = number / map.height, y = number % map.height, images = lot.in_group(group);
        float* row = map.row(to, number);
        for (Index lane = 0; lane < images; ++lane) {
            const float* image = from.data + (group * LANES + lane) * from.strides[0] + y * from.strides[2];
            for (Index x = 0; x < map.width; ++x)
                for (Index channel = 0; channel < map.channels; ++channel)
                    row[x * map.pixel() + channel * LANES + lane] = image[x * from.strides[3] + channel * from.strides[1]];
        }
    }
}

// out[image][channel] = the mean of all pixels, rectified or not.
template <bool RECTIFY>
inline void average(const float* from, const Lot& lot, const Map& map, float* out) {
    const Vector share_of_one = splat(1.0f / float(map.height * map.width));
    for (Index group = 0; group < lot.groups(); ++group)
        for (Index channel = 0; channel < map.channels; ++channel) {
            Vector sum{};
            for (Index y = 0; y < map.height; ++y) {
                const float* row = map.row(from, group * map.height + y) + channel * LANES;
                for (Index x = 0; x < map.width; ++x) {
                    const Vector value = load(row + x * map.pixel());
                    sum += RECTIFY ? rectify(value) : value;
                }
            }
            float lanes[LANES];
            store(lanes, sum * share_of_one);
            for (Index lane = 0; lane < lot.in_group(group); ++lane)
                out[(group * LANES + lane) * map.channels + channel] = lanes[lane];
        }
}

template <bool RECTIFY>
inline void average_backward(
    const float* by_out, const float* values, const Lot& lot, const Map& map, float* gradient
) {
    const Vector share_of_one = splat(1.0f / float(map.height * map.width));
    for (Index group = 0; group < lot.groups(); ++group)
        for (Index channel = 0; channel < map.channels; ++channel) {
            float lanes[LANES] = {};
            for (Index lane = 0; lane < lot.in_group(group); ++lane)
                lanes[lane] = by_out[(group * LANES + lane) * map.channels + channel];
            const Vector given = load(lanes) * share_of_one;
            for (Index y = 0; y < map.height; ++y) {
                const Index row = group * map.height + y;
                const float* value = map.row(values, row) + channel * LANES;
                float* to = map.row(gradient, row) + channel * LANES;
                for (Index x = 0; x < map.width; ++x) {
                    const Index place = x * map.pixel();
                    store(to + place, RECTIFY ? where_positive(load(value + place), given) : given);
                }
            }
        }
}

// Write a map to a tensor [images][height][width][channels].
inline void write_pixels(const float* from, const Lot& lot, const Map& map, float* to) {
    for (Index number = 0; number < map.rows(lot.groups()); ++number) {
        const Index group = number / map.height, y = number % map.height;
        const float* row = map.row(from, number);
        for (Index lane = 0; lane < lot.in_group(group); ++lane) {
            float* image = to + ((group * LANES + lane) * map.height + y) * map.width * map.channels;
            for (Index x = 0; x < map.width; ++x)
                for (Index channel = 0; channel < map.channels; ++channel)
                    *image++ = row[x * map.pixel() + channel * LANES + lane];
        }
    }
}

// Add such a tensor to a map, or replace the map by it; null stands for zeros.
inline void read_pixels(const float* from, const Lot& lot, const Map& map, float* to, bool add) {
    if (from == nullptr && add) return;
    for (Index number = 0; number < map.rows(lot.groups()); ++number) {
        const Index group = number / map.height, y = number % map.height;
        float* row = map.row(to, number);
        for (Index x = 0; x < map.width; ++x)
            for (Index channel = 0; channel < map.channels; ++channel) {
                float lanes[LANES] = {};
                if (from != nullptr)
                    for (Index lane = 0; lane < lot.in_group(group); ++lane)
                        lanes[lane] = from[(((group * LANES + lane) * map.height + y) * map.width + x) * map.channels + channel];
                float* place = row + x * map.pixel() + channel * LANES;
                store(place, add ? load(place) + load(lanes) : load(lanes));
            }
    }
}

}  // namespace
